// Attention in one kernel: for each query row the scores stay in private memory from the first dot to the last, so that nothing of the
// size queries x keys is ever written. All of a row's scores are known before the maximum is taken, so the result is that of the plain
// formulas. Scale and mask are the group's own maps. Proved by tests/kernel/synth_attend_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/reduce.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;
using loop::BufferId;
using loop::ValueId;

namespace {

constexpr double kGrain = 131072;  // multiplications per task
constexpr int kKeys = 4;           // keys whose dots are computed together
constexpr int kVectors = 8;        // vectors of the result row held at once

class AttendKernel {
 public:
  AttendKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : plan_(plan), g_(plan.graph), group_(group), draft_(plan.graph), b_(draft_.b), lanes_(target.f32_lanes()) {
    nothing_.inputs = group.inputs;
    first_ = group.root;
    last_ = group.nodes.back();
    for (const graph::ValueId v : group.nodes) {
      if (g_[v].op != Op::reduce_) continue;
      (g_[v].attributes.reduction == graph::Reduction::max ? top_ : sum_) = v;
    }
    LUMEN_CHECK(top_ >= 0 && sum_ >= 0, "attend needs a maximum and a sum");
    probability_ = g_[last_].operands[0];
    scores_ = extents_of(g_[first_].type.shape);
    keys_ = scores_.back();
  }

  Synthesis run() {
    draft_.declare(group_);
    const auto& dot = g_[first_].attributes.indices;
    const auto& sum = g_[last_].attributes.indices;
    const char inner = only_letter(dot[0], dot[2]), outer = only_letter(sum[1], sum[0]);
    // Spaces: the scores' axes, then the summed axis of the first dot, or the new axis of the second.
    std::vector<int64_t> dot_space = scores_, sum_space = scores_;
    const auto letters_extent = [&](graph::ValueId v, const std::string& letters, char c) {
      return extents_of(g_[v].type.shape)[letters.find(c)];
    };
    const graph::ValueId q = g_[first_].operands[0], k = g_[first_].operands[1], v = g_[last_].operands[1];
    depth_ = letters_extent(q, dot[0], inner);
    width_ = letters_extent(v, sum[1], outer);
    dot_space.push_back(depth_);
    sum_space.push_back(width_);
    const std::string dot_letters = dot[2] + inner, sum_letters = sum[0] + outer;
    Access to{last_, 0, {}};
    const std::vector<int64_t> dense = dense_strides_of(extents_of(g_[last_].type.shape));
    for (size_t d = 0; d < sum_letters.size(); ++d) {
      const size_t at = sum[2].find(sum_letters[d]);
      to.strides.push_back(at == std::string::npos || sum_space[d] == 1 ? 0 : dense[at]);
    }
    const std::vector<bool> apart(dot_space.size(), true);
    dot_ = std::make_unique<Body>(draft_, plan_, nothing_, dot_space, apart,
                                  std::map<graph::ValueId, Access>{{q, by_letters(q, dot[0], dot_letters)}, {k, by_letters(k, dot[1], dot_letters)}});
    map_ = std::make_unique<Body>(draft_, plan_, group_, scores_, apart);
    pick_ = std::make_unique<Body>(draft_, plan_, nothing_, sum_space, apart,
                                   std::map<graph::ValueId, Access>{{v, by_letters(v, sum[1], sum_letters)}},
                                   std::map<graph::ValueId, Access>{{last_, to}});
    std::vector<int64_t> outer_axes(scores_.begin(), scores_.end() - 1);
    const int64_t rows = product(outer_axes);
    const double work = static_cast<double>(keys_) * static_cast<double>(depth_ + width_);
    Tasks tasks;
    tasks.rows = rows;
    tasks.part = 1;
    tasks.rows_per_task = std::clamp<int64_t>(static_cast<int64_t>(kGrain / work), 1, std::max<int64_t>(rows, 1));
    for_tasks(b_, tasks, outer_axes, 1, [&] { begin(); }, [&](const std::vector<ValueId>& counters, ValueId, ValueId) { row(counters, q, k, v); });
    Synthesis out;
    double bytes = static_cast<double>(graph::byte_size(g_[last_].type));
    for (const graph::ValueId input : group_.inputs) bytes += static_cast<double>(graph::byte_size(g_[input].type));
    out.steps.push_back(draft_.finish(fmt::format("attend {} depth {} width {} {} x{}", shape_text(scores_), depth_, width_, map_->summary(), lanes_),
                                      2.0 * static_cast<double>(rows) * work, bytes));
    return out;
  }

 private:
  static char only_letter(const std::string& of, const std::string& absent_from) {
    char found = 0;
    for (const char c : of) {
      if (absent_from.find(c) != std::string::npos) continue;
      LUMEN_CHECK(found == 0, "attend over two axes");
      found = c;
    }
    LUMEN_CHECK(found != 0, "attend without a summed axis");
    return found;
  }

  Access by_letters(graph::ValueId operand, const std::string& own, const std::string& space) const {
    const Access a = follow(plan_, group_, operand);
    Access out{a.source, a.offset, {}};
    for (const char c : space) {
      const size_t at = own.find(c);
      out.strides.push_back(at == std::string::npos ? 0 : a.strides[at]);
    }
    return out;
  }

  void begin() {
    for (Body* body : {dot_.get(), map_.get(), pick_.get()}) body->begin_task();
    row_ = b_.alloc((keys_ + lanes_) * 4, 64);
    dots_ = std::make_unique<Accumulators>(b_, g_, std::vector<graph::ValueId>{first_}, lanes_, kKeys);
    tops_ = std::make_unique<Accumulators>(b_, g_, std::vector<graph::ValueId>{top_, sum_}, lanes_, 1);
  }

  // The collapsed axis that is the scores' axis d; -1 when it has extent 1.
  static int axis_of(const Body& body, size_t d) {
    for (size_t k = 0; k < body.extents().size(); ++k)
      if (body.first_axis(static_cast<int>(k)) == static_cast<int>(d)) return static_cast<int>(k);
    return -1;
  }
  static bool open_axis(Body& body, size_t d, ValueId counter) {
    const int axis = axis_of(body, d);
    if (axis >= 0) body.open(axis, counter);
    return axis >= 0;
  }
  ValueId place(ValueId key) { return b_.mul(key, b_.i64(4)); }

  void row(const std::vector<ValueId>& counters, graph::ValueId q, graph::ValueId k, graph::ValueId v) {
    int opened[3] = {0, 0, 0};
    Body* bodies[3] = {dot_.get(), map_.get(), pick_.get()};
    for (int n = 0; n < 3; ++n)
      for (size_t d = 0; d < counters.size(); ++d) opened[n] += open_axis(*bodies[n], d, counters[d]);
    dots(q, k);
    soften();
    pick(v);
    for (int n = 0; n < 3; ++n)
      for (int d = 0; d < opened[n]; ++d) bodies[n]->close();
  }

  void dots(graph::ValueId q, graph::ValueId k) {
    const bool by_blocks = dot_->chunking(lanes_).lanes > 0;
    const size_t key_axis = scores_.size() - 1;
    const auto some = [&](ValueId key, int count) {
      for (int j = 0; j < count; ++j) dots_->reset_way(0, j);
      const auto one = [&](int j) {
        const bool opened = open_axis(*dot_, key_axis, b_.add(key, b_.i64(j)));
        dots_->add(0, j, b_.mul(b_.convert(ScalarOp::cast_, Scalar::f32, dot_->value(q)), b_.convert(ScalarOp::cast_, Scalar::f32, dot_->value(k))), dot_->count());
        if (opened) dot_->close();
      };
      if (by_blocks) {
        const bool opened = open_axis(*dot_, key_axis, key);
        for_lanes(b_, *dot_, lanes_, 1, b_.i64(0), b_.i64(depth_), depth_ % lanes_ == 0, [&](int) {
          dots_->add(0, 0, b_.mul(b_.convert(ScalarOp::cast_, Scalar::f32, dot_->value(q)), b_.convert(ScalarOp::cast_, Scalar::f32, dot_->value(k))), dot_->count());
        });
        if (opened) dot_->close();
      } else {
        for_lanes(b_, *dot_, lanes_, 1, b_.i64(0), b_.i64(depth_), depth_ % lanes_ == 0, [&](int) {
          for (int j = 0; j < count; ++j) one(j);
        });
      }
      for (int j = 0; j < count; ++j) b_.store(row_, b_.fold(ScalarOp::add_, dots_->get(0, j)), place(b_.add(key, b_.i64(j))), 4);
    };
    const int step = by_blocks ? 1 : kKeys;
    const int64_t whole = keys_ / step * step;
    b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(whole), step, [&](ValueId key) { some(key, step); });
    if (whole < keys_) b_.loop(loop::LoopKind::serial, b_.i64(whole), b_.i64(keys_), 1, [&](ValueId key) { some(key, 1); });
  }

  // Scores to probabilities, in place.
  void soften() {
    const graph::ValueId score = g_[top_].operands[0], power = g_[sum_].operands[0];
    const auto pass = [&](graph::ValueId known, graph::ValueId wanted, int reduce) {
      for_lanes(b_, *map_, lanes_, 1, b_.i64(0), b_.i64(keys_), keys_ % lanes_ == 0, [&](int) {
        const ValueId at = place(map_->at());
        map_->set(known, b_.load(row_, {Scalar::f32, map_->lanes()}, at, 4));
        const ValueId x = map_->value(wanted);
        b_.store(row_, x, at, 4);
        if (reduce >= 0) tops_->add(reduce, 0, x, map_->count());
      });
      if (reduce >= 0) map_->set(reduce == 0 ? top_ : sum_, tops_->total(reduce));
    };
    tops_->reset(0);
    tops_->reset(1);
    pass(first_, score, 0);
    pass(score, power, 1);
    pass(power, probability_, -1);
  }

  void pick(graph::ValueId v) {
    const size_t key_axis = scores_.size() - 1;
    const Body::Chunking chunking = pick_->chunking(lanes_);
    const auto walk = [&](ValueId at, int lanes, int vectors, ValueId count, int64_t chunk) {
      const auto each = [&](const std::function<void(int)>& step) {
        if (chunk > 0) pick_->enter_chunk(at, chunk);
        for (int n = 0; n < vectors; ++n) {
          if (chunk > 0) pick_->set_position(int64_t{n} * lanes);
          pick_->open_lanes(b_.add(at, b_.i64(int64_t{n} * lanes)), lanes, count);
          step(n);
          pick_->close();
        }
      };
      Accumulators sums(b_, g_, {last_}, lanes, vectors);
      sums.reset(0);
      b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(keys_), 1, [&](ValueId key) {
        const bool opened = open_axis(*pick_, key_axis, key);
        const ValueId p = b_.load(row_, {Scalar::f32, 1}, place(key), 4);
        each([&](int n) { sums.add(0, n, b_.mul(b_.splat(p, lanes), b_.convert(ScalarOp::cast_, Scalar::f32, pick_->value(v))), -1); });
        if (opened) pick_->close();
      });
      each([&](int n) { pick_->store(last_, b_.convert(ScalarOp::cast_, g_[last_].type.element.scalar, sums.get(0, n))); });
    };
    if (pick_->store_stride(last_) != 1 && width_ > 1) {  // a result whose new axis is not the last: one number at a time
      LUMEN_CHECK(chunking.lanes == 0, "attend over a format into strided results");
      b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(width_), 1, [&](ValueId at) { walk(at, 1, 1, -1, 0); });
      return;
    }
    if (chunking.lanes > 0) {
      const int64_t whole = width_ / chunking.chunk * chunking.chunk;
      b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(whole), chunking.chunk,
              [&](ValueId at) { walk(at, chunking.lanes, static_cast<int>(chunking.chunk / chunking.lanes), -1, chunking.chunk); });
      b_.loop(loop::LoopKind::serial, b_.i64(whole), b_.i64(width_), chunking.unit,
              [&](ValueId at) { walk(at, chunking.unit_lanes, static_cast<int>(chunking.unit / chunking.unit_lanes), -1, chunking.unit); });
      return;
    }
    int64_t at = 0;
    for (int vectors = kVectors; vectors >= 1; vectors /= 2) {
      const int64_t step = int64_t{lanes_} * vectors, end = at + (width_ - at) / step * step;
      if (end > at) b_.loop(loop::LoopKind::serial, b_.i64(at), b_.i64(end), step, [&](ValueId from) { walk(from, lanes_, vectors, -1, 0); });
      at = end;
    }
    if (at < width_) walk(b_.i64(at), lanes_, 1, b_.i64(width_ - at), 0);
  }

  const graph::Plan& plan_;
  const graph::Graph& g_;
  const graph::Group& group_;
  graph::Group nothing_;                   // the same memory, no nodes: for bodies that only read what they are given
  Draft draft_;
  loop::Builder& b_;
  int lanes_;
  graph::ValueId first_ = -1, last_ = -1, top_ = -1, sum_ = -1, probability_ = -1;
  std::vector<int64_t> scores_;
  int64_t keys_ = 1, depth_ = 1, width_ = 1;
  std::unique_ptr<Body> dot_, map_, pick_;
  std::unique_ptr<Accumulators> dots_, tops_;
  BufferId row_ = -1;
};

}  // namespace

Synthesis synthesize_attend(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  return AttendKernel(plan, group, target).run();
}

}  // namespace lumen::synth
