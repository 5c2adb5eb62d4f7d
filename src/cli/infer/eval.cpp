// lumen eval -m MODEL --tasks NAME,..

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/protected.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/structured/json.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/infer/mapping.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/eval/evaluate.h"

namespace lumen::cli {
namespace {

struct EvalFlags {
  std::string model, output, samples, data;
  std::vector<std::string> tasks, files;
  int64_t fewshot = -1;
  bool list = false;
  model::eval::EvalOptions options;
  AdapterFlags adapters;
  Mapping mapping;
};

std::string figure_text(const model::eval::TaskResult& result, const model::eval::Figure& figure) {
  return fmt::format("{:<24} {:>7} {:>7}  {:<28} {:>8.4f}{}\n", result.task, result.rows, result.fewshot, figure.name,
                     figure.value, figure.error ? fmt::format(" +/- {:.4f}", *figure.error) : "");
}

nlohmann::ordered_json as_json(const std::vector<model::eval::TaskResult>& results, const EvalFlags& flags) {
  nlohmann::ordered_json out;
  out["model"] = flags.model;
  out["seed"] = flags.options.seed;
  for (const model::eval::TaskResult& r : results) {
    nlohmann::ordered_json& task = out["results"][r.task];
    task["rows"] = r.rows;
    task["num_fewshot"] = r.fewshot;
    task["seconds"] = r.seconds;
    if (r.cut > 0) task["prompts_cut"] = r.cut;
    for (const model::eval::Figure& f : r.figures) {
      task[f.name] = f.value;
      task[f.name + "_stderr"] = f.error ? nlohmann::ordered_json(*f.error) : nlohmann::ordered_json(nullptr);
    }
  }
  return out;
}

int evaluate(const Shared& shared, EvalFlags& flags) {
  model::eval::TaskLibrary tasks;
  for (const std::string& file : flags.files) tasks.add_file(file);
  if (flags.list) {
    for (const std::string& name : tasks.names()) put(fmt::format("{:<24} {}\n", name, tasks.get(name).doc));
    return 0;
  }
  if (flags.model.empty()) throw usage_error("a model is missing: name one with -m; --list shows the tasks");
  if (flags.tasks.empty())
    throw Error(Exit::usage, "no task is named: --tasks NAME,..",
                fmt::format("there are {}", fmt::join(tasks.names(), ", ")));
  for (const std::string& name : flags.tasks) {
    tasks.get(name);
    if (flags.data.empty() && tasks.folder_of(name).empty())
      throw Error(Exit::usage, fmt::format("the task '{}' comes without its data", name),
                  "--data DIR names their folder; docs/guide/evaluating.md names the files");
  }
  flags.options.data = flags.data;
  ProtectedFiles rows;
  for (const std::string& name : flags.tasks)
    for (const std::filesystem::path& file : model::eval::data_files_of(tasks, name, flags.options)) rows.add(file);
  for (const std::string& file : {flags.output, flags.samples})
    if (!file.empty()) refuse_protected(file);
  if (flags.fewshot >= 0) flags.options.fewshot = flags.fewshot;
  const model::arch::Model model = flags.mapping.read(shared, shared.library(), flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  const auto adapters = flags.adapters.read(model);
  run::Engine engine = shared.engine();
  const model::infer::LoadedModel loaded(engine, model, adapters);
  catch_interrupts();
  Progress progress;
  std::vector<model::eval::TaskResult> results;
  const Stopwatch watch;
  for (const std::string& name : flags.tasks) {
    const Stopwatch lap;
    const auto told = [&](const model::eval::EvalProgress& p) {
      const double seconds = lap.seconds();
      const double rate = static_cast<double>(p.done) / std::max(seconds, 1e-9);
      progress.update(fmt::format("{} {}/{} | {:.1f} rows/s | {} left", p.task, p.done, p.all, rate,
                                  format_duration(static_cast<double>(p.all - p.done) / std::max(rate, 1e-9))));
    };
    for (model::eval::TaskResult& r :
         model::eval::evaluate(loaded, tasks, name, flags.options, told, [] { return !interrupted().load(); }))
      results.push_back(std::move(r));
  }
  const double seconds = watch.seconds();
  progress.finish(
      fmt::format("{} task{} in {}", results.size(), results.size() == 1 ? "" : "s", format_duration(seconds)));
  for (const model::eval::TaskResult& r : results)
    if (r.cut > 0 && !r.samples.empty())
      warn(fmt::format("task '{}': {} prompts were longer than the context and lost their beginning", r.task, r.cut));
  put(fmt::format("{:<24} {:>7} {:>7}  {:<28} {:>8}\n", "task", "rows", "shots", "figure", "value"));
  for (const model::eval::TaskResult& r : results)
    for (const model::eval::Figure& f : r.figures) put(figure_text(r, f));
  if (!flags.output.empty()) write_file_atomic(flags.output, as_json(results, flags).dump(2) + "\n");
  if (!flags.samples.empty()) {
    std::string lines;
    for (const model::eval::TaskResult& r : results)
      for (nlohmann::ordered_json sample : r.samples) {
        sample["task"] = r.task;
        lines += sample.dump() + "\n";
      }
    write_file_atomic(flags.samples, lines);
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Command& command) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* sub = app.add_subcommand("eval", "Run benchmark tasks on a model and count correct answers");
  add_settings(*sub, "--model", flags->model, "--tasks", flags->tasks, "--task-file", flags->files, "--data",
               flags->data, "--allow-outside-data", flags->options.outside_data, "--list", flags->list, "--num-fewshot",
               flags->fewshot, "--limit", flags->options.limit, "--seed", flags->options.seed, "--ctx-size",
               flags->options.session.context, "--parallel", flags->options.parallel, "--output", flags->output,
               "--log-samples", flags->samples);
  flags->adapters.add_flags(*sub);
  flags->mapping.add_flags(*sub);
  add_setting(*sub, "--exact", flags->options.session.exact);
  sub->footer(
      "Figures and rules are those of lm-evaluation-harness.\n"
      "Examples:\n"
      "  lumen eval --list\n"
      "  lumen eval -m model.gguf --tasks arc_easy,piqa --data commonsense\n"
      "  lumen eval -m model.gguf --tasks gsm8k --data gsm8k --num-fewshot 5 -o figures.json");
  set_action(*sub, command, flags, evaluate);
}

}  // namespace lumen::cli
