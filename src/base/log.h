// User messages during work: notes and warnings on stderr, and one live progress line on a terminal (plain lines
// otherwise). NO_COLOR is honoured.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

namespace lumen {

enum class Verbosity { quiet, normal, verbose };
void set_verbosity(Verbosity v);
Verbosity verbosity();

bool stderr_is_terminal();
bool use_color();  // a terminal, and NO_COLOR unset

void note(std::string_view text);     // hidden when quiet
void warn(std::string_view text);     // always shown
void verbose(std::string_view text);  // shown with -v

// A live line: update() redraws it on a terminal at most ten times a second, and prints a plain line every
// `plain_seconds` elsewhere. finish() leaves the last text on the screen.
class Progress {
 public:
  explicit Progress(double plain_seconds = 5.0);
  ~Progress();
  void update(std::string_view text);
  void finish(std::string_view text);

 private:
  std::chrono::steady_clock::time_point last_;
  double plain_seconds_;
  bool open_ = false;
  bool first_ = true;
};

// "1h02m", "3m07s", "12s".
std::string format_duration(double seconds);

}  // namespace lumen
