// The base model of an adapter, identified by its content: checkpoints of such a run hold only the adapter. Proved by
// tests/model/train/adapter/lora_resume_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "base/hash.h"
#include "model/arch/identity.h"
#include "model/arch/model.h"
#include "model/file/checkpoint.h"

namespace lumen::model::recipe {

void record_base(const Hash& weights, file::CheckpointContent* content);
// The hash of the base weights of an adapter; nullopt where the checkpoint holds all weights itself.
std::optional<Hash> recorded_base(const file::Checkpoint& checkpoint);
// Error (exit 5) when the weights are not those that the run began with.
arch::Model read_base(const arch::LibraryRef& library, const Hash& weights, const std::string& path);

}  // namespace lumen::model::recipe
