// Text functions: tokenize, generate, chat, perplexity.
#include <cmath>
#include <limits>
#include <random>

#include "api/boundary.h"
#include "api/model.h"
#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "base/structured/json.h"
#include "model/infer/generate/generate.h"
#include "model/infer/measure/perplexity.h"
#include "model/infer/schema/schema.h"
#include "model/templates/chat.h"
#include "model/text/unicode/unicode.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

namespace {

using nlohmann::ordered_json;
constexpr double kNoBound = std::numeric_limits<double>::infinity();

// The options of one generation.
struct Wanted {
  model::infer::SessionOptions session;
  model::infer::SamplerOptions sampling;
  model::infer::GenerateOptions generate;
  std::optional<model::text::Tokenizer> tokenizer;  // used instead of the model's
};

std::vector<std::pair<model::text::TokenId, double>> bias_of(const ordered_json& given, int64_t vocabulary) {
  std::vector<std::pair<model::text::TokenId, double>> out;
  const Error wrong = usage_error("option 'logit_bias' takes an object {{ID: NUMBER}} of ids of the vocabulary");
  if (!given.is_object()) throw wrong;
  for (const auto& [key, value] : given.items()) {
    char* end = nullptr;
    const long long id = std::strtoll(key.c_str(), &end, 10);
    if (key.empty() || *end != '\0' || id < 0 || id >= vocabulary) throw wrong;
    // JSON has no infinities: null means minus infinity and forbids the token.
    if (!value.is_null() && !value.is_number()) throw wrong;
    out.emplace_back(model::text::TokenId(id), value.is_null() ? -kNoBound : value.get<double>());
  }
  return out;
}

void take_sampling(api::Options& options, int64_t vocabulary, model::infer::SamplerOptions& sampling) {
  options.take_setting("generate.temperature", sampling.temperature);
  options.take_setting("generate.top_k", sampling.top_k);
  options.take_setting("generate.top_p", sampling.top_p);
  options.take_setting("generate.min_p", sampling.min_p);
  options.take_setting("generate.typical_p", sampling.typical_p);
  options.take_setting("generate.top_n_sigma", sampling.top_n_sigma);
  options.take_setting("generate.xtc_probability", sampling.xtc_probability);
  options.take_setting("generate.xtc_threshold", sampling.xtc_threshold);
  options.take_setting("generate.repeat_penalty", sampling.repeat_penalty);
  options.take_setting("generate.presence_penalty", sampling.presence_penalty);
  options.take_setting("generate.frequency_penalty", sampling.frequency_penalty);
  options.take_setting("generate.repeat_last", sampling.repeat_last);
  int64_t seed = -1;
  options.take_setting("generate.seed", seed);
  sampling.seed = seed >= 0 ? uint32_t(seed) : std::random_device{}();
  if (const auto bias = options.take("logit_bias")) sampling.bias = bias_of(*bias, vocabulary);
}

Wanted wanted_of(api::Options& options, const lumen_model& m) {
  Wanted out;
  const int64_t vocabulary = m.loaded.model().integer("vocab");
  take_sampling(options, vocabulary, out.sampling);
  out.generate.predict = 128;
  options.take_setting("generate.max_tokens", out.generate.predict);
  options.take_setting("generate.stop", out.generate.stops);
  options.take_setting("generate.grammar", out.generate.grammar);
  options.take_setting("generate.ignore_end", out.generate.ignore_end);
  if (const auto schema = options.take("json_schema")) {
    if (!out.generate.grammar.empty()) throw usage_error("one of the options 'grammar' and 'json_schema'");
    std::vector<std::string> relaxed;
    out.generate.grammar = model::infer::schema_grammar(*schema, {}, &relaxed);
    for (const std::string& place : relaxed)
      warn(fmt::format("json_schema: the grammar does not enforce {}; the output may violate it", printable(place)));
  }
  options.take_setting("generate.context", out.session.context);
  options.take_setting("generate.exact", out.session.exact);
  for (const model::text::TokenId id : model::infer::never_drawn(m.tokenizer(), vocabulary, out.generate.ignore_end))
    out.sampling.forbidden.push_back(id);
  return out;
}

// Evaluates a prompt chunk by chunk and asks the listener before each chunk whether to go on.
std::span<const float> read_prompt(model::infer::Session& session, std::span<const model::text::TokenId> prompt,
                                   const model::infer::SessionOptions& options, const api::Listener& listener) {
  if (prompt.empty()) throw usage_error("the prompt is empty");
  if (std::ssize(prompt) > session.context())
    throw Error(Exit::user, fmt::format("the prompt has {} tokens, the context {}", prompt.size(), session.context()),
                "give a shorter prompt, or a greater 'context'");
  session.rewind(0);  // a result does not depend on the call before
  std::span<const float> logits;
  while (!prompt.empty()) {
    listener.ask();
    const size_t part = std::min(prompt.size(), size_t(options.chunk));
    logits = session.feed(prompt.first(part));
    prompt = prompt.subspan(part);
  }
  return logits;
}

// Continues the prompt as model::infer::Generator does, with caches that stay allocated for the next call.
ordered_json written(lumen_model& m, const Wanted& wanted, std::span<const model::text::TokenId> prompt,
                     const api::Listener& listener) {
  const model::text::Tokenizer tokenizer = wanted.tokenizer.value_or(m.tokenizer());
  model::infer::Session& session = m.session(wanted.session);
  model::infer::Sampler sampler(wanted.sampling);
  for (const model::text::TokenId id : prompt) sampler.accept(id);
  std::optional<model::infer::Constraint> constraint;
  std::optional<model::infer::GrammarMatcher> matcher;
  if (!wanted.generate.grammar.empty()) {
    constraint.emplace(tokenizer, wanted.generate.grammar);
    matcher.emplace(constraint->states);
  }
  bool goes_on = true;
  model::infer::Answer answer(tokenizer, wanted.generate, sampler, constraint ? &*constraint : nullptr,
                              matcher ? &*matcher : nullptr,
                              [&](std::string_view piece) { goes_on = goes_on && listener.tell(piece); });
  Stopwatch watch;
  model::infer::LogitRow row = read_prompt(session, prompt, wanted.session, listener);
  const double read_seconds = watch.seconds();
  watch.restart();
  for (;;) {
    if (goes_on) listener.ask();
    if (!goes_on) throw Error(Exit::interrupted, "stopped");
    const std::optional<model::text::TokenId> id = answer.draw(row);
    if (!id) break;
    if (session.position() + 1 > session.context()) answer.end(model::infer::EndReason::context);
    if (answer.ended()) break;
    row = session.feed_row({&*id, 1}, sampler.asked(session.vocabulary()));
  }
  const model::infer::EndReason reason = answer.finish();
  ordered_json out;
  out["text"] = model::text::utf8_repair(answer.text());
  out["reason"] = model::infer::reason_name(reason);
  out["prompt_tokens"] = prompt.size();
  out["tokens"] = answer.made();
  out["prompt_seconds"] = read_seconds;
  out["seconds"] = watch.seconds();
  return out;
}

char* written_text(lumen_model& m, const Wanted& wanted, std::span<const model::text::TokenId> prompt,
                   const api::Listener& listener) {
  try {
    return api::handed_over(written(m, wanted, prompt, listener).dump());
  } catch (...) {
    m.forget();
    throw;
  }
}

std::string_view utf8(const char* text, size_t size) {
  api::require(text, "text");
  const std::string_view view(text, size);
  if (model::text::utf8_valid_run(view, 0) != view.size()) throw user_error("the text is not valid UTF-8");
  return view;
}

}  // namespace

extern "C" {

int lumen_tokenize(lumen_model* model, const char* text, size_t size, const char* options, int32_t** tokens,
                   size_t* count) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(tokens, "tokens");
    api::require(count, "count");
    api::Options given(options);
    model::text::EncodeOptions encode;
    given.take("special", encode.add_special);
    given.take("control", encode.parse_special);
    given.finish();
    const std::vector<model::text::TokenId> ids = m.tokenizer().encode(utf8(text, size), encode);
    *tokens = api::handed_over(std::span<const int32_t>(ids));
    *count = ids.size();
  });
}

int lumen_detokenize(lumen_model* model, const int32_t* tokens, size_t count, char** text, size_t* size) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(text, "text");
    api::require(size, "size");
    if (count > 0) api::require(tokens, "tokens");
    const std::string out = model::text::utf8_repair(m.tokenizer().decode({tokens, count}));
    *text = api::handed_over(std::string_view(out));
    *size = out.size();
  });
}

int lumen_generate(lumen_model* model, const char* prompt, size_t size, const char* options, lumen_on_text on_text,
                   void* context, char** json) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(json, "json");
    api::Options given(options);
    const Wanted wanted = wanted_of(given, m);
    given.finish();
    model::text::EncodeOptions encode;
    encode.add_special = encode.parse_special = true;
    *json = written_text(m, wanted, m.tokenizer().encode(utf8(prompt, size), encode), {on_text, context});
  });
}

int lumen_chat(lumen_model* model, const char* messages, const char* options, lumen_on_text on_text, void* context,
               char** json) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(json, "json");
    api::require(messages, "messages");
    api::Options given(options);
    Wanted wanted = wanted_of(given, m);
    std::string name;
    given.take_setting("chat.template", name);
    ordered_json values = given.take("template_values").value_or(ordered_json::object());
    given.finish();
    if (!values.is_object()) throw usage_error("option 'template_values' takes an object");
    const model::templates::ChosenTemplate chosen = model::templates::choose_template(name, m.tokenizer());
    wanted.generate.stops.insert(wanted.generate.stops.end(), chosen.stops.begin(), chosen.stops.end());
    const ordered_json said = parse_ordered_json(messages, "messages", 64);
    if (!said.is_array() || said.empty())
      throw Error(Exit::usage, "there is no message", "messages are a list of objects with \"role\" and \"content\"");
    wanted.tokenizer = model::templates::with_chat(m.tokenizer(), chosen);
    const auto tokens = model::templates::chat_tokens(*wanted.tokenizer, chosen.parse(), said, values);
    *json = written_text(m, wanted, tokens, {on_text, context});
  });
}

int lumen_perplexity(lumen_model* model, const char* text, size_t size, const char* options, lumen_on_text on_text,
                     void* context, char** json) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(json, "json");
    api::Options given(options);
    model::infer::PerplexityOptions measure;
    std::string bos = "front";
    given.take_setting("perplexity.length", measure.length);
    given.take_setting("perplexity.batch", measure.batch);
    given.take_setting("perplexity.windows", measure.windows);
    given.take_setting("perplexity.full", measure.full);
    given.take_setting("perplexity.bos", bos);
    given.take_setting("perplexity.exact", measure.exact);
    given.finish();
    const model::infer::BosPlace place = model::infer::bos_place(bos);
    measure.bos = place != model::infer::BosPlace::none && m.tokenizer().adds_bos();
    const auto tokens = model::infer::perplexity_tokens(m.tokenizer(), utf8(text, size), place);
    const api::Listener listener(on_text, context);
    const model::infer::Perplexity result =
        model::infer::perplexity(m.loaded, tokens, measure, [&](int64_t, int64_t, double) { listener.ask(); });
    ordered_json out;
    out["perplexity"] = result.value;
    out["error"] = result.error;
    out["nats"] = result.nats;
    out["tokens"] = result.tokens;
    out["windows"] = result.windows;
    *json = api::handed_over(out.dump());
  });
}

}  // extern "C"
