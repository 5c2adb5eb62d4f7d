#include "model/recipe/recipe.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/error.h"
#include "base/naming.h"
#include "model/arch/split_weights.h"
#include "model/recipe/recipe_keys.h"
#include "number/facts/facts.h"

namespace lumen::model::recipe {
namespace {

FieldSource field_source(const Toml& table, std::string_view key) {
  const std::string name = table.text(key, "fitted");
  if (name == "fitted") return FieldSource::fitted;
  if (name == "learned") return FieldSource::learned;
  throw error_at(table.place(key), fmt::format("unknown source '{}'", name),
                 "sources in a training recipe: fitted, learned");
}

std::vector<std::string> one_or_many(const Toml& table, std::string_view key) {
  if (table.kind(key) == Toml::Kind::text) return {table.text(key)};
  return table.texts(key);
}

// A number, boolean or string, as a string.
std::string plain_text(const Toml& table, const std::string& key) {
  if (table.kind(key) == Toml::Kind::text) return table.text(key);
  if (table.kind(key) == Toml::Kind::boolean) return table.boolean(key) ? "true" : "false";
  return fmt::format("{}", table.number(key));
}

// The number of layers for "first 4" or "first 1/8"; -1 for other strings.
int64_t first_layers(const std::string& choice, int64_t layers) {
  int number = 0, share = 0, end = 0;
  if (std::sscanf(choice.c_str(), "first 1/%4d%n", &share, &end) == 1 && share > 0 && choice.c_str()[end] == 0) {
    return layers / share;
  }
  if (std::sscanf(choice.c_str(), "first %4d%n", &number, &end) == 1 && number >= 0 && choice.c_str()[end] == 0)
    return number;
  return -1;
}

// The first layer of "from 7/8"; -1 for other strings.
int64_t layers_from(const std::string& choice, int64_t layers) {
  int part = 0, share = 0, end = 0;
  const bool read = std::sscanf(choice.c_str(), "from %4d/%4d%n", &part, &share, &end) == 2;
  return read && part >= 0 && share > 0 && choice.c_str()[end] == 0 ? part * layers / share : -1;
}

bool names_layers(const std::string& choice) {
  return choice == "all" || choice == "more" || first_layers(choice, 8) >= 0 || layers_from(choice, 8) >= 0;
}

QuantizeRule read_rule(const Toml& table) {
  QuantizeRule rule;
  rule.values = one_or_many(table, "value");
  rule.roles = one_or_many(table, "role");
  rule.tensors = one_or_many(table, "tensor");
  if (const auto scope = table.table("model")) rule.scope = RuleScope::read(*scope);
  rule.layers = table.text("layers", rule.layers);
  rule.format = table.text("format");
  rule.place = place_text(table.place("format"));
  rule.source = field_source(table, "source");
  if (rule.values.empty() && rule.roles.empty() && rule.tensors.empty()) rule.values = {"*"};
  if (table.has("importance")) rule.importance = table.boolean("importance");
  if (!names_layers(rule.layers)) {
    throw error_at(table.place("layers"), fmt::format("unknown choice of layers '{}'", rule.layers),
                   "choices: all, more (first and last eighth and every third between), \"first 4\", \"first 1/8\", "
                   "\"from 7/8\"");
  }
  return rule;
}

// The layer of "layers.12.wq"; -1 for parameters outside the layers.
int64_t layer_of(const std::string& parameter) {
  if (!parameter.starts_with("layers.")) return -1;
  return std::strtoll(parameter.c_str() + 7, nullptr, 10);
}

bool layer_chosen(const std::string& choice, int64_t layer, int64_t layers) {
  if (choice == "all" || layer < 0) return choice == "all";
  if (choice == "more") return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  if (const int64_t from = layers_from(choice, layers); from >= 0) return layer >= from;
  return layer < first_layers(choice, layers);
}

bool is_exact_name(const std::string& pattern) {
  return pattern.find_first_of("*?") == std::string::npos;
}

bool rule_applies(const QuantizeRule& rule, const arch::Parameter& p, int64_t layers) {
  if (!layer_chosen(rule.layers, layer_of(p.name), layers)) return false;
  const bool ordinary = !p.is_vector() && !p.frozen;
  for (const std::string& pattern : rule.values) {
    if (matches(pattern, p.name) && (ordinary || is_exact_name(pattern))) return true;
  }
  if (ordinary && std::any_of(rule.tensors.begin(), rule.tensors.end(),
                              [&](const std::string& pattern) { return matches(pattern, p.gguf); }))
    return true;
  return ordinary && std::find(rule.roles.begin(), rule.roles.end(), p.role) != rule.roles.end();
}

}  // namespace

std::string Bounds::text() const {
  return fmt::format("{} to {}", least, most);
}

Bounds bounds_of(const std::string& key) {
  const RecipeKey& row = recipe_key(key);
  LUMEN_CHECK(row.is_number(), "{} has no bounds", key);
  return {row.least, row.most};
}

void in_section(const Recipe& r, const std::string& section, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& e) {
    const std::string place = place_of_section(r, section, e.what());
    const std::string message = e.what();
    if (place.empty() || message.starts_with(place)) throw;
    throw Error(e.code(), place + message, e.hint());
  }
}

void check_recipe(const Recipe& r) {
  for (const RecipeKey& key : recipe_keys()) check_value(key, r);
  in_section(r, "adapter", [&] { check_adapter(r.adapter); });
  in_section(r, "ship", [&] { check_ship(r.ship); });
  if (!r.merge.empty() && r.ship.ships())
    throw usage_error("--merge and --ship contradict each other: --ship merges the adapter");
  if (r.ship.ships() && !r.adapter.trains())
    throw Error(Exit::usage, "--ship needs an adapter, but none is trained",
                "add --lora; --format quantizes a model whose weights are all trained");
  if (!r.merge.empty() && !r.adapter.trains()) throw usage_error("--merge needs an adapter, but none is trained");
  if (ends_at_floor(r.schedule.shape) && r.schedule.floor > r.schedule.peak) {
    throw usage_error("{}min_learning_rate {} is above learning_rate {}", place_of(r, "schedule.min_learning_rate"),
                      r.schedule.floor, r.schedule.peak);
  }
  if (r.schedule.decay_steps > r.schedule.steps) {
    throw usage_error("{}decay_steps {} is more than steps {}", place_of(r, "schedule.decay_steps"),
                      r.schedule.decay_steps, r.schedule.steps);
  }
}

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

namespace {

// A number of steps and a ratio are alternatives: the given one replaces the other.
void read_warmup(const Toml& file, Recipe& r) {
  constexpr const char *kSteps = "warmup_steps", *kRatio = "warmup_ratio";
  const auto section = file.table("schedule");
  if (!section) return;
  const bool steps = section->has(kSteps), ratio = section->has(kRatio);
  if (steps && ratio && r.schedule.warmup > 0 && r.schedule.warmup_ratio > 0)
    throw error_at(section->place(kRatio), "warmup_ratio and warmup_steps contradict each other",
                   "set only one of them");
  if (steps && !ratio) r.schedule.warmup_ratio = 0;
  if (ratio && r.schedule.warmup_ratio > 0) r.schedule.warmup = 0;
}

// Keys that a recipe and each of its phases may have.
void read_sections(const Toml& file, Recipe& r) {
  for (const RecipeKey& key : recipe_keys())
    if (const auto section = file.table(key.section)) read_value(key, *section, r);
  read_warmup(file, r);
  if (const auto model = file.table("model")) {
    if (const auto config = model->table("config"))
      for (const std::string& key : config->keys()) r.config[key] = config->number(key);
  }
  if (const auto optimizer = file.table("optimizer")) {
    if (const auto config = optimizer->table("config"))
      for (const std::string& key : config->keys()) r.optimizer.config[key] = plain_text(*config, key);
  }
  if (const auto objective = file.table("objective")) {
    // Settings of the previous objective do not apply to a new one.
    if (objective->has("name")) r.objective.settings.clear();
    if (objective->has("name") && !objective->has("text")) r.objective.text.clear();
    if (const auto settings = objective->table("settings"))
      for (const std::string& key : settings->keys()) r.objective.settings[key] = settings->number(key);
    take_text(r.objective);
  }
  if (const auto rules = file.tables("quantize"); !rules.empty()) {
    r.quantize.clear();
    for (const Toml& t : rules) r.quantize.push_back(read_rule(t));
  }
  if (const auto groups = file.tables("group"); !groups.empty()) {
    r.groups.clear();
    for (const Toml& t : groups) r.groups.push_back(ParameterGroup::read(t));
  }
}

Phase read_phase(const Toml& table, const Recipe& base) {
  Phase phase;
  phase.name = table.text("name");
  phase.begin = table.text("begin", phase.begin);
  Recipe own = base;
  read_sections(table, own);
  phase.text = changed_values(base, own);
  return phase;
}

// As part of the whole recipe: its tables are below [[phase]].
std::string phase_text(const Phase& phase) {
  std::string out = fmt::format("[[phase]]\nname = {}\nbegin = {}\n", quoted(phase.name), quoted(phase.begin));
  for (size_t at = 0; at < phase.text.size();) {
    const size_t end = phase.text.find('\n', at);
    const std::string line = phase.text.substr(at, end - at);
    if (line.starts_with("[["))
      out += "[[phase." + line.substr(2) + "\n";
    else if (line.starts_with("["))
      out += "[phase." + line.substr(1) + "\n";
    else
      out += line + "\n";
    at = end + 1;
  }
  return out;
}

// As on a command line.
std::vector<std::string> option_values(const Toml& t, const std::string& key) {
  switch (t.kind(key)) {
    case Toml::Kind::text:
      return {t.text(key)};
    case Toml::Kind::integer:
      return {fmt::format("{}", t.integer(key))};
    case Toml::Kind::number:
      return {fmt::format("{}", t.number(key))};
    case Toml::Kind::boolean:
      return {t.boolean(key) ? "true" : "false"};
    default:
      return t.texts(key);
  }
}

}  // namespace

Recipe parse_recipe(std::string text, std::string name, Recipe base) {
  const Toml file = Toml::parse(std::move(text), name);
  Recipe r = std::move(base);
  r.name = std::move(name);
  (void)file.text("doc", "");
  read_sections(file, r);
  if (const auto t = file.table("file")) {
    r.file_type = t->integer("type", r.file_type);
    if (t->has("also")) r.also = t->texts("also");
  }
  if (const auto t = file.table("fallback"))
    for (const std::string& key : t->keys()) r.fallback[key] = t->text(key);
  if (const auto t = file.table("demo")) {
    r.demo_formats = t->texts("formats");
    r.demo_trained = t->texts("trained");
    r.demo_sample = t->text("sample", r.demo_sample);
    r.demo_tuning_steps = t->integer("tuning_steps", r.demo_tuning_steps);
    if (r.demo_tuning_steps < 0) throw error_at(t->place("tuning_steps"), "tuning_steps must be 0 or more");
  }
  if (const auto t = file.table("compress"))
    for (const std::string& key : t->keys()) r.compress.emplace_back(key, option_values(*t, key));
  if (const auto phases = file.tables("phase"); !phases.empty()) {
    r.phases.clear();
    Recipe base_of_all = r;
    for (const Toml& t : phases) r.phases.push_back(read_phase(t, base_of_all));
  }
  file.refuse_unknown();
  return r;
}

std::vector<RecipeValue> values_of(const Recipe& r) {
  std::vector<RecipeValue> out;
  std::string section;
  const auto put = [&](const char* key, const auto& value) { out.push_back({section, key, fmt::format("{}", value)}); };
  for (const RecipeKey& key : recipe_keys()) {
    if (section == "model" && key.section != section) {
      section = "model.config";
      for (const auto& [name, value] : r.config) put(name.c_str(), value);
    }
    if (section == "optimizer" && key.section != section) {
      section = "optimizer.config";
      for (const auto& [name, text] : r.optimizer.config) put(name.c_str(), quoted(text));
    }
    if (section == "objective" && key.section != section) {
      section = "objective.settings";
      for (const auto& [name, value] : r.objective.settings) put(name.c_str(), value);
    }
    section = key.section;
    if (std::string text = value_text(key, r); !text.empty()) out.push_back({section, key.key, std::move(text)});
  }
  section = "file";
  if (r.file_type >= 0) put("type", r.file_type);
  if (!r.also.empty()) put("also", quoted_list(r.also));
  section = "fallback";
  for (const auto& [from, to] : r.fallback) put(from.c_str(), quoted(to));
  std::string groups;
  for (const ParameterGroup& g : r.groups) groups += g.text();
  out.push_back({"", "[[group]]", groups});
  std::string rules;
  for (const QuantizeRule& q : r.quantize) {
    rules += fmt::format("[[quantize]]\nvalue = {}\nrole = {}\nlayers = {}\nformat = {}\nsource = \"{}\"\n",
                         quoted_list(q.values), quoted_list(q.roles), quoted(q.layers), quoted(q.format),
                         q.source == FieldSource::learned ? "learned" : "fitted");
    if (!q.tensors.empty()) rules += fmt::format("tensor = {}\n", quoted_list(q.tensors));
    if (!q.scope.everywhere()) rules += fmt::format("model = {}\n", q.scope.text());
    if (q.importance) rules += fmt::format("importance = {}\n", *q.importance);
  }
  out.push_back({"", "[[quantize]]", rules});
  std::string phases;
  for (const Phase& p : r.phases) phases += phase_text(p);
  out.push_back({"", "[[phase]]", phases});
  return out;
}

std::string changed_values(const Recipe& base, const Recipe& now) {
  std::map<std::string, std::string> before;
  for (const RecipeValue& v : values_of(base)) before[v.section + "." + v.key] = v.text;
  std::string out, section;
  for (const RecipeValue& v : values_of(now)) {
    // Settings belong to an objective: those of another one are not inherited.
    const bool of_another = v.section == "objective.settings" && base.objective.name != now.objective.name;
    const auto was = before.find(v.section + "." + v.key);
    if (was != before.end() && was->second == v.text && !of_another) continue;
    if (v.section.empty()) {
      out += v.text;
      continue;
    }
    if (v.section != section) out += fmt::format("[{}]\n", section = v.section);
    out += fmt::format("{} = {}\n", v.key, v.text);
  }
  return out;
}

namespace {

std::string text_of(const std::vector<RecipeValue>& values) {
  std::string out, section;
  for (const RecipeValue& v : values) {
    if (v.section.empty()) {
      out += v.text;
      continue;
    }
    if (v.section != section) out += fmt::format("[{}]\n", section = v.section);
    out += fmt::format("{} = {}\n", v.key, v.text);
  }
  return out;
}

}  // namespace

std::string describe(const Recipe& recipe) {
  return text_of(values_of(recipe));
}

std::string describe_training(const Recipe& recipe) {
  std::vector<RecipeValue> values = values_of(recipe);
  std::erase_if(values, [](const RecipeValue& v) {
    const auto keys = recipe_keys();
    return std::any_of(keys.begin(), keys.end(), [&](const RecipeKey& k) {
      return k.effect == RecipeEffect::none && k.section == v.section && k.key == v.key;
    });
  });
  return text_of(values);
}

graph::ProductType product_type(const std::string& precision, const FormatLibrary& formats) {
  const FormatRef format = formats.get(precision);
  for (const Scalar s : {Scalar::f32, Scalar::f16, Scalar::bf16})
    if (arch::is_plain(*format, s)) return s;
  if (const FieldType* t = plain_field(*format); t && t->is_float && t->has_sign && t->bits == 8)
    return {Scalar::bf16, format};
  throw Error(Exit::user, fmt::format("precision '{}' is neither a plain float type nor one 8 bit float", precision),
              "name one such as f32, or round parameters to this format with --format or a [[quantize]] rule");
}

bool is_recipe_of_products(const arch::Library& library, const std::string& precision) {
  const FormatRef format = library.formats().find(precision);
  return library.recipe(precision) && !(format && plain_field(*format));
}

graph::ProductType product_type(const Recipe& recipe, const FormatLibrary& formats) {
  graph::ProductType type = product_type(recipe.precision, formats);
  set_formats(type, recipe.products, formats);
  return type;
}

namespace {

FormatRef format_of(const QuantizeRule& rule, const FormatLibrary& formats) {
  if (rule.place.empty()) return formats.get(rule.format);
  return naming(rule.place, [&] { return formats.get(rule.format); });
}

}  // namespace

std::map<std::string, std::pair<FormatRef, FieldSource>> formats_by_rule(const std::vector<QuantizeRule>& rules,
                                                                         const arch::Model& model, bool importance) {
  std::map<std::string, std::pair<FormatRef, FieldSource>> chosen;
  const auto layer_count = model.config.find("layers");
  const int64_t layers = layer_count == model.config.end() ? 0 : static_cast<int64_t>(layer_count->second);
  const std::vector<arch::Parameter> all = all_own_parameters(model);
  for (const QuantizeRule& rule : rules) {
    const FormatRef format = format_of(rule, model.family->library().formats());
    if (!rule.scope.holds(model) || rule.importance.value_or(importance) != importance) continue;
    // A tied model has no output matrix, so rules for one have no effect. But an unknown name is a mistake.
    QuantizeRule anywhere = rule;
    anywhere.layers = "all";
    if (rule.tensors.empty() && std::none_of(all.begin(), all.end(), [&](const arch::Parameter& p) {
          return rule_applies(anywhere, p, layers);
        })) {
      throw Error(Exit::user,
                  fmt::format("{}{}a rule for format '{}' matches no parameter of this model", rule.place,
                              rule.place.empty() ? "" : ": ", rule.format),
                  "`lumen inspect` lists the parameters and their roles");
    }
    for (const arch::Parameter& p : model.parameters) {
      if (rule_applies(rule, p, layers)) chosen[p.name] = {format, rule.source};
    }
  }
  return chosen;
}

std::vector<graph::FormatAssignment> fake_assignments(const std::vector<QuantizeRule>& rules,
                                                      const arch::Model& model) {
  std::vector<graph::FormatAssignment> assignments;
  for (const auto& [name, choice] : formats_by_rule(rules, model)) {
    const arch::Parameter* p = model.find(name);
    const int64_t columns = p->shape.empty() ? 1 : p->shape.back().number();
    if (columns % choice.first->block != 0) {
      throw Error(Exit::user,
                  fmt::format("format '{}' has blocks of {}, but parameter '{}' has rows of {}", choice.first->name,
                              choice.first->block, name, columns),
                  "name another format for it in a later [[quantize]] rule of the recipe");
    }
    graph::FormatAssignment a;
    a.what = graph::FormatAssignment::What::fake;
    a.value = name;
    a.format = choice.first;
    a.source = choice.second;
    assignments.push_back(std::move(a));
  }
  return assignments;
}

}  // namespace lumen::model::recipe
