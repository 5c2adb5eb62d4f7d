#include "cli/terminal/line_input.h"

#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "base/error.h"
#include "cli/command.h"

namespace lumen::cli {
namespace {

constexpr size_t kLongest = size_t{16} << 20;

}  // namespace

LineInput::LineInput(Options options) : terminal_(isatty(STDIN_FILENO) != 0) {
  termios settings{};
  if (!terminal_ || tcgetattr(STDIN_FILENO, &settings) != 0) return;
  before_ = settings;
  settings.c_iflag |= IUTF8;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
  if (isatty(STDOUT_FILENO) == 0) return;
  history_.emplace(options.history.empty() ? std::filesystem::path() : InputHistory::file_of(options.history));
  editor_ = LineEditor::open(std::move(options.complete), history_->entries());
}

LineInput::~LineInput() {
  editor_.reset();
  if (before_) tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

LineInput::Status LineInput::read(const std::string& prompt, std::string* line) {
  if (editor_) return editor_->read(prompt, line);
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
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n > 0) {
      held_.append(buffer, size_t(n));
    } else if (n < 0 && errno == EINTR) {
      if (interrupted().load()) return Status::interrupted;
    } else if (held_.empty()) {
      return Status::end;
    } else {
      held_ += '\n';  // the last line had none
    }
  }
}

void LineInput::remember(const std::string& text) {
  if (!editor_ || text.empty()) return;
  history_->add(text);
  editor_->remember(text);
}

}  // namespace lumen::cli
