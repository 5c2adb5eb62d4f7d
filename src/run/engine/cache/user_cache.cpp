#include "run/engine/cache/user_cache.h"

#include <atomic>
#include <cstdlib>

#include "run/device/available.h"

namespace lumen::run {
namespace {

std::filesystem::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

constexpr int64_t kUnsaid = -1;
std::atomic<int64_t> said_limit{kUnsaid};

}  // namespace

std::filesystem::path cache_folder(const std::string& option) {
  std::filesystem::path folder = option;
  if (folder.empty()) folder = environment_path("LUMEN_CACHE");
  if (folder == "off") return {};
  if (!folder.empty()) return folder;
  if (const auto xdg = environment_path("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "lumen";
  if (const auto home = environment_path("HOME"); home.is_absolute()) return home / ".cache" / "lumen";
  return {};
}

bool is_cache_off(const std::string& option) {
  return option == "off" || (option.empty() && environment_path("LUMEN_CACHE") == "off");
}

void set_cache_limit(int64_t bytes) {
  said_limit = bytes;
}

int64_t cache_limit() {
  if (const int64_t said = said_limit; said != kUnsaid) return said;
  const char* const limit = std::getenv("LUMEN_CACHE_LIMIT");
  if (!limit || !*limit) return kCacheLimit;
  return parse_amount(limit, "LUMEN_CACHE_LIMIT");
}

std::unique_ptr<SealedFolder> open_cache(const std::string& option, bool quiet) {
  SealedFolderOptions options{.quiet = quiet, .most_bytes = cache_limit()};
  if (!is_cache_off(option)) options.nowhere = "neither HOME nor XDG_CACHE_HOME is set";
  return std::make_unique<SealedFolder>(cache_folder(option), std::move(options));
}

}  // namespace lumen::run
