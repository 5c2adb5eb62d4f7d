#include "model/infer/prefixes/prefixes.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/file/folder.h"
#include "base/hash.h"
#include "base/log.h"

namespace lumen::model::infer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "prefixes";
constexpr int64_t kBeside = 4096;                   // most bytes of a file in addition to its content
constexpr int64_t kMostQueued = int64_t{64} << 20;  // bytes waiting to be written, above which write() blocks

std::string_view bytes_of(std::span<const text::TokenId> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

// The header of a file.
std::string head_of(const std::string& revision, std::string_view owner, std::span<const text::TokenId> tokens,
                    int64_t bytes) {
  std::string head = fmt::format("lumen prefix 1\n{} {} {} {}\n", revision.size(), owner.size(), tokens.size(), bytes);
  head += revision;
  head += owner;
  head += bytes_of(tokens);
  return head;
}

}  // namespace

PrefixFiles::PrefixFiles(const fs::path& folder, int64_t most_bytes, std::string revision)
    : most_bytes_(most_bytes),
      revision_(std::move(revision)),
      folder_(folder / fmt::format("user-{}", ::geteuid()) / kKind),
      kept_(folder, {.quiet = true}) {
  if (!kept_.usable()) {
    warn(fmt::format("the prefix cache on disk is off: {}", kept_.trouble()));
    has_warned_ = true;
  }
  find_files();
  make_room(0);
  writer_ = Thread("that writes prefixes", [this] { write_all(); });
}

PrefixFiles::~PrefixFiles() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

// Finds the files of earlier processes.
void PrefixFiles::find_files() {
  std::error_code failure;
  for (const fs::path& path : list_folder(folder_, failure)) {
    std::error_code gone;
    if (!fs::is_regular_file(path, gone) || path.filename().string().starts_with('.')) continue;
    File file;
    file.bytes = int64_t(fs::file_size(path, gone));
    if (!gone) file.used = fs::last_write_time(path, gone);
    if (gone) continue;
    numbers_.bytes += file.bytes;
    latest_ = std::max(latest_, file.used);
    files_[path.filename().string()] = file;
  }
}

std::string PrefixFiles::name_of(std::string_view owner, std::span<const text::TokenId> tokens) const {
  return hash_text(revision_ + std::string(owner) + "\n" + std::string(bytes_of(tokens))).hex();
}

// Strictly increasing times, even with a coarse clock.
fs::file_time_type PrefixFiles::next_time() {
  return latest_ = std::max(fs::file_time_type::clock::now(), latest_ + std::chrono::microseconds(1));
}

void PrefixFiles::drop(const std::string& name) {
  const auto found = files_.find(name);
  if (found == files_.end()) return;
  std::error_code failure;
  fs::remove(folder_ / name, failure);
  numbers_.bytes -= found->second.bytes;
  files_.erase(found);
}

// Deletes the least recently used files. False if `bytes` exceeds the limit.
bool PrefixFiles::make_room(int64_t bytes) {
  if (bytes > most_bytes_) return false;
  while (!files_.empty() && numbers_.bytes + bytes > most_bytes_) {
    const auto oldest = std::min_element(files_.begin(), files_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    drop(std::string(oldest->first));
    ++numbers_.dropped;
  }
  return true;
}

bool PrefixFiles::has(std::string_view owner, std::span<const text::TokenId> tokens) const {
  const std::lock_guard lock(mutex_);
  return files_.contains(name_of(owner, tokens));
}

std::optional<std::string> PrefixFiles::read(std::string_view owner, std::span<const text::TokenId> tokens,
                                             int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::string name = name_of(owner, tokens);
  const auto found = files_.find(name);
  if (found == files_.end()) return std::nullopt;
  std::string content = found->second.unwritten ? *found->second.unwritten : kept_.read(kKind, name);
  const std::string head = head_of(revision_, owner, tokens, bytes);
  if (std::ssize(content) == std::ssize(head) + bytes && content.starts_with(head)) {
    ++numbers_.read;
    return content.erase(0, head.size());
  }
  std::error_code failure;
  if (fs::exists(fs::symlink_status(folder_ / name, failure))) {
    ++numbers_.refused;
    warn(fmt::format(
        "'{}' is damaged, or was not made by this user's Lumen: it is removed, and its prefix is computed again",
        (folder_ / name).string()));
  }
  drop(name);
  return std::nullopt;
}

void PrefixFiles::write(std::string_view owner, std::span<const text::TokenId> tokens, std::string_view content) {
  std::unique_lock lock(mutex_);
  const std::string name = name_of(owner, tokens);
  changed_.wait(lock, [&] { return queued_bytes_ < kMostQueued; });
  if (files_.contains(name)) return;
  std::string whole = head_of(revision_, owner, tokens, std::ssize(content));
  whole += content;
  const int64_t bytes = std::ssize(whole) + kBeside;
  if (!kept_.usable() || !make_room(bytes)) return;
  files_[name] = {bytes, next_time(), std::make_shared<const std::string>(std::move(whole))};
  numbers_.bytes += bytes;
  queued_bytes_ += bytes;
  queue_.emplace_back(name, bytes);
  changed_.notify_all();
}

// The writer's thread.
void PrefixFiles::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto [name, bytes] = std::move(queue_.front());
    queue_.pop_front();
    write_one(lock, name);
    queued_bytes_ -= bytes;
    changed_.notify_all();
  }
}

// The lock is released during the write: the file may be dropped or read meanwhile.
void PrefixFiles::write_one(std::unique_lock<std::mutex>& lock, const std::string& name) {
  const auto given = files_.find(name);
  const std::shared_ptr<const std::string> content = given == files_.end() ? nullptr : given->second.unwritten;
  bool is_kept = false;
  if (content) {
    lock.unlock();
    kept_.write(kKind, name, *content, true);
    is_kept = kept_.usable();
    lock.lock();
  }
  const auto found = files_.find(name);
  std::error_code failure;
  if (content && found == files_.end()) {
    fs::remove(folder_ / name, failure);
  } else if (content && is_kept) {
    found->second.unwritten = nullptr;
    fs::last_write_time(folder_ / name, found->second.used, failure);
    ++numbers_.written;
  } else if (content) {
    numbers_.bytes -= found->second.bytes;
    files_.erase(found);
    if (!std::exchange(has_warned_, true))
      warn(fmt::format("the prefix cache on disk is off from now on: {}", kept_.trouble()));
  }
}

void PrefixFiles::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queued_bytes_ == 0; });
}

void PrefixFiles::touch(std::string_view owner, std::span<const text::TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(name_of(owner, tokens));
  if (found == files_.end()) return;
  found->second.used = next_time();
  std::error_code failure;
  if (!found->second.unwritten) fs::last_write_time(folder_ / found->first, found->second.used, failure);
}

PrefixNumbers PrefixFiles::numbers() const {
  const std::lock_guard lock(mutex_);
  PrefixNumbers out = numbers_;
  out.files = std::ssize(files_);
  return out;
}

}  // namespace lumen::model::infer
