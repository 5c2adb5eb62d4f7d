// A kernel that is one instruction row, over random bytes; floats are finite, some of them subnormal.
#pragma once

#include "dot_native.h"
#include "kernel/loop/build.h"

namespace lumen::dot_test {

inline Case row_case(const machine::Machine& m, const machine::Row& row) {
  const loop::Function* f = m.meaning(row.name);
  LUMEN_CHECK(f != nullptr);
  const int lanes = f->body.value_types[f->result].lanes;
  const int kRounds = lanes > 256    ? 2
                      : lanes >= 256 ? 6
                      : lanes >= 32  ? 16
                                     : 64;  // whole tiles and long vectors are slow to evaluate
  loop::Builder b("row_" + row.name);
  auto bytes = [](loop::VType t) { return int64_t{t.lanes} * scalar_bytes(t.scalar); };
  std::vector<loop::BufferId> operands;
  for (size_t i = 0; i < f->params.size(); ++i)
    operands.push_back(b.param("x" + std::to_string(i), bytes(f->body.value_types[f->params[i]]) * kRounds, false));
  const loop::VType type = f->body.value_types[f->result];
  const loop::BufferId out = b.param("out", bytes(type) * kRounds, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(kRounds), 1, [&](loop::Expr round) {
    std::vector<loop::Expr> values;
    for (size_t i = 0; i < operands.size(); ++i) {
      const loop::VType t = f->body.value_types[f->params[i]];
      values.push_back(b.load(operands[i], t, round * bytes(t)));
    }
    b.store(out, b.inst(row.name, type, values), round * bytes(type));
  });
  Case c{b.finish(), {}, {}};
  std::mt19937 random(3);
  for (const loop::BufferParam& p : c.kernel.params) {
    c.before.emplace_back(static_cast<size_t>(p.bytes));
    for (uint8_t& x : c.before.back()) x = static_cast<uint8_t>(random());
  }
  for (size_t i = 0; i < f->params.size(); ++i) {
    const Scalar s = f->body.value_types[f->params[i]].scalar;
    if (s == Scalar::f16)  // any but infinities and NaN
      for (size_t at = 1; at < c.before[i].size(); at += 2)
        if ((c.before[i][at] & 0x7cU) == 0x7cU) c.before[i][at] &= 0xbfU;
    if (s != Scalar::f32 && s != Scalar::bf16) continue;
    // The upper two bytes hold sign and exponent: products of about one, sums of any size down to nothing.
    const size_t width = s == Scalar::f32 ? 4 : 2;
    Bytes& values = c.before[i];
    for (size_t at = 0; at < values.size(); at += width) {
      uint8_t* top = &values[at + width - 2];
      const unsigned exponent = random() % 16 == 0 ? 0 : random() % 8 == 0 ? 40 + random() % 40 : 120 + random() % 12;
      top[1] = static_cast<uint8_t>((top[1] & 0x80U) | exponent >> 1);
      top[0] = static_cast<uint8_t>((top[0] & 0x7fU) | (exponent & 1U) << 7);
    }
  }
  c.after = c.before;
  std::vector<std::span<uint8_t>> spans(c.after.begin(), c.after.end());
  loop::eval(c.kernel, spans, [&](std::string_view name) { return m.meaning(name); });
  return c;
}

}  // namespace lumen::dot_test
