#include "model/calibrate/calibrate.h"

#include <cmath>

#include "base/error.h"
#include "graph/transform/observe.h"
#include "model/infer/session/finite.h"

namespace lumen::model::calibrate {
namespace {

// The graph to run: losses, and the observed sums.
class Windows {
 public:
  Windows(const infer::LoadedModel& loaded, const CalibrateOptions& options) : loaded_(loaded), options_(options) {
    graph_ = graph::observe(loaded.function(watched_function(*loaded.model().family)), &observed_);
    const arch::Model& model = loaded.model();
    std::erase_if(observed_, [&](const graph::Observed& o) {
      const arch::Parameter* p = model.find(o.weight);
      const bool wanted = p && !p->gguf.empty() && (options.output || p->role != "output");
      if (!wanted) drop(o.weight);
      return !wanted;
    });
    for (const graph::Observed& o : observed_) {
      ImportanceEntry& e = out_.entries[model.find(o.weight)->gguf];
      e.columns = o.columns;
      e.counts.assign(std::max<int64_t>(o.matrices, 1), 0);
      e.sums.assign(e.counts.size() * o.columns, 0);
    }
  }

  // Runs `count` windows with consecutive tokens. Their losses are summed.
  void run(std::span<const text::TokenId> tokens, int64_t count) {
    Width& w = width(count);
    const int64_t length = options_.length;
    std::vector<int32_t> in(tokens.begin(), tokens.end()), next(in.size(), 0);
    const arch::Model& model = loaded_.model();
    for (int64_t r = 0; r < count; ++r) {
      std::copy(tokens.begin() + r * length + 1, tokens.begin() + (r + 1) * length, next.begin() + r * length);
      if (options_.bos && model.tokenizer && model.tokenizer->bos()) in[r * length] = *model.tokenizer->bos();
    }
    w.tokens->upload(in.data(), w.tokens->bytes());
    w.targets->upload(next.data(), w.targets->bytes());
    const std::vector<int32_t> whole(count, length);
    w.lengths->upload(whole.data(), w.lengths->bytes());
    w.program->run();
    if (loaded_.model().family->has_function(kTokenLoss)) add_losses(w, count);
    for (const graph::Observed& o : observed_) add(w, o, count * length);
  }

  double perplexity() const { return scored_ > 0 ? std::exp(nats_ / scored_) : 0; }
  Importance take() { return std::move(out_); }

 private:
  struct Width {
    int64_t count = 0;
    std::shared_ptr<run::Program> program;
    run::DeviceTensorRef tokens, targets, lengths;
  };

  void add_losses(const Width& w, int64_t count) {
    const int64_t length = options_.length;
    std::vector<float> losses(count * length);
    w.program->result(arch::kResult)->download(losses.data(), losses.size() * sizeof(float));
    for (int64_t r = 0; r < count; ++r) {
      require_finite(loaded_, std::span<const float>(losses).subspan(r * length, length - 1), "losses");
      for (int64_t t = length / 2; t + 1 < length; ++t) nats_ += losses[r * length + t];
      scored_ += length - 1 - length / 2;
    }
  }

  void drop(const std::string& weight) {
    for (const std::string& name : {graph::observed_squares(weight), graph::observed_counts(weight)})
      for (size_t i = graph_.results.size(); i-- > 0;)
        if (graph_.result_names[i] == name) {
          graph_.results.erase(graph_.results.begin() + i);
          graph_.result_names.erase(graph_.result_names.begin() + i);
        }
  }

  Width& width(int64_t count) {
    for (Width& w : widths_)
      if (w.count == count) return w;
    run::Engine& engine = loaded_.engine();
    run::CompileOptions compile;
    compile.assignments = stored_formats(loaded_.model());
    compile.symbols = {{"B", count}, {"T", options_.length}};
    compile.exact = options_.exact;
    const auto data = [&](const graph::Shape& shape) {
      return std::make_shared<run::DeviceTensor>(engine.device(), graph::Type{shape, {Scalar::i32, nullptr}});
    };
    const graph::Shape ids = {count, options_.length}, texts = {count};
    Width w{count, engine.compile(graph_, compile), data(ids), data(ids), data(texts)};
    for (const std::string& name : w.program->input_names())
      w.program->bind(name, name == "tokens"    ? w.tokens
                            : name == "targets" ? w.targets
                            : name == kLengths  ? w.lengths
                                                : loaded_.weights().at(name));
    widths_.push_back(std::move(w));
    return widths_.back();
  }

  void add(Width& w, const graph::Observed& o, int64_t rows) {
    ImportanceEntry& e = out_.entries.at(loaded_.model().find(o.weight)->gguf);
    std::vector<float> numbers(e.sums.size());
    w.program->result(graph::observed_squares(o.weight))->download(numbers.data(), numbers.size() * sizeof(float));
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!std::isfinite(numbers[i]))
        throw Error(Exit::numeric,
                    fmt::format("the input of '{}' in column {} is {} when squared and summed", o.weight, i % o.columns,
                                numbers[i]),
                    "the model's activations broke; find out where");
      e.sums[i] += numbers[i];
    }
    if (o.matrices == 0) {
      e.counts[0] += rows;
      return;
    }
    std::vector<float> counts(e.counts.size());
    w.program->result(graph::observed_counts(o.weight))->download(counts.data(), counts.size() * sizeof(float));
    for (size_t i = 0; i < counts.size(); ++i) e.counts[i] += counts[i];
  }

  const infer::LoadedModel& loaded_;
  const CalibrateOptions& options_;
  graph::Graph graph_;
  std::vector<graph::Observed> observed_;
  std::deque<Width> widths_;
  Importance out_;
  double nats_ = 0;
  int64_t scored_ = 0;
};

}  // namespace

const char* watched_function(const arch::Family& family) {
  for (const char* name : {kTokenLoss, "hidden"})
    if (family.has_function(name)) return name;
  throw user_error("the family '{}' has neither 'token_loss' nor 'hidden': it cannot be run on a text", family.name());
}

Importance calibrate(const infer::LoadedModel& loaded, std::span<const text::TokenId> text,
                     const CalibrateOptions& options, const std::function<void(const CalibrationProgress&)>& progress) {
  if (options.length < 4 || options.batch < 1)
    throw usage_error("windows need at least 4 tokens, and batches one window");
  int64_t all = std::ssize(text) / options.length;
  if (options.windows > 0) all = std::min(all, options.windows);
  if (all < 1) {
    throw Error(Exit::user,
                fmt::format("the text has {} tokens, fewer than one window of {}", text.size(), options.length),
                "give a longer text or a smaller --ctx-size");
  }
  Windows windows(loaded, options);
  for (int64_t done = 0; done < all;) {
    const int64_t count = std::min(options.batch, all - done);
    windows.run(text.subspan(done * options.length, count * options.length), count);
    done += count;
    if (progress) progress({done, all, windows.perplexity()});
  }
  Importance out = windows.take();
  out.windows = all;
  out.length = options.length;
  return out;
}

}  // namespace lumen::model::calibrate
