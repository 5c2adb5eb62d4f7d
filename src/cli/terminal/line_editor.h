// Editing of a line on a terminal by libedit: cursor keys, history, completion, and pasted text of several lines
// (bracketed paste). Characters of two columns (Hangul, CJK) are counted as two.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lumen::cli {

// What may stand in place of the last word before the cursor.
struct Completion {
  size_t from = 0;                 // where that word begins, in bytes
  std::vector<std::string> words;  // ascending; a word that ends in / is a folder and may go on
};
using Complete = std::function<Completion(const std::string& before_cursor)>;

class LineEditor {
 public:
  // Null where the terminal or the system's locales do not allow editing; lines are read plainly then.
  static std::unique_ptr<LineEditor> open(Complete complete, const std::vector<std::string>& history);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  enum class Status { line, end, interrupted };
  // One line without the newline that ended it. A pasted text keeps those inside. Ctrl-C drops what was typed.
  Status read(const std::string& prompt, std::string* line);
  void remember(const std::string& text);

 private:
  struct State;
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lumen::cli
