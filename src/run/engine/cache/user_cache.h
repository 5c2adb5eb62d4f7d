// The user's cache: where compiled kernels, plans, results of trials and tokenized data are kept between starts, and
// how much of it (base/sealed). Proved by tests/run/engine/user_cache_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/sealed/sealed.h"

namespace lumen::run {

// Where Engine::Options::cache_folder says that things are kept; empty for memory only.
std::filesystem::path cache_folder(const std::string& option);
// Nothing shall be kept: the option says so, or the environment.
bool is_cache_off(const std::string& option);

// Bytes that a folder may hold in all, from now on in this process; 0: no limit. Without it $LUMEN_CACHE_LIMIT says so
// ("20G"; Error (usage) where that is no amount), else it is kCacheLimit.
void set_cache_limit(int64_t bytes);
int64_t cache_limit();
inline constexpr int64_t kCacheLimit = int64_t{20} << 30;

// The folder, opened. Where nothing can be kept the object says why, and a warning has told it once; `quiet`: it has
// not. Where nothing shall be kept there is no reason.
std::unique_ptr<SealedFolder> open_cache(const std::string& option, bool quiet = false);

}  // namespace lumen::run
