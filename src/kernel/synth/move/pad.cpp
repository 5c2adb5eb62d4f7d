// See pad.h. Proved by tests/kernel/synth/synth_move_test.cpp.
#include "kernel/synth/move/pad.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/check.h"
#include "kernel/synth/body/nest.h"

namespace lumen::synth {
namespace {

constexpr int64_t kTaskElements = 8192;  // of a processor
constexpr int64_t kVectorBytes = 16;     // of a lane of a GPU

class PadKernel {
 public:
  PadKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : node_(plan.graph[group.root]),
        value_(node_.operands[0]),
        target_(target),
        source_(extents_of(plan.graph[value_].type.shape)),
        whole_(extents_of(node_.type.shape)),
        starts_(node_.attributes.starts),
        steps_(node_.attributes.strides),
        builder_(plan.graph),
        b_(builder_.b) {
    if (steps_.empty()) steps_.assign(whole_.size(), 1);
    const Access access = graph::follow_to(plan, group, value_, source_);
    std::vector<bool> barrier(source_.size(), false);
    for (int d = 0; d < std::ssize(source_); ++d) {
      if (!moves(d)) continue;
      last_ = d;
      if (d > 0) barrier[d - 1] = true;
      if (steps_[d] != 1) barrier[d] = true;
    }
    const graph::Node& read = plan.graph[access.source];
    if (graph::reads_memory(group, access.source))
      builder_.value(access.source, false);
    else if (read.op == graph::Op::cast_)
      builder_.value(read.operands[0], false);
    result_ = builder_.value(group.root, true);
    body_ = std::make_unique<Body>(builder_, plan, group, source_, barrier,
                                   std::map<graph::ValueId, Access>{{value_, access}});
    inner_ = body_->first_axis(std::ssize(body_->extents()) - 1);
  }

  // Whether rows of the source, along the last axis that the body walks, are within rows of the result.
  bool possible() const {
    return last_ >= 0 && inner_ >= last_ && product(source_) > 0 && body_->chunking(target_.f32_lanes()).lanes == 0;
  }

  Step write() {
    const std::vector<int64_t> outer(whole_.begin(), whole_.begin() + inner_);
    const int64_t row = whole_[inner_] * behind();
    lanes_ = lanes();
    const bool threads = target_.wave > 1;
    const Tasks tasks = cut(outer, row, threads ? 1 : target_.grain(kTaskElements), lanes_ * (threads ? 1 : 4));
    const double bytes = product(source_) * scalar_bytes(scalar());
    const int64_t beside = threads && row % lanes_ == 0 ? tasks_beside(tasks, bytes, target_) : 1;
    for_tasks(
        b_, tasks, outer, row, [&] { body_->begin_task(); },
        [&](const std::vector<Expr>& counters, Expr from, Expr to) {
          first_ = b_.i64(0);
          for (int d = 0; d < inner_; ++d) first_ = first_ * whole_[d] + counters[d];
          first_ = first_ * row;
          const Expr inside = open(counters);
          threads || steps_[inner_] != 1 ? choose(inside, from, to) : copy(inside, from, to);
          for (size_t k = 0; k + 1 < body_->extents().size(); ++k) body_->close();
        },
        beside);
    return builder_.finish(fmt::format("pad {} into {}", shape_text(source_), shape_text(whole_)), 0,
                           bytes + product(whole_) * scalar_bytes(scalar()));
  }

 private:
  bool moves(int d) const { return whole_[d] != source_[d] || steps_[d] != 1; }
  Scalar scalar() const { return node_.type.element.scalar; }
  // Elements of a step of the inner axis.
  int64_t behind() const {
    int64_t out = 1;
    for (size_t d = inner_ + 1; d < whole_.size(); ++d) out *= whole_[d];
    return out;
  }
  int64_t start() const { return starts_[inner_] * behind(); }
  int64_t length() const { return source_[inner_] * behind(); }

  // Those of sixteen bytes on a GPU, or fewer, so that zeros begin and end between vectors.
  int lanes() const {
    if (steps_[inner_] != 1) return 1;
    if (target_.wave == 1) return target_.f32_lanes();
    int64_t lanes = kVectorBytes / scalar_bytes(scalar());
    for (const int64_t at : {start(), length(), whole_[inner_] * behind()})
      while (at % lanes != 0) lanes /= 2;
    return lanes;
  }

  // Opens the axes before the inner one at the source of the result's row, or near it; whether the row has a source. No
  // value if all rows do.
  Expr open(const std::vector<Expr>& counters) {
    Expr inside;
    std::vector<Expr> at(inner_);
    for (int d = 0; d < inner_; ++d) {
      at[d] = counters[d];
      if (!moves(d)) continue;
      const Place p = place(counters[d], d, 1);
      at[d] = p.at;
      inside = inside.exists() ? inside & p.inside : p.inside;
    }
    for (int64_t k = 0; k + 1 < std::ssize(body_->extents()); ++k) {
      const int first = body_->first_axis(k), end = body_->first_axis(k + 1);
      Expr counter = at[first];
      for (int d = first + 1; d < end; ++d)
        if (source_[d] != 1) counter = counter * source_[d] + at[d];
      body_->open(k, counter);
    }
    return inside;
  }

  struct Place {
    Expr at, inside;
  };
  // The source of position `at` of the result, in units of `unit` elements along axis d, or the nearest one.
  Place place(Expr at, int d, int64_t unit) {
    const int64_t scale = d == inner_ ? behind() : 1, begin = starts_[d] * scale / unit,
                  count = source_[d] * scale / unit;
    const Expr moved = at - begin;
    Place out{moved, 0 <= moved};
    if (steps_[d] != 1) {
      out.inside = out.inside & (moved % steps_[d] == 0);
      out.at = moved / steps_[d];
    }
    out.inside = out.inside & (out.at < count);
    out.at = max(b_.i64(0), min(out.at, b_.i64(count - 1)));
    return out;
  }

  Expr zero(int lanes) {
    const Scalar s = scalar() == Scalar::boolean ? Scalar::u8 : scalar();
    return is_float(s) ? b_.real(0, {s, lanes}) : b_.integer(0, {s, lanes});
  }
  // In the type of memory.
  Expr read(int lanes) {
    const Expr x = body_->value(value_), v = b_.type(x).lanes == lanes ? x : b_.splat(x, lanes);
    if (scalar() != Scalar::boolean) return v;
    const VType u8{Scalar::u8, lanes};
    return select(v, b_.integer(1, u8), b_.integer(0, u8));
  }
  void store(Expr at, Expr x, int64_t align, Expr count = {}) {
    const int64_t bytes = scalar_bytes(scalar());
    b_.store(result_, x, (first_ + at) * bytes, align * bytes, count);
  }

  // Reads the source or the nearest element, and selects: without branches, no lane waits for others.
  void choose(Expr inside, Expr from, Expr to) {
    const auto vector = [&](Expr number) {
      const Place p = place(number, inner_, lanes_);
      body_->open_lanes(p.at * lanes_, lanes_, {});
      const Expr here = inside.exists() ? inside & p.inside : p.inside;
      store(number * lanes_, select(b_.splat(here, lanes_), read(lanes_), zero(lanes_)), lanes_);
      body_->close();
    };
    if (target_.wave > 1) return vector(from / lanes_);
    b_.loop(LoopKind::serial, from / lanes_, to / lanes_, 1, vector);
  }

  void zeros(Expr from, Expr to) {
    const Expr whole = to - (to - from) % lanes_;
    b_.loop(LoopKind::serial, from, whole, lanes_, [&](Expr at) { store(at, zero(lanes_), 1); });
    b_.branch(whole < to, [&] { store(whole, zero(lanes_), 1, to - whole); });
  }

  void copy(Expr inside, Expr from, Expr to) {
    const auto within = [&](int64_t x) { return max(from, min(to, b_.i64(x))); };
    const auto some = [&] {
      const Expr begin = within(start()), end = within(start() + length());
      zeros(from, begin);
      for_lanes(b_, *body_, lanes_, 4, begin - start(), end - start(), false, [&](int) {
        const Expr x = read(body_->lanes());
        store(body_->at() + start(), x, 1, body_->count());
      });
      zeros(end, to);
    };
    if (!inside.exists()) return some();
    b_.branch(inside, some, [&] { zeros(from, to); });
  }

  const graph::Node& node_;
  graph::ValueId value_;
  const machine::Machine& target_;
  std::vector<int64_t> source_, whole_, starts_, steps_;
  StepBuilder builder_;
  Builder& b_;
  BufferId result_ = -1;
  std::unique_ptr<Body> body_;
  int last_ = -1, inner_ = -1;  // axes: the last with zeros, and along which vectors run
  int lanes_ = 1;
  Expr first_;  // of the result's row
};

}  // namespace

std::optional<Step> synthesize_pad(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  PadKernel kernel(plan, group, target);
  if (!kernel.possible()) return {};
  return kernel.write();
}

}  // namespace lumen::synth
