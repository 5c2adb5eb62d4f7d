// Numbers that a model computes: logits and embedding vectors.
#include <algorithm>
#include <cmath>

#include "api/boundary.h"
#include "api/model.h"
#include "base/error.h"
#include "model/file/hub/resolve.h"
#include "model/infer/measure/pooling.h"
#include "model/text/unicode/unicode.h"

using namespace lumen;  // NOLINT: this file is the C interface and is included by no other

namespace {

// Rows of logits that are computed in one pass.
constexpr size_t kRowsAtOnce = 16;

std::vector<float> logits_of_all(model::infer::Session& session, std::span<const model::text::TokenId> tokens) {
  std::vector<float> out;
  out.reserve(tokens.size() * size_t(session.vocabulary()));
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), kRowsAtOnce));
    const std::span<const float> rows = session.feed_all(part);
    out.insert(out.end(), rows.begin(), rows.begin() + std::ptrdiff_t(part.size()) * session.vocabulary());
    tokens = tokens.subspan(part.size());
  }
  return out;
}

std::unique_ptr<lumen_array> logits_on_device(lumen_model& m, model::infer::Session& session,
                                              std::span<const model::text::TokenId> tokens, bool last) {
  const int64_t width = session.vocabulary();
  auto out = last ? api::make_array(m.place, {width}) : api::make_array(m.place, {std::ssize(tokens), width});
  int64_t done = 0;
  const auto see = [&](const void* rows, int64_t count) {
    m.place->copy(out->data() + done * width, rows, count * width * int64_t{sizeof(float)});
    done += count;
  };
  const size_t step = last ? tokens.size() : kRowsAtOnce;
  for (size_t at = 0; at < tokens.size(); at += step)
    session.feed_on_device(tokens.subspan(at, std::min(step, tokens.size() - at)), last, see);
  m.place->engine().device().synchronize();
  return out;
}

// Runs `work` on an emptied session, with the given tokens.
void with_text(lumen_model& m, const int32_t* tokens, size_t count, const char* options,
               const std::function<void(model::infer::Session&, std::span<const model::text::TokenId>)>& work) {
  if (count == 0) throw usage_error("no tokens are given");
  api::require(tokens, "tokens");
  api::Options given(options);
  model::infer::SessionOptions wanted;
  given.take_setting("logits.context", wanted.context);
  given.take_setting("logits.exact", wanted.exact);
  given.finish();
  const std::span<const model::text::TokenId> text(tokens, count);
  model::infer::check_tokens(m.loaded.model(), text);
  model::infer::Session& session = m.session(wanted);
  if (std::ssize(text) > session.context())
    throw Error(Exit::user, fmt::format("{} tokens are more than the context of {}", count, session.context()),
                "give fewer, or a greater 'context'");
  try {
    session.rewind(0);
    work(session, text);
  } catch (...) {
    m.forget();
    throw;
  }
}

model::infer::Pooling pooling_named(const std::string& name, const lumen_model& m) {
  if (name.empty())
    return model::infer::pooling_of(m.loaded.model(), model::file::resolve_path(m.path))
        .value_or(model::infer::Pooling::mean);
  for (const auto& [known, pooling] : {std::pair{"mean", model::infer::Pooling::mean},
                                       {"cls", model::infer::Pooling::first},
                                       {"last", model::infer::Pooling::last}})
    if (name == known) return pooling;
  throw usage_error("option 'pooling' is \"mean\", \"cls\" or \"last\", not \"{}\"", name);
}

}  // namespace

extern "C" {

int lumen_logits(lumen_model* model, const int32_t* tokens, size_t count, int last, const char* options, float** logits,
                 size_t* vocabulary) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(logits, "logits");
    api::require(vocabulary, "vocabulary");
    with_text(m, tokens, count, options,
              [&](model::infer::Session& session, std::span<const model::text::TokenId> text) {
                *logits = last != 0 ? api::handed_over(session.feed(text))
                                    : api::handed_over(std::span<const float>(logits_of_all(session, text)));
                *vocabulary = size_t(session.vocabulary());
              });
  });
}

int lumen_logits_array(lumen_model* model, const int32_t* tokens, size_t count, int last, const char* options,
                       lumen_array** logits) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(logits, "logits");
    with_text(m, tokens, count, options,
              [&](model::infer::Session& session, std::span<const model::text::TokenId> text) {
                *logits = logits_on_device(m, session, text, last != 0).release();
              });
  });
}

int lumen_embed(lumen_model* model, const char* const* inputs, const size_t* sizes, size_t count, const char* options,
                float** vectors, size_t* width) {
  return api::with_model(model, [&](lumen_model& m) {
    api::require(inputs, "inputs");
    api::require(sizes, "sizes");
    api::require(vectors, "vectors");
    api::require(width, "width");
    api::Options given(options);
    std::string name;
    int64_t norm = 2;
    model::infer::EmbedOptions how;
    given.take_setting("embed.pooling", name);
    given.take_setting("embed.normalize", norm);
    given.take_setting("embed.exact", how.exact);
    given.finish();
    std::vector<std::vector<model::text::TokenId>> ids;
    for (size_t i = 0; i < count; ++i) {
      api::require(inputs[i], "an input");
      const std::string_view input(inputs[i], sizes[i]);
      if (model::text::utf8_valid_run(input, 0) != input.size()) throw user_error("input {} is no valid UTF-8", i);
      model::text::EncodeOptions encode;
      encode.add_special = true;
      ids.push_back(m.tokenizer().encode(input, encode));
    }
    model::infer::Embedder& embedder = m.embedder(how);
    auto all = embedder.embed_all(ids, pooling_named(name, m));
    std::vector<float> out;
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float>& vector = all[i].at(0);
      if (!std::all_of(vector.begin(), vector.end(), [](float v) { return std::isfinite(v); }))
        throw Error(Exit::numeric, fmt::format("the vector of input {} holds values that are not finite", i),
                    "the model's weights may be damaged; see `lumen inspect`");
      model::infer::normalise(vector, int(norm));
      out.insert(out.end(), vector.begin(), vector.end());
    }
    *vectors = api::handed_over(std::span<const float>(out));
    *width = size_t(embedder.size());
  });
}

}  // extern "C"
