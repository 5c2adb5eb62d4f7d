// A task takes some units of a row, or some squares of rows that lie along m. Codes that are reordered go through
// private memory.
#include "kernel/synth/gemm/operand/operand_step.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/gemm/operand/coded_rows.h"
#include "kernel/synth/order/pairs.h"
#include "kernel/synth/order/transpose.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {
namespace {

constexpr int64_t kTaskElements = 1024, kNaturalElements = 2048;  // of a row
constexpr int64_t kMostUnrolled = 128;                            // elements, where tasks are threads
constexpr int64_t kSquares = 16;                                  // of a task
constexpr int64_t kAhead = 2;                                     // squares

class OperandWriter {
 public:
  OperandWriter(const graph::Graph& g, const DotProblem& only_a, const OperandLayout& layout, const OperandScratch& s,
                const machine::Machine& m)
      : p_(only_a),
        l_(layout),
        m_(m),
        lanes_(m.f32_lanes()),
        task_elements_(m.grain(kTaskElements)),
        threads_(m.wave > 1),
        w_(g, p_, "operand"),
        b_(w_.b),
        to_(declare_params(w_, layout, s, true)),
        coded_(only_a.loads[0].format ? coded_rows(only_a) : std::nullopt) {}

  Step write();
  Step write_squares();
  Step write_words();
  // Pairs of 16-bit floats: a vector has one word of each of as many rows.
  bool has_words() const {
    return l_.scale_group == 0 && l_.is_natural() && l_.tile_rows == lanes_ && l_.vector_bytes == 4 &&
           scalar_bytes(l_.type) == 2;
  }
  bool turns() const { return l_.scale_group == 0 && l_.is_natural() && p_.k.strides[0] != 1 && p_.m.strides[0] == 1; }

 private:
  bool gathers() const { return l_.scale_group == 0 && !l_.is_natural(); }
  int64_t units_of_task() const;
  void write_unit(const LaneOrder& order, Expr unit);
  void write_group(Expr first, int64_t count);
  void enter_codes(Expr first, int64_t count);
  Expr stored_codes(int64_t at, int64_t count);
  void write_sum(const std::vector<Expr>& codes, Expr first, int64_t at, Expr scale);
  void store_natural(Expr k, Expr x);
  struct Block {
    Expr outer, m;  // its first row
    Expr count;     // rows that exist; absent: all
  };
  Expr first_row(const Block& block) const { return block.outer * l_.outer_rows + block.m; }  // of scratch
  void each_square(int64_t squares, int64_t most, const std::function<void(const Block& block, Expr square)>& write);
  Expr read_across(const Block& block, Expr k);
  void ask_ahead(Expr k, int64_t count);
  Expr round_pair(Expr low, Expr high);
  Expr read(Expr k, int64_t count);
  Expr gather(const std::vector<int64_t>& elements);
  Expr chunk(const std::vector<int64_t>& elements);

  const DotProblem& p_;
  const OperandLayout& l_;
  const machine::Machine& m_;
  const int lanes_;
  const int64_t task_elements_;
  const bool threads_;
  DotWriter w_;
  Builder& b_;
  const OperandParams to_;
  const std::optional<CodedRows> coded_;     // a is stored in codes already
  std::unique_ptr<Unpack> held_;             // decodes the current group, if so
  BufferId natural_ = -1;                    // codes in natural order
  Expr row_, x_, first_code_, first_group_;  // row of scratch; its start in memory, and in scratch
  Expr unit_, k_, group_;                    // the current unit, and where it begins
};

// `count` elements exist from k on in a reordered unit; a natural one ends where the row does.
Expr OperandWriter::read(Expr k, int64_t count) {
  if (count <= 0) return w_.zero(lanes_);
  const int64_t stride = p_.k.strides[0];
  Expr left = count < lanes_ ? w_.i64(count) : Expr{};
  if (l_.is_natural() && l_.codes() != l_.columns) {
    left = l_.columns - k;
    left = max(min(left, w_.i64(lanes_)), w_.i64(0));
    if (stride != 1) k = min(k, w_.i64(l_.columns - 1));  // one element is read even if none exists
  }
  return w_.read_f32(0, x_ + k * stride, stride, lanes_, left);
}

void OperandWriter::store_natural(Expr k, Expr x) {
  const int64_t bytes = scalar_bytes(l_.type);
  const int all = b_.type(x).lanes, part = l_.vector_bytes / bytes;
  if (l_.tile_rows > 0 && part < all) {  // more than the contiguous part of a row
    for (int first = 0; first < all; first += part) {
      std::vector<int> mask(part);
      std::iota(mask.begin(), mask.end(), first);
      store_natural(k + first, b_.shuffle({x}, mask));
    }
    return;
  }
  Expr at = k * bytes;
  if (l_.tile_rows > 0) {  // k advances by whole vectors, none of which crosses one of the layout
    const Expr in_vector = at % l_.vector_bytes;
    at = at / l_.vector_bytes * (l_.tile_rows * l_.vector_bytes) + in_vector;
    at = at + row_ / l_.tile_rows * (l_.tile_rows * l_.row_bytes());
    at = at + row_ % l_.tile_rows * l_.vector_bytes;
  } else {
    at = at + row_ * l_.row_bytes();
  }
  b_.store(to_.codes, cast(x, l_.type), at);
}

// Enters the blocks of a group of codes.
void OperandWriter::enter_codes(Expr first, int64_t count) {
  const DotLoad& a = p_.loads[0];
  const Expr at = x_ + (k_ + first);
  held_ = std::make_unique<Unpack>(b_, *a.format, w_.buffer(0), a.rows, a.columns);
  held_->enter_row(at / a.columns);
  held_->enter_block(at / a.format->block, count / a.format->block);
}

// Codes of the group's elements from `at` on; the first `count` of the group exist, the rest is zero.
Expr OperandWriter::stored_codes(int64_t at, int64_t count) {
  std::vector<int64_t> elements, exist;
  for (int64_t i = at; i < at + lanes_; ++i) {
    elements.push_back(i < count ? i : 0);
    exist.push_back(i < count ? 1 : 0);
  }
  const Expr codes = cast(held_->expression(coded_->form.q, elements, true), Scalar::i32);
  if (at + lanes_ <= count) return codes;
  return select(b_.lanes_integer(exist, Scalar::i32) != 0, codes, b_.integer(0, {Scalar::i32, lanes_}));
}

// Writes scale, sums and codes of the unit's elements from `first` on, of which `count` exist.
void OperandWriter::write_group(Expr first, int64_t count) {
  const VType one{Scalar::f32, 1};
  std::vector<Expr> parts, codes;
  Expr most, scale, inverse;
  if (coded_) enter_codes(first, count);
  for (int64_t at = 0; at < l_.scale_group; at += lanes_) {
    parts.push_back(coded_ ? stored_codes(at, count) : read(k_ + (first + at), count - at));
    if (coded_ || at >= count) continue;
    const Expr size = abs(parts.back());
    most = !most.exists() ? size : max(most, size);
  }
  if (coded_) {
    scale = held_->expression(coded_->form.scale, {0}, true);
  } else {
    const Expr largest = b_.fold(ScalarOp::max_, most);
    const Expr zero = b_.real(0, one), full = b_.real(127, one);
    inverse = select(zero < largest, full / largest, zero);
    scale = largest / full;
  }
  if (!l_.scales_by_sum) b_.store(to_.scales, scale, (row_ * l_.scales() + unit_) * 4, 4);
  int64_t summed = 0;
  const auto sum_up_to = [&](int64_t end) {
    for (; l_.has_sums() && summed + l_.sum_group <= end && summed < count; summed += l_.sum_group)
      write_sum(codes, first, summed, scale);
  };
  for (const Expr part : parts) {
    const auto at = std::ssize(codes) * lanes_;
    codes.push_back(coded_ ? part : cast(rint(part * b_.splat(inverse, lanes_)), Scalar::i32));
    if (natural_ >= 0)
      b_.store(natural_, cast(codes.back(), Scalar::i8), first + at);
    else
      store_natural(k_ + (first + at), codes.back());
    if (natural_ < 0) sum_up_to(at + lanes_);  // with many codes: none stays in a register
  }
  sum_up_to(l_.scale_group);
}

// Writes the numbers of a group of sums, whose codes begin at `at`: whole vectors, or part of one.
void OperandWriter::write_sum(const std::vector<Expr>& codes, Expr first, int64_t at, Expr scale) {
  Expr total;
  for (int64_t i = at; i < at + l_.sum_group; i += lanes_) {
    Expr part = codes[i / lanes_];
    if (l_.sum_group < lanes_) {
      std::vector<int> mask;
      for (int64_t lane = 0; lane < l_.sum_group; ++lane) mask.push_back(i % lanes_ + lane);
      part = b_.shuffle({part}, mask);
    }
    total = !total.exists() ? part : total + part;
  }
  const Expr whole = b_.fold(ScalarOp::add_, total), sum = cast(whole, Scalar::f32);
  const Expr place = (group_ + (first / l_.sum_group + at / l_.sum_group)) * 4;
  if (l_.scales_by_sum) b_.store(to_.scales, scale, place, 4);
  if (l_.starts) b_.store(to_.starts, whole * l_.bias, place, 4);
  if (l_.sums) b_.store(to_.sums, l_.scales_by_sum ? scale * sum : sum, place, 4);
}

// Gathers elements of a unit from memory; -1 is zero.
Expr OperandWriter::gather(const std::vector<int64_t>& elements) {
  std::vector<int64_t> places, exist;
  for (const int64_t e : elements) {
    places.push_back(std::max<int64_t>(e, 0) * 4);
    exist.push_back(e >= 0 ? 1 : 0);
  }
  const Expr base = b_.splat((x_ + k_) * 4, lanes_);
  Expr x = b_.gather(w_.buffer(0), Scalar::f32, base + b_.lanes_integer(places, Scalar::i64));
  if (std::count(exist.begin(), exist.end(), 0) > 0)
    x = select(b_.lanes_integer(exist, Scalar::i32) != 0, x, w_.zero(lanes_));
  return cast(x, l_.type);
}

// Codes of some elements from private memory; -1 is zero.
Expr OperandWriter::chunk(const std::vector<int64_t>& elements) {
  const int lanes = elements.size();
  int64_t low = -1, high = -1;
  for (const int64_t e : elements)
    if (e >= 0) {
      low = low < 0 ? e : std::min(low, e);
      high = std::max(high, e);
    }
  const VType bytes{Scalar::i8, lanes};
  if (low < 0) return b_.integer(0, bytes);
  const int64_t span = high - low + 1;
  if (span > 64) {
    const std::ptrdiff_t half = elements.size() / 2;
    const Expr a = chunk({elements.begin(), elements.begin() + half});
    const Expr c = chunk({elements.begin() + half, elements.end()});
    if (half == 1) return b_.insert(b_.splat(a, 2), c, 1);
    std::vector<int> mask;
    for (int l = 0; l < lanes; ++l) mask.push_back(l);
    return b_.shuffle({a, c}, mask);
  }
  int64_t wide = lanes;
  while (wide < span) wide *= 2;
  std::vector<int> mask;
  for (const int64_t e : elements) mask.push_back(e < 0 ? -1 : static_cast<int>(e - low));
  if (wide == 1) return b_.load(natural_, bytes, w_.i64(low));
  return b_.shuffle({b_.load(natural_, {Scalar::i8, static_cast<int>(wide)}, w_.i64(low))}, mask);
}

void OperandWriter::write_unit(const LaneOrder& order, Expr unit) {
  unit_ = unit;
  if (l_.has_sums()) group_ = first_group_ + unit * l_.unit_groups();
  Expr code;
  if (!l_.is_natural()) code = first_code_ + unit * l_.unit_codes();
  k_ = unit * l_.order.unit.elements;
  if (l_.scale_group > 0) {
    const int64_t whole = order.elements / l_.scale_group * l_.scale_group;
    const auto one = [&](Expr first) { write_group(first, l_.scale_group); };
    // Lanes have few registers: many groups go through private memory one after the other.
    if (threads_ && whole > std::max(kMostUnrolled, l_.scale_group))
      b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole), l_.scale_group, one);
    else
      for (int64_t first = 0; first < whole; first += l_.scale_group) one(w_.i64(first));
    if (whole < order.elements) write_group(w_.i64(whole), order.elements - whole);
  } else if (l_.is_natural()) {
    store_natural(k_, read(k_, lanes_));
  }
  const int part = gathers() ? lanes_ : std::min(16, l_.lanes);
  const int bytes = scalar_bytes(l_.type);
  int64_t written = 0;
  for (const std::vector<int64_t>& vector : order.vectors)
    for (int lane = 0; lane < l_.lanes; lane += part, written += part) {
      const std::vector<int64_t> elements(vector.begin() + lane, vector.begin() + lane + part);
      b_.store(to_.codes, gathers() ? gather(elements) : chunk(elements), (code + written) * bytes, bytes);
    }
}

// Gathers are slow: a task has one unit of them.
int64_t OperandWriter::units_of_task() const {
  if (gathers() || l_.order.units == 0) return 1;
  const int64_t elements = l_.is_natural() ? kNaturalElements : task_elements_;
  return std::min(l_.order.units, std::max<int64_t>(1, elements / l_.order.unit.elements));
}

Step OperandWriter::write() {
  const RowOrder& order = l_.order;
  const int64_t per_task = units_of_task(), whole = ceil_div(order.units, per_task);
  const int64_t parts = whole + (order.rest.elements > 0 ? 1 : 0);
  b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * p_.m.extent * parts), 1, [&](Expr task) {
    const Expr row = task / parts;
    const Expr part = task % parts;
    const Expr outer = row / p_.m.extent;
    w_.enter_outer(outer);
    const Expr m = row % p_.m.extent;
    row_ = l_.outer_rows == 0 || l_.outer_rows == p_.m.extent ? row : outer * l_.outer_rows + m;
    x_ = w_.base(0) + m * p_.m.strides[0];
    if (!l_.is_natural()) first_code_ = row_ * l_.codes();
    if (l_.has_sums()) first_group_ = row_ * l_.groups();
    // Vectors are read past their elements: the rest of private memory stays undefined and unused.
    if (l_.scale_group > 0 && !l_.is_natural())
      natural_ = b_.alloc(std::max(order.unit.elements, order.rest.elements) + 128);
    const auto units = [&] {
      if (per_task == 1) return write_unit(order.unit, part);
      const Expr first = part * per_task;
      b_.loop(LoopKind::serial, first, min(first + per_task, w_.i64(order.units)), 1,
              [&](Expr unit) { write_unit(order.unit, unit); });
    };
    const auto rest = [&] { write_unit(order.rest, w_.i64(order.units)); };
    if (order.rest.elements == 0)
      units();
    else if (order.units == 0)
      rest();
    else
      b_.branch(part < whole, units, rest);
  });
  return w_.step(describe(l_));
}

// Blocks of rows, as many as a vector has lanes: a task takes some of the squares that a block has along K.
void OperandWriter::each_square(int64_t squares, int64_t most,
                                const std::function<void(const Block& block, Expr square)>& write) {
  const int64_t blocks = ceil_div(p_.m.extent, lanes_), per_task = std::min(squares, most),
                parts = ceil_div(squares, per_task);
  b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * parts * blocks), 1, [&](Expr task) {
    Block block;
    block.m = task % blocks * lanes_;
    const Expr rest = task / blocks;
    const Expr first = rest % parts * per_task;
    block.outer = rest / parts;
    w_.enter_outer(block.outer);
    if (p_.m.extent % lanes_ != 0) block.count = min(p_.m.extent - block.m, w_.i64(lanes_));
    const Expr last = min(first + per_task, w_.i64(squares));
    b_.loop(LoopKind::serial, first, last, 1, [&](Expr square) { write(block, square); });
  });
}

// Element k of every row of a block; zeros past the last.
Expr OperandWriter::read_across(const Block& block, Expr k) {
  Expr count = block.count;
  if (l_.codes() != p_.k.extent) {
    const Expr inside = k < p_.k.extent;
    count = select(inside, !count.exists() ? w_.i64(lanes_) : count, w_.i64(0));
    k = min(k, w_.i64(p_.k.extent - 1));
  }
  return w_.read_f32(0, w_.base(0) + block.m + k * p_.k.strides[0], 1, lanes_, count);
}

// Rows along m in memory, rounded: squares of them are transposed.
Step OperandWriter::write_squares() {
  each_square(l_.codes() / lanes_, kSquares, [&](const Block& block, Expr square) {
    const Expr k0 = square * lanes_;
    std::vector<Expr> rows;
    for (int i = 0; i < lanes_; ++i) rows.push_back(read_across(block, k0 + i));
    transpose(b_, rows);
    const Expr row = first_row(block);
    for (int i = 0; i < lanes_; ++i) {
      const auto store = [&] {
        row_ = row + i;
        store_natural(k0, rows[i]);
      };
      if (block.count.exists())
        b_.branch(i < block.count, store);
      else
        store();
    }
  });
  return w_.step(fmt::format("round and turn {}x{} to {}", l_.rows, l_.columns, scalar_name(l_.type)));
}

// Prefetch: other cores have just written this data, and a task reads a few vectors of each row at a time.
void OperandWriter::ask_ahead(Expr k, int64_t count) {
  const DotLoad& a = p_.loads[0];
  if (m_.ahead_bytes == 0 || a.kind != DotLoad::Kind::memory) return;
  const int64_t bytes = scalar_bytes(a.scalar);
  w_.ask_for(0, (x_ + k) * bytes, 0, count * bytes, loop::Cache::first);
}

// Rounds two vectors of f32 into one. Denormals that the machine's instruction flushes, products would flush.
Expr OperandWriter::round_pair(Expr low, Expr high) {
  const std::string row = round_pair_row(m_, l_.type, lanes_);
  if (!row.empty()) return b_.inst(row, {l_.type, 2 * lanes_}, {high, low});
  std::vector<int> all(2 * lanes_);
  std::iota(all.begin(), all.end(), 0);
  return b_.shuffle({cast(low, l_.type), cast(high, l_.type)}, all);
}

// A vector of words holds two neighbours along K of each of a block's rows: rows along K are transposed word by word,
// rows along m are interleaved. Rows past the last repeat it; elements of K past the last are zero.
Step OperandWriter::write_words() {
  const int64_t step = turns() ? 2 : 2 * lanes_;
  each_square(l_.codes() / step, kSquares * 2 * lanes_ / step, [&](const Block& block, Expr square) {
    const Expr k0 = square * step;
    const Expr at = first_row(block) * l_.row_bytes() + k0 / 2 * (lanes_ * 4);
    if (turns()) {
      const std::vector<Expr> pair{cast(read_across(block, k0), l_.type), cast(read_across(block, k0 + 1), l_.type)};
      b_.store(to_.codes, b_.shuffle(pair, by_turns(0, lanes_, lanes_)), at, 4);
      return;
    }
    std::vector<Expr> rows;
    for (int i = 0; i < lanes_; ++i) {
      const Expr row = block.count.exists() ? min(block.m + i, w_.i64(p_.m.extent - 1)) : block.m + i;
      x_ = w_.base(0) + row * p_.m.strides[0];
      ask_ahead(k0 + kAhead * step, step);
      rows.push_back(round_pair(read(k0, lanes_), read(k0 + lanes_, lanes_)));
    }
    transpose(b_, rows, 2);
    for (int i = 0; i < lanes_; ++i) b_.store(to_.codes, rows[i], at + i * (lanes_ * 4), 4);
  });
  return w_.step(fmt::format("round {}x{} to {} in words", l_.rows, l_.columns, scalar_name(l_.type)));
}

}  // namespace

OperandScratch write_operand_step(const graph::Graph& g, const DotProblem& p, const OperandLayout& layout,
                                  const machine::Machine& m, Synthesis& out) {
  const DotProblem only_a = p.only_a();
  const OperandScratch s = declare_scratch(layout, out);
  OperandWriter writer(g, only_a, layout, s, m);
  out.steps.push_back(writer.has_words() ? writer.write_words()
                      : writer.turns()   ? writer.write_squares()
                                         : writer.write());
  return s;
}

}  // namespace lumen::synth
