// The one error type for problems that a user can cause: bad files, bad flags, missing hardware. Internal bugs are
// LUMEN_CHECKs (check.h). An Error carries the problem, its location and a hint; the command line prints it and exits
// with its code.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/ending.h"

namespace lumen {

// Exit codes of the program; see docs/tour.md.
enum class Exit : int {
  ok = 0,
  user = 1,      // bad input data or files
  usage = 2,     // wrong flags or arguments
  hardware = 3,  // hardware or memory refusal
  numeric = 4,   // a numeric guard tripped
  verify = 5,    // verification failed
  interrupted = 130,
};

// The exit status of the process.
constexpr int exit_code(Exit e) {
  return static_cast<int>(e);
}

// Thrown for any problem that a user can cause and fix. While a signal ends the process none is made: the problem may
// only be that a file was removed, so the thread that makes one waits for the end.
class Error : public std::runtime_error {
 public:
  Error(Exit code, std::string message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {
    wait_if_ending();
  }

  Exit code() const { return code_; }
  const std::string& hint() const { return hint_; }  // what to do; may be empty

 private:
  Exit code_;
  std::string hint_;
};

// throw user_error("cannot read {}: {}", path, reason);
template <typename... Args>
[[nodiscard]] Error user_error(fmt::format_string<Args...> text, Args&&... args) {
  return Error(Exit::user, fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
[[nodiscard]] Error usage_error(fmt::format_string<Args...> text, Args&&... args) {
  return Error(Exit::usage, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lumen
