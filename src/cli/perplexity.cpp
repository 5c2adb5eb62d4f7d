// lumen perplexity -m MODEL -f TEXT
#include "model/infer/perplexity.h"

#include <cstdio>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "model/arch/read.h"
#include "model/text/dataset.h"

namespace lumen::cli {
namespace {

struct Flags {
  std::string model, text;
  model::PerplexityOptions options;
};

int measure(const Shared& shared, Flags& flags) {
  const model::Model model = model::read_model(shared.library(), flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  std::string text;
  if (flags.text.empty()) {
    const std::string_view all = model::embedded_text();
    text = all.substr(all.size() - all.size() / 10);
    note("no -f: measuring on the last tenth of the text that comes with the program");
  } else {
    for (const std::string& document : model::read_documents(flags.text)) text += document;
  }
  flags.options.bos = model.tokenizer->adds_bos();
  const std::vector<model::TokenId> tokens = model.tokenizer->encode(text);
  run::Engine engine = shared.engine();
  const model::LoadedModel loaded(engine, model);
  Progress progress;
  const model::Perplexity result =
      model::perplexity(loaded, tokens, flags.options, [&](int64_t done, int64_t all, double value) {
        progress.update(fmt::format("perplexity window {}/{} | {:.4f}", done, all, value));
      });
  progress.finish(fmt::format("perplexity: {} windows in {}", result.windows, format_duration(result.seconds)));
  std::fputs(fmt::format("perplexity {:.4f} +/- {:.5f} ({:.5f} nats per token, {} tokens, windows of {}, {} scored, "
                         "{:.0f} tokens/s)\n",
                         result.value, result.error, result.nats, result.tokens, flags.options.length,
                         flags.options.full ? "all but the first token" : "second half",
                         static_cast<double>(result.windows * flags.options.length) / std::max(result.seconds, 1e-9))
                 .c_str(),
             stdout);
  return 0;
}

}  // namespace

void add_perplexity(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = app.add_subcommand("perplexity", "How well a model predicts a text");
  sub->add_option("-m,--model,model", flags->model, "GGUF file or Hugging Face folder")->required()->type_name("FILE");
  sub->add_option("-f,--file", flags->text, "Text, .jsonl or folder; without it, the built-in validation text")
      ->type_name("FILE");
  sub->add_option("-c,--ctx-size", flags->options.length, "Tokens per window")
      ->capture_default_str()
      ->check(CLI::Range(4, 1 << 20));
  sub->add_option("-b,--batch-size", flags->options.batch, "Windows computed at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  sub->add_option("--chunks", flags->options.windows, "Only the first windows; 0 takes all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  sub->add_flag("--full", flags->options.full, "Score every token of a window but the first, not only the second half");
  sub->add_flag("--exact", flags->options.exact, "f32 activations throughout");
  sub->footer(
      "The default protocol scores the second half of windows of 512 tokens; figures of different protocols or window "
      "lengths must\n"
      "not be compared.\n"
      "Examples:\n"
      "  lumen perplexity -m model.gguf -f wiki.test.raw\n"
      "  lumen perplexity -m model.gguf -c 2048 --full");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return measure(*shared, *flags); }; });
}

}  // namespace lumen::cli
