// See fragment_digits.h.
#include "kernel/synth/mma/fragment_digits.h"

namespace lumen::synth {

namespace {

Expr value_of(const FragmentDigits::Digit& digit, Expr lane) {
  return lane / digit.lanes % digit.extent;
}

}  // namespace

FragmentDigits FragmentDigits::of(const loop::Fragment& f) {
  const LayoutPiece& piece = f.layout.pieces[0];
  FragmentDigits out;
  int64_t rows = 1;
  for (const auto& mode : piece.modes) {
    const int64_t stride = mode.stride;
    Digit d{static_cast<int>(mode.extent), 1, 0, 0};
    if (stride % f.lane_bits == 0 && stride > 0)
      d.lanes = stride / f.lane_bits;
    else
      d.elements = stride / f.bits;
    if (rows < f.rows) {
      out.rows.push_back(d);
      rows *= d.extent;
    } else {
      out.columns.push_back(d);
    }
  }
  for (auto* digits : {&out.rows, &out.columns}) {
    int64_t weight = 1;
    for (size_t i = digits->size(); i-- > 0;) {
      (*digits)[i].weight = weight;
      weight *= (*digits)[i].extent;
    }
  }
  out.row_parts = parts(out.rows);
  out.column_parts = parts(out.columns);
  return out;
}

Expr FragmentDigits::operand(Builder& b, VType type, const std::vector<Expr>& runs, int64_t step) const {
  const int length = b.type(runs[0]).lanes, share = column_parts.size();
  std::vector<int> mask(type.lanes, -1);
  for (int r = 0; r < std::ssize(row_parts); ++r)
    for (int i = 0; i < share; ++i)
      mask[row_parts[r].element + column_parts[i].element] = r * length + step * share + i;
  return b.shuffle(runs, mask);
}

std::vector<FragmentDigits::Part> FragmentDigits::parts(const Digits& digits) {
  std::vector<Part> out{{}};
  for (const Digit& d : digits) {
    if (d.lanes > 0) continue;
    std::vector<Part> next;
    for (const Part& p : out)
      for (int i = 0; i < d.extent; ++i) next.push_back({p.element + i * d.elements, p.offset + i * d.weight});
    out = std::move(next);
  }
  return out;
}

int64_t FragmentDigits::lanes_extent(const Digits& digits) {
  int64_t out = 1;
  for (const Digit& d : digits) out *= d.lanes > 0 ? d.extent : 1;
  return out;
}

Expr FragmentDigits::number(Builder& b, const Digits& digits, Expr lane) {
  Expr out = b.i64(0);
  for (const Digit& d : digits)
    if (d.lanes > 0) out = out + value_of(d, lane) * d.weight;
  return out;
}

Expr FragmentDigits::group(Builder& b, const Digits& digits, Expr lane) {
  Expr out = b.i64(0);
  for (const Digit& d : digits)
    if (d.lanes > 0) out = out * d.extent + value_of(d, lane);
  return out;
}

}  // namespace lumen::synth
