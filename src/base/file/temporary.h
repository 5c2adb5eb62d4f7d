// Temporary files that must be removed when a signal ends the process. A writer registers the name here until the file
// is renamed or removed. Proved by tests/base/temporary_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lumen {

// When the table is full, the name is not registered: the next run in that folder removes the file.
void remember_temporary(const std::filesystem::path& path);
void forget_temporary(const std::filesystem::path& path);

// The final name NAME of ".NAME.PID.NUMBER.part"; empty for other names.
std::string temporary_becomes(std::string_view name);

// Whether a part of a file name consists of digits, at least one.
bool is_number(std::string_view text);

// Removes every file and folder registered now, for code that ends the process: a thread that registers another name
// afterwards, or makes an Error, waits for that end (base/ending.h). Async-signal-safe.
void remove_temporaries() noexcept;

// Locks a file or folder that was just created, to mark it as being written; false when another process's cleanup was
// faster. On file systems without locks there is no cleanup.
bool lock_new(int fd);
// Held while files that belong together are renamed one by one: the code that ends the process waits for it.
class FilesMoving {
 public:
  FilesMoving() noexcept;
  FilesMoving(const FilesMoving&) = delete;
  FilesMoving& operator=(const FilesMoving&) = delete;
  ~FilesMoving();
};
bool are_files_moving() noexcept;

// Removes hidden files and folders ".NAME.PID.N.part" of a folder that no process holds a lock on: each writer holds
// one, and the kernel releases it with the process. `wanted`: only those whose NAME it accepts.
void remove_leavings(const std::filesystem::path& folder,
                     const std::function<bool(const std::string&)>& wanted = nullptr);

}  // namespace lumen
