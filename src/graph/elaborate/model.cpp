// Models: their numbers, their parameters, their functions as graphs. Proved by
// tests/graph/elaborate/elaborate_test.cpp.
#include <algorithm>

#include "base/messages/spelling.h"
#include "graph/elaborate/elaboration.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;
using lang::ModelDecl;

namespace {

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

// Attributes for other readers are accepted; misspelled ones are not.
void check_spelling(const lang::Attribute& a, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), a.name) != known.end()) return;
  const std::string near = nearest_word(a.name, known);
  if (!near.empty())
    throw error_at(a.place, fmt::format("unknown attribute '{}'", a.name), fmt::format("did you mean '{}'?", near));
}

const std::vector<std::string>& param_attributes() {
  static const std::vector<std::string> known = {"gguf",
                                                 "hf",
                                                 "role",
                                                 "init",
                                                 "optional",
                                                 "when",
                                                 "frozen",
                                                 "absent_if",
                                                 "hf_halves",
                                                 "hf_plus",
                                                 "hf_transposed",
                                                 "hf_fused",
                                                 "hf_rows",
                                                 "hf_columns",
                                                 "hf_packed",
                                                 "doc",
                                                 "hf_scalar",
                                                 "gguf_key",
                                                 "absent_says",
                                                 "hf_grouped",
                                                 "hf_grouped_columns",
                                                 "hf_shape",
                                                 "gguf_minus_exp"};
  return known;
}

// nullopt when the config excludes the parameter, or it is a state.
std::optional<ModelParameter> read_parameter(Session& session, const ModelContext& context, const lang::ModelParam& p,
                                             std::optional<int64_t> layer) {
  Elaboration e(session, context);
  ModelParameter out;
  out.name = layer ? fmt::format("layers.{}.{}", *layer, p.name) : p.name;
  out.init = "normal";
  const Expr* formula = nullptr;
  std::map<std::string, int64_t> bound;
  if (layer) bound["i"] = *layer;
  for (const lang::Attribute& a : p.attributes) {
    check_spelling(a, param_attributes());
    if (a.name == "gguf") out.gguf = filled(word_of(a), layer);
    if (a.name == "hf") {
      out.hf = filled(word_of(a), layer);
      for (size_t n = 1; n < a.values.size(); ++n) out.hf_also.push_back(filled(a.values[n]->text, layer));
    }
    if (a.name == "role") out.role = word_of(a);
    if (a.name == "optional") out.optional = true;
    if (a.name == "init") {
      out.init = word_of(a);
      if (out.init == "each") {
        if (a.values.size() != 2)
          throw error_at(a.place, "'init each' needs a formula", "e.g. init each (1.0 / (j + 1))");
        formula = a.values[1].get();
      } else if (a.values.size() > 1) {
        out.init_scale = e.number(*a.values[1], "the scale of an init", bound).value();
      }
    }
  }
  if (p.type.is_state || !e.is_present(p, layer)) return std::nullopt;
  out.shape = e.parameter_type(p, layer).shape;
  if (formula) {
    if (out.shape.size() != 1) throw error_at(p.place, "'init each' is for parameters with one axis");
    for (int64_t j = 0; j < out.shape[0].number(); ++j) {
      bound["j"] = j;
      out.init_values.push_back(e.number(*formula, "an initial value", bound).value());
    }
  }
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
    for (const auto& a : k.attributes)
      check_spelling(
          a, {"gguf",         "hf",          "gguf_length", "choices",     "gguf_choices", "hf_words",   "hf_members",
              "hf_letters",   "hf_at_least", "hf_null",     "fixed",       "gguf_formula", "when",       "gguf_when",
              "gguf_plus",    "gguf_times",  "gguf_else",   "gguf_tensor", "gguf_also",    "gguf_blank", "gguf_values",
              "gguf_largest", "hf_length",   "hf_each",     "doc"});
  }
  for (const auto& s : m.sizes) once("size", s.name, s.place);
  for (const auto& p : m.params) once("parameter", p.name, p.place);
  for (const auto& p : m.layer_params) once("layer parameter", p.name, p.place);
  for (const auto& f : m.functions) once("function", f.name, f.place);
  for (const auto& a : m.attributes)
    check_spelling(a, {"gguf",
                       "gguf_if",
                       "hf",
                       "hf_type",
                       "part",
                       "hf_ignore",
                       "gguf_ignore",
                       "extends",
                       "without",
                       "hf_inside",
                       "hf_prefix",
                       "hf_beside",
                       "hf_under",
                       "unread",
                       "refused",
                       "hides",
                       "gguf_unread",
                       "gguf_refused",
                       "gguf_required",
                       "hf_if",
                       "doc",
                       "tower",
                       "picture_mark",
                       "picture_place",
                       "picture_written",
                       "picture_line_end",
                       "picture_end",
                       "projector"});
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
  } catch (const NeedsExtent&) {  // of its parameters, which are symbols here
  }
}

void check_model(const Scope& scope, const ModelDecl& m) {
  check_names(m);
  // A `part` model is only valid in the models that extend it.
  if (std::any_of(m.attributes.begin(), m.attributes.end(), [](const auto& a) { return a.name == "part"; })) return;
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

void check_optimizer(const Scope& scope, const ModelDecl& o) {
  std::vector<std::string> names;
  for (const auto& k : o.config) {
    if (std::find(names.begin(), names.end(), k.name) != names.end())
      throw error_at(k.place, fmt::format("config key '{}' is declared twice in optimizer '{}'", k.name, o.name));
    names.push_back(k.name);
    for (const auto& a : k.attributes) check_spelling(a, {"least", "most", "choices", "doc"});
  }
  for (const auto& a : o.attributes)
    check_spelling(a, {"optimizer", "nonnegative", "elementwise", "also", "also_with", "doc"});
  const Config config = optimizer_config(o, {});
  for (const lang::Function& f : o.functions) {
    if (is_builtin(f.name))
      throw error_at(f.place, fmt::format("'{}' is a function of the language already", f.name), "choose another name");
    check_function(scope, {&o, &config}, f);
  }
}

const lang::Function& function_of(const ModelDecl& model, const std::string& name) {
  std::vector<std::string> names;
  for (const lang::Function& f : model.functions) {
    names.push_back(f.name);
    if (f.name == name) return f;
  }
  throw Error(Exit::user, fmt::format("model '{}' has no function '{}'", model.name, name), did_you_mean(name, names));
}

}  // namespace

double config_number(const ModelDecl& model, const Expr& e, const Config& config, std::optional<int64_t> element) {
  const Scope scope;
  Session session(scope);
  std::map<std::string, int64_t> bound;
  if (element) bound["i"] = *element;
  return Elaboration(session, {&model, &config}).number(e, "a condition of the config", bound).value();
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
  Session session(scope);
  return Elaboration(session, {&model, &config}).standalone(function_of(model, function));
}

void check_file(const Scope& given, const lang::File& file) {
  Scope scope = given;
  if (std::find(scope.files.begin(), scope.files.end(), &file) == scope.files.end()) scope.files.push_back(&file);
  for (size_t i = 0; i < file.functions.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (file.functions[i].name == file.functions[j].name)
        throw error_at(file.functions[i].place, fmt::format("function '{}' is declared twice", file.functions[i].name));
  // Functions in a file of formats belong to their routines, and are checked with them.
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
    if (is_optimizer(file.models[i]))
      check_optimizer(scope, file.models[i]);
    else
      check_model(scope, complete_model(scope, file.models[i]));
  }
}

bool is_optimizer(const ModelDecl& decl) {
  return std::any_of(decl.attributes.begin(), decl.attributes.end(),
                     [](const lang::Attribute& a) { return a.name == "optimizer"; });
}

Config optimizer_config(const ModelDecl& optimizer, const Config& values) {
  return model_config(optimizer, "", values);
}

Graph elaborate_update(const Scope& scope, const ModelDecl& optimizer, const std::string& function,
                       const Config& config, const std::map<std::string, Type>& types) {
  Session session(scope);
  return Elaboration(session, {&optimizer, &config}).standalone(function_of(optimizer, function), types);
}

double elaborate_number(const Scope& scope, const ModelDecl& optimizer, const std::string& function,
                        const Config& config, const std::vector<double>& arguments) {
  Session session(scope);
  std::vector<Number> numbers;
  for (const double x : arguments) numbers.push_back(Number::of(x));
  return Elaboration(session, {&optimizer, &config}).number_of_call(function_of(optimizer, function), numbers).value();
}

}  // namespace lumen::graph
