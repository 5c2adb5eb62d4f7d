// lumen demo: trains a model, quantizes it to many formats, fine-tunes with quantization in the loop, and prints one
// table.
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/lock.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/perplexity.h"
#include "model/infer/sample/sampler.h"
#include "model/train/loop/loop.h"

namespace lumen::cli {
namespace {

struct DemoFlags {
  std::string out = "demo-out", recipe = "demo";
  std::optional<int64_t> steps, tuning_steps;
  int64_t sample = 300;
};

struct Row {
  std::string format;
  double bits = 0;
  int64_t file_bytes = 0;
  double perplexity = 0;  // after quantization
  double trained = 0;     // after quantization-aware fine-tuning; 0: not run
  double tokens_per_second = 0;
  std::filesystem::path best_file;  // the better of the quantized and the fine-tuned file
};

struct Interrupted {};

class Demo {
 public:
  Demo(const Shared& shared, DemoFlags flags)
      : flags_(std::move(flags)), library_(shared.library()), engine_(shared.engine()) {
    const auto text = library_->recipe(flags_.recipe);
    if (!text) throw usage_error("no recipe is called '{}'", flags_.recipe);
    recipe_ = model::recipe::parse_recipe(text->text, text->name);
    if (flags_.steps) recipe_.schedule.steps = *flags_.steps;
    if (flags_.tuning_steps) recipe_.demo_tuning_steps = *flags_.tuning_steps;
    recipe_.schedule.warmup = std::min(recipe_.schedule.warmup, recipe_.schedule.steps / 4);
    for (const std::string& name : recipe_.demo_formats)
      (void)named_format(library_->formats(), name);  // reports errors before the work
  }

  int run() {
    const Stopwatch watch;
    std::filesystem::create_directories(flags_.out);
    require_writable_folder(flags_.out);
    prepare();
    train();
    rows_.push_back(measure("f32", trained_, "f32"));
    for (const std::string& name : recipe_.demo_formats) rows_.push_back(round_to(name));
    for (const std::string& name : recipe_.demo_trained) fine_tune(name);
    print_table();
    write_sample();
    put(fmt::format("{} GGUF files in {}; whole demo {}\n", files_, flags_.out, format_duration(watch.seconds())));
    return 0;
  }

 private:
  void prepare() {
    const std::string_view text = model::data::embedded_text();
    const model::arch::FamilyRef family = library_->family_with_size(recipe_.size);
    LUMEN_CHECK(family, "the demo's size belongs to no family");
    const model::text::Tokenizer tokenizer = model::text::Tokenizer::characters(text);
    model::data::DatasetOptions options;
    options.validation = recipe_.validation;
    data_ = std::make_shared<model::data::Dataset>(model::data::Dataset::from_text(text, tokenizer, options));
    graph::Config values = recipe_.config;
    values["vocab"] = tokenizer.size();
    trained_ = model::arch::initialise(family, family->config(recipe_.size, values), recipe_.seed);
    trained_.tokenizer = tokenizer;
    trained_.name = "demo";
    lock_.emplace(flags_.out);
    model::file::clean_checkpoints(flags_.out);
    put(fmt::format("A character model of {:.2f} M parameters on {} characters of plays; everything lands in {}.\n",
                    trained_.weight_count() / 1e6, text.size(), flags_.out));
  }

  model::train::LoopResult run_loop(model::train::Trainer& trainer, const std::string& title, bool save) {
    model::train::LoopOptions options;
    if (save) options.out = flags_.out;
    options.stop = &interrupted();
    options.title = title;
    const model::train::LoopResult result = model::train::run_training(trainer, options);
    if (result.interrupted) throw Interrupted{};
    return result;
  }

  void train() {
    model::train::Trainer trainer(engine_, trained_, recipe_, data_);
    const model::train::LoopResult result = run_loop(trainer, "train f32", true);
    trained_ = trainer.model();
    put(fmt::format("trained {} steps: validation loss {:.4f} nats per character, {:.0f} tokens/s\n",
                    recipe_.schedule.steps, result.validation_loss, result.tokens_per_second));
  }

  double perplexity_of(const model::infer::LoadedModel& loaded) {
    model::infer::PerplexityOptions options;
    options.length = trained_.integer("context");
    options.full = true;
    options.batch = 24;
    options.windows = 600;
    if (interrupted().load()) throw Interrupted{};
    return model::infer::perplexity(loaded, data_->validation(), options).value;
  }

  // Tokens per second of greedy generation until the context is full, after a warm-up.
  double speed_of(const model::infer::LoadedModel& loaded) {
    model::infer::Session session(loaded, {});
    const std::vector<model::text::TokenId> prompt = loaded.model().tokenizer->encode("\n");
    model::infer::Sampler greedy({.temperature = 0});
    double seconds = 0;
    int64_t tokens = 0;
    for (int round = 0; round < 4; ++round) {
      session.rewind(0);
      model::text::TokenId id = prompt[0];
      const Stopwatch watch;
      int64_t made = 0;
      for (; session.position() < session.context(); ++made) id = greedy.pick(session.feed({&id, 1}));
      if (round == 0) continue;  // warm-up: compilation and page faults
      seconds += watch.seconds();
      tokens += made;
    }
    return tokens / std::max(seconds, 1e-9);
  }

  Row measure(const std::string& name, const model::arch::Model& model, const std::string& file) {
    Row row;
    row.format = name;
    row.bits = 8.0 * model.weight_bytes() / model.weight_count();
    row.best_file = std::filesystem::path(flags_.out) / ("model-" + file + ".gguf");
    model::arch::write_gguf(model, row.best_file);
    ++files_;
    row.file_bytes = std::filesystem::file_size(row.best_file);
    const model::infer::LoadedModel loaded(engine_, model);
    row.perplexity = perplexity_of(loaded);
    row.tokens_per_second = speed_of(loaded);
    return row;
  }

  model::arch::Model rounded(const model::arch::Model& model, const std::string& format) {
    model::compress::QuantizeOptions options;
    options.target = format;
    options.pure = true;
    return model::compress::quantize(engine_, model, options, nullptr);
  }

  Row round_to(const std::string& name) {
    note(fmt::format("rounding to {}", name));
    return measure(name, rounded(trained_, name), name);
  }

  void fine_tune(const std::string& name) {
    model::recipe::Recipe recipe = recipe_;
    recipe.schedule.steps = recipe_.demo_tuning_steps;
    recipe.schedule.warmup = recipe.schedule.steps / 10;
    recipe.schedule.peak = recipe_.schedule.peak / 2;
    recipe.schedule.floor = recipe_.schedule.peak / 50;
    recipe.seed = recipe_.seed + 1;
    recipe.evaluate_every = 0;
    recipe.evaluate_windows = 64;
    model::recipe::QuantizeRule rule;
    rule.values = {"*"};
    rule.format = name;
    recipe.quantize = {rule};
    model::train::Trainer trainer(engine_, trained_, recipe, data_);
    (void)run_loop(trainer, "fine-tune " + name, false);
    const Row tuned = measure(name, trainer.rounded(), name + "-trained");
    for (Row& row : rows_) {
      if (row.format != name) continue;
      row.trained = tuned.perplexity;
      if (tuned.perplexity < row.perplexity) row.best_file = tuned.best_file;
    }
  }

  void print_table() const {
    std::string out = fmt::format(
        "\n{:<14} {:>7} {:>12} {:>12} {:>14} {:>10}\n{:<14} {:>7} {:>12} {:>12} {:>14} {:>10}\n", "format", "bits per",
        "file", "perplexity", "perplexity", "tokens/s", "", "weight", "bytes", "rounded", "fine-tuned", "generated");
    for (const Row& row : rows_) {
      out += fmt::format("{:<14} {:>8.3f} {:>11} {:>12.4f} {:>14} {:>10.0f}\n", row.format, row.bits, row.file_bytes,
                         row.perplexity, row.trained > 0 ? fmt::format("{:.4f}", row.trained) : "-",
                         row.tokens_per_second);
    }
    put(out + fmt::format("perplexity per character on 600 windows of the validation text; fine-tuned: {} further "
                          "steps with quantization in the loop\n",
                          recipe_.demo_tuning_steps));
  }

  // Generates a sample with the best file below five bits.
  void write_sample() {
    const Row* best = nullptr;
    const auto value = [](const Row& r) { return r.trained > 0 ? std::min(r.trained, r.perplexity) : r.perplexity; };
    for (const Row& row : rows_) {
      if (row.bits >= 5 || row.bits < 4) continue;
      if (!best || value(row) < value(*best)) best = &row;
    }
    if (!best) return;
    const model::arch::Model model = model::arch::read_gguf(library_, best->best_file);
    const model::infer::LoadedModel loaded(engine_, model);
    model::infer::Session session(loaded, {});
    model::infer::SamplerOptions options;
    options.seed = 7;
    model::infer::Sampler sampler(options);
    model::text::TokenStream stream(*model.tokenizer);
    std::vector<model::text::TokenId> text = model.tokenizer->encode(recipe_.demo_sample);
    put(fmt::format("\n{} writes:\n{}", best->best_file.filename().string(), recipe_.demo_sample));
    std::span<const float> logits = session.feed(text);
    for (int64_t i = 0; i < flags_.sample && !interrupted().load(); ++i) {
      const model::text::TokenId id = sampler.pick(logits);
      put_text(stream.push(id));
      text.push_back(id);
      if (session.position() == session.context()) {
        // The context is full: restart from its second half.
        text.erase(text.begin(), text.end() - session.context() / 2);
        session.rewind(0);
        logits = session.feed(text);
      } else {
        logits = session.feed({&id, 1});
      }
    }
    put_text(stream.finish() + "\n\n");
  }

  DemoFlags flags_;
  std::optional<FolderLock> lock_;
  model::arch::LibraryRef library_;
  run::Engine engine_;
  model::recipe::Recipe recipe_;
  std::shared_ptr<model::data::Dataset> data_;
  model::arch::Model trained_;
  std::vector<Row> rows_;
  int files_ = 0;
};

}  // namespace

void add_demo(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* sub =
      app.add_subcommand("demo", "Train a small model, quantize it to many formats and fine-tune it, in minutes");
  add_settings(*sub, "--out", flags->out, "--recipe", flags->recipe, "--steps", flags->steps, "--tuning-steps",
               flags->tuning_steps, "--sample", flags->sample);
  sub->footer("Examples:\n  lumen demo\n  lumen demo --steps 300 --tuning-steps 50 -o quick");
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] {
      catch_interrupts();
      try {
        return Demo(*shared, *flags).run();
      } catch (const Interrupted&) {
        note("stopped");
        return exit_code(Exit::interrupted);
      }
    };
  });
}

}  // namespace lumen::cli
