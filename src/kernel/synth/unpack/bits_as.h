// Reinterprets a value as another type of as many bytes, with any lanes: through private memory, which compilers keep
// in registers.
#pragma once

#include "base/check.h"
#include "kernel/loop/names.h"

namespace lumen::synth {

inline Expr bits_as(Builder& b, Expr x, VType type) {
  const auto bytes_of = [](const VType& t) { return scalar_bytes(t.scalar) * t.lanes; };
  LUMEN_CHECK(bytes_of(b.type(x)) == bytes_of(type), "{} bytes as {}", bytes_of(b.type(x)), bytes_of(type));
  const BufferId memory = b.alloc(bytes_of(type), 16);
  b.store(memory, x, b.i64(0), 16);
  return b.load(memory, type, b.i64(0), 16);
}

}  // namespace lumen::synth
