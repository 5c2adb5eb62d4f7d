// lumen run (cli) -m MODEL [-p PROMPT]
#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/sampling.h"
#include "model/arch/read.h"

namespace lumen::cli {
namespace {

struct Flags {
  std::string model, prompt, prompt_file;
  SamplingFlags sampling;
  AdapterFlags adapters;
  bool no_echo = false, explain = false;
};

// Feeds a text and streams the continuation to stdout. False when Ctrl-C ended it.
bool answer(model::Generator& generator, const model::Tokenizer& tokenizer, const std::string& text) {
  model::EncodeOptions encode;
  encode.add_special = generator.tokens().empty();
  encode.parse_special = true;
  const auto result = generator.answer(
      tokenizer.encode(text, encode), false, [](std::string_view piece) { std::cout << piece << std::flush; },
      [] { return !interrupted().load(); });
  std::cout << std::endl;
  if (result.reason == model::EndReason::context)
    note("the context is full: raise --ctx-size, or let --context-shift drop the oldest tokens");
  note(fmt::format("prompt: {} tokens, {:.1f} tokens/s | generation: {} tokens, {:.1f} tokens/s", result.read,
                   static_cast<double>(result.read) / std::max(result.read_seconds, 1e-9), result.made,
                   static_cast<double>(result.made) / std::max(result.made_seconds, 1e-9)));
  return result.reason != model::EndReason::interrupted;
}

int generate(const Shared& shared, Flags& flags) {
  const model::LibraryRef library = shared.library();
  const model::Model model = model::read_model(library, flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  flags.sampling.finish(*model.tokenizer, *library);
  const auto adapters = flags.adapters.read(model);
  run::Engine engine = shared.engine(flags.explain);
  const model::LoadedModel loaded(engine, model, adapters);
  model::Generator generator(loaded, flags.sampling.session, flags.sampling.sampling, flags.sampling.generate);
  catch_interrupts();
  bool whole = true;
  if (!flags.prompt_file.empty()) flags.prompt += read_file(flags.prompt_file, 64 << 20);
  if (!flags.prompt.empty()) {
    if (!flags.no_echo) std::cout << flags.prompt << std::flush;
    whole = answer(generator, *model.tokenizer, flags.prompt);
  } else {
    const bool terminal = isatty(0) != 0;
    if (terminal) note("type a text and press Enter; an empty line or Ctrl-D ends");
    for (std::string line; whole;) {
      if (terminal) std::cerr << "> " << std::flush;
      if (!std::getline(std::cin, line) || line.empty()) break;
      whole = answer(generator, *model.tokenizer, line + "\n");
    }
  }
  if (flags.explain) std::cerr << generator.session().explain();
  return static_cast<int>(whole ? Exit::ok : Exit::interrupted);
}

}  // namespace

void add_run(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  flags->sampling.generate.predict = 128;
  CLI::App* sub = app.add_subcommand("run", "Continue a text with a model")->alias("cli")->alias("completion");
  sub->add_option("-m,--model,--model_name_or_path,model", flags->model, "GGUF file or Hugging Face folder")
      ->required()
      ->type_name("FILE");
  sub->add_option("-p,--prompt", flags->prompt, "The text to continue; without it, lines are read from the terminal");
  sub->add_option("-f,--file", flags->prompt_file, "File with the prompt")->type_name("FILE");
  flags->sampling.add_flags(*sub);
  flags->adapters.add_flags(*sub);
  sub->add_flag("--no-display-prompt", flags->no_echo, "Print the continuation only");
  sub->add_flag("--explain", flags->explain, "Print the kernels of one step and their times");
  sub->footer(
      "Examples:\n"
      "  lumen run -m model.gguf -p \"Once upon a time\" -n 200\n"
      "  lumen run model.gguf -p \"ROMEO:\" --temp 0 --seed 1\n"
      "  lumen run model.gguf -p \"A list of three cities as JSON: \" --json-schema '{\"type\": \"array\", \"items\": "
      "{\"type\": \"string\"}}'\n"
      "  lumen chat -m model.gguf                      talk instead");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return generate(*shared, *flags); }; });
}

}  // namespace lumen::cli
