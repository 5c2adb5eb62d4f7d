// Lines from a terminal or a pipe. Where standard input and output are terminals the line is edited by libedit, with
// history and completion. On other terminals the kernel's line editing is used in UTF-8 mode, so that backspace deletes
// a whole character (a Hangul syllable, too). From a pipe bytes are read as they are. Proved by
// tests/cli/terminal/terminal_check.py.
#pragma once

#include <termios.h>

#include <optional>
#include <string>

#include "cli/terminal/history.h"
#include "cli/terminal/line_editor.h"

namespace lumen::cli {

class LineInput {
 public:
  struct Options {
    std::string history = {};  // name of the file of the history; empty: none is kept
    Complete complete = nullptr;
  };
  explicit LineInput(Options options);
  LineInput() : LineInput(Options{}) {}
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;
  ~LineInput();

  using Status = LineEditor::Status;
  // The next line without its newline, after `prompt` on a terminal. A text that was pasted into an edited line keeps
  // its newlines.
  Status read(const std::string& prompt, std::string* line);
  // Adds what was typed, one line or several, to the history of an edited terminal.
  void remember(const std::string& text);
  bool terminal() const { return terminal_; }

 private:
  bool terminal_ = false;
  std::optional<termios> before_;
  std::string held_;
  std::optional<InputHistory> history_;
  std::unique_ptr<LineEditor> editor_;
};

}  // namespace lumen::cli
