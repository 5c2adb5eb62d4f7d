#include "model/data/examples/chat_mask.h"

#include <algorithm>

#include "base/error.h"
#include "model/data/examples/answer_finder.h"

namespace lumen::model::data {
namespace {

using nlohmann::ordered_json;
using Part = templates::ChatText::Part;

[[noreturn]] void wrong(std::string reason, std::string detail = {}) {
  throw ShapeFault{std::move(reason), std::move(detail)};
}

// Token by token where places are known; else the parts on their own, if that makes the same tokens.
MaskedTokens tokens_of(const templates::ChatRenderer& renderer, const templates::ChatText& text,
                       const std::vector<Part>& parts) {
  MaskedTokens out;
  templates::PlacedTokens placed = renderer.placed_tokens(text);
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
  if (out.ids != placed.ids) wrong("the tokenizer changes the text, so that the answer's tokens cannot be found");
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

namespace {

std::vector<size_t> answers_of(const ordered_json& messages, TrainOn which, size_t prompt) {
  std::vector<size_t> out;
  for (size_t i = prompt; i < messages.size(); ++i) {
    if (messages[i]["role"] != "assistant") continue;
    const auto weight = messages[i].find("weight");
    if (weight == messages[i].end() || *weight != 0) out.push_back(i);
  }
  if (which == TrainOn::last && !out.empty()) out.erase(out.begin(), out.end() - 1);
  if (out.empty()) wrong("no answer of the assistant");
  return out;
}

// Answers are found by renderings of parts of the chat, of which there are some for each message.
templates::TemplateLimits row_limits(const ordered_json& messages) {
  const templates::TemplateLimits one;
  constexpr uint64_t kMessages = 40;  // that may take what one rendering may
  const uint64_t times = 1 + messages.size() / kMessages;
  return {.steps = one.steps * times, .seconds = one.seconds * static_cast<double>(times)};
}

class Masker {
 public:
  Masker(const templates::ChatRenderer& renderer, const ordered_json& messages, const ordered_json& more)
      : renderer_(renderer), messages_(messages), finder_(renderer, messages, more) {}

  const AnswerFinder& finder() const { return finder_; }

  MaskedTokens tokens(const AnswerText& text, bool is_last_learned) const {
    if (text.parts.empty() || text.text.text.empty()) wrong("the template prints no answer");
    MaskedTokens out = tokens_of(renderer_, text.text, text.parts);
    // As where chats are answered: templates write BOS themselves, or the tokenizer's habit counts.
    const text::Tokenizer& tokenizer = renderer_.tokenizer();
    const auto bos = tokenizer.bos();
    if (tokenizer.adds_bos() && bos && (out.ids.empty() || out.ids.front() != *bos)) {
      out.ids.insert(out.ids.begin(), *bos);
      out.learned.insert(out.learned.begin(), 0);
    }
    const ordered_json& last = messages_[text.count - 1];
    if (last["role"] != "assistant" || !is_last_learned || finder_.is_ended(text.text, text.parts.back())) return out;
    const templates::AnswerForm& form = renderer_.form();
    auto end = last.contains("tool_calls") ? form.after_calls : form.after_text;
    if (!end) end = tokenizer.eos();
    if (end) {
      out.ids.push_back(*end);
      out.learned.push_back(1);
    }
    return out;
  }

 private:
  const templates::ChatRenderer& renderer_;
  const ordered_json& messages_;
  AnswerFinder finder_;
};

}  // namespace

MaskedChat mask_chat(const templates::ChatRenderer& renderer, const ordered_json& messages, const ordered_json& more,
                     TrainOn which, size_t prompt) {
  const templates::TemplateBudget budget(row_limits(messages));
  const Masker masker(renderer, messages, more);
  MaskedChat out;
  if (which == TrainOn::all) {
    const templates::ChatText& whole = masker.finder().whole();
    out.sequences.push_back(masker.tokens({whole, {{0, whole.text.size()}}, messages.size()}, true));
    return out;
  }
  const std::vector<size_t> answers = answers_of(messages, which, prompt);
  for (const AnswerText& text : masker.finder().in_turns(answers, &out.cut))
    out.sequences.push_back(masker.tokens(text, std::binary_search(answers.begin(), answers.end(), text.count - 1)));
  if (out.sequences.empty()) wrong("the template prints no answer");
  return out;
}

MaskedTokens mask_answer(const templates::ChatRenderer& renderer, const ordered_json& messages,
                         const ordered_json& more, size_t prompt) {
  const templates::TemplateBudget budget(row_limits(messages));
  const Masker masker(renderer, messages, more);
  const std::vector<size_t> answers = answers_of(messages, TrainOn::assistant, prompt);
  const bool is_last_learned = answers.back() + 1 == messages.size();
  std::string cut;
  const auto turns = masker.finder().in_turns(answers, &cut);
  if (turns.size() == 1) return masker.tokens(turns[0], is_last_learned);
  return masker.tokens(masker.finder().in_whole(answers), is_last_learned);
}

}  // namespace lumen::model::data
