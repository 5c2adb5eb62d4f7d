// lumen pull NAME..
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "cli/command.h"
#include "cli/hub/client.h"
#include "cli/hub/download.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

using model::file::FileNames;
using model::file::HubName;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr uint64_t kMostIndex = uint64_t{64} << 20;  // bytes
constexpr size_t kShownName = 24;                    // columns of a progress line, which has at most 79
constexpr double kRateSeconds = 3;                   // over which the rate is averaged

struct PullFlags {
  std::vector<std::string> names;
  HubOptions hub;
  bool dry_run = false;
};

// The progress of all files of a model as one line.
class PullProgress {
 public:
  PullProgress(std::string name, uint64_t done, uint64_t total)
      : name_(std::move(name)), base_(done), total_(total), seen_(done), rate_(0), at_(Clock::now()) {
    if (name_.size() > kShownName) name_ = name_.substr(0, kShownName - 2) + "..";
  }

  // `done`: bytes of the file in work.
  void update(uint64_t done) {
    const uint64_t all = base_ + done;
    const double seconds = std::chrono::duration<double>(Clock::now() - at_).count();
    if (all < seen_) seen_ = all;
    if (seconds >= 0.25) {
      const double now = double(all - seen_) / seconds, share = std::min(1.0, seconds / kRateSeconds);
      rate_ = rate_ == 0 ? now : rate_ + share * (now - rate_);
      seen_ = all;
      at_ = Clock::now();
    }
    line_.update(text(all));
  }
  void finish_file(uint64_t size) { base_ += size; }
  void finish() { line_.finish(text(total_)); }

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(uint64_t all) const {
    std::string out = fmt::format("{}  {} of {}", name_, size_text(double(all)), size_text(double(total_)));
    if (rate_ > 0 && all < total_)
      out += fmt::format("  {}/s  {} left", size_text(rate_), format_duration(double(total_ - all) / rate_));
    return out;
  }

  Progress line_;
  std::string name_;
  uint64_t base_, total_, seen_;
  double rate_;  // bytes a second
  Clock::time_point at_;
};

// The files of the repository that make the model.
FileNames files_of_model(const RemoteRepository& repository, const HubName& name) {
  const std::vector<model::file::GgufSet> sets = model::file::gguf_sets(repository.files);
  FileNames folder = model::file::safetensors_files(repository.files);
  if (name.part.empty() && name.file.empty() && !folder.empty()) return folder;
  if (!sets.empty()) return model::file::choose_gguf(sets, name).files;
  if (!folder.empty())
    throw Error(Exit::user, fmt::format("'{}' has safetensors and no GGUF files", name.repository()),
                fmt::format("`lumen pull {}` gets them; `lumen quantize` makes a GGUF file", name.repository()));
  const bool is_pickled = std::ranges::any_of(repository.files, [](const std::string& file) {
    return file.ends_with(".bin") || file.ends_with(".pth") || file.ends_with(".pt");
  });
  if (is_pickled)
    throw Error(
        Exit::user,
        fmt::format("'{}' has its weights only as pickled files (.bin, .pth), which are not read", name.repository()),
        "such files are programs; look for a repository with safetensors or GGUF files");
  throw Error(Exit::user, fmt::format("'{}' has neither safetensors nor GGUF files", name.repository()),
              "it may be a data set, an application, or a model of another kind");
}

// The weights that the index of a split model names.
FileNames weights_of_index(const std::filesystem::path& index) {
  FileNames out;
  const nlohmann::json content = parse_json(read_file(index, kMostIndex), index.string());
  for (const auto& [tensor, file] : json_member(content, "weight_map", index.string()).items()) {
    if (!file.is_string() || !model::file::is_repository_path(file.get<std::string>()))
      throw user_error("{}: tensor '{}' is in no file of the repository", index.string(), tensor);
    if (std::ranges::find(out, file.get<std::string>()) == out.end()) out.push_back(file);
  }
  return out;
}

// Adds the files that the index names, once it is in the snapshot.
void add_indexed(const HubName& name, const std::filesystem::path& index, const RemoteRepository& repository,
                 FileNames* files) {
  for (const std::string& file : weights_of_index(index)) {
    if (std::ranges::find(repository.files, file) == repository.files.end())
      throw user_error("'{}' lacks {}, which its {} names", name.repository(), file, kIndex);
    if (std::ranges::find(*files, file) == files->end()) files->push_back(file);
  }
}

// The model's name, whose repository an alias may give.
HubName name_to_pull(const std::string& given) {
  const auto& aliases = model::file::local_names().aliases;
  const auto alias = aliases.find(given);
  return model::file::parse_hub_name(alias == aliases.end() ? given : alias->second);
}

void pull_one(HubClient& client, const HubName& name, bool dry_run) {
  const RemoteRepository repository = client.list(name);
  FileNames paths = files_of_model(repository, name);
  Downloader downloader(client, name);
  if (std::ranges::find(paths, kIndex) != paths.end() && !dry_run) {
    const RemoteFile index = client.locate(name, repository.commit, kIndex);
    downloader.require_space(downloader.missing(index));
    if (!downloader.has(index)) downloader.get(index, [](uint64_t) {});
    add_indexed(name, downloader.snapshot(repository.commit) / kIndex, repository, &paths);
  }
  std::vector<RemoteFile> files;
  uint64_t total = 0, missing = 0;
  for (const std::string& path : paths) {
    files.push_back(client.locate(name, repository.commit, path));
    total += files.back().size;
    missing += downloader.missing(files.back());
  }
  if (dry_run) {
    for (const RemoteFile& file : files) put(fmt::format("{:>10}  {}\n", size_text(double(file.size)), file.path));
    put(fmt::format("{:>10}  of {} to download\n", size_text(double(missing)), size_text(double(total))));
    return;
  }
  downloader.require_space(missing);
  PullProgress progress(name.part.empty() ? name.repo : name.part, 0, total);
  for (const RemoteFile& file : files) {
    if (!downloader.has(file)) downloader.get(file, [&](uint64_t done) { progress.update(done); });
    progress.finish_file(file.size);
  }
  downloader.set_commit(name.revision, repository.commit);
  if (missing > 0) progress.finish();
  note(fmt::format("{} is {} at commit {}", name.text(), missing > 0 ? "in the cache" : "up to date",
                   repository.commit.substr(0, 12)));
  put(model::file::resolve_hub(name.text()).string() + "\n");
}

int pull(const PullFlags& flags) {
  std::vector<HubName> names;
  for (const std::string& given : flags.names) names.push_back(name_to_pull(given));
  if (flags.hub.is_offline || is_offline_by_environment()) {
    for (const HubName& name : names) {
      try {
        put(model::file::resolve_hub(name.text()).string() + "\n");
      } catch (const Error& missing) {
        throw Error(missing.code(), missing.what(),
                    "--offline, HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, so nothing is downloaded");
      }
    }
    return 0;
  }
  if (!is_guest()) {
    catch_interrupts();
    ::signal(SIGPIPE, SIG_IGN);  // TLS writes to connections that the hub has closed
  }
  try {
    HubClient client(flags.hub);
    for (const HubName& name : names) pull_one(client, name, flags.dry_run);
  } catch (const Interrupted&) {
    note("the downloaded part is kept; the same command continues");
    return exit_code(Exit::interrupted);
  }
  return 0;
}

}  // namespace

void add_pull(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PullFlags>();
  CLI::App* sub = app.add_subcommand("pull", "Download a model of the Hugging Face hub into its cache");
  add_settings(*sub, "name", flags->names, "--offline", flags->hub.is_offline, "--dry-run", flags->dry_run, "--retries",
               flags->hub.retries, "--timeout", flags->hub.seconds);
  sub->footer(
      "Names: [hf:]USER/REPO, USER/REPO:Q4_K_M (a quantization, or a part of a file's name), USER/REPO/FILE.gguf; "
      "@REVISION\n"
      "may follow. Without a quantization, Q4_K_M is chosen if there are several. The model's path is printed.\n"
      "HF_ENDPOINT names a mirror, HF_TOKEN a token, HF_HOME or HF_HUB_CACHE the cache. After Ctrl-C the same command "
      "continues.\n"
      "Examples:\n"
      "  lumen pull USER/REPO-GGUF:Q4_K_M\n"
      "  lumen run -m hf:USER/REPO-GGUF:Q4_K_M -p \"Hello\"");
  set_action(*sub, command, flags, pull);
}

}  // namespace lumen::cli
