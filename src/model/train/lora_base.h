// The model an adapter is trained beside, known by its content: checkpoints of such a run hold the adapter alone.
// Proved by tests/model/lora_resume_test.cpp.
#pragma once

#include <string>

#include "base/hash.h"
#include "model/arch/model.h"
#include "model/file/checkpoint.h"

namespace lumen::model {

// Of all weights: names, shapes, elements and bytes, whatever file they lie in.
Hash weights_hash(const Model& model);

struct BaseModel {
  std::string path;  // where it was last read from
  Hash hash;
};
void record_base(const BaseModel& base, CheckpointContent* content);
// Nothing where the checkpoint holds all weights itself.
std::optional<BaseModel> recorded_base(const Checkpoint& checkpoint);
// Reads it from where it was, or from `elsewhere` when that is not empty. Error (exit 5) when its weights are not those
// the run began with.
Model read_base(const LibraryRef& library, const BaseModel& base, const std::string& elsewhere);

}  // namespace lumen::model
