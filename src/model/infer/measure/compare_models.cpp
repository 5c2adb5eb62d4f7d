#include "model/infer/measure/compare_models.h"

#include <chrono>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "graph/elaborate/elaborate.h"
#include "graph/ir/rewrite.h"
#include "lang/parser.h"
#include "model/infer/session/finite.h"

namespace lumen::model::infer {
namespace {

constexpr const char* kHidden = "hidden";

// Rows of the result: KL divergence in nats, negative log-likelihood (nats) of the actual next token by each model,
// whether both models have the same most likely token.
enum Row : int { kDivergence, kBaseNats, kNats, kSameTop, kRows };

std::string comparison_text(int64_t first, int64_t end) {
  return fmt::format(
      "fn beside(base: f32[1, T, V], other: f32[1, T, V], next: i32[{2}]) -> f32[4, {2}] {{\n"
      "  let x = reshape(base[:, {0}:{1}, :], [{2}, V])\n"
      "  let y = reshape(other[:, {0}:{1}, :], [{2}, V])\n"
      "  let p = log_softmax(x)\n"
      "  let q = log_softmax(y)\n"
      "  let far = reshape(sum(exp(p) * (p - q), -1), [1, {2}])\n"
      "  let same = reshape(select(argmax(x, -1) == argmax(y, -1), 1.0, 0.0), [1, {2}])\n"
      "  return concat(far, reshape(cross_entropy(x, next), [1, {2}]), reshape(cross_entropy(y, next), [1, {2}]), "
      "same, "
      "axis = 0)\n"
      "}}\n",
      first, end, end - first);
}

std::string cosine_text(int64_t first, int64_t end) {
  return fmt::format(
      "fn alike(base: f32[1, T, E], other: f32[1, T, E]) -> f32[{2}] {{\n"
      "  let x = reshape(base[:, {0}:{1}, :], [{2}, E])\n"
      "  let y = reshape(other[:, {0}:{1}, :], [{2}, E])\n"
      "  return reshape(sum(x * y, -1) / sqrt(sum(x * x, -1) * sum(y * y, -1) + 1e-30), [{2}])\n"
      "}}\n",
      first, end, end - first);
}

std::shared_ptr<run::Program> compiled(run::Engine& engine, const arch::Library& library, const std::string& text,
                                       const graph::Bindings& symbols) {
  const lang::Function fn = lang::parse_file(std::make_shared<Source>(Source{"<comparison>", text})).functions.at(0);
  run::CompileOptions options;
  options.symbols = symbols;
  options.exact = true;
  graph::Graph g = graph::elaborate_function(library.scope(), fn);
  g.result_names = {arch::kResult};
  return engine.compile(g, options);
}

// Logits of every position, and the last hidden states if the family has a function for them. Common parts are computed
// once: equal nodes of a graph are merged.
graph::Graph forward_graph(const LoadedModel& loaded, bool hidden) {
  graph::Graph g = loaded.function("forward");
  if (!hidden) return g;
  const graph::Graph beside = loaded.function(kHidden);
  std::vector<graph::ValueId> inputs;
  graph::Builder build(g);
  for (const graph::ValueId v : beside.inputs()) {
    const graph::Node& node = beside[v];
    const graph::ValueId own = g.find_input(node.attributes.name);
    inputs.push_back(own >= 0 ? own : build.input(node.attributes.name, node.attributes.role, node.type));
  }
  g.results.push_back(graph::expand_call(g, beside, inputs).at(0));
  g.result_names = {arch::kResult, kHidden};
  return g;
}

run::CompileOptions forward_options(const LoadedModel& loaded, const graph::Graph& g,
                                    const PerplexityOptions& options) {
  run::CompileOptions compile;
  compile.assignments = stored_formats(loaded.model(), g);
  compile.symbols = {{"B", 1}, {"T", options.length}};
  compile.exact = options.exact;
  compile.products = options.products;
  return compile;
}

bool says_hidden(const LoadedModel& loaded) {
  return loaded.model().family->has_function(kHidden);
}

int64_t extent(const run::DeviceTensorRef& t) {
  return t->type().shape.back().number();
}

// One model's forward passes.
class Side {
 public:
  Side(const LoadedModel& its, const PerplexityOptions& options, run::DeviceTensorRef tokens)
      : loaded(its), hidden(says_hidden(its)) {
    const graph::Graph g = forward_graph(loaded, hidden);
    program_ = loaded.engine().compile(g, forward_options(loaded, g, options));
    for (const std::string& name : program_->input_names())
      program_->bind(name, name == "tokens" ? tokens : loaded.weights().at(name));
  }
  void run() { program_->run(); }
  run::DeviceTensorRef logits() const { return program_->result(arch::kResult); }
  run::DeviceTensorRef vectors() const { return program_->result(kHidden); }
  // Throws an Error that names the faulty weight; returns if all logits are finite.
  void look_for_fault() const {
    const run::DeviceTensorRef t = logits();
    std::vector<float> all(t->bytes() / sizeof(float));
    t->download(all.data(), t->bytes());
    require_finite(loaded, all, "logits");
  }

  const LoadedModel& loaded;
  const bool hidden;

 private:
  std::shared_ptr<run::Program> program_;
};

class Stopwatch {
 public:
  // Seconds since the last call.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double out = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return out;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// All computations of a window. The results of a model's program stay valid until it runs again.
class Comparing {
 public:
  Comparing(const LoadedModel& base, std::span<const LoadedModel* const> others, const PerplexityOptions& options)
      : first_(options.full ? 0 : options.length / 2), count_(options.length - 1 - first_) {
    run::Engine& engine = base.engine();
    const auto ids = [&](graph::Shape shape) {
      return std::make_shared<run::DeviceTensor>(engine.device(),
                                                 graph::Type{std::move(shape), {Scalar::i32, nullptr}});
    };
    tokens_ = ids({1, graph::Dim(options.length)});
    next_ = ids({graph::Dim(count_)});
    sides_.emplace_back(base, options, tokens_);
    for (const LoadedModel* other : others) {
      LUMEN_CHECK(&other->engine() == &engine);
      sides_.emplace_back(*other, options, tokens_);
    }
    out_.others.resize(others.size());
    const int64_t vocabulary = base.model().integer("vocab"), end = options.length - 1;
    const graph::Bindings symbols = {{"T", options.length}, {"V", vocabulary}};
    const arch::Library& library = base.model().family->library();
    beside_ = compiled(engine, library, comparison_text(first_, end), symbols);
    beside_->bind("next", next_);
    sums_.resize(others.size());
    cosines_.resize(others.size());
    figures_.resize(kRows * count_);
  }

  void window(std::span<const text::TokenId> given, std::span<const text::TokenId> next) {
    watch_.lap();
    tokens_->upload(given.data(), tokens_->bytes());
    next_->upload(next.data() + first_, next_->bytes());
    sides_[0].run();
    out_.base_seconds += watch_.lap();
    for (size_t i = 0; i < sums_.size(); ++i) {
      Side& side = sides_[i + 1];
      side.run();
      out_.others[i].seconds += watch_.lap();
      beside_->bind("base", sides_[0].logits());
      beside_->bind("other", side.logits());
      beside_->run();
      beside_->result(arch::kResult)->download(figures_.data(), figures_.size() * sizeof(float));
      if (!all_finite(figures_)) {
        sides_[0].look_for_fault();
        side.look_for_fault();
        throw Error(Exit::numeric, "the divergence of two models is not finite, although all logits are",
                    "the logits are too large");
      }
      for (int64_t k = 0; k < count_; ++k)
        sums_[i].add(figure(kDivergence, k), figure(kSameTop, k) > 0.5, figure(kNats, k), figure(kBaseNats, k));
      compare_vectors(i);
      out_.comparing += watch_.lap();
    }
  }

  ComparedModels finish() {
    for (size_t i = 0; i < sums_.size(); ++i) {
      out_.others[i].divergence = sums_[i].finish();
      const Cosines& c = cosines_[i];
      if (c.count == 0) continue;
      out_.others[i].cosine = c.sum / c.count;
      out_.others[i].least_cosine = c.least;
    }
    return std::move(out_);
  }

 private:
  struct Cosines {
    double sum = 0, least = 1;
    int64_t count = 0;
    std::shared_ptr<run::Program> program;
  };

  double figure(Row row, int64_t i) const { return figures_[row * count_ + i]; }

  void compare_vectors(size_t i) {
    const Side &base = sides_[0], &other = sides_[i + 1];
    if (!base.hidden || !other.hidden || extent(base.vectors()) != extent(other.vectors())) return;
    Cosines& c = cosines_[i];
    if (!c.program) {
      const int64_t length = tokens_->type().shape[1].number();
      c.program = compiled(base.loaded.engine(), base.loaded.model().family->library(), cosine_text(first_, length - 1),
                           {{"T", length}, {"E", extent(base.vectors())}});
    }
    c.program->bind("base", base.vectors());
    c.program->bind("other", other.vectors());
    c.program->run();
    std::vector<float> all(count_);
    c.program->result(arch::kResult)->download(all.data(), all.size() * sizeof(float));
    for (const float x : all) {
      const double limited = std::clamp(double{x}, -1.0, 1.0);
      c.sum += limited;
      c.least = std::min(c.least, limited);
      ++c.count;
    }
  }

  const int64_t first_, count_;
  run::DeviceTensorRef tokens_, next_;
  std::deque<Side> sides_;  // the base model first
  std::shared_ptr<run::Program> beside_;
  std::vector<float> figures_;
  std::vector<DivergenceSum> sums_;
  std::vector<Cosines> cosines_;
  ComparedModels out_;
  Stopwatch watch_;
};

}  // namespace

void require_same_tokens(const arch::Model& base, const arch::Model& other) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Exit::user, fmt::format("'{}' and '{}' cannot be compared: {}", base.name, other.name, why),
                "models that are compared have the same vocabulary");
  };
  if (base.integer("vocab") != other.integer("vocab"))
    refuse(fmt::format("their vocabularies have {} and {} tokens", base.integer("vocab"), other.integer("vocab")));
  if (!base.tokenizer || !other.tokenizer) return;
  if (base.tokenizer->size() != other.tokenizer->size())
    refuse(fmt::format("their tokenizers have {} and {} tokens", base.tokenizer->size(), other.tokenizer->size()));
  const int64_t count = base.tokenizer->size();
  for (text::TokenId id = 0; id < count; ++id)
    if (base.tokenizer->bytes(id) != other.tokenizer->bytes(id)) refuse(fmt::format("token {} is not the same", id));
}

int64_t comparing_bytes(const arch::Model& base, size_t models, const PerplexityOptions& options) {
  constexpr int64_t kCopies = 3;  // that forward passes and the comparison keep in addition to the logits
  const int64_t logits = run::saturating_product(run::saturating_product(options.length, base.integer("vocab")), 4);
  return run::saturating_product(logits, models + kCopies);
}

ComparedModels compare_models(const LoadedModel& base, std::span<const LoadedModel* const> others,
                              const std::vector<text::TokenId>& text, const PerplexityOptions& options,
                              const std::function<bool(int64_t, int64_t)>& progress) {
  const int64_t length = options.length;
  if (length < 4) throw usage_error("windows need at least 4 tokens");
  int64_t windows = std::ssize(text) / length;
  if (options.windows > 0) windows = std::min(windows, options.windows);
  if (windows < 1) {
    throw Error(Exit::user, fmt::format("the text has {} tokens, fewer than one window of {}", text.size(), length),
                "give a longer text or a smaller --ctx-size");
  }
  for (const LoadedModel* other : others) LUMEN_CHECK(other->model().integer("vocab") == base.model().integer("vocab"));
  Comparing comparing(base, others, options);
  const std::optional<text::TokenId> bos = base.model().tokenizer ? base.model().tokenizer->bos() : std::nullopt;
  for (int64_t w = 0; w < windows; ++w) {
    std::vector<text::TokenId> given(text.begin() + w * length, text.begin() + (w + 1) * length);
    const std::vector<text::TokenId> next(given.begin() + 1, given.end());
    if (options.bos && bos) given[0] = *bos;
    comparing.window(given, next);
    if (progress && !progress(w + 1, windows)) break;
  }
  return comparing.finish();
}

}  // namespace lumen::model::infer
