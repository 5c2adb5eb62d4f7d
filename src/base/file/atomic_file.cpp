// Files and folders that appear complete or not at all (file.h). The writer holds a lock on the unfinished file. The
// kernel releases it when the process ends, so the leftovers of a killed process differ from a file being written.
// Proved by tests/base/file_test.cpp.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "base/file/cut.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/protected.h"
#include "base/file/temporary.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinished = ".part";
constexpr size_t kTried = 4096;  // bytes written to test for free space

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path unfinished_name(const fs::path& path) {
  static std::atomic<int> counter{0};
  fs::path out = path;
  out.replace_filename(
      fmt::format(".{}.{}.{}{}", path.filename().string(), ::getpid(), counter.fetch_add(1), kUnfinished));
  return out;
}

// "model.gguf" of "model-00002-of-00005.gguf": leftovers of all files of one model are removed together.
std::string without_number(std::string name) {
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos || of < 6 || of + 9 > name.size()) return name;
  if (name[of - 6] != '-' || !is_number(std::string_view(name).substr(of - 5, 5)) ||
      !is_number(std::string_view(name).substr(of + 4, 5)))
    return name;
  return name.erase(of - 6, 15);
}

// Error when the parent folder of `path` does not exist. `named`: the path as the user gave it.
void require_parent(const fs::path& path, const fs::path& named) {
  const fs::path folder = folder_of(path);
  std::error_code failure;
  const fs::file_status there = fs::status(folder, failure);
  if (fs::is_directory(there) || there.type() == fs::file_type::unknown) return;
  const std::string link = path == named ? "" : fmt::format("it is a symbolic link to '{}', and ", path.string());
  throw Error(Exit::user,
              fs::exists(there)
                  ? fmt::format("cannot write '{}': {}'{}' is not a folder", named.string(), link, folder.string())
                  : fmt::format("cannot write '{}': {}there is no folder '{}'", named.string(), link, folder.string()),
              fs::exists(there) ? "name another place" : "make the folder first, or name another place");
}

// Error when not even a few bytes fit in a folder. Without O_TMPFILE support this is not checked.
void require_room(const fs::path& folder, const fs::path& named) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const std::string bytes(kTried, '\0');
  const bool is_full = ::write(fd, bytes.data(), bytes.size()) < 0 && (errno == ENOSPC || errno == EDQUOT);
  const Error error = system_error("write", named);
  ::close(fd);
  if (is_full) throw error;
}

// Removes unfinished files for `path` left by processes that have ended.
void remove_leavings_of(const fs::path& path) {
  const std::string mine = without_number(path.filename().string());
  remove_leavings(folder_of(path), [&](const std::string& meant) { return without_number(meant) == mine; });
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// In a folder shared with other programs, links may point into it (a model cache). Neither a link nor its target is
// replaced.
void refuse_link(const fs::path& target) {
  std::error_code failure;
  if (!fs::is_symlink(fs::symlink_status(target, failure))) return;
  throw Error(Exit::user, fmt::format("'{}' is a symbolic link and is not replaced", target.string()),
              "remove it, or name another folder");
}

// Moves complete files in the order in which they were written, so the file written last also appears last.
void move_files(const fs::path& from, const fs::path& to) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (const fs::path& path : list_folder(from)) files.emplace_back(fs::last_write_time(path), path);
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && a.second > b.second);
  });
  for (const auto& [time, file] : files) {
    const fs::path target = to / file.filename();
    refuse_link(target);
    move_file(file, target);
  }
}

}  // namespace

fs::path written_path(const fs::path& path) {
  constexpr int kMostLinks = 40;  // the kernel's limit
  fs::path at = path;
  std::error_code failure;
  for (int i = 0; i < kMostLinks; ++i) {
    if (!fs::is_symlink(fs::symlink_status(at, failure))) return at;
    const fs::path next = fs::read_symlink(at, failure);
    if (failure) throw user_error("cannot read the symbolic link '{}': {}", at.string(), failure.message());
    at = next.is_absolute() ? next : folder_of(at) / next;
  }
  throw Error(Exit::user, fmt::format("cannot write '{}': its symbolic links lead to each other", path.string()),
              "remove the link, or name another file");
}

void move_file(const fs::path& from, const fs::path& to) {
  refuse_protected(to);
  if (::rename(from.c_str(), to.c_str()) != 0) throw system_error("write", to);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(written_path(path)) {
  std::error_code failure;
  const fs::file_status there = fs::status(path_, failure);
  if (fs::exists(there) && !fs::is_regular_file(there))
    throw Error(Exit::user,
                fmt::format("cannot write '{}': it is {}", path_.string(),
                            fs::is_directory(there) ? "a folder" : "a device or a pipe, not a file"),
                "name a file; it is written under another name and then renamed");
  require_parent(path_, path);
  remove_leavings_of(path_);
  do {
    if (fd_ >= 0) ::close(fd_);
    forget_temporary(temporary_);
    temporary_ = unfinished_name(path_);
    remember_temporary(temporary_);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    // A process of another machine or container that shares the folder may have this number.
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) {
      const Error error = system_error("create", path_);
      forget_temporary(temporary_);
      throw error;
    }
  } while (fd_ < 0 || !lock_new(fd_));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::unlink(temporary_.c_str());
    ::close(fd_);
  }
  forget_temporary(temporary_);
}

void AtomicFile::write(const void* data, size_t size) {
  constexpr size_t kBuffer = 1 << 20;
  position_ += size;
  if (size >= kBuffer) {
    flush();
    write_out(static_cast<const char*>(data), size);
    return;
  }
  buffer_.append(static_cast<const char*>(data), size);
  if (buffer_.size() >= kBuffer) flush();
}

void AtomicFile::flush() {
  write_out(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write_out(const char* data, size_t size) {
  constexpr size_t kPart = 8 << 20;
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd_, data + done, std::min(size - done, kPart));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Error error = system_error("write", path_);
      require_whole_files(Look::size);  // the data may be pages of a truncated file
      throw error;
    }
    done += n;
    // Starts writeback while more is computed, so that commit() waits less. On file systems without this call, all
    // writeback happens in commit().
    (void)::sync_file_range(fd_, static_cast<off_t>(written_), n, SYNC_FILE_RANGE_WRITE);
    written_ += n;
  }
}

void AtomicFile::pad_to(uint64_t alignment) {
  const uint64_t rest = position_ % alignment;
  if (rest != 0) write(std::string(alignment - rest, '\0'));
}

void AtomicFile::commit() {
  flush();
  require_whole_files(Look::size);  // no file is made from zeros of a truncated model
  if (::fsync(fd_) != 0) throw system_error("flush", path_);
  // Renamed before the descriptor's lock is released, so that no other process removes it as a leftover. After a
  // failure the destructor cleans up.
  move_file(temporary_, path_);
  ::close(fd_);
  fd_ = -1;
  sync_folder(folder_of(path_));
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

AtomicFolder::AtomicFolder(std::filesystem::path path) {
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  path_ = written_path(path);
  if (path_ != path) require_parent(path_, path);
  std::error_code failure;
  const fs::file_status there = fs::status(path_, failure);
  const bool is_there = fs::is_directory(there);
  if (!is_there && fs::exists(there))
    throw Error(Exit::user, fmt::format("cannot write to '{}': it is not a folder", path_.string()), "name another");
  std::vector<fs::path> missing;
  for (fs::path up = folder_of(path_); !fs::exists(up, failure); up = folder_of(up)) missing.push_back(up);
  const fs::path meant = is_there ? path_ / path_.filename() : path_;  // a sibling, or inside
  try {
    for (auto up = missing.rbegin(); up != missing.rend(); ++up) {
      if (::mkdir(up->c_str(), 0777) == 0) {
        above_.insert(above_.begin(), *up);
      } else if (errno != EEXIST) {
        throw system_error("create", *up);
      }
    }
    remove_leavings_of(meant);
    do {
      if (fd_ >= 0) ::close(fd_);
      forget_temporary(temporary_);
      temporary_ = unfinished_name(meant);
      remember_temporary(temporary_);
      if (::mkdir(temporary_.c_str(), 0777) != 0) throw system_error("create", path_);
      fd_ = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (fd_ < 0) throw system_error("create", path_);
    } while (!lock_new(fd_));
  } catch (...) {
    undo();
    throw;
  }
}

void AtomicFolder::undo() {
  std::error_code ignored;
  if (!temporary_.empty()) remove_tree(temporary_, ignored);
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  forget_temporary(temporary_);
  for (const fs::path& up : above_) ::rmdir(up.c_str());  // fails if not empty
}

AtomicFolder::~AtomicFolder() {
  if (fd_ >= 0) undo();
}

void AtomicFolder::commit() {
  require_whole_files(Look::size);
  ::fsync(fd_);
  const FilesMoving moving;
  if (temporary_.parent_path() == path_) {
    move_files(temporary_, path_);
    ::rmdir(temporary_.c_str());
    sync_folder(path_);
  } else {
    move_file(temporary_, path_);
    sync_folder(folder_of(path_));
  }
  forget_temporary(temporary_);
  ::close(fd_);
  fd_ = -1;
}

void require_writable(const std::filesystem::path& path) {
  const AtomicFile tried(path);
  require_room(folder_of(written_path(path)), path);
}

void require_writable_folder(const std::filesystem::path& path) {
  AtomicFolder folder(path);
  require_writable(folder.path() / "file");
}

}  // namespace lumen
