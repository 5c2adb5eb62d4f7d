// The user's cache: compiled kernels, plans, trial results and tokenized data kept between runs, with a size limit
// (base/sealed). Proved by tests/run/engine/user_cache_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/sealed/sealed.h"

namespace lumen::run {

// The folder for Engine::Options::cache_folder; empty for memory only.
std::filesystem::path cache_folder(const std::string& option);
// The option or the environment disables the cache.
bool is_cache_off(const std::string& option);

// The total size of the folder in bytes, for this process; 0: no limit. The default is $LUMEN_CACHE_LIMIT ("20G"; Error
// (usage) for an invalid amount), or else kCacheLimit.
void set_cache_limit(int64_t bytes);
int64_t cache_limit();
inline constexpr int64_t kCacheLimit = int64_t{20} << 30;

// Opens the folder. If nothing can be kept, the object has the reason, and a warning is printed once unless `quiet`. A
// disabled cache has no reason.
std::unique_ptr<SealedFolder> open_cache(const std::string& option, bool quiet = false);

}  // namespace lumen::run
