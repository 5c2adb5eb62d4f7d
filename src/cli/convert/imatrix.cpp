// lumen imatrix -m MODEL -f TEXT -o FILE
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/layer_text.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/calibrate/calibrate.h"
#include "model/infer/measure/perplexity.h"

namespace lumen::cli {
namespace {

struct ImatrixFlags {
  std::string model, text, out = "imatrix.gguf", form = "gguf", bos = "front";
  std::vector<std::string> earlier;
  model::calibrate::CalibrateOptions options;
};

int measure(const Shared& shared, ImatrixFlags& flags) {
  const model::arch::LibraryRef library = shared.library();
  if (flags.model.empty() && flags.earlier.empty())
    throw usage_error("no input: give a model with -m, or matrices to join with --in-file");
  if (flags.model.empty() && !flags.text.empty()) throw usage_error("-f TEXT needs a model: -m");
  model::calibrate::Importance all;
  for (const std::string& path : flags.earlier) {
    model::calibrate::Importance one = model::calibrate::read_importance(path, library->formats());
    // A file that counts windows is converted to counts of rows, as in the other files.
    if (one.length == 0)
      for (auto& [name, e] : one.entries) {
        for (double& x : e.sums) x *= static_cast<double>(flags.options.length);
        for (double& n : e.counts) n *= static_cast<double>(flags.options.length);
      }
    all.add(one);
  }
  if (!flags.model.empty()) {
    const model::arch::Model model = model::arch::read_model(library, flags.model);
    if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
    const model::infer::BosPlace place = model::infer::bos_place(flags.bos);
    flags.options.bos = place != model::infer::BosPlace::none && model.tokenizer->adds_bos();
    const std::vector<model::text::TokenId> tokens = calibration_tokens(model, flags.text, place, "measuring on");
    run::Engine engine = shared.engine();
    const model::infer::LoadedModel loaded(engine, model);
    Progress progress;
    std::string perplexity;  // only for models that predict tokens
    model::calibrate::Importance one =
        model::calibrate::calibrate(loaded, tokens, flags.options, [&](const model::calibrate::CalibrationProgress& p) {
          if (p.perplexity > 0) perplexity = fmt::format(", perplexity {:.4f}", p.perplexity);
          progress.update(fmt::format("imatrix window {}/{}{}", p.done, p.windows, perplexity));
        });
    one.datasets = {flags.text.empty() ? "the built-in text" : flags.text};
    progress.finish(fmt::format("imatrix: {} windows of {}{}", one.windows, one.length, perplexity));
    all.add(one);
  }
  model::calibrate::write_importance(
      all, flags.out,
      flags.form == "dat" ? model::calibrate::ImportanceForm::windows : model::calibrate::ImportanceForm::gguf);
  note(fmt::format("wrote {}: {} weights, {} windows", flags.out, all.entries.size(), all.windows));
  return 0;
}

}  // namespace

void add_imatrix(CLI::App& app, Command& command) {
  auto flags = std::make_shared<ImatrixFlags>();
  CLI::App* sub =
      app.add_subcommand("imatrix", "Measure an importance matrix: the inputs of a model's weights on a text");
  add_settings(*sub, "--model", flags->model, "--file", flags->text, "--output", flags->out, "--output-format",
               flags->form, "--in-file", flags->earlier, "--ctx-size", flags->options.length, "--batch-size",
               flags->options.batch, "--chunks", flags->options.windows, "--bos", flags->bos, "--process-output",
               flags->options.output, "--exact", flags->options.exact);
  sub->footer([] {
    return fmt::format(
        "The numbers are mean squares of the inputs of each column of a weight. `lumen quantize --imatrix` chooses "
        "scales\n"
        "by them, so that errors are where they cost least. Each matrix of stacked weights has its own numbers.\n"
        "Examples:\n"
        "  lumen imatrix -m model.gguf -f text.txt -o model.imatrix.gguf\n"
        "  lumen quantize model.gguf out.gguf {} --imatrix model.imatrix.gguf\n"
        "  lumen imatrix --in-file a.gguf --in-file b.dat -o both.gguf",
        example_format(4.5));
  });
  set_action(*sub, command, flags, measure);
}

}  // namespace lumen::cli
