#include "cli/infer/sampling.h"

#include <limits>
#include <random>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/naming.h"
#include "base/structured/json.h"
#include "cli/numbers.h"
#include "cli/paths/paths.h"
#include "model/infer/sample/grammar.h"
#include "model/infer/sample/json_schema.h"
#include "model/infer/session/step_plan.h"

namespace lumen::cli {
namespace {

// "15043+1", "15043-0.5", "15043-inf" or "15043-false": a token id and the bias added to its logit.
std::pair<model::TokenId, double> read_bias(const std::string& text, int64_t vocabulary) {
  const size_t sign = text.find_first_of("+-=", 1);
  char* end = nullptr;
  const long long id = std::strtoll(text.c_str(), &end, 10);
  const bool number = sign != std::string::npos && end == text.c_str() + sign;
  if (!number || id < 0 || id >= vocabulary)
    throw usage_error("--logit-bias {}: expected ID+NUMBER or ID-NUMBER with an id of the vocabulary", text);
  const std::string by = text.substr(sign + 1);
  double value = std::numeric_limits<double>::infinity();
  if (by != "inf" && by != "false") {
    value = std::strtod(by.c_str(), &end);
    if (by.empty() || *end != '\0' || !(value >= 0)) throw usage_error("--logit-bias {}: '{}' is no number", text, by);
  }
  if (by == "false" || text[sign] == '-') value = -value;
  if (value == std::numeric_limits<double>::infinity())
    throw usage_error("--logit-bias {}: that forces one token", text);
  return {static_cast<model::TokenId>(id), value};
}

}  // namespace

void SamplingFlags::add_flags(CLI::App& app) {
  app.add_option("-n,--predict,--n-predict", generate.predict,
                 "Tokens to generate; -1: no limit, -2: until the context is full")
      ->capture_default_str()
      ->check(whole(-2, INT32_MAX));
  app.add_option("-c,--ctx-size", session.context, "Context length; 0: the model's")
      ->capture_default_str()
      ->check(whole(0, INT32_MAX));
  app.add_option("-b,--batch-size", session.chunk, "Prompt tokens computed at once")
      ->capture_default_str()
      ->check(whole(1, 1 << 24));
  cache.add_flags(app);
  app.add_option("--keep", generate.keep, "Tokens of the beginning that stay when the context is full; -1: the prompt")
      ->capture_default_str()
      ->check(whole(-1, INT32_MAX));
  app.add_flag("--context-shift,!--no-context-shift", generate.shift,
               "When the context is full, drop the oldest tokens behind --keep and go on; else the answer ends there");
  app.add_option("-s,--seed", seed, "Seed of sampling; -1: another each time")
      ->capture_default_str()
      ->check(whole(-1, int64_t{0xffffffff}));
  app.add_flag("--ignore-eos", generate.ignore_end, "Never draw an end token");
  app.add_option("--stop,-r,--reverse-prompt", generate.stops, "Text that ends the answer; repeatable")
      ->type_name("TEXT");
  app.add_flag("--exact", session.exact, "f32 activations throughout");
  add_narrow_flag(app, &session.narrow);
  const auto option = [&](const char* names, auto& value, const CLI::Validator& bounds, const char* help) {
    return app.add_option(names, value, help)->capture_default_str()->group("Sampling")->check(bounds);
  };
  constexpr double kLeast = 1e-6;  // the lower bound of options that must be above 0
  option("--temp,--temperature", sampling.temperature, real(0, 1000), "0 is greedy");
  auto* top_k = option("--top-k", sampling.top_k, whole(0, INT32_MAX), "Only the k best tokens; 0: all");
  auto* top_p =
      option("--top-p", sampling.top_p, real(kLeast, 1), "The best tokens with this much probability together; 1: all");
  auto* min_p =
      option("--min-p", sampling.min_p, real(0, 1 - kLeast), "Tokens at least this likely, relative to the best");
  auto* typical = option("--typical,--typical-p", sampling.typical_p, real(kLeast, 1),
                         "Tokens of the usual surprise with this much probability; 1: all");
  option("--repeat-penalty", sampling.repeat_penalty, real(kLeast, 1000), "Above 1 makes repetitions rarer");
  option("--repeat-last-n", sampling.repeat_last, whole(-1, INT32_MAX), "How far back repetitions count; -1: all");
  option("--presence-penalty", sampling.presence_penalty, real(-1000, 1000),
         "Taken from the logit of a token that was there before");
  option("--frequency-penalty", sampling.frequency_penalty, real(-1000, 1000), "The same for each time it was there");
  option("--dry-multiplier", sampling.dry_multiplier, real(0, 1000), "Makes repeating whole passages rarer; 0: off");
  option("--dry-base", sampling.dry_base, real(1, 1000), "How that grows with the length of the passage");
  option("--dry-allowed-length", sampling.dry_allowed_length, whole(0, INT32_MAX), "Passages so short may repeat");
  option("--dry-penalty-last-n", sampling.dry_last, whole(-1, INT32_MAX), "How far back passages count; -1: all");
  app.add_option("--dry-sequence-breaker", dry_breakers, "Strings that passages do not reach across; repeatable")
      ->type_name("TEXT")
      ->group("Sampling");
  auto* mirostat = option("--mirostat", sampling.mirostat, whole(0, 2),
                          "1 or 2: keep the surprise near a goal, in place of top-k, top-p, ...");
  for (auto* filter : {top_k, top_p, min_p, typical}) mirostat->excludes(filter);
  option("--mirostat-lr", sampling.mirostat_rate, real(kLeast, 1000), "How fast it follows");
  option("--mirostat-ent", sampling.mirostat_entropy, real(kLeast, 1000), "The goal, in bits");
  app.add_option("-l,--logit-bias", bias, "ID+NUMBER or ID-NUMBER: make a token likelier or rarer; ID-inf forbids it")
      ->type_name("ID+N")
      ->group("Sampling");
  app.add_option("--grammar", generate.grammar, "GBNF grammar the answer must follow")
      ->type_name("TEXT")
      ->group("Sampling");
  app.add_option("--grammar-file", grammar_file, "The same from a file")
      ->check(reads(Reads::file))
      ->type_name("FILE")
      ->group("Sampling");
  app.add_option("-j,--json-schema", schema, "JSON schema the answer must fit; {}: any JSON")
      ->type_name("JSON")
      ->group("Sampling");
  app.add_option("--json-schema-file", schema_file, "The same from a file")
      ->check(reads(Reads::file))
      ->type_name("FILE")
      ->group("Sampling");
}

void SamplingFlags::finish(const model::Model& model, const model::Library& library) {
  sampling.seed = seed >= 0 ? static_cast<uint32_t>(seed) : std::random_device{}();
  cache.choose(library, &session);
  for (const std::string& b : bias) sampling.bias.push_back(read_bias(b, model.integer("vocab")));
  if (sampling.dry_multiplier > 0) sampling.dry_breakers = model::tokens_with(*model.tokenizer, dry_breakers);
  const int given = !generate.grammar.empty() + !grammar_file.empty() + !schema.empty() + !schema_file.empty();
  if (given > 1) throw usage_error("one of --grammar, --grammar-file, --json-schema and --json-schema-file");
  if (!grammar_file.empty()) {
    generate.grammar = read_file(grammar_file, 1 << 20);
    model::Grammar::parse(generate.grammar, grammar_file);  // parsed here so that errors name the file
  }
  if (!schema_file.empty()) schema = read_file(schema_file, 4 << 20);
  if (schema.empty()) return;
  const std::string name = schema_file.empty() ? "--json-schema" : schema_file;
  parse_json(schema, name, 64);  // parsed first because its error messages are better
  generate.grammar = naming(name, [&] { return model::schema_grammar(nlohmann::ordered_json::parse(schema)); });
}

void note_length(const model::LoadedModel& loaded, const model::SessionOptions& session) {
  if (!model::depends_on_length(loaded)) return;
  const int64_t context = model::session_options(loaded.model(), session).context;
  note(fmt::format(
      "this model scales positions by the length of the sequence; here they are scaled for {} tokens (--ctx-size) "
      "from the first token on, so another --ctx-size gives other outputs, and so does a program that scales by the "
      "current length",
      context));
}

}  // namespace lumen::cli
