#include "model/arch/family/gguf_rules.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/arch/family/config_file.h"
#include "model/arch/family/config_rules.h"
#include "model/arch/family/pattern.h"

namespace lumen::model::arch {
namespace {

std::string filled(std::string name, const std::string& architecture) {
  if (const size_t at = name.find("{a}"); at != std::string::npos) name.replace(at, 3, architecture);
  return name;
}

// Keys, then for refused ones `unless` and values, then `because` and a reason.
void take_rule(const lang::Attribute& a, const std::string& architecture, std::vector<GgufRules::Rule>& rules) {
  const bool refused = a.name == "gguf_refused";
  std::vector<std::string> keys;
  GgufRules::Rule rule;
  rule.refused = refused;
  bool values = false;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const lang::Expr& value = *a.values[i];
    const bool is_word = value.kind == lang::ExprKind::name;
    if (is_word && value.text == "because" && i + 2 == a.values.size() &&
        a.values[i + 1]->kind == lang::ExprKind::string) {
      rule.because = a.values[i + 1]->text;
      break;
    }
    if (is_word && value.text == "unless" && refused && !values) {
      values = true;
    } else if (values) {
      rule.unless.push_back(a.values[i]);
    } else if (value.kind == lang::ExprKind::string) {
      keys.push_back(filled(value.text, architecture));
    } else {
      throw error_at(value.place,
                     fmt::format("attribute '{}' takes keys in quotes, then 'because' and a reason", a.name));
    }
  }
  if (keys.empty() || rule.because.empty() || (values && rule.unless.empty()))
    throw error_at(
        a.place, fmt::format("attribute '{}' needs keys and a reason", a.name),
        fmt::format("e.g. {} \"{{a}}.clamp\"{} because \"nothing is clamped\"", a.name, refused ? " unless 0" : ""));
  for (std::string& key : keys) {
    rule.key = std::move(key);
    rules.push_back(rule);
  }
}

std::string text_of(const file::GgufValue& value) {
  constexpr size_t kShown = 120;
  std::string text = file::gguf_print(value);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "..";
}

template <typename T>
constexpr bool kIsText = std::is_same_v<T, std::string>;

// Whether all elements of a value (or a single value) satisfy a condition on numbers or strings.
template <typename OfNumber, typename OfText>
bool all_of_value(const file::GgufValue& value, const OfNumber& number, const OfText& text) {
  const auto one = [&](const auto& x) {
    if constexpr (kIsText<std::decay_t<decltype(x)>>)
      return text(x);
    else
      return number(double(x));
  };
  return std::visit(
      [&](const auto& x) -> bool {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, file::GgufArray>) {
          return std::visit(
              [&](const auto& list) {
                using E = typename std::decay_t<decltype(list)>::value_type;
                return std::all_of(list.begin(), list.end(), [&](const auto& e) { return one(E(e)); });
              },
              x);
        } else {
          return one(x);
        }
      },
      value);
}

bool says_nothing(const file::GgufValue& value) {
  return all_of_value(value, [](double x) { return x == 0; }, [](const std::string& x) { return x.empty(); });
}

}  // namespace

GgufRules::GgufRules(const Family& family) : family_(family), decl_(family.declaration()) {
  const std::string& architecture = family.gguf_architecture();
  for (const lang::Attribute& a : decl_.attributes) {
    if (a.name == "gguf_unread" || a.name == "gguf_refused") take_rule(a, architecture, rules_);
    if (a.name != "gguf_required") continue;
    for (const lang::ExprPtr& value : a.values) {
      if (value->kind != lang::ExprKind::string)
        throw error_at(value->place, "attribute 'gguf_required' takes keys in quotes");
      required_.push_back(filled(value->text, architecture));
    }
  }
  const auto text = [](const lang::Attribute& a, size_t n) {
    if (a.values[n]->kind != lang::ExprKind::string)
      throw error_at(a.place, fmt::format("attribute '{}' takes names in quotes", a.name));
    return a.values[n]->text;
  };
  const auto number = [](const lang::Attribute& a, size_t n) {
    if (a.values[n]->kind != lang::ExprKind::number)
      throw error_at(a.place, fmt::format("attribute '{}' takes numbers", a.name));
    return a.values[n]->number;
  };
  for (const lang::ConfigKey& key : decl_.config) {
    Names& names = names_[key.name];
    for (const lang::Attribute& a : key.attributes)
      for (size_t n = 0; n < a.values.size(); ++n) {
        if (a.name == "gguf_also") names.also.push_back(filled(text(a, n), architecture));
        if (a.name == "gguf_blank") names.blank = number(a, n);
        if (a.name == "gguf_values") names.values.push_back(number(a, n));
      }
  }
}

const GgufRules::Names& GgufRules::names(const std::string& key) const {
  return names_.at(key);
}

bool GgufRules::reads(const std::string& key) const {
  if (key == family_.gguf_condition()) return true;
  return std::any_of(family_.keys().begin(), family_.keys().end(), [&](const ConfigKey& k) {
    const auto among = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), key) != list.end();
    };
    return among(k.gguf) || among(names(k.name).also) || k.gguf_length == key;
  });
}

const GgufRules::Rule* GgufRules::find(const std::string& key) const {
  const auto found =
      std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) { return fits_pattern(rule.key, key); });
  return found == rules_.end() ? nullptr : &*found;
}

void GgufRules::require(const file::GgufMetadata& metadata) const {
  for (const std::string& name : required_) {
    for (const ConfigKey& key : family_.keys()) {
      if (std::find(key.gguf.begin(), key.gguf.end(), name) == key.gguf.end()) continue;
      const auto has = [&](const std::vector<std::string>& names) {
        return std::any_of(names.begin(), names.end(), [&](const auto& n) { return metadata.has(n); });
      };
      if (key.gguf_else || has(key.gguf) || has(names(key.name).also) || has({own_gguf_key(key)}) ||
          (!key.gguf_length.empty() && metadata.has(key.gguf_length)))
        continue;
      throw Error(Exit::user, fmt::format("{}: the key '{}' is missing", metadata.source, name),
                  fmt::format("files of the architecture '{}' must have it: convert the model again",
                              family_.gguf_architecture()));
    }
  }
}

bool GgufRules::changes_nothing(const Rule& rule, const file::GgufValue& value, const graph::Config& config) const {
  if (rule.unless.empty()) return says_nothing(value);
  std::vector<double> numbers;
  std::vector<std::string> texts;
  for (const lang::ExprPtr& e : rule.unless) {
    if (e->kind == lang::ExprKind::string)
      texts.push_back(e->text);
    else
      numbers.push_back(graph::config_number(decl_, *e, config));
  }
  constexpr double kEqual = 1e-6;  // files hold f32
  return all_of_value(
      value,
      [&](double x) {
        return std::any_of(numbers.begin(), numbers.end(),
                           [&](double n) { return std::abs(x - n) <= kEqual * std::max(std::abs(x), std::abs(n)); });
      },
      [&](const std::string& x) { return std::find(texts.begin(), texts.end(), x) != texts.end(); });
}

std::vector<std::string> GgufRules::check(const file::GgufMetadata& metadata, const graph::Config& config) const {
  std::vector<std::string> unknown;
  if (rules_.empty()) return unknown;
  const std::string own = family_.gguf_architecture() + ".";
  for (const auto& [key, value] : metadata.entries()) {
    if (reads(key)) continue;
    const Rule* rule = find(key);
    if (!rule) {
      if ((key.starts_with(own) || key.starts_with("tokenizer.")) && !says_nothing(value)) unknown.push_back(key);
      continue;
    }
    if (!rule->refused || changes_nothing(*rule, value, config)) continue;
    throw Error(Exit::user,
                fmt::format("{}: '{}' is {}, which the family '{}' does not describe", metadata.source, key,
                            text_of(value), family_.name()),
                rule->because);
  }
  return unknown;
}

void require_model_file(const file::GgufMetadata& metadata, size_t tensors) {
  struct Kind {
    const char *type, *is, *instead;
  };
  constexpr Kind kKinds[] = {
      {"adapter", "an adapter, not a model", "give the base model here, and this file with --lora"},
      {"imatrix", "an importance matrix, not a model", "`lumen quantize MODEL OUT FORMAT --imatrix FILE` reads it"},
      {"mmproj", "the vision part of a multimodal model",
       "give the file of the language model here, and this file with --mmproj"},
      {"vocab", "a vocabulary without weights", "give a file with weights; `lumen tokenize` reads this one"}};
  const std::string type = metadata.text("general.type", "model");
  if (type != "model") {
    const auto* kind =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return type == k.type; });
    throw Error(Exit::user,
                fmt::format("{} is {} (general.type is '{}')", metadata.source,
                            kind == std::end(kKinds) ? "not a model" : kind->is, type),
                kind == std::end(kKinds) ? "files of models have general.type 'model', or none" : kind->instead);
  }
  if (tensors == 0)
    throw Error(Exit::user, fmt::format("{} holds no tensors", metadata.source),
                "only `lumen tokenize` reads a vocabulary without weights");
}

}  // namespace lumen::model::arch
