#include "model/compress/rotate/rounding_error.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "model/compress/round/round.h"

namespace lumen::model::compress {

// Statistics of an input that several weights share: sums over the text, and moments under the rotations.
struct RoundingError::Reads {
  int64_t columns = 0;
  std::vector<float> gram;     // where a rotation changes the input
  std::vector<float> squares;  // elsewhere
  std::vector<size_t> items;
};

struct RoundingError::Item {
  std::string name;
  FormatRef format;
  int64_t matrices = 1, rows = 0, columns = 0;  // rows of one matrix
  double whole = 0;                             // divisor of the errors
};

// A format's fit for one shape, shared by all weights of that shape.
struct RoundingError::Fit {
  std::vector<float> w;
  std::optional<ClippedFit> clip;  // nullopt: the format has no code per element
  bool both_ends = false;          // a group's minimum and maximum set its fields, not only the larger magnitude
};

namespace {

// Whether a group's fields depend on both its minimum and its maximum.
bool follows_both_ends(run::Engine& engine, const FormatRef& f, int64_t columns) {
  const auto range = [&](float nearer) {
    std::vector<float> w(columns);
    for (int64_t c = 0; c < columns; ++c) w[c] = c % 8 == 0 ? 1 : c % 8 == 1 ? nearer : 0.1F * (c % 5 - 2);
    ClippedFit fit(engine, f, 1, columns, w, {});
    fit.refit();
    return fit.grid().largest(0) - fit.grid().least(0);
  };
  return std::abs(range(-0.4F) / range(-0.7F) - 1) > 0.05F;
}

// Passes gradients of ranges to the numbers at their ends: those of a group that set its fields.
void to_ends(const ClippedFit& clip, std::span<const float> w, int64_t columns, const ClippedFit::Slopes& slopes,
             bool both_ends, std::span<float> to) {
  const CodeGrid& grid = clip.grid();
  std::vector<int64_t> least(grid.groups(), -1), most(grid.groups(), -1);
  for (int64_t i = 0; i < std::ssize(w); ++i) {
    const int64_t g = grid.group_of(i / columns, i % columns);
    if (least[g] < 0 || w[i] < w[least[g]]) least[g] = i;
    if (most[g] < 0 || w[i] > w[most[g]]) most[g] = i;
  }
  for (int64_t g = 0; g < grid.groups(); ++g) {
    const float above = slopes.above[g], below = slopes.below[g];
    const int64_t l = least[g], m = most[g];
    if (l < 0) continue;
    if (both_ends && w[l] < 0 && w[m] > 0) {
      to[m] += above / w[m];
      to[l] += below / w[l];
    } else if (const int64_t end = std::abs(w[l]) > std::abs(w[m]) ? l : m; w[end] != 0) {
      to[end] += (above + below) / w[end];
    }
  }
}

}  // namespace

RoundingError::RoundingError(run::Engine& engine, RotatedWeights& weights,
                             const std::map<std::string, FormatRef>& formats, calibrate::LayerRun* text)
    : engine_(engine), weights_(weights), formats_(formats) {
  add_items();
  if (text) read(*text);
  const std::vector<Reads> known = reads_;
  std::vector<bool> reads(items_.size(), false);
  for (const Reads& r : known)
    for (const size_t i : r.items) reads[i] = true;
  for (size_t i = 0; i < items_.size(); ++i)
    if (!reads[i]) reads_.push_back({items_[i].columns, {}, {}, {i}});
}

RoundingError::~RoundingError() = default;

void RoundingError::add_items() {
  for (const auto& [name, format] : formats_) {
    if (!weights_.turns(name)) continue;  // same cost under all rotations
    Item item{name, format};
    const arch::Weight& w = weights_.model().weights.at(name);
    item.matrices = w.type.shape.size() == 3 ? w.type.shape[0].number() : 1;
    item.columns = w.columns();
    item.rows = w.rows() / item.matrices;
    for (const float x : w.f32()) item.whole += double{x} * x;
    if (item.whole > 0) items_.push_back(std::move(item));
  }
}

void RoundingError::read(calibrate::LayerRun& text) {
  calibrate::CarriedValues values({}, "turned");
  graph::TapKinds kinds;
  kinds.gram = true;
  OutputErrors errors(engine_);
  const calibrate::LayerRun::WeightOf weight = [&](const std::string& name) {
    return weights_.model().weights.at(name).f32();
  };
  for (size_t k = 0; k < text.parts(); ++k) {
    const calibrate::PartRun part = text.run(k, weight, &values, k + 1 < text.parts() ? &values : nullptr, kinds);
    text.drop_read(k, &values);
    for (const calibrate::TapSums& sums : part.taps) {
      (void)reads_of(part.taps, sums.tap.weights.front());  // throws for sums that are not finite
      Reads reads;
      const int64_t n = reads.columns = sums.tap.columns, matrices = std::max<int64_t>(sums.tap.matrices, 1);
      for (size_t i = 0; i < items_.size(); ++i) {
        Item& item = items_[i];
        if (std::ranges::find(sums.tap.weights, item.name) == sums.tap.weights.end()) continue;
        double whole = 0;
        const std::span<const float> w = weights_.model().weights.at(item.name).f32();
        for (int64_t m = 0; m < item.matrices; ++m)
          for (const double x : errors.of(w.subspan(m * item.rows * n, item.rows * n), item.rows, n,
                                          errors.keep(std::span(sums.gram).subspan(m * n * n, n * n), n)))
            whole += x;
        if (!(whole > 0)) continue;
        item.whole = whole;
        reads.items.push_back(i);
      }
      if (reads.items.empty()) continue;
      if (weights_.reads_turned(items_[reads.items[0]].name))
        reads.gram = sums.gram;
      else
        for (int64_t c = 0; c < matrices * n; ++c) reads.squares.push_back(sums.gram[c * n + c % n]);
      reads_.push_back(std::move(reads));
    }
  }
}

RoundingError::Fit& RoundingError::fit(const Item& item) {
  const int64_t rows = item.matrices * item.rows;
  std::unique_ptr<Fit>& slot = fits_[fmt::format("{} {} {}", item.format->hash.hex(), rows, item.columns)];
  if (!slot) {
    slot = std::make_unique<Fit>();
    slot->w.resize(rows * item.columns);
    ElementCodes codes;
    std::string why;
    if (find_element_codes(*item.format, &codes, &why)) {
      slot->clip.emplace(engine_, item.format, rows, item.columns, slot->w, std::span<const float>());
      slot->both_ends = follows_both_ends(engine_, item.format, item.columns);
    }
  }
  return *slot;
}

// `h`: of the columns of each matrix; empty: 1. `by_column`: sums of r^2 are added to it, likewise.
double RoundingError::cost_of(const Item& item, std::span<const float> h, bool gradients,
                              std::vector<double>* by_column) {
  Fit& f = fit(item);
  const int64_t rows = item.matrices * item.rows, columns = item.columns;
  const std::vector<float> w = weights_.values(item.name);
  std::copy(w.begin(), w.end(), f.w.begin());
  const std::vector<uint8_t> blob = f.clip ? f.clip->fit() : engine_.encode(item.format, w.data(), rows, columns);
  const std::vector<float> rounded = engine_.decode(item.format, blob.data(), rows, columns);
  std::vector<float> slope(w.size());
  double sum = 0;
  const double scale = 1 / (item.whole * items_.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i = r * columns + c, at = r / item.rows * columns + c;
      const double error = double{rounded[i]} - w[i], weight = h.empty() ? 1 : h[at];
      sum += error * error * weight;
      if (!by_column->empty()) (*by_column)[at] += error * error * scale;
      slope[i] = 2 * error * weight * scale;
    }
  if (gradients) {
    std::vector<float> through(w.size(), 0);
    if (f.clip) {
      f.clip->grid().read(blob);
      ClippedFit::Slopes slopes;
      f.clip->slopes(w, rounded, slope, &slopes);
      to_ends(*f.clip, w, columns, slopes, f.both_ends, through);
    } else {
      // Codes for several values at once: the rounded values count as constants.
      for (size_t i = 0; i < through.size(); ++i) through[i] = -slope[i];
    }
    weights_.pull(item.name, through);
  }
  return sum * scale;
}

double RoundingError::cost(bool gradients) {
  double sum = 0;
  for (const Reads& reads : reads_) {
    RotatedWeights::Moments moments;
    const std::string& first = items_[reads.items[0]].name;
    if (!reads.gram.empty()) moments = weights_.moments(first, reads.gram, reads.columns);
    const std::span<const float> h = reads.gram.empty() ? std::span<const float>(reads.squares) : moments.diagonal;
    std::vector<double> by_column(reads.gram.empty() ? 0 : h.size(), 0);
    for (const size_t i : reads.items) sum += cost_of(items_[i], h, gradients, &by_column);
    if (gradients && !reads.gram.empty()) weights_.pull_moments(first, moments, by_column, reads.columns);
  }
  return sum;
}

}  // namespace lumen::model::compress
