// lumen run (cli) -m MODEL [-p PROMPT]
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "base/structured/json.h"
#include "cli/adapters.h"
#include "cli/command.h"
#include "cli/given_text.h"
#include "cli/infer/drafts.h"
#include "cli/infer/mapping.h"
#include "cli/infer/sampling.h"
#include "cli/output.h"
#include "cli/pictures/pictures.h"
#include "cli/settings/bounds.h"
#include "cli/settings/declare.h"
#include "cli/terminal/line_input.h"
#include "cli/terminal/markdown.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/generate/generate_many.h"
#include "model/infer/session/forecast.h"
#include "model/infer/tower/picture_prompt.h"
#include "model/text/unicode/unicode.h"

namespace lumen::cli {
namespace {

struct RunFlags {
  std::string model, mmproj, prompt, prompt_file, prompts;
  std::vector<std::string> images;
  SamplingFlags sampling;
  AdapterFlags adapters;
  Mapping mapping;
  DraftFlags draft;
  int64_t parallel = 0, sequences = 0;
  bool no_echo = false, explain = false, json = false, markdown = true, history = true;
  bool prompt_given = false;  // by -p
  bool text_given = false;    // by -p or --file; an empty prompt counts, too
};

// Feeds a prompt and streams the continuation to stdout. False when Ctrl-C ended it.
bool answer(model::infer::Generator& generator, std::span<const model::text::TokenId> prompt, bool markdown) {
  AnswerOutput output(markdown);
  const auto result = generator.answer(
      prompt, false, [&](std::string_view piece) { output.put(piece); }, [] { return !interrupted().load(); });
  output.finish();
  put("\n");
  if (result.reason == model::infer::EndReason::context)
    note("the context is full: raise --ctx-size, or let --context-shift drop the oldest tokens");
  note(fmt::format("prompt: {} tokens, {:.1f} tokens/s | generation: {} tokens, {:.1f} tokens/s{}", result.read,
                   result.read / std::max(result.read_seconds, 1e-9), result.made,
                   result.made / std::max(result.made_seconds, 1e-9), draft_text(result.drafted, result.accepted)));
  return result.reason != model::infer::EndReason::interrupted;
}

model::text::EncodeOptions prompt_options(const model::infer::Generator& generator) {
  return {.add_special = generator.tokens().empty(), .parse_special = true};
}

// What standard input adds to the prompt of -p: all of it for "-", and else what a pipe or a file has after that
// prompt.
void add_standard_input(RunFlags& flags) {
  if (flags.prompt == "-") {
    flags.prompt = standard_input();
    return;
  }
  struct stat kind{};
  if (is_guest() || !flags.prompt_given || fstat(STDIN_FILENO, &kind) != 0) return;
  if (!S_ISFIFO(kind.st_mode) && !S_ISREG(kind.st_mode)) return;
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  if (poll(&ready, 1, 2000) == 0)
    note("waiting for standard input, which follows the prompt of -p; with < /dev/null there is none");
  const std::string text = standard_input();
  if (text.empty()) return;
  if (!flags.prompt.empty() && !flags.prompt.ends_with('\n')) flags.prompt += '\n';
  flags.prompt += text;
}

// The prompts: one per line, or {"prompt": TEXT} per line where the file's name ends in .jsonl.
std::vector<std::string> read_prompts(const std::string& file) {
  const std::string text = read_file(file, 256 << 20);
  std::vector<std::string> prompts;
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string one = text.substr(at, end - at);
    at = end + 1;
    if (one.ends_with('\r')) one.pop_back();
    if (one.empty()) continue;
    const std::string where = fmt::format("{}:{}", file, line);
    if (file.ends_with(".jsonl")) one = json_text(parse_json(one, where), "prompt", where);
    if (model::text::utf8_valid_run(one, 0) != one.size()) throw user_error("{}: no valid UTF-8", where);
    prompts.push_back(std::move(one));
  }
  if (prompts.empty()) throw user_error("{}: no prompts", file);
  return prompts;
}

// Continues several prompts in one batch. Results are printed in the order of the prompts, each as soon as all before
// it are finished.
int generate_many(const model::infer::LoadedModel& loaded, const DraftChoice& draft, RunFlags& flags) {
  const model::text::Tokenizer& tokenizer = *loaded.model().tokenizer;
  std::vector<std::string> prompts;
  if (!flags.prompts.empty()) prompts = read_prompts(flags.prompts);
  if (flags.text_given) prompts.push_back(flags.prompt);
  // With one prompt, --parallel N generates N continuations of it.
  if (flags.sequences == 0) flags.sequences = prompts.size() == 1 && flags.parallel > 0 ? flags.parallel : 1;
  if (prompts.empty()) throw usage_error("--parallel and --sequences need --prompts, -p or -f");
  model::infer::ManyOptions options;
  options.session = flags.sampling.session;
  options.sampling = flags.sampling.sampling;
  options.generate = flags.sampling.generate;
  options.draft = draft.many(flags.sampling.generate.draft);
  std::vector<model::infer::ManyRequest> requests;
  for (const std::string& prompt : prompts) {
    model::text::EncodeOptions encode;
    encode.add_special = true;
    encode.parse_special = true;
    const auto tokens = tokenizer.encode(prompt, encode);
    for (int64_t s = 0; s < flags.sequences; ++s)
      requests.push_back({tokens, options.sampling.seed + static_cast<uint32_t>(s)});
  }
  options.parallel = flags.parallel > 0 ? flags.parallel : std::min<int64_t>(8, requests.size());
  std::vector<std::optional<model::infer::ManyAnswer>> ready(requests.size());
  size_t printed = 0, ended = 0;
  const auto print = [&](const model::infer::ManyAnswer& answer) {
    const size_t prompt = printed / flags.sequences;
    if (flags.json) {
      nlohmann::ordered_json line;
      line["index"] = prompt;
      if (flags.sequences > 1) line["sequence"] = printed % flags.sequences;
      line["prompt"] = prompts[prompt];
      line["text"] = model::text::utf8_repair(answer.text);
      line["end"] = model::infer::reason_name(answer.reason);
      line["tokens"] = {{"read", answer.read}, {"shared", answer.shared}, {"made", answer.made}};
      if (options.draft.is_on()) line["draft"] = {{"drafted", answer.drafted}, {"accepted", answer.accepted}};
      put_text(line.dump() + "\n");
    } else {
      put_text((flags.no_echo ? "" : prompts[prompt]) + answer.text + "\n");
    }
  };
  if (verbosity() == Verbosity::verbose) {
    const model::infer::ManyPlan plan = model::infer::plan_requests(loaded.model(), options, requests);
    verbose("memory: " + draft.forecast_many(loaded, plan.session, plan.limits).text());
  }
  Progress progress;
  std::string explained;
  const Stopwatch watch;
  const auto answers = model::infer::answer_all(
      loaded, options, requests,
      [&](size_t index, const model::infer::ManyAnswer& answer) {
        ++ended;
        ready[index] = answer;
        for (; printed < ready.size() && ready[printed]; ++printed) print(*ready[printed]);
        progress.update(fmt::format("{} of {} sequences", ended, requests.size()));
      },
      [] { return !interrupted().load(); }, flags.explain ? &explained : nullptr);
  const double seconds = watch.seconds();
  int64_t read = 0, shared = 0, made = 0, full = 0, drafted = 0, accepted = 0;
  for (const model::infer::ManyAnswer& a : answers) {
    read += a.read;
    shared += a.shared;
    made += a.made;
    drafted += a.drafted;
    accepted += a.accepted;
    full += a.reason == model::infer::EndReason::context;
  }
  progress.finish(fmt::format(
      "{} sequences, {} at once | prompts: {} tokens, {} of them shared | generation: {} tokens | {:.1f} tokens/s{}",
      ended, options.parallel, read + shared, shared, made, (read + made) / std::max(seconds, 1e-9),
      draft_text(drafted, accepted)));
  if (flags.explain) std::cerr << explained;
  if (full > 0) note(fmt::format("{} sequences ended because the context was full: raise --ctx-size", full));
  return exit_code(interrupted().load() ? Exit::interrupted : Exit::ok);
}

int generate(const Shared& shared, RunFlags& flags) {
  add_standard_input(flags);
  const bool many = flags.parallel > 0 || flags.sequences > 0 || !flags.prompts.empty();
  if (!flags.images.empty() && (many || !flags.text_given))
    throw usage_error("--image goes with the prompt of -p or --file, and not with many prompts");
  if (flags.json && !many) throw usage_error("--json goes with --prompts, --parallel or --sequences");
  const model::arch::LibraryRef library = shared.library();
  const model::arch::Model model = flags.mapping.read(shared, library, flags.model);
  if (!model.tokenizer) throw user_error("{} has no tokenizer", flags.model);
  flags.sampling.finish(model, *library);
  const auto adapters = flags.adapters.read(model);
  run::Engine engine = shared.engine(flags.explain);
  flags.sampling.invariance.choose(engine, &flags.sampling.session);
  model::infer::LoadedModel loaded(engine, model, adapters);
  std::optional<PictureReader> reader;
  if (!flags.images.empty())
    reader.emplace(library, flags.mmproj.empty() ? flags.model : flags.mmproj, loaded, flags.sampling.session.exact);
  note_length(loaded, flags.sampling.session);
  catch_interrupts();
  if (!flags.prompt_file.empty()) flags.prompt += read_file(flags.prompt_file, 64 << 20);
  const DraftChoice draft(flags.draft, library, engine, model);
  if (many) return generate_many(loaded, draft, flags);
  std::vector<model::infer::PictureRef> pictures;
  for (const std::string& file : flags.images) pictures.push_back(reader->read(std::filesystem::path(file)));
  if (verbosity() == Verbosity::verbose)
    verbose("memory: " + draft.forecast(loaded, flags.sampling.session, flags.sampling.generate.draft).text());
  model::infer::Generator generator(loaded, flags.sampling.session, flags.sampling.sampling, flags.sampling.generate,
                                    draft.make(model, flags.sampling.session));
  bool whole = true;
  if (flags.text_given) {
    if (!flags.no_echo) put_text(flags.prompt);
    const auto options = prompt_options(generator);
    const std::vector<model::text::TokenId> prompt =
        reader ? encode_with_pictures(*model.tokenizer,
                                      model::infer::marked(flags.prompt, reader->text(), std::ssize(pictures)), options,
                                      reader->text(), pictures)
               : model.tokenizer->encode(flags.prompt, options);
    whole = answer(generator, prompt, flags.markdown);
  } else {
    LineInput input({.history = flags.history ? "run_history" : ""});
    if (input.terminal()) catch_interrupts(true);
    if (input.terminal()) note("type a prompt and press Enter; an empty line or Ctrl-D ends");
    bool any = false;
    for (std::string line; whole;) {
      const LineInput::Status status = input.read("> ", &line);
      if (status == LineInput::Status::interrupted) whole = false;
      if (status != LineInput::Status::line || line.empty()) break;
      any = true;
      input.remember(line);
      whole = answer(generator, model.tokenizer->encode(line + "\n", prompt_options(generator)), flags.markdown);
      if (!whole && input.terminal()) {  // Ctrl-C ended the answer, not the program
        note("(stopped)");
        forget_interrupt();
        whole = true;
      }
    }
    if (!any && !input.terminal()) throw usage_error("no prompt: give -p, --file, or lines on standard input");
  }
  if (flags.explain) std::cerr << generator.session().explain();
  return exit_code(whole ? Exit::ok : Exit::interrupted);
}

}  // namespace

void add_run(CLI::App& app, Command& command) {
  auto flags = std::make_shared<RunFlags>();
  flags->sampling.generate.predict = 128;
  CLI::App* sub = app.add_subcommand("run", "Continue a text with a model")->alias("cli")->alias("completion");
  add_setting(*sub, "--model", flags->model);
  auto* prompt = add_setting(*sub, "--prompt", flags->prompt);
  auto* prompt_file = add_setting(*sub, "--file", flags->prompt_file);
  add_setting(*sub, "--image", flags->images);
  add_setting(*sub, "--mmproj", flags->mmproj);
  add_setting(*sub, "--prompts", flags->prompts);
  add_setting(*sub, "--parallel", flags->parallel)
      ->check(whole(int64_t{1}, int64_t{model::infer::ManySession::kMostSequences}));
  add_setting(*sub, "--sequences", flags->sequences);
  auto* json = add_setting(*sub, "--json", flags->json);
  flags->sampling.add_flags(*sub);
  flags->adapters.add_flags(*sub);
  flags->mapping.add_flags(*sub);
  flags->draft.add_flags(*sub, flags->sampling.generate.draft);
  add_setting(*sub, "--no-display-prompt", flags->no_echo)->excludes(json);
  add_setting(*sub, "--explain", flags->explain);
  add_setting(*sub, "--markdown", flags->markdown);
  add_setting(*sub, "--history", flags->history);
  sub->footer(
      "Examples:\n"
      "  lumen run -m model.gguf -p \"Once upon a time\" -n 200\n"
      "  lumen run model.gguf \"ROMEO:\" --temp 0 --seed 1\n"
      "  lumen run model.gguf -p \"Summary of this text:\" < text.txt\n"
      "  lumen run model.gguf -p \"A list of three cities as JSON: \" --json-schema '{\"type\": \"array\", \"items\": "
      "{\"type\": \"string\"}}'\n"
      "  lumen run model.gguf -p \"Once\" --lora story-adapter --lookup\n"
      "  lumen run Model-VL -p \"What is in this picture?\" --image photo.jpg\n"
      "  lumen run model.gguf --prompts questions.txt --parallel 16 --json > answers.jsonl\n"
      "  lumen chat -m model.gguf                      talk instead");
  add_shared_flags(*sub, command.shared);
  sub->callback([sub, flags, prompt, prompt_file, &command] {
    flags->prompt_given = prompt->count() > 0;
    flags->text_given = prompt->count() > 0 || prompt_file->count() > 0;
    flags->draft.require_use(*sub);
    command.action = [flags, shared = command.shared] { return generate(*shared, *flags); };
  });
}

}  // namespace lumen::cli
