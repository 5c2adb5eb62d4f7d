#include "cli/terminal/markdown.h"

#include <algorithm>

#include "base/printable.h"
#include "cli/output.h"

namespace lumen::cli {
namespace {

constexpr const char *kReset = "\x1b[0m", *kHeading = "\x1b[1;36m", *kBold = "\x1b[1m", *kCode = "\x1b[33m",
                     *kBoldCode = "\x1b[1;33m", *kFence = "\x1b[2m", *kItem = "\x1b[36m";

}  // namespace

std::string MarkdownColours::add(std::string_view text) {
  std::string out;
  for (const char c : text) put(c, out);
  return out;
}

std::string MarkdownColours::finish() {
  std::string out;
  if (line_ == Line::undecided && !held_.empty()) {
    line_ = in_fence_ ? Line::code : Line::plain;
    if (in_fence_) style(out);
  }
  out += held_;
  held_.clear();
  if (coloured_) out += kReset;
  *this = MarkdownColours();
  return out;
}

// The colours of the current state.
void MarkdownColours::style(std::string& out) {
  if (coloured_) out += kReset;
  const char* now = nullptr;
  if (line_ == Line::heading) now = kHeading;
  if (line_ == Line::fence) now = kFence;
  if (line_ == Line::code) now = kCode;
  if (line_ == Line::plain) now = bold_ && code_ ? kBoldCode : bold_ ? kBold : code_ ? kCode : nullptr;
  coloured_ = now != nullptr;
  if (now) out += now;
}

void MarkdownColours::end_line(std::string& out) {
  bold_ = code_ = false;
  line_ = Line::plain;
  if (coloured_) style(out);
  out += '\n';
  line_ = Line::undecided;
}

void MarkdownColours::put(char c, std::string& out) {
  if (c == '\n') {
    if (line_ == Line::undecided) line_ = in_fence_ ? Line::code : Line::plain;
    if (!held_.empty() && in_fence_) style(out);
    out += held_;
    held_.clear();
    end_line(out);
    return;
  }
  switch (line_) {
    case Line::undecided:
      held_ += c;
      decide(out);
      return;
    case Line::plain:
      put_inline(c, out);
      return;
    default:
      out += c;
  }
}

// Decides the kind of a line as soon as its beginning determines it.
void MarkdownColours::decide(std::string& out) {
  const size_t first = std::min(held_.find_first_not_of(' '), held_.size());
  const std::string_view rest = std::string_view(held_).substr(first);
  const auto all = [&](char c) { return rest.find_first_not_of(c) == std::string_view::npos; };
  const auto become = [&](Line line) {
    line_ = line;
    style(out);
    out += held_;
    held_.clear();
  };
  if (rest.empty() && first < 40) return;
  if (!rest.empty() && rest[0] == '`' && all('`')) {
    if (rest.size() < 3) return;
    in_fence_ = !in_fence_;
    return become(Line::fence);
  }
  if (in_fence_) return become(Line::code);
  if (!rest.empty() && rest[0] == '#') {
    if (all('#') && rest.size() <= 6) return;
    if (rest.back() == ' ' && rest.size() <= 7 && rest.substr(0, rest.size() - 1).find_first_not_of('#') == rest.npos)
      return become(Line::heading);
  }
  // Items of a list: a sign or a number, and a space.
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const bool sign = rest.size() <= 2 && !rest.empty() && (rest[0] == '-' || rest[0] == '*' || rest[0] == '+');
  const bool number = digits > 0 && digits <= 9 && rest.size() <= digits + 2 &&
                      (rest.size() == digits || rest[digits] == '.' || rest[digits] == ')');
  if ((sign && rest.size() == 1) || (number && rest.size() < digits + 2)) return;
  line_ = Line::plain;
  std::string text;
  std::swap(text, held_);
  if ((sign || number) && text.back() == ' ') {
    out += kItem + text + kReset;
    return;
  }
  for (const char c : text) put_inline(c, out);
}

void MarkdownColours::put_inline(char c, std::string& out) {
  if (!held_.empty()) {  // one or two asterisks
    if (c == '*' && held_.size() == 1) {
      held_ += c;
      return;
    }
    const bool closes = held_.size() == 2 && bold_, opens = held_.size() == 2 && !bold_ && c != ' ' && c != '*';
    if (opens) {
      bold_ = true;
      style(out);
    }
    out += held_;
    if (closes) {
      bold_ = false;
      style(out);
    }
    held_.clear();
  }
  if (c == '*' && !code_) {
    held_ += c;
  } else if (c == '`') {
    if (!code_) {
      code_ = true;
      style(out);
      out += c;
    } else {
      out += c;
      code_ = false;
      style(out);
    }
  } else {
    out += c;
  }
}

AnswerOutput::AnswerOutput(bool markdown) : coloured_(markdown && output_color()) {}

void AnswerOutput::put(std::string_view text) {
  if (!coloured_) return put_text(text);
  put_coloured(colours_.add(harmless(text)));
}

void AnswerOutput::finish() {
  if (coloured_) put_coloured(colours_.finish());
}

}  // namespace lumen::cli
