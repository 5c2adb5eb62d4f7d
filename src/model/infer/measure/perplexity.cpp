#include "model/infer/measure/perplexity.h"

#include <cmath>

#include "base/error.h"
#include "base/stopwatch.h"
#include "model/infer/session/finite.h"

namespace lumen::model::infer {

BosPlace bos_place(std::string_view name) {
  if (name == "front") return BosPlace::front;
  if (name == "windows") return BosPlace::windows;
  if (name == "none") return BosPlace::none;
  throw usage_error("BOS can be placed at: front, windows, none; not at '{}'", name);
}

std::vector<text::TokenId> perplexity_tokens(const text::Tokenizer& tokenizer, std::string_view text, BosPlace place) {
  if (place != BosPlace::front) return tokenizer.encode(text);
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<text::TokenId> tokens = tokenizer.encode(text);
  if (tokenizer.adds_bos() && tokenizer.bos()) tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

Perplexity perplexity(const LoadedModel& loaded, const std::vector<text::TokenId>& text,
                      const PerplexityOptions& options, const std::function<void(int64_t, int64_t, double)>& progress) {
  const int64_t length = options.length, batch = options.batch;
  if (length < 4 || batch < 1) throw usage_error("windows need at least 4 tokens, and batches one window");
  int64_t windows = std::ssize(text) / length;
  if (options.windows > 0) windows = std::min(windows, options.windows);
  if (windows < 1) {
    throw Error(Exit::user, fmt::format("the text has {} tokens, fewer than one window of {}", text.size(), length),
                "give a longer text or a smaller --ctx-size");
  }
  const arch::Model& model = loaded.model();
  run::Engine& engine = loaded.engine();
  run::CompileOptions compile;
  compile.assignments = stored_formats(model);
  compile.symbols = {{"B", batch}, {"T", length}};
  compile.exact = options.exact;
  const auto program = engine.compile(loaded.function("token_loss"), compile);
  const graph::Type ids{{batch, length}, {Scalar::i32, nullptr}};
  const auto tokens = std::make_shared<run::DeviceTensor>(engine.device(), ids);
  const auto targets = std::make_shared<run::DeviceTensor>(engine.device(), ids);
  for (const std::string& name : program->input_names()) {
    program->bind(name, name == "tokens" ? tokens : name == "targets" ? targets : loaded.weights().at(name));
  }

  const Stopwatch watch;
  const int64_t first_scored = options.full ? 0 : length / 2;
  double sum = 0, squares = 0;
  Perplexity result;
  std::vector<int32_t> in(batch * length), out(in.size());
  std::vector<float> losses(in.size());
  for (int64_t w = 0; w < windows; w += batch) {
    const int64_t rows = std::min(batch, windows - w);
    std::fill(in.begin(), in.end(), 0);
    std::fill(out.begin(), out.end(), 0);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t t = 0; t < length; ++t) {
        in[r * length + t] = text[(w + r) * length + t];
        if (t + 1 < length) out[r * length + t] = text[(w + r) * length + t + 1];
      }
      if (options.bos && model.tokenizer && model.tokenizer->bos()) in[r * length] = *model.tokenizer->bos();
    }
    tokens->upload(in.data(), tokens->bytes());
    targets->upload(out.data(), targets->bytes());
    program->run();
    program->result(arch::kResult)->download(losses.data(), losses.size() * sizeof(float));
    for (int64_t r = 0; r < rows; ++r) {
      require_finite(loaded, std::span<const float>(losses).subspan(r * length, length - 1), "losses");
      for (int64_t t = first_scored; t + 1 < length; ++t) {
        const double nats = losses[r * length + t];
        sum += nats;
        squares += nats * nats;
        ++result.tokens;
      }
    }
    result.windows = w + rows;
    if (progress) progress(result.windows, windows, std::exp(sum / result.tokens));
  }
  const double n = result.tokens;
  result.nats = sum / n;
  result.value = std::exp(result.nats);
  const double variance = std::max(0.0, squares / n - result.nats * result.nats);
  result.error = n > 1 ? result.value * std::sqrt(variance / (n - 1)) : 0;
  result.seconds = watch.seconds();
  return result;
}

}  // namespace lumen::model::infer
