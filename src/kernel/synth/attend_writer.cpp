// What attend kernels are written with: see attend.h. Proved by tests/kernel/synth_attend_test.cpp.
#include "kernel/synth/attend.h"

namespace lumen::synth {

using loop::ValueId;

int AttendWriter::axis_of(const Body& body, size_t d) {
  for (size_t k = 0; k < body.extents().size(); ++k)
    if (body.first_axis(static_cast<int>(k)) == static_cast<int>(d)) return static_cast<int>(k);
  return -1;
}

int AttendWriter::open_axis(Body& body, size_t d, ValueId counter) {
  const int axis = axis_of(body, d);
  if (axis >= 0) body.open(axis, counter);
  return axis >= 0 ? 1 : 0;
}

void AttendWriter::close(Body& body, int opened) {
  for (int d = 0; d < opened; ++d) body.close();
}

void AttendWriter::each_number(int64_t width, bool dense,
                               const std::function<void(ValueId at, int lanes, ValueId count)>& body) {
  if (!dense) {
    serial(b_.i64(0), b_.i64(width), 1, [&](ValueId at) { body(at, 1, -1); });
    return;
  }
  const int64_t whole = width / lanes_ * lanes_;
  if (whole > 0) serial(b_.i64(0), b_.i64(whole), lanes_, [&](ValueId at) { body(at, lanes_, -1); });
  if (whole < width) body(b_.i64(whole), lanes_, b_.i64(width - whole));
}

}  // namespace lumen::synth
