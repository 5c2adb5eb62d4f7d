// Divides outlier channels of activations, and multiplies the weights, so that both are easy to round (SmoothQuant,
// arXiv 2211.10438).
#include "model/compress/prepare/each.h"

namespace lumen::model::compress {
namespace {

class Smoothing : public Preparation {
 public:
  std::string_view name() const override { return "smoothquant"; }
  std::string_view about() const override {
    return "divides channels of activations by max|x|^a / max|w|^(1-a), a of --smoothing-strength";
  }
  std::string_view followed_by() const override { return "rtn"; }
  graph::TapKinds observes() const override {
    graph::TapKinds kinds;
    kinds.largest = true;
    return kinds;
  }
  void prepare(run::Engine&, PartState& part, const StrategyOptions& options) const override {
    const std::vector<graph::ScaleSite> sites = part.sites;
    for (const graph::ScaleSite& site : sites) {
      const calibrate::TapSums* reads = site.readers.empty() ? nullptr : reads_of(part.reads, site.readers.front());
      if (!reads) continue;
      std::vector<double> largest(reads->largest.begin(), reads->largest.end());
      if (largest.size() != site.powers.size()) largest = over_matrices(*reads, site.powers.size());
      apply_scales(part, site,
                   smooth_scales(largest_of_channels(site, largest), weight_maxima(part.model, site),
                                 options.smoothing_strength));
    }
  }

 private:
  // Maximum over the matrices of a stack, which read the same channels.
  static std::vector<double> over_matrices(const calibrate::TapSums& reads, size_t columns) {
    std::vector<double> out(columns);
    for (size_t k = 0; k < reads.largest.size(); ++k)
      out[k % columns] = std::max<double>(out[k % columns], reads.largest[k]);
    return out;
  }
};

}  // namespace

const Preparation& smoothing() {
  static const Smoothing p;
  return p;
}

}  // namespace lumen::model::compress
