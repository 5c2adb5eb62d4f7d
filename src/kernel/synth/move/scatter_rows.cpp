// See scatter_rows.h. A radix sort, least significant digit first: blocks count the digits of a part of the numbers,
// then every lane owns a digit, walks the part and places its numbers. No two lanes write one place, none waits for
// another.
#include "kernel/synth/move/scatter_rows.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/check.h"
#include "base/round_up.h"
#include "kernel/synth/body/nest.h"
#include "kernel/synth/reduce/reduce.h"

namespace lumen::synth {

using loop::Space;

namespace {

constexpr int64_t kFewest = 32;     // values worth sorting
constexpr int64_t kChunk = 512;     // numbers in shared memory
constexpr int64_t kMostParts = 64;  // of the numbers, each with counts of its own
constexpr int kMostDigit = 8;       // bits
constexpr int64_t kBytes = 16;      // a lane reads at once
constexpr int64_t kAhead = 4;       // loads in flight

const VType kI32{Scalar::i32, 1}, kI32x4{Scalar::i32, 4};

class Scatter {
 public:
  Scatter(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : g_(plan.graph), group_(group), node_(plan.graph[group.root]), target_(target) {
    const std::vector<int64_t> shape = extents_of(g_[value()].type.shape);
    const size_t lead = g_[index()].type.shape.size();
    whole_ = extents_of(node_.type.shape);
    from_ = follow(plan, group, value());
    which_ = follow(plan, group, index());
    numbers_.assign(shape.begin(), shape.begin() + lead);
    const std::vector<int64_t> columns(shape.begin() + lead, shape.end());
    const std::vector<int64_t> strides(from_.strides.begin() + lead, from_.strides.end());
    columns_ = collapse(columns, {strides, dense_strides_of(columns)}, {});
    rows_ = whole_[0];
    count_ = product(numbers_);
    width_ = product(columns);
    type_ = node_.type.element.scalar;
    sum_ = accumulator_type(type_);
  }

  bool fits() const {
    const auto in_memory = [&](const Access& a) {
      return std::find(group_.inputs.begin(), group_.inputs.end(), a.source) != group_.inputs.end() &&
             !g_[a.source].type.element.format;
    };
    constexpr int64_t most = int64_t{1} << 31;
    return target_.wave > 1 && in_memory(from_) && in_memory(which_) && g_[value()].type.element.scalar == type_ &&
           g_[index()].type.element.scalar == Scalar::i32 && count_ >= kFewest && count_ < most && rows_ > 0 &&
           rows_ < most && width_ > 0 && type_ != Scalar::boolean;
  }

  Synthesis run() {
    const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(rows_ - 1))));
    const int passes = (bits + kMostDigit - 1) / kMostDigit;
    digit_ = (bits + passes - 1) / passes;
    lanes_ = std::max<int64_t>(int64_t{1} << digit_, target_.wave);
    part_ = std::max(kChunk, round_up(ceil_div(count_, kMostParts), kChunk));
    parts_ = ceil_div(count_, part_);
    // Values of a piece: about as many as a list has pieces, if all values are in one list.
    piece_ = std::clamp<int64_t>(int64_t{1} << (std::bit_width(static_cast<uint64_t>(count_)) / 2 - 1), 8, 1024);
    plan_columns();

    counts_ = scratch(parts_ * lanes_ * 4);
    keys_ = {scratch(count_ * 4), scratch(count_ * 4)};
    order_ = {scratch(count_ * 4), scratch(count_ * 4)};
    begins_ = scratch((rows_ + 1) * 4);
    for (int pass = 0; pass < passes; ++pass) {
      count_digits(pass);
      place(pass);
    }
    const size_t sorted = (passes - 1) % 2;
    find_begins(keys_[sorted]);
    if (count_ >= piece_) {
      pieces_ = scratch(count_ / piece_ * width_ * scalar_bytes(sum_));
      add_pieces(keys_[sorted], order_[sorted]);
    }
    add_rows(order_[sorted]);
    return std::move(out_);
  }

 private:
  graph::ValueId value() const { return node_.operands[0]; }
  graph::ValueId index() const { return node_.operands[1]; }
  int scratch(int64_t bytes) {
    out_.scratch.push_back(bytes);
    return out_.scratch.size() - 1;
  }
  BufferId numbers(StepBuilder& d, int which, bool written) { return d.scratch(which, count_ * 4, written); }
  static Expr narrow(Builder& b, Expr x) { return cast(x, Scalar::i32); }
  static Expr wide(Builder& b, Expr x) { return cast(x, Scalar::i64); }
  static Expr bytes(Builder& b, Expr number) { return number * 4; }
  void finish(StepBuilder& d, const std::string& plan, double bytes) { out_.steps.push_back(d.finish(plan, 0, bytes)); }

  // The offset of a line, by its number.
  Expr offset(Builder& b, Expr number, const std::vector<int64_t>& extents, const std::vector<int64_t>& strides) const {
    const Collapsed c = collapse(extents, {{strides.begin(), strides.begin() + extents.size()}}, {});
    const std::vector<Expr> at = digits(b, number, c.extents);
    Expr sum = b.i64(0);
    for (size_t d = 0; d < at.size(); ++d) sum = sum + at[d] * c.strides[0][d];
    return sum;
  }

  // The target row of a number's value; outside ones are guarded and clamped so that the kernel may go on.
  Expr first_key(Builder& b, BufferId from, Expr number, bool guards) const {
    const Expr at = which_.offset + offset(b, number, numbers_, which_.strides);
    const Expr x = wide(b, b.load(from, kI32, bytes(b, at), 4));
    if (guards) b.guard((0 <= x) & (x < rows_), x, loop::kGuardIndex);
    return narrow(b, max(b.i64(0), min(x, b.i64(rows_ - 1))));
  }
  Expr digit_of(Builder& b, Expr key, int pass) const {
    const Expr shifted = key >> (int64_t{pass} * digit_);
    return shifted & ((int64_t{1} << digit_) - 1);
  }

  void each_lane(Builder& b, const std::function<void(Expr)>& body) {
    b.loop(LoopKind::lane, b.i64(0), b.i64(lanes_), 1, body);
  }
  // Chunks of a block's part: `fill` puts number `number` at place `place` of the chunk, or `none` marks it as empty;
  // then every lane walks it.
  void each_chunk(Builder& b, Expr block, const std::function<void(Expr number, Expr place)>& fill,
                  const std::function<void(Expr place)>& none, const std::function<void(Expr lane)>& walk) {
    const Expr first = block * part_;
    b.loop(LoopKind::serial, b.i64(0), b.i64(part_), kChunk, [&](Expr chunk) {
      b.barrier();
      each_lane(b, [&](Expr lane) {
        b.loop(LoopKind::serial, lane, b.i64(kChunk), lanes_, [&](Expr at) {
          const Expr number = first + chunk + at, place = bytes(b, at);
          b.branch(number < count_, [&] { fill(number, place); }, [&] { none(place); });
        });
      });
      b.barrier();
      each_lane(b, walk);
    });
  }

  // counts[part][digit]
  void count_digits(int pass) {
    StepBuilder d(g_);
    Builder& b = d.b;
    const BufferId from = pass == 0 ? d.value(which_.source, false) : numbers(d, keys_[(pass - 1) % 2], false);
    const BufferId counts = d.scratch(counts_, parts_ * lanes_ * 4, true);
    b.loop(LoopKind::grid, b.i64(0), b.i64(parts_), 1, [&](Expr block) {
      const BufferId seen = b.alloc(kChunk * 4, 16, Space::shared), own = b.alloc(16, 16);
      each_lane(b, [&](Expr) { b.store(own, b.integer(0, kI32x4), b.i64(0), 16); });
      each_chunk(
          b, block,
          [&](Expr number, Expr place) {
            const Expr key = pass == 0 ? first_key(b, from, number, true) : b.load(from, kI32, bytes(b, number), 4);
            b.store(seen, digit_of(b, key, pass), place, 4);
          },
          [&](Expr place) { b.store(seen, b.integer(-1, kI32), place, 4); },
          [&](Expr lane) {
            const Expr mine = b.splat(narrow(b, lane), 4);
            b.loop(LoopKind::serial, b.i64(0), b.i64(kChunk * 4), 16, [&](Expr at) {
              const Expr hit = b.load(seen, kI32x4, at, 16) == mine;
              const Expr one = select(hit, b.integer(1, kI32x4), b.integer(0, kI32x4));
              b.store(own, b.load(own, kI32x4, b.i64(0), 16) + one, b.i64(0), 16);
            });
          });
      each_lane(b, [&](Expr lane) {
        const Expr all = b.fold(ScalarOp::add_, b.load(own, kI32x4, b.i64(0), 16));
        b.store(counts, all, bytes(b, block * lanes_ + lane), 4);
      });
    });
    finish(d, fmt::format("scatter_add count {} by digit {} of {} bits", count_, pass, digit_), 4.0 * count_);
  }

  // Sorts numbers and keys by this digit, stably.
  void place(int pass) {
    StepBuilder d(g_);
    Builder& b = d.b;
    const bool first = pass == 0;
    const size_t to = pass % 2, before = 1 - to;
    const BufferId from = first ? d.value(which_.source, false) : numbers(d, keys_[before], false);
    const BufferId from_order = first ? -1 : numbers(d, order_[before], false);
    const BufferId counts = d.scratch(counts_, parts_ * lanes_ * 4, false);
    const BufferId to_keys = numbers(d, keys_[to], true), to_order = numbers(d, order_[to], true);
    b.loop(LoopKind::grid, b.i64(0), b.i64(parts_), 1, [&](Expr block) {
      const BufferId seen = b.alloc(kChunk * 4, 16, Space::shared), keys = b.alloc(kChunk * 4, 16, Space::shared),
                     order = b.alloc(kChunk * 4, 16, Space::shared), totals = b.alloc(lanes_ * 4, 16, Space::shared);
      const BufferId next = b.alloc(4, 4), sum = b.alloc(4, 4);
      const auto get = [&](BufferId x) { return b.load(x, kI32, b.i64(0), 4); };
      const auto add = [&](BufferId x, Expr y) { b.store(x, get(x) + y, b.i64(0), 4); };
      const auto add_all = [&](BufferId x, BufferId numbers_of, Expr begin, Expr end,
                               const std::function<Expr(Expr)>& place) {
        walk(b, begin, end, [&](Expr at, int64_t together) {
          std::vector<Expr> some;
          for (int64_t i = 0; i < together; ++i) some.push_back(b.load(numbers_of, kI32, bytes(b, place(at + i)), 4));
          for (const Expr one : some) add(x, one);
        });
      };
      // After all with smaller digits, and those of earlier parts with this one.
      each_lane(b, [&](Expr lane) {
        const auto of_part = [&](Expr part) { return part * lanes_ + lane; };
        b.store(next, b.integer(0, kI32), b.i64(0), 4);
        add_all(next, counts, b.i64(0), block, of_part);
        b.store(sum, get(next), b.i64(0), 4);
        add_all(sum, counts, block, b.i64(parts_), of_part);
        b.store(totals, get(sum), bytes(b, lane), 4);
      });
      b.barrier();
      each_lane(b, [&](Expr lane) { add_all(next, totals, b.i64(0), lane, [](Expr at) { return at; }); });
      each_chunk(
          b, block,
          [&](Expr number, Expr place) {
            const Expr key = first ? first_key(b, from, number, false) : b.load(from, kI32, bytes(b, number), 4);
            b.store(seen, digit_of(b, key, pass), place, 4);
            b.store(keys, key, place, 4);
            b.store(order, first ? narrow(b, number) : b.load(from_order, kI32, bytes(b, number), 4), place, 4);
          },
          [&](Expr place) { b.store(seen, b.integer(-1, kI32), place, 4); },
          [&](Expr lane) {
            const Expr mine = narrow(b, lane);
            b.loop(LoopKind::serial, b.i64(0), b.i64(kChunk * 4), 16, [&](Expr at) {
              const Expr four = b.load(seen, kI32x4, at, 16);
              for (int i = 0; i < 4; ++i)
                b.branch(b.extract(four, i) == mine, [&] {
                  const Expr here = at + 4 * i, there = bytes(b, wide(b, get(next)));
                  b.store(to_keys, b.load(keys, kI32, here, 4), there, 4);
                  b.store(to_order, b.load(order, kI32, here, 4), there, 4);
                  add(next, b.integer(1, kI32));
                });
            });
          });
    });
    finish(d, fmt::format("scatter_add sort {} by digit {} of {} bits", count_, pass, digit_), 16.0 * count_);
  }

  // begins[row]: how many of the sorted keys are smaller, for every row and the end.
  void find_begins(int sorted) {
    StepBuilder d(g_);
    Builder& b = d.b;
    const BufferId keys = numbers(d, sorted, false), begins = d.scratch(begins_, (rows_ + 1) * 4, true);
    b.loop(LoopKind::parallel, b.i64(0), b.i64(rows_ + 1), 1, [&](Expr row) {
      Expr below = b.i64(0);
      for (int64_t step = std::bit_floor(static_cast<uint64_t>(count_)); step > 0; step /= 2) {
        const Expr next = below + step;
        const Expr last = min(next - 1, b.i64(count_ - 1));
        const Expr key = wide(b, b.load(keys, kI32, bytes(b, last), 4));
        const Expr is_below = (next <= count_) & (key < row);
        below = select(is_below, next, below);
      }
      b.store(begins, narrow(b, below), bytes(b, row), 4);
    });
    finish(d, fmt::format("scatter_add begins of {} rows", rows_), 4.0 * rows_);
  }

  // A task has `ways_` vectors of a row, such that adjacent tasks read adjacent vectors.
  void plan_columns() {
    const int64_t inner = columns_.extents.back();
    const int wanted = kBytes / std::max<int64_t>(scalar_bytes(type_), scalar_bytes(sum_));
    const auto reaches = [&](int64_t n) {
      bool all =
          columns_.strides[0].back() == 1 && columns_.strides[1].back() == 1 && inner % n == 0 && from_.offset % n == 0;
      for (size_t d = 0; d < numbers_.size(); ++d) all = all && from_.strides[d] % n == 0;
      for (const auto& strides : columns_.strides)
        for (size_t d = 0; d + 1 < strides.size(); ++d) all = all && strides[d] % n == 0;
      return all;
    };
    vector_ = reaches(wanted) ? wanted : 1;
    // Sums of 16-bit floats are half a line apart; two vectors hide more memory latency.
    ways_ = columns_.extents.size() == 1 && width_ % (2 * vector_ * target_.wave) == 0 ? 2 : 1;
    beside_ = ways_ > 1 ? target_.wave : width_ / vector_;
  }
  int64_t tasks_of_row() const { return width_ / vector_ / ways_; }

  struct Spot {
    std::vector<Expr> from, to;  // elements, one per way
  };
  Spot columns_of(Builder& b, Expr task) const {
    Spot spot;
    Expr first = task % beside_ * vector_;
    if (tasks_of_row() != beside_) first = first + task / beside_ * (beside_ * vector_ * ways_);
    for (int way = 0; way < ways_; ++way) {
      const std::vector<Expr> at = digits(b, first + way * beside_ * vector_, columns_.extents);
      Expr from = b.i64(from_.offset), to = b.i64(0);
      for (size_t d = 0; d < at.size(); ++d) {
        from = from + at[d] * columns_.strides[0][d];
        to = to + at[d] * columns_.strides[1][d];
      }
      spot.from.push_back(from);
      spot.to.push_back(to);
    }
    return spot;
  }

  // sums += values of the sorted places first .. end.
  void add_values(Builder& b, const std::vector<BufferId>& sums, BufferId values, BufferId order, const Spot& spot,
                  Expr first, Expr end) {
    const auto some = [&](Expr at, int64_t together) {
      std::vector<Expr> lines, x;
      for (int64_t i = 0; i < together; ++i) {
        const Expr number = b.load(order, kI32, bytes(b, at + i), 4);
        lines.push_back(offset(b, wide(b, number), numbers_, from_.strides));
      }
      const int align = vector_ * scalar_bytes(type_);
      for (const Expr line : lines)
        for (const Expr from : spot.from)
          x.push_back(b.load(values, {type_, vector_}, (line + from) * scalar_bytes(type_), align));
      for (size_t i = 0; i < x.size(); ++i) add(b, sums[i % sums.size()], cast(x[i], sum_));
    };
    walk(b, first, end, some);
  }
  // Calls `some` for places first .. end, several at once.
  void walk(Builder& b, Expr first, Expr end, const std::function<void(Expr, int64_t)>& some) {
    const Expr length = end - first;
    const Expr whole = end - length % kAhead;
    b.loop(LoopKind::serial, first, whole, kAhead, [&](Expr at) { some(at, kAhead); });
    b.loop(LoopKind::serial, whole, end, 1, [&](Expr at) { some(at, 1); });
  }
  std::vector<BufferId> zeros(Builder& b) const {
    std::vector<BufferId> sums;
    for (int way = 0; way < ways_; ++way) {
      sums.push_back(b.alloc(vector_ * scalar_bytes(sum_), 16));
      const VType type{sum_, vector_};
      b.store(sums.back(), is_float(sum_) ? b.real(0, type) : b.integer(0, type), b.i64(0), align());
    }
    return sums;
  }
  int align() const { return vector_ * scalar_bytes(sum_); }
  Expr get(Builder& b, BufferId sum) const { return b.load(sum, {sum_, vector_}, b.i64(0), align()); }
  void add(Builder& b, BufferId sum, Expr x) const { b.store(sum, get(b, sum) + x, b.i64(0), align()); }

  // Sums the pieces that are entirely in one row's list.
  void add_pieces(int sorted, int ordered) {
    StepBuilder d(g_);
    Builder& b = d.b;
    const int64_t pieces = count_ / piece_, size = scalar_bytes(sum_);
    const BufferId values = d.value(from_.source, false), keys = numbers(d, sorted, false),
                   order = numbers(d, ordered, false), out = d.scratch(pieces_, pieces * width_ * size, true);
    b.loop(LoopKind::parallel, b.i64(0), b.i64(pieces * tasks_of_row()), 1, [&](Expr task) {
      const Expr piece = task / tasks_of_row();
      const Expr first = piece * piece_, end = first + piece_;
      const Expr low = b.load(keys, kI32, bytes(b, first), 4);
      const Expr high = b.load(keys, kI32, bytes(b, end - 1), 4);
      b.branch(low == high, [&] {
        const Spot spot = columns_of(b, task % tasks_of_row());
        const std::vector<BufferId> sums = zeros(b);
        add_values(b, sums, values, order, spot, first, end);
        for (size_t way = 0; way < sums.size(); ++way)
          b.store(out, get(b, sums[way]), (piece * width_ + spot.to[way]) * size, align());
      });
    });
    finish(d, fmt::format("scatter_add chunks of {} x{}x{}", piece_, vector_, ways_), 0);
  }

  void add_rows(int ordered) {
    StepBuilder d(g_);
    Builder& b = d.b;
    const BufferId values = d.value(from_.source, false), order = numbers(d, ordered, false),
                   begins = d.scratch(begins_, (rows_ + 1) * 4, false);
    const int64_t size = scalar_bytes(sum_);
    const BufferId pieces = pieces_ < 0 ? -1 : d.scratch(pieces_, count_ / piece_ * width_ * size, false);
    const BufferId out = d.value(group_.root, true);
    b.loop(LoopKind::parallel, b.i64(0), b.i64(rows_ * tasks_of_row()), 1, [&](Expr task) {
      const Expr row = task / tasks_of_row();
      const Spot spot = columns_of(b, task % tasks_of_row());
      const Expr first = wide(b, b.load(begins, kI32, bytes(b, row), 4));
      const Expr end = wide(b, b.load(begins, kI32, bytes(b, row + 1), 4));
      const std::vector<BufferId> sums = zeros(b);
      const auto by_one = [&](Expr from, Expr to) { add_values(b, sums, values, order, spot, from, to); };
      if (pieces < 0) {
        by_one(first, end);
      } else {
        const Expr begin = (first + (piece_ - 1)) / piece_;
        const Expr behind = end / piece_;  // numbers of pieces
        b.branch(
            begin < behind,
            [&] {
              by_one(first, begin * piece_);
              walk(b, begin, behind, [&](Expr at, int64_t together) {
                std::vector<Expr> x;
                for (int64_t i = 0; i < together; ++i)
                  for (const Expr to : spot.to)
                    x.push_back(b.load(pieces, {sum_, vector_}, ((at + i) * width_ + to) * size, align()));
                for (size_t i = 0; i < x.size(); ++i) add(b, sums[i % sums.size()], x[i]);
              });
              by_one(behind * piece_, end);
            },
            [&] { by_one(first, end); });
      }
      for (size_t way = 0; way < sums.size(); ++way)
        b.store(out, cast(get(b, sums[way]), type_), (row * width_ + spot.to[way]) * scalar_bytes(type_),
                vector_ * scalar_bytes(type_));
    });
    finish(d, fmt::format("scatter_add {}x{} into rows of {} x{}x{}", count_, width_, rows_, vector_, ways_),
           (count_ + rows_) * width_ * scalar_bytes(type_));
  }

  const graph::Graph& g_;
  const graph::Group& group_;
  const graph::Node& node_;
  const machine::Machine& target_;
  Access from_, which_;
  std::vector<int64_t> whole_, numbers_;  // extents of the result, of the index
  Collapsed columns_;                     // of a value: in memory, in the result
  int64_t rows_ = 0, count_ = 0, width_ = 0;
  Scalar type_ = Scalar::f32, sum_ = Scalar::f32;
  int digit_ = 1;                                          // bits
  int64_t lanes_ = 1, part_ = 1, parts_ = 1, piece_ = 1;   // of a block; numbers of a part, parts; values of a piece
  int vector_ = 1, ways_ = 1;                              // numbers of a lane
  int64_t beside_ = 1;                                     // tasks with adjacent vectors
  int counts_ = -1, begins_ = -1, pieces_ = -1;            // scratch
  std::array<int, 2> keys_ = {-1, -1}, order_ = {-1, -1};  // after even passes, after odd ones
  Synthesis out_;
};

}  // namespace

std::optional<Synthesis> scatter_by_rows(const graph::Plan& plan, const graph::Group& group,
                                         const machine::Machine& target) {
  Scatter s(plan, group, target);
  if (!s.fits()) return {};
  return s.run();
}

}  // namespace lumen::synth
