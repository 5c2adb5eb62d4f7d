// Parameters, strided reads and the epilogue of dot kernels.
#include "kernel/synth/gemm/dot_write.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"
#include "graph/match/access.h"
#include "kernel/loop/text.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

using graph::ValueId;

namespace {

constexpr int64_t kMostBeside = 16;  // numbers: no machine makes use of more alignment
constexpr int64_t kLine = 64;        // bytes of a cache line

}  // namespace

Expr moved(Expr at, Expr number, const std::vector<DotIndex>& indices, size_t load) {
  for (size_t d = indices.size(); d-- > 0; number = number / indices[d].extent)
    at = at + number % indices[d].extent * indices[d].strides[load];
  return at;
}

DotWriter::DotWriter(const graph::Graph& g, const DotProblem& p, std::string name)
    : b(std::move(name)), graph_(g), problem_(p) {
  std::map<ValueId, BufferId> known;
  for (size_t i = 0; i < p.loads.size(); ++i) {
    const DotLoad& l = p.loads[i];
    if (l.kind != DotLoad::Kind::memory && l.kind != DotLoad::Kind::packed) {
      buffers_.push_back(-1);
      continue;
    }
    if (l.scratch >= 0) {
      buffers_.push_back(
          scratch_param(i == 0 ? "a_laid" : "b_laid", l.scratch, l.elements * scalar_bytes(l.scalar), false));
      continue;
    }
    const ValueId source = l.zeros ? l.zeros->image : l.source;
    auto [at, fresh] = known.try_emplace(source, -1);
    if (fresh) {
      at->second = b.param(i == 0                        ? "a"
                           : i == 1                      ? "b"
                           : p.pick && i == p.pick->load ? "picks"
                                                         : fmt::format("e{}", i - 2),
                           graph::byte_size(g[source].type), false);
      arguments_.push_back({Argument::From::value, source});
    }
    buffers_.push_back(at->second);
  }
  if (p.result_scratch >= 0) {
    result_ = scratch_param("result", p.result_scratch, p.result_bytes, true);
  } else if (p.result >= 0) {  // a preparing step writes scratch alone
    result_ = b.param("result", p.result_bytes, true);
    arguments_.push_back({Argument::From::value, p.result});
  }
  if (p.blocks) {
    order_ = scratch_param("order", p.blocks->order, p.blocks->rows * 4, false);
    table_ = scratch_param("blocks", p.blocks->table, p.blocks->blocks * kPickEntry * 4, false);
  }
  if (p.runs) table_ = scratch_param("runs", p.runs->table, p.pick->count * kPickEntry * 4, false);
  for (ValueId v : p.epilogue) epilogue_nodes_ += g[v].attributes.formula.nodes.size();
}

BufferId DotWriter::scratch_param(std::string name, int number, int64_t bytes, bool written) {
  arguments_.push_back({Argument::From::scratch, number});
  return b.param(std::move(name), bytes, written);
}

BufferId DotWriter::value(ValueId v, bool written) {
  const Argument argument{Argument::From::value, v};
  const auto known = std::ranges::find(arguments_, argument);
  if (known != arguments_.end()) return known - arguments_.begin();
  arguments_.push_back(argument);
  return b.param(fmt::format("v{}", arguments_.size()), graph::byte_size(graph_[v].type), written);
}

BufferId DotWriter::scratch(int number, int64_t bytes, bool written) {
  const Argument argument{Argument::From::scratch, number};
  const auto known = std::ranges::find(arguments_, argument);
  if (known != arguments_.end()) return known - arguments_.begin();
  return scratch_param(fmt::format("s{}", arguments_.size()), number, bytes, written);
}

bool DotWriter::hold_constant(size_t load) {
  const DotLoad& l = problem_.loads[load];
  if (problem_.pick || l.scratch >= 0 || l.zeros || buffers_[load] < 0) return false;
  if (!graph::unwritten(graph_)[l.source]) return false;
  b.kernel.params[buffers_[load]].constant = true;
  return true;
}

// Merges indices whose strides continue each other. Division in 32 bits takes few instructions.
Expr DotWriter::along(const DotIndex& whole, const std::vector<DotIndex>& joint, Expr number,
                      const std::function<int64_t(const DotIndex&)>& stride) {
  struct Digit {
    int64_t extent, stride;
  };
  std::vector<Digit> digits;
  for (const DotIndex& i : joint) {
    if (!digits.empty() && digits.back().stride == stride(i) * i.extent)
      digits.back() = {digits.back().extent * i.extent, stride(i)};
    else
      digits.push_back({i.extent, stride(i)});
  }
  if (digits.size() < 2) return number * (digits.empty() ? stride(whole) : digits[0].stride);
  Expr rest = cast(number, Scalar::i32), at = i64(0);
  for (size_t d = digits.size(); d-- > 0;) {
    const Expr extent = b.integer(digits[d].extent, {Scalar::i32, 1});
    const Expr digit = d > 0 ? rest % extent : rest;
    if (d > 0) rest = rest / extent;
    at = at + cast(digit, Scalar::i64) * digits[d].stride;
  }
  return at;
}

Expr DotWriter::row_of(size_t load, Expr m) {
  return along(problem_.m, problem_.joint_m, m, [&](const DotIndex& i) { return i.strides[load]; });
}
Expr DotWriter::row_of_result(Expr m) {
  return along(problem_.m, problem_.joint_m, m, [](const DotIndex& i) { return i.result; });
}
Expr DotWriter::sum_of(size_t load, Expr k) {
  return along(problem_.k, problem_.joint_k, k, [&](const DotIndex& i) { return i.strides[load]; });
}

void DotWriter::add_digit(const DotIndex& index, Expr digit) {
  for (size_t l = 0; l < bases_.size(); ++l) bases_[l] = bases_[l] + digit * index.strides[l];
  result_base_ = result_base_ + digit * index.result;
}

void DotWriter::enter_outer(Expr flat) {
  enter_outer_of_block(flat);
  check_pick();
}

void DotWriter::check_pick() {
  if (!picked_.exists()) return;
  const Expr last = i64(problem_.pick->count - 1);
  const Expr inside = problem_.pick->some ? picked_ <= last : (i64(0) <= picked_) & (picked_ <= last);
  b.guard(inside, picked_, loop::kGuardIndex);
}

bool DotWriter::leaves_rows_out() const {
  return problem_.pick && problem_.pick->some && !problem_.blocks && !problem_.runs;
}

void DotWriter::enter_outer_of_block(Expr flat) {
  picked_ = {};
  bases_.clear();
  for (const DotLoad& l : problem_.loads) bases_.push_back(i64(l.offset));
  result_base_ = i64(0);
  Expr rest = flat;
  for (size_t d = problem_.outer.size(); d-- > 0;) {
    const DotIndex& index = problem_.outer[d];
    Expr digit = rest;
    if (d > 0) {
      digit = rest % i64(index.extent);
      rest = rest / i64(index.extent);
    }
    add_digit(index, digit);
    if (d == 0) block_ = digit;
  }
  if (problem_.pick) enter_picked();
}

void DotWriter::enter_picked() {
  const DotPick& pick = *problem_.pick;
  const auto entry = [&](int i) {
    const Expr at = block_ * (kPickEntry * 4) + i64(int64_t{i} * 4);
    return cast(b.load(table_, {Scalar::i32, 1}, at, 4), Scalar::i64);
  };
  if (problem_.runs) {
    first_ = entry(1);
    count_ = entry(2);
    for (size_t l = 0; l < 2; ++l) bases_[l] = bases_[l] + first_ * problem_.k.strides[l];
  } else if (problem_.blocks) {
    first_ = entry(1);
    count_ = entry(2);
    bases_[0] = bases_[0] + first_ * problem_.m.strides[0];
    bases_[1] = bases_[1] + entry(0) * pick.stride;
  } else {
    const Expr row = cast(read(pick.load, bases_[pick.load], 0, 1, {}), Scalar::i64);
    const Expr last = i64(pick.count - 1);
    picked_ = row;
    bases_[1] = bases_[1] + max(i64(0), min(row, last)) * pick.stride;
    if (pick.some) count_ = select(i64(0) <= row, i64(problem_.m.extent), i64(0));
  }
}

void DotWriter::where_row(Expr m, const std::function<void()>& body) {
  where(problem_.blocks || leaves_rows_out() ? m < count_ : Expr{}, body);
}

Expr DotWriter::used_tiles(Expr tiles, int64_t height) {
  if (!problem_.blocks) return tiles;
  return min(tiles, (count_ + i64(height - 1)) / i64(height));
}

Expr DotWriter::read(size_t load, Expr at, int64_t stride, int lanes, Expr count, int64_t beside) {
  const DotLoad& l = problem_.loads[load];
  const int64_t bytes = scalar_bytes(l.scalar);
  if (l.kind == DotLoad::Kind::splat) {
    const VType type{l.scalar, lanes};
    return is_float(l.scalar) ? b.real(l.splat, type) : b.integer(static_cast<int64_t>(l.splat), type);
  }
  // Lanes that do not exist read the first element, so that gathers stay in bounds.
  auto places = [&] {
    std::vector<int64_t> steps;
    for (int i = 0; i < lanes; ++i) steps.push_back(i * stride);
    Expr offsets = b.lanes_integer(steps, Scalar::i64);
    if (count.exists()) {
      std::vector<int64_t> numbers;
      for (int i = 0; i < lanes; ++i) numbers.push_back(i);
      const Expr inside = b.lanes_integer(numbers, Scalar::i64) < b.splat(count, lanes);
      offsets = select(inside, offsets, b.integer(0, {Scalar::i64, lanes}));
    }
    return b.splat(at, lanes) + offsets;
  };
  if (l.kind == DotLoad::Kind::iota) return cast(stride == 0 ? b.splat(at, lanes) : places(), l.scalar);
  if (l.kind == DotLoad::Kind::packed) {
    Unpack unpack(b, *l.format, buffers_[load], l.rows, l.columns);
    if (stride == 0 || lanes == 1) return b.splat(unpack.value_at(at), lanes);
    const Expr elements = places();
    Expr out = b.real(0, {Scalar::f32, lanes});
    for (int i = 0; i < lanes; ++i) out = b.insert(out, unpack.value_at(b.extract(elements, i)), i);
    return out;
  }
  if (stride == 0 || lanes == 1) return b.splat(b.load(buffers_[load], {l.scalar, 1}, at * bytes, bytes), lanes);
  if (stride == 1) {
    const int64_t align = bytes * std::gcd(beside, kMostBeside);
    return b.load(buffers_[load], {l.scalar, lanes}, at * bytes, align, count);
  }
  return b.gather(buffers_[load], l.scalar, places() * bytes);
}

Expr DotWriter::read_f32(size_t load, Expr at, int64_t stride, int lanes, Expr count) {
  const Expr v = read(load, at, stride, lanes, count);
  return b.type(v).scalar == Scalar::f32 ? v : cast(v, Scalar::f32);
}

Expr DotWriter::read_factor(size_t load, Expr at, int64_t stride, int lanes, Expr count) {
  const Expr v = read(load, at, stride, lanes, count);
  return b.type(v).scalar == problem_.sum ? v : cast(v, problem_.sum);
}

void DotWriter::ask_for(size_t load, Expr byte, int64_t ahead, int64_t bytes, loop::Cache into) {
  for (int64_t line = 0; line < bytes; line += kLine) b.prefetch(buffer(load), byte + (ahead + line), into);
}

// In sorted blocks each row has its own place in the result.
void DotWriter::finish_vector(Expr sums, Expr m, Expr n, Expr count) {
  if (!problem_.blocks) return finish_row(sums, m, n, count);
  b.branch(m < count_, [&] {
    const Expr at = (first_ + m) * 4;
    Expr row = cast(b.load(order_, {Scalar::i32, 1}, at, 4), Scalar::i64);
    const std::vector<Expr> bases = bases_;
    const Expr result_base = result_base_;
    const std::vector<DotIndex>& rows = problem_.pick->rows;
    for (size_t d = rows.size(); d-- > 0;) {
      add_digit(rows[d], d > 0 ? row % i64(rows[d].extent) : row);
      if (d > 0) row = row / i64(rows[d].extent);
    }
    finish_row(sums, m, n, count);
    bases_ = bases;
    result_base_ = result_base;
  });
}

void DotWriter::finish_row(Expr sums, Expr m, Expr n, Expr count) {
  put(finished(sums, m, n, count), m, n, count, scalar_bytes(problem_.result_scalar));
}

bool DotWriter::reads_along_n() const {
  for (size_t load = 2; load < problem_.loads.size(); ++load)
    if (problem_.loads[load].kind == DotLoad::Kind::memory && problem_.n.strides[load] == 1) return true;
  return false;
}

// Reads a load for the epilogue at (m, n ..).
Expr DotWriter::beside_sums(size_t load, Expr m, Expr n, int lanes, Expr count, int64_t beside) {
  const int64_t stride = problem_.n.strides[load];
  const auto keep = [&](const DotIndex& i) { beside = std::gcd(beside, i.extent > 1 ? i.strides[load] : 0); };
  beside = std::gcd(beside, problem_.loads[load].offset);
  for (const auto* indices : {&problem_.outer, &problem_.joint_m})
    for (const DotIndex& i : *indices) keep(i);
  if (problem_.joint_m.empty()) keep(problem_.m);
  if (problem_.pick)
    for (const DotIndex& i : problem_.pick->rows) keep(i);
  return read(load, bases_[load] + (row_of(load, m) + n * stride), stride, lanes, count, beside);
}

Expr DotWriter::finished(Expr sums, Expr m, Expr n, Expr count, int64_t beside) {
  return map_values(sums, m, n, count, beside).at(problem_.result);
}

DotWriter::MapValues DotWriter::map_values(Expr sums, Expr m, Expr n, Expr count, int64_t beside) {
  const int lanes = b.type(sums).lanes;
  for (const size_t load : problem_.row_scales) sums = sums * beside_sums(load, m, n, lanes, count, beside);
  MapValues values{{problem_.contract, sums}};
  for (ValueId map : problem_.epilogue) {
    const graph::Node& node = graph_[map];
    std::vector<Expr> operands;
    for (ValueId operand : node.operands) {
      if (!values.count(operand)) {
        size_t load = 2;
        while (load < problem_.loads.size() && problem_.loads[load].value != operand) ++load;
        LUMEN_CHECK(load < problem_.loads.size(), "an epilogue operand was not read");
        values[operand] = beside_sums(load, m, n, lanes, count, beside);
      }
      operands.push_back(values[operand]);
    }
    const Expr v = b.apply(node.attributes.formula, operands).at(0);
    values[map] = b.type(v).lanes == lanes ? v : b.splat(v, lanes);
  }
  return values;
}

void DotWriter::put(Expr out, Expr m, Expr n, Expr count, int align) {
  const int lanes = b.type(out).lanes;
  const int64_t bytes = scalar_bytes(problem_.result_scalar);
  const Expr at = result_base_ + (row_of_result(m) + n * problem_.n.result);
  if (problem_.n.result == 1 || lanes == 1) {
    b.store(result_, out, at * bytes, align, count);
    return;
  }
  for (int i = 0; i < lanes; ++i) {
    auto put = [&] { b.store(result_, b.extract(out, i), (at + i64(i * problem_.n.result)) * bytes, bytes); };
    where(count.exists() ? i64(i) < count : Expr{}, put);
  }
}

Step DotWriter::product(std::string plan) {
  Step s = step(std::move(plan));
  s.flops = problem_.flops();
  return s;
}

Step DotWriter::step(std::string plan) {
  Step s;
  s.kernel = b.finish();
  // Equal kernels have equal text, and the text's hash is part of the name; the plan alone does not state every stride.
  s.kernel.name = plan;
  const std::string identity = hash_text(loop::print(s.kernel)).hex().substr(0, 10);
  for (char& c : s.kernel.name)
    if (!isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.') c = '_';
  s.kernel.name += "_" + identity;
  for (const loop::BufferParam& param : s.kernel.params) s.bytes += param.bytes;
  if (problem_.pick && !problem_.pick->scatters && problem_.pick->row_count() < problem_.pick->count) {
    const auto share = problem_.pick->row_count() / static_cast<double>(problem_.pick->count);
    s.bytes -= (1 - share) * s.kernel.params[buffers_[1]].bytes;
  }
  s.arguments = std::move(arguments_);
  s.plan = std::move(plan);
  return s;
}

}  // namespace lumen::synth
