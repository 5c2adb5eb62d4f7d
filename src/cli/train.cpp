// lumen train
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/names.h"
#include "model/arch/read.h"
#include "model/arch/write.h"
#include "model/train/loop.h"

namespace lumen::cli {
namespace {

// Flags win over the recipe; absent ones leave it as it is.
struct Flags {
  std::string recipe, model, out = "lumen-out", resume, format;
  bool resume_given = false, print_config = false, explain = false, hf = false;
  std::optional<std::string> family, shape, data, tokenizer, schedule;
  std::optional<int64_t> batch, length, steps, warmup, accumulate, evaluate_every, save_every, keep;
  std::optional<uint32_t> seed;
  std::optional<std::string> precision;
  std::optional<double> rate, min_rate, decay, clip, beta1, beta2, validation;
};

model::Recipe resolve(const model::Library& library, const Flags& flags) {
  model::Recipe r;
  if (!flags.recipe.empty()) {
    if (const auto text = library.recipe(flags.recipe)) {
      r = model::parse_recipe(text->text, text->name);
    } else if (std::filesystem::exists(flags.recipe)) {
      r = model::parse_recipe(read_file(flags.recipe, 16 << 20), flags.recipe);
    } else {
      std::string known;
      for (const std::string& name : library.recipe_names()) known += (known.empty() ? "" : ", ") + name;
      throw Error(Exit::usage, fmt::format("'{}' is neither a recipe nor a file", flags.recipe),
                  "known recipes: " + known);
    }
  }
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
  take(r.schedule.peak, flags.rate);
  take(r.schedule.floor, flags.min_rate);
  take(r.adam.weight_decay, flags.decay);
  take(r.adam.max_norm, flags.clip);
  take(r.adam.beta1, flags.beta1);
  take(r.adam.beta2, flags.beta2);
  take(r.validation, flags.validation);
  if (flags.rate && !flags.min_rate) r.schedule.floor = std::min(r.schedule.floor, *flags.rate / 10);
  if (flags.schedule) r.schedule.shape = model::schedule_shape(*flags.schedule);
  if (!flags.format.empty()) {
    model::QuantizeRule rule;
    rule.values = {"*"};
    rule.format = flags.format;
    r.quantize = {rule};
  }
  return r;
}

std::string training_text(const model::Recipe& r) {
  if (r.data.empty()) return std::string(model::embedded_text());
  std::string text;
  for (const std::string& document : model::read_documents(r.data)) text += document;
  return text;
}

model::Tokenizer make_tokenizer(const model::Recipe& r, const std::string& text) {
  if (r.tokenizer.empty() || r.tokenizer == "characters") return model::Tokenizer::characters(text);
  if (r.tokenizer.starts_with("bytes:")) {
    model::BpeTraining options;
    options.vocabulary = std::strtoll(r.tokenizer.c_str() + 6, nullptr, 10);
    if (options.vocabulary < 256) throw usage_error("--tokenizer bytes:N needs N of at least 256");
    return model::Tokenizer::train(text, options);
  }
  return model::Tokenizer::load(r.tokenizer);
}

// The model a run begins with: a file, or fresh weights of a named size with the vocabulary of the tokenizer.
model::Model starting_model(const model::LibraryRef& library, const Flags& flags, model::Recipe& r,
                            const std::string& text) {
  if (!flags.model.empty()) {
    model::Model model = model::read_model(library, flags.model);
    if (!model.tokenizer) model.tokenizer = make_tokenizer(r, text);
    return model;
  }
  if (r.size.empty()) r.size = "char";
  model::FamilyRef family;
  if (!r.family.empty()) {
    family = library->family(r.family);
  } else {
    family = library->family_with_size(r.size);
    if (!family) throw Error(Exit::usage, fmt::format("no family has a size '{}'", r.size), size_names());
  }
  const model::Tokenizer tokenizer = make_tokenizer(r, text);
  graph::Config values = r.config;
  values["vocab"] = static_cast<double>(tokenizer.size());
  if (r.length > 0) values["context"] = static_cast<double>(r.length);
  model::Model model = model::initialise(family, family->config(r.size, values), r.seed);
  model.tokenizer = tokenizer;
  model.name = r.size;
  return model;
}

int train(const Shared& shared, Flags& flags) {
  const model::LibraryRef library = shared.library();
  model::Recipe recipe = resolve(*library, flags);
  if (flags.print_config) {
    std::fputs(model::describe(recipe).c_str(), stdout);
    return 0;
  }
  const std::string text = training_text(recipe);
  model::Model model = starting_model(library, flags, recipe, text);
  run::Engine engine = shared.engine(flags.explain);
  engine.require_memory(model::training_bytes(model),
                        fmt::format("training {} (weights, gradients, two moments)", model.name));
  model::DatasetOptions data_options;
  data_options.validation = recipe.validation;
  const auto data = std::make_shared<model::Dataset>(
      recipe.data.empty() ? model::Dataset::from_text(text, *model.tokenizer, data_options)
                          : model::Dataset::load(recipe.data, *model.tokenizer, data_options));
  note(fmt::format("{}: {:.2f} M parameters, vocabulary {}, {} training and {} validation tokens", model.name,
                   static_cast<double>(model.weight_count()) / 1e6, model.tokenizer->size(), data->train().size(),
                   data->validation().size()));
  model::Trainer trainer(engine, std::move(model), recipe, data);
  if (flags.resume_given) {
    std::optional<std::filesystem::path> checkpoint;
    if (flags.resume.empty()) {
      checkpoint = model::latest_checkpoint(flags.out);
    } else if (std::filesystem::exists(std::filesystem::path(flags.resume) / "trainer_state.json")) {
      checkpoint = flags.resume;
    } else {
      checkpoint = model::latest_checkpoint(flags.resume);
    }
    if (!checkpoint) throw user_error("no checkpoint in {}", flags.resume.empty() ? flags.out : flags.resume);
    trainer.restore(*checkpoint);
    note(fmt::format("resumed from {} at step {}", checkpoint->string(), trainer.done()));
  }
  catch_interrupts();
  model::LoopOptions options;
  options.out = flags.out;
  options.stop = &interrupted();
  const model::LoopResult result = model::run_training(trainer, options);
  if (flags.explain) std::fputs(trainer.explain().c_str(), stderr);
  if (result.interrupted) {
    note(fmt::format("stopped at step {}; continue with --resume {}", trainer.done(), result.checkpoint.string()));
    return static_cast<int>(Exit::interrupted);
  }
  trainer.finish();
  const model::Model trained = trainer.model();
  const std::filesystem::path file = std::filesystem::path(flags.out) / "model.gguf";
  model::write_gguf(trained, file);
  std::string rounded_note;
  if (!recipe.quantize.empty()) {
    const std::filesystem::path rounded = std::filesystem::path(flags.out) / "model-rounded.gguf";
    model::write_gguf(trainer.rounded(), rounded);
    rounded_note = fmt::format("wrote {} in the recipe's formats\n", rounded.string());
  }
  if (flags.hf) model::write_hf(trained, std::filesystem::path(flags.out) / "hf");
  std::fputs(
      fmt::format(
          "train loss {:.4f} | validation loss {:.4f} nats per token (perplexity {:.3f}) | {:.0f} tokens/s | {}\n"
          "wrote {} and {}\n{}",
          result.train_loss, result.validation_loss, std::exp(result.validation_loss), result.tokens_per_second,
          format_duration(result.seconds), file.string(), result.checkpoint.string(), rounded_note)
          .c_str(),
      stdout);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = app.add_subcommand("train", "Train or fine-tune a model, with any number format in the loop");
  sub->add_option("-r,--recipe", flags->recipe, "A recipe by name, or a .toml file; flags below override it")
      ->type_name("NAME|FILE");
  sub->add_option("-m,--model,--model_name_or_path", flags->model, "Start from this model instead of fresh weights")
      ->type_name("FILE");
  sub->add_option("--family", flags->family, "Model family");
  sub->add_option("--shape,--size", flags->shape, "Named size of the family");
  sub->add_option("--data,--dataset", flags->data, "Text, .jsonl or a folder; without it, the built-in text")
      ->type_name("FILE");
  sub->add_option("--tokenizer", flags->tokenizer, "characters, bytes:N (byte pairs, N tokens), or a tokenizer file");
  sub->add_option("-o,--out,--output,--output_dir,--output-dir", flags->out,
                  "Folder for checkpoints, metrics and the model")
      ->capture_default_str()
      ->type_name("DIR");
  CLI::Option* resume = sub->add_option("--resume,--resume_from_checkpoint,--resume-from-checkpoint", flags->resume,
                                        "Go on from a checkpoint; without a value, the latest one in --out")
                            ->expected(0, 1)
                            ->type_name("[DIR]");
  sub->add_option("-b,--batch,--batch-size,--per_device_train_batch_size", flags->batch, "Windows per step")
      ->check(CLI::PositiveNumber);
  sub->add_option("-c,--length,--max_seq_length,--max-seq-length", flags->length, "Tokens per window")
      ->check(CLI::PositiveNumber);
  sub->add_option("--steps,--max_steps,--max-steps", flags->steps, "Optimizer steps")->check(CLI::PositiveNumber);
  sub->add_option("--lr,--learning-rate,--learning_rate", flags->rate, "Peak learning rate")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--min-lr,--min-learning-rate", flags->min_rate, "Learning rate at the end")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--warmup,--warmup-steps,--warmup_steps", flags->warmup, "Steps to the peak")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--schedule,--lr_scheduler_type,--lr-scheduler-type", flags->schedule, "cosine, linear or constant");
  sub->add_option("--weight-decay,--weight_decay", flags->decay, "On matrices only")->check(CLI::NonNegativeNumber);
  sub->add_option("--max-grad-norm,--max_grad_norm,--clip", flags->clip,
                  "Gradients are scaled down to this norm; 0: never")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--beta1,--adam_beta1", flags->beta1)->check(CLI::Range(0.0, 0.999999));
  sub->add_option("--beta2,--adam_beta2", flags->beta2)->check(CLI::Range(0.0, 0.9999999));
  sub->add_option("--accumulate,--gradient_accumulation_steps,--gradient-accumulation-steps", flags->accumulate,
                  "Batches per step")
      ->check(CLI::PositiveNumber);
  sub->add_option("--validation", flags->validation, "Share of the text kept for validation")
      ->check(CLI::Range(0.001, 0.9));
  sub->add_option("--eval-every,--eval_steps,--eval-steps", flags->evaluate_every,
                  "Steps between evaluations; 0: only at the end")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--save-every,--save_steps,--save-steps", flags->save_every,
                  "Steps between checkpoints; 0: only at the end")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--keep,--save_total_limit,--save-total-limit", flags->keep, "Checkpoints kept; 0: all")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("-s,--seed", flags->seed, "Names initial weights and the order of the data");
  sub->add_option("--precision", flags->precision,
                  "Float type that operands of products with parameters and of attention are rounded to (an 8 bit one: "
                  "each tensor under a scale of its own, attention and the last product in bf16); "
                  "sums and parameters stay f32")
      ->type_name("TYPE");
  sub->add_flag_callback("--bf16", [flags] { flags->precision = "bf16"; }, "The same as --precision bf16");
  sub->add_option("--format,--qat", flags->format, "Quantization-aware: round every matrix to this format in the loop");
  sub->add_flag("--hf", flags->hf, "Also write a Hugging Face folder");
  sub->add_flag("--print-config", flags->print_config, "Print the resolved recipe and stop");
  sub->add_flag("--explain", flags->explain, "Print the kernels of one step and their times at the end");
  sub->footer([] {
    return size_names() +
           "\n\nCtrl-C saves a checkpoint and ends with code 130; --resume continues bit for bit.\n"
           "Examples:\n"
           "  lumen train --shape char -o my-model\n"
           "  lumen train --shape char --data poems.txt --steps 5000 --lr 1e-3 -o poems\n"
           "  lumen train -o my-model --resume\n"
           "  lumen train -m my-model/model.gguf --format " +
           example_format(4.5) + " --steps 300 --lr 2e-4 -o tuned\n" +
           "  lumen train --recipe char --print-config > mine.toml";
  });
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, resume, &command] {
    flags->resume_given = resume->count() > 0;
    command.action = [flags, shared = command.shared] { return train(*shared, *flags); };
  });
}

}  // namespace lumen::cli
