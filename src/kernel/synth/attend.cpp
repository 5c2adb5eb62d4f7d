// Attention in one kernel: for a few query rows the scores stay in private memory from the first dot to the last, so
// that nothing of the size queries x keys is ever written. All of a row's scores are known before the maximum is taken,
// so the result is that of the plain formulas. Scale and mask are the group's own maps. Proved by
// tests/kernel/synth_attend_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/reduce.h"
#include "kernel/synth/transpose.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;
using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

constexpr double kGrain = 131072;       // multiplications per task
constexpr int64_t kRows = 16;           // query rows that share every load of keys and values
constexpr int64_t kRowBytes = 1 << 18;  // private memory for their scores
constexpr int64_t kKeys = 64;           // keys whose values are taken by all rows before the next
constexpr int kTogether = 4;            // rows multiplied side by side
constexpr int kVectors = 8;             // vectors of one result row held at once

class AttendKernel {
 public:
  AttendKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : plan_(plan),
        g_(plan.graph),
        group_(group),
        draft_(plan.graph),
        b_(draft_.b),
        lanes_(target.f32_lanes()),
        fused_(target.fma) {
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
                                  std::map<graph::ValueId, Access>{{q, by_letters(q, dot[0], dot_letters)},
                                                                   {k, by_letters(k, dot[1], dot_letters)}});
    map_ = std::make_unique<Body>(draft_, plan_, group_, scores_, apart);
    pick_ = std::make_unique<Body>(draft_, plan_, nothing_, sum_space, apart,
                                   std::map<graph::ValueId, Access>{{v, by_letters(v, sum[1], sum_letters)}},
                                   std::map<graph::ValueId, Access>{{last_, to}});
    choose_block(k, v);
    std::vector<int64_t> outer_axes(scores_.begin(), scores_.end() - 1);
    if (block_axis_ >= 0) outer_axes[block_axis_] = (queries_ + block_ - 1) / block_;
    const double work = static_cast<double>(keys_) * static_cast<double>(depth_ + width_);
    Tasks tasks;
    tasks.rows = product(outer_axes);
    tasks.part = 1;
    tasks.rows_per_task = std::clamp<int64_t>(static_cast<int64_t>(kGrain / work / static_cast<double>(block_)), 1,
                                              std::max<int64_t>(tasks.rows, 1));
    for_tasks(
        b_, tasks, outer_axes, 1, [&] { begin(); },
        [&](const std::vector<ValueId>& counters, ValueId, ValueId) { rows(counters, q, k, v); });
    Synthesis out;
    double bytes = static_cast<double>(graph::byte_size(g_[last_].type));
    for (const graph::ValueId input : group_.inputs) bytes += static_cast<double>(graph::byte_size(g_[input].type));
    const double count = static_cast<double>(product(scores_)) / static_cast<double>(std::max<int64_t>(keys_, 1));
    out.steps.push_back(draft_.finish(fmt::format("attend {} depth {} width {} {} rows {} x{}", shape_text(scores_),
                                                  depth_, width_, map_->summary(), block_, lanes_),
                                      2.0 * count * work, bytes));
    return out;
  }

 private:
  // The innermost row axis along which keys and values stay: its rows share every load of them.
  void choose_block(graph::ValueId k, graph::ValueId v) {
    for (int d = static_cast<int>(scores_.size()) - 2; d >= 0; --d) {
      if (scores_[d] == 1) continue;
      const int dot_axis = axis_of(*dot_, static_cast<size_t>(d)), pick_axis = axis_of(*pick_, static_cast<size_t>(d));
      if (dot_->varies(k, dot_axis) || pick_->varies(v, pick_axis)) return;
      block_axis_ = d;
      queries_ = scores_[d];
      block_ = std::clamp<int64_t>(kRowBytes / (row_length() * 4), 1, std::min<int64_t>(queries_, kRows));
      return;
    }
  }
  int64_t row_length() const { return (keys_ + lanes_ - 1) / lanes_ * lanes_; }

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
    row_ = b_.alloc(block_ * row_length() * 4, 64);
    sums_ = b_.alloc(block_ * (width_ + lanes_) * 4, 64);
    turned_ = b_.alloc((depth_ + lanes_) * lanes_ * 4, 64);
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
  // Byte of a key's score in row i of the block.
  ValueId place(ValueId i, ValueId key) { return b_.mul(b_.add(b_.mul(i, b_.i64(row_length())), key), b_.i64(4)); }
  ValueId as_f32(ValueId x) { return b_.convert(ScalarOp::cast_, Scalar::f32, x); }

  void rows(std::vector<ValueId> counters, graph::ValueId q, graph::ValueId k, graph::ValueId v) {
    first_row_ = b_.i64(0);
    ValueId count = b_.i64(1);
    if (block_axis_ >= 0) {
      first_row_ = b_.mul(counters[block_axis_], b_.i64(block_));
      count = queries_ % block_ == 0
                  ? b_.i64(block_)
                  : b_.op(ScalarOp::min_, b_.i64(block_), b_.op(ScalarOp::sub_, b_.i64(queries_), first_row_));
    }
    int opened[3] = {0, 0, 0};
    Body* bodies[3] = {dot_.get(), map_.get(), pick_.get()};
    for (int n = 0; n < 3; ++n)
      for (size_t d = 0; d < counters.size(); ++d)
        if (static_cast<int>(d) != block_axis_) opened[n] += open_axis(*bodies[n], d, counters[d]);
    dots(q, k, count);
    b_.loop(loop::LoopKind::serial, b_.i64(0), count, 1, [&](ValueId i) { soften(i); });
    // Some keys at a time, so that their values stay near while all rows take them.
    b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(keys_), kKeys, [&](ValueId key) {
      const ValueId end = keys_ % kKeys == 0 ? b_.add(key, b_.i64(kKeys))
                                             : b_.op(ScalarOp::min_, b_.add(key, b_.i64(kKeys)), b_.i64(keys_));
      in_groups(count, kTogether, [&](ValueId i, int n) { pick(v, i, n, key, end); });
    });
    for (int n = 0; n < 3; ++n)
      for (int d = 0; d < opened[n]; ++d) bodies[n]->close();
  }

  // Rows `together` at a time, then one by one.
  void in_groups(ValueId count, int together, const std::function<void(ValueId, int)>& body) {
    ValueId whole = b_.i64(0);
    if (together > 1 && block_ >= together) {
      whole = b_.op(ScalarOp::sub_, count, b_.op(ScalarOp::rem_, count, b_.i64(together)));
      b_.loop(loop::LoopKind::serial, b_.i64(0), whole, together, [&](ValueId i) { body(i, together); });
    }
    b_.loop(loop::LoopKind::serial, whole, count, 1, [&](ValueId i) { body(i, 1); });
  }

  bool open_row(Body& body, ValueId i) {
    return block_axis_ >= 0 && open_axis(body, block_axis_, b_.add(first_row_, i));
  }

  // Scores of all rows of the block: for as many keys as there are lanes, keys are turned so that lanes are keys, then
  // every row multiplies its numbers with them.
  void dots(graph::ValueId q, graph::ValueId k, ValueId count) {
    const size_t key_axis = scores_.size() - 1;
    const Body::Chunking chunking = dot_->chunking(lanes_);
    b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(keys_), lanes_, [&](ValueId key) {
      // Keys beyond the last repeat it; their scores are never read.
      std::vector<ValueId> number;
      for (int j = 0; j < lanes_; ++j)
        number.push_back(keys_ % lanes_ == 0 ? b_.add(key, b_.i64(j))
                                             : b_.op(ScalarOp::min_, b_.add(key, b_.i64(j)), b_.i64(keys_ - 1)));
      const int64_t square = chunking.lanes > 0 || !dot_->varies(k, static_cast<int>(dot_->extents().size()) - 1)
                                 ? 0
                                 : depth_ / lanes_ * lanes_;
      if (square > 0) {
        b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(square), lanes_, [&](ValueId at) {
          std::vector<ValueId> tile;
          for (int j = 0; j < lanes_; ++j) {
            const bool opened = open_axis(*dot_, key_axis, number[j]);
            dot_->open_lanes(at, lanes_, -1);
            tile.push_back(as_f32(dot_->value(k)));
            dot_->close();
            if (opened) dot_->close();
          }
          transpose(b_, tile);
          for (int l = 0; l < lanes_; ++l)
            b_.store(turned_, tile[l], b_.mul(b_.add(at, b_.i64(l)), b_.i64(lanes_ * 4)), 4);
        });
      }
      if (square < depth_) {  // blocks of formats, and what is left
        for (int j = 0; j < lanes_; ++j) {
          const bool opened = open_axis(*dot_, key_axis, number[j]);
          for_lanes(b_, *dot_, chunking.lanes > 0 ? lanes_ : 1, 1, b_.i64(square), b_.i64(depth_), true, [&](int) {
            const ValueId x = as_f32(dot_->value(k));
            for (int l = 0; l < dot_->lanes(); ++l)
              b_.store(turned_, b_.extract(x, l),
                       b_.mul(b_.add(b_.mul(b_.add(dot_->at(), b_.i64(l)), b_.i64(lanes_)), b_.i64(j)), b_.i64(4)), 4);
          });
          if (opened) dot_->close();
        }
      }
      in_groups(count, chunking.lanes > 0 ? 1 : kTogether, [&](ValueId i, int n) { multiply(q, key, i, n); });
    });
  }

  void multiply(graph::ValueId q, ValueId key, ValueId i, int n) {
    Accumulators sums(b_, g_, {first_}, lanes_, n);
    sums.reset(0);
    const auto one = [&](ValueId depth, const std::function<ValueId(int)>& number) {
      const ValueId keys = b_.load(turned_, {Scalar::f32, lanes_}, b_.mul(depth, b_.i64(lanes_ * 4)), 4);
      for (int r = 0; r < n; ++r) sums.multiply_add(r, b_.splat(number(r), lanes_), keys, fused_);
    };
    if (dot_->chunking(lanes_).lanes > 0) {  // blocks are entered once the row is known
      LUMEN_CHECK(n == 1, "rows side by side over a format");
      const bool opened = open_row(*dot_, i);
      for_lanes(b_, *dot_, lanes_, 1, b_.i64(0), b_.i64(depth_), true, [&](int) {
        const ValueId x = as_f32(dot_->value(q));
        for (int l = 0; l < dot_->lanes(); ++l)
          one(b_.add(dot_->at(), b_.i64(l)), [&](int) { return b_.extract(x, l); });
      });
      if (opened) dot_->close();
    } else {
      for_lanes(b_, *dot_, 1, 1, b_.i64(0), b_.i64(depth_), true, [&](int) {
        one(dot_->at(), [&](int r) {
          const bool opened = open_row(*dot_, b_.add(i, b_.i64(r)));
          const ValueId x = as_f32(dot_->value(q));
          if (opened) dot_->close();
          return x;
        });
      });
    }
    for (int r = 0; r < n; ++r) b_.store(row_, sums.get(0, r), place(b_.add(i, b_.i64(r)), key), 4);
  }

  // Scores to probabilities, in place.
  void soften(ValueId i) {
    const graph::ValueId score = g_[top_].operands[0], power = g_[sum_].operands[0];
    const bool opened = open_row(*map_, i);
    const auto pass = [&](graph::ValueId known, graph::ValueId wanted, int reduce) {
      for_lanes(b_, *map_, lanes_, 1, b_.i64(0), b_.i64(keys_), keys_ % lanes_ == 0, [&](int) {
        const ValueId at = place(i, map_->at());
        map_->set(known, b_.load(row_, {Scalar::f32, map_->lanes()}, at, 4));
        const ValueId x = map_->value(wanted);
        b_.store(row_, x, at, 4);
        if (reduce >= 0) tops_->add(reduce, 0, x, map_->count());
      });
      if (reduce >= 0) map_->set(reduce == 0 ? top_ : sum_, tops_->total(reduce));
    };
    map_->push_scope();  // for the row's maximum and sum
    tops_->reset(0);
    tops_->reset(1);
    pass(first_, score, 0);
    pass(score, power, 1);
    pass(power, probability_, -1);
    map_->pop_scope();
    if (opened) map_->close();
  }

  // Rows i .. i + n - 1 of the result: sums of values weighted by probabilities.
  void pick(graph::ValueId v, ValueId i, int n, ValueId from_key, ValueId to_key) {
    const size_t key_axis = scores_.size() - 1;
    const Body::Chunking chunking = pick_->chunking(lanes_);
    const auto walk = [&](ValueId at, int lanes, int vectors, ValueId count, int64_t chunk) {
      const auto each = [&](const std::function<void(int)>& step) {
        if (chunk > 0) pick_->enter_chunk(at, chunk);
        for (int w = 0; w < vectors; ++w) {
          if (chunk > 0) pick_->set_position(int64_t{w} * lanes);
          pick_->open_lanes(b_.add(at, b_.i64(int64_t{w} * lanes)), lanes, count);
          step(w);
          pick_->close();
        }
      };
      Accumulators sums(b_, g_, {last_}, lanes, vectors * n);
      const auto kept = [&](int r, int w) {
        const ValueId number =
            b_.add(b_.mul(b_.add(i, b_.i64(r)), b_.i64(width_ + lanes_)), b_.add(at, b_.i64(int64_t{w} * lanes)));
        return b_.mul(number, b_.i64(4));
      };
      const bool one_pass = keys_ <= kKeys;
      for (int r = 0; r < n; ++r)
        for (int w = 0; w < vectors; ++w) {
          if (one_pass) {
            sums.reset_way(0, r * vectors + w);
          } else {
            const VType type{Scalar::f32, lanes};
            const ValueId is_first = b_.splat(b_.op(ScalarOp::eq_, from_key, b_.i64(0)), lanes);
            sums.put(r * vectors + w,
                     b_.op(ScalarOp::select_, is_first, b_.real(0, type), b_.load(sums_, type, kept(r, w), 4)));
          }
        }
      b_.loop(loop::LoopKind::serial, from_key, to_key, 1, [&](ValueId key) {
        const bool opened = open_axis(*pick_, key_axis, key);
        std::vector<ValueId> p;
        for (int r = 0; r < n; ++r)
          p.push_back(b_.splat(b_.load(row_, {Scalar::f32, 1}, place(b_.add(i, b_.i64(r)), key), 4), lanes));
        each([&](int w) {
          const ValueId x = as_f32(pick_->value(v));
          for (int r = 0; r < n; ++r) sums.multiply_add(r * vectors + w, p[r], x, fused_);
        });
        if (opened) pick_->close();
      });
      if (!one_pass)
        for (int r = 0; r < n; ++r)
          for (int w = 0; w < vectors; ++w) b_.store(sums_, sums.get(0, r * vectors + w), kept(r, w), 4);
      const auto finish = [&] {
        for (int r = 0; r < n; ++r) {
          const bool opened = open_row(*pick_, b_.add(i, b_.i64(r)));
          each([&](int w) {
            pick_->store(last_,
                         b_.convert(ScalarOp::cast_, g_[last_].type.element.scalar, sums.get(0, r * vectors + w)));
          });
          if (opened) pick_->close();
        }
      };
      if (one_pass) {
        finish();
      } else {
        b_.branch(b_.op(ScalarOp::eq_, to_key, b_.i64(keys_)), finish);
      }
    };
    if (pick_->store_stride(last_) != 1 &&
        width_ > 1) {  // a result whose new axis is not the last: one number at a time
      LUMEN_CHECK(chunking.lanes == 0, "attend over a format into strided results");
      b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(width_), 1, [&](ValueId at) { walk(at, 1, 1, -1, 0); });
      return;
    }
    if (chunking.lanes > 0) {
      const int64_t whole = width_ / chunking.chunk * chunking.chunk;
      b_.loop(loop::LoopKind::serial, b_.i64(0), b_.i64(whole), chunking.chunk, [&](ValueId at) {
        walk(at, chunking.lanes, static_cast<int>(chunking.chunk / chunking.lanes), -1, chunking.chunk);
      });
      b_.loop(loop::LoopKind::serial, b_.i64(whole), b_.i64(width_), chunking.unit, [&](ValueId at) {
        walk(at, chunking.unit_lanes, static_cast<int>(chunking.unit / chunking.unit_lanes), -1, chunking.unit);
      });
      return;
    }
    int64_t at = 0;
    for (int vectors = n > 1 ? kVectors / 2 : kVectors; vectors >= 1; vectors /= 2) {
      const int64_t step = int64_t{lanes_} * vectors, end = at + (width_ - at) / step * step;
      if (end > at)
        b_.loop(loop::LoopKind::serial, b_.i64(at), b_.i64(end), step,
                [&](ValueId from) { walk(from, lanes_, vectors, -1, 0); });
      at = end;
    }
    if (at < width_) walk(b_.i64(at), lanes_, 1, b_.i64(width_ - at), 0);
  }

  const graph::Plan& plan_;
  const graph::Graph& g_;
  const graph::Group& group_;
  graph::Group nothing_;  // the same memory, no nodes: for bodies that only read what they are given
  Draft draft_;
  loop::Builder& b_;
  int lanes_;
  graph::ValueId first_ = -1, last_ = -1, top_ = -1, sum_ = -1, probability_ = -1;
  std::vector<int64_t> scores_;
  int64_t keys_ = 1, depth_ = 1, width_ = 1;
  std::unique_ptr<Body> dot_, map_, pick_;
  std::unique_ptr<Accumulators> tops_;
  BufferId row_ = -1, turned_ = -1, sums_ = -1;
  bool fused_;
  int block_axis_ = -1;  // of the scores; its rows are taken block_ at a time
  int64_t queries_ = 1, block_ = 1;
  ValueId first_row_ = -1;
};

}  // namespace

Synthesis synthesize_attend(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  return AttendKernel(plan, group, target).run();
}

}  // namespace lumen::synth
