// Models: their numbers, their parameters, their functions as graphs. Proved by tests/graph/elaborate_test.cpp.
#include <algorithm>
#include <cmath>

#include "graph/elaborate/elaboration.h"
#include "lang/spelling.h"

namespace lumen::graph {

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
  for (const lang::ConfigKey& k : m.config) out.push_back(k.name);
  return out;
}

// Resolves keys in the order their defaults need them.
class Resolver {
 public:
  Resolver(const ModelDecl& model, const lang::SizeDecl* size, const Config& values) : model_(model), values_(values) {
    if (!size) return;
    for (const auto& [name, value] : size->values) {
      if (!find(name))
        throw error_at(value->place, fmt::format("model '{}' has no config key '{}'", model.name, name),
                       lang::did_you_mean(name, keys_of(model)));
      if (!size_.emplace(name, value.get()).second)
        throw error_at(value->place, fmt::format("'{}' is set twice", name));
    }
  }

  Config all() {
    for (const lang::ConfigKey& k : model_.config) resolve(k);
    return std::move(done_);
  }

 private:
  const lang::ConfigKey* find(const std::string& name) const {
    for (const lang::ConfigKey& k : model_.config)
      if (k.name == name) return &k;
    return nullptr;
  }

  void resolve(const lang::ConfigKey& k) {
    if (done_.contains(k.name)) return;
    const auto scalar = scalar_from_name(k.type.name);
    if (!scalar || k.type.has_dims)
      throw error_at(k.type.place, fmt::format("config key '{}' must be one number", k.name), "e.g. i32 or f32");
    if (const auto given = values_.find(k.name); given != values_.end()) {
      if (!is_float(*scalar) && given->second != std::floor(given->second))
        throw user_error("config key '{}' of model '{}' must be a whole number, not {}", k.name, model_.name,
                         given->second);
      done_[k.name] = given->second;
      return;
    }
    const auto sized = size_.find(k.name);
    const Expr* e = sized != size_.end() ? sized->second : k.default_value.get();
    if (!e)
      throw Error(Exit::user, fmt::format("config key '{}' of model '{}' has no value", k.name, model_.name),
                  fmt::format("give it: {} = ...", k.name));
    if (std::find(busy_.begin(), busy_.end(), k.name) != busy_.end())
      throw error_at(e->place, fmt::format("the value of config key '{}' depends on itself", k.name));
    constexpr size_t kLongest = 64;
    if (busy_.size() >= kLongest) throw error_at(e->place, "config keys depend on each other in too long a chain");
    busy_.push_back(k.name);
    needs(*e);
    busy_.pop_back();
    Session session(no_scope());
    const Number n = Elaboration(session, {&model_, &done_}).number(*e, fmt::format("config key '{}'", k.name));
    if (!is_float(*scalar) && n.kind != Number::Kind::integer)
      throw error_at(e->place, fmt::format("config key '{}' must be a whole number, found {}", k.name, n.real));
    done_[k.name] = n.value();
  }

  void needs(const Expr& e) {
    if (e.kind == ExprKind::member && e.args[0]->kind == ExprKind::name && e.args[0]->text == "cfg")
      if (const lang::ConfigKey* k = find(e.text)) resolve(*k);
    for (const auto& a : e.args)
      if (a) needs(*a);
  }

  const ModelDecl& model_;
  const Config& values_;
  std::map<std::string, const Expr*> size_;
  std::vector<std::string> busy_;
  Config done_;
};

std::string filled(std::string text, std::optional<int64_t> layer) {
  if (!layer) return text;
  const std::string number = std::to_string(*layer);
  for (size_t at = text.find("{i}"); at != std::string::npos; at = text.find("{i}", at + number.size()))
    text.replace(at, 3, number);
  return text;
}

std::string word_of(const lang::Attribute& a) {
  if (a.values.empty() || (a.values[0]->kind != ExprKind::string && a.values[0]->kind != ExprKind::name))
    throw error_at(a.place, fmt::format("attribute '{}' needs a word or a string", a.name));
  return a.values[0]->text;
}

// Attributes others read are let pass; slips of the keyboard are not.
void check_spelling(const lang::Attribute& a, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), a.name) != known.end()) return;
  const std::string near = lang::nearest(a.name, known);
  if (!near.empty())
    throw error_at(a.place, fmt::format("unknown attribute '{}'", a.name), fmt::format("did you mean '{}'?", near));
}

const std::vector<std::string>& param_attributes() {
  static const std::vector<std::string> known = {"gguf", "hf",     "role",      "init",      "optional",
                                                 "when", "frozen", "absent_if", "hf_halves", "doc"};
  return known;
}

// Null when the parameter is not there in this config, or is a state.
std::optional<ModelParameter> read_parameter(Session& session, const ModelContext& context, const lang::ModelParam& p,
                                             std::optional<int64_t> layer) {
  Elaboration e(session, context);
  ModelParameter out;
  out.name = layer ? fmt::format("layers.{}.{}", *layer, p.name) : p.name;
  out.init = "normal";
  bool present = !p.type.is_state;
  for (const lang::Attribute& a : p.attributes) {
    check_spelling(a, param_attributes());
    if (a.name == "gguf") out.gguf = filled(word_of(a), layer);
    if (a.name == "hf") out.hf = filled(word_of(a), layer);
    if (a.name == "role") out.role = word_of(a);
    if (a.name == "optional") out.optional = true;
    if (a.name == "init") {
      out.init = word_of(a);
      if (a.values.size() > 1) out.init_scale = e.number(*a.values[1], "the scale of an init").value();
    }
    if (a.name == "when") {
      if (a.values.size() != 1) throw error_at(a.place, "'when' needs one condition", "e.g. when (cfg.bias)");
      present = present && e.number(*a.values[0], "the condition of 'when'").value() != 0;
    }
  }
  out.shape = e.parameter_type(p, layer).shape;
  if (!present) return std::nullopt;
  return out;
}

int64_t layer_count(Session& session, const ModelContext& context) {
  const ModelDecl& m = *context.model;
  if (!m.layer_count) return 0;
  const Number n = Elaboration(session, context).number(*m.layer_count, "the number of layers");
  if (n.kind != Number::Kind::integer || n.integer < 0 || n.integer > 100'000)
    throw error_at(m.layer_count->place, fmt::format("{} is no number of layers", n.value()));
  return n.integer;
}

void check_names(const ModelDecl& m) {
  std::map<std::string, Place> seen;
  const auto once = [&](const std::string& kind, const std::string& name, const Place& place) {
    if (!seen.emplace(kind + " " + name, place).second)
      throw error_at(place, fmt::format("{} '{}' is declared twice in model '{}'", kind, name, m.name));
  };
  for (const auto& k : m.config) {
    once("config key", k.name, k.place);
    for (const auto& a : k.attributes) check_spelling(a, {"gguf", "hf", "gguf_length", "doc"});
  }
  for (const auto& s : m.sizes) once("size", s.name, s.place);
  for (const auto& p : m.params) once("parameter", p.name, p.place);
  for (const auto& p : m.layer_params) once("layer parameter", p.name, p.place);
  for (const auto& f : m.functions) once("function", f.name, f.place);
  for (const auto& a : m.attributes) check_spelling(a, {"gguf", "hf", "hf_refuse", "doc"});
}

// A function that fails only because a parameter without a value must be a constant is checked where it is called.
void check_function(const Scope& scope, const ModelContext& context, const lang::Function& fn) {
  const bool typed =
      std::all_of(fn.params.begin(), fn.params.end(), [](const lang::Param& p) { return p.type.has_value(); });
  if (!typed) return;
  const bool has_scalar = std::any_of(fn.params.begin(), fn.params.end(), [](const lang::Param& p) {
    return p.type->dims.empty() && !p.type->leading_any && !p.default_value;
  });
  Session session(scope);
  try {
    Elaboration(session, context).standalone(fn);
  } catch (const NeedsConstant&) {
    if (!has_scalar) throw;
  }
}

void check_model(const Scope& scope, const ModelDecl& m) {
  check_names(m);
  for (const lang::SizeDecl& s : m.sizes) model_config(m, s.name, {});
  const bool complete = std::all_of(m.config.begin(), m.config.end(),
                                    [](const lang::ConfigKey& k) { return k.default_value != nullptr; });
  if (m.sizes.empty() && !complete) return;
  const Config config = model_config(m, m.sizes.empty() ? "" : m.sizes[0].name, {});
  model_parameters(scope, m, config);
  for (const lang::Function& f : m.functions) {
    if (is_builtin(f.name))
      throw error_at(f.place, fmt::format("'{}' is a function of the language already", f.name), "choose another name");
    check_function(scope, {&m, &config}, f);
  }
}

}  // namespace

Config model_config(const ModelDecl& model, const std::string& size, const Config& values) {
  for (const auto& [name, unused] : values)
    if (std::none_of(model.config.begin(), model.config.end(), [&](const auto& k) { return k.name == name; }))
      throw Error(Exit::user, fmt::format("model '{}' has no config key '{}'", model.name, name),
                  lang::did_you_mean(name, keys_of(model)));
  const lang::SizeDecl* found = nullptr;
  std::vector<std::string> sizes;
  for (const lang::SizeDecl& s : model.sizes) {
    sizes.push_back(s.name);
    if (s.name == size) found = &s;
  }
  if (!size.empty() && !found)
    throw Error(Exit::user, fmt::format("model '{}' has no size '{}'", model.name, size),
                lang::did_you_mean(
                    size, sizes,
                    sizes.empty() ? "it has no named sizes" : fmt::format("known are {}", fmt::join(sizes, ", "))));
  return Resolver(model, found, values).all();
}

std::vector<ModelParameter> model_parameters(const Scope& scope, const ModelDecl& model, const Config& config) {
  Session session(scope);
  const ModelContext context{&model, &config};
  std::vector<ModelParameter> out;
  for (const lang::ModelParam& p : model.params)
    if (auto q = read_parameter(session, context, p, {})) out.push_back(std::move(*q));
  const int64_t layers = layer_count(session, context);
  for (int64_t i = 0; i < layers; ++i)
    for (const lang::ModelParam& p : model.layer_params)
      if (auto q = read_parameter(session, context, p, i)) out.push_back(std::move(*q));
  return out;
}

Graph elaborate_function(const Scope& scope, const lang::Function& fn) {
  Session session(scope);
  return Elaboration(session, {}).standalone(fn);
}

Graph elaborate_model(const Scope& scope, const ModelDecl& model, const std::string& function, const Config& config) {
  std::vector<std::string> names;
  for (const lang::Function& f : model.functions) {
    names.push_back(f.name);
    if (f.name != function) continue;
    Session session(scope);
    return Elaboration(session, {&model, &config}).standalone(f);
  }
  throw Error(Exit::user, fmt::format("model '{}' has no function '{}'", model.name, function),
              lang::did_you_mean(function, names));
}

void check_file(const Scope& given, const lang::File& file) {
  Scope scope = given;
  if (std::find(scope.files.begin(), scope.files.end(), &file) == scope.files.end()) scope.files.push_back(&file);
  for (size_t i = 0; i < file.functions.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (file.functions[i].name == file.functions[j].name)
        throw error_at(file.functions[i].place, fmt::format("function '{}' is declared twice", file.functions[i].name));
  // Functions beside formats belong to their routines, and are checked with them.
  const bool routines = !file.formats.empty() && file.models.empty();
  for (const lang::Function& f : file.functions) {
    if (routines) break;
    if (is_builtin(f.name))
      throw error_at(f.place, fmt::format("'{}' is a function of the language already", f.name), "choose another name");
    check_function(scope, {}, f);
  }
  for (size_t i = 0; i < file.models.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      if (file.models[i].name == file.models[j].name)
        throw error_at(file.models[i].place, fmt::format("model '{}' is declared twice", file.models[i].name));
    check_model(scope, file.models[i]);
  }
}

}  // namespace lumen::graph
