// Prints the text of a model as it comes. On a terminal Markdown gets colours: headings, bold, code, fences, lists. No
// character is added or taken away, so that what is copied from the terminal is the text. Proved by
// tests/cli/terminal/markdown_test.cpp.
#pragma once

#include <string>
#include <string_view>

namespace lumen::cli {

class MarkdownColours {
 public:
  // The text with colour codes. Characters whose meaning depends on the next ones are held back.
  std::string add(std::string_view text);
  // What was held back, and the end of all colours. The next text begins a new line.
  std::string finish();

 private:
  enum class Line { undecided, plain, heading, fence, code };
  void put(char c, std::string& out);
  void put_inline(char c, std::string& out);
  void decide(std::string& out);
  void style(std::string& out);
  void end_line(std::string& out);

  Line line_ = Line::undecided;
  std::string held_;  // of an undecided line, or asterisks
  bool in_fence_ = false, bold_ = false, code_ = false, coloured_ = false;
};

// Prints answers: with colours where `markdown` is set and the output takes colours, else as they are.
class AnswerOutput {
 public:
  explicit AnswerOutput(bool markdown);
  void put(std::string_view text);
  void finish();

 private:
  bool coloured_;
  MarkdownColours colours_;
};

}  // namespace lumen::cli
