#include "cli/train/train_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/paths/paths.h"
#include "model/recipe/recipe_keys.h"
#include "model/train/method/machine_floats.h"
#include "number/facts/facts.h"

namespace lumen::cli {
namespace {

// An option that sets one key of a recipe.
struct KeyFlag {
  const char* names;
  const char* key;
  const char* help;
  const char* type = "";
  double least = -1e300;   // a stricter lower bound than the recipe's
  const char* value = "";  // the value that a flag without argument sets
};

// In the order of --help.
constexpr KeyFlag kKeyFlags[] = {
    {"--family", "model.family", "Model family"},
    {"--shape,--size", "model.size", "Named size of the family"},
    {"--data,--dataset", "data.path",
     "Texts, chats or pairs (.txt .md .jsonl .json .csv .tsv, also .gz), or a folder; several with commas; "
     "without it, the built-in text",
     "FILE"},
    {"--form,--data-form,--data_form", "data.form", "What rows are: auto, texts, chats, pairs or labels"},
    {"--columns", "data.columns", "What columns stand for: prompt=Q,completion=A", "NAME=COLUMN"},
    {"--chat-template,--chat_template", "data.chat_template", "By name or from a file; without it, the model's own",
     "NAME|FILE"},
    {"--train-on,--train_on", "data.train_on", "Which tokens of chats are learned: assistant, last (answer) or all"},
    {"--mix,--interleave_probs,--interleave-probs", "data.mix", "Shares of several data sets: 0.7,0.3", "SHARE"},
    {"--epochs,--num_train_epochs,--num-train-epochs,--num_epochs", "data.epochs",
     "Rounds over the data instead of --steps"},
    {"--packing,--sample_packing,--sample-packing", "data.packing",
     "Put several examples into one window, attention kept apart"},
    {"--overflow", "data.overflow", "Examples longer than a window: cut or drop"},
    {"--strict", "data.strict", "A row that cannot be used is an error"},
    {"--tokenizer", "data.tokenizer", "characters, bytes:N (byte pairs, N tokens), or a tokenizer file"},
    {"-b,--batch,--batch-size,--per_device_train_batch_size", "run.batch", "Windows per step"},
    {"-c,--length,--max_seq_length,--max-seq-length", "run.length", "Tokens per window", "", 1},
    {"--steps,--max_steps,--max-steps", "schedule.steps", "Optimizer steps"},
    {"--lr,--learning-rate,--learning_rate", "schedule.learning_rate", "Peak learning rate"},
    {"--min-lr,--min-learning-rate", "schedule.min_learning_rate", "Learning rate at the end"},
    {"--warmup,--warmup-steps,--warmup_steps", "schedule.warmup_steps", "Steps to the peak"},
    {"--warmup-ratio,--warmup_ratio", "schedule.warmup_ratio", "The same as a share of all steps, rounded up", "SHARE"},
    {"--schedule,--lr_scheduler_type,--lr-scheduler-type", "schedule.shape",
     "cosine, linear, constant, wsd, inverse_sqrt, polynomial or cosine_restarts"},
    {"--optimizer,--optim", "optimizer.name", "adamw, lion, sgd, muon, adafactor, or one of your own; adamw"},
    {"--moments", "optimizer.moments",
     "What the optimizer's states of matrices are held in between steps: f32, bf16, or any format with an encoder",
     "FORMAT"},
    {"--second-moments", "optimizer.second_moments", "The same of sums of squares; without it as --moments", "FORMAT"},
    {"--momentum", "optimizer.momentum", ""},
    {"--ema,--ema-decay,--ema_decay", "optimizer.ema_decay",
     "Keep a mean of the weights over the steps, each counting so many times as much as the one before; 0: none"},
    {"--weight-decay,--weight_decay", "optimizer.weight_decay", "On matrices only"},
    {"--max-grad-norm,--max_grad_norm,--clip", "optimizer.max_grad_norm",
     "Gradients are scaled down to this norm; 0: never"},
    {"--beta1,--adam_beta1", "optimizer.beta1", ""},
    {"--beta2,--adam_beta2", "optimizer.beta2", ""},
    {"--epsilon,--adam_epsilon", "optimizer.epsilon", ""},
    {"--accumulate,--gradient_accumulation_steps,--gradient-accumulation-steps", "run.accumulate", "Batches per step"},
    {"--lora,--use_peft,--use-peft", "adapter.method",
     "Train an adapter beside the model's weights, which stay packed as their file holds them", "", -1e300, "lora"},
    {"--dora,--use_dora,--use-dora", "adapter.method", "The same with magnitudes of rows (DoRA)", "", -1e300, "dora"},
    {"--lora-rank,--lora_rank,--lora_r,--lora-r", "adapter.rank", "Columns of the adapter's B, rows of its A"},
    {"--lora-alpha,--lora_alpha", "adapter.alpha", "The adapter counts alpha / rank"},
    {"--lora-dropout,--lora_dropout", "adapter.dropout", "Share of its inputs that each step leaves out"},
    {"--lora-targets,--lora_target,--lora-target,--lora_target_modules,--target_modules,--target-modules",
     "adapter.targets",
     "Which weights get one: roles, names or their ends (wq, q_proj, attn_q), patterns, or all-linear", "A,B,.."},
    {"--rslora,--use_rslora,--use-rslora", "adapter.rs_lora", "The adapter counts alpha / sqrt(rank)"},
    {"--lora-plus,--lora_plus,--loraplus_lr_ratio", "adapter.b_rate", "B learns so many times as fast as A (LoRA+)"},
    {"--lora-init,--lora_init,--init_lora_weights", "adapter.init",
     "What it begins with: default; or pissa, pissa_niter_N, loftq, loftq_iter_N, which write a base of the run's own",
     "NAME"},
    {"--lora-base-type,--lora_base_type", "adapter.base_type",
     "What that base is held in: base (each weight's own), a format or a mixture", "FORMAT"},
    {"--objective", "objective.name",
     "What is made small: a name of the library, or a text NAME.lum; without it the tokens' loss"},
    {"--teacher,--teacher_model,--teacher-model", "objective.teacher",
     "The model that distillation learns from, in any format; without it the model without its adapter", "MODEL"},
    {"--ship", "ship.type",
     "Train the adapter inside the rounding to this format or mixture (base: each weight's own): model.gguf is then "
     "what was trained, checked before success is reported",
     "FORMAT"},
    {"--ship-learned", "ship.fields", "Train scales and offsets of the shipped format as well", "", -1e300, "learned"},
    {"--ship-magnitudes", "ship.magnitudes", "Train a magnitude for each group of the shipped format as well (DL-QAT)"},
    {"--max-kl", "ship.max_kl", "Nats per token the shipped file may be away from what was trained"},
    {"--merge", "output.merge", "Also write the model with the adapter folded in: base, a format or a mixture", "TYPE"},
    {"--validation,--val_set_size,--val_size", "data.validation", "Share of the data kept for validation"},
    {"--validation-data,--validation_data,--validation_file", "data.validation_data",
     "Files to validate on, instead of a share", "FILE"},
    {"--eval-every,--eval_steps,--eval-steps", "run.evaluate_every", "Steps between evaluations; 0: only at the end"},
    {"--save-every,--save_steps,--save-steps", "run.save_every", "Steps between checkpoints; 0: only at the end"},
    {"--keep,--save_total_limit,--save-total-limit", "run.keep", "Checkpoints kept; 0: all"},
    {"--on-nan,--on_nan", "run.on_nan",
     "What happens when a loss, gradient or weight is not finite: stop, or rollback (go on from the last good "
     "checkpoint without the batches that led there)"},
    {"--spike-factor,--spike_factor", "run.spike_factor",
     "A loss or gradient norm above so many times the median of the last 50 steps counts as well; 0: never"},
    {"--rollbacks", "run.rollbacks", "How often a run may go back"},
    {"--eval-tasks,--eval_tasks", "evaluation.tasks", "Tasks put to the model at evaluations: names or task files",
     "NAME,.."},
    {"--eval-kl,--eval_kl", "evaluation.kl",
     "Report at evaluations how far the model has gone from its reference: KL divergence on the validation data"},
    {"--eval-data,--eval_data", "evaluation.data", "Folder with the tasks' data", "DIR"},
    {"--eval-limit,--eval_limit", "evaluation.limit", "Rows of each task, at most; 0: all"},
    {"--sample-prompt,--sample_prompt", "evaluation.samples",
     "Prompts, one a line, that the model goes on with at evaluations", "TEXT"},
    {"--sample-tokens,--sample_tokens", "evaluation.sample_tokens", "Tokens of each such text, at most"},
    {"--early-stopping,--early_stopping_patience,--early-stopping-patience", "evaluation.early_stopping",
     "End after so many evaluations without a better one; 0: never"},
    {"--metric,--metric_for_best_model,--metric-for-best-model", "evaluation.metric",
     "What makes an evaluation better: validation_loss, or TASK.FIGURE of --eval-tasks"},
    {"--load-best,--load_best_model_at_end,--load-best-model-at-end", "evaluation.load_best",
     "Write the model of the best evaluation, instead of the last step's"},
    {"--tensorboard", "report.tensorboard", "Also write event files for TensorBoard, to the folder tensorboard"},
    {"-s,--seed", "run.seed", "Names initial weights and the order of the data"},
    {"--precision", "run.precision",
     "Float type that operands of products with parameters and of attention are rounded to (an 8 bit one: each tensor "
     "under a scale of its own, attention and the last product in bf16); sums stay f32. Or a recipe that says in "
     "[products] what each operand passes through",
     "TYPE"},
    {"--activation-format", "products.activation", "Format that activations pass through where products multiply them",
     "FORMAT"},
    {"--weight-format", "products.weight", "The same of weights; what is trained and kept stays as it is", "FORMAT"},
    {"--gradient-format", "products.gradient", "The same of gradients of products' results", "FORMAT"},
    {"--attention-format", "products.attention", "The same of queries, keys and values, where attentions multiply them",
     "FORMAT"},
    {"--kept-format", "memory.kept", "What gradients read of the forward pass lies in this format between the passes",
     "FORMAT"},
    {"--recompute,--gradient-checkpointing,--gradient_checkpointing", "run.recompute",
     "What of a step is computed again rather than kept: none, maps (elementwise work alone), layers, auto (what there "
     "is "
     "no room for), or how much the step's values may take; the same bits",
     "none|maps|layers|auto|4GiB"},
    {"--memory", "memory.limit",
     "What the device may hold: the cheapest of --recompute and --offload that fits is chosen and printed with its "
     "cost",
     "24G"},
    {"--offload", "memory.offload",
     "What lies outside of the device's memory and visits it, in a file of the run's folder or of another FOLDER, or "
     "in the "
     "host's memory: moments (the optimizer's states; the same bits), layers (also the layers' parameters and "
     "gradients: a step goes layer by layer, and computes each again for its gradients), activations (what layers keep "
     "for their gradients, which are not computed again then but as --recompute says)",
     "moments|layers|activations[=host|FOLDER],.."},
    {"--param-type,--param_type", "run.param_type",
     "What matrices are held in between steps: f32, bf16, f16, or any format with an encoder; rounded at random, or to "
     "the nearest with a compensation",
     "FORMAT"},
    {"--param-rounding,--param_rounding", "run.param_rounding",
     "How new values are rounded to it where there is no compensation", "stochastic|nearest"},
    {"--param-compensation,--param_compensation", "run.param_compensation",
     "What rounding loses of parameters is held, too, and counts in the next step: in a format, or exact (with bf16: "
     "the lower half of the f32)",
     "none|exact|FORMAT"},
    {"--shard,--zero,--zero_stage,--fsdp", "ranks.shard",
     "What several ranks hold in parts: none, states (of the optimizer; ZeRO 1), gradients (and those; ZeRO 2), "
     "parameters (and those: each layer's are gathered before it is computed; ZeRO 3)",
     "none|states|gradients|parameters"},
    {"--reduce-type,--reduce_type", "ranks.reduce_type",
     "What sums of gradients go from rank to rank in: f32, or any format with an encoder; what that loses counts in "
     "the "
     "next step",
     "FORMAT"},
    {"--gather-type,--gather_type", "ranks.gather_type", "The same of changes of parameters, with --shard", "FORMAT"},
    {"--overlap-exchanges,--overlap_comm", "ranks.overlap",
     "Exchanges go on beside the computation where they can: on GPUs always, elsewhere with --shard parameters, which "
     "takes room for two layers rather than one; the same bits. So it is unless --no-overlap-exchanges says otherwise"},
    {"--tensor-parallel,--tensor_parallel,--tp", "ranks.tensor_parallel",
     "Neighbouring ranks that hold one model together, each a part of its matrices, of their gradients and of the "
     "optimizer's states; it divides --ranks, and groups of so many share each batch"},
    {"--sequence-parallel,--sequence_parallel,--sp", "ranks.sequence_parallel",
     "With --tensor-parallel: between products that ranks share, each computes and keeps its share of the tokens "
     "(norms, residuals), rather than all ranks the same"},
    {"--output-type,--outtype", "output.type",
     "What the trained model is written in: a format or a mixture; without it f32", "TYPE"},
    {"--hf", "output.hugging_face", "Also write a Hugging Face folder"},
};

// Recipe keys whose values may be files.
constexpr std::pair<std::string_view, Reads> kReadKeys[] = {
    {"data.path", Reads::data},        {"data.validation_data", Reads::data}, {"data.chat_template", Reads::file},
    {"data.tokenizer", Reads::model},  {"objective.name", Reads::file},       {"objective.teacher", Reads::model},
    {"evaluation.tasks", Reads::file}, {"evaluation.data", Reads::tasks},     {"run.precision", Reads::file},
};
constexpr std::string_view kOffload = "memory.offload";

// Checks that the recipe key accepts the option's value; the message is written for users.
CLI::Validator allowed(const KeyFlag& flag) {
  return CLI::Validator(
      [&flag](std::string& text) {
        const model::RecipeKey& key = model::recipe_key(flag.key);
        if (!key.is_number()) return std::string();
        model::Bounds bounds = model::bounds_of(flag.key);
        bounds.least = std::max(bounds.least, flag.least);
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end == text.c_str() || *end != 0) return fmt::format("'{}' is no number", text);
        if (!bounds.holds(value)) return fmt::format("must be {}, not {}", bounds.text(), text);
        if (key.is_whole() && value != std::floor(value)) return fmt::format("must be a whole number, not {}", text);
        return std::string();
      },
      "");
}

// Whether the option that sets `value` comes later in the table than the one that sets `held`.
bool is_later(const std::string& key, const std::string& value, const std::string& held) {
  bool passed = false;
  for (const KeyFlag& flag : kKeyFlags) {
    if (key != flag.key || !*flag.value) continue;
    if (passed && held == flag.value) return false;
    passed = passed || value == flag.value;
  }
  return true;
}

void add_key_flag(CLI::App& app, TrainFlags& f, const KeyFlag& flag) {
  const std::string key = flag.key;
  const bool is_switch = model::recipe_key(key).is_switch();
  if (is_switch || *flag.value) {
    const std::string value = is_switch ? "true" : flag.value;
    app.add_flag_callback(
        flag.names,
        [&f, key, value] {
          // The more specific of two flags for one key wins (--use_peft --use_dora): it comes later in the table.
          std::string& held = f.values[key];
          if (is_later(key, value, held)) held = value;
        },
        flag.help);
    if (!is_switch) return;
    // A hidden --no- form turns off what a recipe turns on.
    const std::string names = flag.names;
    app.add_flag_callback("--no-" + names.substr(2, names.find(',') - 2), [&f, key] { f.values[key] = "false"; })
        ->group("");
    return;
  }
  CLI::Option* option = app.add_option_function<std::string>(
      flag.names, [&f, key](const std::string& text) { f.values[key] = text; }, flag.help);
  option->check(allowed(flag));
  for (const auto& [read, what] : kReadKeys)
    if (key == read) option->check(reads(what));
  if (key == kOffload) option->check(writes(Writes::folder_of_cache));
  if (*flag.type) option->type_name(flag.type);
}

model::Recipe of_training(model::Recipe r) {
  if (!r.compress.empty()) throw usage_error("'{}' is a recipe of `lumen quantize`", r.name);
  return r;
}

// Reads a recipe by name or from a file, applied on top of `base`; several separated by commas are applied in order.
model::Recipe read_recipe(const model::Library& library, const std::string& name, model::Recipe base) {
  if (const auto text = library.recipe(name))
    return of_training(model::parse_recipe(text->text, text->name, std::move(base)));
  std::error_code error;
  if (std::filesystem::exists(name, error))
    return of_training(model::parse_recipe(read_file(name, 16 << 20), name, std::move(base)));
  if (const size_t comma = name.rfind(','); comma != std::string::npos)
    return read_recipe(library, name.substr(comma + 1), read_recipe(library, name.substr(0, comma), std::move(base)));
  std::string known;
  for (const std::string& one : library.recipe_names()) known += (known.empty() ? "" : ", ") + one;
  throw Error(Exit::usage, fmt::format("'{}' is neither a recipe nor a file", name), "known recipes: " + known);
}

// Replaces an alias by the optimizer's name and prints which one.
void settle_optimizer(const model::Library& library, model::Recipe& r) {
  std::string said;
  model::in_section(r, "optimizer", [&] { r.optimizer = model::resolved(library, r.optimizer, &said); });
  if (!said.empty()) note(said);
}

constexpr const char* kPrecision = "run.precision";

// --precision: a scalar type, or a recipe that gives the formats of all operands.
void apply_precision(const model::Library& library, const std::string& name, model::Recipe& r) {
  if (model::is_recipe_of_products(library, name))
    r = read_recipe(library, name, std::move(r));
  else
    model::set_value(model::recipe_key(kPrecision), name, r);
}

}  // namespace

void apply_flags(const model::Library& library, const TrainFlags& flags, model::Recipe& r) {
  if (flags.has(kPrecision)) apply_precision(library, flags.text(kPrecision), r);
  for (const auto& [key, text] : flags.values)
    if (key != kPrecision) model::set_value(model::recipe_key(key), text, r);
  if (flags.has("schedule.warmup_steps") && !flags.has("schedule.warmup_ratio")) r.schedule.warmup_ratio = 0;
  if (flags.has("schedule.warmup_ratio") && r.schedule.warmup_ratio > 0) r.schedule.warmup = 0;
  if (flags.has("objective.name")) {
    r.objective = {flags.text("objective.name"), "", {}, r.objective.teacher};
    model::take_text(r.objective);
  }
  for (const auto& [name, value] : flags.objective_settings) r.objective.settings[name] = value;
  if (flags.bf16) r.precision = "bf16";
  if (!flags.format.empty()) {
    model::QuantizeRule rule;
    rule.values = {"*"};
    rule.format = flags.format;
    r.quantize = {rule};
  }
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
  if (f.has("schedule.shape")) (void)model::schedule_shape(f.text("schedule.shape"));
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

model::Recipe named_recipe(const model::Library& library, const std::string& name) {
  return read_recipe(library, name, {});
}

model::Recipe fresh_recipe(const model::Library& library, const TrainFlags& flags) {
  model::Recipe r;
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
    (void)model::product_type(
        model::with_machine_floats(r, [](const FieldType&) { return false; }, library.formats()), library.formats());
  };
  model::in_section(r, "products", [&] { model::in_section(r, "run", products); });
  return r;
}

model::Recipe resumed_recipe(const model::Library& library, const TrainFlags& flags, const model::Recipe& was) {
  model::Recipe stored = was;
  stored.optimizer = model::resolved(library, stored.optimizer);
  model::Recipe r = stored;
  if (!flags.recipe.empty()) r = read_recipe(library, flags.recipe, stored);
  r.name = stored.name;
  apply_flags(library, flags, r);
  model::Schedule& schedule = r.schedule;
  if (schedule.warmup_ratio > 0) {  // a ratio of the originally planned steps
    model::Schedule planned = schedule;
    planned.steps = stored.schedule.steps;
    planned.decay_steps = stored.schedule.decay_steps;
    schedule.warmup = model::warmup_steps(planned);
    schedule.warmup_ratio = 0;
  }
  if (!flags.changed_recipe && schedule.steps > stored.schedule.steps) {
    const int64_t planned = stored.schedule.decay_steps > 0 ? stored.schedule.decay_steps : stored.schedule.steps;
    const bool falls = model::ends_at_floor(schedule.shape);
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
  for (const model::RecipeChange& c : model::recipe_changes(stored, r)) {
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
  app.add_option(
         "-r,--recipe", f.recipe,
         "A recipe by name, or a .toml file (several with commas between: each on top of those before); flags below "
         "override it")
      ->check(reads(Reads::file))
      ->type_name("NAME|FILE");
  app.add_option("-m,--model,--model_name_or_path", f.model,
                 "Start from this model, in any format, instead of fresh weights")
      ->check(reads(Reads::model))
      ->type_name("FILE");
  app.add_option("-o,--out,--output,--output_dir,--output-dir", f.out,
                 "Folder for checkpoints, metrics and the model; lumen-out, or the folder that is resumed")
      ->check(writes(Writes::folder_of_run))
      ->type_name("DIR");
  app.add_flag("--overwrite,--overwrite_output_dir", f.overwrite,
               "Replace the model and remove the checkpoints that --out holds of another run");
  CLI::Option* resume = app.add_option("--resume,--resume_from_checkpoint,--resume-from-checkpoint", f.resume,
                                       "Go on from a checkpoint, by its own recipe; without a value, the latest one in "
                                       "--out")
                            ->check(reads(Reads::resumed))
                            ->expected(0, 1)
                            ->type_name("[DIR]");
  app.add_flag("--allow-changed-data", f.changed_data,
               "Resume although data files, or a teacher, are not what they were");
  app.add_flag("--allow-changed-recipe", f.changed_recipe,
               "Resume with other rates, steps, batches or data order than the checkpoint's");
  for (const KeyFlag& flag : kKeyFlags) add_key_flag(app, f, flag);
  app.add_option_function<std::vector<std::string>>(
         "--objective-setting",
         [&f](const std::vector<std::string>& given) {
           for (const std::string& text : given) {
             const size_t equals = text.find('=');
             char* end = nullptr;
             const double value = equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
             if (equals == std::string::npos || end == text.c_str() + equals + 1 || *end != 0 || !std::isfinite(value))
               throw usage_error("--objective-setting {}: NAME=NUMBER is wanted", text);
             f.objective_settings[text.substr(0, equals)] = value;
           }
         },
         "A number of the objective, e.g. label_smoothing=0.1; more than once for several")
      ->type_name("NAME=NUMBER")
      ->allow_extra_args(false);
  app.add_option_function<double>(
      "--beta", [&f](double beta) { f.objective_settings["beta"] = beta; }, "--objective-setting beta=..");
  app.add_option_function<std::string>(
         "--report_to,--report-to",
         [&f](const std::string& to) { f.values["report.tensorboard"] = to == "tensorboard" ? "true" : "false"; },
         "tensorboard: the same as --tensorboard; none")
      ->check(CLI::IsMember({"tensorboard", "none"}));
  app.add_flag("--bf16", f.bf16, "The same as --precision bf16");
  app.add_option("--format,--qat", f.format, "Quantization-aware: round every matrix to this format in the loop");
  app.add_option(
         "--ranks,--nproc-per-node,--nproc_per_node,--num-processes,--num_processes", f.ranks_here,
         "Processes on this host that share each batch, one GPU each with --device cuda; torchrun, srun and mpirun "
         "start ranks themselves")
      ->check(CLI::Range(1, 256))
      ->type_name("N");
  app.add_flag("--print-config", f.print_config, "Print the resolved recipe and stop");
  app.add_flag("--plan", f.plan, "Print what the run needs: memory by kind, and time; nothing is trained or written");
  app.add_flag("--explain", f.explain, "Print the kernels of one step and their times at the end");
  return resume;
}

}  // namespace lumen::cli
