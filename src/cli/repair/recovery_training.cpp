// lumen recover ORIGINAL QUANTIZED -o OUT
#include "model/compress/recovery_training/recovery_training.h"

#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/repair/repair_flags.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/infer/measure/compare_models.h"

namespace lumen::cli {
namespace {

constexpr const char *kTeacher = "kl", *kTokens = "tokens", *kScales = "scales", *kNorms = "norms";

struct RecoveryTrainingFlags : RepairFlags {
  std::string loss = kTeacher, folder;
  std::vector<std::string> train = {kScales, kNorms};
  model::compress::RecoveryTrainingOptions options;
};

// Prints the divergence of both quantized models from the original on held-out text.
void compare(run::Engine& engine, const RecoveryTrainingFlags& flags, const model::arch::Model& original,
             const model::arch::Model& before, const model::arch::Model& after) {
  const model::infer::PerplexityOptions options = flags.check_options(original);
  const std::vector<model::text::TokenId> tokens = flags.check_tokens(original);
  const model::infer::LoadedModel base(engine, original), was(engine, before), now(engine, after);
  const model::infer::LoadedModel* const others[] = {&was, &now};
  Progress progress;
  const model::infer::ComparedModels compared =
      model::infer::compare_models(base, others, tokens, options, [&](int64_t done, int64_t all) {
        progress.update(fmt::format("check window {}/{}", done, all));
        return true;
      });
  const model::infer::Divergence &a = compared.others[0].divergence, &b = compared.others[1].divergence;
  progress.finish(fmt::format("check: {} tokens", a.tokens));
  put(fmt::format(
      "KL divergence from {} {:.6f} +/- {:.6f} nats per token before, {:.6f} +/- {:.6f} after, over {} tokens of {}; "
      "same likeliest token {:.3f} %, {:.3f} %\n",
      flags.original, a.mean, a.error, b.mean, b.error, a.tokens, flags.check_name(), 100 * a.same_top,
      100 * b.same_top));
  if (b.mean > a.mean) warn("nothing was gained on this text: train on more text, or on text of another kind");
}

bool run(model::compress::RecoveryTraining& recovery, const RecoveryTrainingFlags& flags) {
  Progress progress;
  catch_interrupts();
  const bool whole = recovery.run(
      [&](const model::compress::RecoveryTrainingProgress& p) {
        progress.update(fmt::format("recover {}/{} | {} {:.5g}", p.step, p.steps, flags.loss, p.cost));
      },
      [] { return interrupted().load(); });
  if (!whole) {
    progress.finish("recover: stopped");
    note(fmt::format("the work so far is in '{}'; the same command continues it", flags.options.folder.string()));
    return false;
  }
  progress.finish(fmt::format("recover: {} numbers trained", recovery.trained()));
  for (const std::string& line : recovery.left()) warn(line);
  put(fmt::format("{} on the text {:.6g} before, {:.6g} after {} steps\n",
                  flags.loss == kTeacher ? "KL divergence from the original" : "loss of tokens (nats)",
                  recovery.before(), recovery.after(), recovery.best_step()));
  return true;
}

int train_fields(const Shared& shared, RecoveryTrainingFlags& flags) {
  for (const std::string& what : flags.train)
    if (what != kScales && what != kNorms) throw usage_error("--train takes scales and norms, not '{}'", what);
  flags.options.scales = std::ranges::find(flags.train, kScales) != flags.train.end();
  flags.options.vectors = std::ranges::find(flags.train, kNorms) != flags.train.end();
  flags.refuse_outputs(true);
  const model::arch::LibraryRef library = shared.library();
  const model::arch::Model original = model::arch::read_model(library, flags.original);
  const model::arch::Model rounded = model::arch::read_model(library, flags.rounded);
  const std::vector<model::text::TokenId> text = flags.text.read(rounded);
  flags.options.run = flags.text.run;
  flags.options.folder = flags.folder.empty() ? flags.out + ".work" : flags.folder;
  for (const model::arch::Model* m : {&original, &rounded})
    flags.options.identities.push_back(std::make_shared<model::arch::ModelIdentity>(*m));
  run::Engine engine = shared.engine();
  model::compress::RecoveryTraining recovery(engine, rounded, flags.loss == kTeacher ? &original : nullptr, text,
                                             flags.options);
  if (!run(recovery, flags)) return exit_code(Exit::interrupted);
  const model::arch::Model result = recovery.result();
  const bool known = rounded.metadata.has("general.file_type");
  model::arch::write_gguf(result, flags.out, known ? rounded.metadata.integer("general.file_type") : -1);
  recovery.remove_folder();
  note(fmt::format("wrote {}", flags.out));
  if (!flags.no_check) compare(engine, flags, original, rounded, result);
  return 0;
}

}  // namespace

void add_recovery_training(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RecoveryTrainingFlags>();
  CLI::App* sub = app.add_subcommand(
      "recover", "Recovery training: train the scales and norms of a quantized model; its codes do not change");
  flags->add_models(*sub);
  add_settings(*sub, "--out", flags->out, "--loss", flags->loss, "--train", flags->train, "--steps",
               flags->options.steps, "--rate", flags->options.rate, "--step-windows", flags->options.step_windows,
               "--seed", flags->options.seed);
  flags->text.add_flags(*sub);
  add_settings(*sub, "--work-folder", flags->folder, "--restart", flags->options.anew);
  flags->add_check(*sub);
  sub->footer(
      "The same command continues an interrupted run. The result has the same bytes as without the interruption.\n"
      "Examples:\n"
      "  lumen recover model.gguf small.gguf -o better.gguf -f text.txt\n"
      "  lumen recover model.gguf small.gguf -o better.gguf -f text.txt --loss tokens --train scales");
  set_action(*sub, command, flags, train_fields);
}

}  // namespace lumen::cli
