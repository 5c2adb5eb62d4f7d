// lumen run (chat, cli) -m MODEL [-p PROMPT]
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/names.h"
#include "model/arch/read.h"
#include "model/infer/sampler.h"
#include "model/infer/session.h"

namespace lumen::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string model, prompt, prompt_file;
  int64_t predict = 128;
  model::SamplerOptions sampling;
  int64_t seed = -1;
  model::SessionOptions session;
  CacheTypes cache;
  bool ignore_eos = false, no_echo = false, explain = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Writer {
 public:
  Writer(const model::LoadedModel& loaded, const Flags& flags)
      : flags_(flags),
        tokenizer_(*loaded.model().tokenizer),
        session_(loaded, flags.session),
        sampler_(flags.sampling) {}

  // Feeds a text and streams the continuation to stdout. False when Ctrl-C ended it.
  bool answer(const std::string& text) {
    model::EncodeOptions encode;
    encode.add_special = session_.position() == 0 && waiting_.empty();
    encode.parse_special = true;
    std::vector<model::TokenId> tokens = tokenizer_.encode(text, encode);
    if (tokens.empty()) throw usage_error("the prompt is empty");
    for (model::TokenId id : tokens) sampler_.accept(id);
    tokens.insert(tokens.begin(), waiting_.begin(), waiting_.end());
    waiting_.clear();
    auto start = Clock::now();
    std::span<const float> logits = session_.feed(tokens);
    const double prompt_seconds = seconds_since(start);
    const std::vector<model::TokenId> ends = tokenizer_.end_of_generation();
    model::TokenStream stream(tokenizer_);
    start = Clock::now();
    int64_t made = 0;
    while ((flags_.predict < 0 || made < flags_.predict) && !interrupted().load()) {
      const model::TokenId id = sampler_.pick(logits);
      ++made;
      if (!flags_.ignore_eos && std::find(ends.begin(), ends.end(), id) != ends.end()) break;
      sampler_.accept(id);
      std::cout << stream.push(id) << std::flush;
      if (made == flags_.predict) {
        waiting_ = {id};
        break;
      }
      if (session_.position() + 1 > session_.context()) {
        note("\nthe context is full");
        break;
      }
      logits = session_.feed({&id, 1});
    }
    std::cout << stream.finish() << std::endl;
    const double seconds = seconds_since(start);
    note(fmt::format("prompt: {} tokens, {:.1f} tokens/s | generation: {} tokens, {:.1f} tokens/s", tokens.size(),
                     static_cast<double>(tokens.size()) / std::max(prompt_seconds, 1e-9), made,
                     static_cast<double>(made) / std::max(seconds, 1e-9)));
    return !interrupted().load();
  }

  std::string explain() const { return session_.explain(); }

 private:
  const Flags& flags_;
  const model::Tokenizer& tokenizer_;
  model::Session session_;
  model::Sampler sampler_;
  std::vector<model::TokenId> waiting_;  // written, but not yet read: nobody has asked what follows
};

int generate(const Shared& shared, Flags& flags) {
  flags.sampling.seed = flags.seed >= 0 ? static_cast<uint32_t>(flags.seed) : std::random_device{}();
  const model::LibraryRef library = shared.library();
  flags.cache.choose(*library, &flags.session);
  const model::Model model = model::read_model(library, flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  run::Engine engine = shared.engine(flags.explain);
  const model::LoadedModel loaded(engine, model);
  Writer writer(loaded, flags);
  catch_interrupts();
  bool whole = true;
  if (!flags.prompt_file.empty()) flags.prompt += read_file(flags.prompt_file, 64 << 20);
  if (!flags.prompt.empty()) {
    if (!flags.no_echo) std::cout << flags.prompt << std::flush;
    whole = writer.answer(flags.prompt);
  } else {
    const bool terminal = isatty(0) != 0;
    if (terminal) note("type a text and press Enter; an empty line or Ctrl-D ends");
    for (std::string line; whole;) {
      if (terminal) std::cerr << "> " << std::flush;
      if (!std::getline(std::cin, line) || line.empty()) break;
      whole = writer.answer(line + "\n");
    }
  }
  if (flags.explain) std::cerr << writer.explain();
  return static_cast<int>(whole ? Exit::ok : Exit::interrupted);
}

}  // namespace

void add_run(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  CLI::App* sub = app.add_subcommand("run", "Continue a text with a model")->alias("chat")->alias("cli");
  sub->add_option("-m,--model,--model_name_or_path,model", flags->model, "GGUF file or Hugging Face folder")
      ->required()
      ->type_name("FILE");
  sub->add_option("-p,--prompt", flags->prompt, "The text to continue; without it, lines are read from the terminal");
  sub->add_option("-f,--file", flags->prompt_file, "File with the prompt")->type_name("FILE");
  sub->add_option("-n,--predict,--n-predict", flags->predict, "Tokens to write; -1: until the context is full")
      ->capture_default_str();
  sub->add_option("-c,--ctx-size", flags->session.context, "Context length; 0: the model's")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  sub->add_option("-b,--batch-size", flags->session.chunk, "Prompt tokens computed at once")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  flags->cache.add_flags(*sub);
  sub->add_option("-s,--seed", flags->seed, "Seed of sampling; -1: another each time")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{0xffffffff}));
  sub->add_option("--temp,--temperature", flags->sampling.temperature, "0 is greedy")->capture_default_str();
  sub->add_option("--top-k", flags->sampling.top_k, "Only the k best tokens; 0: all")->capture_default_str();
  sub->add_option("--top-p", flags->sampling.top_p, "The best tokens with this much probability together; 1: all")
      ->capture_default_str();
  sub->add_option("--min-p", flags->sampling.min_p, "Tokens at least this likely, relative to the best")
      ->capture_default_str();
  sub->add_option("--repeat-penalty", flags->sampling.repeat_penalty, "Above 1 makes repetitions rarer")
      ->capture_default_str();
  sub->add_option("--repeat-last-n", flags->sampling.repeat_last, "How far back repetitions count")
      ->capture_default_str();
  sub->add_flag("--ignore-eos", flags->ignore_eos, "Write on behind the end token");
  sub->add_flag("--no-display-prompt", flags->no_echo, "Print the continuation only");
  sub->add_flag("--exact", flags->session.exact, "f32 activations throughout");
  sub->add_flag("--explain", flags->explain, "Print the kernels of one step and their times");
  sub->footer(
      "Examples:\n"
      "  lumen run -m model.gguf -p \"Once upon a time\" -n 200\n"
      "  lumen run model.gguf -p \"ROMEO:\" --temp 0 --seed 1\n"
      "  lumen chat -m model.gguf");
  add_shared_flags(*sub, command.shared);
  sub->callback(
      [flags, &command] { command.action = [flags, shared = command.shared] { return generate(*shared, *flags); }; });
}

}  // namespace lumen::cli
