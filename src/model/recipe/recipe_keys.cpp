#include "model/recipe/recipe_keys.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>

#include "base/check.h"
#include "base/error.h"
#include "run/device/available.h"

namespace lumen::model {
namespace {

using Effect = RecipeEffect;

constexpr double kMostSteps = 1e12, kMostRate = 1e30, kMostExtent = 1 << 24;

std::string get_shape(const Recipe& r) {
  return schedule_shape_name(r.schedule.shape);
}
void set_shape(Recipe& r, const std::string& name) {
  r.schedule.shape = schedule_shape(name);
}

// A string with a fixed set of values.
void set_one_of(std::string& value, const std::string& name, const char* what, const std::vector<const char*>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Error(Exit::usage, fmt::format("{}: '{}' is unknown", what, name), fmt::format("{}", fmt::join(names, ", ")));
  value = name;
}
const NamedChoice kDataForm = {[](const Recipe& r) { return r.data_form; },
                               [](Recipe& r, const std::string& name) {
                                 set_one_of(r.data_form, name, "data.form",
                                            {"auto", "texts", "chats", "pairs", "labels"});
                               }};
const NamedChoice kTrainOn = {[](const Recipe& r) { return r.train_on; },
                              [](Recipe& r, const std::string& name) {
                                set_one_of(r.train_on, name, "data.train_on", {"all", "assistant", "last"});
                              }};
const NamedChoice kOverflow = {
    [](const Recipe& r) { return r.overflow; },
    [](Recipe& r, const std::string& name) { set_one_of(r.overflow, name, "data.overflow", {"cut", "drop"}); }};

const NamedChoice kRecompute = {[](const Recipe& r) { return r.recompute; },
                                [](Recipe& r, const std::string& text) {
                                  if (text != "none" && text != "maps" && text != "layers" && text != "auto")
                                    (void)run::parse_amount(text,
                                                            "run.recompute (none, maps, layers, auto or an amount)");
                                  r.recompute = text;
                                }};
const NamedChoice kOffload = {[](const Recipe& r) { return r.offload; },
                              [](Recipe& r, const std::string& text) {
                                (void)offload_settings(text);
                                r.offload = text;
                              }};
const NamedChoice kMemoryLimit = {[](const Recipe& r) { return r.memory_limit; },
                                  [](Recipe& r, const std::string& text) {
                                    if (!text.empty()) (void)run::parse_amount(text, "memory.limit");
                                    r.memory_limit = text;
                                  }};
const NamedChoice kOnNan = {
    [](const Recipe& r) { return r.on_nan; },
    [](Recipe& r, const std::string& name) { set_one_of(r.on_nan, name, "run.on_nan", {"stop", "rollback"}); }};

const NamedChoice kParamRounding = {[](const Recipe& r) { return r.param_rounding; },
                                    [](Recipe& r, const std::string& name) {
                                      set_one_of(r.param_rounding, name, "run.param_rounding",
                                                 {"nearest", "stochastic"});
                                    }};

template <std::string ProductSettings::* member>
NamedChoice rounding() {
  return {[](const Recipe& r) { return r.products.*member; },
          [](Recipe& r, const std::string& name) {
            set_one_of(r.products.*member, name, "products: rounding", {"nearest", "stochastic"});
          }};
}
template <std::string ProductSettings::* member>
NamedChoice scale(std::initializer_list<const char*> sources) {
  static const std::vector<const char*> known(sources);
  return {[](const Recipe& r) { return r.products.*member; },
          [](Recipe& r, const std::string& name) {
            if (name == "learned" && member == &ProductSettings::gradient_scale)
              throw Error(Exit::usage, "products.gradient_scale: a gradient's scale cannot be learned",
                          "the backward pass is not differentiated, so that it has no gradient: fitted, or delayed");
            set_one_of(r.products.*member, name, "products: scale", known);
          }};
}

// Aliases from other programs: ZeRO's stages and FSDP's strategies.
const NamedChoice kShard = {[](const Recipe& r) { return r.shard; },
                            [](Recipe& r, const std::string& name) {
                              const std::string own = name == "0" || name == "no_shard"        ? "none"
                                                      : name == "1"                            ? "states"
                                                      : name == "2" || name == "shard_grad_op" ? "gradients"
                                                      : name == "3" || name == "full_shard"    ? "parameters"
                                                                                               : name;
                              set_one_of(r.shard, own, "ranks.shard", {"none", "states", "gradients", "parameters"});
                            }};

// A reference to a member: (double, schedule.peak).
#define LUMEN_MEMBER(Type, member) static_cast<Type& (*)(Recipe&)>([](Recipe& r) -> Type& { return r.member; })
using Text = std::string;
using Strings = std::vector<std::string>;
using Optional = std::optional<double>;

const RecipeKey kKeys[] = {
    {"model", "family", LUMEN_MEMBER(Text, family), 0, 0, Effect::model},
    {"model", "size", LUMEN_MEMBER(Text, size), 0, 0, Effect::model},
    {"model", "base", LUMEN_MEMBER(Text, base), 0, 0, Effect::none},
    {"data", "path", LUMEN_MEMBER(Text, data), 0, 0, Effect::none},
    {"data", "tokenizer", LUMEN_MEMBER(Text, tokenizer), 0, 0, Effect::none},
    {"data", "validation", LUMEN_MEMBER(double, validation), 0.001, 0.9},
    {"data", "validation_data", LUMEN_MEMBER(Text, validation_data), 0, 0, Effect::none},
    {"data", "form", kDataForm},
    {"data", "train_on", kTrainOn},
    {"data", "chat_template", LUMEN_MEMBER(Text, chat_template), 0, 0, Effect::none},
    {"data", "columns", LUMEN_MEMBER(Strings, columns)},
    {"data", "mix", LUMEN_MEMBER(Strings, mix)},
    {"data", "packing", LUMEN_MEMBER(bool, packing)},
    {"data", "overflow", kOverflow},
    {"data", "epochs", LUMEN_MEMBER(double, epochs), 0, 1e6},
    {"data", "strict", LUMEN_MEMBER(bool, strict), 0, 0, Effect::none},
    {"objective", "name", LUMEN_MEMBER(Text, objective.name)},
    {"objective", "text", LUMEN_MEMBER(Text, objective.text)},
    {"objective", "teacher", LUMEN_MEMBER(Text, objective.teacher), 0, 0, Effect::none},
    {"optimizer", "name", LUMEN_MEMBER(Text, optimizer.name)},
    {"optimizer", "beta1", LUMEN_MEMBER(Optional, optimizer.beta1), 0, 0.999999},
    {"optimizer", "beta2", LUMEN_MEMBER(Optional, optimizer.beta2), 0, 0.9999999},
    {"optimizer", "epsilon", LUMEN_MEMBER(Optional, optimizer.epsilon), 1e-30, 1},
    {"optimizer", "momentum", LUMEN_MEMBER(Optional, optimizer.momentum), 0, 0.999999},
    {"optimizer", "weight_decay", LUMEN_MEMBER(Optional, optimizer.weight_decay), 0, 1e6},
    {"optimizer", "max_grad_norm", LUMEN_MEMBER(double, optimizer.max_norm), 0, kMostRate},
    {"optimizer", "moments", LUMEN_MEMBER(Text, optimizer.moments)},
    {"optimizer", "second_moments", LUMEN_MEMBER(Text, optimizer.second_moments)},
    {"optimizer", "ema_decay", LUMEN_MEMBER(double, optimizer.ema_decay), 0, 0.9999999},
    {"adapter", "method", LUMEN_MEMBER(Text, adapter.method), 0, 0, Effect::model},
    {"adapter", "rank", LUMEN_MEMBER(int64_t, adapter.rank), 1, kMostExtent, Effect::model},
    {"adapter", "alpha", LUMEN_MEMBER(double, adapter.alpha), 0, 1e6, Effect::model},
    {"adapter", "rs_lora", LUMEN_MEMBER(bool, adapter.rs_lora), 0, 0, Effect::model},
    {"adapter", "targets", LUMEN_MEMBER(Strings, adapter.targets), 0, 0, Effect::model},
    {"adapter", "init", LUMEN_MEMBER(Text, adapter.init), 0, 0, Effect::model},
    {"adapter", "base_type", LUMEN_MEMBER(Text, adapter.base_type), 0, 0, Effect::model},
    {"adapter", "dropout", LUMEN_MEMBER(double, adapter.dropout), 0, 0.99},
    {"adapter", "b_rate", LUMEN_MEMBER(double, adapter.b_rate), 0, 1e6},
    {"ship", "type", LUMEN_MEMBER(Text, ship.type), 0, 0, Effect::model},
    {"ship", "fields", LUMEN_MEMBER(Text, ship.fields), 0, 0, Effect::model},
    {"ship", "magnitudes", LUMEN_MEMBER(bool, ship.magnitudes), 0, 0, Effect::model},
    {"ship", "trains", LUMEN_MEMBER(Strings, ship.trains)},
    {"ship", "max_kl", LUMEN_MEMBER(double, ship.max_kl), 0, 1e9, Effect::none},
    {"schedule", "shape", NamedChoice{get_shape, set_shape}},
    {"schedule", "learning_rate", LUMEN_MEMBER(double, schedule.peak), 0, kMostRate},
    {"schedule", "min_learning_rate", LUMEN_MEMBER(double, schedule.floor), 0, kMostRate},
    {"schedule", "warmup_steps", LUMEN_MEMBER(int64_t, schedule.warmup), 0, kMostSteps},
    {"schedule", "warmup_ratio", LUMEN_MEMBER(double, schedule.warmup_ratio), 0, 1},
    {"schedule", "steps", LUMEN_MEMBER(int64_t, schedule.steps), 1, kMostSteps},
    {"schedule", "decay_steps", LUMEN_MEMBER(int64_t, schedule.decay_steps), 0, kMostSteps},
    {"schedule", "final_steps", LUMEN_MEMBER(int64_t, schedule.final_steps), 0, kMostSteps},
    {"schedule", "power", LUMEN_MEMBER(double, schedule.power), 0, 100},
    {"schedule", "cycles", LUMEN_MEMBER(int64_t, schedule.cycles), 1, 1e6},
    {"run", "batch", LUMEN_MEMBER(int64_t, batch), 1, kMostExtent},
    {"run", "length", LUMEN_MEMBER(int64_t, length), 0, kMostExtent},
    {"run", "accumulate", LUMEN_MEMBER(int64_t, accumulate), 1, 1 << 20},
    {"run", "evaluate_every", LUMEN_MEMBER(int64_t, evaluate_every), 0, kMostSteps, Effect::none},
    {"run", "evaluate_windows", LUMEN_MEMBER(int64_t, evaluate_windows), 0, kMostSteps, Effect::none},
    {"run", "save_every", LUMEN_MEMBER(int64_t, save_every), 0, kMostSteps, Effect::none},
    {"run", "keep", LUMEN_MEMBER(int64_t, keep), 0, 1e9, Effect::none},
    {"run", "seed", LUMEN_MEMBER(uint32_t, seed), 0, 4294967295.0},
    {"run", "on_nan", kOnNan},
    {"run", "spike_factor", LUMEN_MEMBER(double, spike_factor), 0, kMostRate},
    {"run", "rollbacks", LUMEN_MEMBER(int64_t, rollbacks), 0, 1e6},
    {"run", "precision", LUMEN_MEMBER(Text, precision)},
    {"run", "recompute", kRecompute, 0, 0, Effect::none},
    {"run", "param_type", LUMEN_MEMBER(Text, param_type), 0, 0, Effect::model},
    {"run", "param_rounding", kParamRounding},
    {"run", "param_compensation", LUMEN_MEMBER(Text, param_compensation), 0, 0, Effect::model},
    {"products", "activation", LUMEN_MEMBER(Text, products.activation)},
    {"products", "weight", LUMEN_MEMBER(Text, products.weight)},
    {"products", "gradient", LUMEN_MEMBER(Text, products.gradient)},
    {"products", "attention", LUMEN_MEMBER(Text, products.attention)},
    {"products", "attention_gradient", LUMEN_MEMBER(Text, products.attention_gradient)},
    {"products", "forward_activation", LUMEN_MEMBER(Text, products.forward_activation)},
    {"products", "forward_weight", LUMEN_MEMBER(Text, products.forward_weight)},
    {"products", "input_weight", LUMEN_MEMBER(Text, products.input_weight)},
    {"products", "input_gradient", LUMEN_MEMBER(Text, products.input_gradient)},
    {"products", "weight_activation", LUMEN_MEMBER(Text, products.weight_activation)},
    {"products", "weight_gradient", LUMEN_MEMBER(Text, products.weight_gradient)},
    {"products", "activation_rounding", rounding<&ProductSettings::activation_rounding>()},
    {"products", "weight_rounding", rounding<&ProductSettings::weight_rounding>()},
    {"products", "gradient_rounding", rounding<&ProductSettings::gradient_rounding>()},
    {"products", "activation_scale", scale<&ProductSettings::activation_scale>({"fitted", "delayed", "learned"})},
    {"products", "weight_scale", scale<&ProductSettings::weight_scale>({"fitted", "delayed", "predicted", "learned"})},
    {"products", "gradient_scale", scale<&ProductSettings::gradient_scale>({"fitted", "delayed"})},
    {"products", "attention_scale", scale<&ProductSettings::attention_scale>({"fitted", "learned"})},
    {"products", "forward_rotation", LUMEN_MEMBER(int64_t, products.forward_rotation), 0, 4096},
    {"products", "input_rotation", LUMEN_MEMBER(int64_t, products.input_rotation), 0, 4096},
    {"products", "weight_rotation", LUMEN_MEMBER(int64_t, products.weight_rotation), 0, 4096},
    {"products", "history", LUMEN_MEMBER(int64_t, products.history), 1, 4096},
    {"products", "rescale_every", LUMEN_MEMBER(int64_t, products.rescale_every), 1, kMostSteps},
    {"ranks", "shard", kShard, 0, 0, Effect::none},
    {"ranks", "reduce_type", LUMEN_MEMBER(Text, reduce_type)},
    {"ranks", "gather_type", LUMEN_MEMBER(Text, gather_type)},
    {"ranks", "overlap", LUMEN_MEMBER(bool, overlap), 0, 0, Effect::none},
    {"ranks", "sequence_parallel", LUMEN_MEMBER(bool, sequence_parallel), 0, 0, Effect::none},
    {"ranks", "tensor_parallel", LUMEN_MEMBER(int64_t, tensor_parallel), 1, 256, Effect::none},
    {"memory", "kept", LUMEN_MEMBER(Text, kept)},
    {"memory", "limit", kMemoryLimit, 0, 0, Effect::none},
    {"memory", "offload", kOffload, 0, 0, Effect::none},
    {"evaluation", "tasks", LUMEN_MEMBER(Strings, eval_tasks), 0, 0, Effect::none},
    {"evaluation", "kl", LUMEN_MEMBER(bool, eval_kl), 0, 0, Effect::none},
    {"evaluation", "data", LUMEN_MEMBER(Text, eval_data), 0, 0, Effect::none},
    {"evaluation", "limit", LUMEN_MEMBER(int64_t, eval_limit), 0, 1e9, Effect::none},
    {"evaluation", "samples", LUMEN_MEMBER(Text, samples), 0, 0, Effect::none},
    {"evaluation", "sample_tokens", LUMEN_MEMBER(int64_t, sample_tokens), 1, 1 << 20, Effect::none},
    {"evaluation", "early_stopping", LUMEN_MEMBER(int64_t, early_stopping), 0, 1e9, Effect::none},
    {"evaluation", "metric", LUMEN_MEMBER(Text, metric), 0, 0, Effect::none},
    {"evaluation", "load_best", LUMEN_MEMBER(bool, load_best), 0, 0, Effect::none},
    {"report", "tensorboard", LUMEN_MEMBER(bool, tensorboard), 0, 0, Effect::none},
    {"output", "type", LUMEN_MEMBER(Text, output_type), 0, 0, Effect::none},
    {"output", "merge", LUMEN_MEMBER(Text, merge), 0, 0, Effect::none},
    {"output", "hugging_face", LUMEN_MEMBER(bool, hugging_face), 0, 0, Effect::none},
};
#undef LUMEN_MEMBER

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

bool holds(const RecipeKey& key, double value) {
  return value >= key.least && value <= key.most;  // never for NaN
}

double number_of(const RecipeKey& key, Recipe& recipe) {
  if (const auto real = std::get_if<double& (*)(Recipe&)>(&key.value)) return (*real)(recipe);
  if (const auto whole = std::get_if<int64_t& (*)(Recipe&)>(&key.value)) return (*whole)(recipe);
  if (const auto seed = std::get_if<uint32_t& (*)(Recipe&)>(&key.value)) return (*seed)(recipe);
  return std::get<Optional& (*)(Recipe&)>(key.value)(recipe).value();
}

bool is_given(const RecipeKey& key, Recipe& recipe) {
  const auto optional = std::get_if<Optional& (*)(Recipe&)>(&key.value);
  return !optional || (*optional)(recipe);
}

// Whole numbers are exact: their bounds are below 2^53.
void set_number(const RecipeKey& key, double value, Recipe& recipe) {
  if (const auto real = std::get_if<double& (*)(Recipe&)>(&key.value)) (*real)(recipe) = value;
  if (const auto whole = std::get_if<int64_t& (*)(Recipe&)>(&key.value)) (*whole)(recipe) = static_cast<int64_t>(value);
  if (const auto seed = std::get_if<uint32_t& (*)(Recipe&)>(&key.value)) (*seed)(recipe) = static_cast<uint32_t>(value);
  if (const auto optional = std::get_if<Optional& (*)(Recipe&)>(&key.value)) (*optional)(recipe) = value;
}

}  // namespace

std::span<const RecipeKey> recipe_keys() {
  return kKeys;
}

const RecipeKey& recipe_key(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const RecipeKey& k) { return k.name() == name; });
  LUMEN_CHECK(found != std::end(kKeys), "no recipe key {}", name);
  return *found;
}

std::string value_text(const RecipeKey& key, const Recipe& recipe) {
  auto& r = const_cast<Recipe&>(recipe);  // the rows' accessors are shared with writing
  return std::visit(Overloaded{
                        [&](std::string& (*get)(Recipe&)) { return model::quoted(get(r)); },
                        [&](std::vector<std::string>& (*get)(Recipe&)) { return model::quoted_list(get(r)); },
                        [&](const NamedChoice& choice) { return model::quoted(choice.get(r)); },
                        [&](Optional& (*get)(Recipe&)) { return get(r) ? fmt::format("{}", *get(r)) : std::string(); },
                        [&](const auto& get) { return fmt::format("{}", get(r)); },
                    },
                    key.value);
}

void read_value(const RecipeKey& key, const Toml& section, Recipe& recipe) {
  if (!section.has(key.key)) return;
  recipe.places[key.name()] = place_text(section.place(key.key));
  std::visit(Overloaded{
                 [&](bool& (*get)(Recipe&)) { get(recipe) = section.boolean(key.key); },
                 [&](std::string& (*get)(Recipe&)) { get(recipe) = section.text(key.key); },
                 [&](std::vector<std::string>& (*get)(Recipe&)) { get(recipe) = section.texts(key.key); },
                 [&](const NamedChoice& choice) {
                   const std::string text = section.text(key.key);
                   try {
                     choice.set(recipe, text);
                   } catch (const Error& e) {
                     throw error_at(section.place(key.key), e.what(), e.hint());
                   }
                 },
                 [&](double& (*get)(Recipe&)) { get(recipe) = section.number(key.key); },
                 [&](Optional& (*get)(Recipe&)) { get(recipe) = section.number(key.key); },
                 [&](int64_t& (*get)(Recipe&)) { get(recipe) = section.integer(key.key); },
                 [&](uint32_t& (*get)(Recipe&)) {
                   const int64_t value = section.integer(key.key);
                   if (holds(key, value))
                     get(recipe) = value;
                   else
                     throw error_at(section.place(key.key),
                                    fmt::format("{} must be {}, not {}", key.key, bounds_of(key.name()).text(), value));
                 },
             },
             key.value);
  if (!key.is_number()) return;
  if (const double value = number_of(key, recipe); !holds(key, value))
    throw error_at(section.place(key.key),
                   fmt::format("{} must be {}, not {}", key.key, bounds_of(key.name()).text(), value));
}

void set_value(const RecipeKey& key, const std::string& text, Recipe& recipe) {
  recipe.places.erase(key.name());
  if (key.is_number()) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end != 0) throw usage_error("{}: '{}' is no number", key.name(), text);
    if (!holds(key, value)) throw usage_error("{} must be {}, not {}", key.name(), bounds_of(key.name()).text(), text);
    if (key.is_whole() && value != std::floor(value))
      throw usage_error("{} must be a whole number, not {}", key.name(), text);
    set_number(key, value, recipe);
    return;
  }
  std::visit(Overloaded{
                 [&](bool& (*get)(Recipe&)) {
                   if (text != "true" && text != "false")
                     throw usage_error("{} must be true or false, not '{}'", key.name(), text);
                   get(recipe) = text == "true";
                 },
                 [&](std::string& (*get)(Recipe&)) { get(recipe) = text; },
                 [&](std::vector<std::string>& (*get)(Recipe&)) {
                   std::vector<std::string>& list = get(recipe);
                   list.clear();
                   for (size_t at = 0; at <= text.size();) {
                     const size_t comma = std::min(text.find(',', at), text.size());
                     if (comma > at) list.push_back(text.substr(at, comma - at));
                     at = comma + 1;
                   }
                 },
                 [&](const NamedChoice& choice) { choice.set(recipe, text); },
                 [&](const auto&) {},
             },
             key.value);
}

void check_value(const RecipeKey& key, const Recipe& recipe) {
  auto& r = const_cast<Recipe&>(recipe);
  if (!key.is_number() || !is_given(key, r)) return;
  const double value = number_of(key, r);
  if (!holds(key, value))
    throw usage_error("{}{} must be {}, not {}", place_of(recipe, key.name()), key.name(), bounds_of(key.name()).text(),
                      value);
}

std::string place_text(const Place& place) {
  const LineColumn at = line_column(place);
  return fmt::format("{}:{}:{}", place.source ? place.source->name : "", at.line, at.column);
}

std::string place_of(const Recipe& recipe, const std::string& key) {
  const auto at = recipe.places.find(key);
  return at == recipe.places.end() ? "" : at->second + ": ";
}

std::string place_of_section(const Recipe& recipe, const std::string& section, const std::string& message) {
  std::string first;
  for (const auto& [key, place] : recipe.places) {
    if (!key.starts_with(section + ".")) continue;
    if (message.find(key.substr(section.size() + 1)) != std::string::npos) return place + ": ";
    if (first.empty()) first = place + ": ";
  }
  return first;
}

std::string quoted(const std::string& text) {
  std::string q = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      q += fmt::format("\\u{:04x}", byte);
      continue;
    }
    if (c == '"' || c == '\\') q += '\\';
    q += c;
  }
  return q + "\"";
}

std::string quoted_list(const std::vector<std::string>& strings) {
  std::string all = "[";
  for (size_t i = 0; i < strings.size(); ++i) all += (i ? ", " : "") + quoted(strings[i]);
  return all + "]";
}

}  // namespace lumen::model
