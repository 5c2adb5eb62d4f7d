#include "model/serve/tools/call_reader.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBlank = " \t\r\n";

// Length of the end of `text` that may be the beginning of `mark`, including blanks before it.
size_t tail_before(const std::string& text, const std::string& mark) {
  size_t count = std::min(text.size(), mark.size());
  while (count > 0 && text.compare(text.size() - count, count, mark, 0, count) != 0) --count;
  size_t begin = text.size() - count;
  while (begin > 0 && std::string(kBlank).find(text[begin - 1]) != std::string::npos) --begin;
  return text.size() - begin;
}

bool is_blank(char c) {
  return std::string_view(kBlank).find(c) != std::string_view::npos;
}

// How far `text` has the JSON of `wanted`; blanks outside of strings are no matter.
struct JsonFit {
  bool fits = true, is_whole = false;
  size_t end = 0;  // in `text`
};
JsonFit json_fit(std::string_view text, std::string_view wanted) {
  size_t at = 0;
  bool in_string = false;
  for (const char c : wanted) {
    if (!in_string && is_blank(c)) continue;
    while (!in_string && at < text.size() && is_blank(text[at])) ++at;
    if (at == text.size()) return {true, false, at};
    if (text[at] != c) return {false, false, at};
    ++at;
    if (c == '"') in_string = !in_string;
  }
  return {true, true, at};
}

// The line that opens a Markdown block of JSON, which may stand around an object.
constexpr std::string_view kFences[] = {"```json\n", "```\n"};

size_t blanks_at_begin(std::string_view text) {
  return std::min(text.find_first_not_of(kBlank), text.size());
}

// The length of such a line at the beginning of `text`, 0 without one; nullopt where more of the text decides.
std::optional<size_t> fence_length(std::string_view text) {
  const size_t begin = blanks_at_begin(text);
  const std::string_view rest = text.substr(begin);
  for (const std::string_view fence : kFences) {
    if (rest.starts_with(fence)) return begin + fence.size();
    if (fence.starts_with(rest)) return std::nullopt;
  }
  return 0;
}

}  // namespace

void CallReader::put_text(std::string text, std::vector<CallPiece>* out) const {
  for (const std::string& name : plan_->form.controls)
    for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) text.erase(at, name.size());
  if (!text.empty()) out->push_back({CallPiece::Kind::text, std::move(text)});
}

std::vector<CallPiece> CallReader::push(const std::string& text) {
  held_ += text;
  std::vector<CallPiece> out;
  while (go_on(&out)) {
  }
  return out;
}

std::vector<CallPiece> CallReader::finish() {
  std::vector<CallPiece> out;
  const bool is_text = state_ == State::start || state_ == State::text || state_ == State::bare_close;
  const bool is_after_call = is_bare_ && (blanks_at_begin(held_) == held_.size() ||
                                          (state_ == State::bare_close && json_fit(held_, bare_close()).fits));
  if (is_text && !held_.empty() && !is_after_call) put_text(std::move(held_), &out);
  held_.clear();
  return out;
}

// False if more text is needed.
bool CallReader::go_on(std::vector<CallPiece>* out) {
  switch (state_) {
    case State::start:
      return read_start(out);
    case State::text:
      return read_text(out);
    case State::name:
      return read_name(out);
    case State::object:
      return read_object(out);
    case State::pairs:
      return read_pairs(out);
    case State::bare_close: {
      const JsonFit close = json_fit(held_, bare_close());
      if (close.fits && !close.is_whole) return false;
      if (close.fits) held_.erase(0, close.end);
      state_ = close.fits && !plan_->is_one ? State::start : State::text;
      return true;
    }
    case State::close:
      break;
  }
  // After the arguments: the end of the call, and possibly the beginning of another one.
  const CallForm& form = plan_->form;
  if (!form.has_many || !held_.starts_with(form.close + form.next)) return false;
  held_.erase(0, form.close.size() + form.next.size());
  state_ = State::name;
  return true;
}

// A call without the mark before it, at the beginning of the answer or after another such call.
bool CallReader::read_start(std::vector<CallPiece>* out) {
  const CallForm& form = plan_->form;
  if (!plan_->reads_bare || form.bare_open.empty()) {
    state_ = State::text;
    return true;
  }
  const std::optional<size_t> fence = fence_length(held_);
  if (!fence) return false;
  bool may_come = false;
  for (size_t i = 0; i < plan_->tools.size(); ++i) {
    const OfferedTool& tool = plan_->tools[i];
    const JsonFit call =
        json_fit(std::string_view(held_).substr(*fence), form.bare_open + tool.name + form.middle + "{");
    if (!call.fits || tool.is_strict) continue;
    may_come = true;
    if (!call.is_whole) continue;
    out->push_back({CallPiece::Kind::begin, tool.name});
    held_.erase(0, *fence + call.end - 1);
    is_fenced_ = *fence > 0;
    tool_ = i;
    state_ = State::object;
    is_bare_ = true;
    depth_ = 0;
    in_string_ = is_escaped_ = false;
    return true;
  }
  if (!may_come) state_ = State::text;
  return !may_come;
}

bool CallReader::read_text(std::vector<CallPiece>* out) {
  const std::string& open = plan_->form.open;
  const size_t at = held_.find(open);
  if (at == std::string::npos) {
    const size_t kept = tail_before(held_, open);
    if (kept < held_.size()) {
      put_text(held_.substr(0, held_.size() - kept), out);
      held_.erase(0, held_.size() - kept);
    }
    return false;
  }
  std::string before = held_.substr(0, at);
  before.erase(before.find_last_not_of(kBlank) + 1);
  put_text(std::move(before), out);
  held_.erase(0, at + open.size());
  state_ = State::name;
  return true;
}

bool CallReader::read_name(std::vector<CallPiece>* out) {
  const CallForm& form = plan_->form;
  size_t at = 0;
  if (form.has_id) {
    at = held_.find(form.after_id);
    if (at == std::string::npos) return false;
    at += form.after_id.size();
  }
  for (size_t i = 0; i < plan_->tools.size(); ++i) {
    const std::string& name = plan_->tools[i].name;
    // The text after the name distinguishes it from longer names.
    const auto stands = [&](const std::string& behind) {
      const std::string whole = name + form.middle + behind;
      return held_.compare(at, whole.size(), whole) == 0;
    };
    if (form.pairs ? !stands(form.pairs->before_key) && !stands(form.close) : !stands("{")) continue;
    tool_ = i;
    out->push_back({CallPiece::Kind::begin, name});
    held_.erase(0, at + name.size() + form.middle.size());
    state_ = form.pairs ? State::pairs : State::object;
    is_bare_ = false;
    depth_ = 0;
    in_string_ = is_escaped_ = false;
    return true;
  }
  return false;
}

bool CallReader::read_object(std::vector<CallPiece>* out) {
  size_t end = 0;
  bool is_over = false;
  for (; end < held_.size() && !is_over; ++end) {
    const char c = held_[end];
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (in_string_) {
      is_escaped_ = c == '\\';
      in_string_ = c != '"';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      is_over = --depth_ == 0;
    }
  }
  if (end > 0) out->push_back({CallPiece::Kind::arguments, held_.substr(0, end)});
  held_.erase(0, end);
  if (is_over) state_ = is_bare_ ? State::bare_close : State::close;
  return is_over;
}

// Emitted at once, when all pairs are complete.
bool CallReader::read_pairs(std::vector<CallPiece>* out) {
  const CallForm& form = plan_->form;
  const CallForm::Pairs& pairs = *form.pairs;
  const ordered_json& schema = plan_->tools[tool_].parameters;
  ordered_json values = ordered_json::object();
  size_t at = 0;
  while (held_.compare(at, form.close.size(), form.close) != 0) {
    if (held_.compare(at, pairs.before_key.size(), pairs.before_key) != 0) return false;
    const size_t key = at + pairs.before_key.size(), after = held_.find(pairs.after_key, key);
    if (after == std::string::npos) return false;
    const size_t value = after + pairs.after_key.size(), end = held_.find(pairs.after_value, value);
    if (end == std::string::npos) return false;
    const std::string name = held_.substr(key, after - key), text = held_.substr(value, end - value);
    const auto known = schema.find("properties");
    const bool is_text = known != schema.end() && known->contains(name) && (*known)[name].is_object() &&
                         (*known)[name].value("type", ordered_json()) == "string";
    const ordered_json parsed = ordered_json::parse(text, nullptr, false);
    values[name] = is_text || parsed.is_discarded() ? ordered_json(text) : parsed;
    at = end + pairs.after_value.size();
  }
  out->push_back({CallPiece::Kind::arguments, values.dump(-1, ' ', false, ordered_json::error_handler_t::replace)});
  held_.erase(0, at);
  state_ = State::close;
  return true;
}

}  // namespace lumen::model::serve
