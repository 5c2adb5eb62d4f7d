#include "cli/infer/line_input.h"

#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "base/error.h"
#include "cli/command.h"

namespace lumen::cli {
namespace {

constexpr size_t kLongest = size_t{16} << 20;

}  // namespace

LineInput::LineInput() : terminal_(isatty(0) != 0) {
  termios settings{};
  if (!terminal_ || tcgetattr(0, &settings) != 0) return;
  before_ = settings;
  settings.c_iflag |= IUTF8;
  tcsetattr(0, TCSADRAIN, &settings);
}

LineInput::~LineInput() {
  if (before_) tcsetattr(0, TCSADRAIN, &*before_);
}

LineInput::Status LineInput::read(const std::string& prompt, std::string* line) {
  if (terminal_) std::cerr << prompt << std::flush;
  for (;;) {
    if (const size_t end = held_.find('\n'); end != std::string::npos) {
      *line = held_.substr(0, end);
      held_.erase(0, end + 1);
      if (line->ends_with('\r')) line->pop_back();
      return Status::line;
    }
    if (held_.size() > kLongest) throw user_error("a line of input is too long");
    char buffer[4096];
    const ssize_t n = ::read(0, buffer, sizeof buffer);
    if (n > 0) {
      held_.append(buffer, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      if (interrupted().load()) return Status::interrupted;
    } else if (held_.empty()) {
      return Status::end;
    } else {
      held_ += '\n';  // the last line had none
    }
  }
}

}  // namespace lumen::cli
