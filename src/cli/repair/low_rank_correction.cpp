// lumen correct ORIGINAL QUANTIZED -o ADAPTER
#include "model/compress/low_rank_correction/low_rank_correction.h"

#include <unistd.h>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/repair/repair_flags.h"
#include "cli/settings/declare.h"
#include "model/arch/adapter/adapter_write.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "model/recipe/record/lora_base.h"
#include "model/recipe/record/provenance.h"
#include "run/engine/stages.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char *kWeighted = "eora", *kAlone = "svd";

struct LowRankCorrectionFlags : RepairFlags {
  std::string method = kWeighted;
  model::compress::LowRankCorrectionOptions options;
  bool to_gguf() const { return fs::path(out).extension() == ".gguf"; }
};

// Prints the divergence of the quantized model from the original, without and with the adapter.
void compare(run::Engine& engine, const LowRankCorrectionFlags& flags, const model::arch::Model& original,
             const model::arch::Model& rounded, const model::arch::Adapter& adapter) {
  if (!original.tokenizer) return note("not checked: the model has no tokenizer");
  const std::vector<model::text::TokenId> tokens = flags.check_tokens(original);
  const model::infer::PerplexityOptions options = flags.check_options(original);
  Progress progress;
  const auto windows = [&](int64_t done, int64_t all) {
    progress.update(fmt::format("check window {}/{}", done, all));
  };
  const fs::path out = fs::absolute(flags.out);
  const AtomicFolder scratch(out.parent_path() / "lumen-correct");  // deleted at the end
  const fs::path logits = scratch.path() / "logits";
  model::infer::record_logits(model::infer::LoadedModel(engine, original), tokens, options, logits, windows);
  const auto distance = [&](std::span<const model::arch::ScaledAdapter> adapters) {
    return model::infer::divergence(model::infer::LoadedModel(engine, rounded, adapters), tokens, options, logits,
                                    windows);
  };
  const model::arch::ScaledAdapter one{adapter};
  const model::infer::Divergence without = distance({}), with = distance({&one, 1});
  progress.finish(fmt::format("check: {} tokens", with.tokens));
  put(
      fmt::format("KL divergence from {} {:.6f} +/- {:.6f} nats per token without the adapter, {:.6f} +/- {:.6f} with "
                  "it, over {} tokens of {}; same likeliest token {:.3f} %, {:.3f} %\n",
                  flags.original, without.mean, without.error, with.mean, with.error, with.tokens, flags.check_name(),
                  100 * without.same_top, 100 * with.same_top));
  if (with.mean > without.mean)
    warn("the adapter does not help on this text: calibrate on more text, or on text of another kind");
}

model::recipe::Provenance provenance_of(const LowRankCorrectionFlags& flags, const model::arch::Model& original,
                                        const model::arch::Model& rounded) {
  const auto place = [](const std::string& name) {
    return name.starts_with("hf:") ? name : fs::absolute(name).lexically_normal().string();
  };
  model::recipe::Provenance from;
  from.base = place(flags.rounded);
  from.base_hash = model::arch::weights_hash(rounded).hex();
  from.teacher = place(flags.original);
  from.teacher_hash = model::arch::weights_hash(original).hex();
  from.formats = model::recipe::formats_of(rounded);
  from.compiler = run::compiler_version();
  return from;
}

int write_correction(const Shared& shared, LowRankCorrectionFlags& flags) {
  flags.options.weighted = flags.method == kWeighted;
  if (!flags.options.weighted && !flags.text.texts.empty())
    throw usage_error("--method {} uses only the matrices, no text: leave out -f", flags.method);
  flags.refuse_outputs(flags.to_gguf());
  const model::arch::LibraryRef library = shared.library();
  const model::arch::Model original = model::arch::read_model(library, flags.original);
  const model::arch::Model rounded = model::arch::read_model(library, flags.rounded);
  std::vector<model::text::TokenId> text;
  if (flags.options.weighted) text = flags.text.read(rounded);
  flags.options.run = flags.text.run;
  run::Engine engine = shared.engine();
  Progress progress;
  catch_interrupts();
  std::optional<model::compress::LowRankCorrection> found;
  {
    const AtomicFolder scratch(fs::absolute(flags.out + ".work"));  // deleted at the end
    flags.options.folder = scratch.path();
    found = model::compress::correct_low_rank(
        engine, original, rounded, text, flags.options,
        [&](const model::compress::LowRankCorrectionProgress& p) {
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
  progress.finish(fmt::format("correct: {} matrices, {} in addition to {} of weights", found->adapter.parts.size(),
                              size_text(bytes), size_text(rounded.weight_bytes())));
  put(found->text());
  model::arch::AdapterFile about;
  about.base = flags.rounded;
  about.record = model::recipe::record_of(provenance_of(flags, original, rounded));
  if (flags.to_gguf())
    model::arch::write_adapter_gguf(rounded, found->adapter, flags.out, about);
  else
    model::arch::write_adapter_folder(rounded, found->adapter, flags.out, about);
  note(fmt::format("wrote {}", flags.out));
  if (!flags.no_check) compare(engine, flags, original, rounded, found->adapter);
  return 0;
}

}  // namespace

void add_low_rank_correction(CLI::App& app, Command& command) {
  auto flags = std::make_shared<LowRankCorrectionFlags>();
  CLI::App* sub =
      app.add_subcommand("correct", "Low-rank correction: make an adapter that restores what quantization lost");
  flags->add_models(*sub);
  add_settings(*sub, "--out", flags->out, "--rank", flags->options.factors.rank, "--method", flags->method);
  flags->text.add_flags(*sub);
  add_setting(*sub, "--damp-percent", flags->options.factors.damping);
  flags->add_check(*sub);
  sub->footer(
      "The weights do not change. run, chat, serve, perplexity, eval, embed and bench take the adapter with --lora;\n"
      "merge adds it to the weights.\n"
      "Examples:\n"
      "  lumen correct model.gguf small.gguf -o small-correction.gguf --rank 32 -f text.txt\n"
      "  lumen run -m small.gguf --lora small-correction.gguf -p \"Once\"");
  set_action(*sub, command, flags, write_correction);
}

}  // namespace lumen::cli
