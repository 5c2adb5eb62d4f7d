// One wave (or group of waves) that loads its fragments of random tiles, executes a matrix instruction once and stores
// the sums.
#pragma once

#include <cstring>

#include "dot_native.h"
#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"

namespace lumen::dot_test {

inline Case wave_case(const machine::Machine& m, const machine::MatrixRow& r) {
  const loop::Collective& c = *r.collective;
  loop::Builder b("wave_" + r.row);
  std::mt19937 random(11);
  const auto type = [&](size_t i) { return machine::operand_type(r, i); };
  Case out;
  std::vector<loop::BufferId> buffers;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const loop::Fragment& f = c.operands[i].fragment;
    const bool memory = c.operands[i].in_memory;
    const int64_t bytes = memory ? int64_t{f.rows} * 128 : int64_t{f.lane_bits} / 8 * c.lanes;
    buffers.push_back(b.param("x" + std::to_string(i), bytes, i == 0, 16));
    Bytes values(static_cast<size_t>(bytes));
    const machine::Factor factor = i == 0 ? machine::Factor{r.acc, {}} : i % 2 == 1 ? r.a : r.b;
    const auto width = static_cast<size_t>(i > 2 || factor.code ? 1 : scalar_bytes(factor.scalar));
    for (size_t at = 0; at < values.size(); at += width) {
      const float x = static_cast<float>(static_cast<int>(random() % 17) - 8) / 4;
      uint64_t bits = random();
      if (i > 2) {
        bits = 125 + bits % 5;
      } else if (factor.code) {
        bits = factor.bits() < 8 ? bits : (bits & 0x80) | (0x28 + bits % 24);  // around one, no specials
      } else if (factor.scalar == Scalar::f32) {
        std::memcpy(&bits, &x, 4);
      } else if (is_float(factor.scalar)) {
        bits = factor.scalar == Scalar::f16 ? f32_to_f16(x) : f32_to_bf16(x);
      } else if (factor.scalar == Scalar::i32) {
        bits %= 1000;
      }
      std::memcpy(values.data() + at, &bits, width);
    }
    // Lanes that hold the same element.
    for (int copy = 1; copy < f.copies; ++copy)
      std::memcpy(values.data() + copy * f.copy_bits / 8, values.data(), static_cast<size_t>(f.copy_bits / 8));
    out.before.push_back(std::move(values));
  }
  b.loop(loop::LoopKind::grid, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
    std::vector<loop::BufferId> shared(c.operands.size(), -1);
    for (size_t i = 0; i < c.operands.size(); ++i)
      if (c.operands[i].in_memory)
        shared[i] = b.alloc(static_cast<int64_t>(out.before[i].size()), 1024, loop::Space::shared);
    if (r.in_shared) {
      b.loop(loop::LoopKind::lane, b.i64(0), b.i64(c.lanes), 1, [&](loop::Expr lane) {
        for (size_t i = r.a_in_registers ? 2 : 1; i < 3; ++i)
          b.loop(loop::LoopKind::serial, lane * 16, b.i64(static_cast<int64_t>(out.before[i].size())),
                 int64_t{16} * c.lanes, [&](loop::Expr at) { b.copy(shared[i], at, buffers[i], at, 16); });
        b.commit(loop::Flow::copies);
        b.wait(loop::Flow::copies, 0);
      });
      b.barrier();
    }
    b.loop(loop::LoopKind::lane, b.i64(0), b.i64(c.lanes), 1, [&](loop::Expr lane) {
      const auto place = [&](size_t i) { return lane * (c.operands[i].fragment.lane_bits / 8); };
      std::vector<loop::Expr> operands;
      for (size_t i = 0; i < c.operands.size(); ++i)
        if (!c.operands[i].in_memory) operands.push_back(b.load(buffers[i], type(i), place(i), 4));
      loop::Expr sums;
      if (r.in_shared) {
        sums = r.a_in_registers ? b.product(r.row, operands[0], operands[1], shared[2], b.i64(0))
                                : b.product(r.row, operands[0], shared[1], b.i64(0), shared[2], b.i64(0));
        b.commit(loop::Flow::products);
        b.wait(loop::Flow::products, 0);
        sums = b.ready(sums);
      } else {
        sums = b.inst(r.row, type(0), operands);
      }
      b.store(buffers[0], sums, place(0), 4);
    });
  });
  out.kernel = b.finish();
  out.after = out.before;
  std::vector<std::span<uint8_t>> spans(out.after.begin(), out.after.end());
  loop::eval(out.kernel, spans, [&](std::string_view name) { return m.meaning(name); }, m.wave);
  return out;
}

}  // namespace lumen::dot_test
