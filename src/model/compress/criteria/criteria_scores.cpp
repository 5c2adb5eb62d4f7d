#include "model/compress/criteria/criteria_scores.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/compress/criteria/layer_outputs.h"
#include "model/compress/criteria/weight_shape.h"
#include "model/compress/quantize.h"
#include "number/facts/facts.h"

namespace lumen::model::compress {
namespace {

// Properties of a format that may not suit a weight's distribution.
struct Kind {
  bool has_offset = false, is_table = false;
};

Kind kind_of(const Format& f) {
  const FormatFacts facts = facts_of(f);
  if (!facts.affine) return {facts.scaled && facts.scaled->offset, plain_field(f) == nullptr};
  return {facts.affine->offset.has_value(), facts.affine->q_is_table};
}

class Judge {
 public:
  Judge(run::Engine& engine, const arch::Model& model, std::vector<std::string>* told)
      : model_(model), told_(told), errors_(engine), rounder_(find_strategy("imatrix").rounder(engine, {})) {}

  void begin_part() {
    rounder_->begin_part();
    errors_.forget();
  }

  // `layer`: null for weights outside of layers.
  void judge(WeightScore& w, std::span<const float> values, const calibrate::TapSums* reads, LayerOutputs* layer) {
    const arch::Parameter& p = *model_.find(w.name);
    RoundingTask task;
    task.name = w.name;
    task.columns = p.shape.back().number();
    task.matrices = p.shape.size() == 3 ? p.shape[0].number() : 1;
    task.rows = std::ssize(values) / task.columns / task.matrices;
    task.values = values;
    task.reads = reads;
    const std::vector<float> counts = task.matrices == 1 ? task.squares(0) : std::vector<float>{};
    std::vector<Found> criteria;
    std::vector<std::string> against;  // of each candidate: reason for exclusion
    for (const CandidateScore& c : w.candidates) {
      task.format = c.format;
      const Rounding rounded = rounder_->round(task);
      const ShapeErrors shape = shape_errors(values, rounded.values, counts);
      criteria.push_back({loss_of(w.name, task, rounded.values, shape, layer), shape});
      against.push_back(speaks_against(*c.format, values, task.columns, shape));
    }
    scale(w, criteria);
    drop(w, against);
  }

 private:
  OutputLoss loss_of(const std::string& name, const RoundingTask& task, std::span<const float> rounded,
                     const ShapeErrors& shape, LayerOutputs* layer) {
    if (layer) return layer->with(name, rounded);
    // Outside of layers: the error of the product's output, or for row lookups the weight's own error.
    const std::optional<double> own = errors_.relative(task, rounded);
    return {own ? *own * *own : shape.all, 0};
  }

  static std::string speaks_against(const Format& f, std::span<const float> values, int64_t columns,
                                    const ShapeErrors& shape) {
    const Kind kind = kind_of(f);
    if (kind.is_table && shape.tail > kMostTail * shape.all)
      return fmt::format("its table is {:.1f} times as far off for the largest numbers", shape.tail / shape.all);
    const double asymmetry = kind.has_offset ? 0 : median_asymmetry(values, f.block > 1 ? f.block : columns);
    if (asymmetry > kMostAsymmetry)
      return fmt::format("it has no offset, and groups lie {:.2f} to one side", asymmetry);
    return "";
  }

  struct Found {
    OutputLoss lost;
    ShapeErrors shape;
    // Above twice the mean error, the error of the largest numbers raises the whole score.
    double tail() const { return 1 + (shape.all > 0 ? kTailCounts * std::max(0.0, shape.tail / shape.all - 2) : 0); }
  };

  // Scores are proportional to the criteria; their geometric mean over all candidates is that of the predicted losses.
  static void scale(WeightScore& w, const std::vector<Found>& criteria) {
    constexpr double kRounding = 1e-6;  // for weights that influence no attention of the layer
    double outputs = 0, attention = 0;
    for (const Found& c : criteria) {
      outputs = std::max(outputs, c.lost.outputs);
      attention = std::max(attention, c.lost.attention);
    }
    if (outputs <= 0) return;  // candidates do not differ
    const double counts = attention > kRounding ? kAttentionCounts : 0;
    std::vector<double> scores;
    double logs = 0, compared = 0;
    for (size_t i = 0; i < criteria.size(); ++i) {
      double part = (1 - counts) * criteria[i].lost.outputs / outputs;
      if (counts > 0) part += counts * criteria[i].lost.attention / attention;
      scores.push_back(part * criteria[i].tail());
      if (scores[i] <= 0 || w.candidates[i].score <= 0) continue;
      logs += std::log(w.candidates[i].score / scores[i]);
      compared += 1;
    }
    if (compared == 0) return;
    for (size_t i = 0; i < criteria.size(); ++i) w.candidates[i].score = scores[i] * std::exp(logs / compared);
  }

  void drop(WeightScore& w, const std::vector<std::string>& against) {
    if (std::ranges::none_of(against, &std::string::empty)) return;
    std::vector<CandidateScore> kept;
    std::string gone;
    for (size_t i = 0; i < against.size(); ++i) {
      if (against[i].empty())
        kept.push_back(w.candidates[i]);
      else
        gone += fmt::format("{}{}: {}", gone.empty() ? "" : "; ", w.candidates[i].format->name, against[i]);
    }
    if (!gone.empty() && told_) told_->push_back(fmt::format("{}: not {}", w.name, gone));
    w.candidates = std::move(kept);
  }

  const arch::Model& model_;
  std::vector<std::string>* const told_;
  TaskErrors errors_;
  const std::unique_ptr<Rounder> rounder_;
};

}  // namespace

std::vector<WeightScore> score_by_criteria(run::Engine& engine, const arch::Model& model,
                                           std::vector<WeightScore> by_loss, std::span<const text::TokenId> text,
                                           const CriteriaOptions& options, std::vector<std::string>* told,
                                           const std::function<void(const std::string&, double)>& progress) {
  const int64_t tokens = std::min<int64_t>(std::ssize(text), options.windows * options.run.length);
  calibrate::LayerRun run(engine, model, text.first(tokens), options.run);
  calibrate::CarriedValues values(options.folder, "judged");
  std::map<std::string, std::vector<float>> held;  // of one part
  const calibrate::LayerRun::WeightOf weight = [&](const std::string& name) -> std::span<const float> {
    std::vector<float>& numbers = held[name];
    if (numbers.empty()) numbers = values_of(engine, model.weights.at(name));
    return numbers;
  };
  graph::TapKinds kinds;
  kinds.gram = true;
  Judge judge(engine, model, told);
  std::set<std::string> judged;
  for (size_t k = 0; k < run.parts(); ++k) {
    if (progress) progress(fmt::format("criteria, part {}/{}", k + 1, run.parts()), 1.0 * k / run.parts());
    held.clear();
    judge.begin_part();
    const graph::LayerPart& part = run.part(k);
    const bool last = k + 1 == run.parts();
    std::unique_ptr<LayerOutputs> layer;
    if (part.layer >= 0 && !last)
      layer = std::make_unique<LayerOutputs>(engine, run, k, weight, &values, run.windows());
    const calibrate::PartRun seen = run.run(k, weight, &values, last ? nullptr : &values, kinds);
    for (WeightScore& w : by_loss) {
      if (std::ranges::find(part.parameters, w.name) == part.parameters.end() || !judged.insert(w.name).second)
        continue;
      const bool in_layer = layer && graph::layer_of(w.name) == part.layer;
      judge.judge(w, weight(w.name), reads_of(seen.taps, w.name), in_layer ? layer.get() : nullptr);
    }
    run.drop_read(k, &values);
  }
  return by_loss;
}

}  // namespace lumen::model::compress
