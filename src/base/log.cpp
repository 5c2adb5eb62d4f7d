#include "base/log.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/messages/log_rank.h"
#include "base/printable.h"

namespace lumen {
namespace {

Verbosity level = Verbosity::normal;

// Quoted text may come from files, so it is escaped.
void print_line(std::string_view before, std::string_view quoted) {
  const std::string text = std::string(before) + printable(quoted, Lines::kept);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
  std::fflush(stderr);
}

}  // namespace

void set_verbosity(Verbosity v) {
  level = v;
}
Verbosity verbosity() {
  return level;
}

bool stderr_is_terminal() {
  static const bool terminal = ::isatty(2) != 0;
  return terminal;
}

bool use_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return stderr_is_terminal() && (no_color == nullptr || *no_color == '\0');
}

void note(std::string_view text) {
  if (level != Verbosity::quiet && !is_secondary_rank()) print_line("", text);
}

void warn(std::string_view text) {
  if (is_secondary_rank()) return;
  print_line(use_color() ? "\x1b[33mwarning:\x1b[0m " : "warning: ", text);
}

void verbose(std::string_view text) {
  if (level == Verbosity::verbose) print_line("", text);
}

Progress::Progress(double plain_seconds) : plain_seconds_(plain_seconds) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stderr);
}

void Progress::update(std::string_view text) {
  if (level == Verbosity::quiet) return;
  const auto now = std::chrono::steady_clock::now();
  const double gap = std::chrono::duration<double>(now - last_).count();
  const bool terminal = stderr_is_terminal();
  if (!first_ && gap < (terminal ? 0.1 : plain_seconds_)) return;
  first_ = false;
  last_ = now;
  if (!terminal) {
    print_line("", text);
    return;
  }
  std::fputs(("\r\x1b[K" + printable(text)).c_str(), stderr);
  std::fflush(stderr);
  open_ = true;
}

void Progress::finish(std::string_view text) {
  if (level == Verbosity::quiet) return;
  if (open_) std::fputs("\r\x1b[K", stderr);
  open_ = false;
  print_line("", text);
}

std::string format_duration(double seconds) {
  const auto s = static_cast<long>(std::max(0.0, std::round(seconds)));
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

}  // namespace lumen
