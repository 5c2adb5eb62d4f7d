// Reductions whose last axis stays (bias and norm gradients): vectors of columns, walked along the reduced axes; long
// walks are cut into parts. Proved by tests/kernel/synth/synth_reduce_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/reduce/reduce.h"

namespace lumen::synth {

using loop::ValueId;

namespace {

constexpr int64_t kGrain = 16384;
constexpr int kVectors = 4;  // columns side by side, so that a cache line is used while it is near; lanes of a wave
                             // have one each, and use it together

class ColumnKernel {
 public:
  ColumnKernel(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
               const machine::Machine& target, Split split)
      : g_(plan.graph), facts_(facts), target_(target), split_(split), draft_(plan.graph), b_(draft_.b) {
    declare_reduce(draft_, group, facts, split, true);
    body_ = std::make_unique<Body>(draft_, plan, group, facts.full, facts.barrier());
    lanes_ = target.f32_lanes();
    vectors_ = target.wave > 1 ? 1 : kVectors;
    for (size_t d = 0; d + 1 < body_->extents().size(); ++d)
      (facts.is_reduced[body_->first_axis(static_cast<int>(d))] ? reduced_axes_ : kept_axes_)
          .push_back(static_cast<int>(d));
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
        [&](const std::vector<ValueId>& counters, ValueId from, ValueId to) {
          part_ = is_split ? counters.back() : -1;
          for (size_t d = 0; d < kept_axes_.size(); ++d) body_->open(kept_axes_[d], counters[d]);
          columns_of(from, to, columns);
          for (size_t d = 0; d < kept_axes_.size(); ++d) body_->close();
        });
    return draft_.finish(
        fmt::format("reduce columns {} {} x{}{}", shape_text(facts_.full), body_->summary(), lanes_,
                    is_split ? fmt::format(" parts {}", split_.parts) : ""),
        static_cast<double>(product(facts_.full)) * (body_->operations() + static_cast<double>(facts_.reduces.size())),
        body_->traffic());
  }

 private:
  void columns_of(ValueId from, ValueId to, int64_t columns) {
    const Body::Chunking chunking = body_->chunking(lanes_);
    const auto floor_to = [&](ValueId start, int64_t unit) {
      const ValueId length = b_.op(ScalarOp::sub_, to, start);
      return b_.add(start, b_.op(ScalarOp::sub_, length, b_.op(ScalarOp::rem_, length, b_.i64(unit))));
    };
    if (chunking.lanes > 0) {
      const ValueId whole = floor_to(from, chunking.chunk);
      const auto blocks = [&](ValueId first, ValueId end, int64_t step, int lanes) {
        b_.loop(loop::LoopKind::serial, first, end, step,
                [&](ValueId at) { walk(at, lanes, static_cast<int>(step / lanes), -1, step); });
      };
      blocks(from, whole, chunking.chunk, chunking.lanes);
      if (chunking.chunk != chunking.unit) blocks(whole, to, chunking.unit, chunking.unit_lanes);
      return;
    }
    const ValueId wide = floor_to(from, int64_t{lanes_} * vectors_);
    b_.loop(loop::LoopKind::serial, from, wide, int64_t{lanes_} * vectors_,
            [&](ValueId at) { walk(at, lanes_, vectors_, -1, 0); });
    if (columns % (int64_t{lanes_} * vectors_) == 0) return;
    const ValueId whole = floor_to(wide, lanes_);
    b_.loop(loop::LoopKind::serial, wide, whole, lanes_, [&](ValueId at) { walk(at, lanes_, 1, -1, 0); });
    if (columns % lanes_ == 0) return;
    b_.branch(b_.op(ScalarOp::lt_, whole, to), [&] { walk(whole, lanes_, 1, b_.op(ScalarOp::sub_, to, whole), 0); });
  }

  // `vectors` vectors of columns from `at`; `chunk`: elements of the format blocks they lie in, 0 without formats.
  void walk(ValueId at, int lanes, int vectors, ValueId count, int64_t chunk) {
    Accumulators sums(b_, g_, facts_.reduces, lanes, vectors);
    const auto each = [&](const std::function<void(int)>& step) {
      if (chunk > 0) body_->enter_chunk(at, chunk);
      for (int k = 0; k < vectors; ++k) {
        if (chunk > 0) body_->set_position(int64_t{k} * lanes);
        body_->open_lanes(b_.add(at, b_.i64(int64_t{k} * lanes)), lanes, count);
        step(k);
        body_->close();
      }
    };
    for (int k = 0; k < sums.size(); ++k) sums.reset(k);
    nest(0, [&] {
      each([&](int way) {
        for (int k = 0; k < sums.size(); ++k) sums.add(k, way, body_->value(g_[facts_.reduces[k]].operands[0]), count);
        for (const graph::ValueId r : facts_.full_results) body_->store(r, body_->value(r));
      });
    });
    each([&](int way) {
      for (int k = 0; k < sums.size(); ++k) {
        const graph::ValueId r = facts_.reduces[k];
        const ValueId x = sums.get(k, way);
        if (part_ >= 0) {
          store_part(draft_, *body_, facts_, k, sums.type(k), part_, split_.parts, x);
        } else {
          body_->set(r, b_.convert(ScalarOp::cast_, g_[r].type.element.scalar, x));
        }
      }
      if (part_ < 0)
        for (const graph::ValueId r : facts_.kept_results) body_->store(r, body_->value(r));
    });
  }

  void nest(size_t depth, const std::function<void()>& inside) {
    if (depth == reduced_axes_.size()) {
      inside();
      return;
    }
    const int axis = reduced_axes_[depth];
    ValueId from = b_.i64(0), to = b_.i64(body_->extents()[axis]);
    if (depth == 0 && part_ >= 0) {
      from = b_.mul(part_, b_.i64(split_.part));
      to = b_.op(ScalarOp::min_, b_.add(from, b_.i64(split_.part)), to);
    }
    b_.loop(loop::LoopKind::serial, from, to, 1, [&](ValueId i) {
      body_->open(axis, i);
      nest(depth + 1, inside);
      body_->close();
    });
  }

  const graph::Graph& g_;
  const ReduceFacts& facts_;
  const machine::Machine& target_;
  Split split_;
  Draft draft_;
  loop::Builder& b_;
  std::unique_ptr<Body> body_;
  int lanes_ = 8, vectors_ = kVectors;
  ValueId part_ = -1;
  std::vector<int> kept_axes_, reduced_axes_;
};

}  // namespace

Step reduce_columns(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                    const machine::Machine& target, Split split) {
  return ColumnKernel(plan, group, facts, target, split).run();
}

}  // namespace lumen::synth
