// Reductions whose last axis is kept (bias and norm gradients): vectors of columns, walked along the reduced axes; long
// walks are split into parts. Proved by tests/kernel/synth/synth_reduce_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/reduce/reduce.h"

namespace lumen::synth {

namespace {

constexpr int64_t kGrain = 16384;
constexpr int kVectors = 4;  // adjacent vectors of columns, to use whole cache lines; lanes of a wave have one
                             // each, and use lines together
constexpr int64_t kTogether = 16;
constexpr double kSimple = 16;  // operations per element, up to which code is unrolled so far

class ColumnKernel {
 public:
  ColumnKernel(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
               const machine::Machine& target, Split split)
      : g_(plan.graph), facts_(facts), target_(target), split_(split), builder_(plan.graph), b_(builder_.b) {
    declare_reduce(builder_, group, facts, split, true);
    body_ = std::make_unique<Body>(builder_, plan, group, facts.full, facts.barrier());
    lanes_ = target.f32_lanes();
    vectors_ = target.wave > 1 ? 1 : kVectors;
    for (size_t d = 0; d + 1 < body_->extents().size(); ++d)
      (facts.is_reduced[body_->first_axis(d)] ? reduced_axes_ : kept_axes_).push_back(d);
  }

  Step run() {
    const int64_t columns = body_->extents().back();
    int64_t length = 1;
    for (const int axis : reduced_axes_) length *= body_->extents()[axis];
    std::vector<int64_t> outer;
    for (const int axis : kept_axes_) outer.push_back(body_->extents()[axis]);
    // The cut of the first reduced axis becomes the last digit of the tasks' rows.
    const bool is_split = split_.parts > 1;
    if (is_split) outer.push_back(split_.parts);
    const Body::Chunking chunking = body_->chunking(lanes_);
    const int64_t unit = std::max<int64_t>(chunking.chunk, int64_t{lanes_} * vectors_);
    const Tasks tasks =
        target_.wave > 1 ? Tasks{product(outer), 1, (columns + unit - 1) / unit, unit}
        : is_split
            ? Tasks{product(outer), 1, 1, columns}
            : cut(outer, columns, std::max<int64_t>(target_.grain(kGrain) / std::max<int64_t>(length, 1), unit), unit);
    for_tasks(
        b_, tasks, outer, columns, [&] { body_->begin_task(); },
        [&](const std::vector<Expr>& counters, Expr from, Expr to) {
          part_ = is_split ? counters.back() : Expr{};
          for (size_t d = 0; d < kept_axes_.size(); ++d) body_->open(kept_axes_[d], counters[d]);
          columns_of(from, to, columns);
          for (size_t d = 0; d < kept_axes_.size(); ++d) body_->close();
        });
    return builder_.finish(fmt::format("reduce columns {} {} x{}{}", shape_text(facts_.full), body_->summary(), lanes_,
                                       is_split ? fmt::format(" splits {}", split_.parts) : ""),
                           product(facts_.full) * (body_->operations() + facts_.reduces.size()), body_->traffic());
  }

 private:
  void columns_of(Expr from, Expr to, int64_t columns) {
    const Body::Chunking chunking = body_->chunking(lanes_);
    const auto floor_to = [&](Expr start, int64_t unit) {
      const Expr length = to - start;
      return start + (length - length % unit);
    };
    if (chunking.lanes > 0) {
      const Expr whole = floor_to(from, chunking.chunk);
      const auto blocks = [&](Expr first, Expr end, int64_t step, int lanes) {
        b_.loop(LoopKind::serial, first, end, step, [&](Expr at) { walk(at, lanes, step / lanes, {}, step); });
      };
      blocks(from, whole, chunking.chunk, chunking.lanes);
      if (chunking.chunk != chunking.unit) blocks(whole, to, chunking.unit, chunking.unit_lanes);
      return;
    }
    const Expr wide = floor_to(from, int64_t{lanes_} * vectors_);
    b_.loop(LoopKind::serial, from, wide, int64_t{lanes_} * vectors_,
            [&](Expr at) { walk(at, lanes_, vectors_, {}, 0); });
    if (columns % (int64_t{lanes_} * vectors_) == 0) return;
    const Expr whole = floor_to(wide, lanes_);
    b_.loop(LoopKind::serial, wide, whole, lanes_, [&](Expr at) { walk(at, lanes_, 1, {}, 0); });
    if (columns % lanes_ == 0) return;
    b_.branch(whole < to, [&] { walk(whole, lanes_, 1, to - whole, 0); });
  }

  // `vectors` vectors of columns from `at`; `chunk`: elements of the format blocks that contain them, 0 without
  // formats.
  void walk(Expr at, int lanes, int vectors, Expr count, int64_t chunk) {
    Accumulators sums(b_, g_, facts_.reduces, lanes, vectors);
    const auto each = [&](const std::function<void(int)>& step) {
      if (chunk > 0) body_->enter_chunk(at, chunk);
      for (int k = 0; k < vectors; ++k) {
        if (chunk > 0) body_->set_position(int64_t{k} * lanes);
        body_->open_lanes(at + int64_t{k} * lanes, lanes, count);
        step(k);
        body_->close();
      }
    };
    for (int k = 0; k < sums.size(); ++k) sums.reset(k);
    nest([&] {
      each([&](int way) {
        for (int k = 0; k < sums.size(); ++k) sums.add(k, way, body_->value(g_[facts_.reduces[k]].operands[0]), count);
        for (const graph::ValueId r : facts_.full_results) body_->store(r, body_->value(r));
      });
    });
    each([&](int way) {
      for (int k = 0; k < sums.size(); ++k) {
        const graph::ValueId r = facts_.reduces[k];
        const Expr x = sums.get(k, way);
        if (part_.exists()) {
          store_part(builder_, *body_, facts_, k, sums.type(k), part_, split_.parts, x);
        } else {
          body_->set(r, cast(x, g_[r].type.element.scalar));
        }
      }
      if (!part_.exists())
        for (const graph::ValueId r : facts_.kept_results) body_->store(r, body_->value(r));
    });
  }

  // Walks the reduced axes; if the first is split, its current part.
  void nest(const std::function<void()>& inside) {
    const int axis = reduced_axes_[0];
    Expr from = b_.i64(0), to = b_.i64(body_->extents()[axis]);
    if (part_.exists()) {
      from = part_ * split_.part;
      to = min(from + split_.part, to);
    }
    const auto step = [&](Expr i) {
      body_->open(axis, i);
      for_axes(b_, *body_, {reduced_axes_.begin() + 1, reduced_axes_.end()}, inside);
      body_->close();
    };
    if (together() == 1) return b_.loop(LoopKind::serial, from, to, 1, step);
    const Expr length = to - from, whole = to - length % together();
    b_.loop(LoopKind::serial, from, whole, together(), [&](Expr i) {
      for (int64_t k = 0; k < together(); ++k) step(i + k);
    });
    b_.loop(LoopKind::serial, whole, to, 1, step);
  }
  // Rows that a lane loads at once, to hide memory latency.
  int64_t together() const {
    const bool is_simple = body_->operations() <= kSimple && reduced_axes_.size() == 1;
    return target_.wave > 1 && is_simple && facts_.full_results.empty() ? kTogether : 1;
  }

  const graph::Graph& g_;
  const ReduceFacts& facts_;
  const machine::Machine& target_;
  Split split_;
  StepBuilder builder_;
  Builder& b_;
  std::unique_ptr<Body> body_;
  int lanes_ = 8, vectors_ = kVectors;
  Expr part_;
  std::vector<int> kept_axes_, reduced_axes_;
};

}  // namespace

Step reduce_columns(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                    const machine::Machine& target, Split split) {
  return ColumnKernel(plan, group, facts, target, split).run();
}

}  // namespace lumen::synth
