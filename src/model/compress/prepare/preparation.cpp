#include "model/compress/prepare/preparation.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/compress/prepare/each.h"

namespace lumen::model::compress {
namespace {

// Divisors of the site's channels; powers give the factors.
std::vector<double> divisors(const graph::ScaleSite& site, std::span<const double> s) {
  std::vector<double> out;
  for (const graph::Power power : site.powers)
    out.push_back(power == 0 ? 1 : power < 0 ? s[-power - 1] : 1 / s[power - 1]);
  return out;
}

void divide(calibrate::TapSums& sums, std::span<const double> by) {
  const int64_t columns = sums.tap.columns, matrices = std::max<int64_t>(sums.tap.matrices, 1);
  // Where all matrices of a stack read the same x, its channels are given once.
  const bool for_each = std::ssize(by) == matrices * columns;
  LUMEN_CHECK(for_each || std::ssize(by) == columns, "{} channels of {} x {}", by.size(), matrices, columns);
  const auto divisor = [&](int64_t m, int64_t c) { return by[for_each ? m * columns + c : c]; };
  for (int64_t m = 0; m < matrices; ++m)
    for (int64_t c = 0; c < columns; ++c) {
      const double d = divisor(m, c);
      const int64_t at = m * columns + c;
      if (!sums.squares.empty()) sums.squares[at] /= d * d;
      if (!sums.magnitudes.empty()) sums.magnitudes[at] /= d;
      if (!sums.largest.empty()) sums.largest[at] /= d;
      for (std::vector<float>* square : {&sums.gram, &sums.cross}) {
        if (square->empty()) continue;
        float* const line = square->data() + at * columns;
        for (int64_t k = 0; k < columns; ++k) line[k] /= d * divisor(m, k);
      }
    }
}

}  // namespace

void apply_scales(PartState& part, const graph::ScaleSite& site, std::span<const double> s) {
  apply_scales(part.model, site, s);
  for (const graph::ScaledParameter& change : site.changes) part.changed.insert(change.parameter);
  const std::vector<double> by = divisors(site, s);
  for (calibrate::TapSums& sums : part.reads) {
    const bool reads = std::ranges::any_of(sums.tap.weights, [&](const std::string& name) {
      return std::ranges::find(site.readers, name) != site.readers.end();
    });
    if (reads) divide(sums, by);
  }
}

const std::vector<const Preparation*>& preparations() {
  static const std::vector<const Preparation*> all = {&activation_aware(), &smoothing(), &even_keys()};
  return all;
}

}  // namespace lumen::model::compress
