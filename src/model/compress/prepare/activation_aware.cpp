// Gives channels of large activations more precision: of twenty scales the one with the least output loss of the
// rounded weights (AWQ, arXiv 2306.00978). Losses are tr(E G E^T) with the gram of the weights' inputs, that is, output
// errors on the text.
#include <algorithm>
#include <cmath>

#include "model/compress/prepare/each.h"
#include "model/compress/round/round.h"

namespace lumen::model::compress {
namespace {

constexpr int64_t kRows = 512;  // of a weight, sampled evenly to measure losses

// Sampled rows of one reader of a site.
struct Sample {
  FormatRef format;
  int64_t matrices = 1, rows = 0, columns = 0;  // rows of one matrix
  std::vector<float> values;                    // matrix by matrix
  std::vector<graph::Power> powers;             // by matrix and column
  std::vector<run::DeviceTensorRef> gram;       // by matrix; null: no row reached it
};

class SiteLoss {
 public:
  SiteLoss(run::Engine& engine, const PartState& part, const graph::ScaleSite& site)
      : engine_(engine), errors_(engine) {
    for (const graph::ScaledParameter& change : site.changes) {
      const auto format = part.formats.find(change.parameter);
      const calibrate::TapSums* reads = reads_of(part.reads, change.parameter);
      if (change.along != graph::Along::columns || format == part.formats.end() || !reads) continue;
      add(part.model.weights.at(change.parameter), format->second, change.powers, *reads);
    }
  }
  bool empty() const { return samples_.empty(); }

  double operator()(std::span<const double> s) {
    double lost = 0;
    for (const Sample& x : samples_) {
      std::vector<float> scaled = x.values;
      const auto by = [&](int64_t m, int64_t c) {
        const graph::Power power = x.powers[(m * x.columns + c) % std::ssize(x.powers)];
        return power == 0 ? 1 : power > 0 ? s[power - 1] : 1 / s[-power - 1];
      };
      const int64_t size = x.rows * x.columns;
      for (int64_t i = 0; i < std::ssize(scaled); ++i) scaled[i] *= by(i / size, i % x.columns);
      const std::vector<uint8_t> blob = engine_.encode(x.format, scaled.data(), x.matrices * x.rows, x.columns);
      std::vector<float> e = engine_.decode(x.format, blob.data(), x.matrices * x.rows, x.columns);
      for (int64_t i = 0; i < std::ssize(e); ++i) e[i] = e[i] / by(i / size, i % x.columns) - x.values[i];
      for (int64_t m = 0; m < x.matrices; ++m)
        if (x.gram[m])
          for (const double row :
               errors_.of(std::span<const float>(e).subspan(m * size, size), x.rows, x.columns, x.gram[m]))
            lost += row;
    }
    return lost;
  }

 private:
  void add(const arch::Weight& w, const FormatRef& format, const std::vector<graph::Power>& powers,
           const calibrate::TapSums& reads) {
    Sample x;
    x.format = format;
    x.columns = w.columns();
    x.matrices = w.type.shape.size() == 3 ? w.type.shape[0].number() : 1;
    x.powers = powers;
    const int64_t all = w.rows() / x.matrices;
    // Whole tiles, so that rows with common fields stay together.
    const int64_t together = std::max<int64_t>(format->tile_rows, 1);
    const int64_t wanted = std::max<int64_t>(kRows / x.matrices, 32);
    if (all <= wanted || together > 1) {
      x.rows = all;
      x.values.assign(w.f32().begin(), w.f32().end());
    } else {
      x.rows = wanted;
      for (int64_t m = 0; m < x.matrices; ++m)
        for (int64_t r = 0; r < wanted; ++r) {
          const auto row = w.f32().subspan((m * all + r * all / wanted) * x.columns, x.columns);
          x.values.insert(x.values.end(), row.begin(), row.end());
        }
    }
    for (int64_t m = 0; m < x.matrices; ++m) {
      const std::span<const float> gram = reads.gram_of(m);
      x.gram.push_back(gram.empty() ? nullptr : errors_.keep(gram, x.columns));
    }
    samples_.push_back(std::move(x));
  }

  run::Engine& engine_;
  OutputErrors errors_;
  std::vector<Sample> samples_;
};

// Mean |x| of the site's channels. Channels that are always 0, and those of matrices without rows, get the mean of all
// others, for lack of data.
std::vector<double> mean_magnitudes(const graph::ScaleSite& site, const calibrate::TapSums& reads) {
  std::vector<double> out(site.powers.size()), rows(site.powers.size());
  for (size_t k = 0; k < reads.magnitudes.size(); ++k) {
    const int64_t m = k / reads.tap.columns;
    out[k % out.size()] += reads.magnitudes[k];
    rows[k % out.size()] += reads.tap.matrices > 0 ? double{reads.counts[m]} : reads.rows;
  }
  double sum = 0, count = 0;
  for (size_t k = 0; k < out.size(); ++k) {
    if (rows[k] > 0) out[k] /= rows[k];
    sum += out[k];
    count += out[k] > 0;
  }
  for (double& x : out)
    if (x <= 0) x = count > 0 ? sum / count : 1;
  return mean_of_channels(site, out);
}

class ActivationAware : public Preparation {
 public:
  std::string_view name() const override { return "awq"; }
  std::string_view about() const override {
    return "divides channels of activations by mean|x|^a, a where outputs lose least";
  }
  std::string_view followed_by() const override { return "clip"; }
  graph::TapKinds observes() const override {
    graph::TapKinds kinds;
    kinds.magnitudes = kinds.gram = true;
    return kinds;
  }
  void prepare(run::Engine& engine, PartState& part, const StrategyOptions&) const override {
    const std::vector<graph::ScaleSite> sites = part.sites;
    for (const graph::ScaleSite& site : sites) {
      const calibrate::TapSums* reads = site.readers.empty() ? nullptr : reads_of(part.reads, site.readers.front());
      if (!reads) continue;
      SiteLoss loss(engine, part, site);
      if (loss.empty()) continue;
      const AwqChoice choice =
          choose_awq(mean_magnitudes(site, *reads), [&](std::span<const double> s) { return loss(s); });
      const std::string remark = fmt::format("a = {:.2f}: loss x {:.3f}", 1.0 * choice.step / kAwqSteps,
                                             choice.losses.front() > 0 ? choice.loss / choice.losses.front() : 1);
      for (const std::string& reader : site.readers) part.remarks[reader] = remark;
      if (choice.step > 0) apply_scales(part, site, choice.scales);
    }
  }
};

}  // namespace

const Preparation& activation_aware() {
  static const ActivationAware p;
  return p;
}

}  // namespace lumen::model::compress
