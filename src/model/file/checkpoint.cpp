#include "model/file/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/file/folder.h"
#include "base/file/temporary.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/structured/json.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kState = "trainer_state.json";
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kHeader = "base.gguf";
constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kHidden = ".checkpoint-";  // .checkpoint-<step>.<pid>.<n>.part or .old
constexpr int kVersion = 1;

std::optional<int64_t> number_of(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 0) return std::nullopt;
  return n;
}

// The step in "checkpoint-<step>", or nullopt.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return number_of(std::string_view(name).substr(kPrefix.size()));
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::fsync(fd) != 0) {
    const int number = errno;
    if (fd >= 0) ::close(fd);
    throw user_error("cannot flush '{}': {}", folder.string(), std::strerror(number));
  }
  ::close(fd);
}

// A folder that is removed at the end unless it was renamed. A signal that ends the process removes it, too.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    remove_tree(path_, error);  // left by a killed process with the same number
    remember_temporary(path_);
    if (fs::create_directory(path_, error)) return;
    forget_temporary(path_);
    throw user_error("cannot create '{}': {}", path_.string(), error.message());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    remove_tree(path_, ignored);
    forget_temporary(path_);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

json file_record(const fs::path& path) {
  const MappedFile file(path);
  return {{"bytes", file.bytes().size()}, {"xxh3_128", hash_bytes(file.bytes().data(), file.bytes().size()).hex()}};
}

void write_tensors(const fs::path& path, const std::vector<TensorSpec>& tensors, const CheckpointContent& content) {
  SafetensorsWriter writer(path, {{"format", "lumen"}}, tensors);
  for (const TensorSpec& t : tensors) {
    const std::span<const uint8_t> blob = content.fetch(t);
    LUMEN_CHECK(std::ssize(blob) == t.blob_bytes(), "tensor '{}': {} bytes instead of {}", t.name, blob.size(),
                t.blob_bytes());
    writer.write(blob);
  }
  writer.commit();
}

bool plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

uint64_t json_natural(const json& object, const char* key, const std::string& where) {
  const json& value = json_member(object, key, where);
  if (!value.is_number_unsigned()) throw user_error("{}: \"{}\" is no whole number", where, key);
  return value.get<uint64_t>();
}

json read_state(const fs::path& folder) {
  const fs::path path = folder / kState;
  return parse_json(read_file(path, 1u << 30), path.string(), 64);
}

// Checks that every file in the state exists with its recorded size.
void check_sizes(const fs::path& folder, const json& state) {
  const std::string where = (folder / kState).string();
  const json& files = json_member(state, "files", where);
  if (!files.is_object()) throw user_error("{}: \"files\" is no object", where);
  for (const char* needed : {kWeightsFile, kOptimizer}) {
    if (!files.contains(needed)) throw user_error("{}: \"files\" lacks {}", where, needed);
  }
  for (const auto& [name, record] : files.items()) {
    if (!plain_name(name)) throw user_error("{}: '{}' is no plain file name", where, name);
    std::error_code error;
    const uint64_t size = fs::file_size(folder / name, error);
    if (error) throw user_error("'{}': {}", (folder / name).string(), error.message());
    if (size != json_natural(record, "bytes", where))
      throw Error(Exit::verify,
                  fmt::format("'{}' has {} bytes, but {} names another size", (folder / name).string(), size, kState),
                  "the checkpoint is damaged; go on from an earlier one");
  }
}

std::optional<int> writer_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kHidden)) return std::nullopt;
  const size_t first = name.find('.', kHidden.size());
  const size_t second = first == std::string::npos ? first : name.find('.', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const auto pid = number_of(std::string_view(name).substr(first + 1, second - first - 1));
  if (!pid || *pid <= 0 || *pid > INT32_MAX) return std::nullopt;
  return static_cast<int>(*pid);
}

}  // namespace

void clean_checkpoints(const fs::path& out) {
  std::error_code error;
  for (const fs::path& path : list_folder(out, error)) {
    const auto pid = writer_of(path);
    std::error_code kept;
    if (pid && *pid != ::getpid() && ::kill(*pid, 0) != 0 && errno == ESRCH) remove_tree(path, kept);
  }
  remove_leavings(out);
}

void discard_checkpoint(const fs::path& folder) {
  static std::atomic<int> counter{0};
  std::error_code error;
  if (!step_of(folder) || !fs::exists(folder, error)) return;
  // Renamed first, so that a kill leaves no partial checkpoint under its name.
  const TemporaryFolder gone(folder.parent_path() / fmt::format(".{}.{}.{}.old", folder.filename().string(), ::getpid(),
                                                                counter.fetch_add(1)));
  fs::rename(folder, gone.path(), error);
  if (error) throw user_error("cannot remove '{}': {}", folder.string(), error.message());
}

void keep_checkpoints(const fs::path& out, int limit, const fs::path& newest, const fs::path& best) {
  if (limit <= 0) return;
  const std::vector<fs::path> all = list_checkpoints(out);
  for (size_t i = 0; i + limit < all.size(); ++i)
    if (all[i] != newest && all[i] != best) discard_checkpoint(all[i]);
}

fs::path save_checkpoint(const fs::path& out, const CheckpointContent& content, int save_total_limit) {
  LUMEN_CHECK(content.state.step >= 0);
  std::error_code error;
  fs::create_directories(out, error);
  if (error) throw user_error("cannot create '{}': {}", out.string(), error.message());
  clean_checkpoints(out);

  static std::atomic<int> counter{0};
  const std::string stem = fmt::format("{}{}.{}.{}", kHidden, content.state.step, ::getpid(), counter.fetch_add(1));
  const TemporaryFolder part(out / (stem + ".part"));
  write_tensors(part.path() / kWeightsFile, content.weights, content);
  write_tensors(part.path() / kOptimizer, content.optimizer, content);
  json files = {{kWeightsFile, file_record(part.path() / kWeightsFile)},
                {kOptimizer, file_record(part.path() / kOptimizer)}};
  for (const auto& [name, text] : content.files) {
    LUMEN_CHECK(plain_name(name) && name != kState && name != kHeader && !files.contains(name),
                "'{}' cannot be a file of a checkpoint", name);
    write_file_atomic(part.path() / name, text);
    files[name] = file_record(part.path() / name);
  }
  if (content.header) {
    GgufWriter(part.path() / kHeader, *content.header, {}).commit();
    files[kHeader] = file_record(part.path() / kHeader);
  }
  const TrainerState& s = content.state;
  const json state = {{"version", kVersion},
                      {"step", s.step},
                      {"seed", s.seed},
                      {"random_counter", s.random_counter},
                      {"data_position", s.data_position},
                      {"config", s.config},
                      {"more", s.more},
                      {"files", files}};
  write_file_atomic(part.path() / kState, json_print(state, "trainer state", 1));
  sync_folder(part.path());

  const fs::path target = out / fmt::format("{}{}", kPrefix, s.step);
  // Renaming onto a folder with files is an error, but the two can be swapped atomically; `part` then removes the old
  // one.
  if (fs::exists(target)) {
    if (::renameat2(AT_FDCWD, part.path().c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0)
      error = std::error_code(errno, std::generic_category());
  } else {
    fs::rename(part.path(), target, error);
  }
  if (error) throw user_error("cannot write '{}': {}", target.string(), error.message());
  sync_folder(out);

  keep_checkpoints(out, save_total_limit, target);
  return target;
}

std::vector<fs::path> list_checkpoints(const fs::path& out) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (const fs::path& path : list_folder(out, error)) {
    const auto step = step_of(path);
    if (!step) continue;
    try {
      const json state = read_state(path);
      if (json_integer(state, "version", "") != kVersion || json_integer(state, "step", "") != *step) continue;
      check_sizes(path, state);
    } catch (const Error& e) {
      verbose(fmt::format("'{}' is no whole checkpoint: {}", path.string(), e.what()));
      continue;
    }
    found.emplace_back(*step, path);
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> out_paths;
  for (auto& [step, path] : found) out_paths.push_back(std::move(path));
  return out_paths;
}

std::optional<fs::path> latest_checkpoint(const fs::path& out) {
  const std::vector<fs::path> all = list_checkpoints(out);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

Checkpoint load_checkpoint(const fs::path& folder, const FormatLibrary& formats) {
  const std::string where = (folder / kState).string();
  const json state = read_state(folder);
  if (json_integer(state, "version", where) != kVersion)
    throw user_error("{}: version {} is not supported", where, json_integer(state, "version", where));
  check_sizes(folder, state);
  for (const auto& [name, record] : state["files"].items()) {
    if (file_record(folder / name)["xxh3_128"] != json_text(record, "xxh3_128", where)) {
      throw Error(
          Exit::verify,
          fmt::format("'{}' has changed since it was saved: its content hash differs", (folder / name).string()),
          "the checkpoint is damaged; go on from an earlier one");
    }
  }
  Checkpoint out;
  out.folder = folder;
  out.state.step = json_integer(state, "step", where);
  out.state.seed = json_natural(state, "seed", where);
  out.state.random_counter = json_natural(state, "random_counter", where);
  out.state.data_position = json_natural(state, "data_position", where);
  out.state.config = json_text(state, "config", where);
  out.state.more = json_member(state, "more", where);
  out.weights = std::make_shared<const SafetensorsFile>(folder / kWeightsFile, formats);
  out.optimizer = std::make_shared<const SafetensorsFile>(folder / kOptimizer, formats);
  for (const auto& [name, record] : state["files"].items()) {
    if (name == kHeader) {
      const MappedFile file(folder / name);
      out.header = read_gguf_metadata(file.bytes(), (folder / name).string());
    } else if (name != kWeightsFile && name != kOptimizer) {
      out.files[name] = read_file(folder / name);
    }
  }
  return out;
}

}  // namespace lumen::model::file
