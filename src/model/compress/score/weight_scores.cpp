#include "model/compress/score/weight_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "model/calibrate/there_and_back.h"
#include "model/compress/quantize.h"
#include "model/compress/round/round.h"

namespace lumen::model::compress {
namespace {

// Sampled rows of a weight.
struct Sample {
  int64_t matrices = 1, rows = 0, all_rows = 0, columns = 0;  // rows of one matrix
  std::vector<float> values;
  std::vector<int64_t> row;  // original index of each sampled row of a matrix
};

Sample sample_of(std::span<const float> values, const arch::Parameter& p, int64_t most) {
  Sample out;
  out.columns = p.shape.back().number();
  out.matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
  out.all_rows = std::ssize(values) / out.columns / out.matrices;
  out.rows = std::min(out.all_rows, std::max<int64_t>(most / out.matrices, 32));
  for (int64_t r = 0; r < out.rows; ++r) out.row.push_back(r * out.all_rows / out.rows);
  if (out.rows == out.all_rows) {
    out.values.assign(values.begin(), values.end());
    return out;
  }
  for (int64_t m = 0; m < out.matrices; ++m)
    for (const int64_t r : out.row) {
      const auto row = values.subspan((m * out.all_rows + r) * out.columns, out.columns);
      out.values.insert(out.values.end(), row.begin(), row.end());
    }
  return out;
}

class Scorer {
 public:
  Scorer(run::Engine& engine, const arch::Model& model, calibrate::LayerRun& run, const ScoreOptions& options)
      : model_(model),
        run_(run),
        options_(options),
        errors_(engine),
        rounder_((options.strategy ? options.strategy : &find_strategy("imatrix"))->rounder(engine, options.numbers)) {}

  void begin_part() { rounder_->begin_part(); }

  // Adds the weight's loss in a part to the scores of its candidates.
  void add(WeightScore& to, std::span<const float> values, const calibrate::PartRun& part) {
    const auto slopes = part.slopes.find(to.name);
    if (slopes == part.slopes.end()) return;
    const arch::Parameter& p = *model_.find(to.name);
    const calibrate::TapSums* reads = reads_of(part.taps, to.name);
    if (reads) to.products += reads->tap.matrices == 0 ? 1 : total(reads->counts) / tokens();
    std::vector<run::DeviceTensorRef> grams;
    const Sample few = sample_of(values, p, options_.rows), all = sample_of(values, p, INT64_MAX);
    for (int64_t m = 0; reads && m < few.matrices; ++m) grams.push_back(gram_of(*reads, m));
    for (CandidateScore& c : to.candidates) {
      const Sample& s = c.format->tile_rows > 1 || c.format->tensor_bytes > 0 ? all : few;
      RoundingTask task;
      task.name = to.name;
      task.format = c.format;
      task.matrices = s.matrices;
      task.rows = s.rows;
      task.columns = s.columns;
      task.values = s.values;
      task.reads = reads;
      std::vector<float> e = std::move(rounder_->round(task).values);
      double lost = 0, whole = 0;
      for (size_t i = 0; i < e.size(); ++i) {
        e[i] -= s.values[i];
        lost += double{e[i]} * e[i];
        whole += double{s.values[i]} * s.values[i];
      }
      c.error = whole > 0 ? std::sqrt(lost / whole) : 0;
      c.score += reads ? of_product(s, e, grams, *reads, slopes->second) : of_rows(s, e, slopes->second);
    }
  }

 private:
  static double total(const std::vector<float>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
  int64_t tokens() const { return run_.windows() * options_.run.length; }

  run::DeviceTensorRef gram_of(const calibrate::TapSums& reads, int64_t m) {
    const std::span<const float> gram = reads.gram_of(m);
    return gram.empty() ? nullptr : errors_.keep(gram, reads.tap.columns);
  }

  double of_product(const Sample& s, std::span<const float> e, const std::vector<run::DeviceTensorRef>& grams,
                    const calibrate::TapSums& reads, const std::vector<float>& slopes) {
    double score = 0;
    const int64_t size = s.rows * s.columns;
    for (int64_t m = 0; m < s.matrices; ++m) {
      if (!grams[m]) continue;
      const double rows = reads.tap.matrices == 0 ? tokens() : double{reads.counts[m]};
      const std::vector<double> lost = errors_.of(e.subspan(m * size, size), s.rows, s.columns, grams[m]);
      for (int64_t r = 0; r < s.rows; ++r)
        score += std::max(lost[r], 0.0) / rows * slopes[m * s.all_rows + s.row[r]] / tokens();
    }
    return 0.5 * score * s.all_rows / s.rows;
  }

  // For row lookups: all rows count as equally likely.
  double of_rows(const Sample& s, std::span<const float> e, const std::vector<float>& slopes) const {
    double score = 0;
    for (size_t i = 0; i < e.size(); ++i) score += double{e[i]} * e[i] * slopes[i % s.columns];
    return 0.5 * score / s.rows / tokens();
  }

  const arch::Model& model_;
  calibrate::LayerRun& run_;
  const ScoreOptions& options_;
  OutputErrors errors_;
  const std::unique_ptr<Rounder> rounder_;
};

}  // namespace

std::vector<WeightScore> unscored_weights(const arch::Model& model, const std::vector<std::string>& names,
                                          const std::vector<FormatRef>& candidates) {
  std::vector<WeightScore> out;
  for (const std::string& name : names) {
    const arch::Parameter& p = *model.find(name);
    WeightScore& w = out.emplace_back();
    w.name = name;
    w.weights = graph::elements(p.shape).number();
    for (const FormatRef& f : candidates) {
      if (p.shape.back().number() % f->block != 0) continue;
      graph::Type type{p.shape, {Scalar::f32, f}};
      w.candidates.push_back({f, graph::byte_size(type), 0, 0});
    }
    if (w.candidates.empty())
      throw Error(Exit::user,
                  fmt::format("no candidate has blocks that divide the {} columns of '{}'", p.shape.back().number(),
                              p.gguf.empty() ? p.name : p.gguf),
                  "name a format with smaller blocks among --candidates");
  }
  return out;
}

std::vector<WeightScore> score_weights(run::Engine& engine, const arch::Model& model,
                                       const std::vector<std::string>& names, std::span<const text::TokenId> text,
                                       const ScoreOptions& options,
                                       const std::function<void(const std::string&, double)>& progress) {
  calibrate::LayerRun run(engine, model, text, options.run);
  std::vector<WeightScore> out = unscored_weights(model, names, options.candidates);
  calibrate::ThereAndBack way(
      run, [&](const std::string& name) { return values_of(engine, model.weights.at(name)); }, options.folder);
  const size_t parts = run.parts();
  const auto tell = [&](const char* doing, size_t k, double share) {
    if (progress) progress(fmt::format("{} {}/{}", doing, k + 1, parts), share);
  };
  way.there([&](size_t k) { tell("reads part", k, 0.2 * k / parts); });
  graph::TapKinds kinds;
  kinds.gram = true;
  Scorer scorer(engine, model, run, options);
  way.back([&](size_t k) {
    tell("scores part", k, 0.2 + 0.8 * (parts - 1 - k) / parts);
    const calibrate::PartRun part = run.back(k, way.weights(), &way.values, &way.slopes, kinds);
    scorer.begin_part();
    for (WeightScore& w : out)
      if (part.slopes.contains(w.name)) scorer.add(w, way.weight(w.name), part);
  });
  for (const WeightScore& w : out)
    for (const CandidateScore& c : w.candidates)
      if (!std::isfinite(c.score))
        throw Error(Exit::numeric, fmt::format("'{}' in {} scores {}", w.name, c.format->name, c.score),
                    "the model's gradients broke; calibrate on another text");
  return out;
}

}  // namespace lumen::model::compress
