#include "model/train/recipe.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/error.h"
#include "number/facts.h"

namespace lumen::model {
namespace {

FieldSource field_source(const Toml& table, std::string_view key) {
  const std::string name = table.text(key, "fitted");
  if (name == "fitted") return FieldSource::fitted;
  if (name == "learned") return FieldSource::learned;
  throw error_at(table.place(key), fmt::format("unknown source '{}'", name),
                 "sources of a training recipe: fitted, learned");
}

std::vector<std::string> one_or_many(const Toml& table, std::string_view key) {
  if (table.kind(key) == Toml::Kind::text) return {table.text(key)};
  return table.texts(key);
}

// How many layers "first 4" or "first 1/8" are; -1 for another text.
int64_t first_layers(const std::string& choice, int64_t layers) {
  int number = 0, share = 0, end = 0;
  if (std::sscanf(choice.c_str(), "first 1/%4d%n", &share, &end) == 1 && share > 0 && choice.c_str()[end] == 0) {
    return layers / share;
  }
  if (std::sscanf(choice.c_str(), "first %4d%n", &number, &end) == 1 && number >= 0 && choice.c_str()[end] == 0)
    return number;
  return -1;
}

QuantizeRule read_rule(const Toml& table) {
  QuantizeRule rule;
  rule.values = one_or_many(table, "value");
  rule.roles = one_or_many(table, "role");
  rule.tensors = one_or_many(table, "tensor");
  if (const auto scope = table.table("model")) rule.scope = RuleScope::read(*scope);
  rule.layers = table.text("layers", rule.layers);
  rule.format = table.text("format");
  rule.source = field_source(table, "source");
  if (rule.values.empty() && rule.roles.empty() && rule.tensors.empty()) rule.values = {"*"};
  if (rule.layers != "all" && rule.layers != "more" && first_layers(rule.layers, 8) < 0) {
    throw error_at(table.place("layers"), fmt::format("unknown choice of layers '{}'", rule.layers),
                   "choices: all, more (first and last eighth and every third between), \"first 4\", \"first 1/8\"");
  }
  return rule;
}

// Layer of "layers.12.wq"; -1 for parameters outside the layers.
int64_t layer_of(const std::string& parameter) {
  if (!parameter.starts_with("layers.")) return -1;
  return std::strtoll(parameter.c_str() + 7, nullptr, 10);
}

bool layer_chosen(const std::string& choice, int64_t layer, int64_t layers) {
  if (choice == "all" || layer < 0) return choice == "all";
  if (choice == "more") return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
  return layer < first_layers(choice, layers);
}

bool is_exact_name(const std::string& pattern) {
  return pattern.find_first_of("*?") == std::string::npos;
}

bool rule_applies(const QuantizeRule& rule, const Parameter& p, int64_t layers) {
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

constexpr double kMostSteps = 1e12, kMostRate = 1e30, kMostExtent = 1 << 24;
constexpr Bounds kBounds[] = {
    {"data.validation", 0.001, 0.9},
    {"optimizer.beta1", 0, 0.999999},
    {"optimizer.beta2", 0, 0.9999999},
    {"optimizer.epsilon", 1e-30, 1},
    {"optimizer.weight_decay", 0, 1e6},
    {"optimizer.max_grad_norm", 0, kMostRate},
    {"schedule.learning_rate", 0, kMostRate},
    {"schedule.min_learning_rate", 0, kMostRate},
    {"schedule.warmup_steps", 0, kMostSteps},
    {"schedule.steps", 1, kMostSteps},
    {"schedule.decay_steps", 0, kMostSteps},
    {"run.batch", 1, kMostExtent},
    {"run.length", 0, kMostExtent},
    {"run.accumulate", 1, 1 << 20},
    {"run.evaluate_every", 0, kMostSteps},
    {"run.evaluate_windows", 0, kMostSteps},
    {"run.save_every", 0, kMostSteps},
    {"run.keep", 0, 1e9},
    {"run.seed", 0, 4294967295.0},
    {"demo.tuning_steps", 0, kMostSteps},
};

// Reads numbers of one section within their bounds.
class Section {
 public:
  Section(const Toml& table, std::string name) : table_(table), name_(std::move(name)) {}

  void number(const char* key, double& value) const {
    value = table_.number(key, value);
    check(key, value);
  }
  void integer(const char* key, int64_t& value) const {
    value = table_.integer(key, value);
    check(key, static_cast<double>(value));
  }

 private:
  void check(const char* key, double value) const {
    const Bounds& b = bounds_of(name_ + "." + key);
    if (table_.has(key) && !b.holds(value))
      throw error_at(table_.place(key), fmt::format("{} must be {}, not {}", key, b.text(), value));
  }
  const Toml& table_;
  std::string name_;
};

std::string quoted(const std::string& s) {
  std::string q = "\"";
  for (const char c : s) {
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

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text = "[";
  for (size_t i = 0; i < names.size(); ++i) text += (i ? ", " : "") + quoted(names[i]);
  return text + "]";
}

std::string shape_name(Schedule::Shape shape) {
  const char* names[] = {"cosine", "linear", "constant"};
  return names[static_cast<int>(shape)];
}

}  // namespace

std::string Bounds::text() const {
  return fmt::format("{} to {}", least, most);
}

const Bounds& bounds_of(const std::string& key) {
  const auto found =
      std::find_if(std::begin(kBounds), std::end(kBounds), [&](const Bounds& b) { return key == b.key; });
  LUMEN_CHECK(found != std::end(kBounds), "no bounds of {}", key);
  return *found;
}

void check_recipe(const Recipe& r) {
  const auto check = [](const char* key, auto value) {
    const Bounds& b = bounds_of(key);
    if (!b.holds(static_cast<double>(value))) throw usage_error("{} must be {}, not {}", key, b.text(), value);
  };
  check("data.validation", r.validation);
  check("optimizer.beta1", r.adam.beta1);
  check("optimizer.beta2", r.adam.beta2);
  check("optimizer.epsilon", r.adam.epsilon);
  check("optimizer.weight_decay", r.adam.weight_decay);
  check("optimizer.max_grad_norm", r.adam.max_norm);
  check("schedule.learning_rate", r.schedule.peak);
  check("schedule.min_learning_rate", r.schedule.floor);
  check("schedule.warmup_steps", r.schedule.warmup);
  check("schedule.steps", r.schedule.steps);
  check("schedule.decay_steps", r.schedule.decay_steps);
  check("run.batch", r.batch);
  check("run.length", r.length);
  check("run.accumulate", r.accumulate);
  check("run.evaluate_every", r.evaluate_every);
  check("run.evaluate_windows", r.evaluate_windows);
  check("run.save_every", r.save_every);
  check("run.keep", r.keep);
  if (r.schedule.shape != Schedule::Shape::constant && r.schedule.floor > r.schedule.peak) {
    throw usage_error("min_learning_rate {} is above learning_rate {}", r.schedule.floor, r.schedule.peak);
  }
  if (r.schedule.decay_steps > r.schedule.steps) {
    throw usage_error("decay_steps {} is more than steps {}", r.schedule.decay_steps, r.schedule.steps);
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

Recipe parse_recipe(std::string text, std::string name, Recipe base) {
  const Toml file = Toml::parse(std::move(text), name);
  Recipe r = std::move(base);
  r.name = std::move(name);
  (void)file.text("doc", "");
  if (const auto t = file.table("model")) {
    r.family = t->text("family", r.family);
    r.size = t->text("size", r.size);
    if (const auto config = t->table("config")) {
      for (const std::string& key : config->keys()) r.config[key] = config->number(key);
    }
  }
  if (const auto t = file.table("data")) {
    r.data = t->text("path", r.data);
    r.tokenizer = t->text("tokenizer", r.tokenizer);
    Section(*t, "data").number("validation", r.validation);
  }
  if (const auto t = file.table("optimizer")) {
    const Section section(*t, "optimizer");
    section.number("beta1", r.adam.beta1);
    section.number("beta2", r.adam.beta2);
    section.number("epsilon", r.adam.epsilon);
    section.number("weight_decay", r.adam.weight_decay);
    section.number("max_grad_norm", r.adam.max_norm);
  }
  if (const auto t = file.table("schedule")) {
    const Section section(*t, "schedule");
    r.schedule.shape = schedule_shape(t->text("shape", shape_name(r.schedule.shape)));
    section.number("learning_rate", r.schedule.peak);
    section.number("min_learning_rate", r.schedule.floor);
    section.integer("warmup_steps", r.schedule.warmup);
    section.integer("steps", r.schedule.steps);
    section.integer("decay_steps", r.schedule.decay_steps);
  }
  if (const auto t = file.table("run")) {
    const Section section(*t, "run");
    section.integer("batch", r.batch);
    section.integer("length", r.length);
    section.integer("accumulate", r.accumulate);
    section.integer("evaluate_every", r.evaluate_every);
    section.integer("evaluate_windows", r.evaluate_windows);
    section.integer("save_every", r.save_every);
    section.integer("keep", r.keep);
    int64_t seed = r.seed;
    section.integer("seed", seed);
    r.seed = static_cast<uint32_t>(seed);
    r.precision = t->text("precision", r.precision);
    r.param_type = t->text("param_type", r.param_type);
  }
  if (const auto t = file.table("output")) {
    r.output_type = t->text("type", r.output_type);
    r.hugging_face = t->boolean("hugging_face", r.hugging_face);
  }
  if (const auto rules = file.tables("quantize"); !rules.empty()) {
    r.quantize.clear();
    for (const Toml& t : rules) r.quantize.push_back(read_rule(t));
  }
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
    Section(*t, "demo").integer("tuning_steps", r.demo_tuning_steps);
  }
  file.refuse_unknown();
  return r;
}

std::vector<RecipeValue> values_of(const Recipe& r) {
  std::vector<RecipeValue> out;
  std::string section;
  const auto put = [&](const char* key, const auto& value) { out.push_back({section, key, fmt::format("{}", value)}); };
  section = "model";
  put("family", quoted(r.family));
  put("size", quoted(r.size));
  section = "model.config";
  for (const auto& [key, value] : r.config) put(key.c_str(), value);
  section = "data";
  put("path", quoted(r.data));
  put("tokenizer", quoted(r.tokenizer));
  put("validation", r.validation);
  section = "optimizer";
  put("beta1", r.adam.beta1);
  put("beta2", r.adam.beta2);
  put("epsilon", r.adam.epsilon);
  put("weight_decay", r.adam.weight_decay);
  put("max_grad_norm", r.adam.max_norm);
  section = "schedule";
  put("shape", quoted(shape_name(r.schedule.shape)));
  put("learning_rate", r.schedule.peak);
  put("min_learning_rate", r.schedule.floor);
  put("warmup_steps", r.schedule.warmup);
  put("steps", r.schedule.steps);
  put("decay_steps", r.schedule.decay_steps);
  section = "run";
  put("batch", r.batch);
  put("length", r.length);
  put("accumulate", r.accumulate);
  put("evaluate_every", r.evaluate_every);
  put("evaluate_windows", r.evaluate_windows);
  put("save_every", r.save_every);
  put("keep", r.keep);
  put("seed", r.seed);
  put("precision", quoted(r.precision));
  put("param_type", quoted(r.param_type));
  section = "output";
  put("type", quoted(r.output_type));
  put("hugging_face", r.hugging_face);
  section = "file";
  if (r.file_type >= 0) put("type", r.file_type);
  if (!r.also.empty()) put("also", quoted_list(r.also));
  section = "fallback";
  for (const auto& [from, to] : r.fallback) put(from.c_str(), quoted(to));
  std::string rules;
  for (const QuantizeRule& q : r.quantize) {
    rules += fmt::format("[[quantize]]\nvalue = {}\nrole = {}\nlayers = {}\nformat = {}\nsource = \"{}\"\n",
                         quoted_list(q.values), quoted_list(q.roles), quoted(q.layers), quoted(q.format),
                         q.source == FieldSource::learned ? "learned" : "fitted");
    if (!q.tensors.empty()) rules += fmt::format("tensor = {}\n", quoted_list(q.tensors));
    if (!q.scope.everywhere()) rules += fmt::format("model = {}\n", q.scope.text());
  }
  out.push_back({"", "[[quantize]]", rules});
  return out;
}

std::string describe(const Recipe& recipe) {
  std::string out, section;
  for (const RecipeValue& v : values_of(recipe)) {
    if (v.section.empty()) {
      out += v.text;
      continue;
    }
    if (v.section != section) out += fmt::format("[{}]\n", section = v.section);
    out += fmt::format("{} = {}\n", v.key, v.text);
  }
  return out;
}

graph::ProductType product_type(const std::string& precision, const FormatLibrary& formats) {
  const FormatRef format = formats.get(precision);
  for (const Scalar s : {Scalar::f32, Scalar::f16, Scalar::bf16})
    if (is_plain(*format, s)) return s;
  if (const FieldType* t = plain_field(*format); t && t->is_float && t->has_sign && t->bits == 8)
    return {Scalar::bf16, format};
  throw Error(Exit::user, fmt::format("precision '{}' is neither a plain float type nor one 8 bit float", precision),
              "name one such as f32, or round parameters to this format with --format or a [[quantize]] rule");
}

std::map<std::string, std::pair<FormatRef, FieldSource>> formats_by_rule(const std::vector<QuantizeRule>& rules,
                                                                         const Model& model) {
  std::map<std::string, std::pair<FormatRef, FieldSource>> chosen;
  const auto layer_count = model.config.find("layers");
  const int64_t layers = layer_count == model.config.end() ? 0 : static_cast<int64_t>(layer_count->second);
  const std::vector<Parameter> all = model.family->all_parameters(model.config);
  for (const QuantizeRule& rule : rules) {
    const FormatRef format = model.family->library().formats().get(rule.format);
    if (!rule.scope.holds(model)) continue;
    // A tied model has no output matrix; rules for one are then without effect. But a name nothing has is a mistake.
    QuantizeRule anywhere = rule;
    anywhere.layers = "all";
    if (rule.tensors.empty() &&
        std::none_of(all.begin(), all.end(), [&](const Parameter& p) { return rule_applies(anywhere, p, layers); })) {
      throw Error(Exit::user, fmt::format("a rule for format '{}' matches no parameter of this model", rule.format),
                  "`lumen inspect` lists the parameters and their roles");
    }
    for (const Parameter& p : model.parameters) {
      if (rule_applies(rule, p, layers)) chosen[p.name] = {format, rule.source};
    }
  }
  return chosen;
}

std::vector<graph::FormatAssignment> fake_assignments(const std::vector<QuantizeRule>& rules, const Model& model) {
  std::vector<graph::FormatAssignment> assignments;
  for (const auto& [name, choice] : formats_by_rule(rules, model)) {
    const Parameter* p = model.find(name);
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

}  // namespace lumen::model
