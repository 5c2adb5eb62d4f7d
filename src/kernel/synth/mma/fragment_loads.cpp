// See fragment_loads.h.
#include "kernel/synth/mma/fragment_loads.h"

#include <algorithm>
#include <deque>

#include "kernel/synth/mma/fragment_digits.h"

namespace lumen::synth {
namespace {

constexpr int kWord = 32;  // bits

using Corner = FragmentLoads::Corner;

// Whether word w of the lanes' shares is a matrix of eight rows of sixteen bytes that begins at this corner.
bool is_matrix(const loop::Fragment& f, int w, Corner at) {
  const int64_t columns = FragmentLoads::kRowBytes * 8 / f.bits, near = kWord / f.bits;
  for (int64_t row = 0; row < FragmentLoads::kRows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t element = (at.row + row) * f.columns + at.column + column,
                    lane = row * (columns / near) + column / near;
      if (f.bit_of(element) != lane * f.lane_bits + w * kWord + column % near * f.bits) return false;
    }
  return true;
}

bool are_equal(const loop::Fragment& a, const loop::Fragment& b) {
  return a.rows == b.rows && a.columns == b.columns && a.bits == b.bits && a.lane_bits == b.lane_bits &&
         a.copies == b.copies && a.layout == b.layout;
}

}  // namespace

// Choosing among plans needs the same few fragments thousands of times: results are cached per thread.
std::optional<FragmentLoads> FragmentLoads::of(const machine::Machine& m, const loop::Fragment& f, bool transposed) {
  struct Known {
    loop::Fragment fragment;
    bool transposed;
    std::optional<FragmentLoads> loads;
  };
  constexpr size_t kMostKnown = 16;
  thread_local std::deque<Known> known;
  const machine::MatrixLoad* const load = m.find_load(transposed);
  if (!load) return {};
  auto at = std::ranges::find_if(
      known, [&](const Known& k) { return k.transposed == transposed && are_equal(k.fragment, f); });
  if (at == known.end()) {
    if (known.size() == kMostKnown) known.pop_front();
    at = known.insert(known.end(), Known{f, transposed, of_fragment(f, transposed)});
  }
  std::optional<FragmentLoads> out = at->loads;
  if (out) out->load = load;
  return out;
}

std::optional<FragmentLoads> FragmentLoads::of_fragment(const loop::Fragment& f, bool transposed) {
  FragmentLoads out;
  const int words = f.lane_bits / kWord;
  if (f.copies > 1 || f.lane_bits % kWord != 0 || words > kMatrices || words == 0 || kMatrices % words != 0) return {};
  if (kWord % f.bits != 0 || (transposed && f.bits != 16) || f.rows % kRows != 0) return {};
  const FragmentDigits digits = FragmentDigits::of(f);
  std::vector<Corner> corners;
  for (int w = 0; w < words; ++w)
    for (const auto& row : digits.row_parts)
      for (const auto& column : digits.column_parts)
        if (row.element + column.element == w * (kWord / f.bits)) {
          corners.push_back({row.offset, column.offset});
          if (!is_matrix(f, w, corners.back())) return {};
        }
  if (std::ssize(corners) != words) return {};
  out.tiles = kMatrices / words;
  while (std::ssize(corners) < kMatrices) {
    const Corner& again = corners[corners.size() - words];
    corners.push_back({again.row + f.rows, again.column});
  }
  out.one = corners[1];
  out.two = corners[2];
  const bool sums = corners[3].row == out.one.row + out.two.row && corners[3].column == out.one.column + out.two.column;
  return corners[0].row == 0 && corners[0].column == 0 && sums ? std::optional(out) : std::nullopt;
}

}  // namespace lumen::synth
