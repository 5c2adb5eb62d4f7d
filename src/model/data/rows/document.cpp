#include "model/data/rows/document.h"

#include <algorithm>
#include <cctype>

#include "model/text/unicode/unicode.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  return text;
}

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {}
  bool next(std::string_view* line) {
    if (at_ >= text_.size()) return false;
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    *line = text_.substr(at_, end - at_);
    if (line->ends_with('\r')) line->remove_suffix(1);
    at_ = end + 1;
    ++number;
    return true;
  }
  uint64_t number = 0;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// The meaning of a heading for the text below it. A question begins a conversation, a follow-up continues one.
enum class Heading { none, system, question, follow_up, answer, prompt, chosen, rejected, other };

// Sections of a .dlm file, separated by lines such as "::instruction::".
enum class Section { none, prose, instruction, preference, other };

Section section_of(std::string_view line) {
  line = trimmed(line);
  if (line.size() < 5 || !line.starts_with("::") || !line.ends_with("::")) return Section::none;
  std::string_view name = line.substr(2, line.size() - 4);
  name = name.substr(0, name.find_first_of(" #"));
  if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; }))
    return Section::none;
  if (name == "prose") return Section::prose;
  if (name == "instruction") return Section::instruction;
  return name == "preference" ? Section::preference : Section::other;
}

Heading heading_of(std::string_view line, Section section) {
  const size_t marks = line.find_first_not_of('#');
  if (marks == 0 || marks == std::string_view::npos || marks > 6 || line[marks] != ' ') return Heading::none;
  std::string name(trimmed(line.substr(marks)));
  if (name.ends_with(':')) name.pop_back();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "q" || name == "question") return Heading::question;
  if (name == "a" || name == "answer") return Heading::answer;
  if (name == "follow-up") return Heading::follow_up;
  if (name == "system") return Heading::system;
  if (section == Section::preference) {
    if (name == "prompt") return Heading::prompt;
    if (name == "chosen") return Heading::chosen;
    if (name == "rejected") return Heading::rejected;
  }
  return Heading::other;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : lines_(text) {}

  Document read() {
    std::string_view line;
    bool more = lines_.next(&line);
    if (more && trimmed(line) == "---") {
      settings();
      more = lines_.next(&line);
    }
    begin_ = lines_.number;
    bool fenced = false;
    for (; more; more = lines_.next(&line)) {
      // Fenced code may contain lines that look like headings.
      if (line.starts_with("```") || line.starts_with("~~~")) fenced = !fenced;
      if (const Section section = fenced ? Section::none : section_of(line); section != Section::none) {
        end_part();
        end_chat();
        section_ = section;
        role_ = Heading::none;
        if (section == Section::other) fault(lines_.number, "a section that is not read", trimmed(line));
        begin_ = lines_.number + 1;
        continue;
      }
      if (section_ == Section::other) continue;
      const Heading heading = fenced ? Heading::none : heading_of(line, section_);
      const bool in_chat = role_ != Heading::none;
      if (heading == Heading::none || (heading == Heading::other && !in_chat)) {
        part_ += line;
        part_ += '\n';
        continue;
      }
      end_part();
      const bool after_system = !messages_.empty() && messages_.back()["role"] == "system";
      const bool begins = heading == Heading::question || heading == Heading::prompt;
      if (heading == Heading::other || heading == Heading::system || (begins && !after_system)) end_chat();
      if (heading == Heading::other) {
        part_ = std::string(line) + "\n";
        role_ = Heading::none;
      } else {
        if (messages_.empty()) chat_line_ = lines_.number;
        role_ = heading;
      }
      begin_ = lines_.number;
    }
    end_part();
    end_chat();
    return std::move(out_);
  }

 private:
  void settings() {
    const uint64_t first = lines_.number;
    std::string_view line;
    while (lines_.next(&line)) {
      const std::string_view text = trimmed(line);
      if (text == "---" || text == "...") return;
      if (text.empty() || text.starts_with('#')) continue;
      const size_t colon = text.find(':');
      if (colon == std::string_view::npos) {
        fault(lines_.number, "a setting in front is no \"key: value\"", text);
        continue;
      }
      out_.settings.push_back({std::string(trimmed(text.substr(0, colon))),
                               std::string(unquoted(trimmed(text.substr(colon + 1)))), lines_.number});
    }
    fault(first, "the settings in front have no end (---)", "");
  }

  void fault(uint64_t line, std::string_view what, std::string_view detail) {
    out_.rows.push_back({.line = line, .fault = std::string(what), .detail = std::string(detail)});
  }

  void end_part() {
    const std::string_view text = trimmed(part_);
    if (role_ == Heading::none) {
      if (!text.empty()) out_.rows.push_back({.line = begin_, .value = {{"text", text}}});
    } else {
      const char* role = role_of(role_);
      if (text.empty() && empty_line_ == 0) empty_line_ = begin_;
      messages_.push_back({{"role", role}, {"content", text}});
    }
    part_.clear();
  }

  static const char* role_of(Heading heading) {
    switch (heading) {
      case Heading::system:
        return "system";
      case Heading::answer:
        return "assistant";
      case Heading::chosen:
        return "chosen";
      case Heading::rejected:
        return "rejected";
      default:
        return "user";
    }
  }

  // A prompt, the chosen and the rejected answer.
  void end_preference() {
    ordered_json row = ordered_json::object(), prompt = ordered_json::array();
    for (ordered_json& m : messages_) {
      const std::string role = m["role"];
      if (role != "chosen" && role != "rejected")
        prompt.push_back(std::move(m));
      else if (row.contains(role))
        return fault(chat_line_, "a preference with an answer of one kind twice", role);
      else
        row[role] = std::move(m["content"]);
    }
    if (prompt.empty() || row.size() != 2) return fault(chat_line_, "a preference without prompt and both answers", "");
    row["prompt"] = std::move(prompt);
    out_.rows.push_back({.line = chat_line_, .value = std::move(row)});
  }

  void end_chat() {
    if (messages_.empty()) return;
    if (empty_line_ != 0)
      fault(empty_line_, "a question or an answer without text", "");
    else if (section_ == Section::preference)
      end_preference();
    else
      out_.rows.push_back({.line = chat_line_, .value = {{"messages", std::move(messages_)}}});
    messages_ = ordered_json::array();
    empty_line_ = 0;
    role_ = Heading::none;
  }

  Lines lines_;
  Document out_;
  std::string part_;
  uint64_t begin_ = 1, chat_line_ = 0, empty_line_ = 0;
  Heading role_ = Heading::none;
  Section section_ = Section::none;
  ordered_json messages_ = ordered_json::array();
};

}  // namespace

Document read_document(std::string_view text) {
  if (text::utf8_valid_run(text, 0) != text.size()) return {{}, {DataRow{.line = 1, .fault = "no valid UTF-8"}}};
  return Reader(text).read();
}

std::vector<DataRow> document_rows(std::string_view text) {
  return read_document(text).rows;
}

}  // namespace lumen::model::data
