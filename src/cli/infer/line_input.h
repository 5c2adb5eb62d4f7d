// Lines from a terminal or a pipe. On a terminal the kernel's line editing is used in UTF-8 mode, so that backspace
// deletes a whole character (a Hangul syllable, too).
#pragma once

#include <termios.h>

#include <optional>
#include <string>

namespace lumen::cli {

class LineInput {
 public:
  LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;
  ~LineInput();

  enum class Status { line, end, interrupted };
  // The next line without its newline, after `prompt` on a terminal.
  Status read(const std::string& prompt, std::string* line);
  bool terminal() const { return terminal_; }

 private:
  bool terminal_ = false;
  std::optional<termios> before_;
  std::string held_;
};

}  // namespace lumen::cli
