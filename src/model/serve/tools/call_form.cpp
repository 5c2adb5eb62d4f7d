#include "model/serve/tools/call_form.h"

#include <algorithm>

#include "base/error.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

// Probe strings passed to the template; they occur in no template.
constexpr const char* kProbeTool = "qoffered";
constexpr const char* kProbeText = "qsaid";
constexpr const char* kProbeNames[] = {"qfirst", "qsecond"};
constexpr const char* kProbeIds[] = {"qcallone1", "qcalltwo2"};  // nine letters and digits: some templates require it
constexpr const char *kKeyA = "qkeya", *kKeyB = "qkeyb", *kValueA = "qvala", *kValueB = "qvalb";

std::string common_end(const std::string& a, const std::string& b) {
  const auto [at, other] = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend());
  return {at.base(), a.end()};
}

std::string common_begin(const std::string& a, const std::string& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return {a.begin(), at};
}

std::string without_space_before(const std::string& text) {
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at == std::string::npos ? std::string() : text.substr(at);
}

ordered_json probe_call(int which) {
  ordered_json call;
  call["id"] = kProbeIds[which];
  call["type"] = "function";
  call["function"] = {{"name", kProbeNames[which]}, {"arguments", {{kKeyA, kValueA}, {kKeyB, kValueB}}}};
  return call;
}

// Renders a question, and an answer with `calls` tool calls; empty if the template raises an error.
class Prober {
 public:
  explicit Prober(const templates::ChatRenderer& renderer) : renderer_(renderer) {
    ordered_json tool;
    tool["type"] = "function";
    tool["function"] = {{"name", kProbeTool},
                        {"description", "q"},
                        {"parameters", {{"type", "object"}, {"properties", ordered_json::object()}}}};
    more_["tools"] = ordered_json::array({tool});
  }

  std::string question(bool with_tools) const {
    return print(ordered_json::array({ask()}), with_tools ? more_ : ordered_json::object(), true);
  }
  std::string answer(const char* text, int calls) const {
    ordered_json said;
    said["role"] = "assistant";
    said["content"] = text;
    for (int i = 0; i < calls; ++i) said["tool_calls"].push_back(probe_call(i));
    return print(ordered_json::array({ask(), said}), more_, false);
  }

 private:
  static ordered_json ask() { return {{"role", "user"}, {"content", "qasked"}}; }
  std::string print(const ordered_json& messages, const ordered_json& more, bool open_answer) const {
    templates::ChatRenderer::Options options;
    options.open_answer = open_answer;
    try {
      return renderer_.render(renderer_.mark(messages, more), options).text;
    } catch (const Error&) {
      return {};
    }
  }

  const templates::ChatRenderer& renderer_;
  ordered_json more_ = ordered_json::object();
};

// A tool call in rendered text: from its beginning (the id, or the name) to the end of its arguments.
struct Found {
  size_t begin = 0, name = 0, end = 0;
  bool has_id = false, is_json = false;
  std::string after_id, middle, between, last;  // text after the name; around the first value, and after the second
  size_t after_name = 0;
};

std::optional<Found> find_call(const std::string& text, int which) {
  Found out;
  out.name = text.find(kProbeNames[which]);
  if (out.name == std::string::npos) return std::nullopt;
  out.begin = out.name;
  const size_t id = text.find(kProbeIds[which]);
  const std::string length = kProbeIds[which];
  if (id != std::string::npos && id < out.name) {
    out.has_id = true;
    out.begin = id;
    out.after_id = text.substr(id + length.size(), out.name - id - length.size());
  }
  out.after_name = out.name + std::string(kProbeNames[which]).size();
  const size_t key = text.find(kKeyA, out.after_name), last = text.find(kValueB, out.after_name);
  if (key == std::string::npos || last == std::string::npos || last < key) return std::nullopt;
  out.end = last + std::string(kValueB).size();
  const bool opens = key >= 2 && text.compare(key - 2, 2, "{\"") == 0;
  if (opens && text.compare(out.end, 2, "\"}") == 0) {
    out.is_json = true;
    out.end += 2;
    out.middle = text.substr(out.after_name, key - 2 - out.after_name);
  }
  return out;
}

// Determines the text around keys and values of a call whose arguments are not JSON. `tail` is the text after the last
// value.
bool split_pairs(const std::string& text, const Found& call, std::string* tail, CallForm* form) {
  const auto between = [&](const char* from, const char* to) -> std::string {
    const size_t begin = text.find(from, call.after_name) + std::string(from).size(), end = text.find(to, begin);
    return end == std::string::npos ? std::string() : text.substr(begin, end - begin);
  };
  const std::string head = text.substr(call.after_name, text.find(kKeyA, call.after_name) - call.after_name);
  const std::string joint = between(kValueA, kKeyB);
  CallForm::Pairs pairs;
  pairs.before_key = common_end(head, joint);
  pairs.after_key = between(kKeyA, kValueA);
  pairs.after_value = joint.substr(0, joint.size() - pairs.before_key.size());
  if (pairs.before_key.empty() || pairs.after_key.empty() || pairs.after_value.empty() ||
      !tail->starts_with(pairs.after_value))
    return false;
  form->middle = head.substr(0, head.size() - pairs.before_key.size());
  tail->erase(0, pairs.after_value.size());
  form->pairs = std::move(pairs);
  return true;
}

// Splits the text between two calls into the end of one and the start of the next: the first part is a prefix of the
// text after the last call, the second a suffix of the text before the first call.
void split_joint(const std::string& tail, const std::string& joint, CallForm* form) {
  for (size_t at = std::min(joint.size(), common_begin(tail, joint).size()); at > 0; --at) {
    const std::string bare = without_space_before(joint.substr(at));
    const bool fits = !bare.empty() && form->open.ends_with(bare) && bare[0] == form->open[0];
    if (!fits) continue;
    form->close = joint.substr(0, at);
    form->next = joint.substr(at);
    form->end = tail.substr(at);
    form->has_many = true;
    return;
  }
}

// The text between the beginning of an answer and its first call, without text that depends on the answer.
std::string opening(const Prober& prober, const std::string& question, const std::string& with_text, size_t begin) {
  const size_t said = with_text.find(kProbeText);
  const size_t from = said != std::string::npos && said < begin ? said + std::string(kProbeText).size()
                                                                : common_begin(with_text, question).size();
  std::string open = with_text.substr(from, begin - from);
  const std::string bare = prober.answer("", 1);
  if (const auto call = find_call(bare, 0)) {
    const size_t start = common_begin(bare, question).size();
    if (start <= call->begin) open = common_end(open, bare.substr(start, call->begin - start));
  }
  return without_space_before(open);
}

}  // namespace

std::optional<CallForm> learn_call_form(const templates::ChatRenderer& renderer) {
  const templates::TemplateBudget budget;
  const Prober prober(renderer);
  const std::string question = prober.question(true);
  if (question.find(kProbeTool) == std::string::npos) return std::nullopt;
  const std::string one = prober.answer(kProbeText, 1), two = prober.answer(kProbeText, 2);
  const std::string plain = prober.answer(kProbeText, 0);
  const auto call = find_call(one, 0);
  if (!call) return std::nullopt;

  CallForm form;
  form.has_id = call->has_id;
  form.after_id = call->after_id;
  form.middle = call->middle;
  form.open = opening(prober, question, one, call->begin);
  std::string tail = one.substr(call->end);
  if (!call->is_json && !split_pairs(one, *call, &tail, &form)) return std::nullopt;
  const std::string after = form.pairs ? form.pairs->after_value : std::string();

  std::string joint;  // between two calls
  if (const auto first = find_call(two, 0), second = find_call(two, 1); first && second && first->end < second->begin)
    joint = two.substr(first->end, second->begin - first->end);
  joint.erase(0, joint.starts_with(after) ? after.size() : 0);
  const size_t said = plain.find(kProbeText);
  const std::string end =
      said == std::string::npos ? std::string() : plain.substr(said + std::string(kProbeText).size());
  if (!end.empty() && tail.ends_with(end)) {
    tail.resize(tail.size() - end.size());
  } else {
    const templates::ChatText rest{.text = tail, .plain = {}, .begins = {}, .ends = {}};
    const auto control = renderer.next_control(rest, 1);
    if (joint.empty()) tail.resize(control ? control->begin : tail.find_last_not_of(" \t\r\n") + 1);
  }
  form.close = tail;
  split_joint(tail, joint, &form);
  if (form.open.empty() || form.close.empty()) return std::nullopt;
  const size_t object = form.open.find("{\"");
  if (!form.pairs && !form.has_id && object != std::string::npos && object > 0 && form.close[0] == '}')
    form.bare_open = form.open.substr(object);

  const templates::ChatText whole{.text = form.open + " " + form.after_id + " " + form.middle + " " + form.close,
                                  .plain = {},
                                  .begins = {},
                                  .ends = {}};
  if (renderer.next_control(whole, 0)) form.controls = renderer.control_names();
  return form;
}

}  // namespace lumen::model::serve
