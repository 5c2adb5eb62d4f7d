#include "model/compress/choose/semidefinite.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace lumen::model::compress {
namespace {

constexpr int kRounds = 60;            // of completing the unknown entries
constexpr double kNegligible = 1e-10;  // of the largest eigenvalue

double least_share(const linear::Eigenvectors& e) {
  const auto [least, most] = std::minmax_element(e.values.begin(), e.values.end());
  return *most > 0 ? *least / *most : (*least < 0 ? -1 : 0);
}

linear::Matrix with_floor(const linear::Eigenvectors& e, double floor) {
  const int64_t n = e.vectors.rows();
  linear::Matrix out(n, n);
  for (int64_t k = 0; k < n; ++k) {
    const double value = std::max(e.values[k], floor);
    if (value == 0) continue;
    const double* v = e.vectors.column(k);
    for (int64_t c = 0; c < n; ++c) {
      const double scaled = value * v[c];
      for (int64_t r = 0; r < n; ++r) out.at(r, c) += scaled * v[r];
    }
  }
  return out;
}

}  // namespace

linear::Matrix eigenvalue_floor(const linear::Matrix& symmetric, double floor) {
  LUMEN_CHECK(symmetric.rows() == symmetric.columns());
  if (symmetric.rows() == 0) return symmetric;
  return with_floor(eigenvectors(symmetric), floor);
}

double make_semidefinite(ChoiceBlock& block) {
  std::vector<int64_t> first;  // row of an item's first candidate
  std::vector<size_t> item;    // of a row
  for (size_t i = 0; i < block.items.size(); ++i) {
    first.push_back(std::ssize(item));
    item.insert(item.end(), block.items[i].candidates.size(), i);
  }
  const auto n = std::ssize(item);
  if (n == 0 || block.pairs.empty()) return 0;
  linear::Matrix known(n, n);
  double largest = 0;
  for (int64_t r = 0; r < n; ++r) {
    known.at(r, r) = std::max(0.0, 2 * block.items[item[r]].candidates[r - first[item[r]]].score);
    largest = std::max(largest, known.at(r, r));
  }
  const auto each_term = [&](const auto& visit) {
    for (PairTerms& pair : block.pairs) {
      const size_t count = block.items[pair.b].candidates.size();
      for (size_t t = 0; t < pair.terms.size(); ++t)
        visit(pair.terms[t], first[pair.a] + t / count, first[pair.b] + t % count);
    }
  };
  each_term([&](double term, int64_t r, int64_t c) {
    known.at(r, c) = known.at(c, r) = term;
    largest = std::max(largest, std::abs(term));
  });
  if (largest == 0) return 0;
  // Eigenvectors are computed from squares, which must not underflow.
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < n; ++c) known.at(r, c) /= largest;
  linear::Matrix guess = known, projected = known;
  for (int round = 0; round < kRounds; ++round) {
    const linear::Eigenvectors e = eigenvectors(guess);
    const bool done = least_share(e) >= -kNegligible;
    if (round == 0 && done) return 0;
    projected = with_floor(e, 0);
    if (done) break;
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < n; ++c)
        if (r != c && item[r] == item[c]) guess.at(r, c) = projected.at(r, c);
  }
  std::vector<double> scale(n);
  for (int64_t r = 0; r < n; ++r)
    scale[r] = known.at(r, r) > 0 && projected.at(r, r) > 0 ? std::sqrt(known.at(r, r) / projected.at(r, r)) : 0;
  double change = 0;
  each_term([&](double& term, int64_t r, int64_t c) {
    const double now = projected.at(r, c) * scale[r] * scale[c] * largest;
    change = std::max(change, std::abs(now - term));
    term = now;
  });
  return change;
}

}  // namespace lumen::model::compress
