// needs: none. Templates of chats: what Jinja prints, and what is refused.
#include <gtest/gtest.h>

#include <ctime>
#include <iostream>
#include <sstream>

#include "base/error.h"
#include "base/file/file.h"
#include "model/templates/chat_template.h"

namespace lumen::model::templates {
namespace {

using nlohmann::ordered_json;

std::tm frozen() {
  std::tm t{};
  t.tm_year = 2026 - 1900;
  t.tm_mon = 2;
  t.tm_mday = 5;
  t.tm_hour = 7;
  t.tm_min = 8;
  t.tm_sec = 9;
  t.tm_wday = 4;
  t.tm_yday = 63;
  return t;
}

std::string render(const std::string& text, const ordered_json& context = ordered_json::object()) {
  return ChatTemplate::parse(text, "t.jinja").render(context, frozen);
}

void check_cases(const std::filesystem::path& cases, const std::filesystem::path& templates, size_t* skipped) {
  std::istringstream lines(read_file(cases));
  size_t count = 0, equal = 0;
  for (std::string line; std::getline(lines, line);) {
    const ordered_json c = ordered_json::parse(line);
    const std::filesystem::path path = templates / (c["template"].get<std::string>() + ".jinja");
    if (!std::filesystem::exists(path)) {
      ++*skipped;
      continue;
    }
    ++count;
    const std::string name = c["template"].get<std::string>() + " " + c["case"].get<std::string>();
    ordered_json context = c["kwargs"];
    context["messages"] = c["messages"];
    try {
      const std::string got = ChatTemplate::parse(read_file(path), path.filename()).render(context, frozen);
      EXPECT_FALSE(c.contains("error")) << name << " should fail with " << c["error"];
      if (c.contains("rendered")) {
        EXPECT_EQ(got, c["rendered"].get<std::string>()) << name;
        equal += got == c["rendered"].get<std::string>();
      }
    } catch (const Error& e) {
      EXPECT_TRUE(c.contains("error")) << name << ": " << e.what();
      if (!c.contains("error")) continue;
      ++equal;
      // The words of faults are jinja2's own; those of the template must be the same.
      const std::string message = c["error"].get<std::string>();
      if (message.starts_with("TemplateError: ")) {
        EXPECT_NE(std::string(e.what()).find(message.substr(message.find(": ") + 2)), std::string::npos) << e.what();
      }
    }
  }
  std::cout << equal << " of " << count << " renderings are equal\n";
  EXPECT_GT(count, 0u);
}

TEST(Template, RealTemplatesPrintWhatTheReferencePrints) {
  const std::filesystem::path folder = std::filesystem::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures/chat";
  size_t skipped = 0;
  check_cases(folder / "cases.jsonl", folder, &skipped);
  EXPECT_EQ(skipped, 0u);
}

// Texts that may not be passed on are read where they are.
TEST(Template, TemplatesOfAFolder) {
  const char* folder = std::getenv("LUMEN_VOCAB_DIR");
  if (!folder) GTEST_SKIP() << "set LUMEN_VOCAB_DIR to a folder with chat/cases.jsonl, chat/templates and restricted";
  const std::filesystem::path at = folder;
  size_t skipped = 0, restricted = 0;
  check_cases(at / "chat/cases.jsonl", at / "chat/templates", &skipped);
  if (std::filesystem::exists(at / "restricted")) check_cases(at / "chat/cases.jsonl", at / "restricted", &restricted);
}

TEST(Template, ExpressionsAsInPython) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}", "3 -4 2 3.5 1024"},
      {"{{ 1.0 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }}", "1.0 1e+16 0.30000000000000004 1e-05"},
      {"{{ [1, 'a', none, true, 1.5, {'k': [()]}] }}", "[1, 'a', None, True, 1.5, {'k': [()]}]"},
      {"{{ \"it's\" }} {{ [\"it's\", 'a\\n'] }}", "it's [\"it's\", 'a\\n']"},
      {"{{ 'abcdef'[1:4] }} {{ 'abc'[::-1] }} {{ [1,2,3][-1] }} {{ '한국어'[1] }} {{ '한국어'[:-1] }}",
       "bcd cba 3 국 한국"},
      {"{{ 1 if false }}|{{ 1 if true else 2 }}|{{ x | default('d') }}|{{ '' or 'o' }}", "|1|d|o"},
      {"{{ 1 < 2 < 3 }} {{ 'a' in 'abc' }} {{ 3 not in [1, 2] }} {{ 'k' in {'k': 1} }}", "True True True True"},
      {"{{ 'a' ~ 1 ~ none }} {{ '%02d|%s|%5.2f|%-4s|' % (3, 'x', 1.5, 'ab') }}", "a1None 03|x| 1.50|ab  |"},
      {"{{ '  a b '.strip() }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}", "a b|['a', 'b', '', 'c']|['a', 'b']"},
      {"{{ 'aXbX'.replace('X', '-') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'a.b.c'.rsplit('.', 1) }}",
       "a-b- True ['a.b', 'c']"},
      {"{{ {'b': 1, 'a': [1, {'x': none}]} | tojson }}", "{\"b\": 1, \"a\": [1, {\"x\": null}]}"},
      {"{{ {'가': '<&>'} | tojson }} {{ '가' | tojson(ensure_ascii=true) }}", "{\"가\": \"<&>\"} \"\\uac00\""},
      {"{{ {'a': [1, 2], 'b': {}} | tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}"},
      {"{{ [3, 1, 2] | sort | join('-') }} {{ ['b', 'A'] | sort }} {{ {'b': 1, 'a': 2} | dictsort }}",
       "1-2-3 ['A', 'b'] [('a', 2), ('b', 1)]"},
      {"{{ [{'r': 'u'}, {'r': 'a'}] | selectattr('r', 'equalto', 'u') | list }}", "[{'r': 'u'}]"},
      {"{{ [1, 2, 3] | map('string') | join('+') }} {{ ['x'] | map('upper') | first }}", "1+2+3 X"},
      {"{{ [] is sequence }} {{ {} is mapping }} {{ x is defined }} {{ 1 is number }} {{ 4 is divisibleby 2 }}",
       "True True False True True"},
      {"{{ true is boolean }} {{ 1 is integer }} {{ true is integer }} {{ none is none }} {{ 'a' is string }}",
       "True True False True True"},
      {"{{ x }}|{{ [x] }}|{{ none.a is undefined }}", "|[Undefined]|True"},
      {"{{ 'a b' | title }} {{ 'aBc' | capitalize }} {{ 'x' | upper }} {{ [1, 2] | length }}", "A B Abc X 2"},
      {"{{ strftime_now('%Y-%m-%d %H:%M') }} {{ strftime_now('%d %b %Y') }}", "2026-03-05 07:08 05 Mar 2026"},
      {"{{ 'a\\nb' | indent(2) }}", "a\n  b"},
      {"{{ -2 | abs }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ '12' | int + 1 }}", "2 2.0 2.57 13"},
      // Filters that jinja2 computes when their items are needed.
      {"{{ none | map('upper') | list }} {{ none | selectattr('a') | list | length }} {{ 0 | reject | list }}",
       "[] 0 []"},
      {"{% set g = 5 | map('upper') %}{{ 'true' if g }} {{ 'true' if [] | select }}", "true true"},
      {"{% set g = [1, 2, 3] | select %}{{ g | first }} {{ 2 in g }} {{ g | list }} {{ g | list }}", "1 True [3] []"},
      {"{{ [1] | map('string') is iterable }} {{ [1] | map('string') is sequence }} {{ ([1, 2] | reverse) is sequence "
       "}}",
       "True False False"},
      {"{{ [1, 2] | reverse | list }} {{ ([1, 2] | reverse)[0] is defined }} {{ {'a': 1} | items | list }}",
       "[2, 1] False [('a', 1)]"},
      {"{{ 'one two three' | truncate(9, leeway=0) }} {{ '한국어를 배워요' | truncate(6, true, '..', 0) }}",
       "one... 한국어를.."},
      {"{{ 'one two' | truncate(4) }} {{ 'one two three' | truncate(9, end='', leeway=1) }}", "one two one two"},
      {"{{ 'a <b>bold</b>\n <!-- <i> --> x &lt;&amp;&#39;&#x41; &bad; <<i>y>' | striptags }}",
       "a bold x <&'A &bad; y>"},
      {"{{ 'abc' | random }} {{ [3, 1] | random }} {{ [] | random is defined }}", "a 3 False"},
      {"{{ '<b>' | safe + '<i>' }} {{ '<' | e ~ '<' }} {{ '<' | e | e }} {{ '<' | e | forceescape }}",
       "<b>&lt;i&gt; &lt;< &lt; &amp;lt;"},
      {"{{ not 1 == 2 }} {{ (1, 2) == (1, 2) }} {{ 1 == 1.0 }} {{ true == 1 }}", "True True True True"},
  };
  for (const auto& [text, want] : kCases) EXPECT_EQ(render(text), want) << text;
}

TEST(Template, StatementsAndScopes) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{% for i in [1, 2, 3] %}{{ loop.index }}{{ ',' if not loop.last }}{% endfor %}", "1,2,3"},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for i in [1,2,3,4] if i % 2 == 0 %}{{ i }}/{{ loop.length }} {% endfor %}", "2/2 4/2 "},
      {"{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"},
      {"{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% if i == 3 %}{% break %}{% endif %}{% "
       "endfor %}",
       "13"},
      {"{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
      {"{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ ns.x }}", "2"},
      {"{% if true %}{% set x = 5 %}{% endif %}{{ x }}", "5"},
      {"{% macro m(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(2, b=3) }}", "1B23"},
      {"{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}", "[x]"},
      {"{% set x %}a{{ 1 }}{% endset %}{{ x }}{% set y | upper %}b{% endset %}{{ y }}", "a1B"},
      {"{% filter upper %}ab{% endfilter %}", "AB"},
      {"{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c is defined }}",
       "211False"},
      {"{% for i in [1, 2] %}{% with %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endwith %}{% endfor %}", "1"},
      {"{% generation %}x{% endgeneration %}", "x"},
      {"{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
      {"{% for a in [1, 2] %}{% for b in [1] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "1112"},
      {"{% for i in [1,2,3] %}{{ loop.previtem }}<{{ loop.nextitem }}{% endfor %}", "<21<32<"},
      {"{% for n in [{'c': [{'c': []}]}] recursive %}({{ loop.depth }}{{ loop(n.c) }}){% endfor %}", "(1(2))"},
      {"{%- set a, b = 1, 2 -%} {{ a + b }}", "3"},
      {"{{ [1, 2, 3, 4] | batch(3) | list }}", "[[1, 2, 3], [4]]"},
      // White space: a newline behind a tag goes, spaces in front of a tag that stands alone go, signs take more.
      {"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
      {"a  {{- 1 -}}  b", "a1b"},
      {"a\n  {%+ if true %}b{% endif %}", "a\n  b"},
      {"x {# note #}\ny", "x y"},
      {"a\r\nb\r\n", "a\nb"},
  };
  for (const auto& [text, want] : kCases) EXPECT_EQ(render(text), want) << text;
}

TEST(Template, RefusesWithThePlace) {
  const auto refuse = [](const std::string& text, const std::string& part,
                         const ordered_json& context = ordered_json::object()) {
    try {
      const std::string got = render(text, context);
      ADD_FAILURE() << text << " printed " << got;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("t.jinja:"), std::string::npos) << e.what();
    }
  };
  refuse("a\n  {% include 'x' %}", "t.jinja:2:6");
  refuse("{% include '/etc/passwd' %}", "unknown statement 'include'");
  refuse("{% extends 'x' %}", "unknown statement");
  refuse("{% import 'os' as os %}", "unknown statement");
  refuse("{{ x.y }}", "'x' is undefined");
  refuse("{{ x + 1 }}", "'x' is undefined");
  refuse("{{ x() }}", "'x' is undefined");
  refuse("{{ 'a' + 1 }}", "concatenate");
  refuse("{{ 1 | nofilter }}", "no filter named 'nofilter'");
  refuse("{{ 1 is notest }}", "no test named");
  refuse("{{ raise_exception('no way') }}", "no way");
  refuse("{{ [1].append(2) }}", "unsafe");
  refuse("{{ {}.update({}) }}", "unsafe");
  refuse("{{ ''.__class__.__mro__ }}", "__class__");
  refuse("{% for i in [1] %}", "not closed");
  refuse("{{ 'a", "unterminated");
  refuse("{{ 1", "unterminated");
  refuse("{% if %}", "expected an expression");
  refuse("{% break %}", "outside of a loop");
  refuse("{{ 9223372036854775807 + 1 }}", "too large");
  refuse("{{ 1 // 0 }}", "division by zero");
  refuse("{{ range(1000000) }}", "Range too big");
  refuse("{{ 5 | map('upper') | list }}", "'int' object is not iterable");
  refuse("{{ [1] | select | length }}", "object of type 'generator' has no len()");
  refuse("{{ [1] | select | tojson }}", "Object of type generator is not JSON serializable");
  refuse("{{ [1] | select | last }}", "not reversible");
  refuse("{{ none | list }}", "'NoneType' object is not iterable");
  refuse("{% with a = 1 %}", "not closed");
  refuse("{{ 'abc' | truncate(2) }}", "expected length >= 3");
}

// Marks around parts of the values do not change what string operations of a template see, and the parts that are
// printed have them. In the values and results here ` encloses text that looks like a control token, and { } an answer.
TEST(Template, MarksAreNotSeen) {
  const AnswerMarks marks{"\ufdd1", "\ufdd2", "\ufdd0", false};
  const auto replaced = [&](std::string text, bool back) {
    for (const auto& [sign, mark] :
         {std::pair<std::string, std::string>{"{", marks.begin}, {"}", marks.end}, {"`", marks.plain}}) {
      const auto& [from, to] = back ? std::pair(mark, sign) : std::pair(sign, mark);
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    }
    return text;
  };
  const auto marked = [&](const std::string& text, const std::string& c) {
    return replaced(ChatTemplate::parse(text, "t.jinja").render({{"c", replaced(c, false)}}, frozen, marks), true);
  };
  const std::tuple<const char*, const char*, const char*> kCases[] = {
      {"{{ '<think>' in c }} {{ 'x<think>y' in c }} {{ c == 'x<think>y' }} {{ c | length }}", "x`<think>`y",
       "True True True 9"},
      {"{{ c.startswith('<think>a') }} {{ c.endswith('</think>') }} {{ c.find('a') }}", "{`<think>`a`</think>`}",
       "True True 7"},
      {"{{ c.split('</think>') | join('|') }}", "{`<think>`a`</think>`b `<end>`}", "{`<think>`a|b `<end>`}"},
      {"{{ c.split('</think>')[-1].lstrip('\n') }}", "`<think>`a`</think>`\n\nb`<end>`", "b`<end>`"},
      {"{{ c.split('</think>')[0].split('<think>')[-1].strip() }}", "`<think>`\n a\n`</think>`b", "a"},
      {"{{ c.strip() }}|{{ c.strip().strip('<>') }}|{{ c | trim }}", " `<end>`\n", "`<end>`|`end`|`<end>`"},
      {"{{ c.partition('<end>')[1:] | join('|') }} {{ c.rpartition('|') | join(',') }}", "a`<end>`b",
       "`<end>`|b ,,a`<end>`b"},
      {"{{ c.replace('<end>', '') }} {{ c.replace('a', 'b') }} {{ c.replace('<e', '(') }}", "a`<end>`a",
       "aa b`<end>`b a(`nd>`a"},
      {"{{ c[1:] }} {{ c[:3] }} {{ c[2] }} {{ c[::-1] }}", "a`<e>`b", "`<e>`b a`<e` `e` b`>``e``<`a"},
      {"{{ c.removeprefix('ab') }} {{ c.removesuffix('<e>') }} {{ c.splitlines() | join('|') }}", "abab\n`<e>`",
       "ab\n`<e>` abab\n abab|`<e>`"},
      {"{{ c | upper }} {{ c.center(7) }}| {{ c | title }}", "a`<e>`b", "A`<E>`B  a`<e>`b | A`<E>`B"},
      {"{{ c | truncate(11, leeway=0) }} {{ c | striptags }} {{ c | wordcount }}", "a `<end>` b c d",
       "a `<end>`... `a b c d` 5"},
      {"{{ c | tojson }} {{ [c] }} {{ c | tojson(ensure_ascii=true) }}", "a`<e>`", "\"a`<e>`\" ['a`<e>`'] \"a<e>\""},
      {"{{ {'a<e>': 1}[c] }} {{ c in ['a<e>'] }} {{ ['b', c] | sort | first }} {{ c | int }}", "a`<e>`",
       "1 True a`<e>` 0"},
      {"{{ '' ~ c ~ c }}{% for x in c %}{{ x }}{% endfor %} {{ '%s!' % c }} {{ c.split('<e>')[1] == '' }}", "{`<e>`}",
       "{`<e>`}{`<e>`}{`<``e``>`} {`<e>`}! True"},
  };
  for (const auto& [text, c, want] : kCases) EXPECT_EQ(marked(text, c), want) << text;
}

TEST(Template, LimitsHoldWhateverTheTemplateDoes) {
  const char* kBombs[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{{ 'a' * 9999999999 }}",
      "{{ 'a' * 9999999 * 9999999 }}",
      "{{ '%99999999s' % 'a' }}",
      "{{ 'a'.center(99999999999) }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
      "{% for i in range(99999) %}{{ range(99999) | join }}{% endfor %}",
      "{{ ('a' * 1000000).replace('', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa') }}",
      "{{ 2 ** 999999999999 }}",
  };
  for (const char* bomb : kBombs) EXPECT_THROW(render(bomb), Error) << bomb;
  EXPECT_THROW(render("{{ " + std::string(100000, '(') + " }}"), Error);
  EXPECT_THROW(render("{{ " + std::string(100000, '-') + "1 }}"), Error);
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "{% if true %}";
  EXPECT_THROW(render(deep), Error);
  std::string elifs = "{% if false %}";
  for (int i = 0; i < 10000; ++i) elifs += "{% elif false %}";
  EXPECT_THROW(render(elifs + "{% endif %}"), Error);
}

double seconds_of_thread() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

// What a request may cost is bounded in steps and in time of the processor, whichever is reached first, also within one
// operation; the message names the place.
TEST(Template, TimeIsBounded) {
  const std::string twice =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  const std::string long_text = "{% set t = 'a' * 8000000 %}{% set u = 'a' * 2000000 ~ 'b' %}";
  const std::string slow[] = {
      "{% for a in range(99999) %}{% for b in range(999) %}{% set x = a * b %}{% endfor %}{% endfor %}",
      "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor "
      "%}",
      twice + "{{ ns.x == ns.y }}",
      twice + "{{ ns.x }}",
      twice + "{{ ns.x | tojson }}",
      twice + "{{ ns.x < ns.y }}",
      long_text + "{% for i in range(99999) %}{{ t | length }}{% endfor %}",
      long_text + "{% for i in range(99999) %}{{ u in t }}{{ t.rfind(u) }}{{ t.count(u) }}{% endfor %}",
      long_text + "{% for i in range(99999) %}{{ t.startswith(u) }}{{ t.isupper() }}{% endfor %}",
      "{{ ('a,' * 4000000).split(',') | length }}"};
  for (const std::string& text : slow) {
    const double begin = seconds_of_thread();
    try {
      ChatTemplate::parse(text, "t.jinja")
          .render(ordered_json::object(), frozen, {}, {.steps = UINT64_MAX / 2, .seconds = 0.2});
      ADD_FAILURE() << "rendered: " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("t.jinja:1:"), std::string::npos) << e.what();
    }
    EXPECT_LT(seconds_of_thread() - begin, 5) << text;
  }
  // Time alone, and steps alone.
  try {
    ChatTemplate::parse(slow[0], "t.jinja")
        .render(ordered_json::object(), frozen, {}, {.steps = UINT64_MAX / 2, .seconds = 0.05});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("more than 0.05 s"), std::string::npos) << e.what();
  }
  try {
    ChatTemplate::parse(slow[0], "t.jinja")
        .render(ordered_json::object(), frozen, {}, {.steps = 100'000, .seconds = 1000});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("too many steps"), std::string::npos) << e.what();
  }
}

// Several renderings together take no more than their budget; one that is over says what kind of mistake it is.
TEST(Template, ABudgetIsSharedByRenderings) {
  const ChatTemplate chat = ChatTemplate::parse("{% for i in range(300) %}{{ i }}{% endfor %}", "t.jinja");
  const TemplateLimits one{.steps = 100'000, .seconds = 1000};
  const auto renderings = [&] {
    int count = 0;
    try {
      for (; count < 50; ++count) (void)chat.render(ordered_json::object(), frozen, {}, one);
    } catch (const TemplateOverrun&) {
    }
    return count;
  };
  EXPECT_EQ(renderings(), 50);
  int within = 0;
  {
    const TemplateBudget budget({.steps = 500'000, .seconds = 1000});
    within = renderings();
    EXPECT_GT(within, 1);
    EXPECT_LT(within, 50);
    EXPECT_EQ(renderings(), 0);
    {
      const TemplateBudget inner({.steps = 500'000, .seconds = 1000});
      EXPECT_EQ(renderings(), within);
    }
    EXPECT_EQ(renderings(), 0);
  }
  EXPECT_EQ(renderings(), 50);
  const TemplateBudget none({.steps = UINT64_MAX / 2, .seconds = 0});
  EXPECT_EQ(renderings(), 0);
  EXPECT_THROW((void)ChatTemplate::parse("{{ nothing.at.all }}").render(ordered_json::object(), frozen), Error);
}

// Values within values are let go of in room that does not grow with their depth.
TEST(Template, DeepValuesEnd) {
  for (const char* inner : {"[ns.x]", "{'a': ns.x}", "{'a': ns.x}.get", "joiner(ns.x)", "[1, [ns.x, 2]]"}) {
    const std::string text = std::string("{% set ns = namespace(x=1) %}{% for i in range(60000) %}{% set ns.x = ") +
                             inner + " %}{% endfor %}{% set ns.x = 1 %}end";
    EXPECT_EQ(render(text), "end") << inner;
  }
}

// A long chat costs a small part of what a template may do.
TEST(Template, LongChatsRender) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 2000; ++i)
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(2000, 'x')}});
  const auto out = render(
      "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{% if 'x' in m.content and not "
      "m.content.startswith('y') %}{{ m.content.split('</think>')[-1] | length }}{% endif %}{% endfor %}",
      {{"messages", messages}});
  EXPECT_GT(out.size(), size_t{4'000'000});
}

}  // namespace
}  // namespace lumen::model::templates
