// Assertions for internal bugs. They stay enabled in release builds: a wrong value is worse than an abort.
#pragma once

#include <fmt/format.h>

#include <string>

namespace lumen {

// Prints the failed condition with its file and line, and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace lumen

// LUMEN_CHECK(a < b, "index {} of {}", a, b): the message is formatted only on failure.
#define LUMEN_CHECK(condition, ...)                                                         \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      ::lumen::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)

#define LUMEN_UNREACHABLE(...) ::lumen::check_failed(__FILE__, __LINE__, "unreachable", ::fmt::format("" __VA_ARGS__))
