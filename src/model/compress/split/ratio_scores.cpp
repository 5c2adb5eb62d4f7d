#include "model/compress/split/ratio_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/team.h"
#include "model/calibrate/there_and_back.h"
#include "model/compress/quantize.h"
#include "model/compress/round/round.h"

namespace lumen::model::compress {
namespace {

const ColumnGroup* group_of(std::span<const ColumnGroup> groups, const std::string& name) {
  for (const ColumnGroup& g : groups)
    if (std::ranges::find(g.weights, name) != g.weights.end()) return &g;
  return nullptr;
}

int64_t bytes_of(const arch::Parameter& p, int64_t columns, const FormatRef& format) {
  graph::Shape shape = p.shape;
  shape.back() = graph::Dim(columns);
  return graph::byte_size({shape, {Scalar::f32, format}});
}

// Input sums of a part of a weight's columns.
calibrate::TapSums sums_of(const calibrate::TapSums& all, std::span<const int64_t> columns) {
  const int64_t from = all.tap.columns, to = std::ssize(columns);
  calibrate::TapSums out;
  out.tap = all.tap;
  out.tap.columns = to;
  out.rows = all.rows;
  out.counts = all.counts;
  out.gram.resize(all.gram.size() / (from * from) * to * to);
  for (int64_t m = 0; m < std::ssize(out.gram) / (to * to); ++m)
    for (int64_t a = 0; a < to; ++a)
      for (int64_t b = 0; b < to; ++b)
        out.gram[(m * to + a) * to + b] = all.gram[(m * from + columns[a]) * from + columns[b]];
  return out;
}

class Scorer {
 public:
  Scorer(run::Engine& engine, const arch::Model& model, calibrate::LayerRun& run, std::span<const ColumnGroup> groups,
         const RatioOptions& options)
      : model_(model),
        run_(run),
        groups_(groups),
        options_(options),
        errors_(engine),
        rounder_((options.strategy ? options.strategy : &find_strategy("imatrix"))->rounder(engine, options.numbers)) {}

  void begin_part() {
    rounder_->begin_part();
    sums_.clear();
  }

  // A candidate's rounding error, in the weight's original column order.
  std::vector<float> error_of(RatioCandidate& c, const std::string& name, std::span<const float> values,
                              const calibrate::TapSums* reads) {
    const arch::Parameter& p = *model_.find(name);
    const int64_t all = p.shape.back().number(), rows = std::ssize(values) / all;
    std::vector<int64_t> order(all);
    std::iota(order.begin(), order.end(), 0);
    if (const ColumnGroup* g = group_of(groups_, name); g && c.high) order = g->order;
    std::vector<float> error(values.size());
    double lost = 0, whole = 0;
    for (int64_t begin = 0; begin < all;) {
      const int64_t count = begin < c.high_columns ? c.high_columns : all - begin;
      const std::span<const int64_t> columns = std::span(order).subspan(begin, count);
      std::vector<float> part(rows * count);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < count; ++k) part[r * count + k] = values[r * all + columns[k]];
      RoundingTask task;
      task.name = name;
      task.format = begin < c.high_columns ? c.high : c.low;
      task.matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
      task.rows = rows / task.matrices;
      task.columns = count;
      task.values = part;
      task.reads = count == all ? reads : known_sums(reads, columns, begin);
      const std::vector<float> rounded = std::move(rounder_->round(task).values);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < count; ++k) {
          const double was = part[r * count + k], e = rounded[r * count + k] - was;
          error[r * all + columns[k]] = e;
          lost += e * e;
          whole += was * was;
        }
      begin += count;
    }
    c.error = whole > 0 ? std::sqrt(lost / whole) : 0;
    return error;
  }

  double of_product(const arch::Parameter& p, std::span<const float> e, const calibrate::TapSums& reads,
                    const std::vector<float>& slopes) {
    const int64_t columns = p.shape.back().number(), matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
    const int64_t rows = std::ssize(e) / columns / matrices, square = columns * columns;
    double score = 0;
    for (int64_t m = 0; m < matrices; ++m) {
      const double read = reads.tap.matrices == 0 ? tokens() : double{reads.counts[m]};
      if (read == 0) continue;
      const auto gram = errors_.keep(std::span<const float>(reads.gram).subspan(m * square, square), columns);
      const std::vector<double> lost = errors_.of(e.subspan(m * rows * columns, rows * columns), rows, columns, gram);
      for (int64_t r = 0; r < rows; ++r) score += std::max(lost[r], 0.0) / read * slopes[m * rows + r] / tokens();
    }
    return 0.5 * score;
  }

  // For row lookups: all rows count as equally likely.
  double of_rows(std::span<const float> e, int64_t columns, const std::vector<float>& slopes) const {
    double score = 0;
    for (size_t i = 0; i < e.size(); ++i) score += double{e[i]} * e[i] * slopes[i % columns];
    return 0.5 * score / (std::ssize(e) / columns) / tokens();
  }

 private:
  // Cached for the part, because strategies share work among weights with the same input.
  const calibrate::TapSums* known_sums(const calibrate::TapSums* reads, std::span<const int64_t> columns,
                                       int64_t begin) {
    if (!reads) return nullptr;
    const auto [known, fresh] = sums_.try_emplace({reads, begin, std::ssize(columns)});
    if (fresh) known->second = sums_of(*reads, columns);
    return &known->second;
  }

  int64_t tokens() const { return run_.windows() * options_.run.length; }

  const arch::Model& model_;
  calibrate::LayerRun& run_;
  const std::span<const ColumnGroup> groups_;
  const RatioOptions& options_;
  OutputErrors errors_;
  const std::unique_ptr<Rounder> rounder_;
  std::map<std::tuple<const calibrate::TapSums*, int64_t, int64_t>, calibrate::TapSums>
      sums_;  // by first column and number of columns
};

// A layer's errors, and their projections on each window's gradients.
struct Projections {
  std::vector<std::vector<float>> errors;   // by candidate
  std::vector<std::vector<double>> window;  // [candidate][window]: <gradient, error>
};

constexpr double kChance = 2.5;  // standard deviations of a chance correlation

double dot(std::span<const float> a, std::span<const float> b) {
  // A fixed number of partial sums: the same bits at any number of threads.
  constexpr int64_t kPieces = 64;
  std::array<double, kPieces> sums{};
  const int64_t count = std::ssize(a);
  parallel_for(0, kPieces, {.is_worth = count > 65536}, [&](int64_t piece) {
    double sum = 0;
    for (int64_t i = piece * count / kPieces; i < (piece + 1) * count / kPieces; ++i) sum += double{a[i]} * b[i];
    sums[piece] = sum;
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Pair terms of two weights: the correlation of their projections, scaled by their scores. The part that so few windows
// may show by chance is subtracted: otherwise a choice among many would pick chance.
std::vector<double> terms_of(const RatioScore& a, const Projections& of_a, const RatioScore& b,
                             const Projections& of_b) {
  std::vector<double> out;
  for (size_t i = 0; i < a.candidates.size(); ++i)
    for (size_t j = 0; j < b.candidates.size(); ++j) {
      double both = 0, first = 0, second = 0;
      for (size_t w = 0; w < of_a.window[i].size(); ++w) {
        both += of_a.window[i][w] * of_b.window[j][w];
        first += of_a.window[i][w] * of_a.window[i][w];
        second += of_b.window[j][w] * of_b.window[j][w];
      }
      const double r = first > 0 && second > 0 ? both / std::sqrt(first * second) : 0;
      const double chance = kChance / std::sqrt(of_a.window[i].size());
      const double kept = std::copysign(std::max(std::abs(r) - chance, 0.0), r);
      out.push_back(kept * 2 * std::sqrt(a.candidates[i].score * b.candidates[j].score));
    }
  return out;
}

}  // namespace

std::string RatioCandidate::name() const {
  return high ? fmt::format("{} in {} columns, {}", high->name, high_columns, low->name) : low->name;
}

RatioScores unscored_ratios(const arch::Model& model, const std::vector<std::string>& names,
                            std::span<const ColumnGroup> groups, const RatioOptions& options) {
  RatioScores out;
  for (const std::string& name : names) {
    const arch::Parameter& p = *model.find(name);
    const int64_t columns = p.shape.back().number();
    RatioScore& w = out.weights.emplace_back();
    w.name = name;
    w.weights = p.count();
    for (const FormatRef& low : options.low) {
      if (columns % low->block != 0) continue;
      w.candidates.push_back({nullptr, low, 0, bytes_of(p, columns, low), 0, 0});
      if (!group_of(groups, name)) continue;
      for (const FormatRef& high : options.high) {
        int64_t before = 0;
        for (const double ratio : options.ratios) {
          const int64_t n = high_columns(ratio, columns, *high, *low);
          if (n <= before || high->name == low->name) continue;
          before = n;
          w.candidates.push_back({high, low, n, bytes_of(p, n, high) + bytes_of(p, columns - n, low), 0, 0});
        }
      }
    }
    if (w.candidates.empty())
      throw Error(Exit::user,
                  fmt::format("no candidate has blocks that divide the {} columns of '{}'", columns,
                              p.gguf.empty() ? p.name : p.gguf),
                  "name a format with smaller blocks among --candidates");
  }
  return out;
}

RatioScores score_ratios(run::Engine& engine, const arch::Model& model, const std::vector<std::string>& names,
                         std::span<const ColumnGroup> groups, std::span<const text::TokenId> text,
                         const RatioOptions& options, const std::function<void(const std::string&, double)>& progress) {
  calibrate::LayerRunOptions by_windows = options.run;
  by_windows.batch = 1;  // errors are projected on each window separately
  calibrate::LayerRun run(engine, model, text, by_windows);
  RatioScores out = unscored_ratios(model, names, groups, options);
  calibrate::ThereAndBack way(
      run, [&](const std::string& name) { return values_of(engine, model.weights.at(name)); }, options.folder);
  const size_t parts = run.parts();
  const auto tell = [&](const char* doing, size_t k, double share) {
    if (progress) progress(fmt::format("{} {}/{}", doing, k + 1, parts), share);
  };
  way.there([&](size_t k) { tell("reads part", k, 0.15 * k / parts); });
  graph::TapKinds kinds;
  kinds.gram = true;
  Scorer scorer(engine, model, run, groups, options);
  way.back([&](size_t k) {
    tell("scores part", k, 0.15 + 0.85 * (parts - 1 - k) / parts);
    const calibrate::PartRun seen = run.run(k, way.weights(), &way.values, nullptr, kinds);
    scorer.begin_part();
    std::map<size_t, Projections> here;  // by weight index
    for (size_t i = 0; i < out.weights.size(); ++i) {
      RatioScore& w = out.weights[i];
      if (std::ranges::find(run.part(k).parameters, w.name) == run.part(k).parameters.end()) continue;
      const calibrate::TapSums* reads = reads_of(seen.taps, w.name);
      for (RatioCandidate& c : w.candidates)
        here[i].errors.push_back(scorer.error_of(c, w.name, way.weight(w.name), reads));
      here[i].window.resize(w.candidates.size());
    }
    calibrate::BackWants wants;
    if (options.pairs && run.part(k).layer >= 0)
      wants.gradients = [&](int64_t, int64_t, const std::string& name, std::span<const float> gradient) {
        for (auto& [i, p] : here)
          for (size_t c = 0; out.weights[i].name == name && c < p.errors.size(); ++c)
            p.window[c].push_back(dot(gradient, p.errors[c]));
      };
    const calibrate::PartRun back = run.back(k, way.weights(), &way.values, &way.slopes, {}, {}, wants);
    for (auto& [i, p] : here) {
      RatioScore& w = out.weights[i];
      const auto found = back.slopes.find(w.name);
      if (found == back.slopes.end()) continue;
      const calibrate::TapSums* reads = reads_of(seen.taps, w.name);
      const arch::Parameter& q = *model.find(w.name);
      for (size_t c = 0; c < w.candidates.size(); ++c)
        w.candidates[c].score += reads ? scorer.of_product(q, p.errors[c], *reads, found->second)
                                       : scorer.of_rows(p.errors[c], q.shape.back().number(), found->second);
    }
    for (const auto& [a, of_a] : here)
      for (const auto& [b, of_b] : here)
        if (a < b && !of_a.window[0].empty() && of_a.window[0].size() == of_b.window[0].size())
          out.pairs[{a, b}] = terms_of(out.weights[a], of_a, out.weights[b], of_b);
  });
  for (const RatioScore& w : out.weights)
    for (const RatioCandidate& c : w.candidates)
      if (!std::isfinite(c.score))
        throw Error(Exit::numeric, fmt::format("'{}' in {} scores {}", w.name, c.name(), c.score),
                    "the model's gradients broke; calibrate on another text");
  return out;
}

ChoiceProblem ratio_problem(const RatioScores& scores, double scale, std::vector<std::vector<size_t>>* where) {
  ChoiceProblem problem;
  where->clear();
  std::map<int, size_t> by_layer;  // blocks
  for (size_t i = 0; i < scores.weights.size(); ++i) {
    const RatioScore& w = scores.weights[i];
    const int layer = graph::layer_of(w.name);
    const bool together = layer >= 0 && !scores.pairs.empty();
    const auto [found, fresh] =
        together ? by_layer.emplace(layer, problem.blocks.size()) : std::pair(by_layer.end(), true);
    if (fresh) {
      problem.blocks.emplace_back();
      where->emplace_back();
    }
    const size_t block = together ? found->second : problem.blocks.size() - 1;
    ChoiceItem item;
    item.name = w.name;
    item.weights = w.weights;
    for (const RatioCandidate& c : w.candidates) item.candidates.push_back({c.name(), c.bytes, c.score * scale, 0});
    problem.blocks[block].items.push_back(std::move(item));
    (*where)[block].push_back(i);
  }
  for (size_t b = 0; b < problem.blocks.size(); ++b) {
    const std::vector<size_t>& of = (*where)[b];
    for (size_t i = 0; i < of.size(); ++i)
      for (size_t j = i + 1; j < of.size(); ++j) {
        const auto pair = scores.pairs.find({of[i], of[j]});
        if (pair == scores.pairs.end()) continue;
        PairTerms terms{i, j, pair->second};
        for (double& t : terms.terms) t *= scale;
        problem.blocks[b].pairs.push_back(std::move(terms));
      }
    if (!problem.blocks[b].pairs.empty()) (void)make_semidefinite(problem.blocks[b]);
  }
  return problem;
}

}  // namespace lumen::model::compress
