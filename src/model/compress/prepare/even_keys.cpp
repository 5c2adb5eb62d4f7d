// Divides key channels by their magnitude, and multiplies queries, so that one scale for many channels (a KV cache in
// few bits) suits all. A channel's magnitude follows from the rows of its weight and its input's second moments, before
// RoPE rotates pairs of channels, which share a scale; where a per-head norm follows the weight, from the norm's gains
// alone.
#include <algorithm>
#include <cmath>

#include "model/compress/prepare/each.h"

namespace lumen::model::compress {
namespace {

class EvenKeys : public Preparation {
 public:
  std::string_view name() const override { return "even-keys"; }
  std::string_view about() const override {
    return "divides channels of keys by their size, for caches of few bits (queries are multiplied)";
  }
  std::string_view followed_by() const override { return "rtn"; }
  graph::TapKinds observes() const override {
    graph::TapKinds kinds;
    kinds.gram = true;
    return kinds;
  }
  void prepare(run::Engine&, PartState& part, const StrategyOptions&) const override {
    const std::vector<graph::ScaleSite> sites = part.sites;
    for (const graph::ScaleSite& site : sites)
      if (site.readers.empty() && site.free > 0) apply_scales(part, site, sizes_of_keys(part, site));
  }

 private:
  // Sum of squares of a channel over the text, from its row of a weight [N, K].
  static double squares_of_row(std::span<const float> row, const calibrate::TapSums& reads) {
    const int64_t k = std::ssize(row);
    double all = 0;
    for (int64_t i = 0; i < k; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += double{reads.gram[i * k + j]} * row[j];
      all += sum * row[i];
    }
    return std::max(all, 0.0) / std::max<int64_t>(reads.rows, 1);
  }

  // Relative to their geometric mean; 1 where not known.
  static std::vector<double> sizes_of_keys(const PartState& part, const graph::ScaleSite& site) {
    std::vector<double> squares(site.free, 0), count(site.free, 0);
    for (const graph::ScaledParameter& change : site.changes) {
      const arch::Weight& w = part.model.weights.at(change.parameter);
      const bool is_matrix = change.along == graph::Along::rows && w.type.shape.size() == 2;
      const bool is_norm = change.along == graph::Along::elements && w.type.shape.size() == 1;
      const calibrate::TapSums* const reads = is_matrix ? reads_of(part.reads, change.parameter) : nullptr;
      if (is_matrix ? !reads || reads->gram.empty() : !is_norm) continue;
      for (size_t r = 0; r < change.powers.size(); ++r) {
        if (change.powers[r] >= 0) continue;  // of queries, or unchanged
        const size_t at = -change.powers[r] - 1;
        if (is_matrix)
          squares[at] += squares_of_row(w.f32().subspan(r * w.columns(), w.columns()), *reads);
        else
          squares[at] += std::pow(w.f32()[r] + change.offset, 2);
        count[at] += is_matrix ? 1 : 0;
      }
    }
    double logs = 0;
    int64_t known = 0;
    for (size_t i = 0; i < squares.size(); ++i)
      if (squares[i] > 0) {
        logs += std::log(squares[i] / std::max(count[i], 1.0)) / 2;
        ++known;
      }
    std::vector<double> out(site.free, 1);
    for (size_t i = 0; i < squares.size(); ++i)
      if (squares[i] > 0) out[i] = std::sqrt(squares[i] / std::max(count[i], 1.0)) / std::exp(logs / known);
    return out;
  }
};

}  // namespace

const Preparation& even_keys() {
  static const EvenKeys p;
  return p;
}

}  // namespace lumen::model::compress
