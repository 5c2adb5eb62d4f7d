// lumen compare BASE MODEL..
#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/protected.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/measured_quality.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/eval/evaluate.h"
#include "model/infer/measure/compare_models.h"
#include "model/infer/measure/speed.h"
#include "model/report/compression/compression.h"
#include "run/device/require.h"

namespace lumen::cli {
namespace {

struct CompareFlags {
  std::vector<std::string> models;
  std::string text, bos = "front", json, html, scratch, data;
  std::vector<std::string> tasks, task_files;
  int64_t limit = 0;
  bool one_by_one = false, no_speed = false, outside_data = false;
  model::infer::PerplexityOptions options;
};

class Compare {
 public:
  Compare(const Shared& shared, CompareFlags& flags) : flags_(flags), engine_(shared.engine()) {
    for (const std::string& file : flags.task_files) tasks_.add_file(file);
    for (const std::string& name : flags.tasks) {
      tasks_.get(name);
      if (flags.data.empty() && tasks_.folder_of(name).empty())
        throw Error(Exit::usage, fmt::format("the task '{}' comes without its data", name),
                    "--data DIR names their folder; docs/guide/evaluating.md names the files");
    }
    for (const std::string& name : flags.tasks)
      for (const std::filesystem::path& file : model::eval::data_files_of(tasks_, name, task_options()))
        rows_.add(file);
    for (const std::string& file : {flags.json, flags.html})
      if (!file.empty()) refuse_protected(file);
    const model::arch::LibraryRef library = shared.library();
    for (const std::string& file : flags.models) models_.push_back(model::arch::read_model(library, file));
    if (!models_[0].tokenizer) throw user_error("{} has no tokenizer", flags.models[0]);
    for (size_t i = 1; i < models_.size(); ++i) model::infer::require_same_tokens(models_[0], models_[i]);
    begin_report();
  }

  void run() {
    const std::vector<model::text::TokenId> text = tokens();
    catch_interrupts();
    if (together())
      compare_together(text);
    else
      compare_one_by_one(text);
    for (size_t i = 0; i < models_.size(); ++i)
      if (!flags_.no_speed || !flags_.tasks.empty()) measure_alone(i);
    put_table();
    if (!flags_.json.empty()) write_file_atomic(flags_.json, model::report::compression_json(report_));
    if (!flags_.html.empty()) write_file_atomic(flags_.html, model::report::html_report(report_));
  }

 private:
  using Report = model::report::CompressionReport;

  model::eval::EvalOptions task_options() const {
    model::eval::EvalOptions options;
    options.data = flags_.data;
    options.limit = flags_.limit;
    options.outside_data = flags_.outside_data;
    return options;
  }

  model::report::MeasuredQuality& quality(size_t i) {
    return i == 0 ? report_.base.quality : report_.points[i - 1].quality;
  }

  void begin_report() {
    const auto bits = [](const model::arch::Model& m) {
      return 8.0 * m.weight_bytes() / std::max<int64_t>(1, m.weight_count());
    };
    report_.model = models_[0].name.empty() ? flags_.models[0] : models_[0].name;
    report_.created = today();
    report_.device = engine_.device().describe();
    report_.base = {flags_.models[0], models_[0].weight_bytes(), bits(models_[0]), {}};
    for (size_t i = 1; i < models_.size(); ++i)
      report_.points.push_back({flags_.models[i], "compared", models_[i].weight_bytes(), bits(models_[i]), {}, false});
  }

  std::vector<model::text::TokenId> tokens() {
    const model::arch::Model& base = models_[0];
    const std::string text = held_out_text(flags_.text, "comparing on");
    const model::infer::BosPlace place = model::infer::bos_place(flags_.bos);
    flags_.options.bos = place != model::infer::BosPlace::none && base.tokenizer->adds_bos();
    report_.text =
        fmt::format("{}, windows of {} tokens, {} scored", flags_.text.empty() ? "the built-in text" : flags_.text,
                    flags_.options.length, flags_.options.full ? "all but the first" : "the second half");
    return model::infer::perplexity_tokens(*base.tokenizer, text, place);
  }

  bool together() {
    if (flags_.one_by_one) return false;
    run::MemoryNeeds needs;
    for (size_t i = 0; i < models_.size(); ++i) needs.push_back({flags_.models[i], models_[i].weight_bytes()});
    needs.push_back({"logits of a window", model::infer::comparing_bytes(models_[0], models_.size(), flags_.options)});
    try {
      run::require_memory(engine_.device(), "comparing", needs);
      return true;
    } catch (const Error& e) {
      if (e.code() != Exit::hardware) throw;
      note(
          "there is no room for all models at once: one is held at a time, and the base's log probabilities in a file");
      return false;
    }
  }

  void take(size_t i, const model::infer::Divergence& d) {
    const model::report::MeasuredQuality base = base_quality_of(d);
    quality(i) = quality_of(d);
    quality(0).ppl = base.ppl;
    quality(0).ppl_error = base.ppl_error;
  }

  void told(const std::string& what, int64_t done, int64_t all) {
    if (interrupted().load()) throw Error(Exit::interrupted, "stopped");
    progress_.update(fmt::format("{} window {}/{}", what, done, all));
  }

  void compare_together(const std::vector<model::text::TokenId>& text) {
    std::deque<model::infer::LoadedModel> loaded;
    std::vector<const model::infer::LoadedModel*> others;
    for (const model::arch::Model& m : models_) loaded.emplace_back(engine_, m);
    for (size_t i = 1; i < loaded.size(); ++i) others.push_back(&loaded[i]);
    const model::infer::ComparedModels compared =
        model::infer::compare_models(loaded[0], others, text, flags_.options, [&](int64_t done, int64_t all) {
          told("compare", done, all);
          return true;
        });
    report_.stages.push_back({"forward passes of the base", compared.base_seconds});
    for (size_t i = 0; i < compared.others.size(); ++i) {
      const model::infer::ModelComparison& c = compared.others[i];
      take(i + 1, c.divergence);
      quality(i + 1).cosine = c.cosine;
      report_.stages.push_back({"forward passes of " + flags_.models[i + 1], c.seconds});
      if (i == 0) progress_.finish(fmt::format("compared {} tokens", c.divergence.tokens));
    }
    report_.stages.push_back({"comparing logits", compared.comparing});
  }

  void compare_one_by_one(const std::vector<model::text::TokenId>& text) {
    const std::filesystem::path folder =
        flags_.scratch.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(flags_.scratch);
    const AtomicFolder scratch(folder / "lumen-compare");  // deleted at the end
    const std::filesystem::path logits = scratch.path() / "logits";
    const auto timed = [&](const std::string& name, const auto& work) {
      const Stopwatch watch;
      work();
      report_.stages.push_back({name, watch.seconds()});
    };
    timed("recording " + flags_.models[0], [&] {
      const model::infer::LoadedModel loaded(engine_, models_[0]);
      model::infer::record_logits(loaded, text, flags_.options, logits,
                                  [&](int64_t done, int64_t all) { told("record", done, all); });
    });
    for (size_t i = 1; i < models_.size(); ++i)
      timed("comparing " + flags_.models[i], [&] {
        const model::infer::LoadedModel loaded(engine_, models_[i]);
        const model::infer::Divergence d =
            model::infer::divergence(loaded, text, flags_.options, logits,
                                     [&](int64_t done, int64_t all) { told(flags_.models[i], done, all); });
        take(i, d);
        progress_.finish(fmt::format("compared {} tokens", d.tokens));
      });
    report_.notes.emplace_back(
        "The base's log probabilities were held in 16 bits, so that a model is not quite 0 away from itself; and "
        "hidden vectors were not compared.");
  }

  // Measures speed and tasks, one model at a time.
  void measure_alone(size_t i) {
    const model::infer::LoadedModel loaded(engine_, models_[i]);
    if (!flags_.no_speed) {
      model::infer::SpeedOptions options;
      options.repetitions = 2;
      const auto rate = [&](model::infer::SpeedTest test) {
        const model::infer::Speed speed = model::infer::measure_speed(
            loaded, test, options, [&](const std::string& text) { progress_.update(flags_.models[i] + " " + text); },
            [] { return interrupted().load(); });
        if (interrupted().load()) throw Error(Exit::interrupted, "stopped");
        return speed.mean_rate();
      };
      const int64_t context = models_[i].integer("context");
      quality(i).prompt_tokens_per_s = rate({.prompt = std::min<int64_t>(128, context / 2)});
      quality(i).tokens_per_s = rate({.generate = std::min<int64_t>(32, context / 2)});
    }
    const model::eval::EvalOptions options = task_options();
    for (const std::string& name : flags_.tasks) {
      const auto results = model::eval::evaluate(
          loaded, tasks_, name, options,
          [&](const model::eval::EvalProgress& p) {
            progress_.update(fmt::format("{} {} {}/{}", flags_.models[i], p.task, p.done, p.all));
          },
          [] { return !interrupted().load(); });
      for (const model::eval::TaskResult& r : results)
        for (const model::eval::Figure& f : r.figures)
          report_.tasks.push_back({flags_.models[i], r.task, f.name, f.value, f.error});
    }
    progress_.finish(fmt::format("{} is measured", flags_.models[i]));
  }

  void put_table() {
    const auto number = [](const std::optional<double>& x, int digits) {
      return x ? fmt::format("{:.{}f}", *x, digits) : std::string("-");
    };
    const auto with_error = [&](const std::optional<double>& x, const std::optional<double>& error, int digits) {
      return x && error ? fmt::format("{:.{}f} +/- {:.{}f}", *x, digits, *error, digits) : number(x, digits);
    };
    std::vector<std::vector<std::string>> rows = {{"model", "MiB", "bits", "KL divergence", "99 %", "most",
                                                   "same top %", "perplexity", "cosine", "prompt t/s", "t/s"}};
    for (size_t i = 0; i < models_.size(); ++i) {
      const model::report::MeasuredQuality& q = quality(i);
      const int64_t bytes = i == 0 ? report_.base.bytes : report_.points[i - 1].bytes;
      const double bits = i == 0 ? report_.base.bits : report_.points[i - 1].bits;
      rows.push_back({flags_.models[i], fmt::format("{:.1f}", bytes / 1048576.0), fmt::format("{:.3f}", bits),
                      with_error(q.kl, q.kl_error, 6), number(q.kl_p99, 6), number(q.kl_most, 6),
                      q.same_top ? fmt::format("{:.2f}", 100 * *q.same_top) : "-", with_error(q.ppl, q.ppl_error, 4),
                      number(q.cosine, 6), number(q.prompt_tokens_per_s, 2), number(q.tokens_per_s, 2)});
    }
    std::vector<size_t> widths(rows[0].size(), 0);
    for (const auto& row : rows)
      for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    for (const auto& row : rows) {
      std::string line = fmt::format("{:<{}}", row[0], widths[0]);
      for (size_t c = 1; c < row.size(); ++c) line += fmt::format("  {:>{}}", row[c], widths[c]);
      put(line + "\n");
    }
    for (const Report::TaskFigure& t : report_.tasks)
      put(fmt::format("{:<20} {:<14} {:>8.4f}{}  {}\n", t.task, t.figure, t.value,
                      t.error ? fmt::format(" +/- {:.4f}", *t.error) : "", t.model));
    for (const std::string& n : report_.notes) note(n);
  }

  CompareFlags& flags_;
  run::Engine engine_;
  model::eval::TaskLibrary tasks_;
  ProtectedFiles rows_;  // input files of the tasks
  std::vector<model::arch::Model> models_;
  Report report_;
  Progress progress_;
};

}  // namespace

void add_compare(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* sub = app.add_subcommand("compare", "Compare models with a base: KL divergence, perplexity, size, speed");
  add_setting(*sub, "models", flags->models)->expected(2, 64);
  add_settings(*sub, "--file", flags->text, "--ctx-size", flags->options.length, "--chunks", flags->options.windows,
               "--full", flags->options.full, "--bos", flags->bos, "--exact", flags->options.exact, "--one-by-one",
               flags->one_by_one);
  add_setting(*sub, "--scratch", flags->scratch)->check(CLI::ExistingDirectory);
  add_settings(*sub, "--no-speed", flags->no_speed, "--tasks", flags->tasks, "--task-file", flags->task_files, "--data",
               flags->data, "--allow-outside-data", flags->outside_data, "--limit", flags->limit, "--json", flags->json,
               "--html", flags->html);
  sub->footer(
      "Divergences are KL divergences from the base's distribution for each scored token, in nats. The protocol is "
      "that of\n"
      "`lumen perplexity`.\n"
      "Examples:\n"
      "  lumen compare model-f16.gguf model-small.gguf -f wiki.test.raw\n"
      "  lumen compare model-f16.gguf a.gguf b.gguf --chunks 64 --html compared.html\n"
      "  lumen compare big.gguf small.gguf --one-by-one --scratch /data");
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] {
      Compare(*shared, *flags).run();
      return 0;
    };
  });
}

}  // namespace lumen::cli
