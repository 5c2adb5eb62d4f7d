#include "cli/train_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace lumen::cli {
namespace {

// The number a recipe may have there, said so that people can read it.
CLI::Validator within(const std::string& key, double least) {
  model::Bounds bounds = model::bounds_of(key);
  bounds.least = std::max(bounds.least, least);
  return CLI::Validator(
      [bounds](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end == text.c_str() || *end != 0) return fmt::format("'{}' is no number", text);
        if (!bounds.holds(value)) return fmt::format("must be {}, not {}", bounds.text(), text);
        return std::string();
      },
      "");
}

CLI::Validator within(const std::string& key) {
  return within(key, model::bounds_of(key).least);
}

// A recipe by name or from a file, on top of `base`.
model::Recipe read_recipe(const model::Library& library, const std::string& name, model::Recipe base) {
  if (const auto text = library.recipe(name)) return model::parse_recipe(text->text, text->name, std::move(base));
  std::error_code error;
  if (std::filesystem::exists(name, error))
    return model::parse_recipe(read_file(name, 16 << 20), name, std::move(base));
  std::string known;
  for (const std::string& one : library.recipe_names()) known += (known.empty() ? "" : ", ") + one;
  throw Error(Exit::usage, fmt::format("'{}' is neither a recipe nor a file", name), "known recipes: " + known);
}

void apply(const TrainFlags& flags, model::Recipe& r) {
  const auto take = [](auto& value, const auto& flag) {
    if (flag) value = *flag;
  };
  take(r.family, flags.family);
  take(r.size, flags.shape);
  take(r.data, flags.data);
  take(r.tokenizer, flags.tokenizer);
  take(r.batch, flags.batch);
  take(r.length, flags.length);
  take(r.schedule.steps, flags.steps);
  take(r.schedule.warmup, flags.warmup);
  take(r.accumulate, flags.accumulate);
  take(r.evaluate_every, flags.evaluate_every);
  take(r.save_every, flags.save_every);
  take(r.keep, flags.keep);
  take(r.seed, flags.seed);
  take(r.precision, flags.precision);
  if (flags.bf16) r.precision = "bf16";
  take(r.param_type, flags.param_type);
  take(r.output_type, flags.output_type);
  if (flags.hf) r.hugging_face = true;
  take(r.schedule.peak, flags.rate);
  take(r.schedule.floor, flags.min_rate);
  take(r.adam.weight_decay, flags.decay);
  take(r.adam.max_norm, flags.clip);
  take(r.adam.beta1, flags.beta1);
  take(r.adam.beta2, flags.beta2);
  take(r.validation, flags.validation);
  if (flags.schedule) r.schedule.shape = model::schedule_shape(*flags.schedule);
  if (!flags.format.empty()) {
    model::QuantizeRule rule;
    rule.values = {"*"};
    rule.format = flags.format;
    r.quantize = {rule};
  }
}

}  // namespace

void check_train_flags(const TrainFlags& f) {
  const auto refuse = [](bool both, const std::string& a, const std::string& b, const std::string& why) {
    if (both) throw Error(Exit::usage, fmt::format("{} and {} contradict each other: {}", a, b, why));
  };
  const bool has_model = !f.model.empty();
  refuse(has_model && f.shape, "--model", "--shape", "the model has a size already");
  refuse(has_model && f.family, "--model", "--family", "the model has a family already");
  refuse(has_model && f.resume_given, "--model", "--resume", "a checkpoint holds the model that is trained on");
  refuse(f.bf16 && f.precision && *f.precision != "bf16", "--bf16",
         fmt::format("--precision {}", f.precision.value_or("")), "name one type");
  refuse(f.rate && f.min_rate && *f.min_rate > *f.rate, fmt::format("--min-lr {}", f.min_rate.value_or(0)),
         fmt::format("--lr {}", f.rate.value_or(0)), "the rate falls");
  refuse(f.min_rate && f.schedule && *f.schedule == "constant", "--min-lr", "--schedule constant",
         "a constant rate does not fall");
  refuse(f.warmup && f.steps && *f.warmup > *f.steps, fmt::format("--warmup {}", f.warmup.value_or(0)),
         fmt::format("--steps {}", f.steps.value_or(0)), "the peak would never be reached");
  if (!f.resume_given) {
    if (f.changed_data) throw usage_error("--allow-changed-data is for --resume: a fresh run takes any data");
    if (f.changed_recipe) throw usage_error("--allow-changed-recipe is for --resume: a fresh run takes any recipe");
  }
  if (f.tokenizer) (void)byte_pair_tokens(*f.tokenizer);
  if (f.schedule) (void)model::schedule_shape(*f.schedule);
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

model::Recipe fresh_recipe(const model::Library& library, const TrainFlags& flags) {
  model::Recipe r;
  if (!flags.recipe.empty()) r = read_recipe(library, flags.recipe, {});
  apply(flags, r);
  if (flags.rate && !flags.min_rate) r.schedule.floor = std::min(r.schedule.floor, *flags.rate / 10);
  if (!flags.model.empty() && !(r.family.empty() && r.size.empty() && r.config.empty())) {
    note(fmt::format("[model] of the recipe '{}' is not used: --model names one", flags.recipe));
    r.family = r.size = "";
    r.config.clear();
  }
  check_recipe(r);
  (void)model::product_type(r.precision, library.formats());
  return r;
}

model::Recipe resumed_recipe(const model::Library& library, const TrainFlags& flags, const model::Recipe& stored) {
  model::Recipe r = stored;
  if (!flags.recipe.empty()) r = read_recipe(library, flags.recipe, stored);
  r.name = stored.name;
  apply(flags, r);
  model::Schedule& schedule = r.schedule;
  if (!flags.changed_recipe && schedule.steps > stored.schedule.steps) {
    const int64_t planned = stored.schedule.decay_steps > 0 ? stored.schedule.decay_steps : stored.schedule.steps;
    const bool falls = schedule.shape != model::Schedule::Shape::constant;
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
                           : "the rate is constant"));
  }
  check_recipe(r);
  std::string refused, changed;
  for (const model::RecipeChange& c : model::recipe_changes(stored, r)) {
    if (!flags.changed_recipe && (c.key == "schedule.steps" || c.key == "schedule.decay_steps") &&
        schedule.steps > stored.schedule.steps)
      continue;
    const bool allowed = flags.changed_recipe && !c.of_model;
    std::string& list = allowed ? changed : refused;
    list += fmt::format("{}{}: {} here, {} in the checkpoint", list.empty() ? "" : "; ", c.key, c.now, c.was);
  }
  if (!refused.empty()) {
    throw Error(Exit::usage, "what is asked contradicts the checkpoint's recipe: " + refused,
                flags.changed_recipe ? "these belong to the model: begin a new run with --model"
                                     : "leave these flags away (a resumed run follows the stored recipe), or add "
                                       "--allow-changed-recipe");
  }
  if (!changed.empty()) note("changed: " + changed);
  return r;
}

CLI::Option* add_train_flags(CLI::App& app, TrainFlags& f) {
  app.add_option("-r,--recipe", f.recipe, "A recipe by name, or a .toml file; flags below override it")
      ->type_name("NAME|FILE");
  app.add_option("-m,--model,--model_name_or_path", f.model,
                 "Start from this model, in any format, instead of fresh weights")
      ->type_name("FILE");
  app.add_option("--family", f.family, "Model family");
  app.add_option("--shape,--size", f.shape, "Named size of the family");
  app.add_option("--data,--dataset", f.data, "Text, .jsonl or a folder; without it, the built-in text")
      ->type_name("FILE");
  app.add_option("--tokenizer", f.tokenizer, "characters, bytes:N (byte pairs, N tokens), or a tokenizer file");
  app.add_option("-o,--out,--output,--output_dir,--output-dir", f.out,
                 "Folder for checkpoints, metrics and the model; lumen-out, or the folder that is resumed")
      ->type_name("DIR");
  app.add_flag("--overwrite,--overwrite_output_dir", f.overwrite,
               "Replace the model and remove the checkpoints that --out holds of another run");
  CLI::Option* resume = app.add_option("--resume,--resume_from_checkpoint,--resume-from-checkpoint", f.resume,
                                       "Go on from a checkpoint, by its own recipe; without a value, the latest one in "
                                       "--out")
                            ->expected(0, 1)
                            ->type_name("[DIR]");
  app.add_flag("--allow-changed-data", f.changed_data, "Resume although data files are not what they were");
  app.add_flag("--allow-changed-recipe", f.changed_recipe,
               "Resume with other rates, steps, batches or data order than the checkpoint's");
  app.add_option("-b,--batch,--batch-size,--per_device_train_batch_size", f.batch, "Windows per step")
      ->check(within("run.batch"));
  app.add_option("-c,--length,--max_seq_length,--max-seq-length", f.length, "Tokens per window")
      ->check(within("run.length", 1));
  app.add_option("--steps,--max_steps,--max-steps", f.steps, "Optimizer steps")->check(within("schedule.steps"));
  app.add_option("--lr,--learning-rate,--learning_rate", f.rate, "Peak learning rate")
      ->check(within("schedule.learning_rate"));
  app.add_option("--min-lr,--min-learning-rate", f.min_rate, "Learning rate at the end")
      ->check(within("schedule.min_learning_rate"));
  app.add_option("--warmup,--warmup-steps,--warmup_steps", f.warmup, "Steps to the peak")
      ->check(within("schedule.warmup_steps"));
  app.add_option("--schedule,--lr_scheduler_type,--lr-scheduler-type", f.schedule, "cosine, linear or constant");
  app.add_option("--weight-decay,--weight_decay", f.decay, "On matrices only")->check(within("optimizer.weight_decay"));
  app.add_option("--max-grad-norm,--max_grad_norm,--clip", f.clip, "Gradients are scaled down to this norm; 0: never")
      ->check(within("optimizer.max_grad_norm"));
  app.add_option("--beta1,--adam_beta1", f.beta1)->check(within("optimizer.beta1"));
  app.add_option("--beta2,--adam_beta2", f.beta2)->check(within("optimizer.beta2"));
  app.add_option("--accumulate,--gradient_accumulation_steps,--gradient-accumulation-steps", f.accumulate,
                 "Batches per step")
      ->check(within("run.accumulate"));
  app.add_option("--validation", f.validation, "Share of the text kept for validation")
      ->check(within("data.validation"));
  app.add_option("--eval-every,--eval_steps,--eval-steps", f.evaluate_every,
                 "Steps between evaluations; 0: only at the end")
      ->check(within("run.evaluate_every"));
  app.add_option("--save-every,--save_steps,--save-steps", f.save_every,
                 "Steps between checkpoints; 0: only at the end")
      ->check(within("run.save_every"));
  app.add_option("--keep,--save_total_limit,--save-total-limit", f.keep, "Checkpoints kept; 0: all")
      ->check(within("run.keep"));
  app.add_option("-s,--seed", f.seed, "Names initial weights and the order of the data")->check(within("run.seed"));
  app.add_option("--precision", f.precision,
                 "Float type that operands of products with parameters and of attention are rounded to (an 8 bit one: "
                 "each tensor under a scale of its own, attention and the last product in bf16); "
                 "sums stay f32")
      ->type_name("TYPE");
  app.add_flag("--bf16", f.bf16, "The same as --precision bf16");
  app.add_option("--param-type,--param_type", f.param_type,
                 "What matrices are held in between steps: f32, or bf16 with stochastic rounding")
      ->type_name("TYPE");
  app.add_option("--format,--qat", f.format, "Quantization-aware: round every matrix to this format in the loop");
  app.add_option("--output-type,--outtype", f.output_type,
                 "What the trained model is written in: a format or a mixture; without it f32")
      ->type_name("TYPE");
  app.add_flag("--hf", f.hf, "Also write a Hugging Face folder");
  app.add_flag("--print-config", f.print_config, "Print the resolved recipe and stop");
  app.add_flag("--explain", f.explain, "Print the kernels of one step and their times at the end");
  return resume;
}

}  // namespace lumen::cli
