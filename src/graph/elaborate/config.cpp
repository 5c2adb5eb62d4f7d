// The numbers of a model: defaults, sizes and given values are merged into one Config. Proved by
// tests/graph/elaborate/elaborate_test.cpp.
#include <algorithm>
#include <cmath>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"

namespace lumen::graph {

using lang::ConfigKey;
using lang::Expr;
using lang::ExprKind;
using lang::ModelDecl;

namespace {

const Scope& no_scope() {
  static const Scope scope;
  return scope;
}

std::vector<std::string> keys_of(const ModelDecl& m) {
  std::vector<std::string> out;
  for (const ConfigKey& k : m.config) out.push_back(k.name);
  return out;
}

const ConfigKey* find_key(const ModelDecl& m, const std::string& name) {
  for (const ConfigKey& k : m.config)
    if (k.name == name) return &k;
  return nullptr;
}

// The key of a name in a Config: its own, or that of "key.3" if the key has an axis. Null when there is none.
const ConfigKey* key_of_entry(const ModelDecl& m, const std::string& name) {
  if (const ConfigKey* k = find_key(m, name)) return k;
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size() || name.size() - dot > 10 ||
      !std::all_of(name.begin() + dot + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return nullptr;
  const ConfigKey* k = find_key(m, name.substr(0, dot));
  return k && k->type.has_dims ? k : nullptr;
}

// Resolves keys in the order in which their defaults depend on each other.
class Resolver {
 public:
  Resolver(const ModelDecl& model, const lang::SizeDecl* size, const Config& values) : model_(model), values_(values) {
    if (!size) return;
    for (const auto& [name, value] : size->values) {
      if (!find_key(model, name))
        throw error_at(value->place, fmt::format("model '{}' has no config key '{}'", model.name, name),
                       did_you_mean(name, keys_of(model)));
      if (!size_.emplace(name, value.get()).second)
        throw error_at(value->place, fmt::format("'{}' is set twice", name));
    }
  }

  Config all() {
    for (const ConfigKey& k : model_.config) resolve(k);
    return std::move(done_);
  }

 private:
  void resolve(const ConfigKey& k) {
    if (std::find(resolved_.begin(), resolved_.end(), k.name) != resolved_.end()) return;
    check_type(k);
    if (std::find(busy_.begin(), busy_.end(), k.name) != busy_.end())
      throw error_at(k.default_value ? k.default_value->place : k.place,
                     fmt::format("the value of config key '{}' depends on itself", k.name));
    constexpr size_t kLongest = 64;
    if (busy_.size() >= kLongest) throw error_at(k.place, "config keys depend on each other in too long a chain");
    busy_.push_back(k.name);
    const auto sized = size_.find(k.name);
    const Expr* e = sized != size_.end() ? sized->second : k.default_value.get();
    if (k.type.has_dims) {
      needs(*k.type.dims[0]);
      const int64_t count = whole(*k.type.dims[0], "the extent of a config key");
      constexpr int64_t kMost = 1024;  // each is computed, several times for a file
      if (count < 0 || count > kMost)
        throw error_at(k.type.place, fmt::format("config key '{}' would have {} values", k.name, count),
                       fmt::format("there may be up to {}", kMost));
      for (int64_t i = 0; i < count; ++i) done_[fmt::format("{}.{}", k.name, i)] = value(k, e, i);
      for (const auto& [name, unused] : values_)
        if (name != k.name && key_of_entry(model_, name) == &k && !done_.contains(name))
          throw user_error("config key '{}' of model '{}' has {} values, so there is no '{}'", k.name, model_.name,
                           count, name);
    } else {
      done_[k.name] = value(k, e, {});
    }
    busy_.pop_back();
    resolved_.push_back(k.name);
  }

  static void check_type(const ConfigKey& k) {
    const bool text = k.type.name == "text";
    if (text == choices_of(k).empty())
      throw error_at(k.type.place, fmt::format("config key '{}' is a string with choices, or neither", k.name),
                     "e.g. kind : text = \"plain\", choices \"plain\" \"gated\"");
    if (!text && !scalar_from_name(k.type.name))
      throw error_at(k.type.place, fmt::format("config key '{}' must be one number", k.name), "e.g. i32, f32 or text");
    if (k.type.has_dims && (k.type.dims.size() != 1 || k.type.leading_any))
      throw error_at(k.type.place, fmt::format("config key '{}' must be one number or have one axis", k.name),
                     "e.g. i32, or i32[cfg.layers]");
  }

  double value(const ConfigKey& k, const Expr* e, std::optional<int64_t> element) {
    const auto scalar = scalar_from_name(k.type.name);
    const auto choices = choices_of(k);
    auto given = element ? values_.find(fmt::format("{}.{}", k.name, *element)) : values_.end();
    if (given == values_.end()) given = values_.find(k.name);
    if (given != values_.end()) {
      const double v = given->second;
      if ((!scalar || !is_float(*scalar)) && v != std::floor(v))
        throw user_error("config key '{}' of model '{}' must be a whole number, not {}", k.name, model_.name, v);
      if (!choices.empty() && (v < 0 || v >= choices.size()))
        throw user_error("config key '{}' of model '{}' has {} choices, not {}", k.name, model_.name, choices.size(),
                         v);
      return v;
    }
    if (!e)
      throw Error(Exit::user, fmt::format("config key '{}' of model '{}' has no value", k.name, model_.name),
                  fmt::format("give it: {} = ...", k.name));
    needs(*e);
    std::map<std::string, int64_t> bound;
    if (element) bound["i"] = *element;
    Session session(no_scope());
    const Value v = Elaboration(session, {&model_, &done_}).constant_value(*e, bound);
    if (!choices.empty()) {
      const auto at = std::find(choices.begin(), choices.end(), v.text);
      if (v.kind != Value::Kind::text || at == choices.end())
        throw error_at(e->place, fmt::format("{} is no choice of config key '{}'", describe(v), k.name),
                       fmt::format("choices are {}", fmt::join(choices, ", ")));
      return at - choices.begin();
    }
    const bool truth = scalar == Scalar::boolean;
    if (truth && v.is_number() &&
        (v.number.kind == Number::Kind::truth || v.number.value() == 0 || v.number.value() == 1))
      return v.number.value();
    if (truth || !v.is_number() || v.number.kind == Number::Kind::truth)
      throw error_at(e->place, fmt::format("config key '{}' must be a {}, found {}", k.name,
                                           truth ? "truth value" : "number", describe(v)));
    if (!is_float(*scalar) && v.number.kind != Number::Kind::integer)
      throw error_at(e->place, fmt::format("config key '{}' must be a whole number, found {}", k.name, v.number.real));
    return v.number.value();
  }

  int64_t whole(const Expr& e, std::string_view what) const {
    Session session(no_scope());
    const Number n = Elaboration(session, {&model_, &done_}).number(e, what);
    if (n.kind != Number::Kind::integer) throw error_at(e.place, fmt::format("{} must be a whole number", what));
    return n.integer;
  }

  void needs(const Expr& e) {
    if (e.kind == ExprKind::member && e.args[0]->kind == ExprKind::name && e.args[0]->text == "cfg")
      if (const ConfigKey* k = find_key(model_, e.text)) resolve(*k);
    for (const auto& a : e.args)
      if (a) needs(*a);
  }

  const ModelDecl& model_;
  const Config& values_;
  std::map<std::string, const Expr*> size_;
  std::vector<std::string> busy_, resolved_;
  Config done_;
};

}  // namespace

std::vector<std::string> choices_of(const ConfigKey& key) {
  std::vector<std::string> out;
  for (const lang::Attribute& a : key.attributes) {
    if (a.name != "choices") continue;
    for (const lang::ExprPtr& v : a.values) {
      if (v->kind != ExprKind::string) throw error_at(a.place, "choices are strings", "write them in quotes");
      out.push_back(v->text);
    }
  }
  return out;
}

Config model_config(const ModelDecl& model, const std::string& size, const Config& values) {
  for (const auto& [name, unused] : values)
    if (!key_of_entry(model, name))
      throw Error(Exit::user, fmt::format("model '{}' has no config key '{}'", model.name, name),
                  did_you_mean(name, keys_of(model)));
  const lang::SizeDecl* found = nullptr;
  std::vector<std::string> sizes;
  for (const lang::SizeDecl& s : model.sizes) {
    sizes.push_back(s.name);
    if (s.name == size) found = &s;
  }
  if (!size.empty() && !found)
    throw Error(
        Exit::user, fmt::format("model '{}' has no size '{}'", model.name, size),
        did_you_mean(size, sizes,
                     sizes.empty() ? "it has no named sizes" : fmt::format("known are {}", fmt::join(sizes, ", "))));
  return Resolver(model, found, values).all();
}

}  // namespace lumen::graph
