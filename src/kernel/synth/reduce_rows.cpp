// Reductions over the last axis: one task takes some rows; over each row several passes may be needed (a maximum, then
// a sum that uses it, then values that use both). Expensive values needed by more than one pass are kept in a private
// row. Where lanes step together in waves, a wave takes a row, each lane a run of it; several waves of a block share a
// row that one could not hold, or that has too few beside it. Proved by tests/kernel/synth_reduce_test.cpp.
#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/reduce.h"

namespace lumen::synth {

using graph::Op;
using loop::ValueId;

namespace {

constexpr int64_t kGrain = 8192;
constexpr int64_t kResidentRow = 16384;  // elements of a row kept in private memory at most
constexpr int64_t kHeldRegisters = 144;  // of a lane, for numbers of its row that several passes need
constexpr int64_t kHeldVectors = 64;     // of a lane, written out
constexpr int64_t kWaveRow = 4;          // elements for every lane, at least, that make a row worth a wave
constexpr int64_t kBlockLanes = 1024;    // at most
constexpr int64_t kBlockRegisters = 65536, kOwnRegisters = 40;  // of a block; of a lane, beside what it holds
constexpr int64_t kHeldOfBlock = 72;                            // as kHeldRegisters where waves share a row
constexpr int64_t kShortRow = 8;                                // vectors of a lane
constexpr int64_t kRowsBeside = 4;                              // such rows, of a block

bool is_costly(const graph::Node& n) {
  for (const ScalarNode& s : n.attributes.formula.nodes)
    if (s.op == ScalarOp::exp_ || s.op == ScalarOp::log_ || s.op == ScalarOp::tanh_ || s.op == ScalarOp::sin_ ||
        s.op == ScalarOp::cos_ || s.op == ScalarOp::pow_)
      return true;
  return n.op == Op::random_;
}

class RowKernel {
 public:
  RowKernel(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
            const machine::Machine& target, Split split)
      : plan_(plan),
        g_(plan.graph),
        group_(group),
        facts_(facts),
        target_(target),
        split_(split),
        draft_(plan.graph),
        b_(draft_.b) {
    declare_reduce(draft_, group, facts, split, true);
    if (finds_extremes_of_short()) b_.take_shortcuts({target.power2, target.reciprocal, ""});
    body_ = std::make_unique<Body>(draft_, plan, group, facts.full, facts.barrier());
    lanes_ = target.f32_lanes();
    for (size_t d = 0; d < body_->extents().size(); ++d) {
      const int axis = body_->first_axis(static_cast<int>(d));
      (axis < 0 || facts.is_reduced[axis] ? reduced_axes_ : kept_axes_).push_back(static_cast<int>(d));
    }
    int64_t ways = body_->extents().back() / lanes_ / 2;
    ways_ = ways >= 4 ? 4 : ways >= 2 ? 2 : 1;
    if (facts.reduces.size() > 2) ways_ = std::min(ways_, 2);
    for (const int axis : reduced_axes_) row_length_ *= body_->extents()[axis];
    by_waves_ = target.wave > 1 && reduced_axes_.size() == 1 &&
                (split.parts > 1 ? split.part : row_length_) >= kWaveRow * lanes_ * target.wave;
    // What formats unpack together stays with a lane; else lanes read beside each other.
    beside_ = by_waves_ && body_->chunking(lanes_).lanes == 0;
    if (by_waves_) ways_ = beside_ && row_length_ >= 4 * kWaveRow * lanes_ * target.wave ? 4 : 1;
    sharing_ = target.wave;
    if (target.wave > 1 && !by_waves_ && reduced_axes_.size() == 1 && split.parts == 1) share_waves();
    plan_passes();
    if (beside_ && split.parts == 1 && sharing_ == target.wave) share_rows();
  }

  Step run() {
    std::vector<int64_t> outer;
    for (const int axis : kept_axes_) outer.push_back(body_->extents()[axis]);
    const int64_t cut_extent = body_->extents()[reduced_axes_[0]];
    Tasks tasks = cut(outer, row_length_, target_.grain(kGrain), 1, false);
    if (split_.parts > 1) tasks = {product(outer), 1, split_.parts, split_.part};
    if (tasks.part == row_length_) tasks.part = cut_extent;  // without a split the first reduced axis runs whole
    if (waves_ > 1)
      write_shared(outer);
    else if (by_waves_)
      write_waves(outer);
    else
      for_tasks(
          b_, tasks, outer, cut_extent, [&] { begin_task(); },
          [&](const std::vector<ValueId>& counters, ValueId from, ValueId to) { row(counters, from, to); });
    const double elements = static_cast<double>(product(facts_.full));
    return draft_.finish(
        fmt::format(
            "reduce rows {} {} passes {} x{}x{}{}", shape_text(facts_.full), body_->summary(), facts_.passes, lanes_,
            ways_,
            (split_.parts > 1 ? fmt::format(" parts {}", split_.parts) : "") +
                (rows_ > 1 ? fmt::format(" {} rows", rows_) : "") +
                (waves_ > 1  ? fmt::format(" by {} waves of {}", waves_, target_.wave)
                 : by_waves_ ? fmt::format(" by {} of {}", sharing_ < target_.wave ? "lanes" : "waves", sharing_)
                             : "") +
                (held_.empty() ? "" : fmt::format(" {} held", held_.size()))),
        elements * (body_->operations() + static_cast<double>(facts_.reduces.size())), body_->traffic());
  }

 private:
  // Short floats are written, and beside them extremes of rows alone are found: as a map would compute them.
  bool finds_extremes_of_short() const {
    const auto is_short = [&](graph::ValueId v) { return is_short_float(g_[v].type.element); };
    const auto is_extreme = [&](graph::ValueId v) {
      return g_[v].attributes.reduction != graph::Reduction::sum && reads_short(g_[v].operands[0]);
    };
    const auto& results = facts_.full_results;
    return !results.empty() && facts_.kept_maps.empty() && std::all_of(results.begin(), results.end(), is_short) &&
           std::all_of(facts_.reduces.begin(), facts_.reduces.end(), is_extreme);
  }
  // A short float, or a map of one.
  bool reads_short(graph::ValueId v) const {
    const graph::Node& n = g_[v];
    return is_short_float(n.type.element) || (n.op == Op::map_ && n.operands.size() == 1 && reads_short(n.operands[0]));
  }

  // A wave takes one row, or a part of it. Runs begin where vectors and what formats unpack together begin.
  void write_waves(const std::vector<int64_t>& outer) {
    const Body::Chunking chunking = body_->chunking(lanes_);
    const int64_t unit = std::lcm<int64_t>(lanes_, chunking.lanes > 0 ? chunking.chunk : 1);
    const int64_t units = (row_length_ + unit - 1) / unit, run = (units + target_.wave - 1) / target_.wave * unit;
    b_.loop(loop::LoopKind::grid, b_.i64(0), b_.i64(product(outer) * split_.parts / rows_), 1, [&](ValueId block) {
      b_.loop(loop::LoopKind::lane, b_.i64(0), b_.i64(int64_t{sharing_} * rows_), 1, [&](ValueId lane) {
        lane_ = sharing_ == target_.wave ? b_.lane_id() : b_.op(ScalarOp::rem_, b_.lane_id(), b_.i64(sharing_));
        begin_held();
        begin_task();
        ValueId number = block, end = b_.i64(row_length_);
        if (rows_ > 1) number = b_.add(b_.mul(block, b_.i64(rows_)), b_.op(ScalarOp::div_, lane, b_.i64(sharing_)));
        if (split_.parts > 1) {
          number = b_.op(ScalarOp::div_, block, b_.i64(split_.parts));
          part_ = b_.op(ScalarOp::rem_, block, b_.i64(split_.parts));
        }
        if (beside_) {
          ValueId first = b_.i64(0);
          if (split_.parts > 1) {
            first = b_.mul(part_, b_.i64(split_.part));
            end = b_.op(ScalarOp::min_, b_.add(first, b_.i64(split_.part)), end);
          }
          return row(digits(b_, number, outer), first, end);
        }
        LUMEN_CHECK(split_.parts == 1, "parts of packed rows by waves");
        const ValueId from = b_.op(ScalarOp::min_, b_.mul(lane_, b_.i64(run)), end);
        row(digits(b_, number, outer), from, b_.op(ScalarOp::min_, b_.add(from, b_.i64(run)), end));
      });
    });
  }

  // A block takes one row. What waves reduced meets in shared memory between passes, and is added in their order.
  void write_shared(const std::vector<int64_t>& outer) {
    constexpr int64_t kSlot = 8;  // bytes
    b_.loop(loop::LoopKind::grid, b_.i64(0), b_.i64(product(outer)), 1, [&](ValueId block) {
      const loop::BufferId slots =
          b_.alloc(static_cast<int64_t>(facts_.reduces.size()) * waves_ * kSlot, 16, loop::Space::shared);
      begin_held();
      const auto slot = [&](int k, ValueId wave) {
        return b_.mul(b_.add(b_.i64(int64_t{k} * waves_), wave), b_.i64(kSlot));
      };
      // In the row, whose reduces are known as far as `done` of them in a row.
      const auto lanes = [&](int done, const std::function<void(ValueId)>& body) {
        b_.loop(loop::LoopKind::lane, b_.i64(0), b_.i64(int64_t{waves_} * target_.wave), 1, [&](ValueId lane) {
          lane_ = lane;
          begin_task();
          const std::vector<ValueId> counters = digits(b_, block, outer);
          for (size_t d = 0; d < counters.size(); ++d) body_->open(kept_axes_[d], counters[d]);
          kept_values(0);
          for (int p = 0; p < done; ++p) {
            for (int k = 0; k < sums_->size(); ++k) {
              if (facts_.level.at(facts_.reduces[k]) != p + 1) continue;
              ValueId total = -1;
              for (int w = 0; w < waves_; ++w) {
                const ValueId x = b_.load(slots, {sums_->type(k), 1}, slot(k, b_.i64(w)), kSlot);
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
      for (int p = 0; p < facts_.passes; ++p) {
        if (p > 0) b_.barrier();
        lanes(p, [&](ValueId lane) {
          const ValueId wave = b_.op(ScalarOp::div_, lane, b_.i64(target_.wave));
          for (const auto& [k, total] : reduce_pass(p, b_.i64(0), b_.i64(row_length_)))
            b_.branch(b_.op(ScalarOp::eq_, b_.lane_id(), b_.i64(0)),
                      [&, k = k, total = total] { b_.store(slots, total, slot(k, wave), kSlot); });
        });
      }
      if (facts_.kept_results.empty()) return;
      b_.barrier();
      lanes(facts_.passes, [&](ValueId) { once([&] { store_kept(); }); });
    });
  }

  int64_t rows() const {
    int64_t all = 1;
    for (const int axis : kept_axes_) all *= body_->extents()[axis];
    return all;
  }
  // Rows too short for a wave: some of its lanes take each.
  void share_waves() {
    constexpr int64_t kVectors = 2;  // of a lane, at least
    if (body_->chunking(lanes_).lanes > 0) return;
    for (int group = target_.wave / 2; group > 1; group /= 2) {
      const int64_t beside = kRowsBeside * target_.wave / group;
      if (row_length_ % (kVectors * lanes_ * group) != 0 || rows() % beside != 0) continue;
      sharing_ = group;
      rows_ = static_cast<int>(beside);
      by_waves_ = beside_ = true;
      ways_ = row_length_ >= 4 * lanes_ * group ? 4 : 2;
      return;
    }
  }
  // How many waves share a row, or how many rows a block takes.
  void share_rows() {
    const int64_t rows = this->rows();
    const int64_t step = int64_t{lanes_} * target_.wave, vectors = row_length_ / step;
    const bool whole = row_length_ % step == 0;
    if (rows * row_length_ <= kFewElements && vectors > 1) {
      waves_ = static_cast<int>(
          std::min<int64_t>(kBlockLanes / target_.wave, std::bit_floor(static_cast<uint64_t>(vectors))));
    } else if (facts_.passes > 1 && whole) {
      plan_held(row_length_);
      const int64_t wanted = held_registers();
      held_.clear();
      const auto fits = [&](int64_t registers, int waves) {
        return vectors % waves == 0 && vectors / waves <= kHeldVectors &&
               (registers + waves - 1) / waves <= most_held(waves);
      };
      const auto find = [&](int64_t registers) {
        for (waves_ = 1; waves_ * target_.wave <= kBlockLanes; ++waves_)
          if (fits(registers, waves_)) return true;
        waves_ = 1;
        return false;
      };
      if (!find(wanted)) find(vectors * lanes_);
    } else if (facts_.passes == 1 && vectors <= kShortRow && rows % kRowsBeside == 0) {
      rows_ = kRowsBeside;
      ways_ = static_cast<int>(std::clamp<int64_t>(vectors, 1, 4));
    }
    const int64_t own = vectors / waves_;  // of a lane
    if (whole && vectors % waves_ == 0 && own <= kHeldVectors) plan_held(most_held(waves_));
    if (waves_ > 1) ways_ = own >= 4 ? 4 : 1;
  }
  int64_t most_held(int waves) const {
    if (waves == 1) return kHeldRegisters;
    return std::min(kHeldOfBlock, kBlockRegisters / (waves * target_.wave) - kOwnRegisters);
  }
  // At most, while a pass begins: what it needs last makes room for what it finds first, vector by vector.
  int64_t held_registers() const {
    int64_t most = 0;
    for (int pass = 1; pass < facts_.passes; ++pass) {
      int64_t all = 0;
      for (const auto& [v, row] : held_)
        if (row.first < pass && pass <= row.last) all += registers_of(v);
      most = std::max(most, all);
    }
    return most;
  }
  int64_t registers_of(graph::ValueId v) const {
    return row_length_ / (waves_ * target_.wave) * scalar_bytes(g_[v].type.element.scalar) / 4;
  }

  // Which full-shape nodes each pass evaluates, and which of them are worth keeping.
  void plan_passes() {
    visited_.resize(facts_.passes);
    for (int p = 0; p < facts_.passes; ++p) {
      for (const graph::ValueId r : reduces_of(p)) visit(g_[r].operands[0], p);
      for (const graph::ValueId r : results_of(p)) visit(r, p);
    }
    int64_t length = 1;
    for (const int axis : reduced_axes_) length *= body_->extents()[axis];
    if (by_waves_ || length > kResidentRow || length * 4 > target_.task_bytes) return;
    for (const graph::ValueId v : facts_.full_maps) {
      int first = -1, uses = 0;
      for (int p = 0; p < facts_.passes; ++p) {
        if (!visited_[p].contains(v)) continue;
        if (first < 0) first = p;
        ++uses;
      }
      const Scalar s = g_[v].type.element.scalar;
      if (uses > 1 && is_costly(g_[v]) && s == Scalar::f32) resident_[v] = {first, facts_.passes, -1};
    }
  }
  void visit(graph::ValueId v, int pass) {
    if (!visited_[pass].insert(v).second) return;
    if (is_load(plan_, group_, v) || g_[v].op == Op::reduce_) return;
    for (const graph::ValueId a : g_[v].operands) visit(a, pass);
  }
  // What is computed in a pass and read from memory row by row, nearest to where a later pass needs it again.
  void plan_held(int64_t most) {
    const std::function<void(graph::ValueId, int)> find = [&](graph::ValueId v, int pass) {
      if (const auto held = held_.find(v); held != held_.end()) held->second.last = pass;
      if (held_.contains(v) || g_[v].op == Op::reduce_ || !reads_rows(v)) return;
      const bool load = is_load(plan_, group_, v);
      const auto first = std::find_if(visited_.begin(), visited_.begin() + pass,
                                      [&](const std::set<graph::ValueId>& all) { return all.contains(v); });
      if (first != visited_.begin() + pass && (load || is_full_map(v))) {
        held_[v] = {static_cast<int>(first - visited_.begin()), pass, -1};
        if (held_registers() <= most) return;
        held_.erase(v);
      }
      if (load) return;
      for (const graph::ValueId a : g_[v].operands) find(a, pass);
    };
    for (int p = 1; p < facts_.passes; ++p) {
      for (const graph::ValueId r : reduces_of(p)) find(g_[r].operands[0], p);
      for (const graph::ValueId r : results_of(p)) find(r, p);
    }
  }
  bool is_full_map(graph::ValueId v) const {
    return std::find(facts_.full_maps.begin(), facts_.full_maps.end(), v) != facts_.full_maps.end();
  }
  bool reads_rows(graph::ValueId v) const {
    if (is_load(plan_, group_, v))
      return body_->varies(v, reduced_axes_[0]) &&
             std::any_of(kept_axes_.begin(), kept_axes_.end(), [&](int axis) { return body_->varies(v, axis); });
    const auto& operands = g_[v].operands;
    return g_[v].op != Op::reduce_ &&
           std::any_of(operands.begin(), operands.end(), [&](graph::ValueId a) { return reads_rows(a); });
  }

  std::vector<graph::ValueId> reduces_of(int pass) const {
    std::vector<graph::ValueId> out;
    for (const graph::ValueId r : facts_.reduces)
      if (facts_.level.at(r) == pass + 1) out.push_back(r);
    return out;
  }
  std::vector<graph::ValueId> results_of(int pass) const {
    std::vector<graph::ValueId> out;
    for (const graph::ValueId r : facts_.full_results) {
      const auto found = facts_.level.find(r);
      if ((found == facts_.level.end() ? 0 : found->second) == pass) out.push_back(r);
    }
    return out;
  }

  void begin_task() {
    body_->begin_task();
    sums_ = std::make_unique<Accumulators>(b_, g_, facts_.reduces, lanes_, ways_);
    for (auto& [v, row] : resident_) row.buffer = b_.alloc((row_length_ + lanes_) * 4, 64);
  }
  void begin_held() {
    for (auto& [v, row] : held_)
      row.buffer = b_.alloc(row_length_ / (waves_ * target_.wave) * scalar_bytes(g_[v].type.element.scalar), 64);
  }

  // Scalars of the row that are known once `done` reduces in a row are.
  void kept_values(int done) {
    for (const graph::ValueId v : facts_.kept_maps) {
      if (facts_.level.at(v) != done) continue;
      body_->open_scalar();
      const ValueId x = body_->value(v);
      body_->close();
      body_->set(v, x);
    }
  }

  void row(const std::vector<ValueId>& counters, ValueId from, ValueId to) {
    for (size_t d = 0; d < counters.size(); ++d) body_->open(kept_axes_[d], counters[d]);
    if (split_.parts == 1) kept_values(0);
    for (int p = 0; p < facts_.passes; ++p) {
      for (const auto& [number, total] : reduce_pass(p, from, to)) {
        const int k = number;
        if (split_.parts > 1) {
          body_->open_scalar();
          const ValueId part = part_ >= 0 ? part_ : b_.op(ScalarOp::div_, from, b_.i64(split_.part));
          once([&, x = total] { store_part(draft_, *body_, facts_, k, sums_->type(k), part, split_.parts, x); });
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

  // A pass over the row, and what it reduced, by number: of one wave, where there are waves.
  std::vector<std::pair<int, ValueId>> reduce_pass(int pass, ValueId from, ValueId to) {
    const auto is_of_pass = [&](int k) { return facts_.level.at(facts_.reduces[k]) == pass + 1; };
    for (int k = 0; k < sums_->size(); ++k)
      if (is_of_pass(k)) sums_->reset(k);
    nest(0, pass, from, to, b_.i64(0));
    std::vector<std::pair<int, ValueId>> out;
    for (int k = 0; k < sums_->size(); ++k) {
      if (!is_of_pass(k)) continue;
      const ValueId total = sums_->total(k);
      out.emplace_back(k, lane_ >= 0 ? b_.fold_wave(sums_->op(k), total, sharing_) : total);
    }
    return out;
  }
  void set_reduced(int k, ValueId total) {
    const graph::ValueId r = facts_.reduces[k];
    body_->set(r, b_.convert(ScalarOp::cast_, g_[r].type.element.scalar, total));
  }
  void store_kept() {
    for (const graph::ValueId r : facts_.kept_results) {
      body_->open_scalar();
      body_->store(r, body_->value(r));
      body_->close();
    }
  }

  // By one of the lanes that share a row.
  void once(const std::function<void()>& body) {
    if (lane_ < 0)
      body();
    else
      b_.branch(b_.op(ScalarOp::eq_, lane_, b_.i64(0)), body);
  }

  // Lanes beside each other, `ways_` vectors of each at once.
  void walk_beside(int pass, ValueId from, ValueId to, ValueId start) {
    const int64_t stride = int64_t{lanes_} * sharing_ * waves_;
    const auto vector = [&](ValueId at, ValueId count, int way, int64_t number = 0) {
      body_->open_lanes(at, lanes_, count);
      recall(pass, number);
      step(pass, way, b_.add(start, at));
      body_->close();
    };
    const ValueId mine = b_.add(from, b_.mul(lane_, b_.i64(lanes_)));
    if (!held_.empty()) {
      for (int64_t i = 0; i < row_length_ / stride; ++i)
        vector(b_.add(mine, b_.i64(i * stride)), -1, static_cast<int>(i % ways_), i);
      return;
    }
    const ValueId length = b_.op(ScalarOp::sub_, to, from);
    const ValueId whole = b_.op(ScalarOp::sub_, length, b_.op(ScalarOp::rem_, length, b_.i64(stride * ways_)));
    b_.loop(loop::LoopKind::serial, b_.i64(0), whole, stride * ways_, [&](ValueId at) {
      for (int way = 0; way < ways_; ++way) vector(b_.add(mine, b_.add(at, b_.i64(way * stride))), -1, way);
    });
    const bool exact = body_->extents()[reduced_axes_[0]] % lanes_ == 0;
    b_.loop(loop::LoopKind::serial, b_.add(mine, whole), to, stride, [&](ValueId at) {
      vector(at, exact ? -1 : b_.op(ScalarOp::min_, b_.op(ScalarOp::sub_, to, at), b_.i64(lanes_)), 0);
    });
  }

  // Walks the reduced axes; `start`: number of the row's element where the axes to come begin.
  void nest(size_t depth, int pass, ValueId from, ValueId to, ValueId start) {
    const int axis = reduced_axes_[depth];
    const int64_t extent = body_->extents()[axis];
    const ValueId first = depth == 0 ? from : b_.i64(0), end = depth == 0 ? to : b_.i64(extent);
    if (depth + 1 == reduced_axes_.size()) {
      body_->hoist(lanes_);
      if (beside_) return walk_beside(pass, from, to, start);
      for_lanes(b_, *body_, lanes_, ways_, first, end, extent % lanes_ == 0,
                [&](int way) { step(pass, way, b_.add(start, body_->at())); });
      return;
    }
    int64_t below = 1;
    for (size_t k = depth + 1; k < reduced_axes_.size(); ++k) below *= body_->extents()[reduced_axes_[k]];
    b_.loop(loop::LoopKind::serial, first, end, 1, [&](ValueId i) {
      body_->open(axis, i);
      nest(depth + 1, pass, from, to, b_.add(start, b_.mul(i, b_.i64(below))));
      body_->close();
    });
  }

  // Vector `number` of the lane: what an earlier pass held, and what this one is to hold.
  void recall(int pass, int64_t number) {
    for (const auto& [v, row] : held_) {
      const Scalar s = g_[v].type.element.scalar;
      const ValueId at = b_.i64(number * lanes_ * scalar_bytes(s));
      if (row.first < pass && visited_[pass].contains(v))
        body_->set(v, b_.load(row.buffer, {s, lanes_}, at, 4));
      else if (row.first == pass)
        b_.store(row.buffer, body_->value(v), at, 4);
    }
  }

  void step(int pass, int way, ValueId in_row) {
    const ValueId at = b_.mul(in_row, b_.i64(4));
    for (const auto& [v, row] : resident_)
      if (row.first < pass && visited_[pass].contains(v))
        body_->set(v, b_.load(row.buffer, {Scalar::f32, body_->lanes()}, at, 4));
    for (const auto& [v, row] : resident_)
      if (row.first == pass) b_.store(row.buffer, body_->value(v), at, 4);
    for (int k = 0; k < sums_->size(); ++k) {
      const graph::ValueId r = facts_.reduces[k];
      if (facts_.level.at(r) == pass + 1) sums_->add(k, way, body_->value(g_[r].operands[0]), body_->count());
    }
    for (const graph::ValueId r : results_of(pass)) store_result(r);
  }
  // What is computed for a short float alone, as a map would.
  void store_result(graph::ValueId r) {
    const bool is_short = is_short_float(g_[r].type.element);
    if (is_short) b_.take_shortcuts({target_.power2, target_.reciprocal, ""});
    body_->store(r, body_->value(r));
    if (is_short && !finds_extremes_of_short()) b_.take_shortcuts({});
  }

  struct Resident {
    int first = 0, last = 0;  // passes
    loop::BufferId buffer = -1;
  };
  const graph::Plan& plan_;
  const graph::Graph& g_;
  const graph::Group& group_;
  const ReduceFacts& facts_;
  const machine::Machine& target_;
  Split split_;
  Draft draft_;
  loop::Builder& b_;
  std::unique_ptr<Body> body_;
  std::unique_ptr<Accumulators> sums_;
  int lanes_ = 8, ways_ = 1;
  int64_t row_length_ = 1;
  bool by_waves_ = false, beside_ = false;
  int waves_ = 1, rows_ = 1;  // that share a row; of a block, a group of lanes each
  int sharing_ = 1;           // of lanes: a wave, or a part of one
  ValueId part_ = -1;         // of a row by waves
  ValueId lane_ = -1;         // of those that share the row; -1: one thread has it
  std::vector<int> kept_axes_, reduced_axes_;
  std::vector<std::set<graph::ValueId>> visited_;
  std::map<graph::ValueId, Resident> resident_, held_;  // in memory, in registers
};

}  // namespace

Step reduce_rows(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts,
                 const machine::Machine& target, Split split) {
  return RowKernel(plan, group, facts, target, split).run();
}

}  // namespace lumen::synth
