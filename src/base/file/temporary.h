// Temporary files that a signal must not leave behind. Whoever makes one names it here until it is renamed or removed.
// Proved by tests/base/temporary_test.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lumen {

// A name beyond the table's room is not remembered: such a file is removed by the next run in its folder.
void remember_temporary(const std::filesystem::path& path);
void forget_temporary(const std::filesystem::path& path);

// The name of what ".NAME.PID.NUMBER.part" shall become; empty for other names.
std::string temporary_becomes(std::string_view name);

// Whether a part of a file's name is made of digits, of one at least.
bool is_number(std::string_view text);

// Removes every file and folder named at this moment. May be called by signal handlers.
void remove_temporaries() noexcept;

// Takes the lock of a file or folder that was just made, which says that somebody writes it; false when somebody who
// cleans up was faster. Where there are no locks, nobody cleans up.
bool lock_new(int fd);
// While one of these lives, files that belong together are renamed one by one: who ends the process waits for the end.
class FilesMoving {
 public:
  FilesMoving() noexcept;
  FilesMoving(const FilesMoving&) = delete;
  FilesMoving& operator=(const FilesMoving&) = delete;
  ~FilesMoving();
};
bool are_files_moving() noexcept;

// Removes hidden files and folders ".NAME.PID.N.part" of a folder that no process holds a lock on: whoever writes one
// does, and the lock goes with the process. `wanted`: only those whose NAME it says yes to.
void remove_leavings(const std::filesystem::path& folder,
                     const std::function<bool(const std::string&)>& wanted = nullptr);

}  // namespace lumen
