// Texts of words: templates, grammars, tables, documents. What counts as a word is the family's own: words of its
// language are put in, taken away, doubled, exchanged and put around what stands there.
#pragma once

#include <cctype>

#include "tests/fuzz/mutators/mutator.h"

namespace mutators {

// Where words, runs of space and single signs begin, and the end.
inline std::vector<size_t> word_starts(const std::string& text) {
  const auto kind = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c >= 0x80 ? 1 : std::isspace(c) ? 2 : 0;
  };
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); ++i)
    if (i == 0 || kind(text[i]) == 0 || kind(text[i]) != kind(text[i - 1])) out.push_back(i);
  out.push_back(text.size());
  return out;
}

template <size_t n>
void change_words(std::string& text, Chance& chance, const std::string_view (&words)[n]) {
  const std::vector<size_t> starts = word_starts(text);
  const size_t count = starts.size() - 1, first = below(chance, count + 1);
  const size_t length = std::min(count - std::min(first, count), 1 + below(chance, chance() % 4 == 0 ? 40 : 4));
  const size_t begin = starts[std::min(first, count)], end = starts[std::min(first, count) + length];
  const std::string part = text.substr(begin, end - begin);
  switch (chance() % 7) {
    case 0:
      text.insert(begin, any(words, chance));
      break;
    case 1:
      text.replace(begin, end - begin, any(words, chance));
      break;
    case 2:
      text.erase(begin, end - begin);
      break;
    case 3: {
      std::string many;
      for (size_t i = 1 + below(chance, chance() % 16 == 0 ? 200 : 3); i > 0 && many.size() < 4096; --i) many += part;
      text.insert(begin, many);
      break;
    }
    case 4:
      text.erase(begin, end - begin);
      text.insert(starts[below(chance, first + 1)], part);
      break;
    case 5:
      text.insert(end, any(words, chance));
      text.insert(begin, any(words, chance));
      break;
    default: {  // another one of the same text
      const size_t other = below(chance, count);
      if (count > 0) text.replace(begin, end - begin, text.substr(starts[other], starts[other + 1] - starts[other]));
    }
  }
}

inline void change_template(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {"{{ ",
                                                " }}",
                                                "{% ",
                                                " %}",
                                                "{%- ",
                                                " -%}",
                                                "{# ",
                                                " #}",
                                                "{% for m in messages %}",
                                                "{% endfor %}",
                                                "{% if m.role == 'user' %}",
                                                "{% elif tools %}",
                                                "{% else %}",
                                                "{% endif %}",
                                                "{% set x = [1, 'a', none] %}",
                                                "{% set ns = namespace(a=0) %}",
                                                "{% set ns.a = ns.a + 1 %}",
                                                "{% set ns.a = [ns.a, ns.a] %}",
                                                "{% endset %}",
                                                "{% macro f(a, b=1) %}",
                                                "{% endmacro %}",
                                                "{{ f(m) }}",
                                                "{% call f(1) %}",
                                                "{% endcall %}",
                                                "{{ caller() }}",
                                                "{% filter upper %}",
                                                "{% endfilter %}",
                                                "{% generation %}",
                                                "{% endgeneration %}",
                                                "{% break %}",
                                                "{% continue %}",
                                                "{% for i in range(1000) recursive %}",
                                                "loop(x)",
                                                "loop.index",
                                                "loop.previtem",
                                                "loop.cycle(1)",
                                                "messages[0].content",
                                                "m['tool_calls'][0].function",
                                                "['a', 'b']",
                                                "{'a': 1, 'b': [2]}",
                                                " | tojson(indent=2)",
                                                " | join(', ')",
                                                " | map(attribute='role')",
                                                " | selectattr('role', 'equalto', 'user')",
                                                " | groupby('role')",
                                                " | sort(attribute='role')",
                                                " | unique",
                                                " | batch(3)",
                                                " | slice(2)",
                                                " | replace('a', 'bb')",
                                                " | length",
                                                " | default('x')",
                                                " | list",
                                                " | reverse",
                                                " | trim",
                                                " | indent(4)",
                                                " | int",
                                                " | float",
                                                " | round(2)",
                                                " | items",
                                                " | dictsort",
                                                " | first",
                                                " | last",
                                                " | sum",
                                                " | max",
                                                " | string",
                                                " | urlencode",
                                                " | wordcount",
                                                " | format(1)",
                                                ".split(',')",
                                                ".rsplit('a', 1)",
                                                ".strip()",
                                                ".startswith('a')",
                                                ".replace('', 'x')",
                                                ".format(1, a=2)",
                                                ".items()",
                                                ".get('a')",
                                                ".join(['a'])",
                                                ".count('a')",
                                                ".rfind('a')",
                                                "[::-1]",
                                                "[1:]",
                                                " is defined",
                                                " is mapping",
                                                " is string",
                                                " not in ",
                                                " in ",
                                                " and ",
                                                " or ",
                                                " not ",
                                                " if x else y",
                                                " ~ ",
                                                " ** ",
                                                " // ",
                                                " % ",
                                                " * 1000",
                                                " + ",
                                                " - ",
                                                " == ",
                                                " < ",
                                                "(",
                                                ")",
                                                "'%s %05.2f' % ('a', 2)",
                                                "strftime_now('%Y')",
                                                "raise_exception('x')",
                                                "cycler(1, 2)",
                                                "joiner(',')",
                                                "dict(a=1)",
                                                "none",
                                                "true",
                                                "1e300",
                                                "9223372036854775807",
                                                "add_generation_prompt",
                                                "bos_token",
                                                "tools"};
  change_words(text, chance, kWords);
}

inline void change_grammar(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {
      "root ::= ", "\na ::= ",       " | ",   "(",       ")", "*",   "+",      "?",  "{2,3}", "{0,1000}", "{,4}",
      "[a-z]",     "[^\\x00-\\x1f]", "\"a\"", "\"\\n\"", ".", " a ", " root ", "\n", "#c\n",  "\\u0041",  "\\U0001F600",
      "()",        "(a | )*",        "\"\""};
  change_words(text, chance, kWords);
}

inline void change_table(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {
      ",",          ";",       "\t",       "|",   "\"",           "\"\"", "\n",    "\r\n", "\r", "prompt",
      "completion", "sep=;\n", "\"a\nb\"", "a,b", "\xef\xbb\xbf", " ",    "label", "text", "{",  "["};
  change_words(text, chance, kWords);
}

inline void change_document(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {"---\n",
                                                "\n---\n",
                                                "base: x\n",
                                                "key: \"v\"\n",
                                                "# Q\n",
                                                "\n### A\n",
                                                "\n## Question:\n",
                                                "\n# Answer\n",
                                                "\n# Follow-up\n",
                                                "\n# System\n",
                                                "\n# Other\n",
                                                "```\n",
                                                "\n~~~\n",
                                                "::instruction::\n",
                                                "\n::preference::\n",
                                                "\n::prose::\n",
                                                "\n::image a::\n",
                                                "\n### Prompt\n",
                                                "\n### Chosen\n",
                                                "\n### Rejected\n",
                                                "\r\n",
                                                "\n",
                                                "...",
                                                ": ",
                                                "'",
                                                "#",
                                                "####### "};
  change_words(text, chance, kWords);
}

inline void change_settings(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {"[a]\n",
                                                "\n[[a]]\n",
                                                "[a.b]\n",
                                                " = ",
                                                "\na = 1\n",
                                                "\"\"\"",
                                                "'''",
                                                "\"",
                                                "'",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                ",",
                                                "\n",
                                                "#c\n",
                                                "true",
                                                "false",
                                                "0",
                                                "-1",
                                                "1e308",
                                                "-nan",
                                                "inf",
                                                "0x7fffffffffffffff",
                                                "9223372036854775807",
                                                "1979-05-27T07:32:00Z",
                                                "[1, 2.5]",
                                                "['p', 'q']",
                                                "{ a = 1 }",
                                                "\"\\u00e9\"",
                                                "1_000",
                                                "00",
                                                ".",
                                                "steps",
                                                "model.",
                                                "path",
                                                "name",
                                                "auto",
                                                "\"auto\"",
                                                "[[1]]",
                                                "{{ row['a'] }}",
                                                "\"0.5\"",
                                                "0.5"};
  change_words(text, chance, kWords);
}

inline void change_code(std::string& text, Chance& chance) {
  static constexpr std::string_view kWords[] = {"{",      "}",
                                                "(",      ")",
                                                "[",      "]",
                                                ",",      ";",
                                                ":",      "=",
                                                "->",     "+",
                                                "*",      "/",
                                                "<",      ">",
                                                "let ",   "fn ",
                                                "if ",    "else ",
                                                "for ",   "in ",
                                                "0",      "1",
                                                "-1",     "9223372036854775807",
                                                "1e300",  "f32",
                                                "u8",     "i32",
                                                "bits",   "format ",
                                                "model ", "\"a\"",
                                                "\n",     "//c\n",
                                                "."};
  change_words(text, chance, kWords);
}

}  // namespace mutators
