// Reductions over the last axis: one task takes some rows; over each row several passes may be needed (a maximum, then
// a sum that uses it, then values that use both). Expensive values needed by more than one pass are kept in a private
// row. On machines with waves, lanes share rows (row_share.h). Proved by tests/kernel/synth/synth_reduce_test.cpp.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "kernel/synth/reduce/row_share.h"

namespace lumen::synth {

using graph::Op;

namespace {

constexpr int64_t kGrain = 8192;
constexpr int64_t kResidentRow = 16384;  // elements of a row kept in private memory at most
constexpr int64_t kLines = 4;            // of a tile, that lanes load at once
class RowKernel {
 public:
  RowKernel(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
            const machine::Machine& target, Split split)
      : g_(plan.graph), facts_(facts), target_(target), split_(split), builder_(plan.graph), b_(builder_.b) {
    declare_reduce(builder_, group, facts, split, true);
    if (finds_extremes_of_short()) b_.use_fast_math({target.power2, target.reciprocal, ""});
    body_ = std::make_unique<Body>(builder_, plan, group, facts.full, facts.barrier());
    lanes_ = target.f32_lanes();
    for (size_t d = 0; d < body_->extents().size(); ++d) {
      const int axis = body_->first_axis(d);
      (axis < 0 || facts.is_reduced[axis] ? reduced_axes_ : kept_axes_).push_back(d);
    }
    int64_t ways = body_->extents().back() / lanes_ / 2;
    ways_ = ways >= 4 ? 4 : ways >= 2 ? 2 : 1;
    if (facts.reduces.size() > 2) ways_ = std::min(ways_, 2);
    for (const int axis : reduced_axes_) row_length_ *= body_->extents()[axis];
    passes_.emplace(plan, group, facts, *body_, reduced_axes_[0], kept_axes_);
    const bool packed = body_->chunking(lanes_).lanes > 0;
    if (reduced_axes_.size() == 1)
      share_ = share_rows({rows(), row_length_, lanes_, packed}, *passes_, split, target);
    else if (target.wave > 1 && !packed && facts.passes == 1 && body_->extents().back() % (lanes_ * target.wave) == 0)
      share_.lanes = target.wave;  // of every line of a tile
    // Numbers that formats unpack together stay with a lane; else adjacent lanes read adjacent vectors.
    beside_ = share_.lanes > 0 && !packed;
    if (share_.lanes > 0) ways_ = share_.ways;
    for (const auto& [v, span] : share_.held) held_[v] = {span.first, -1};
    if (share_.lanes == 0 && row_length_ <= kResidentRow && row_length_ * 4 <= target.task_bytes)
      for (const auto& [v, span] : passes_->costly()) resident_[v] = {span.first, -1};
  }

  Step run() {
    std::vector<int64_t> outer;
    for (const int axis : kept_axes_) outer.push_back(body_->extents()[axis]);
    const int64_t cut_extent = body_->extents()[reduced_axes_[0]];
    Tasks tasks = cut(outer, row_length_, target_.grain(kGrain), 1, false);
    if (split_.parts > 1) tasks = {product(outer), 1, split_.parts, split_.part};
    if (tasks.part == row_length_) tasks.part = cut_extent;  // without a split the first reduced axis runs whole
    if (share_.waves > 1)
      write_shared(outer);
    else if (share_.lanes > 0)
      write_waves(outer);
    else
      for_tasks(
          b_, tasks, outer, cut_extent, [&] { begin_task(); },
          [&](const std::vector<Expr>& counters, Expr from, Expr to) { row(counters, from, to); });
    const double elements = product(facts_.full);
    return builder_.finish(
        fmt::format("reduce rows {} {} passes {} x{}x{}{}", shape_text(facts_.full), body_->summary(), passes_->count(),
                    lanes_, ways_,
                    (split_.parts > 1 ? fmt::format(" splits {}", split_.parts) : "") + share_.text(target_.wave)),
        elements * (body_->operations() + facts_.reduces.size()), body_->traffic());
  }

 private:
  // Whether 16-bit floats are written and only extremes of rows are reduced: then math is as in a map.
  bool finds_extremes_of_short() const {
    const auto is_short = [&](graph::ValueId v) { return is_16bit_float(g_[v].type.element); };
    const auto is_extreme = [&](graph::ValueId v) {
      return g_[v].attributes.reduction != graph::Reduction::sum && reads_short(g_[v].operands[0]);
    };
    const auto& results = facts_.full_results;
    return !results.empty() && facts_.kept_maps.empty() && std::all_of(results.begin(), results.end(), is_short) &&
           std::all_of(facts_.reduces.begin(), facts_.reduces.end(), is_extreme);
  }
  // A 16-bit float, or a map of one.
  bool reads_short(graph::ValueId v) const {
    const graph::Node& n = g_[v];
    return is_16bit_float(n.type.element) || (n.op == Op::map_ && n.operands.size() == 1 && reads_short(n.operands[0]));
  }

  // A wave takes one row, or a part of it. Runs begin at whole vectors and whole units that formats unpack.
  void write_waves(const std::vector<int64_t>& outer) {
    const Body::Chunking chunking = body_->chunking(lanes_);
    const int64_t unit = std::lcm<int64_t>(lanes_, chunking.lanes > 0 ? chunking.chunk : 1);
    const int64_t length = split_.parts > 1 ? split_.part : row_length_;
    const int64_t units = (length + unit - 1) / unit, run = (units + target_.wave - 1) / target_.wave * unit;
    b_.loop(LoopKind::grid, b_.i64(0), b_.i64(product(outer) * split_.parts / share_.rows), 1, [&](Expr block) {
      b_.loop(LoopKind::lane, b_.i64(0), b_.i64(int64_t{share_.lanes} * share_.rows), 1, [&](Expr lane) {
        lane_ = share_.lanes == target_.wave ? b_.lane_id() : b_.lane_id() % share_.lanes;
        begin_held();
        begin_task();
        Expr number = block, end = b_.i64(body_->extents()[reduced_axes_[0]]);
        if (share_.rows > 1) number = block * share_.rows + lane / share_.lanes;
        if (split_.parts > 1) {
          number = block / split_.parts;
          part_ = block % split_.parts;
        }
        Expr first = b_.i64(0);
        if (split_.parts > 1) {
          first = part_ * split_.part;
          end = min(first + split_.part, end);
        }
        if (beside_) return row(digits(b_, number, outer), first, end);
        const Expr from = min(first + lane_ * run, end);
        row(digits(b_, number, outer), from, min(from + run, end));
      });
    });
  }

  // A block takes one row. Waves exchange their results in shared memory between passes, and add them in order.
  void write_shared(const std::vector<int64_t>& outer) {
    constexpr int64_t kSlot = 8;  // bytes
    b_.loop(LoopKind::grid, b_.i64(0), b_.i64(product(outer)), 1, [&](Expr block) {
      const BufferId slots = b_.alloc(std::ssize(facts_.reduces) * share_.waves * kSlot, 16, loop::Space::shared);
      begin_held();
      const auto slot = [&](int k, Expr wave) { return (int64_t{k} * share_.waves + wave) * kSlot; };
      // Runs `body` in the row, with the reduces of the first `done` levels known.
      const auto lanes = [&](int done, const std::function<void(Expr)>& body) {
        b_.loop(LoopKind::lane, b_.i64(0), b_.i64(int64_t{share_.waves} * target_.wave), 1, [&](Expr lane) {
          lane_ = lane;
          begin_task();
          const std::vector<Expr> counters = digits(b_, block, outer);
          for (size_t d = 0; d < counters.size(); ++d) body_->open(kept_axes_[d], counters[d]);
          kept_values(0);
          for (int p = 0; p < done; ++p) {
            for (int k = 0; k < sums_->size(); ++k) {
              if (facts_.level.at(facts_.reduces[k]) != p + 1) continue;
              Expr total;
              for (int w = 0; w < share_.waves; ++w) {
                const Expr x = b_.load(slots, {sums_->type(k), 1}, slot(k, b_.i64(w)), kSlot);
                total = w == 0 ? x : b_.op(sums_->op(k), total, x);
              }
              set_reduced(k, total);
            }
            kept_values(p + 1);
          }
          body(lane);
          for (size_t d = 0; d < counters.size(); ++d) body_->close();
        });
      };
      for (int p = 0; p < passes_->count(); ++p) {
        if (p > 0) b_.barrier();
        lanes(p, [&](Expr lane) {
          const Expr wave = lane / target_.wave;
          for (const auto& [k, total] : reduce_pass(p, b_.i64(0), b_.i64(row_length_)))
            b_.branch(b_.lane_id() == 0, [&, k = k, total = total] { b_.store(slots, total, slot(k, wave), kSlot); });
        });
      }
      if (facts_.kept_results.empty()) return;
      b_.barrier();
      lanes(passes_->count(), [&](Expr) { once([&] { store_kept(); }); });
    });
  }

  int64_t rows() const {
    int64_t all = 1;
    for (const int axis : kept_axes_) all *= body_->extents()[axis];
    return all;
  }

  void begin_task() {
    body_->begin_task();
    sums_ = std::make_unique<Accumulators>(b_, g_, facts_.reduces, lanes_, ways_);
    for (auto& [v, row] : resident_) row.buffer = b_.alloc((row_length_ + lanes_) * 4, 64);
  }
  void begin_held() {
    for (auto& [v, row] : held_)
      row.buffer = b_.alloc(row_length_ / (share_.sharing()) * scalar_bytes(g_[v].type.element.scalar), 64);
  }

  // Computes scalars of the row that depend on `done` levels of reduces.
  void kept_values(int done) {
    for (const graph::ValueId v : facts_.kept_maps) {
      if (facts_.level.at(v) != done) continue;
      body_->open_scalar();
      const Expr x = body_->value(v);
      body_->close();
      body_->set(v, x);
    }
  }

  void row(const std::vector<Expr>& counters, Expr from, Expr to) {
    for (size_t d = 0; d < counters.size(); ++d) body_->open(kept_axes_[d], counters[d]);
    if (split_.parts == 1) kept_values(0);
    for (int p = 0; p < passes_->count(); ++p) {
      for (const auto& [number, total] : reduce_pass(p, from, to)) {
        const int k = number;
        if (split_.parts > 1) {
          body_->open_scalar();
          const Expr part = part_.exists() ? part_ : from / split_.part;
          once([&, x = total] { store_part(builder_, *body_, facts_, k, sums_->type(k), part, split_.parts, x); });
          body_->close();
        } else {
          set_reduced(k, total);
        }
      }
      if (split_.parts == 1) kept_values(p + 1);
    }
    if (split_.parts == 1 && !facts_.kept_results.empty()) once([&] { store_kept(); });
    for (size_t d = 0; d < counters.size(); ++d) body_->close();
  }

  // A pass over the row; returns its totals by number of the reduce, of one wave if waves share the row.
  std::vector<std::pair<int, Expr>> reduce_pass(int pass, Expr from, Expr to) {
    const auto is_of_pass = [&](int k) { return facts_.level.at(facts_.reduces[k]) == pass + 1; };
    for (int k = 0; k < sums_->size(); ++k)
      if (is_of_pass(k)) sums_->reset(k);
    nest(0, pass, from, to, b_.i64(0));
    std::vector<std::pair<int, Expr>> out;
    for (int k = 0; k < sums_->size(); ++k) {
      if (!is_of_pass(k)) continue;
      const Expr total = sums_->total(k);
      out.emplace_back(k, lane_.exists() ? b_.fold_wave(sums_->op(k), total, share_.lanes) : total);
    }
    return out;
  }
  void set_reduced(int k, Expr total) {
    const graph::ValueId r = facts_.reduces[k];
    body_->set(r, cast(total, g_[r].type.element.scalar));
  }
  void store_kept() {
    for (const graph::ValueId r : facts_.kept_results) {
      body_->open_scalar();
      body_->store(r, body_->value(r));
      body_->close();
    }
  }

  // Runs `body` on one of the lanes that share a row.
  void once(const std::function<void()>& body) {
    if (!lane_.exists())
      body();
    else
      b_.branch(lane_ == 0, body);
  }

  // Adjacent lanes read adjacent vectors, `ways_` of each at once.
  void walk_beside(int pass, Expr from, Expr to, Expr start) {
    const int64_t stride = lanes_ * share_.sharing();
    const auto vector = [&](Expr at, Expr count, int way, int64_t number = 0) {
      body_->open_lanes(at, lanes_, count);
      recall(pass, number);
      step(pass, way, start + at);
      body_->close();
    };
    const Expr mine = from + lane_ * lanes_;
    if (!held_.empty()) {
      for (int64_t i = 0; i < row_length_ / stride; ++i) vector(mine + i * stride, {}, i % ways_, i);
      return;
    }
    const Expr length = to - from;
    const Expr whole = length - length % (stride * ways_);
    b_.loop(LoopKind::serial, b_.i64(0), whole, stride * ways_, [&](Expr at) {
      for (int way = 0; way < ways_; ++way) vector(mine + (at + way * stride), {}, way);
    });
    const bool exact = body_->extents().back() % lanes_ == 0;
    b_.loop(LoopKind::serial, mine + whole, to, stride,
            [&](Expr at) { vector(at, exact ? Expr{} : min(to - at, b_.i64(lanes_)), 0); });
  }

  // Walks the reduced axes; `start`: number of the row's element where the remaining axes begin.
  void nest(size_t depth, int pass, Expr from, Expr to, Expr start) {
    const int axis = reduced_axes_[depth];
    const int64_t extent = body_->extents()[axis];
    const Expr first = depth == 0 ? from : b_.i64(0), end = depth == 0 ? to : b_.i64(extent);
    if (depth + 1 == reduced_axes_.size()) {
      body_->hoist(lanes_);
      if (beside_) return walk_beside(pass, first, end, start);
      for_lanes(b_, *body_, lanes_, ways_, first, end, extent % lanes_ == 0,
                [&](int way) { step(pass, way, start + body_->at()); });
      return;
    }
    int64_t below = 1;
    for (size_t k = depth + 1; k < reduced_axes_.size(); ++k) below *= body_->extents()[reduced_axes_[k]];
    const auto line = [&](Expr i) {
      body_->open(axis, i);
      nest(depth + 1, pass, from, to, start + i * below);
      body_->close();
    };
    if (!beside_) return b_.loop(LoopKind::serial, first, end, 1, line);
    // Lanes that share lines load some at once.
    const Expr whole = end - (end - first) % kLines;
    b_.loop(LoopKind::serial, first, whole, kLines, [&](Expr i) {
      for (int64_t k = 0; k < kLines; ++k) line(i + k);
    });
    b_.loop(LoopKind::serial, whole, end, 1, line);
  }

  // Vector `number` of the lane: loads what an earlier pass held, and stores what this one has to hold.
  void recall(int pass, int64_t number) {
    for (const auto& [v, row] : held_) {
      const Scalar s = g_[v].type.element.scalar;
      const Expr at = b_.i64(number * lanes_ * scalar_bytes(s));
      if (row.first < pass && passes_->visits(pass, v))
        body_->set(v, b_.load(row.buffer, {s, lanes_}, at, 4));
      else if (row.first == pass)
        b_.store(row.buffer, body_->value(v), at, 4);
    }
  }

  void step(int pass, int way, Expr in_row) {
    const Expr at = in_row * 4;
    for (const auto& [v, row] : resident_)
      if (row.first < pass && passes_->visits(pass, v))
        body_->set(v, b_.load(row.buffer, {Scalar::f32, body_->lanes()}, at, 4));
    for (const auto& [v, row] : resident_)
      if (row.first == pass) b_.store(row.buffer, body_->value(v), at, 4);
    for (int k = 0; k < sums_->size(); ++k) {
      const graph::ValueId r = facts_.reduces[k];
      if (facts_.level.at(r) == pass + 1) sums_->add(k, way, body_->value(g_[r].operands[0]), body_->count());
    }
    for (const graph::ValueId r : passes_->results_of(pass)) store_result(r);
  }
  // Values for 16-bit floats alone are computed with fast math, as in a map.
  void store_result(graph::ValueId r) {
    const bool is_short = is_16bit_float(g_[r].type.element);
    if (is_short) b_.use_fast_math({target_.power2, target_.reciprocal, ""});
    body_->store(r, body_->value(r));
    if (is_short && !finds_extremes_of_short()) b_.use_fast_math({});
  }

  struct Resident {
    int first = 0;  // pass that computes it
    BufferId buffer = -1;
  };
  const graph::Graph& g_;
  const ReduceFacts& facts_;
  const machine::Machine& target_;
  Split split_;
  StepBuilder builder_;
  Builder& b_;
  std::unique_ptr<Body> body_;
  std::optional<RowPasses> passes_;
  std::unique_ptr<Accumulators> sums_;
  int lanes_ = 8, ways_ = 1;
  int64_t row_length_ = 1;
  RowShare share_;
  bool beside_ = false;
  Expr part_;  // of a split row, by waves
  Expr lane_;  // of those that share the row; no value: one thread has it
  std::vector<int> kept_axes_, reduced_axes_;
  std::map<graph::ValueId, Resident> resident_, held_;  // in memory, in registers
};

}  // namespace

Step reduce_rows(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                 const machine::Machine& target, Split split) {
  return RowKernel(plan, group, facts, target, split).run();
}

}  // namespace lumen::synth
