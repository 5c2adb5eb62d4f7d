// Training checkpoints: OUT/checkpoint-<step>/ with model.safetensors, optimizer.safetensors, trainer_state.json and
// small files of the caller. A checkpoint is written into a hidden folder next to it, synced and renamed: at every
// moment (a kill, a full disk) the earlier checkpoints are whole, and a partial one is never taken for a checkpoint.
// trainer_state.json records size and content hash of every other file; loading verifies them. Proved by
// tests/model/file/checkpoint_test.cpp (killed and starved writers).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/file/gguf.h"
#include "model/file/safetensors.h"

namespace lumen::model::file {

// A trainer's state in addition to tensors. Everything random in training is a pure function of (seed, counter), so
// these few numbers make resuming exact.
struct TrainerState {
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  uint64_t random_counter = 0;  // of counter-based random operators
  uint64_t data_position = 0;   // index of the next batch
  std::string config;           // the resolved recipe as text; whether another may resume is the caller's decision
  nlohmann::json more = nlohmann::json::object();  // losses, scaler state...
};

struct CheckpointContent {
  TrainerState state;
  std::vector<TensorSpec> weights, optimizer;
  // Returns the blob of a tensor named above; called once per tensor, in order. The span must stay valid until the next
  // call.
  std::function<std::span<const uint8_t>(const TensorSpec&)> fetch;
  std::map<std::string, std::string> files;  // plain file name -> content: tokenizer.json, config.json
  std::optional<GgufMetadata> header;        // stored as a GGUF file without tensors
};

// Writes OUT/checkpoint-<step> and returns its path; then removes the oldest beyond `save_total_limit` (0 = keep all;
// keep_checkpoints does so later) and leftovers of killed writers. Replaces a checkpoint of the same step.
std::filesystem::path save_checkpoint(const std::filesystem::path& out, const CheckpointContent& content,
                                      int save_total_limit = 0);

// Removes the oldest beyond `limit` (0: none), but never `newest` and `best`. Call it once the newest is confirmed.
void keep_checkpoints(const std::filesystem::path& out, int limit, const std::filesystem::path& newest,
                      const std::filesystem::path& best = {});
// Removes one checkpoint as a whole.
void discard_checkpoint(const std::filesystem::path& folder);

// Folders in OUT with a complete checkpoint (state readable, every file present with its size), by ascending step.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& out);
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& out);

// A checkpoint opened for reading, its hashes verified.
struct Checkpoint {
  std::filesystem::path folder;
  TrainerState state;
  std::shared_ptr<const SafetensorsFile> weights, optimizer;
  std::map<std::string, std::string> files;
  std::optional<GgufMetadata> header;
};
// Error with exit code `verify` when a hash differs, `user` when something is missing or malformed.
Checkpoint load_checkpoint(const std::filesystem::path& folder, const FormatLibrary& formats);

// Removes hidden folders and files of writers that have ended.
void clean_checkpoints(const std::filesystem::path& out);

}  // namespace lumen::model::file
