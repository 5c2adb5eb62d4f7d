#include "cli/infer/sampling.h"

#include <limits>
#include <random>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/naming.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "cli/settings/declare.h"
#include "model/infer/grammar/grammar.h"
#include "model/infer/schema/schema.h"
#include "model/infer/session/step_plan.h"

namespace lumen::cli {
namespace {

// "15043+1", "15043-0.5", "15043-inf" or "15043-false": a token id and the bias added to its logit.
std::pair<model::text::TokenId, double> read_bias(const std::string& text, int64_t vocabulary) {
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
  return {static_cast<model::text::TokenId>(id), value};
}

}  // namespace

void SamplingFlags::add_flags(CLI::App& app) {
  add_setting(app, "--predict", generate.predict);
  add_setting(app, "--ctx-size", session.context);
  add_setting(app, "--batch-size", session.chunk);
  cache.add_flags(app);
  add_setting(app, "--keep", generate.keep);
  add_setting(app, "--context-shift", generate.shift);
  add_setting(app, "--seed", seed);
  add_setting(app, "--ignore-eos", generate.ignore_end);
  add_setting(app, "--stop", generate.stops);
  add_setting(app, "--exact", session.exact);
  invariance.add_to(app);
  add_narrow_flag(app, &session.narrow);
  add_setting(app, "--temp", sampling.temperature);
  auto* top_k = add_setting(app, "--top-k", sampling.top_k);
  auto* top_p = add_setting(app, "--top-p", sampling.top_p);
  auto* min_p = add_setting(app, "--min-p", sampling.min_p);
  auto* typical = add_setting(app, "--typical", sampling.typical_p);
  auto* sigma = add_setting(app, "--top-n-sigma", sampling.top_n_sigma);
  auto* xtc = add_setting(app, "--xtc-probability", sampling.xtc_probability);
  add_setting(app, "--xtc-threshold", sampling.xtc_threshold);
  add_setting(app, "--repeat-penalty", sampling.repeat_penalty);
  add_setting(app, "--repeat-last-n", sampling.repeat_last);
  add_setting(app, "--presence-penalty", sampling.presence_penalty);
  add_setting(app, "--frequency-penalty", sampling.frequency_penalty);
  add_setting(app, "--dry-multiplier", sampling.dry_multiplier);
  add_setting(app, "--dry-base", sampling.dry_base);
  add_setting(app, "--dry-allowed-length", sampling.dry_allowed_length);
  add_setting(app, "--dry-penalty-last-n", sampling.dry_last);
  add_setting(app, "--dry-sequence-breaker", dry_breakers);
  auto* mirostat = add_setting(app, "--mirostat", sampling.mirostat);
  for (auto* filter : {top_k, top_p, min_p, typical, sigma, xtc}) mirostat->excludes(filter);
  add_setting(app, "--mirostat-lr", sampling.mirostat_rate);
  add_setting(app, "--mirostat-ent", sampling.mirostat_entropy);
  add_setting(app, "--logit-bias", bias);
  add_setting(app, "--grammar", generate.grammar);
  add_setting(app, "--grammar-file", grammar_file);
  add_setting(app, "--json-schema", schema);
  add_setting(app, "--json-schema-file", schema_file);
}

void SamplingFlags::finish(const model::arch::Model& model, const model::arch::Library& library) {
  sampling.seed = seed >= 0 ? static_cast<uint32_t>(seed) : std::random_device{}();
  cache.choose(library, &session);
  for (const std::string& b : bias) sampling.bias.push_back(read_bias(b, model.integer("vocab")));
  if (sampling.dry_multiplier > 0) sampling.dry_breakers = model::infer::tokens_with(*model.tokenizer, dry_breakers);
  const int given = !generate.grammar.empty() + !grammar_file.empty() + !schema.empty() + !schema_file.empty();
  if (given > 1) throw usage_error("one of --grammar, --grammar-file, --json-schema and --json-schema-file");
  if (!grammar_file.empty()) {
    generate.grammar = read_file(grammar_file, 1 << 20);
    model::infer::Grammar::parse(generate.grammar, grammar_file);  // parsed here so that errors name the file
  }
  if (!schema_file.empty()) schema = read_file(schema_file, 4 << 20);
  if (schema.empty()) return;
  const std::string name = schema_file.empty() ? "--json-schema" : schema_file;
  parse_json(schema, name, 64);  // parsed first because its error messages are better
  std::vector<std::string> relaxed;
  generate.grammar =
      naming(name, [&] { return model::infer::schema_grammar(nlohmann::ordered_json::parse(schema), {}, &relaxed); });
  for (const std::string& place : relaxed)
    warn(fmt::format("{}: the grammar does not enforce {}; the output may violate it", name, printable(place)));
}

void note_length(const model::infer::LoadedModel& loaded, const model::infer::SessionOptions& session) {
  if (!model::infer::depends_on_length(loaded)) return;
  const int64_t context = model::infer::session_options(loaded.model(), session).context;
  note(fmt::format(
      "this model scales positions by the length of the sequence; here they are scaled for {} tokens (--ctx-size) "
      "from the first token on, so another --ctx-size gives other outputs, and so does a program that scales by the "
      "current length",
      context));
}

}  // namespace lumen::cli
