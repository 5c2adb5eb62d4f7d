// The bits of a value as another type of as many bytes, whatever the lanes of both: through private memory, which code
// generators keep in registers.
#pragma once

#include "base/check.h"
#include "kernel/loop/build.h"

namespace lumen::synth {

inline loop::Expr bits_as(loop::Builder& b, loop::Expr x, loop::VType type) {
  const auto bytes_of = [](const loop::VType& t) { return scalar_bytes(t.scalar) * t.lanes; };
  LUMEN_CHECK(bytes_of(b.type(x)) == bytes_of(type), "{} bytes as {}", bytes_of(b.type(x)), bytes_of(type));
  const loop::BufferId memory = b.alloc(bytes_of(type), 16);
  b.store(memory, x, b.i64(0), 16);
  return b.load(memory, type, b.i64(0), 16);
}

}  // namespace lumen::synth
