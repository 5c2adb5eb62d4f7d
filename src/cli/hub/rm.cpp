// lumen rm NAME..
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/file/hub/hub.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;
using model::file::HubName;

struct RemoveFlags {
  std::vector<std::string> names;
  bool yes = false;
};

// What one name removes.
struct Removal {
  HubName name;
  fs::path repository, snapshot;
  model::file::FileNames files;  // of the snapshot
  bool whole_snapshot = false;
};

// The blob that a file of a snapshot is a link to; empty where it is none of this repository's.
fs::path blob_of(const fs::path& repository, const fs::path& file) {
  std::error_code failure;
  if (!fs::is_symlink(file, failure)) return {};
  const fs::path target = (file.parent_path() / fs::read_symlink(file, failure)).lexically_normal();
  if (failure || target.parent_path() != (repository / "blobs").lexically_normal()) return {};
  return target;
}

// The blobs that snapshots of the repository use.
std::set<fs::path> used_blobs(const fs::path& repository) {
  std::set<fs::path> out;
  std::error_code failure;
  for (const fs::path& file : list_below(repository / "snapshots", failure))
    if (const fs::path blob = blob_of(repository, file); !blob.empty()) out.insert(blob);
  return out;
}

// The name, with its repository where the text is short or an alias.
HubName full_name(const std::string& given) {
  const auto& aliases = model::file::local_names().aliases;
  const auto alias = aliases.find(given);
  const std::string text = alias == aliases.end() ? given : alias->second;
  if (text.find('/') != std::string::npos) return model::file::parse_hub_name(text);
  const std::string repo = text.substr(0, text.find_first_of(":@"));
  std::set<std::string> found;
  for (const model::file::CachedModel& one : model::file::cached_models(model::file::hub_cache()))
    if (model::file::in_lower_case(one.name.repo) == model::file::in_lower_case(repo))
      found.insert(one.name.repository());
  if (found.size() == 1) return model::file::parse_hub_name(*found.begin() + text.substr(repo.size()));
  throw Error(Exit::user,
              found.empty() ? fmt::format("the cache has no model '{}'", given)
                            : fmt::format("several models are called '{}'", given),
              "`lumen list` shows the names; files elsewhere are not removed");
}

Removal plan(const std::string& given) {
  Removal out;
  out.name = full_name(given);
  const fs::path cache = model::file::hub_cache();
  out.repository = cache / out.name.folder();
  std::error_code failure;
  if (fs::is_symlink(out.repository, failure))
    throw Error(Exit::user,
                fmt::format("{} is a link to another place, where nothing is removed", out.repository.string()),
                "remove the link by hand");
  const std::string commit = model::file::cached_commit(out.repository, out.name.revision);
  if (commit.empty())
    throw Error(Exit::user, fmt::format("the cache {} has no model '{}'", cache.string(), out.name.text()),
                "`lumen list` shows the names");
  out.snapshot = out.repository / "snapshots" / commit;
  const model::file::FileNames all = model::file::snapshot_files(out.snapshot);
  if (out.name.part.empty() && out.name.file.empty()) {
    out.files = all;
    out.whole_snapshot = true;
    return out;
  }
  // Parts of a split model may be missing, so the set is found by its name here.
  std::vector<model::file::GgufSet> sets = model::file::gguf_sets(all);
  for (model::file::GgufSet& set : sets) set.parts = int(set.files.size());
  out.files = model::file::choose_gguf(sets, out.name).files;
  out.whole_snapshot = std::ranges::all_of(
      all, [&](const std::string& file) { return std::ranges::find(out.files, file) != out.files.end(); });
  return out;
}

bool agrees(const std::string& question) {
  if (::isatty(STDIN_FILENO) != 1)
    throw Error(Exit::usage, "nothing is removed without an answer, and standard input is no terminal",
                "--yes removes without asking");
  put(question + " [y/N] ");
  finish_output();
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

uint64_t remove_file(const fs::path& file) {
  std::error_code failure;
  const uintmax_t bytes = fs::is_symlink(file, failure) ? 0 : fs::file_size(file, failure);
  if (!fs::remove(file, failure) && failure)
    throw Error(Exit::user, fmt::format("cannot remove '{}': {}", file.string(), failure.message()));
  return failure ? 0 : bytes;
}

// Removes references to a commit whose snapshot has been removed.
void remove_references(const fs::path& repository) {
  std::error_code failure;
  for (const fs::path& file : list_below(repository / "refs", failure)) {
    if (!fs::is_regular_file(file, failure)) continue;
    const std::string commit = read_file(file, 1024);
    if (!fs::is_directory(repository / "snapshots" / commit.substr(0, commit.find_last_not_of(" \r\n") + 1), failure))
      fs::remove(file, failure);
  }
}

// Bytes that were freed.
uint64_t remove(const Removal& removal) {
  const std::set<fs::path> before = used_blobs(removal.repository);
  uint64_t bytes = 0;
  for (const std::string& file : removal.files) bytes += remove_file(removal.snapshot / file);
  if (removal.whole_snapshot) remove_tree(removal.snapshot);
  const std::set<fs::path> after = used_blobs(removal.repository);
  for (const fs::path& blob : before)
    if (!after.contains(blob)) bytes += remove_file(blob);
  std::error_code failure;
  if (list_folder(removal.repository / "snapshots", failure).empty()) {
    remove_tree(removal.repository);
    remove_tree(removal.repository.parent_path() / ".locks" / removal.name.folder(), failure);
  } else if (removal.whole_snapshot) {
    remove_references(removal.repository);
  }
  return bytes;
}

int remove_all(const RemoveFlags& flags) {
  std::vector<Removal> all;
  for (const std::string& given : flags.names) all.push_back(plan(given));
  for (const Removal& one : all) {
    std::string files;
    for (const std::string& file : one.files) files += "  " + file + "\n";
    if (!flags.yes && !agrees(fmt::format("{}Remove {}?", files, one.name.text()))) {
      note(fmt::format("{} stays", one.name.text()));
      continue;
    }
    put(fmt::format("{}: {} removed\n", one.name.text(), size_text(double(remove(one)))));
  }
  return 0;
}

}  // namespace

void add_rm(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RemoveFlags>();
  CLI::App* sub = app.add_subcommand("rm", "Remove models from the Hugging Face cache");
  add_setting(*sub, "name", flags->names);
  add_setting(*sub, "--yes", flags->yes);
  sub->footer(
      "USER/REPO removes a snapshot, USER/REPO:Q4_K_M one model of it. Files that other snapshots use are kept.\n"
      "Examples:\n"
      "  lumen rm USER/REPO-GGUF:Q4_K_M\n"
      "  lumen rm --yes USER/REPO");
  set_action(*sub, command, flags, remove_all);
}

}  // namespace lumen::cli
