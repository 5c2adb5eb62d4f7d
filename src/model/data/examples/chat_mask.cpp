#include "model/data/examples/chat_mask.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace lumen::model {
namespace {

using nlohmann::ordered_json;
using Part = ChatText::Part;

constexpr const char* kLost = "the answer cannot be told apart in what the template prints";

[[noreturn]] void wrong(std::string reason, std::string detail = {}) {
  throw ShapeFault{std::move(reason), std::move(detail)};
}

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

class Finder {
 public:
  Finder(const ChatRenderer& renderer, const ordered_json& messages, const ordered_json& more)
      : renderer_(renderer), messages_(messages), more_(more) {
    try {
      chat_ = renderer.mark(messages);
      const ChatRenderer::Options whole{.mark_answers = renderer.has_answers()};
      try {
        full_ = renderer.render(chat_, more, whole);
      } catch (const Error&) {
        // Messages that only call tools have no content; some templates know them with an empty one alone.
        if (!fill_contents()) throw;
        full_ = renderer.render(chat_, more, whole);
      }
    } catch (const Error& error) {
      wrong("the template refuses the conversation", error.what());
    }
  }

  const ChatText& full() const { return full_; }

  std::vector<Part> find(const std::vector<size_t>& answers) {
    return renderer_.has_answers() ? from_blocks(answers) : from_beginnings(answers);
  }

  bool ends_turn(TokenId id) const {
    const auto ends = renderer_.tokenizer().end_of_generation();
    return std::binary_search(ends.begin(), ends.end(), id);
  }

 private:
  bool fill_contents() {
    bool filled = false;
    for (ordered_json& message : chat_.messages) {
      if (!message.contains("content") || !message["content"].is_null()) continue;
      message["content"] = "";
      filled = true;
    }
    return filled;
  }

  std::vector<Part> from_blocks(const std::vector<size_t>& answers) {
    std::vector<Part> blocks;
    if (full_.begins.size() != full_.ends.size()) wrong(kLost, "the template prints parts of answers only");
    for (size_t i = 0; i < full_.begins.size(); ++i) {
      if (full_.begins[i] > full_.ends[i] || (i > 0 && full_.begins[i] < full_.ends[i - 1]))
        wrong(kLost, "the template's answers lie within each other");
      blocks.push_back({full_.begins[i], full_.ends[i]});
    }
    std::vector<size_t> all;
    for (size_t i = 0; i < messages_.size(); ++i)
      if (messages_[i]["role"] == "assistant") all.push_back(i);
    if (answers == all) return blocks;
    if (blocks.size() != all.size()) wrong(kLost, "the template prints another number of answers");
    std::vector<Part> out;
    for (size_t i = 0; i < all.size(); ++i)
      if (std::find(answers.begin(), answers.end(), all[i]) != answers.end()) out.push_back(blocks[i]);
    return out;
  }

  std::vector<Part> from_beginnings(const std::vector<size_t>& answers) {
    std::vector<Part> out;
    for (const size_t k : answers) {
      const auto begin = beginning(k, true);
      const auto end = k + 1 == messages_.size() ? std::optional(full_.text.size()) : beginning(k + 1, false);
      Part part{begin.value_or(0), end.value_or(0)};
      if (!begin || !end || part.begin >= part.end) part = from_marks(k, begin);
      part = without_space(part);
      if (part.begin >= part.end || (!out.empty() && part.begin < out.back().end)) wrong(kLost);
      out.push_back(part);
    }
    return out;
  }

  std::optional<std::string> printed(size_t count, bool open) const {
    try {
      return renderer_.render(chat_, more_, {.count = count, .open_answer = open}).text;
    } catch (const Error&) {  // templates refuse conversations without a question, say
      return std::nullopt;
    }
  }

  // The size of what is printed of the first messages, if that is a beginning of the whole.
  std::optional<size_t> beginning(size_t count, bool open) const {
    const auto text = printed(count, open);
    if (!text || !full_.text.starts_with(*text)) return std::nullopt;
    return text->size();
  }

  Part from_marks(size_t k, std::optional<size_t> begin) const {
    ChatText marked;
    try {
      marked = renderer_.render(chat_, more_, {.marked = k});
    } catch (const Error& error) {
      wrong(kLost, error.what());
    }
    if (marked.text != full_.text || marked.ends.empty()) wrong(kLost);
    if (!begin) begin = opened(k, marked);
    const auto control = renderer_.next_control(full_, marked.ends.back());
    if (!control || !ends_turn(control->id)) wrong(kLost);
    return {*begin, control->end};
  }

  // Behind what opens an answer. Templates may open the answer that is to come in another way than those that were
  // given: what both have in common, up to the answer's text, opens this one.
  size_t opened(size_t k, const ChatText& marked) const {
    const auto open = printed(k, true), before = printed(k, false);
    if (!open || !before || !open->starts_with(*before) || marked.begins.empty()) wrong(kLost);
    const size_t text = marked.begins.front();
    const std::string opening = open->substr(before->size());
    size_t begin = 0;
    if (full_.text.starts_with(*before)) {
      size_t same = 0;
      while (same < opening.size() && before->size() + same < text &&
             opening[same] == full_.text[before->size() + same])
        ++same;
      if (same == 0) wrong(kLost);
      begin = before->size() + same;
    } else {
      const size_t at = opening.empty() || text < opening.size() ? std::string::npos
                                                                 : full_.text.rfind(opening, text - opening.size());
      if (at == std::string::npos) wrong(kLost);
      begin = at + opening.size();
    }
    const auto control = renderer_.next_control(full_, begin);
    if (begin > text || (control && control->begin < text)) wrong(kLost);
    return begin;
  }

  // White space behind the control token that ends a turn is the template's.
  Part without_space(Part part) const {
    size_t end = part.end;
    while (end > part.begin && is_space(full_.text[end - 1])) --end;
    size_t at = part.begin;
    while (const auto control = renderer_.next_control(full_, at)) {
      if (control->begin >= end) break;
      if (control->end == end) return {part.begin, end};
      at = control->end;
    }
    return part;
  }

  const ChatRenderer& renderer_;
  const ordered_json& messages_;
  const ordered_json& more_;
  MarkedChat chat_;
  ChatText full_;
};

// Token by token where places are known; else the parts on their own, if that makes the same tokens.
MaskedTokens tokens_of(const ChatRenderer& renderer, const ChatText& text, const std::vector<Part>& parts) {
  MaskedTokens out;
  PlacedTokens placed = renderer.placed_tokens(text);
  if (!placed.ends.empty() || placed.ids.empty()) {
    size_t begin = 0, next = 0;
    for (const size_t end : placed.ends) {
      while (next < parts.size() && parts[next].end <= begin) ++next;
      out.learned.push_back(next < parts.size() && parts[next].begin < end);
      begin = end;
    }
    out.ids = std::move(placed.ids);
    return out;
  }
  const auto put = [&](size_t begin, size_t end, uint8_t learned) {
    const auto ids = renderer.tokens(text, begin, end);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.learned.resize(out.ids.size(), learned);
  };
  size_t at = 0;
  for (const Part& part : parts) {
    put(at, part.begin, 0);
    put(part.begin, part.end, 1);
    at = part.end;
  }
  put(at, text.text.size(), 0);
  if (out.ids != placed.ids) wrong("the tokenizer changes the text, so that the answer's tokens cannot be told apart");
  return out;
}

}  // namespace

const char* train_on_name(TrainOn which) {
  return which == TrainOn::all ? "all" : which == TrainOn::last ? "last" : "assistant";
}

TrainOn train_on(const std::string& name) {
  for (const TrainOn which : {TrainOn::all, TrainOn::assistant, TrainOn::last})
    if (name == train_on_name(which)) return which;
  throw Error(Exit::usage, fmt::format("train_on: '{}' is unknown", name), "all, assistant or last");
}

std::tm template_time() {
  std::tm t{};
  t.tm_year = 2025 - 1900;
  t.tm_mday = 1;
  t.tm_hour = 12;
  t.tm_wday = 3;
  return t;
}

MaskedTokens mask_chat(const ChatRenderer& renderer, const ordered_json& messages, const ordered_json& more,
                       TrainOn which, size_t prompt) {
  Finder finder(renderer, messages, more);
  const bool all = which == TrainOn::all;
  std::vector<size_t> answers;
  for (size_t i = prompt; i < messages.size() && !all; ++i) {
    if (messages[i]["role"] != "assistant") continue;
    const auto weight = messages[i].find("weight");
    if (weight == messages[i].end() || *weight != 0) answers.push_back(i);
  }
  if (which == TrainOn::last && !answers.empty()) answers.erase(answers.begin(), answers.end() - 1);
  if (answers.empty() && !all) wrong("no answer of the assistant");
  const ChatText& text = finder.full();
  const std::vector<Part> parts = all ? std::vector<Part>{{0, text.text.size()}} : finder.find(answers);
  if (parts.empty() || text.text.empty()) wrong("the template prints no answer");
  MaskedTokens out = tokens_of(renderer, text, parts);

  const Tokenizer& tokenizer = renderer.tokenizer();
  // As where chats are answered: templates write BOS themselves, or the tokenizer's habit counts.
  const auto bos = tokenizer.bos();
  if (tokenizer.adds_bos() && bos && (out.ids.empty() || out.ids.front() != *bos)) {
    out.ids.insert(out.ids.begin(), *bos);
    out.learned.insert(out.learned.begin(), 0);
  }
  const auto eos = tokenizer.eos();
  if (messages.back()["role"] == "assistant" && eos && (all || answers.back() + 1 == messages.size())) {
    bool ended = false;
    for (size_t at = all ? 0 : parts.back().begin; const auto control = renderer.next_control(text, at);) {
      ended = finder.ends_turn(control->id);
      at = control->end;
    }
    if (!ended) {
      out.ids.push_back(*eos);
      out.learned.push_back(1);
    }
  }
  return out;
}

}  // namespace lumen::model
