#include "model/recipe/optimizer/optimizer_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/messages/spelling.h"
#include "graph/pass/at_random.h"
#include "graph/pass/pass.h"
#include "model/arch/model.h"

namespace lumen::model::recipe {
namespace {

constexpr const char* kStatePrefix = "optimizer.";
constexpr const char* kAverage = "average";
constexpr const char* kNumberPrefix = "step.";
constexpr const char* kMove = "most_move";
constexpr const char* kDecay = "weight_decay";
constexpr const char* kGiven[] = {"value", "gradient"};  // parameters of every function
constexpr const char* kRate = "rate";

std::vector<std::string> words_of(const lang::ModelDecl& decl, std::string_view attribute) {
  std::vector<std::string> words;
  for (const lang::Attribute& a : decl.attributes) {
    if (a.name != attribute) continue;
    for (const lang::ExprPtr& v : a.values) words.push_back(v->text);
  }
  return words;
}

const lang::ConfigKey* find_key(const lang::ModelDecl& decl, const std::string& name) {
  for (const lang::ConfigKey& key : decl.config)
    if (key.name == name) return &key;
  return nullptr;
}

void check_bounds(const lang::ModelDecl& decl, const lang::ConfigKey& key, double value) {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (const lang::Attribute& a : key.attributes) {
    if ((a.name != "least" && a.name != "most") || a.values.size() != 1) continue;
    (a.name == "least" ? least : most) = a.values[0]->number;
  }
  if (value >= least && value <= most) return;
  if (std::isfinite(most))
    throw usage_error("{} of optimizer '{}' must be {} to {}, not {}", key.name, decl.name, least, most, value);
  throw usage_error("{} of optimizer '{}' must be {} or more, not {}", key.name, decl.name, least, value);
}

// A number, true or false, or one of the key's choices.
double value_of(const lang::ModelDecl& decl, const lang::ConfigKey& key, const std::string& text) {
  const std::vector<std::string> choices = graph::choices_of(key);
  if (!choices.empty()) {
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found == choices.end())
      throw Error(Exit::usage, fmt::format("'{}' is no choice of {} of optimizer '{}'", text, key.name, decl.name),
                  fmt::format("choices: {}", fmt::join(choices, ", ")));
    return found - choices.begin();
  }
  if (text == "true") return 1;
  if (text == "false") return 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != 0)
    throw usage_error("{} of optimizer '{}': '{}' is no number", key.name, decl.name, text);
  return value;
}

FormatRef held_format(const arch::Library& library, const std::string& name) {
  const FormatRef format = library.formats().get(name);
  if (arch::is_plain(*format, Scalar::f32)) return nullptr;
  if (!format->encodes())
    throw Error(Exit::user, fmt::format("moments cannot be held in format '{}', which only decodes", name),
                "name one with an encoder; `lumen format list` shows them");
  return format;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool is_optimizer_state(const std::string& input) {
  return input.starts_with(kStatePrefix);
}

std::string optimizer_state(const std::string& state, const std::string& parameter) {
  return kStatePrefix + state + "." + parameter;
}

OptimizerSettings resolved(const arch::Library& library, OptimizerSettings settings, std::string* said) {
  const std::vector<std::string> names = library.optimizer_names();
  for (const std::string& name : has(names, settings.name) ? std::vector<std::string>{} : names) {
    const lang::ModelDecl& decl = library.optimizer(name);
    const std::vector<std::string> with = words_of(decl, "also_with");
    const bool packed = std::find(with.begin() + (with.empty() ? 0 : 1), with.end(), settings.name) != with.end();
    if (!packed && !has(words_of(decl, "also"), settings.name)) continue;
    if (packed && settings.moments == OptimizerSettings().moments) settings.moments = with.front();
    if (said)
      *said = fmt::format("optimizer '{}' is called '{}' here, moments in {}", settings.name, name, settings.moments);
    settings.name = name;
  }
  for (const auto& [name, text] : Optimizer(library, settings).values())
    for (const auto& [key, value] : {std::pair{"beta1", &settings.beta1},
                                     {"beta2", &settings.beta2},
                                     {"epsilon", &settings.epsilon},
                                     {kDecay, &settings.weight_decay},
                                     {"momentum", &settings.momentum}})
      if (name == key && !settings.config.contains(name)) *value = std::strtod(text.c_str(), nullptr);
  return settings;
}

std::string average_of(const std::string& parameter) {
  return optimizer_state(kAverage, parameter);
}

bool is_average(const std::string& input) {
  return input.starts_with(optimizer_state(kAverage, ""));
}

Optimizer::Optimizer(const arch::Library& library, OptimizerSettings settings)
    : settings_(std::move(settings)), library_(library), decl_(library.optimizer(settings_.name)) {
  graph::Config given;
  const auto take = [&](const std::string& name, double value) {
    if (!find_key(decl_, name)) {
      std::vector<std::string> known;
      for (const lang::ConfigKey& key : decl_.config) known.push_back(key.name);
      throw Error(Exit::usage, fmt::format("optimizer '{}' has no {}", decl_.name, name),
                  did_you_mean(name, known, fmt::format("it has {}", fmt::join(known, ", "))));
    }
    given[name] = value;
  };
  for (const auto& [name, value] : {std::pair{"beta1", settings_.beta1},
                                    {"beta2", settings_.beta2},
                                    {"epsilon", settings_.epsilon},
                                    {kDecay, settings_.weight_decay},
                                    {"momentum", settings_.momentum}})
    if (value) take(name, *value);
  for (const auto& [name, text] : settings_.config) {
    const lang::ConfigKey* key = find_key(decl_, name);
    take(name, key ? value_of(decl_, *key, text) : 0);
  }
  config_ = graph::optimizer_config(decl_, given);
  for (const lang::ConfigKey& key : decl_.config) check_bounds(decl_, key, config_.at(key.name));
  roots_ = words_of(decl_, "nonnegative");
  elementwise_ = words_of(decl_, "elementwise");
  moments_ = held_format(library, settings_.moments);
  second_moments_ =
      held_format(library, settings_.second_moments.empty() ? settings_.moments : settings_.second_moments);
  held_ = held_in(settings_.held, library.formats());
  if (settings_.ema_decay > 0 && held_.element.format)
    graph::require_random(*held_.element.format, "remove --ema: its average would be stored in that format, too");
  bool has_update = false;
  for (const lang::Function& f : decl_.functions) {
    has_update = has_update || f.name == update_;
    has_matrix_ = has_matrix_ || f.name == matrix_;
    if (f.name != update_ && f.name != matrix_) continue;
    for (const char* given_name : kGiven)
      if (std::none_of(f.params.begin(), f.params.end(), [&](const lang::Param& p) { return p.name == given_name; }))
        throw error_at(f.place, fmt::format("'{}' of an optimizer needs a parameter '{}'", f.name, given_name));
    for (const lang::Param& p : f.params) {
      if (p.name == kRest)
        throw error_at(p.place, fmt::format("'{}' is the state of the weights' rounding residual", kRest),
                       "choose another name");
      if (p.name == kAverage)
        throw error_at(p.place, fmt::format("'{}' is the state of the weights' moving average", kAverage),
                       "choose another name");
      const bool is_given = p.name == kGiven[0] || p.name == kGiven[1] || p.name == kRate;
      if (!is_given && p.type && !p.type->is_state && !p.default_value && !has(numbers_, p.name))
        numbers_.push_back(p.name);
    }
  }
  if (settings_.bound_every > 0) {
    if (std::none_of(decl_.functions.begin(), decl_.functions.end(),
                     [](const lang::Function& f) { return f.name == kMove; }))
      throw Error(
          Exit::usage,
          fmt::format("optimizer '{}' has no function '{}': the largest change of a weight by a step is unknown",
                      decl_.name, kMove),
          "products.weight_scale = \"fitted\" or \"delayed\" needs none");
    if (settings_.bound_every > 1 && held_.element.format)
      throw Error(Exit::usage,
                  fmt::format("scales that are predicted for {} steps: the largest change by rounding to '{}' is "
                              "unknown",
                              settings_.bound_every, held_.element.format->name),
                  "products.rescale_every = 1 reads the rounded weights after every step");
    numbers_.push_back(kMove);
  }
  if (!has_update)
    throw error_at(decl_.place, fmt::format("optimizer '{}' has no function '{}'", decl_.name, update_),
                   "it computes a parameter's new value from 'value', 'gradient' and 'rate'");
}

std::vector<std::pair<std::string, std::string>> Optimizer::values() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const lang::ConfigKey& key : decl_.config) {
    const double value = config_.at(key.name);
    const std::vector<std::string> choices = graph::choices_of(key);
    if (!choices.empty())
      out.emplace_back(key.name, choices.at(static_cast<size_t>(value)));
    else if (key.type.name == "bool")
      out.emplace_back(key.name, value != 0 ? "true" : "false");
    else
      out.emplace_back(key.name, fmt::format("{}", value));
  }
  return out;
}

graph::Config Optimizer::config_of(const arch::Parameter& p) const {
  graph::Config config = config_;
  const auto decay = config.find(kDecay);
  if (decay == config.end()) return config;
  if (p.weight_decay)
    decay->second = *p.weight_decay;
  else if (!p.decays)
    decay->second = 0;
  return config;
}

const std::string& Optimizer::function_of(const arch::Parameter& p) const {
  return has_matrix_ && !p.is_vector() && !is_about_weights(p) && !has(elementwise_, p.role) ? matrix_ : update_;
}

const graph::Graph& Optimizer::update(const arch::Parameter& p) const {
  const std::string& function = function_of(p);
  const graph::Config config = config_of(p);
  const graph::Type type{p.shape, {Scalar::f32, nullptr}};
  const auto decay = config.find(kDecay);
  auto& slot =
      updates_[fmt::format("{} {} {}", function, graph::print(type), decay == config.end() ? 0 : decay->second)];
  if (slot) return *slot;
  auto g = std::make_shared<graph::Graph>(
      graph::elaborate_update(library_.scope(), decl_, function, config, {{kGiven[0], type}, {kGiven[1], type}}));
  graph::inline_calls(*g);
  for (graph::Node& node : g->nodes) node.label.clear();
  if (g->results.size() != 1 || (*g)[g->results[0]].type != type)
    throw user_error("optimizer '{}': '{}' must return the new value, {}", decl_.name, function, graph::print(type));
  return *(slot = std::move(g));
}

std::vector<Optimizer::State> Optimizer::states(const arch::Parameter& p) const {
  std::vector<State> out;
  const graph::Graph& g = update(p);
  for (const graph::ValueId v : g.inputs()) {
    if (g[v].attributes.role != graph::Role::state) continue;
    State state{g[v].attributes.name, g[v].type, false};
    const bool squares = has(roots_, state.name);
    const FormatRef& format = squares ? second_moments_ : moments_;
    if (format && !p.is_vector() && state.type.shape == p.shape && p.shape.back().number() % format->block == 0) {
      state.type.element = {Scalar::f32, format};
      state.is_root = squares;
    }
    out.push_back(std::move(state));
  }
  if (compensates(p)) out.push_back({kRest, {p.shape, held_.rest_of(p)}, false});
  return out;
}

int64_t Optimizer::state_bytes(const std::vector<arch::Parameter>& trained, const Holding& held) const {
  int64_t bytes = 0;
  const auto add = [&](const graph::Type& type) {
    if (__builtin_add_overflow(bytes, graph::byte_size(type), &bytes)) bytes = std::numeric_limits<int64_t>::max();
  };
  for (const arch::Parameter& p : trained) {
    for (const State& s : states(p)) add(s.type);
    if (settings_.ema_decay > 0) add(held.type_of(p));
  }
  return bytes;
}

std::vector<std::pair<std::string, double>> Optimizer::numbers(int64_t step, double rate) const {
  std::vector<std::pair<std::string, double>> out = {{kLearningRate, rate}};
  if (settings_.bound_every > 0) out.emplace_back(kRescale, step % settings_.bound_every == 0 ? 1 : 0);
  for (const std::string& name : numbers_)
    out.emplace_back(kNumberPrefix + name, graph::elaborate_number(library_.scope(), decl_, name, config_,
                                                                   {static_cast<double>(step), rate}));
  return out;
}

std::optional<int> Optimizer::stochastic_bits(const Format& format) {
  if (format.code_field < 0) return std::nullopt;
  for (int k = 0; k < std::ssize(format.fields); ++k) {
    const FieldType& type = format.fields[k].type;
    if (!type.is_float || (k != format.code_field && type.mantissa_bits != 0)) return std::nullopt;
  }
  return format.fields[format.code_field].type.mantissa_bits;
}

}  // namespace lumen::model::recipe
