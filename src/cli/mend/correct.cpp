// lumen correct ORIGINAL QUANTIZED -o ADAPTER
#include "model/compress/correct/correct.h"

#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/convert/calibrated.h"
#include "cli/given_text.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "model/arch/adapter/adapter_write.h"
#include "model/arch/checkpoint/read.h"
#include "model/file/own_input.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "model/train/record/lora_base.h"
#include "model/train/record/provenance.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kWeighted = "eora", *kAlone = "svd";

struct CorrectFlags {
  std::string original, rounded, out, method = kWeighted, check;
  LayerTextFlags text;
  model::CorrectOptions options;
  int64_t windows = 8;
  bool no_check = false, overwrite = false;
  bool to_gguf() const { return fs::path(out).extension() == ".gguf"; }
};

void refuse_outputs(const CorrectFlags& flags) {
  model::Paths inputs = model::model_files(flags.original);
  for (const fs::path& file : model::model_files(flags.rounded)) inputs.push_back(file);
  for (const std::string& file : {flags.text.text, flags.check})
    if (!file.empty()) inputs.emplace_back(file);
  model::refuse_own_input(inputs,
                          flags.to_gguf() ? model::replaced_by_gguf(flags.out) : model::replaced_by_folder(flags.out),
                          "name another place with -o");
  std::error_code failure;
  if (!flags.overwrite && fs::exists(flags.out, failure))
    throw Error(Exit::user, fmt::format("'{}' is there already", flags.out), "name another place, or add --overwrite");
  if (flags.to_gguf())
    require_writable(flags.out);
  else
    require_writable_folder(flags.out);
}

// How far the rounded model is from the original, without the adapter and with it.
void compare(run::Engine& engine, const CorrectFlags& flags, const model::Model& original, const model::Model& rounded,
             const model::Adapter& adapter) {
  if (!original.tokenizer) return note("not checked: the model has no tokenizer");
  const std::string text = held_out_text(flags.check);
  const std::vector<model::TokenId> tokens =
      model::perplexity_tokens(*original.tokenizer, text, model::bos_place(flags.text.bos));
  model::PerplexityOptions options;
  options.exact = true;
  options.windows = flags.windows;
  options.length = std::min(flags.text.run.length, original.integer("context"));
  options.bos = flags.text.bos != "none" && original.tokenizer->adds_bos();
  Progress progress;
  const auto windows = [&](int64_t done, int64_t all) {
    progress.update(fmt::format("check window {}/{}", done, all));
  };
  const fs::path out = fs::absolute(flags.out);
  const model::Scratch scratch(out.parent_path() / fmt::format(".lumen-correct.{}.logits", ::getpid()));
  model::record_logits(model::LoadedModel(engine, original), tokens, options, scratch.path, windows);
  const auto distance = [&](std::span<const model::ScaledAdapter> adapters) {
    return model::divergence(model::LoadedModel(engine, rounded, adapters), tokens, options, scratch.path, windows);
  };
  const model::ScaledAdapter one{adapter};
  const model::Divergence without = distance({}), with = distance({&one, 1});
  progress.finish(fmt::format("check: {} tokens", with.tokens));
  put(fmt::format(
      "KL divergence from {} {:.6f} +/- {:.6f} nats per token without the adapter, {:.6f} +/- {:.6f} with "
      "it, over {} tokens of {}; same likeliest token {:.3f} %, {:.3f} %\n",
      flags.original, without.mean, without.error, with.mean, with.error, with.tokens,
      flags.check.empty() ? "the built-in text" : flags.check, 100 * without.same_top, 100 * with.same_top));
  if (with.mean > without.mean) warn("on this text the adapter does not help: calibrate on more, or likelier, text");
}

model::Provenance provenance_of(const CorrectFlags& flags, const model::Model& original, const model::Model& rounded) {
  const auto place = [](const std::string& name) {
    return name.starts_with("hf:") ? name : fs::absolute(name).lexically_normal().string();
  };
  model::Provenance from;
  from.base = place(flags.rounded);
  from.base_hash = model::weights_hash(rounded).hex();
  from.teacher = place(flags.original);
  from.teacher_hash = model::weights_hash(original).hex();
  from.formats = model::formats_of(rounded);
  from.compiler = run::compiler_version();
  return from;
}

int correct_file(const Shared& shared, CorrectFlags& flags) {
  flags.options.weighted = flags.method == kWeighted;
  if (!flags.options.weighted && !flags.text.text.empty())
    throw usage_error("--method {} looks at matrices alone, not at a text: leave -f away", flags.method);
  refuse_outputs(flags);
  const model::LibraryRef library = shared.library();
  const model::Model original = model::read_model(library, flags.original);
  const model::Model rounded = model::read_model(library, flags.rounded);
  std::vector<model::TokenId> text;
  if (flags.options.weighted) text = flags.text.read(rounded);
  flags.options.run = flags.text.run;
  run::Engine engine = shared.engine();
  Progress progress;
  catch_interrupts();
  std::optional<model::Correction> found;
  {
    const AtomicFolder scratch(fs::absolute(flags.out + ".work"));  // never kept
    flags.options.folder = scratch.path();
    found = model::correct(
        engine, original, rounded, text, flags.options,
        [&](const model::CorrectProgress& p) {
          progress.update(fmt::format("correct {}/{} {}", p.done, p.all, p.doing));
        },
        [] { return interrupted().load(); });
  }
  if (!found) {
    progress.finish("correct: stopped, nothing was written");
    return exit_code(Exit::interrupted);
  }
  int64_t bytes = 0;
  for (const auto& [name, part] : found->adapter.parts) bytes += part.a.bytes.size() + part.b.bytes.size();
  progress.finish(fmt::format("correct: {} matrices, {:.2f} MB beside {:.2f} MB of weights",
                              found->adapter.parts.size(), 1e-6 * bytes, 1e-6 * rounded.weight_bytes()));
  put(found->text());
  model::AdapterFile about;
  about.base = flags.rounded;
  about.record = model::record_of(provenance_of(flags, original, rounded));
  if (flags.to_gguf())
    model::write_adapter_gguf(rounded, found->adapter, flags.out, about);
  else
    model::write_adapter_folder(rounded, found->adapter, flags.out, about);
  note(fmt::format("wrote {}", flags.out));
  if (!flags.no_check) compare(engine, flags, original, rounded, found->adapter);
  return 0;
}

}  // namespace

void add_correct(CLI::App& app, Command& command) {
  auto flags = std::make_shared<CorrectFlags>();
  CLI::App* sub =
      app.add_subcommand("correct", "Give a rounded model back what rounding took, by an adapter beside it");
  sub->add_option("original", flags->original, "The model as it was: GGUF file, Hugging Face folder, or hf:USER/REPO")
      ->required()
      ->type_name("ORIGINAL");
  sub->add_option("quantized", flags->rounded, "The same model, rounded")->required()->type_name("QUANTIZED");
  sub->add_option("-o,--out,--output", flags->out, "NAME.gguf, or a folder as PEFT writes it")
      ->required()
      ->type_name("ADAPTER");
  sub->add_option("-r,--rank", flags->options.factors.rank, "Columns of each matrix's B, rows of its A")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  sub->add_option("--method", flags->method,
                  "eora: the least error of what the model computes on a text; svd: the least error of each matrix, as "
                  "LQER and SVDQuant have it")
      ->capture_default_str()
      ->check(CLI::IsMember({kWeighted, kAlone}));
  flags->text.add_flags(*sub, "Text (eora)");
  sub->add_option("--damp-percent", flags->options.factors.damping,
                  "Part of the mean square of what is read that is added to all of it: more, where the text is short")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6))
      ->group("Text (eora)");
  auto* text = sub->add_option("--check", flags->check,
                               "Held-out text over which the distance from the original is measured; without it the "
                               "end of the built-in text")
                   ->type_name("TEXT");
  sub->add_option("--check-chunks", flags->windows, "Windows of the check; 0 takes all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  sub->add_flag("--no-check", flags->no_check, "Measure nothing")->excludes(text);
  sub->add_flag("--overwrite", flags->overwrite, "Replace what is at ADAPTER; inputs are never replaced");
  sub->footer(
      "The weights stay as they are: run, chat, perplexity, eval, embed and bench take the adapter with --lora, and\n"
      "merge folds it in.\n"
      "Examples:\n"
      "  lumen correct model.gguf small.gguf -o small-correction.gguf --rank 32 -f text.txt\n"
      "  lumen run -m small.gguf --lora small-correction.gguf -p \"Once\"");
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] {
    command.action = [flags, shared = command.shared] { return correct_file(*shared, *flags); };
  });
}

}  // namespace lumen::cli
