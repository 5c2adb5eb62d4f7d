#include "run/engine/verify/trial/row_trial.h"

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "run/engine/cache/cache.h"

namespace lumen::run {
namespace {

using Bytes = std::vector<uint8_t>;

machine::Factor factor_of(const machine::MatrixRow& r, size_t operand) {
  return operand == 0 ? machine::Factor{r.acc, {}} : operand % 2 == 1 ? r.a : r.b;
}

// A wave loads its fragments, multiplies once and stores the sums over its initial accumulators.
loop::Kernel wave_kernel(const machine::MatrixRow& r) {
  const loop::Collective& c = *r.collective;
  loop::Builder b("row_" + r.row);
  const auto place = [&](size_t i, loop::Expr lane) { return lane * (c.operands[i].fragment.lane_bits / 8); };
  std::vector<loop::BufferId> buffers;
  for (size_t i = 0; i < c.operands.size(); ++i)
    buffers.push_back(
        b.param(fmt::format("x{}", i), int64_t{c.operands[i].fragment.lane_bits} / 8 * c.lanes, i == 0, 16));
  b.loop(loop::LoopKind::grid, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
    b.loop(loop::LoopKind::lane, b.i64(0), b.i64(c.lanes), 1, [&](loop::Expr lane) {
      std::vector<loop::Expr> operands;
      for (size_t i = 0; i < c.operands.size(); ++i)
        operands.push_back(b.load(buffers[i], machine::operand_type(r, i), place(i, lane), 4));
      b.store(buffers[0], b.inst(r.row, machine::operand_type(r, 0), operands), place(0, lane), 4);
    });
  });
  return b.finish();
}

// One element's bits: multiples of 1/4 for floats, codes around one, integers below a thousand.
uint64_t some_bits(const machine::Factor& f, std::mt19937* random) {
  const uint64_t any = (*random)();
  const float x = float(int(any % 17) - 8) / 4;
  uint32_t word = 0;
  std::memcpy(&word, &x, 4);
  if (f.code) return f.bits() < 8 ? any : (any & 0x80) | (0x28 + any % 24);
  if (f.scalar == Scalar::f32) return word;
  if (is_float(f.scalar)) return f.scalar == Scalar::f16 ? f32_to_f16(x) : f32_to_bf16(x);
  return f.scalar == Scalar::i32 ? any % 1000 : any;
}

std::vector<Bytes> operands_of(const machine::MatrixRow& r) {
  constexpr size_t kFirstScale = 3;
  std::mt19937 random(11);
  std::vector<Bytes> out;
  for (size_t i = 0; i < r.collective->operands.size(); ++i) {
    const loop::Fragment& f = r.collective->operands[i].fragment;
    const machine::Factor factor = factor_of(r, i);
    Bytes& bytes = out.emplace_back(size_t(f.lane_bits) / 8 * r.collective->lanes);
    const size_t width = i >= kFirstScale || factor.code ? 1 : scalar_bytes(factor.scalar);
    for (size_t at = 0; at < bytes.size(); at += width) {
      const uint64_t bits = i >= kFirstScale ? 125 + random() % 5 : some_bits(factor, &random);
      std::memcpy(bytes.data() + at, &bits, width);
    }
    // Lanes with copies of the same element.
    const size_t copied = f.copies > 1 ? size_t(f.copy_bits) / 8 : 0;
    for (size_t copy = 1; copied > 0 && copy < size_t(f.copies); ++copy)
      std::memcpy(bytes.data() + copy * copied, bytes.data(), copied);
  }
  return out;
}

// The same without signs: an upper bound for sums of products.
void drop_signs(const machine::MatrixRow& r, std::vector<Bytes>* operands) {
  for (size_t i = 0; i < 3; ++i) {
    const machine::Factor f = factor_of(r, i);
    const int width = f.code ? 1 : scalar_bytes(f.scalar);
    for (size_t at = width - 1; at < (*operands)[i].size(); at += width)
      (*operands)[i][at] &= f.bits() == 4 ? 0x77 : 0x7f;
  }
}

Bytes evaluated(const CompileContext& context, const loop::Kernel& kernel, std::vector<Bytes> operands) {
  const machine::Machine& m = context.device->machine();
  std::vector<std::span<uint8_t>> spans(operands.begin(), operands.end());
  loop::eval(kernel, spans, [&](std::string_view name) { return m.meaning(name); }, m.wave);
  return std::move(operands[0]);
}

Bytes executed(const CompileContext& context, const loop::Kernel& kernel, const std::vector<Bytes>& operands) {
  CompileReport report;
  const loop::Kernel* one[] = {&kernel};
  void* function = context.cache->get(one, 1, &report)[0];
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> buffers;
  for (const Bytes& bytes : operands) {
    memory.push_back(allocate_shared(context.device, std::ssize(bytes)));
    buffers.push_back(memory.back().get());
    context.device->copy_in(buffers.back(), bytes.data(), std::ssize(bytes));
  }
  LaunchStatus here;
  const bool waits = context.device->is_asynchronous();
  const std::shared_ptr<void> there = waits ? allocate_shared(context.device, sizeof here) : nullptr;
  context.device->launch(function, buffers, launch_config_of(kernel, context.device->machine(), false),
                         waits ? static_cast<LaunchStatus*>(there.get()) : &here);
  context.device->synchronize();
  Bytes out(operands[0].size());
  context.device->copy_out(out.data(), buffers[0], std::ssize(out));
  return out;
}

// Compares float sums with an error bound: that many additions of numbers without signs.
void compare(const machine::MatrixRow& r, const Bytes& got, const Bytes& want, const Bytes& most, CheckLine* line) {
  line->ok = got == want;
  line->detail = fmt::format("{} bytes, {}equal", want.size(), line->ok ? "all " : "not ");
  if (!is_float(r.acc) || line->ok) return;
  const double units = units_of_sum(r.k + 1) + (r.short_sums ? units_of_short_sum(r.k + 1) : 0);
  double worst = 0;
  for (size_t at = 0; at < want.size(); at += 4) {
    float x = 0, y = 0, z = 0;
    std::memcpy(&x, got.data() + at, 4), std::memcpy(&y, want.data() + at, 4), std::memcpy(&z, most.data() + at, 4);
    const double excess = std::abs(double(x) - y) / (units * z + 1e-37);
    if (!(excess <= worst)) worst = std::isnan(excess) ? 1e9 : excess;
  }
  line->ok = worst <= 1;
  line->detail = fmt::format("largest difference {:.2f} of what is allowed", worst);
}

}  // namespace

CheckLine try_row(const CompileContext& context, const machine::MatrixRow& row) {
  CheckLine line{fmt::format("instruction {}", row.row), context.device->machine().name};
  line.rows = {row.row};
  try {
    const loop::Kernel kernel = wave_kernel(row);
    const std::vector<Bytes> operands = operands_of(row);
    std::vector<Bytes> sizes = operands;
    drop_signs(row, &sizes);
    compare(row, executed(context, kernel, operands), evaluated(context, kernel, operands),
            evaluated(context, kernel, sizes), &line);
  } catch (const Error& error) {
    line.ok = line.ran = false;
    line.detail = error.what();
  }
  return line;
}

void try_other_rows(const CompileContext& context, Soundness* found) {
  std::set<std::string> used;
  for (const CheckLine& line : found->lines) used.insert(line.rows.begin(), line.rows.end());
  for (const RefusedRow& r : found->refused) used.insert(r.row);
  const machine::Machine& table = context.device->machine();
  for (const machine::MatrixRow& r : table.matrices) {
    if (used.contains(r.row) || r.in_shared) continue;
    CheckLine line = try_row(context, r);
    if (line.ok) {
      found->lines.push_back(std::move(line));
      continue;
    }
    found->refused.push_back({r.row, fmt::format("{}: {}", line.what, line.detail)});
    found->machine =
        std::make_shared<const machine::Machine>(without_row(found->machine ? *found->machine : table, r.row));
  }
}

}  // namespace lumen::run
