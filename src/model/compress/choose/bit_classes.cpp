#include "model/compress/choose/bit_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::compress {
namespace {

constexpr double kNearest = 1e-12;  // closer than this share of the values' range, a value equals a centre

double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * (sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

// The class of the largest membership; among overlapping ones the lowest.
size_t class_of(std::span<const double> u, double overlap) {
  const double most = *std::max_element(u.begin(), u.end());
  for (size_t k = u.size(); k-- > 0;)
    if (u[k] > 0 && u[k] >= most - overlap) return k;
  return u.size() - 1;
}

double margin_of(std::span<const double> u) {
  double most = 0, next = 0;
  for (const double x : u) {
    next = std::max(next, std::min(most, x));
    most = std::max(most, x);
  }
  return most - next;
}

}  // namespace

Significance significance(std::span<const std::vector<double>> energies) {
  Significance out;
  if (energies.empty()) return out;
  const size_t members = energies[0].size();
  out.mean.assign(members, 0);
  out.spread.assign(members, 0);
  std::vector<std::vector<double>> shares;
  for (const std::vector<double>& e : energies) {
    LUMEN_CHECK(e.size() == members);
    for (const double x : e)
      if (!std::isfinite(x) || x < 0) throw Error(Exit::numeric, fmt::format("a significance is {}", x));
    const double sum = std::accumulate(e.begin(), e.end(), 0.0);
    if (!std::isfinite(sum)) throw Error(Exit::numeric, "significances together is beyond all numbers");
    if (sum == 0) continue;
    shares.push_back(e);
    for (double& x : shares.back()) x /= sum;
  }
  const double count = shares.size();
  for (size_t j = 0; j < members; ++j) {
    for (const auto& s : shares) out.mean[j] += s[j] / count;
    double squares = 0;
    for (const auto& s : shares) squares += (s[j] - out.mean[j]) * (s[j] - out.mean[j]) / count;
    out.spread[j] = std::sqrt(squares);
  }
  return out;
}

std::vector<double> memberships(std::span<const double> centres, double value, double fuzzifier) {
  std::vector<double> out(centres.size(), 0), far;
  double range = 0;
  for (const double c : centres) {
    far.push_back(std::abs(value - c));
    range = std::max(range, far.back());
  }
  const double least = *std::min_element(far.begin(), far.end());
  if (least <= kNearest * range || range == 0) {  // at a centre; equal centres share the membership
    const auto same = [&](double d) { return d <= kNearest * range || range == 0; };
    const double count = std::count_if(far.begin(), far.end(), same);
    for (size_t k = 0; k < far.size(); ++k) out[k] = same(far[k]) ? 1 / count : 0;
    return out;
  }
  double sum = 0;
  for (size_t k = 0; k < far.size(); ++k) sum += out[k] = std::pow(least / far[k], 2 / (fuzzifier - 1));
  for (double& u : out) u /= sum;
  return out;
}

FuzzyClasses fuzzy_classes(std::span<const double> values, const FuzzyOptions& options) {
  LUMEN_CHECK(options.classes > 0 && options.fuzzifier > 1);
  FuzzyClasses out;
  if (values.empty()) return out;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  LUMEN_CHECK(std::isfinite(sorted.front()) && std::isfinite(sorted.back()));
  const size_t classes = options.classes;
  for (size_t k = 0; k < classes; ++k)
    out.centres.push_back(quantile(sorted, classes == 1 ? 0.5 : 0.95 - 0.9 * k / (classes - 1)));
  const auto measure = [&] {
    double change = 0;
    std::vector<std::vector<double>> now;
    for (size_t i = 0; i < values.size(); ++i) {
      now.push_back(memberships(out.centres, values[i], options.fuzzifier));
      for (size_t k = 0; k < classes; ++k)
        change = std::max(change, out.memberships.empty() ? 1 : std::abs(now[i][k] - out.memberships[i][k]));
    }
    out.memberships = std::move(now);
    return change;
  };
  measure();
  while (out.rounds < options.most_rounds) {
    ++out.rounds;
    for (size_t k = 0; k < classes; ++k) {
      double sum = 0, weight = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double u = std::pow(out.memberships[i][k], options.fuzzifier);
        sum += u * values[i];
        weight += u;
      }
      if (weight > 0) out.centres[k] = sum / weight;
    }
    if (measure() < options.tolerance) break;
  }
  std::sort(out.centres.begin(), out.centres.end(), std::greater<>());
  measure();
  for (const auto& u : out.memberships) {
    out.classes.push_back(class_of(u, options.overlap));
    out.margins.push_back(margin_of(u));
  }
  return out;
}

BitClasses bit_classes(std::span<const double> significance, std::span<const double> widths,
                       std::optional<double> target, std::span<const int64_t> sizes, const FuzzyOptions& options) {
  LUMEN_CHECK(!widths.empty() && std::is_sorted(widths.rbegin(), widths.rend()));
  LUMEN_CHECK(sizes.empty() || sizes.size() == significance.size());
  BitClasses out;
  if (significance.empty()) return out;
  FuzzyOptions with = options;
  with.classes = widths.size();
  const FuzzyClasses fuzzy = fuzzy_classes(significance, with);
  out.margin = *std::min_element(fuzzy.margins.begin(), fuzzy.margins.end());
  out.margins = fuzzy.margins;
  const auto set = [&](std::vector<size_t> classes, double bias) {
    double bits = 0, weights = 0;
    out.bits.clear();
    for (size_t j = 0; j < classes.size(); ++j) {
      const double size = sizes.empty() ? 1 : sizes[j];
      out.bits.push_back(widths[classes[j]]);
      bits += size * widths[classes[j]];
      weights += size;
    }
    out.average = weights > 0 ? bits / weights : 0;
    out.classes = std::move(classes);
    out.bias = bias;
    return out.average;
  };
  set(fuzzy.classes, 0);
  if (!target) return out;
  if (*target < widths.back())
    throw user_error("an average of {} bits is below the lowest width, {}", *target, widths.back());
  // Far beyond the outer centres memberships become equal, so values are clamped there.
  const double least = fuzzy.centres.back(), most = fuzzy.centres.front();
  const auto shifted = [&](double bias) {
    std::vector<size_t> classes;
    for (const double j : significance) {
      const double value = std::clamp(j * std::exp(bias), least, most);
      classes.push_back(class_of(memberships(fuzzy.centres, value, with.fuzzifier), with.overlap));
    }
    return set(std::move(classes), bias);
  };
  double low = -60, high = 60;
  if (shifted(high) <= *target) return out;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (shifted(middle) <= *target ? low : high) = middle;
  }
  shifted(low);
  return out;
}

}  // namespace lumen::model::compress
