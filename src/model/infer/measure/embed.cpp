#include "model/infer/measure/embed.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/infer/session/finite.h"

namespace lumen::model {
namespace {

constexpr int64_t kNarrowest = 16;
constexpr double kLargestMagnitude = 32760;

// Names of the flags in 1_Pooling/config.json, and numbers of GGUF files.
struct Kind {
  const char* flag;
  int64_t number;
  Pooling pooling;
};
constexpr Kind kKinds[] = {{"pooling_mode_mean_tokens", 1, Pooling::mean},
                           {"pooling_mode_cls_token", 2, Pooling::first},
                           {"pooling_mode_lasttoken", 3, Pooling::last}};

std::optional<Pooling> folder_pooling(const std::filesystem::path& file) {
  const std::string name = file.string();
  const nlohmann::json config = parse_json(read_file(file, 1 << 20), name);
  if (!config.is_object()) throw user_error("{}: not a JSON object", name);
  std::optional<Pooling> chosen;
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return key == k.flag; });
    if (kind == std::end(kKinds) || chosen)
      throw Error(Exit::user, fmt::format("{}: pooling by {} is not known here", name, chosen ? "several ways" : key),
                  "choose with --pooling mean, cls or last");
    chosen = kind->pooling;
  }
  return chosen;
}

}  // namespace

std::optional<Pooling> pooling_of(const Model& model, const std::filesystem::path& path) {
  const std::string key = model.family->gguf_architecture() + ".pooling_type";
  if (model.metadata.has(key)) {
    const int64_t number = model.metadata.integer(key);
    if (number == 0) return Pooling::none;
    for (const Kind& k : kKinds)
      if (k.number == number) return k.pooling;
    throw Error(Exit::user, fmt::format("{}: {} = {} is not known here", path.string(), key, number),
                "choose with --pooling mean, cls or last");
  }
  std::error_code failure;
  const std::filesystem::path file = path / "1_Pooling" / "config.json";
  return std::filesystem::exists(file, failure) ? folder_pooling(file) : std::nullopt;
}

Embedder::Embedder(const LoadedModel& loaded, EmbedOptions options) : loaded_(loaded), options_(options) {
  const Model& model = loaded.model();
  if (!model.family->has_function("hidden"))
    throw user_error("the family '{}' does not say what the hidden states of a text are", model.family->name());
  if (options_.context == 0) options_.context = model.integer("context");
  if (options_.context < 1) throw usage_error("the context must hold at least one token");
  graph_ = loaded.function("hidden");
  size_ = graph_[graph_.results[0]].type.shape.back().number();
}

// A few widths, so that few are compiled.
const Embedder::Width& Embedder::width_for(int64_t count) {
  int64_t tokens = kNarrowest;
  while (tokens < count) tokens *= 2;
  tokens = std::min(tokens, options_.context);
  for (const Width& w : widths_)
    if (w.tokens == tokens) return w;
  run::Engine& engine = loaded_.engine();
  run::CompileOptions options;
  options.assignments = stored_formats(loaded_.model(), graph_);
  options.symbols = {{"B", 1}, {"T", tokens}};
  options.exact = options_.exact;
  Width w;
  w.tokens = tokens;
  w.program = engine.compile(graph_, options);
  w.in = std::make_shared<run::DeviceTensor>(engine.device(),
                                             graph::Type{{1, graph::Dim(tokens)}, {Scalar::i32, nullptr}});
  for (const std::string& name : w.program->input_names())
    w.program->bind(name, name == "tokens" ? w.in : loaded_.weights().at(name));
  return widths_.emplace_back(std::move(w));
}

std::vector<std::vector<float>> Embedder::embed(std::span<const TokenId> tokens, Pooling pooling) {
  const auto count = std::ssize(tokens);
  if (tokens.empty()) throw user_error("an empty text has no embedding");
  check_tokens(loaded_.model(), tokens);
  if (count > options_.context)
    throw Error(Exit::user, fmt::format("the text has {} tokens, but the context holds {}", count, options_.context),
                "shorten the text, or cut it into several");
  const Width& w = width_for(count);
  // No position sees what fills the text up behind it.
  std::vector<int32_t> ids(w.tokens, 0);
  std::copy(tokens.begin(), tokens.end(), ids.begin());
  w.in->upload(ids.data(), w.in->bytes());
  w.program->run();
  const size_t width = size_;
  std::vector<float> all(ids.size() * width);
  w.program->result(kResult)->download(all.data(), all.size() * sizeof(float));
  require_finite(loaded_, std::span<const float>(all).first(tokens.size() * width), "hidden states");
  const auto row = [&](size_t i) { return std::vector<float>(all.begin() + i * width, all.begin() + (i + 1) * width); };
  switch (pooling) {
    case Pooling::none: {
      std::vector<std::vector<float>> rows;
      for (size_t i = 0; i < tokens.size(); ++i) rows.push_back(row(i));
      return rows;
    }
    case Pooling::first:
      return {row(0)};
    case Pooling::last:
      return {row(tokens.size() - 1)};
    case Pooling::mean:
      break;
  }
  std::vector<float> mean(width);
  for (size_t d = 0; d < width; ++d) {
    double sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i) sum += all[i * width + d];
    mean[d] = static_cast<float>(sum / count);
  }
  return {std::move(mean)};
}

void normalise(std::vector<float>& vector, int p) {
  if (p < 0) return;
  double norm = 0;
  for (const float v : vector) {
    const double size = std::abs(static_cast<double>(v));
    if (p == 0)
      norm = std::max(norm, size);
    else
      norm += std::pow(size, p);
  }
  norm = p == 0 ? norm / kLargestMagnitude : std::pow(norm, 1.0 / p);
  if (norm == 0) return;
  for (float& v : vector) v = static_cast<float>(v / norm);
}

double cosine(std::span<const float> a, std::span<const float> b) {
  LUMEN_CHECK(a.size() == b.size());
  double product = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    product += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : product / std::sqrt(aa * bb);
}

}  // namespace lumen::model
