#include "model/infer/measure/correlation.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace lumen::model::infer {
namespace {

double mean_of(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / x.size();
}

std::vector<double> ranks(std::span<const double> x) {
  std::vector<size_t> order(x.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return x[i] < x[j]; });
  std::vector<double> out(x.size());
  for (size_t from = 0, to = 0; from < order.size(); from = to) {
    while (to < order.size() && x[order[to]] == x[order[from]]) ++to;
    const double shared = (from + to - 1) / 2.0;
    for (size_t i = from; i < to; ++i) out[order[i]] = shared;
  }
  return out;
}

}  // namespace

double linear_correlation(std::span<const double> a, std::span<const double> b) {
  LUMEN_CHECK(a.size() == b.size());
  const double ma = mean_of(a), mb = mean_of(b);
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - ma) * (b[i] - mb);
    aa += (a[i] - ma) * (a[i] - ma);
    bb += (b[i] - mb) * (b[i] - mb);
  }
  return ab / std::sqrt(aa * bb);
}

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  return linear_correlation(ranks(a), ranks(b));
}

}  // namespace lumen::model::infer
