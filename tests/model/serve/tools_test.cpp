// needs: none. The form of calls is learned from templates of every style; what the grammar allows is a call that fits,
// and calls are found again in the text however it is cut.
#include "model/serve/tools/tools.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "model/infer/grammar/grammar_states.h"
#include "model/serve/request.h"

namespace lumen::model::serve {
namespace {

using nlohmann::ordered_json;

std::string all_letters() {
  std::string out = "\n";
  for (char c = ' '; c < 127; ++c) out += c;
  return out;
}

templates::ChatRenderer renderer_of(const std::string& text) {
  return {text::Tokenizer::characters(all_letters()), templates::ChatTemplate::parse(text)};
}

constexpr const char* kTags =
    "{% if tools %}[tools]{% for t in tools %}{{ t | tojson }}{% endfor %}[/tools]{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% if m.content or not loop.first %}{{ '\n' }}{% endif %}"
    "<call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}</call>{% endfor "
    "%}[end]"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kPairs =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls or [] %}{{ '\n' }}<call>\n<f={{ "
    "c.function.name }}>\n"
    "{% for k, v in c.function.arguments | items %}<p={{ k }}>\n{{ v if v is string else v | tojson }}\n</p>\n{% "
    "endfor %}"
    "</f>\n</call>{% endfor %}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kBare =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call at once') }}{% endif %}{% set c = m.tool_calls[0] %}"
    "{\"name\": \"{{ c.function.name }}\", \"parameters\": {{ c.function.arguments | tojson }}}"
    "{% else %}{{ m.content }}{% endif %}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kIds =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}<calls>{% for c in m.tool_calls %}"
    "<call>{{ c.id }}<name>{{ c.function.name }}<args>{{ c.function.arguments | tojson }}<done>{% endfor %}</calls>{% "
    "endif %}"
    "[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

CallForm form_of(const char* text) {
  auto form = learn_call_form(renderer_of(text));
  EXPECT_TRUE(form.has_value()) << text;
  return form.value_or(CallForm());
}

std::shared_ptr<CallPlan> plan_of(CallForm form) {
  auto plan = std::make_shared<CallPlan>();
  plan->form = std::move(form);
  plan->tools.push_back({"get", ordered_json::parse(R"({"type": "object", "required": ["city"], "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}}})")});
  plan->tools.push_back(
      {"get_all", ordered_json::parse(R"({"type": "object", "properties": {}, "additionalProperties": false})")});
  return plan;
}

bool fits(const CallPlan& plan, const std::string& text) {
  infer::GrammarMatcher matcher(std::make_shared<const infer::Grammar>(infer::Grammar::parse(call_grammar(plan))));
  return matcher.accept(text) && matcher.may_end();
}

// What is read of a text that comes in pieces of `size` bytes: "text|name(arguments)|.."
std::string read(const std::shared_ptr<CallPlan>& plan, const std::string& text, size_t size) {
  CallReader reader(plan);
  std::vector<CallPiece> all;
  const auto add = [&](std::vector<CallPiece> some) { all.insert(all.end(), some.begin(), some.end()); };
  for (size_t at = 0; at < text.size(); at += size) add(reader.push(text.substr(at, size)));
  add(reader.finish());
  std::string out;
  for (const CallPiece& piece : all) {
    if (piece.kind == CallPiece::Kind::begin)
      out += "|" + piece.text + ":";
    else
      out += piece.text;
  }
  return out;
}

TEST(ServeTools, TheFormIsLearnedFromTheTemplate) {
  const CallForm tags = form_of(kTags);
  EXPECT_EQ(tags.open, "<call>{\"name\": \"");
  EXPECT_EQ(tags.middle, "\", \"arguments\": ");
  EXPECT_EQ(tags.close, "}</call>");
  EXPECT_EQ(tags.next, "\n<call>{\"name\": \"");
  EXPECT_TRUE(tags.has_many && !tags.has_id && !tags.pairs && tags.controls.empty());

  const CallForm pairs = form_of(kPairs);
  ASSERT_TRUE(pairs.pairs.has_value());
  EXPECT_EQ(pairs.open, "<call>\n<f=");
  EXPECT_EQ(pairs.middle + pairs.pairs->before_key, ">\n<p=");
  EXPECT_EQ(pairs.pairs->after_key, ">\n");
  EXPECT_EQ(pairs.pairs->after_value + pairs.close, "\n</p>\n</f>\n</call>");

  const CallForm bare = form_of(kBare);
  EXPECT_EQ(bare.open, "{\"name\": \"");
  EXPECT_EQ(bare.middle, "\", \"parameters\": ");
  EXPECT_EQ(bare.close, "}");
  EXPECT_FALSE(bare.has_many);

  const CallForm ids = form_of(kIds);
  EXPECT_EQ(ids.open, "<calls><call>");
  EXPECT_TRUE(ids.has_id && ids.has_many);
  EXPECT_EQ(ids.after_id, "<name>");
  EXPECT_EQ(ids.middle, "<args>");
  EXPECT_EQ(ids.close, "<done>");
  EXPECT_EQ(ids.next, "<call>");

  // Templates that show no functions, cannot write calls, or refuse everything.
  for (const char* none :
       {"{% for m in messages %}{{ m.content }}{% endfor %}", "{{ tools | tojson }}",
        "{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}", "{{ raise_exception('no') }}"})
    EXPECT_FALSE(learn_call_form(renderer_of(none)).has_value()) << none;
}

TEST(ServeTools, RealTemplatesHaveForms) {
  const std::filesystem::path folder = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/chat";
  int64_t known = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".jinja" || file.path().stem().string().starts_with("own-")) continue;
    std::ifstream in(file.path());
    std::stringstream text;
    text << in.rdbuf();
    const auto form = learn_call_form(renderer_of(text.str()));
    if (text.str().find("tool_calls") == std::string::npos) {
      EXPECT_FALSE(form.has_value()) << file.path();
      continue;
    }
    ASSERT_TRUE(form.has_value()) << file.path();
    ++known;
    // What the template prints for a call is what the grammar allows.
    CallPlan plan = *plan_of(*form);
    plan.is_needed = true;
    const std::string id = form->has_id ? "abc123def" + form->after_id : "";
    const std::string arguments =
        form->pairs ? form->pairs->before_key + "city" + form->pairs->after_key + "Seoul" + form->pairs->after_value
                    : "{\"city\": \"Seoul\"}";
    EXPECT_TRUE(fits(plan, form->open + id + "get" + form->middle + arguments + form->close)) << file.path();
  }
  EXPECT_GE(known, 3);
}

TEST(ServeTools, OnlyCallsThatFitAreAllowed) {
  auto plan = plan_of(form_of(kTags));
  const std::string good = R"(<call>{"name": "get", "arguments": {"city": "Seoul", "days": 3}}</call>)";
  EXPECT_TRUE(fits(*plan, good));
  EXPECT_TRUE(fits(*plan, ""));
  EXPECT_TRUE(fits(*plan, "Some <cal <<call text, nothing else.\n"));
  EXPECT_TRUE(fits(*plan, "Let me look. <<call" + good + "\n" + good));
  EXPECT_TRUE(fits(*plan, R"(<call>{"name": "get_all", "arguments": {}}</call>)"));
  for (const char* bad :
       {R"(<call>{"name": "other", "arguments": {}}</call>)", R"(<call>{"name": "get", "arguments": {}}</call>)",
        R"(<call>{"name": "get", "arguments": {"city": 3}}</call>)", R"(<call>{"name": ")",
        R"(<call>{"name": "get_all", "arguments": {"a": 1}}</call>)"})
    EXPECT_FALSE(fits(*plan, bad)) << bad;
  EXPECT_FALSE(fits(*plan, good + " and more"));
  plan->is_one = true;
  EXPECT_TRUE(fits(*plan, good));
  EXPECT_FALSE(fits(*plan, good + "\n" + good));
  plan->is_needed = true;
  EXPECT_FALSE(fits(*plan, "text"));
  EXPECT_FALSE(fits(*plan, ""));

  auto pairs = plan_of(form_of(kPairs));
  const std::string call = "<call>\n<f=get>\n<p=city>\nSe\n</oul\n</p>\n<p=days>\n3\n</p>\n</f>\n</call>";
  EXPECT_TRUE(fits(*pairs, "Look:\n" + call));
  EXPECT_TRUE(fits(*pairs, "<call>\n<f=get_all>\n</f>\n</call>"));
  EXPECT_FALSE(fits(*pairs, "<call>\n<f=get>\n<p=days>\n3\n</p>\n</f>\n</call>"));
  EXPECT_FALSE(fits(*pairs, "<call>\n<f=get>\n<p=city>\na\n</p>\n<p=days>\nmany\n</p>\n</f>\n</call>"));

  // An answer of a form of its own, or a call.
  const infer::SchemaRules otherwise = infer::schema_rules({{"type", "integer"}}, "o");
  infer::GrammarMatcher matcher(
      std::make_shared<const infer::Grammar>(infer::Grammar::parse(call_grammar(*plan_of(form_of(kTags)), otherwise))));
  EXPECT_TRUE(matcher.allows("12") && matcher.allows("<call>{\"name\": \"get") && !matcher.allows("a"));
}

TEST(ServeTools, CallsAreFoundHoweverTheTextIsCut) {
  const std::string one = R"(<call>{"name": "get", "arguments": {"city": "Se\"}{oul", "days": [1]}}</call>)";
  const std::string two = R"(<call>{"name": "get_all", "arguments": {}}</call>)";
  auto tags = plan_of(form_of(kTags));
  auto pairs = plan_of(form_of(kPairs));
  auto ids = plan_of(form_of(kIds));
  for (size_t size = 1; size < 40; ++size) {
    EXPECT_EQ(read(tags, "Just <cal text <", size), "Just <cal text <");
    EXPECT_EQ(read(tags, "Wait. \n" + one + "\n" + two, size),
              R"(Wait.|get:{"city": "Se\"}{oul", "days": [1]}|get_all:{})");
    EXPECT_EQ(read(tags, one.substr(0, 50), size), "|get:" + one.substr(35, 15));
    EXPECT_EQ(
        read(pairs,
             "<call>\n<f=get>\n<p=city>\n1\n</p>\n<p=days>\n3\n</p>\n</f>\n</call>\n<call>\n<f=get_all>\n</f>\n</call>",
             size),
        R"(|get:{"city":"1","days":3}|get_all:{})");
    EXPECT_EQ(
        read(ids,
             "<calls><call>abc123def<name>get<args>{\"city\": \"a\"}<done><call>abc123deg<name>get_all<args>{}<done>",
             size),
        R"(|get:{"city": "a"}|get_all:{})");
  }
}

// Small models leave out the mark of a call, and write JSON with other blanks than the template.
TEST(ServeTools, CallsWithoutTheirMarkAreCalls) {
  const CallForm form = form_of(kTags);
  EXPECT_EQ(form.bare_open, "{\"name\": \"");
  EXPECT_EQ(form_of(kPairs).bare_open, "");
  EXPECT_EQ(form_of(kBare).bare_open, "") << "its calls have no mark";
  EXPECT_EQ(form_of(kIds).bare_open, "");
  const auto plan = plan_of(form);
  const std::string call = R"({"name": "get", "arguments": {"city": "}\"{"}})";
  for (size_t size = 1; size < 40; ++size) {
    EXPECT_EQ(read(plan, call, size), call) << "not asked for";
    plan->reads_bare = true;
    EXPECT_EQ(read(plan, call, size), R"(|get:{"city": "}\"{"})");
    EXPECT_EQ(read(plan, " \n{\n  \"name\" :\"get\",\n  \"arguments\":  {\"days\":\n1}\n}\n", size),
              "|get:{\"days\":\n1}");
    EXPECT_EQ(read(plan, call + "\n" + R"({"name": "get_all", "arguments": {}})" + " and so on", size),
              R"(|get:{"city": "}\"{"}|get_all:{} and so on)");
    EXPECT_EQ(read(plan, "<call>" + call + "</call>", size), R"(|get:{"city": "}\"{"})");
    for (const std::string fence : {"```json\n", "```\n", "\n```json\n"})
      for (const std::string end : {"\n```\n", "\n``", "\n", ""})
        EXPECT_EQ(read(plan, fence + call + end, size), R"(|get:{"city": "}\"{"})");
    // Other JSON, and calls in the middle of a text, are text.
    for (const std::string text :
         {R"({"name": "got", "arguments": {}})", R"({"name": "get", "argument": {}})",
          R"({"name": "get", "arguments": 1})", R"({"name": "ge)", "{", R"(Call {"name": "get", "arguments": {}})"})
      EXPECT_EQ(read(plan, text, size), text);
    plan->is_one = true;
    EXPECT_EQ(read(plan, call + call, size), R"(|get:{"city": "}\"{"})" + call);
    plan->is_one = false;
    plan->tools[0].is_strict = true;
    EXPECT_EQ(read(plan, call, size), call) << "nothing would hold its arguments to the schema";
    plan->tools[0].is_strict = plan->reads_bare = false;
  }
}

TEST(ServeTools, RequestsOfferFunctions) {
  ServedModel model("letters", text::Tokenizer::characters(all_letters()), 96);
  model.longest = 4096;
  model.chat.emplace(model.tokenizer, templates::ChatTemplate::parse(kTags));
  const auto read_body = [&](const std::string& more) {
    return read_chat(request_object(R"({"messages": [{"role": "user", "content": "a"}])" + more + "}"), model);
  };
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "get", "description": "Gets.", "parameters":
      {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}, {"type": "function", "function": {"name": "ping"}}])";
  EXPECT_THROW((void)read_body(tools), Refusal);  // the model does not know how
  model.calls = learn_call_form(*model.chat);
  const GenerationRequest r = read_body(tools);
  ASSERT_TRUE(r.calls && r.constraint);
  EXPECT_FALSE(r.calls->is_needed || r.calls->is_one);
  EXPECT_TRUE(r.calls->reads_bare);
  EXPECT_FALSE(read_body(tools + R"(, "tool_choice": "required")").calls->reads_bare);
  EXPECT_FALSE(read_body(tools + R"(, "response_format": {"type": "json_object"})").calls->reads_bare);
  EXPECT_NE(model.tokenizer.decode(r.prompts[0]).find("\"Gets.\""), std::string::npos);
  EXPECT_TRUE(read_body(tools + R"(, "tool_choice": "required", "parallel_tool_calls": false)").calls->is_needed);
  const auto named = read_body(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "ping"}})").calls;
  EXPECT_TRUE(named->is_needed && named->is_one && named->tools.size() == 1 && named->tools[0].name == "ping");
  const GenerationRequest none = read_body(tools + R"(, "tool_choice": "none")");
  EXPECT_TRUE(!none.calls && !none.constraint);
  EXPECT_EQ(none.prompts, read_body("").prompts);
  EXPECT_TRUE(read_body(tools + R"(, "response_format": {"type": "json_object"})").constraint != nullptr);
  for (
      const char* bad :
      {R"(, "tools": 3)", R"(, "tools": [3])", R"(, "tools": [{"type": "function", "function": {}}])",
       R"(, "tools": [{"type": "function", "function": {"name": "a b"}}])", R"(, "tool_choice": "required")",
       R"(, "tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}])",
       R"(, "tools": [{"type": "function", "function": {"name": "a", "parameters": {"properties": 3}}}])",
       R"(, "tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "a"}}])",
       R"(, "tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": "some")",
       R"(, "tools": [{"type": "function", "function": {"name": "a"}}], "tool_choice": {"type": "function", "function": {"name": "b"}}})",
       R"(, "tools": [{"type": "function", "function": {"name": "a"}}], "grammar": "root ::= \"a\"")"})
    EXPECT_THROW((void)read_body(bad), Refusal) << bad;
  const auto expect_warning = [&](const std::function<GenerationRequest()>& request, const char* what) {
    EXPECT_EQ(request().warnings.size(), 1U) << what;
    model.is_strict = true;
    EXPECT_THROW((void)request(), Refusal) << what;
    model.is_strict = false;
  };
  for (const char* ignored : {R"(, "tools": [{"type": "code"}])",
                              R"(, "tools": [{"type": "function", "function": {"name": "a", "more": 1}}])"})
    expect_warning([&] { return read_body(ignored); }, ignored);

  // Calls and their results come back.
  const auto history = [&](const std::string& messages) {
    return read_chat(request_object("{\"messages\": " + messages + "}"), model);
  };
  const GenerationRequest back = history(
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
          "function": {"name": "get", "arguments": "{\"city\": \"Seoul\"}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "rain"}])");
  EXPECT_EQ(model.tokenizer.decode(back.prompts[0]),
            "[user]a[end][assistant]<call>{\"name\": \"get\", \"arguments\": {\"city\": "
            "\"Seoul\"}}</call>[end][tool]rain[end][assistant]");
  for (const char* bad :
       {R"([{"role": "assistant", "tool_calls": 3}])", R"([{"role": "assistant", "tool_calls": [3]}])"})
    EXPECT_THROW((void)history(bad), Refusal) << bad;
  const char* const broken =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "["}}]},
          {"role": "user", "content": "b"}])";
  expect_warning([&] { return history(broken); }, broken);
}

}  // namespace
}  // namespace lumen::model::serve
