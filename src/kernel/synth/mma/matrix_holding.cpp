// See matrix_holding.h.
#include "kernel/synth/mma/matrix_holding.h"

namespace lumen::synth {

using loop::Expr;

namespace {

Expr value_of(loop::Builder& b, const MatrixHolding::Digit& digit, Expr lane) {
  return lane / digit.lanes % digit.extent;
}

}  // namespace

MatrixHolding MatrixHolding::of(const loop::Fragment& f) {
  const LayoutPiece& piece = f.layout.pieces[0];
  MatrixHolding out;
  int64_t rows = 1;
  for (const auto& mode : piece.modes) {
    const int64_t stride = mode.stride;
    Digit d{static_cast<int>(mode.extent), 1, 0, 0};
    if (stride % f.lane_bits == 0 && stride > 0)
      d.lanes = static_cast<int>(stride / f.lane_bits);
    else
      d.elements = static_cast<int>(stride / f.bits);
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
  return out;
}

std::vector<MatrixHolding::Part> MatrixHolding::parts(const Digits& digits) {
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

int64_t MatrixHolding::lanes_extent(const Digits& digits) {
  int64_t out = 1;
  for (const Digit& d : digits) out *= d.lanes > 0 ? d.extent : 1;
  return out;
}

Expr MatrixHolding::number(loop::Builder& b, const Digits& digits, Expr lane) {
  Expr out = b.i64(0);
  for (const Digit& d : digits) {
    if (d.lanes == 0) continue;
    out = out + value_of(b, d, lane) * d.weight;
  }
  return out;
}

Expr MatrixHolding::group(loop::Builder& b, const Digits& digits, Expr lane) {
  Expr out = b.i64(0);
  for (const Digit& d : digits) {
    if (d.lanes == 0) continue;
    out = out * d.extent + value_of(b, d, lane);
  }
  return out;
}

}  // namespace lumen::synth
