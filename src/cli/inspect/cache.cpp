// lumen cache, lumen cache clear
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "run/device/available.h"
#include "run/engine/cache/user_cache.h"

namespace lumen::cli {
namespace {

struct CacheFlags {
  std::string kind;
  bool json = false;
};

// ISO 8601 date and time, UTC.
std::string time_text(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// The cache folder; Error when the cache is off.
std::filesystem::path folder_of(const Shared& shared) {
  const std::filesystem::path folder = run::cache_folder(shared.cache);
  if (!folder.empty()) return folder;
  if (run::is_cache_off(shared.cache)) throw user_error("the cache is off: nothing is kept");
  throw Error(Exit::user, "there is no cache folder: neither HOME nor XDG_CACHE_HOME is set",
              "--cache DIR names a folder");
}

int show(const Shared& shared, const CacheFlags& flags) {
  const std::filesystem::path folder = folder_of(shared);
  std::error_code failure;
  const bool is_there = std::filesystem::exists(folder, failure);
  std::string path = (folder / fmt::format("user-{}", ::geteuid())).string(), trouble;
  if (is_there || failure) trouble = run::open_cache(shared.cache, true)->trouble();
  const std::vector<SealedKind> kinds = list_sealed(folder);
  const int64_t limit = run::cache_limit();
  int64_t files = 0, bytes = 0;
  for (const SealedKind& kind : kinds) {
    files += kind.files;
    bytes += kind.bytes;
  }
  if (flags.json) {
    nlohmann::ordered_json out = {{"path", path}, {"limit", limit}, {"files", files}, {"bytes", bytes}};
    out["state"] = trouble.empty() ? (is_there ? "ready" : "not made yet") : trouble;
    out["kinds"] = nlohmann::ordered_json::array();
    for (const SealedKind& kind : kinds)
      out["kinds"].push_back(
          {{"kind", kind.name}, {"files", kind.files}, {"bytes", kind.bytes}, {"oldest", time_text(kind.oldest)}});
    put_text(out.dump(2) + "\n");
    return 0;
  }
  put(fmt::format("{}{}\n", path, is_there ? "" : " (not made yet)"));
  if (!trouble.empty()) put(fmt::format("cannot be used: {}\n", trouble));
  if (!kinds.empty()) put(fmt::format("{:<12} {:>8} {:>14}  {}\n", "kind", "files", "bytes", "oldest use"));
  for (const SealedKind& kind : kinds)
    put(fmt::format("{:<12} {:>8} {:>14}  {}\n", kind.name, kind.files, kind.bytes, time_text(kind.oldest)));
  put(fmt::format("{} files, {}; {}\n", files, size_text(bytes),
                  limit == 0 ? "no limit" : "at most " + size_text(limit)));
  return 0;
}

int clear(const Shared& shared, const CacheFlags& flags) {
  const std::filesystem::path folder = folder_of(shared);
  std::string names;
  bool is_known = flags.kind.empty();
  for (const SealedKind& kind : list_sealed(folder)) {
    names += (names.empty() ? "" : ", ") + kind.name;
    is_known = is_known || kind.name == flags.kind;
  }
  if (!is_known)
    throw Error(Exit::user, fmt::format("the cache holds no '{}'", flags.kind),
                names.empty() ? "it is empty" : "it holds " + names);
  const int64_t bytes = clear_sealed(folder, flags.kind);
  if (flags.json)
    put_text(nlohmann::ordered_json{{"path", folder.string()}, {"removed_bytes", bytes}}.dump() + "\n");
  else
    put(fmt::format("{} removed from {}\n", size_text(bytes), folder.string()));
  return 0;
}

}  // namespace

void add_cache(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CacheFlags>();
  CLI::App* sub = app.add_subcommand("cache", "Show or clear the caches on disk: kernels, plans, tokenized data");
  sub->require_subcommand(0, 1);
  add_setting(*sub, "--json", flags->json);
  add_shared_flags(*sub, command.shared);
  CLI::App* cleared = sub->add_subcommand("clear", "Delete the whole cache or one kind; later runs make it again");
  add_settings(*cleared, "kind", flags->kind, "--json", flags->json);
  set_action(*cleared, command, flags, clear);
  sub->footer(
      "--cache, LUMEN_CACHE, XDG_CACHE_HOME and HOME set the folder; --cache-limit and LUMEN_CACHE_LIMIT its size.\n"
      "Examples:\n"
      "  lumen cache\n"
      "  lumen cache clear tokens");
  sub->callback([sub, flags, &command] {
    if (!sub->get_subcommands().empty()) return;
    command.action = [flags, shared = command.shared] { return show(*shared, *flags); };
  });
}

}  // namespace lumen::cli
