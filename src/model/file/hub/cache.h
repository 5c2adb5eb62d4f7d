// The layout of the Hugging Face cache, which the Python package huggingface_hub shares: for each repository a folder
// models--USER--REPO with blobs/ETAG (contents), refs/REVISION (a commit as text) and snapshots/COMMIT/PATH (relative
// links to blobs). The cache is, in this order, $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub: the first variable that is set decides. Proved by
// tests/model/file/hub/cache_test.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/file/hub/choose.h"
#include "model/file/hub/name.h"

namespace lumen::model::file {

std::filesystem::path hub_cache();

// The commit that a branch, a tag, a commit or the first seven digits or more of one name in a repository's folder.
// Without a reference named main, main is the only snapshot. Empty where there is none.
std::string cached_commit(const std::filesystem::path& repository, const std::string& revision);

// The files of a snapshot, as paths in the repository, sorted. Files whose contents are missing are left out.
FileNames snapshot_files(const std::filesystem::path& snapshot);

struct CachedModel {
  HubName name;      // selects it
  std::string type;  // "Q4_K_M", "safetensors"
  std::filesystem::path snapshot;
  FileNames files;  // of the snapshot
  uint64_t bytes = 0;
  std::filesystem::file_time_type modified = std::filesystem::file_time_type::min();
  bool is_whole = true;  // no part is missing
};

// All models of the cache, sorted by name; folders that have another layout are skipped.
std::vector<CachedModel> cached_models(const std::filesystem::path& cache);

}  // namespace lumen::model::file
