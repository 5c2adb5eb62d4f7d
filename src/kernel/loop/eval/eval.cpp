// A tree walk over the regions, one vector of numbers per value. Slow and plain on purpose.
// Proved by tests/kernel/loop/loop_eval_test.cpp; everything emitted is proved against it.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/loop/eval/evaluator.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"

namespace lumen::loop {

ScalarValue read_scalar(Scalar s, const uint8_t* p) {
  const auto as = [&](auto zero) {
    std::memcpy(&zero, p, sizeof(zero));
    return zero;
  };
  switch (s) {
    case Scalar::boolean:
      return {0, *p != 0};
    case Scalar::i8:
      return {0, as(int8_t{})};
    case Scalar::u8:
      return {0, *p};
    case Scalar::i16:
      return {0, as(int16_t{})};
    case Scalar::u16:
      return {0, as(uint16_t{})};
    case Scalar::i32:
      return {0, as(int32_t{})};
    case Scalar::u32:
      return {0, as(uint32_t{})};
    case Scalar::i64:
    case Scalar::u64:
      return {0, as(int64_t{})};
    case Scalar::f16:
      return {f16_to_f32(as(uint16_t{})), 0};
    case Scalar::bf16:
      return {bf16_to_f32(as(uint16_t{})), 0};
    case Scalar::f32:
      return {as(float{}), 0};
    case Scalar::f64:
      return {as(double{}), 0};
  }
  LUMEN_UNREACHABLE("scalar {}", ordinal(s));
}

void write_scalar(Scalar s, uint8_t* p, const ScalarValue& v) {
  const auto put = [&](auto x) { std::memcpy(p, &x, sizeof(x)); };
  switch (s) {
    case Scalar::f16:
      return put(f32_to_f16(static_cast<float>(v.real)));
    case Scalar::bf16:
      return put(f32_to_bf16(static_cast<float>(v.real)));
    case Scalar::f32:
      return put(static_cast<float>(v.real));
    case Scalar::f64:
      return put(v.real);
    default:
      break;
  }
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(p, &v.integer, scalar_bytes(s));
}

Evaluator::Evaluator(const Kernel& k, const RowLookup& rows, int lane)
    : k_(k),
      rows_(rows),
      lane_(lane),
      values_(k.value_count),
      buffers_(k.buffer_count),
      storage_(k.buffer_count),
      traces_(k.buffer_count) {}

Lanes Evaluator::call(const Function& f, std::vector<Lanes> operands) {
  for (size_t i = 0; i < f.params.size(); ++i) values_[f.params[i]] = std::move(operands[i]);
  region(f.body.body);
  return std::move(values_[f.result]);
}

void Evaluator::bind(std::span<const std::span<uint8_t>> buffers) {
  LUMEN_CHECK(buffers.size() == k_.params.size(), "{} buffers for {} params", buffers.size(), k_.params.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    LUMEN_CHECK(std::ssize(buffers[i]) >= k_.params[i].bytes, "buffer {} has {} bytes, not {}", k_.params[i].name,
                buffers[i].size(), k_.params[i].bytes);
    buffers_[i] = buffers[i].first(k_.params[i].bytes);
  }
}

const Function& Evaluator::meaning(const Instr& instr) const {
  const Function* f = rows_ ? rows_(instr.row) : nullptr;
  LUMEN_CHECK(f, "no meaning is known for row {}", instr.row);
  return *f;
}

void Evaluator::region(const Region& r) {
  for (const Instr& instr : r.code) step(instr);
}

uint8_t* Evaluator::access(const Instr& instr, BufferId buffer, int64_t offset, int64_t bytes, int align, bool writes) {
  const std::span<uint8_t> b = buffers_[buffer];
  const auto size = std::ssize(b);
  LUMEN_CHECK(offset >= 0 && bytes <= size && offset <= size - bytes, "bytes {}..{} of a buffer of {} in: {}", offset,
              offset + bytes, size, print(instr));
  LUMEN_CHECK(offset % align == 0, "offset {} is not a multiple of {} in: {}", offset, align, print(instr));
  if (traces_[buffer]) {
    const std::string race = traces_[buffer]->touch(offset, bytes, writes, lane_, epoch);
    LUMEN_CHECK(race.empty(), "{} in: {}", race, print(instr));
  }
  return b.data() + offset;
}

void Evaluator::share(BufferId buffer, std::span<uint8_t> bytes, Traces* traces) {
  buffers_[buffer] = bytes;
  traces_[buffer] = traces;
}

// Lanes a counted access touches.
int64_t Evaluator::touched(const Instr& instr, size_t operand, int lanes) const {
  if (instr.operands.size() <= operand) return lanes;
  return std::clamp<int64_t>(integer(instr.operands[operand]), 0, lanes);
}

void Evaluator::step(const Instr& instr) {
  switch (instr.op) {
    case Op::loop_:
      return loop(instr);
    case Op::branch_:
      return region(instr.regions[integer(instr.operands[0]) != 0 ? 0 : 1]);
    case Op::store_:
      return store(instr);
    case Op::scatter_: {
      const Lanes& value = values_[instr.operands[0]];
      const Scalar s = k_.value_types[instr.operands[0]].scalar;
      for (size_t i = 0; i < value.size(); ++i)
        write_scalar(s, access(instr, instr.buffer, values_[instr.operands[1]][i].integer, scalar_bytes(s), 1, true),
                     value[i]);
      return;
    }
    case Op::prefetch_:
      return;
    case Op::alloc_:
      LUMEN_CHECK(instr.space == Space::priv, "shared memory is the block's: {}", print(instr));
      storage_[instr.buffer].assign(instr.bytes, 0xCD);  // undefined content is made visible
      buffers_[instr.buffer] = storage_[instr.buffer];
      return;
    case Op::guard_:
      if (integer(instr.operands[0]) == 0 && status.code == kGuardNone)
        status = {instr.code, integer(instr.operands[1])};
      return;
    case Op::op_:
      return scalar(instr);
    default:
      values_[instr.result] = compute(instr);
      return;
  }
}

void Evaluator::loop(const Instr& instr) {
  LUMEN_CHECK(instr.kind != LoopKind::grid && instr.kind != LoopKind::lane, "a loop of a block in one lane");
  const int64_t from = integer(instr.operands[0]), to = integer(instr.operands[1]);
  const int64_t trips = trip_count(from, to, instr.step);
  for (int64_t i = 0; i < trips; ++i) {
    values_[instr.regions[0].counter].assign(1, ScalarValue{0, from + i * instr.step});
    region(instr.regions[0]);
  }
}

void Evaluator::store(const Instr& instr) {
  const Lanes& value = values_[instr.operands[0]];
  const Scalar s = k_.value_types[instr.operands[0]].scalar;
  const int64_t n = touched(instr, 2, value.size());
  const int64_t bytes = scalar_bytes(s);
  if (n == 0) return;
  uint8_t* p = access(instr, instr.buffer, integer(instr.operands[1]), n * bytes, instr.align, true);
  for (int64_t i = 0; i < n; ++i) write_scalar(s, p + i * bytes, value[i]);
}

Lanes Evaluator::compute(const Instr& instr) {
  const size_t lanes = instr.type.lanes;
  switch (instr.op) {
    case Op::constant_: {
      Lanes out(lanes);
      for (size_t i = 0; i < lanes; ++i) {
        if (!instr.data.empty()) out[i].real = instr.data[instr.data.size() == 1 ? 0 : i];
        if (!instr.integers.empty()) out[i].integer = instr.integers[instr.integers.size() == 1 ? 0 : i];
      }
      return out;
    }
    case Op::splat_:
      return Lanes(lanes, values_[instr.operands[0]][0]);
    case Op::extract_:
      return Lanes(1, values_[instr.operands[0]][instr.lane]);
    case Op::insert_: {
      Lanes out = values_[instr.operands[0]];
      out[instr.lane] = values_[instr.operands[1]][0];
      return out;
    }
    case Op::shuffle_: {
      const Lanes& a = values_[instr.operands[0]];
      Lanes out(lanes);
      for (size_t i = 0; i < lanes; ++i) {
        const int lane = instr.mask[i];
        if (lane < 0) continue;
        const size_t from = lane;
        out[i] = from < a.size() ? a[from] : values_[instr.operands[1]][from - a.size()];
      }
      return out;
    }
    case Op::fold_:
      return fold(instr);
    case Op::load_: {
      Lanes out(lanes);
      const int64_t n = touched(instr, 1, instr.type.lanes);
      const int64_t bytes = scalar_bytes(instr.type.scalar);
      if (n == 0) return out;
      const uint8_t* p = access(instr, instr.buffer, integer(instr.operands[0]), n * bytes, instr.align, false);
      for (int64_t i = 0; i < n; ++i) out[i] = read_scalar(instr.type.scalar, p + i * bytes);
      return out;
    }
    case Op::gather_: {
      Lanes out(lanes);
      const Lanes& offsets = values_[instr.operands[0]];
      for (size_t i = 0; i < lanes; ++i)
        out[i] = read_scalar(instr.type.scalar, access(instr, instr.buffer, offsets[i].integer,
                                                       scalar_bytes(instr.type.scalar), 1, false));
      return out;
    }
    case Op::inst_: {
      const Function& f = meaning(instr);
      LUMEN_CHECK(f.params.size() == instr.operands.size(), "row {} takes {} operands", instr.row, f.params.size());
      std::vector<Lanes> operands;
      for (size_t i = 0; i < f.params.size(); ++i) {
        LUMEN_CHECK(f.body.value_types[f.params[i]] == k_.value_types[instr.operands[i]], "operand {} of row {} is {}",
                    i, instr.row, print(k_.value_types[instr.operands[i]]));
        operands.push_back(values_[instr.operands[i]]);
      }
      LUMEN_CHECK(f.body.value_types[f.result] == instr.type, "row {} does not yield {}", instr.row, print(instr.type));
      return Evaluator(f.body, rows_).call(f, std::move(operands));
    }
    default:
      LUMEN_UNREACHABLE("not of one lane alone: {}", print(instr));
  }
}

// Most of what kernels compute, so the result is written over the last one.
void Evaluator::scalar(const Instr& instr) {
  const ScalarNode node{instr.scalar_op, instr.type.scalar};
  const Scalar from = k_.value_types[instr.operands[0]].scalar;
  const ScalarValue none;
  const ScalarValue* args[3] = {&none, &none, &none};
  size_t stride[3] = {0, 0, 0};
  for (size_t a = 0; a < instr.operands.size(); ++a) {
    args[a] = values_[instr.operands[a]].data();
    stride[a] = 1;
  }
  Lanes& out = values_[instr.result];
  out.resize(instr.type.lanes);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = eval_scalar_op(node, from, args[0][i * stride[0]], args[1][i * stride[1]], args[2][i * stride[2]]);
}

Lanes Evaluator::fold(const Instr& instr) {
  Lanes v = values_[instr.operands[0]];
  const ScalarNode node{instr.scalar_op, instr.type.scalar};
  while (v.size() > 1) {
    const size_t half = v.size() / 2;
    for (size_t i = 0; i < half; ++i) v[i] = eval_scalar_op(node, node.type, v[i], v[i + half], {});
    v.resize(half);
  }
  return v;
}

Status eval(const Kernel& k, std::span<const std::span<uint8_t>> buffers, const RowLookup& rows, int wave) {
  if (k.instances > 1) {
    Kernel one = k;
    one.instances = 1;
    Status first;
    for (size_t i = 0; i < size_t(k.instances); ++i) {
      Status status = eval(one, buffers.subspan(i * k.params.size(), k.params.size()), rows, wave);
      if (status.code != kGuardNone) status.code += int(i) * kInstanceCodes;
      if (first.code == kGuardNone) first = status;
    }
    return first;
  }
  const Instr* top = top_loop(k);
  if (top && top->kind == LoopKind::grid) return eval_grid(k, buffers, rows, wave);
  Evaluator one(k, rows);
  one.bind(buffers);
  one.region(k.body);
  return one.status;
}

std::vector<ScalarValue> eval(const Function& f, std::vector<std::vector<ScalarValue>> operands,
                              const RowLookup& rows) {
  LUMEN_CHECK(operands.size() == f.params.size(), "{} operands for {}", operands.size(), f.name);
  return Evaluator(f.body, rows).call(f, std::move(operands));
}

}  // namespace lumen::loop
