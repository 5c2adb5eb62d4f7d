// The marks of texts: declared in template_value.h.
#include <algorithm>

#include "model/templates/chat_template.h"
#include "model/templates/template_value.h"

namespace lumen::model::templates {
namespace {

constexpr char kFirstByte = '\xef';  // of all noncharacters from U+FDD0 to U+FDEF

}  // namespace

thread_local const AnswerMarks* TemplateMarks::current = nullptr;

TemplateMarks::TemplateMarks(const AnswerMarks& marks) : before_(current) {
  current = &marks;
}

TemplateMarks::~TemplateMarks() {
  current = before_;
}

size_t TemplateMarks::length_at(std::string_view text, size_t at) {
  if (current == nullptr || at >= text.size() || text[at] != kFirstByte) return 0;
  for (const std::string* mark : {&current->plain, &current->begin, &current->end}) {
    if (!mark->empty() && text.compare(at, mark->size(), *mark) == 0) return mark->size();
  }
  return 0;
}

bool TemplateMarks::any(std::string_view text) {
  if (current == nullptr) return false;
  TemplateMeter::step(text.size() / 256);
  for (size_t at = text.find(kFirstByte); at != std::string_view::npos; at = text.find(kFirstByte, at + 1)) {
    if (length_at(text, at) > 0) return true;
  }
  return false;
}

std::string TemplateMarks::without(const std::string& text) {
  return any(text) ? MarkedText(text).text() : text;
}

std::string TemplateMarks::as_plain(const std::string& text) {
  if (current == nullptr || text.empty()) return text;
  return current->plain + text + current->plain;
}

MarkedText::MarkedText(const std::string& with_marks) {
  TemplateMeter::step(with_marks.size() / 8);
  const AnswerMarks* const marks = TemplateMarks::current;
  bool inside = false;
  for (size_t at = 0; at < with_marks.size();) {
    const size_t length = TemplateMarks::length_at(with_marks, at);
    if (length == 0) {
      text_ += with_marks[at++];
      continue;
    }
    const std::string_view mark = std::string_view(with_marks).substr(at, length);
    if (mark == marks->begin) {
      begins_.push_back(text_.size());
    } else if (mark == marks->end) {
      ends_.push_back(text_.size());
    } else if (inside) {
      plain_.back().end = text_.size();
      inside = false;
    } else {
      plain_.push_back({text_.size(), text_.size()});
      inside = true;
    }
    at += length;
  }
  if (inside) plain_.back().end = text_.size();
}

std::string MarkedText::part(size_t begin, size_t end) const {
  const AnswerMarks* const marks = TemplateMarks::current;
  if (marks == nullptr) return text_.substr(begin, end - begin);
  // Marks by their places. At one place parts of the user end before answers do, and answers begin before parts do.
  std::vector<std::pair<size_t, const std::string*>> places;
  for (const size_t at : begins_)
    if (at >= begin && (at < end || (at == end && end == text_.size()))) places.emplace_back(at, &marks->begin);
  std::vector<std::pair<size_t, const std::string*>> edges;
  for (const Part& p : plain_) {
    const size_t from = std::max(p.begin, begin), to = std::min(p.end, end);
    if (from >= to) continue;
    edges.emplace_back(from, &marks->plain);
    edges.emplace_back(to, &marks->plain);
  }
  places.insert(places.end(), edges.begin(), edges.end());
  for (const size_t at : ends_)
    if (at <= end && (at > begin || (at == begin && (begin == 0 || begin == text_.size()))))
      places.emplace_back(at, &marks->end);
  TemplateMeter::step(places.size() * 8);
  std::stable_sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out;
  size_t at = begin;
  for (const auto& [place, mark] : places) {
    out.append(text_, at, place - at);
    out += *mark;
    at = place;
  }
  return out.append(text_, at, end - at);
}

std::string MarkedText::within(const std::string& whole) const {
  const size_t at = whole.find(text_);
  if (at == std::string::npos) return TemplateMarks::as_plain(whole);
  return whole.substr(0, at) + part(0, text_.size()) + whole.substr(at + text_.size());
}

Value MarkedText::piece(const Value& made, size_t* from) const {
  if (!made.is_text()) return made;
  const std::string& text = made.text();
  const size_t at = text_.find(text, *from);
  if (at == std::string::npos && text.size() == text_.size()) {  // letters of another case
    MarkedText same = *this;
    same.text_ = text;
    return Value(same.part(0, text.size()));
  }
  if (at == std::string::npos) return Value(TemplateMarks::as_plain(text));
  TemplateMeter::step(1 + (at + text.size() - *from) / 8);
  *from = at + text.size();
  return Value(part(at, at + text.size()));
}

Value MarkedText::pieces(const Value& made, bool at_end) const {
  size_t from = at_end && made.is_text() ? text_.size() - std::min(text_.size(), made.text().size()) : 0;
  if (!made.is_list()) return piece(made, &from);
  ValueList out;
  for (const Value& one : made.list().items) out.push_back(piece(one, &from));
  return Value::list(std::move(out), made.list().tuple);
}

}  // namespace lumen::model::templates
