#include "model/infer/measure/perplexity_divergence.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/temporary.h"
#include "model/infer/session/finite.h"

namespace lumen::model {
namespace {

constexpr char kMagic[8] = {'l', 'u', 'm', 'e', 'n', 'k', 'l', '1'};

struct Header {
  char magic[8];
  int64_t vocab, length, first, windows;
};

// The windows' log probabilities, one scored position after the other, in the order of a record.
void each_row(const LogitsSource& source, const std::vector<TokenId>& text, const PerplexityOptions& options,
              Header* header, const std::function<void()>& begin,
              const std::function<void(std::span<const double> logs, TokenId next)>& row,
              const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t length = options.length;
  if (length < 4) throw usage_error("windows need at least 4 tokens");
  int64_t windows = std::ssize(text) / length;
  if (options.windows > 0) windows = std::min(windows, options.windows);
  if (windows < 1) throw user_error("the text has {} tokens, fewer than one window of {}", text.size(), length);
  *header = {{}, source.vocabulary, length, options.full ? 0 : length / 2, windows};
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  begin();
  const size_t vocab = header->vocab;
  std::vector<float> logits(length * vocab);
  std::vector<double> logs(vocab);
  for (int64_t w = 0; w < windows; ++w) {
    std::vector<int32_t> ids(text.begin() + w * length, text.begin() + (w + 1) * length);
    if (options.bos && source.bos) ids[0] = *source.bos;
    source.logits(ids, logits);
    for (int64_t t = header->first; t + 1 < length; ++t) {
      const float* x = logits.data() + t * vocab;
      const double top = *std::max_element(x, x + vocab);
      double total = 0;
      for (size_t v = 0; v < vocab; ++v) total += std::exp(x[v] - top);
      for (size_t v = 0; v < vocab; ++v) logs[v] = x[v] - top - std::log(total);
      row(logs, text[w * length + t + 1]);
    }
    if (progress) progress(w + 1, windows);
  }
}

// What a loaded model computes of windows of one length.
LogitsSource source_of(const LoadedModel& loaded, const PerplexityOptions& options) {
  const Model& model = loaded.model();
  run::Engine& engine = loaded.engine();
  run::CompileOptions compile;
  compile.assignments = stored_formats(model);
  compile.symbols = {{"B", 1}, {"T", options.length}};
  compile.exact = options.exact;
  compile.products = options.products;
  const auto program = engine.compile(loaded.function("forward"), compile);
  const auto tokens =
      std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{{1, options.length}, {Scalar::i32, nullptr}});
  for (const std::string& name : program->input_names())
    program->bind(name, name == "tokens" ? tokens : loaded.weights().at(name));
  LogitsSource source;
  source.vocabulary = model.integer("vocab");
  if (model.tokenizer) source.bos = model.tokenizer->bos();
  source.logits = [&loaded, program, tokens](std::span<const TokenId> window, std::span<float> logits) {
    tokens->upload(window.data(), tokens->bytes());
    program->run();
    program->result(kResult)->download(logits.data(), logits.size_bytes());
    require_finite(loaded, logits, "logits");
  };
  return source;
}

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

double quantile(const std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(part * sorted.size()))];
}

}  // namespace

void record_logits(const LoadedModel& loaded, const std::vector<TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress) {
  record_logits(source_of(loaded, options), text, options, file, progress);
}

void record_logits(const LogitsSource& source, const std::vector<TokenId>& text, const PerplexityOptions& options,
                   const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress) {
  AtomicFile out(file);
  Header header{};
  std::vector<uint16_t> codes;
  each_row(
      source, text, options, &header,
      [&] {
        out.write(bytes_of(header));
        for (int64_t i = 0; i < header.windows * header.length; ++i) out.write(bytes_of(static_cast<int32_t>(text[i])));
        codes.resize(header.vocab);
      },
      [&](std::span<const double> logs, TokenId) {
        const auto [low, high] = std::minmax_element(logs.begin(), logs.end());
        const auto least = static_cast<float>(*low), step = static_cast<float>((*high - *low) / 65535);
        for (size_t v = 0; v < logs.size(); ++v) {
          const double code = step > 0 ? std::rint((logs[v] - least) / step) : 0;
          codes[v] = static_cast<uint16_t>(std::clamp(code, 0.0, 65535.0));
        }
        out.write(bytes_of(least));
        out.write(bytes_of(step));
        out.write({reinterpret_cast<const char*>(codes.data()), codes.size() * sizeof(uint16_t)});
      },
      progress);
  out.commit();
}

Divergence divergence(const LoadedModel& loaded, const std::vector<TokenId>& text, const PerplexityOptions& options,
                      const std::filesystem::path& file, const std::function<void(int64_t, int64_t)>& progress) {
  const MappedFile map(file);
  const auto bytes = map.bytes();
  size_t at = 0;
  const auto take = [&](void* to, size_t count) {
    if (count > bytes.size() - at) throw user_error("{}: the record of logits ends too early", file.string());
    std::memcpy(to, bytes.data() + at, count);
    at += count;
  };
  Header header{};
  Divergence out;
  std::vector<double> all;
  std::vector<uint16_t> codes;
  double changes = 0, mine = 0, theirs = 0;
  int64_t same = 0;
  each_row(
      source_of(loaded, options), text, options, &header,
      [&] {
        Header recorded{};
        take(&recorded, sizeof recorded);
        if (std::memcmp(recorded.magic, kMagic, sizeof kMagic) != 0)
          throw user_error("{}: this is no record of logits", file.string());
        if (recorded.vocab != header.vocab || recorded.length != header.length || recorded.first != header.first ||
            recorded.windows < header.windows) {
          throw user_error("{}: recorded with a vocabulary of {}, {} windows of {} and {} scored", file.string(),
                           recorded.vocab, recorded.windows, recorded.length,
                           recorded.first == 0 ? "all tokens" : "the second half");
        }
        if (recorded.windows > std::ssize(bytes) / recorded.length)
          throw user_error("{}: the record of logits ends too early", file.string());
        for (int64_t i = 0; i < recorded.windows * recorded.length; ++i) {
          int32_t id = 0;
          take(&id, sizeof id);
          if (i < header.windows * header.length && id != text[i])
            throw user_error("{}: recorded over another text", file.string());
        }
        codes.resize(header.vocab);
      },
      [&](std::span<const double> logs, TokenId next) {
        float least = 0, step = 0;
        take(&least, sizeof least);
        take(&step, sizeof step);
        take(codes.data(), codes.size() * sizeof(uint16_t));
        const auto recorded = [&](size_t v) { return least + static_cast<double>(step) * codes[v]; };
        double kl = 0;
        size_t top = 0, recorded_top = 0;
        for (size_t v = 0; v < logs.size(); ++v) {
          const double r = recorded(v);
          kl += std::exp(r) * (r - logs[v]);
          if (logs[v] > logs[top]) top = v;
          if (codes[v] > codes[recorded_top]) recorded_top = v;
        }
        all.push_back(kl);
        same += top == recorded_top ? 1 : 0;
        const size_t n = next;
        const double change = std::exp(logs[n]) - std::exp(recorded(n));
        changes += change * change;
        mine -= logs[n];
        theirs -= recorded(n);
      },
      progress);
  const double count = all.size();
  out.tokens = all.size();
  double squares = 0;
  for (const double x : all) {
    out.mean += x / count;
    squares += x * x / count;
  }
  out.error = count > 1 ? std::sqrt(std::max(0.0, squares - out.mean * out.mean) / (count - 1)) : 0;
  std::sort(all.begin(), all.end());
  out.median = quantile(all, 0.5);
  out.p90 = quantile(all, 0.9);
  out.p99 = quantile(all, 0.99);
  out.most = all.back();
  out.same_top = same / count;
  out.rms_change = std::sqrt(changes / count);
  out.ratio = std::exp((mine - theirs) / count);
  return out;
}

Scratch::Scratch(std::filesystem::path file) : path(std::move(file)) {
  remember_temporary(path);
}
Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  forget_temporary(path);
}

Divergence divergence_between(run::Engine& engine, const Model& base, std::span<const ScaledAdapter> adapters,
                              const Model& merged, const std::vector<TokenId>& text, const PerplexityOptions& options,
                              const std::filesystem::path& scratch,
                              const std::function<void(int64_t, int64_t)>& progress) {
  const Scratch guard(scratch);
  {
    const LoadedModel loaded(engine, base, adapters);
    record_logits(loaded, text, options, scratch, progress);
  }
  const LoadedModel loaded(engine, merged);
  return divergence(loaded, text, options, scratch, progress);
}

}  // namespace lumen::model
