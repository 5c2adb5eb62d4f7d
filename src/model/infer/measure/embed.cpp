#include "model/infer/measure/embed.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/stopwatch.h"
#include "model/infer/session/finite.h"

namespace lumen::model {
namespace {

constexpr int64_t kNarrowest = 16, kMostTexts = 64;
constexpr const char *kTokens = "tokens", *kLengths = "lengths";

// A table of positions ends where the model's context does.
bool has_last_position(const Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const Parameter& p) { return p.role == "position"; });
}

}  // namespace

Embedder::Embedder(const LoadedModel& loaded, EmbedOptions options) : loaded_(loaded), options_(options) {
  const Model& model = loaded.model();
  if (!model.family->has_function("hidden"))
    throw user_error("the family '{}' does not say what the hidden states of a text are", model.family->name());
  const int64_t own = model.integer("context");
  if (options_.context == 0) options_.context = own;
  if (options_.context < 1) throw usage_error("the context must hold at least one token");
  if (options_.batch < 1) throw usage_error("at least one token is computed at once");
  if (options_.context > own && has_last_position(model))
    throw usage_error("a context of {} tokens was asked for, but '{}' has {} positions", options_.context, model.name,
                      own);
  graph_ = loaded.function("hidden");
  for (const graph::ValueId v : graph_.inputs()) {
    const graph::Attributes& a = graph_[v].attributes;
    if (a.role == graph::Role::data && a.name != kTokens && a.name != kLengths && a.name != graph::kTextSets)
      throw user_error("the function 'hidden' of the family '{}' asks for '{}', which nothing here gives",
                       model.family->name(), a.name);
  }
  size_ = graph_[graph_.results[0]].type.shape.back().number();
}

// A few widths, so that few are compiled: 16, 24, 32, 48, 64, ..
int64_t Embedder::tokens_for(int64_t count) const {
  int64_t tokens = kNarrowest;
  while (tokens < count) tokens = (tokens & (tokens - 1)) == 0 ? tokens / 2 * 3 : tokens / 3 * 4;
  return std::min(tokens, options_.context);
}

const Embedder::Width& Embedder::width(int64_t texts, int64_t tokens) {
  for (const Width& w : widths_)
    if (w.texts == texts && w.tokens == tokens) return w;
  run::Engine& engine = loaded_.engine();
  run::CompileOptions options;
  options.assignments = stored_formats(loaded_.model(), graph_);
  options.symbols = {{"B", texts}, {"T", tokens}};
  options.exact = options_.exact;
  Width w{texts, tokens, engine.compile(graph_, options), nullptr, nullptr, nullptr};
  const auto input = [&](const graph::Shape& shape) {
    return std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{shape, {Scalar::i32, nullptr}});
  };
  w.in = input({graph::Dim(texts), graph::Dim(tokens)});
  w.lengths = input({graph::Dim(texts)});
  w.sets = input({graph::Dim(texts)});
  const std::map<std::string, run::DeviceTensorRef> handed = {
      {kTokens, w.in}, {kLengths, w.lengths}, {graph::kTextSets, w.sets}};
  for (const std::string& name : w.program->input_names()) {
    const auto found = handed.find(name);
    w.program->bind(name, found != handed.end() ? found->second : loaded_.weights().at(name));
  }
  return widths_.emplace_back(std::move(w));
}

void Embedder::check(std::span<const TokenId> tokens) const {
  if (tokens.empty()) throw user_error("an empty text has no embedding");
  check_tokens(loaded_.model(), tokens);
  if (std::ssize(tokens) > options_.context)
    throw Error(Exit::user,
                fmt::format("the text has {} tokens, but the context holds {}", tokens.size(), options_.context),
                "shorten the text, cut it into several, or let --truncate leave out its end");
}

void Embedder::run(int64_t tokens, std::span<const std::span<const TokenId>> texts, Pooling pooling,
                   std::span<Vectors*> out, int64_t set) {
  const Width& w = width(std::bit_ceil(texts.size()), tokens);
  const Stopwatch watch;
  // What fills up: tokens that none of a text sees, and texts of one token that nobody asks for.
  std::vector<int32_t> ids(w.texts * tokens, 0), lengths(w.texts, 1), sets(w.texts, set);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::copy(texts[i].begin(), texts[i].end(), ids.begin() + i * tokens);
    lengths[i] = texts[i].size();
  }
  w.in->upload(ids.data(), w.in->bytes());
  w.lengths->upload(lengths.data(), w.lengths->bytes());
  w.sets->upload(sets.data(), w.sets->bytes());
  w.program->run();
  const size_t each = size_ * tokens;
  std::vector<float> all(each * w.texts);
  w.program->result(kResult)->download(all.data(), all.size() * sizeof(float));
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto rows = std::span<const float>(all).subspan(i * each, texts[i].size() * size_);
    require_finite(loaded_, rows, "hidden states");
    *out[i] = pooled(rows, size_, pooling);
  }
  seconds_ += watch.seconds();
}

Embedder::Vectors Embedder::embed(std::span<const TokenId> tokens, Pooling pooling) {
  check(tokens);
  Vectors out;
  Vectors* to = &out;
  run(tokens_for(std::ssize(tokens)), std::span(&tokens, 1), pooling, std::span(&to, 1));
  return out;
}

std::vector<Embedder::Vectors> Embedder::embed_all(std::span<const std::vector<TokenId>> texts, Pooling pooling,
                                                   const std::function<bool(size_t)>& go_on, int64_t set) {
  for (const auto& text : texts) check(text);
  std::vector<size_t> order(texts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return texts[a].size() > texts[b].size(); });
  std::vector<Vectors> out(texts.size());
  for (size_t done = 0; done < order.size();) {
    const int64_t tokens = tokens_for(std::ssize(texts[order[done]]));
    const auto most = std::bit_floor<uint64_t>(std::clamp<int64_t>(options_.batch / tokens, 1, kMostTexts));
    std::vector<std::span<const TokenId>> some;
    std::vector<Vectors*> to;
    while (done < order.size() && some.size() < most && tokens_for(std::ssize(texts[order[done]])) == tokens) {
      some.emplace_back(texts[order[done]]);
      to.push_back(&out[order[done]]);
      ++done;
    }
    run(tokens, some, pooling, to, set);
    if (go_on && !go_on(done)) return {};
  }
  return out;
}

}  // namespace lumen::model
