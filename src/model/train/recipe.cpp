#include "model/train/recipe.h"

#include <algorithm>
#include <cstdio>

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
  rule.layers = table.text("layers", rule.layers);
  rule.format = table.text("format");
  rule.source = field_source(table, "source");
  if (rule.values.empty() && rule.roles.empty()) rule.values = {"*"};
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
  const bool ordinary = p.shape.size() >= 2 && !p.frozen;
  for (const std::string& pattern : rule.values) {
    if (matches(pattern, p.name) && (ordinary || is_exact_name(pattern))) return true;
  }
  return ordinary && std::find(rule.roles.begin(), rule.roles.end(), p.role) != rule.roles.end();
}

}  // namespace

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

Recipe parse_recipe(std::string text, std::string name) {
  const Toml file = Toml::parse(std::move(text), name);
  Recipe r;
  r.name = std::move(name);
  (void)file.text("doc", "");
  if (const auto t = file.table("model")) {
    r.family = t->text("family", "");
    r.size = t->text("size", "");
    if (const auto config = t->table("config")) {
      for (const std::string& key : config->keys()) r.config[key] = config->number(key);
    }
  }
  if (const auto t = file.table("data")) {
    r.data = t->text("path", "");
    r.tokenizer = t->text("tokenizer", "");
    r.validation = t->number("validation", r.validation);
  }
  if (const auto t = file.table("optimizer")) {
    r.adam.beta1 = t->number("beta1", r.adam.beta1);
    r.adam.beta2 = t->number("beta2", r.adam.beta2);
    r.adam.epsilon = t->number("epsilon", r.adam.epsilon);
    r.adam.weight_decay = t->number("weight_decay", r.adam.weight_decay);
    r.adam.max_norm = t->number("max_grad_norm", r.adam.max_norm);
  }
  if (const auto t = file.table("schedule")) {
    r.schedule.shape = schedule_shape(t->text("shape", "cosine"));
    r.schedule.peak = t->number("learning_rate", r.schedule.peak);
    r.schedule.floor = t->number("min_learning_rate", r.schedule.floor);
    r.schedule.warmup = t->integer("warmup_steps", r.schedule.warmup);
    r.schedule.steps = t->integer("steps", r.schedule.steps);
  }
  if (const auto t = file.table("run")) {
    r.batch = t->integer("batch", r.batch);
    r.length = t->integer("length", r.length);
    r.accumulate = t->integer("accumulate", r.accumulate);
    r.evaluate_every = t->integer("evaluate_every", r.evaluate_every);
    r.evaluate_windows = t->integer("evaluate_windows", r.evaluate_windows);
    r.save_every = t->integer("save_every", r.save_every);
    r.keep = t->integer("keep", r.keep);
    const int64_t seed = t->integer("seed", r.seed);
    if (seed < 0 || seed > 0xffffffff) throw error_at(t->place("seed"), "a seed lies between 0 and 4294967295");
    r.seed = static_cast<uint32_t>(seed);
    r.precision = t->text("precision", r.precision);
  }
  for (const Toml& t : file.tables("quantize")) r.quantize.push_back(read_rule(t));
  if (const auto t = file.table("file")) r.file_type = t->integer("type", -1);
  if (const auto t = file.table("demo")) {
    r.demo_formats = t->texts("formats");
    r.demo_trained = t->texts("trained");
    r.demo_sample = t->text("sample", "");
    r.demo_tuning_steps = t->integer("tuning_steps", 0);
  }
  file.refuse_unknown();
  return r;
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

std::string describe(const Recipe& r) {
  std::string out;
  const auto quoted = [](const std::string& s) {
    std::string q = "\"";
    for (char c : s) {
      if (c == '"' || c == '\\') q += '\\';
      q += c;
    }
    return q + "\"";
  };
  const auto list = [&](const std::vector<std::string>& names) {
    std::string text = "[";
    for (size_t i = 0; i < names.size(); ++i) text += (i ? ", " : "") + quoted(names[i]);
    return text + "]";
  };
  out += fmt::format("[model]\nfamily = {}\nsize = {}\n", quoted(r.family), quoted(r.size));
  if (!r.config.empty()) {
    out += "[model.config]\n";
    for (const auto& [key, value] : r.config) out += fmt::format("{} = {}\n", key, value);
  }
  out += fmt::format("[data]\npath = {}\ntokenizer = {}\nvalidation = {}\n", quoted(r.data), quoted(r.tokenizer),
                     r.validation);
  out += fmt::format("[optimizer]\nbeta1 = {}\nbeta2 = {}\nepsilon = {}\nweight_decay = {}\nmax_grad_norm = {}\n",
                     r.adam.beta1, r.adam.beta2, r.adam.epsilon, r.adam.weight_decay, r.adam.max_norm);
  const char* shapes[] = {"cosine", "linear", "constant"};
  out += fmt::format(
      "[schedule]\nshape = \"{}\"\nlearning_rate = {}\nmin_learning_rate = {}\nwarmup_steps = {}\nsteps = {}\n",
      shapes[static_cast<int>(r.schedule.shape)], r.schedule.peak, r.schedule.floor, r.schedule.warmup,
      r.schedule.steps);
  out += fmt::format(
      "[run]\nbatch = {}\nlength = {}\naccumulate = {}\nevaluate_every = {}\nevaluate_windows = {}\nsave_every = "
      "{}\nkeep = {}\nseed = {}\nprecision = {}\n",
      r.batch, r.length, r.accumulate, r.evaluate_every, r.evaluate_windows, r.save_every, r.keep, r.seed,
      quoted(r.precision));
  for (const QuantizeRule& q : r.quantize) {
    out += fmt::format("[[quantize]]\nvalue = {}\nrole = {}\nlayers = \"{}\"\nformat = {}\nsource = \"{}\"\n",
                       list(q.values), list(q.roles), q.layers, quoted(q.format),
                       q.source == FieldSource::learned ? "learned" : "fitted");
  }
  return out;
}

std::map<std::string, std::pair<FormatRef, FieldSource>> formats_by_rule(const std::vector<QuantizeRule>& rules,
                                                                         const Model& model) {
  std::map<std::string, std::pair<FormatRef, FieldSource>> chosen;
  const auto layer_count = model.config.find("layers");
  const int64_t layers = layer_count == model.config.end() ? 0 : static_cast<int64_t>(layer_count->second);
  const std::vector<Parameter> all = model.family->all_parameters(model.config);
  for (const QuantizeRule& rule : rules) {
    const FormatRef format = model.family->library().formats().get(rule.format);
    // A tied model has no output matrix; rules for one are then without effect. But a name nothing has is a mistake.
    QuantizeRule anywhere = rule;
    anywhere.layers = "all";
    if (std::none_of(all.begin(), all.end(), [&](const Parameter& p) { return rule_applies(anywhere, p, layers); })) {
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
