// lumen recover ORIGINAL QUANTIZED -o OUT
#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/convert/calibrated.h"
#include "cli/given_text.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/fields/fields.h"
#include "model/file/own_input.h"
#include "model/infer/measure/compare_models.h"

namespace lumen::cli {
namespace {

constexpr const char *kTeacher = "kl", *kTokens = "tokens", *kScales = "scales", *kNorms = "norms";

struct RecoverFlags {
  std::string original, rounded, out, loss = kTeacher, check;
  std::vector<std::string> train = {kScales, kNorms};
  LayerTextFlags text;
  std::string folder;
  model::FieldRecoveryOptions options;
  int64_t windows = 8;
  bool no_check = false, overwrite = false;
};

void refuse_outputs(const RecoverFlags& flags) {
  model::Paths inputs = model::model_files(flags.original);
  for (const std::filesystem::path& file : model::model_files(flags.rounded)) inputs.push_back(file);
  for (const std::string& file : {flags.text.text, flags.check})
    if (!file.empty()) inputs.emplace_back(file);
  model::refuse_own_input(inputs, model::replaced_by_gguf(flags.out), "name another file with -o");
  std::error_code failure;
  if (!flags.overwrite && std::filesystem::exists(flags.out, failure))
    throw Error(Exit::user, fmt::format("'{}' is there already", flags.out), "name another file, or add --overwrite");
  require_writable(flags.out);
}

// How far both are from the original over a text that nothing was learned from.
void compare(run::Engine& engine, const RecoverFlags& flags, const model::Model& original, const model::Model& before,
             const model::Model& after) {
  const std::string text = held_out_text(flags.check);
  model::PerplexityOptions options;
  options.exact = true;
  options.windows = flags.windows;
  options.length = std::min(flags.text.run.length, original.integer("context"));
  options.bos = flags.text.bos != "none" && original.tokenizer->adds_bos();
  const std::vector<model::TokenId> tokens =
      model::perplexity_tokens(*original.tokenizer, text, model::bos_place(flags.text.bos));
  const model::LoadedModel base(engine, original), was(engine, before), now(engine, after);
  const model::LoadedModel* const others[] = {&was, &now};
  Progress progress;
  const model::ComparedModels compared = model::compare_models(
      base, others, tokens, options,
      [&](int64_t done, int64_t all) { progress.update(fmt::format("check window {}/{}", done, all)); });
  const model::Divergence &a = compared.others[0].divergence, &b = compared.others[1].divergence;
  progress.finish(fmt::format("check: {} tokens", a.tokens));
  put(fmt::format(
      "KL divergence from {} {:.6f} +/- {:.6f} nats per token before, {:.6f} +/- {:.6f} after, over {} tokens of {}; "
      "same likeliest token {:.3f} %, {:.3f} %\n",
      flags.original, a.mean, a.error, b.mean, b.error, a.tokens,
      flags.check.empty() ? "the built-in text" : flags.check, 100 * a.same_top, 100 * b.same_top));
  if (b.mean > a.mean) warn("on this text nothing was gained: learn from more, or likelier, text");
}

bool run(model::FieldRecovery& recovery, const RecoverFlags& flags) {
  Progress progress;
  catch_interrupts();
  const bool whole = recovery.run(
      [&](const model::FieldRecoveryProgress& p) {
        progress.update(fmt::format("recover {}/{} | {} {:.5g}", p.step, p.steps, flags.loss, p.cost));
      },
      [] { return interrupted().load(); });
  if (!whole) {
    progress.finish("recover: stopped");
    note(fmt::format("what is done is in '{}'; the same command goes on from there", flags.options.folder.string()));
    return false;
  }
  progress.finish(fmt::format("recover: {} numbers trained", recovery.trained()));
  for (const std::string& line : recovery.left()) warn(line);
  put(fmt::format("{} on the text {:.6g} before, {:.6g} after {} steps\n",
                  flags.loss == kTeacher ? "KL divergence from the original" : "loss of tokens (nats)",
                  recovery.before(), recovery.after(), recovery.best_step()));
  return true;
}

int recover(const Shared& shared, RecoverFlags& flags) {
  for (const std::string& what : flags.train)
    if (what != kScales && what != kNorms) throw usage_error("--train takes scales and norms, not '{}'", what);
  flags.options.scales = std::ranges::find(flags.train, kScales) != flags.train.end();
  flags.options.vectors = std::ranges::find(flags.train, kNorms) != flags.train.end();
  refuse_outputs(flags);
  const model::LibraryRef library = shared.library();
  const model::Model original = model::read_model(library, flags.original);
  const model::Model rounded = model::read_model(library, flags.rounded);
  const std::vector<model::TokenId> text = flags.text.read(rounded);
  flags.options.run = flags.text.run;
  flags.options.folder = flags.folder.empty() ? flags.out + ".work" : flags.folder;
  model::Paths sources = model::model_files(flags.original);
  for (const std::filesystem::path& file : model::model_files(flags.rounded)) sources.push_back(file);
  flags.options.source = file_identity(sources);
  run::Engine engine = shared.engine();
  model::FieldRecovery recovery(engine, rounded, flags.loss == kTeacher ? &original : nullptr, text, flags.options);
  if (!run(recovery, flags)) return exit_code(Exit::interrupted);
  const model::Model result = recovery.result();
  const bool known = rounded.metadata.has("general.file_type");
  model::write_gguf(result, flags.out, known ? rounded.metadata.integer("general.file_type") : -1);
  recovery.remove_folder();
  note(fmt::format("wrote {}", flags.out));
  if (!flags.no_check) compare(engine, flags, original, rounded, result);
  return 0;
}

}  // namespace

void add_recover(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RecoverFlags>();
  CLI::App* sub = app.add_subcommand(
      "recover", "Train what a rounded model's format leaves trainable, over the whole model; codes stay as they are");
  sub->add_option("original", flags->original, "The model as it was: GGUF file, Hugging Face folder, or hf:USER/REPO")
      ->required()
      ->type_name("ORIGINAL");
  sub->add_option("quantized", flags->rounded, "The same model, rounded")->required()->type_name("QUANTIZED");
  sub->add_option("-o,--out,--output", flags->out, "GGUF file to write, in the same formats")
      ->required()
      ->type_name("OUT");
  sub->add_option(
         "--loss", flags->loss,
         "What is made small: kl (the divergence from ORIGINAL), or tokens (the loss of the text's own tokens)")
      ->check(CLI::IsMember({kTeacher, kTokens}))
      ->capture_default_str();
  sub->add_option("--train", flags->train, "What is trained: scales (of groups, as each format has them), norms")
      ->delimiter(',')
      ->type_name("WHAT")
      ->capture_default_str();
  sub->add_option("--steps", flags->options.steps, "Steps")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--rate", flags->options.rate, "Rate at which they begin, relative to what is trained")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("RATE")
      ->capture_default_str();
  sub->add_option("--step-windows", flags->options.step_windows, "Windows of the text that a step looks at")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("-s,--seed", flags->options.seed, "Of the order of windows")->capture_default_str();
  flags->text.add_flags(*sub, "Text");
  sub->add_option("--work-folder", flags->folder,
                  "Where what is done is kept until OUT is written; OUT.work by default")
      ->type_name("FOLDER");
  sub->add_flag("--restart", flags->options.anew, "Throw away what an earlier run has left in the work folder");
  auto* text = sub->add_option("--check", flags->check,
                               "Held-out text over which the distance from the original is measured; without it the "
                               "end of the built-in text")
                   ->type_name("TEXT");
  sub->add_option("--check-chunks", flags->windows, "Windows of the check; 0 takes all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  sub->add_flag("--no-check", flags->no_check, "Measure nothing")->excludes(text);
  sub->add_flag("--overwrite", flags->overwrite, "Replace what is at OUT; inputs are never replaced");
  sub->footer(
      "An interrupted run goes on with the same command, and ends in the same bytes.\n"
      "Examples:\n"
      "  lumen recover model.gguf small.gguf -o better.gguf -f text.txt\n"
      "  lumen recover model.gguf small.gguf -o better.gguf -f text.txt --loss tokens --train scales");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return recover(*shared, *flags); }; });
}

}  // namespace lumen::cli
