#include "model/infer/measure/embed.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "model/infer/session/finite.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kNarrowest = 16, kMostSequences = 64;
constexpr const char *kTokens = "tokens", *kLengths = "lengths", *kSeconds = "seconds", *kAfter = "after_pooling",
                     *kPooled = "x";

// A model with a table of positions has a maximum length.
bool has_last_position(const arch::Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const arch::Parameter& p) { return p.role == "position"; });
}

}  // namespace

Embedder::Embedder(const LoadedModel& loaded, EmbedOptions options) : loaded_(loaded), options_(options) {
  const arch::Model& model = loaded.model();
  const char* const function = options_.scores ? "scores" : "hidden";
  if (!model.family->has_function(function))
    throw user_error("the family '{}' does not define {}", model.family->name(),
                     options_.scores ? "scores of two texts" : "hidden states");
  const int64_t own = model.integer("context");
  if (options_.context == 0) options_.context = own;
  if (options_.context < 1) throw usage_error("the context must hold at least one token");
  if (options_.batch < 1) throw usage_error("a batch must hold at least one token");
  if (options_.context > own && has_last_position(model))
    throw usage_error("a context of {} tokens was requested, but '{}' has {} positions", options_.context, model.name,
                      own);
  graph_ = loaded.function(function);
  for (const graph::ValueId v : graph_.inputs()) {
    const graph::Attributes& a = graph_[v].attributes;
    const bool is_known = a.name == kTokens || a.name == kLengths || a.name == graph::kTextSets ||
                          (options_.scores && a.name == kSeconds);
    if (a.role == graph::Role::data && !is_known)
      throw user_error("the function '{}' of the family '{}' has the unknown input '{}'", function,
                       model.family->name(), a.name);
  }
  size_ = graph_[graph_.results[0]].type.shape.back().number();
  if (options_.scores || !model.family->has_function(kAfter)) return;
  graph::Graph after = model.family->function(kAfter, model.config);
  const auto inputs = after.inputs();
  if (std::none_of(inputs.begin(), inputs.end(),
                   [&](graph::ValueId v) { return after[v].attributes.role == graph::Role::parameter; }))
    return;  // no layers
  after_size_ = after[after.results[0]].type.shape.back().number();
  after_ = std::move(after);
}

void Embedder::finish(std::span<Vectors*> pooled, int64_t sequences) {
  run::Engine& engine = loaded_.engine();
  std::shared_ptr<run::Program>& program = after_programs_[sequences];
  if (!program) {
    run::CompileOptions options;
    options.assignments = stored_formats(loaded_.model(), *after_);
    options.symbols = {{"B", sequences}};
    options.exact = options_.exact;
    program = engine.compile(*after_, options);
  }
  std::vector<float> rows(sequences * size_);
  for (size_t i = 0; i < pooled.size(); ++i)
    std::copy(pooled[i]->at(0).begin(), pooled[i]->at(0).end(), rows.begin() + i * size_);
  const auto in = std::make_shared<run::DeviceTensor>(
      engine.device(), graph::Type{{graph::Dim(sequences), graph::Dim(size_)}, {Scalar::f32, nullptr}});
  in->upload(rows.data(), in->bytes());
  for (const std::string& name : program->input_names())
    program->bind(name, name == kPooled ? in : loaded_.weights().at(name));
  program->run();
  std::vector<float> all(sequences * after_size_);
  program->result(arch::kResult)->download(all.data(), all.size() * sizeof(float));
  for (size_t i = 0; i < pooled.size(); ++i)
    pooled[i]->at(0).assign(all.begin() + i * after_size_, all.begin() + (i + 1) * after_size_);
}

// A few widths, so that few are compiled: 16, 24, 32, 48, 64, ..
int64_t Embedder::tokens_for(int64_t count) const {
  int64_t tokens = kNarrowest;
  while (tokens < count) tokens = (tokens & (tokens - 1)) == 0 ? tokens / 2 * 3 : tokens / 3 * 4;
  return std::min(tokens, options_.context);
}

const Embedder::Width& Embedder::width(int64_t sequences, int64_t tokens) {
  for (const Width& w : widths_)
    if (w.sequences == sequences && w.tokens == tokens) return w;
  run::Engine& engine = loaded_.engine();
  run::CompileOptions options;
  options.assignments = stored_formats(loaded_.model(), graph_);
  options.symbols = {{"B", sequences}, {"T", tokens}};
  options.exact = options_.exact;
  Width w{sequences, tokens, engine.compile(graph_, options), nullptr, nullptr, nullptr, nullptr};
  const auto input = [&](const graph::Shape& shape) {
    return std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{shape, {Scalar::i32, nullptr}});
  };
  w.in = input({graph::Dim(sequences), graph::Dim(tokens)});
  w.lengths = input({graph::Dim(sequences)});
  w.sets = input({graph::Dim(sequences)});
  w.seconds = input({graph::Dim(sequences)});
  const std::map<std::string, run::DeviceTensorRef> handed = {
      {kTokens, w.in}, {kLengths, w.lengths}, {graph::kTextSets, w.sets}, {kSeconds, w.seconds}};
  for (const std::string& name : w.program->input_names()) {
    const auto found = handed.find(name);
    w.program->bind(name, found != handed.end() ? found->second : loaded_.weights().at(name));
  }
  return widths_.emplace_back(std::move(w));
}

void Embedder::check(std::span<const text::TokenId> tokens) const {
  if (tokens.empty()) throw user_error("an empty sequence has no embedding");
  check_tokens(loaded_.model(), tokens);
  if (std::ssize(tokens) > options_.context)
    throw Error(Exit::user,
                fmt::format("the sequence has {} tokens, but the context holds {}", tokens.size(), options_.context),
                "shorten the sequence, cut it into several, or cut its end with --truncate");
}

void Embedder::run(int64_t tokens, std::span<const std::span<const text::TokenId>> sequences, Pooling pooling,
                   std::span<Vectors*> out, int64_t set, std::span<const int64_t> seconds) {
  const Width& w = width(std::bit_ceil(sequences.size()), tokens);
  const Stopwatch watch;
  // Padding: tokens that no token of a sequence attends to, and unused sequences of one token.
  std::vector<int32_t> ids(w.sequences * tokens, 0), lengths(w.sequences, 1), sets(w.sequences, set),
      begins(w.sequences, 1);
  for (size_t i = 0; i < sequences.size(); ++i) {
    std::copy(sequences[i].begin(), sequences[i].end(), ids.begin() + i * tokens);
    lengths[i] = sequences[i].size();
    if (options_.scores) begins[i] = int32_t(seconds[i]);
  }
  w.in->upload(ids.data(), w.in->bytes());
  w.lengths->upload(lengths.data(), w.lengths->bytes());
  w.sets->upload(sets.data(), w.sets->bytes());
  w.seconds->upload(begins.data(), w.seconds->bytes());
  w.program->run();
  const size_t each = options_.scores ? size_ : size_ * tokens;
  std::vector<float> all(each * w.sequences);
  w.program->result(arch::kResult)->download(all.data(), all.size() * sizeof(float));
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t own = options_.scores ? each : sequences[i].size() * size_;
    const auto rows = std::span<const float>(all).subspan(i * each, own);
    require_finite(loaded_, rows, options_.scores ? "scores" : "hidden states");
    *out[i] = options_.scores ? Vectors{{rows.begin(), rows.end()}} : pooled(rows, size_, pooling);
  }
  if (after_ && pooling != Pooling::none) finish(out, w.sequences);
  seconds_ += watch.seconds();
}

Embedder::Vectors Embedder::embed(std::span<const text::TokenId> tokens, Pooling pooling) {
  check(tokens);
  Vectors out;
  Vectors* to = &out;
  LUMEN_CHECK(!options_.scores);
  run(tokens_for(std::ssize(tokens)), std::span(&tokens, 1), pooling, std::span(&to, 1), 0, {});
  return out;
}

std::vector<Embedder::Vectors> Embedder::embed_all(std::span<const std::vector<text::TokenId>> sequences,
                                                   Pooling pooling, const std::function<bool(size_t)>& go_on,
                                                   int64_t set) {
  LUMEN_CHECK(!options_.scores);
  return run_all(sequences, pooling, go_on, set, {});
}

std::vector<float> Embedder::scores_of(const TextPairs& pairs, size_t begin, size_t end, int64_t set) {
  LUMEN_CHECK(options_.scores && pairs.seconds.size() == pairs.sequences.size() && end <= pairs.seconds.size());
  const auto vectors = run_all(std::span(pairs.sequences).subspan(begin, end - begin), Pooling::none, {}, set,
                               std::span(pairs.seconds).subspan(begin, end - begin));
  std::vector<float> out;
  for (const Vectors& one : vectors) out.push_back(one.at(0).at(0));
  return out;
}

std::vector<Embedder::Vectors> Embedder::run_all(std::span<const std::vector<text::TokenId>> sequences, Pooling pooling,
                                                 const std::function<bool(size_t)>& go_on, int64_t set,
                                                 std::span<const int64_t> seconds) {
  for (const auto& sequence : sequences) check(sequence);
  std::vector<size_t> order(sequences.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sequences[a].size() > sequences[b].size(); });
  std::vector<Vectors> out(sequences.size());
  for (size_t done = 0; done < order.size();) {
    const int64_t tokens = tokens_for(std::ssize(sequences[order[done]]));
    const auto most = std::bit_floor<uint64_t>(std::clamp<int64_t>(options_.batch / tokens, 1, kMostSequences));
    std::vector<std::span<const text::TokenId>> some;
    std::vector<Vectors*> to;
    std::vector<int64_t> begins;
    while (done < order.size() && some.size() < most && tokens_for(std::ssize(sequences[order[done]])) == tokens) {
      some.emplace_back(sequences[order[done]]);
      to.push_back(&out[order[done]]);
      if (!seconds.empty()) begins.push_back(seconds[order[done]]);
      ++done;
    }
    run(tokens, some, pooling, to, set, begins);
    if (go_on && !go_on(done)) return {};
  }
  return out;
}

}  // namespace lumen::model::infer
