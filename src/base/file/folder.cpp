#include "base/file/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/file/file.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

std::error_code reason() {
  return {errno, std::generic_category()};
}

bool is_folder(const fs::path& path) {  // and not a link to one
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

[[noreturn]] void refuse(std::string_view deed, const fs::path& path, const std::error_code& failure) {
  errno = failure.value();
  throw system_error(deed, path);
}

std::vector<fs::path> entries_of(const fs::path& folder, int flags, std::error_code& failure) {
  std::vector<fs::path> out;
  failure.clear();
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  if (!stream) {
    failure = reason();
    if (fd >= 0) ::close(fd);
    return out;
  }
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.push_back(folder / name);
  }
  if (errno != 0) failure = reason();
  std::ranges::sort(out, {}, &fs::path::native);
  return out;
}

// Without `failure` an unreadable folder is an Error.
void list_into(const fs::path& folder, int deepest, std::error_code* failure, std::vector<fs::path>* out) {
  std::error_code here;
  const std::vector<fs::path> entries = list_folder(folder, here);
  if (here && !failure) refuse("read the folder", folder, here);
  if (here && here != std::errc::permission_denied && !*failure) *failure = here;
  for (const fs::path& path : entries) {
    out->push_back(path);
    if (deepest > 0 && is_folder(path)) list_into(path, deepest - 1, failure, out);
  }
}

void remove_into(const fs::path& path, std::error_code& failure) {
  if (is_folder(path)) {
    std::error_code unread;
    for (const fs::path& inner : entries_of(path, O_NOFOLLOW, unread)) remove_into(inner, failure);
    if (unread && !failure) failure = unread;
  }
  if (std::remove(path.c_str()) != 0 && errno != ENOENT && !failure) failure = reason();
}

}  // namespace

std::vector<fs::path> list_folder(const fs::path& folder, std::error_code& failure) {
  return entries_of(folder, 0, failure);
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::error_code failure;
  std::vector<fs::path> out = list_folder(folder, failure);
  if (failure) refuse("read the folder", folder, failure);
  return out;
}

std::vector<fs::path> list_below(const fs::path& folder) {
  std::vector<fs::path> out;
  list_into(folder, kAnyDepth, nullptr, &out);
  return out;
}

std::vector<fs::path> list_below(const fs::path& folder, std::error_code& failure, int deepest) {
  std::vector<fs::path> out;
  failure.clear();
  list_into(folder, deepest, &failure, &out);
  return out;
}

void remove_tree(const fs::path& path, std::error_code& failure) noexcept {
  failure.clear();
  try {
    remove_into(path, failure);
  } catch (const std::bad_alloc&) {
    failure = std::make_error_code(std::errc::not_enough_memory);
  }
}

void remove_tree(const fs::path& path) {
  std::error_code failure;
  remove_tree(path, failure);
  if (failure) refuse("remove", path, failure);
}

}  // namespace lumen
