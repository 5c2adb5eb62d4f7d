#include "cli/train/train_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/settings/declare.h"
#include "model/recipe/recipe_keys.h"
#include "model/train/method/machine_floats.h"
#include "number/facts/facts.h"

namespace lumen::cli {
namespace {

// The part of a value's type that the help shows for a key with names: "{cut,drop}".
std::string names_text(const model::recipe::RecipeKey& key) {
  return key.choices.empty() ? "" : fmt::format("{{{}}}", fmt::join(key.names(), ","));
}

// Checks that the recipe key takes the option's number; a text is checked when it is set.
CLI::Validator allowed(const model::recipe::RecipeKey& key) {
  return CLI::Validator([&key](std::string& text) { return model::recipe::problem_of(key, text); }, names_text(key));
}

// Whether the option that sets `value` comes later in the table than the one that sets `held`.
bool is_later(const std::string& key, const std::string& value, const std::string& held) {
  bool passed = false;
  for (const Setting* row : settings_of("train")) {
    if (key != row->key || !*row->key_value) continue;
    if (passed && held == row->key_value) return false;
    passed = passed || value == row->key_value;
  }
  return true;
}

void add_key_switch(CLI::App& app, TrainFlags& f, const Setting& row) {
  const std::string key = row.key;
  // The --no- form turns off what a recipe turns on.
  add_switch_function(app, row.name(), [&f, key](bool is_on) { f.values[key] = is_on ? "true" : "false"; });
}

void add_key_choice(CLI::App& app, TrainFlags& f, const Setting& row) {
  const std::string key = row.key, value = row.key_value;
  add_flag_function(app, row.name(), [&f, key, value](bool is_on) {
    // The more specific of two flags for one key wins (--use_peft --use_dora): it comes later in the table.
    if (is_on && is_later(key, value, f.text(key))) f.values[key] = value;
  });
}

void add_key_setting(CLI::App& app, TrainFlags& f, const Setting& row) {
  const model::recipe::RecipeKey& key = model::recipe::recipe_key(row.key);
  if (key.is_switch()) return add_key_switch(app, f, row);
  if (*row.key_value) return add_key_choice(app, f, row);
  CLI::Option* const option = add_setting_function<std::string>(
      app, row.name(), [&f, name = key.name()](const std::string& text) { f.values[name] = text; });
  option->check(allowed(key))->default_str(model::recipe::default_text(key));
  if (key.is_number() && *row.placeholder == '\0') option->type_name(key.is_whole() ? "INT" : "FLOAT");
}

model::recipe::Recipe of_training(model::recipe::Recipe r) {
  if (!r.compress.empty()) throw usage_error("'{}' is a recipe of `lumen quantize`", r.name);
  return r;
}

// Reads a recipe by name or from a file, applied on top of `base`; several separated by commas are applied in order.
model::recipe::Recipe read_recipe(const model::arch::Library& library, const std::string& name,
                                  model::recipe::Recipe base) {
  if (const auto text = library.recipe(name))
    return of_training(model::recipe::parse_recipe(text->text, text->name, std::move(base)));
  std::error_code error;
  if (std::filesystem::exists(name, error))
    return of_training(model::recipe::parse_recipe(read_file(name, 16 << 20), name, std::move(base)));
  if (const size_t comma = name.rfind(','); comma != std::string::npos)
    return read_recipe(library, name.substr(comma + 1), read_recipe(library, name.substr(0, comma), std::move(base)));
  std::string known;
  for (const std::string& one : library.recipe_names()) known += (known.empty() ? "" : ", ") + one;
  throw Error(Exit::usage, fmt::format("'{}' is neither a recipe nor a file", name), "known recipes: " + known);
}

// Replaces an alias by the optimizer's name and prints which one.
void settle_optimizer(const model::arch::Library& library, model::recipe::Recipe& r) {
  std::string said;
  model::recipe::in_section(r, "optimizer",
                            [&] { r.optimizer = model::recipe::resolved(library, r.optimizer, &said); });
  if (!said.empty()) note(said);
}

constexpr const char* kPrecision = "run.precision";

// --precision: a scalar type, or a recipe that gives the formats of all operands.
void apply_precision(const model::arch::Library& library, const std::string& name, model::recipe::Recipe& r) {
  if (model::recipe::is_recipe_of_products(library, name))
    r = read_recipe(library, name, std::move(r));
  else
    model::recipe::set_value(model::recipe::recipe_key(kPrecision), name, r);
}

}  // namespace

void apply_flags(const model::arch::Library& library, const TrainFlags& flags, model::recipe::Recipe& r) {
  if (flags.has(kPrecision)) apply_precision(library, flags.text(kPrecision), r);
  for (const auto& [key, text] : flags.values)
    if (key != kPrecision) model::recipe::set_value(model::recipe::recipe_key(key), text, r);
  if (flags.has("schedule.warmup_steps") && !flags.has("schedule.warmup_ratio")) r.schedule.warmup_ratio = 0;
  if (flags.has("schedule.warmup_ratio") && r.schedule.warmup_ratio > 0) r.schedule.warmup = 0;
  if (flags.has("objective.name")) {
    r.objective = {flags.text("objective.name"), "", {}, r.objective.teacher};
    model::recipe::take_text(r.objective);
  }
  for (const auto& [name, value] : flags.objective_settings) r.objective.settings[name] = value;
  if (flags.bf16) r.precision = "bf16";
  if (!flags.format.empty()) {
    model::recipe::QuantizeRule rule;
    rule.values = {"*"};
    rule.format = flags.format;
    r.quantize = {rule};
  }
}

bool TrainFlags::has(const std::string& key) const {
  return values.contains(model::recipe::recipe_key(key).name());
}

std::optional<double> TrainFlags::number(const std::string& key) const {
  if (!has(key)) return std::nullopt;
  return std::strtod(text(key).c_str(), nullptr);
}

void check_train_flags(const TrainFlags& f) {
  const auto refuse = [](bool both, const std::string& a, const std::string& b, const std::string& why) {
    if (both) throw Error(Exit::usage, fmt::format("{} and {} contradict each other: {}", a, b, why));
  };
  const bool has_model = !f.model.empty();
  refuse(has_model && f.has("model.size"), "--model", "--shape", "the model has a size already");
  refuse(has_model && f.has("model.family"), "--model", "--family", "the model has a family already");
  const std::string precision = f.text("run.precision");
  refuse(f.bf16 && !precision.empty() && precision != "bf16", "--bf16", "--precision " + precision, "name one type");
  const auto rate = f.number("schedule.learning_rate"), least = f.number("schedule.min_learning_rate");
  refuse(rate && least && *least > *rate, "--min-lr " + f.text("schedule.min_learning_rate"),
         "--lr " + f.text("schedule.learning_rate"), "the rate falls");
  refuse(least && f.text("schedule.shape") == "constant", "--min-lr", "--schedule constant",
         "a constant rate does not fall");
  const auto warmup = f.number("schedule.warmup_steps"), steps = f.number("schedule.steps");
  refuse(warmup && steps && *warmup > *steps, "--warmup " + f.text("schedule.warmup_steps"),
         "--steps " + f.text("schedule.steps"), "the peak would never be reached");
  const auto ratio = f.number("schedule.warmup_ratio");
  refuse(warmup && ratio && *warmup > 0 && *ratio > 0, "--warmup " + f.text("schedule.warmup_steps"),
         "--warmup-ratio " + f.text("schedule.warmup_ratio"), "give one of them");
  refuse(f.has("data.epochs") && f.has("schedule.steps"), "--epochs", "--steps", "give one of them");
  refuse(f.has("data.validation") && f.has("data.validation_data"), "--validation", "--validation-data",
         "give one of them");
  if (!f.resume_given) {
    if (f.changed_data) throw usage_error("--allow-changed-data is for --resume: a fresh run takes any data");
    if (f.changed_recipe) throw usage_error("--allow-changed-recipe is for --resume: a fresh run takes any recipe");
  }
  if (f.has("data.tokenizer")) (void)byte_pair_tokens(f.text("data.tokenizer"));
  if (f.has("schedule.shape")) (void)model::recipe::schedule_shape(f.text("schedule.shape"));
}

std::optional<int64_t> byte_pair_tokens(const std::string& tokenizer) {
  constexpr std::string_view kBytes = "bytes:";
  if (!tokenizer.starts_with(kBytes)) return std::nullopt;
  int64_t n = 0;
  const char* end = tokenizer.data() + tokenizer.size();
  const auto [stop, error] = std::from_chars(tokenizer.data() + kBytes.size(), end, n);
  if (error != std::errc() || stop != end || n < 256 || n > (1 << 24))
    throw usage_error("--tokenizer {}: bytes:N needs a number from 256 to {}", tokenizer, 1 << 24);
  return n;
}

model::recipe::Recipe named_recipe(const model::arch::Library& library, const std::string& name) {
  return read_recipe(library, name, {});
}

model::recipe::Recipe fresh_recipe(const model::arch::Library& library, const TrainFlags& flags) {
  model::recipe::Recipe r;
  if (!flags.recipe.empty()) r = read_recipe(library, flags.recipe, {});
  apply_flags(library, flags, r);
  if (flags.has("schedule.steps")) r.epochs = 0;
  if (flags.has("schedule.learning_rate") && !flags.has("schedule.min_learning_rate"))
    r.schedule.floor = std::min(r.schedule.floor, r.schedule.peak / 10);
  if (!flags.model.empty() && !(r.family.empty() && r.size.empty() && r.config.empty())) {
    note(fmt::format("[model] of the recipe '{}' is not used: --model names one", flags.recipe));
    r.family = r.size = "";
    r.config.clear();
  }
  check_recipe(r);
  settle_optimizer(library, r);
  if (!r.adapter.trains()) {
    for (const auto& [key, text] : flags.values)
      if (key.starts_with("adapter."))
        throw Error(Exit::usage, fmt::format("{} {} is of adapters, but none is trained", key, text),
                    "add --lora or --dora");
  } else if (flags.model.empty() && !flags.print_config) {
    throw Error(Exit::usage, "an adapter is trained for a model", "name it with --model");
  }
  // The machine's own formats are known only once the device is.
  const auto products = [&] {
    (void)model::recipe::product_type(model::train::with_machine_floats(
                                          r, [](const FieldType&) { return false; }, library.formats()),
                                      library.formats());
  };
  model::recipe::in_section(r, "products", [&] { model::recipe::in_section(r, "run", products); });
  return r;
}

model::recipe::Recipe resumed_recipe(const model::arch::Library& library, const TrainFlags& flags,
                                     const model::recipe::Recipe& was) {
  model::recipe::Recipe stored = was;
  stored.optimizer = model::recipe::resolved(library, stored.optimizer);
  model::recipe::Recipe r = stored;
  if (!flags.recipe.empty()) r = read_recipe(library, flags.recipe, stored);
  r.name = stored.name;
  apply_flags(library, flags, r);
  model::recipe::Schedule& schedule = r.schedule;
  if (schedule.warmup_ratio > 0) {  // a ratio of the originally planned steps
    model::recipe::Schedule planned = schedule;
    planned.steps = stored.schedule.steps;
    planned.decay_steps = stored.schedule.decay_steps;
    schedule.warmup = model::recipe::warmup_steps(planned);
    schedule.warmup_ratio = 0;
  }
  if (!flags.changed_recipe && schedule.steps > stored.schedule.steps) {
    const int64_t planned = stored.schedule.decay_steps > 0 ? stored.schedule.decay_steps : stored.schedule.steps;
    const bool falls = model::recipe::ends_at_floor(schedule.shape);
    if (falls && stored.schedule.floor == 0) {
      throw Error(Exit::usage,
                  fmt::format("--steps {} is more than the checkpoint's {}, whose rate ends at 0: further steps would "
                              "change nothing",
                              schedule.steps, stored.schedule.steps),
                  "--allow-changed-recipe stretches the schedule over all steps");
    }
    if (falls) schedule.decay_steps = planned;
    note(fmt::format("{} steps instead of {}: {}", schedule.steps, stored.schedule.steps,
                     falls ? fmt::format("the schedule of the first {} stays, further steps run at the rate {}",
                                         planned, schedule.floor)
                           : "its rates do not depend on how many there are"));
  }
  check_recipe(r);
  settle_optimizer(library, r);
  std::string refused, changed;
  for (const model::recipe::RecipeChange& c : model::recipe::recipe_changes(stored, r)) {
    if (!flags.changed_recipe && (c.key == "schedule.steps" || c.key == "schedule.decay_steps") &&
        schedule.steps > stored.schedule.steps)
      continue;
    const bool allowed = flags.changed_recipe && !c.of_model;
    std::string& list = allowed ? changed : refused;
    list += fmt::format("{}{}: {} here, {} in the checkpoint", list.empty() ? "" : "; ", c.key, c.now, c.was);
  }
  if (!refused.empty()) {
    throw Error(Exit::usage, "the options contradict the checkpoint's recipe: " + refused,
                flags.changed_recipe ? "these belong to the model: begin a new run with --model"
                                     : "leave out these options (a resumed run follows the stored recipe), or add "
                                       "--allow-changed-recipe");
  }
  if (!changed.empty()) note("changed: " + changed);
  return r;
}

CLI::Option* add_train_flags(CLI::App& app, TrainFlags& f) {
  add_settings(app, "--recipe", f.recipe, "--model", f.model, "--out", f.out, "--overwrite", f.overwrite);
  CLI::Option* resume = add_setting(app, "--resume", f.resume)->expected(0, 1);
  add_settings(app, "--allow-changed-data", f.changed_data, "--allow-changed-recipe", f.changed_recipe);
  for (const Setting* row : settings_of("train"))
    if (*row->key) add_key_setting(app, f, *row);
  add_setting_function<std::vector<std::string>>(
      app, "--objective-setting", [&f](const std::vector<std::string>& given) {
        for (const std::string& text : given) {
          const size_t equals = text.find('=');
          char* end = nullptr;
          const double value = equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
          if (equals == std::string::npos || end == text.c_str() + equals + 1 || *end != 0 || !std::isfinite(value))
            throw usage_error("--objective-setting {}: expected NAME=NUMBER", text);
          f.objective_settings[text.substr(0, equals)] = value;
        }
      });
  add_setting_function<double>(app, "--beta", [&f](double beta) { f.objective_settings["beta"] = beta; });
  add_setting_function<std::string>(app, "--report_to", [&f](const std::string& to) {
    f.values["report.tensorboard"] = to == "tensorboard" ? "true" : "false";
  });
  add_settings(app, "--bf16", f.bf16, "--format", f.format, "--ranks", f.ranks_here, "--print-config", f.print_config,
               "--plan", f.plan, "--explain", f.explain);
  return resume;
}

}  // namespace lumen::cli
