// Models of the parser; see parse.h.
#include <algorithm>

#include "base/messages/spelling.h"
#include "lang/parse.h"

namespace lumen::lang {

ModelDecl Parser::model() {
  return declared("model", {"config", "size", "param", "layers", "fn"});
}

// A model of numbers and functions only, marked by the attribute with the keyword's name.
ModelDecl Parser::optimizer() {
  return declared("optimizer", {"config", "fn"});
}

ModelDecl Parser::declared(const std::string& kind, const std::vector<std::string>& members) {
  const std::string one = (kind == "optimizer" ? "an " : "a ") + kind;
  const uint32_t begin = next().begin;
  ModelDecl m;
  m.name = expect_name(fmt::format("the {}'s name", kind));
  expect("(", fmt::format("after the {}'s name", kind), fmt::format("{0} is written '{1} NAME(cfg) {{ }}'", one, kind));
  if (!at_word("cfg"))
    fail(peek(), fmt::format("expected 'cfg', found {}", describe(peek())),
         fmt::format("{}'s one parameter is called cfg", one));
  next();
  expect(")", "after 'cfg'");
  if (kind != "model") {
    Attribute mark;
    mark.name = kind;
    mark.place = place_from(begin);
    m.attributes.push_back(std::move(mark));
  }
  if (accept(":"))
    for (Attribute& a : attributes()) m.attributes.push_back(std::move(a));
  expect("{", fmt::format("to open the body of {} '{}'", kind, m.name));
  while (at_kind(TokenKind::newline) || at_symbol(";")) next();
  while (!at_symbol("}")) {
    member_of(m, one, members);
    end_of_member("the member");
  }
  next();
  m.place = place_from(begin);
  return m;
}

void Parser::member_of(ModelDecl& m, const std::string& one, const std::vector<std::string>& members) {
  const Token& t = peek();
  const auto is = [&](const char* word) {
    return at_word(word) && std::find(members.begin(), members.end(), word) != members.end();
  };
  if (is("fn")) {
    m.functions.push_back(function());
  } else if (is("config")) {
    config(m);
  } else if (is("size")) {
    m.sizes.push_back(size());
  } else if (is("param")) {
    m.params.push_back(model_param());
  } else if (is("layers")) {
    layers(m);
  } else {
    std::string otherwise = one + " holds ";
    for (size_t i = 0; i < members.size(); ++i)
      otherwise += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == members.size() ? " and " : ", ", members[i]);
    fail(t, fmt::format("expected a member of the {}, found {}", one.substr(one.find(' ') + 1), describe(t)),
         t.kind == TokenKind::name ? did_you_mean(t.text, members, otherwise) : otherwise);
  }
}

void Parser::config(ModelDecl& m) {
  next();
  expect("{", "after 'config'");
  while (at_kind(TokenKind::newline) || at_symbol(";")) next();
  while (!at_symbol("}")) {
    m.config.push_back(config_key());
    end_of_member("the config key");
  }
  next();
}

ConfigKey Parser::config_key() {
  const uint32_t begin = peek().begin;
  ConfigKey k;
  k.name = expect_name("a config key");
  expect(":", fmt::format("after the config key '{}'", k.name), "a key is written 'name : i32 = default'");
  k.type = type();
  if (accept("=")) {
    skip_newlines();
    k.default_value = expression();
  }
  k.attributes = trailing_attributes();
  k.place = place_from(begin);
  return k;
}

// The name may contain '-', '.' and digits: adjacent tokens are joined to one word. It may also be a string.
SizeDecl Parser::size() {
  const uint32_t begin = next().begin;
  SizeDecl s;
  if (at_kind(TokenKind::string)) {
    s.name = next().text;
  } else {
    const Token& first = peek();
    uint32_t end = first.begin;
    const auto part = [&] {
      const Token& t = peek();
      return t.begin == end &&
             (t.kind == TokenKind::name || t.kind == TokenKind::number || at_symbol("-") || at_symbol("."));
    };
    while (part()) end = next().end;
    s.name = source_->text.substr(first.begin, end - first.begin);
  }
  if (s.name.empty()) fail(peek(), fmt::format("expected the size's name, found {}", describe(peek())));
  expect("{", fmt::format("to open the body of size '{}'", s.name));
  while (at_kind(TokenKind::newline) || at_symbol(";") || at_symbol(",")) next();
  while (!at_symbol("}")) {
    std::string key = expect_name("a config key");
    expect("=", fmt::format("after the config key '{}'", key));
    skip_newlines();
    s.values.emplace_back(std::move(key), expression());
    // Short sizes fit on one line, separated by commas.
    if (accept(",")) {
      skip_newlines();
    } else {
      end_of_member("the size's value");
    }
  }
  next();
  s.place = place_from(begin);
  return s;
}

ModelParam Parser::model_param() {
  const uint32_t begin = next().begin;
  ModelParam p;
  p.name = expect_name("the parameter's name");
  expect(":", fmt::format("after the parameter's name '{}'", p.name),
         "a parameter is written 'param name : f32[shape]'");
  p.type = type();
  p.attributes = trailing_attributes();
  p.place = place_from(begin);
  return p;
}

void Parser::layers(ModelDecl& m) {
  const Token& word = next();
  if (m.layer_count) fail(word, "a model has one group of layers", "put all parameters of a layer into it");
  m.layer_count = expression();
  expect("{", "after the number of layers");
  while (at_kind(TokenKind::newline) || at_symbol(";")) next();
  while (!at_symbol("}")) {
    if (!at_word("param"))
      fail(peek(), fmt::format("expected 'param', found {}", describe(peek())),
           "layers have only parameters; functions are written outside of them");
    m.layer_params.push_back(model_param());
    end_of_member("the parameter");
  }
  next();
}

}  // namespace lumen::lang
