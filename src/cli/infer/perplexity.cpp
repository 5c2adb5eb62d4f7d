// lumen perplexity -m MODEL -f TEXT
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/infer/mapping.h"
#include "cli/output.h"
#include "cli/settings/declare.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/measure/perplexity_divergence.h"

namespace lumen::cli {
namespace {

struct PerplexityFlags {
  std::string model, text, record, compare, bos = "front";
  model::infer::PerplexityOptions options;
  AdapterFlags adapters;
  Mapping mapping;
};

int measure(const Shared& shared, PerplexityFlags& flags) {
  const model::arch::Model model = flags.mapping.read(shared, shared.library(), flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  const std::string text = held_out_text(flags.text, "measuring on");
  const model::infer::BosPlace place = model::infer::bos_place(flags.bos);
  flags.options.bos = place != model::infer::BosPlace::none && model.tokenizer->adds_bos();
  const std::vector<model::text::TokenId> tokens = model::infer::perplexity_tokens(*model.tokenizer, text, place);
  const auto adapters = flags.adapters.read(model);
  run::Engine engine = shared.engine();
  const model::infer::LoadedModel loaded(engine, model, adapters);
  Progress progress;
  const auto told = [&](int64_t done, int64_t all) { progress.update(fmt::format("window {}/{}", done, all)); };
  if (!flags.record.empty()) {
    model::infer::record_logits(loaded, tokens, flags.options, flags.record, told);
    progress.finish(fmt::format("wrote {}", flags.record));
    return 0;
  }
  if (!flags.compare.empty()) {
    const model::infer::Divergence d = model::infer::divergence(loaded, tokens, flags.options, flags.compare, told);
    progress.finish(fmt::format("compared {} tokens", d.tokens));
    put(
        fmt::format("KL divergence {:.6f} +/- {:.6f} nats per token (median {:.6f}, 90% {:.6f}, 99% {:.6f}, most "
                    "{:.6f})\nsame likeliest token {:.3f} %\nchange of the right token's probability, RMS {:.3f} %\n"
                    "perplexity by the recorded one {:.6f}\n",
                    d.mean, d.error, d.median, d.p90, d.p99, d.most, 100 * d.same_top, 100 * d.rms_change, d.ratio));
    return 0;
  }
  const model::infer::Perplexity result =
      model::infer::perplexity(loaded, tokens, flags.options, [&](int64_t done, int64_t all, double value) {
        progress.update(fmt::format("perplexity window {}/{} | {:.4f}", done, all, value));
      });
  progress.finish(fmt::format("perplexity: {} windows in {}", result.windows, format_duration(result.seconds)));
  put(
      fmt::format("perplexity {:.4f} +/- {:.5f} ({:.5f} nats per token, {} tokens, windows of {}, {} scored, {}, "
                  "{:.0f} tokens/s)\n",
                  result.value, result.error, result.nats, result.tokens, flags.options.length,
                  flags.options.full ? "all but the first token" : "second half",
                  !flags.options.bos                       ? "no BOS"
                  : place == model::infer::BosPlace::front ? "BOS in front of the text and of windows"
                                                           : "BOS in front of windows",
                  result.windows * flags.options.length / std::max(result.seconds, 1e-9)));
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, Command& command) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* sub = app.add_subcommand("perplexity", "Measure the perplexity of a model on a text");
  add_settings(*sub, "--model", flags->model, "--file", flags->text, "--ctx-size", flags->options.length,
               "--batch-size", flags->options.batch, "--chunks", flags->options.windows, "--full", flags->options.full,
               "--bos", flags->bos);
  auto* record = add_setting(*sub, "--record-logits", flags->record);
  add_setting(*sub, "--kl-divergence", flags->compare)->excludes(record);
  flags->adapters.add_flags(*sub);
  flags->mapping.add_flags(*sub);
  add_setting(*sub, "--exact", flags->options.exact);
  sub->footer(
      "The default protocol is the usual one for GGUF files: the second half of windows of 512 tokens is scored, BOS "
      "is\n"
      "added before the text is cut and at the start of each window, and the end of the last line is removed. Do not\n"
      "compare figures of different protocols or window lengths.\n"
      "Examples:\n"
      "  lumen perplexity -m model.gguf -f wiki.test.raw\n"
      "  lumen perplexity -m model.gguf -c 2048 --full\n"
      "  lumen perplexity -m model-f32.gguf --record-logits base.kl\n"
      "  lumen perplexity -m model-small.gguf --kl-divergence base.kl");
  set_action(*sub, command, flags, measure);
}

}  // namespace lumen::cli
