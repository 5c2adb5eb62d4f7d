// Operands of scalar instructions.
#pragma once

#include "tests/amd/execute/table.h"

namespace lumen::amd {

inline uint32_t scalar32(const Wave& w, const Operand& o) {
  if (o.kind == Operand::Kind::constant) return static_cast<uint32_t>(o.bits);
  if (o.kind != Operand::Kind::scalar) fault("a scalar operand is missing");
  if (o.first == kNull) return 0;
  if (o.first == kScc) return w.scc;
  if (o.first == kVccz || o.first == kExecz) return w.mask(o.first == kVccz ? kVcc : kExec) == 0;
  return w.scalar[o.first];
}
inline uint64_t scalar64(const Wave& w, const Operand& o) {
  if (o.kind == Operand::Kind::constant) return o.bits;
  if (o.kind != Operand::Kind::scalar) fault("a scalar operand is missing");
  if (o.first == kNull) return 0;
  if (o.words != 2) fault("a pair of scalar registers is missing");
  return w.wide(o.first);
}
inline void set_scalar32(Wave& w, const Operand& o, uint32_t value) {
  if (o.kind != Operand::Kind::scalar) fault("a result that is no scalar register");
  if (o.first != kNull) w.scalar[o.first] = value;
}
inline void set_scalar64(Wave& w, const Operand& o, uint64_t value) {
  if (o.kind != Operand::Kind::scalar) fault("a result that is no scalar register");
  if (o.first == kNull) return;
  if (o.words != 2) fault("a pair of scalar registers is missing");
  w.set_wide(o.first, value);
}

}  // namespace lumen::amd
