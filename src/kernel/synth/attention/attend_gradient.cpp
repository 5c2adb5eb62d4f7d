// The gradient of an attention in one kernel: see `attend_gradient` in graph/fuse/plan.h. Both products of the
// scores' shape, the maps over them and every result are computed block by block: a task owns all rows and keys of a
// head (of a group's heads together) and walks blocks of keys, and for each of them tiles of rows that see some of it.
// No more than tile x block scores exist at any time.
//
//   for each block of keys:   unpack and transpose what varies along keys; zero the results over rows
//     for each tile of rows:  unpack what varies along rows; both products; the maps, in place;
//                             add to the results over keys (kept in scratch) and to those over rows (kept nearby)
//     write the results over rows
//   write the results over keys
//
// Numbers: f32, sums in the order of blocks and tiles, fixed by the shape and the machine. A matrix unit multiplies
// 16-bit floats where the caller allows it: operands, scores' gradients and probabilities are rounded to them as on
// GPUs.
// Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/attention/attend.h"
#include "kernel/synth/attention/gradient_panels.h"

namespace lumen::synth {

using graph::Op;

namespace {

constexpr int64_t kKeys = 64;  // of a block

// An operand of a product or result, and how it is read line by line.
struct Operand {
  graph::ValueId value = -1;
  Access access;
  std::unique_ptr<Body> body;
};

struct Result {
  graph::ValueId value = -1;
  Access access;
  std::unique_ptr<Body> body;
};

class GradientKernel : AttendWriter {
 public:
  GradientKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, Scalar factor)
      : AttendWriter(plan, target),
        plan_(plan),
        group_(group),
        a_(plan, group),
        extents_(a_.extents),
        row_axes_(a_.row_axes),
        sources_(a_.sources),
        range_(a_.range.get()) {
    nothing_.inputs = group.inputs;
    keys_ = extents_.back();
    task_bytes_ = target.task_bytes;
    panels_ = unit_panels(b_, target, factor);
    if (!panels_) panels_ = vector_panels(b_, g_, group.root, target);
  }

  Synthesis run() {
    take_apart();
    builder_.declare(group_);
    Synthesis out;
    const std::vector<bool> apart(extents_.size() + 1, true);
    for (size_t o = 0; o < operands_.size(); ++o) {
      std::vector<int64_t> space = extents_;
      space.push_back(parts_.operands[o].width);
      operands_[o].body =
          std::make_unique<Body>(builder_, plan_, nothing_, space, apart,
                                 std::map<graph::ValueId, Access>{{operands_[o].value, operands_[o].access}});
    }
    map_ = std::make_unique<Body>(builder_, plan_, group_, extents_, apart);
    for (size_t r = 0; r < results_.size(); ++r) {
      std::vector<int64_t> space = extents_;
      space.push_back(width_of(r));
      results_[r].body =
          std::make_unique<Body>(builder_, plan_, nothing_, space, apart, std::map<graph::ValueId, Access>{},
                                 std::map<graph::ValueId, Access>{{results_[r].value, results_[r].access}});
    }
    std::vector<int64_t> outer(extents_.begin(), extents_.end() - 1);
    for (const int d : row_axes_) outer[d] = 1;
    for (size_t r = 0; r < results_.size(); ++r) {
      if (!parts_.results[r].over_keys) continue;
      out.scratch.push_back(product(outer) * panels_->head_bytes(r));
      panels_->set_scratch(r, builder_.scratch(out.scratch.size() - 1, out.scratch.back(), true));
    }
    Tasks tasks;
    tasks.rows = product(outer);
    tasks.part = 1;
    for_tasks(
        b_, tasks, outer, 1, [&] { begin(); }, [&](const std::vector<Expr>& counters, Expr, Expr) { head(counters); });
    double work = 0, bytes = 0;
    for (const auto& [rows, keys] : parts_.products) work += parts_.operands[rows].width;
    for (size_t r = 0; r < results_.size(); ++r) work += width_of(r);
    for (const graph::ValueId v : group_.inputs) bytes += graph::byte_size(g_[v].type);
    for (const graph::ValueId v : group_.results) bytes += graph::byte_size(g_[v].type);
    out.steps.push_back(builder_.finish(
        fmt::format("attend gradient {} {} results {}{} tile {}x{} by {}", shape_text(extents_), results_.size(),
                    map_->summary(), range_ ? " bounded" : "", parts_.tile, parts_.block, panels_->describe()),
        2.0 * product(extents_) * work, bytes));
    return out;
  }

 private:
  int64_t width_of(size_t r) const { return parts_.operands[parts_.results[r].operand].width; }

  void take_apart() {
    for (const AttentionGradient::Operand& o : a_.operands) {
      operands_.push_back({o.value, o.access, nullptr});
      parts_.operands.push_back({.by_key = o.by_key, .width = o.width});
    }
    for (const AttentionGradient::Product& p : a_.products) {
      parts_.products.emplace_back(p.rows, p.keys);
      parts_.operands[p.rows].meets_rows = parts_.operands[p.keys].meets_keys = true;
    }
    for (const AttentionGradient::Result& r : a_.results) {
      results_.push_back({r.value, r.access, nullptr});
      parts_.results.push_back({r.source, r.operand, r.over_keys});
      parts_.operands[r.operand].is_summed = true;
    }
    parts_.sources = sources_.size();
    for (const int d : row_axes_) row_extents_.push_back(extents_[d]);
    rows_ = product(row_extents_);
    int64_t row_bytes = 0;  // of the operands kept for each row or key
    for (const GradientOperand& o : parts_.operands) row_bytes += panels_->padded(o.width) * 4;
    const int64_t fitting = std::max<int64_t>(task_bytes_ / row_bytes, 1);
    const int64_t most = std::min(panels_->most_rows(), fitting);
    const int64_t tiles = ceil_div(rows_, most), panel = panels_->keys_together();
    parts_.tile = round_up(ceil_div(rows_, tiles), panels_->rows_together());
    parts_.tiles = ceil_div(rows_, parts_.tile);
    parts_.block = std::min(round_up(std::min(kKeys, fitting), panel), round_up(keys_, panel));
    panels_->set_parts(parts_);
  }

  // ---- one head

  void begin() {
    panels_->begin();
    for (Operand& o : operands_) o.body->begin_task();
    map_->begin_task();
    for (Result& r : results_) r.body->begin_task();
    if (range_) bounds_ = b_.alloc(16, 64);
  }

  void head(const std::vector<Expr>& counters) {
    std::vector<Body*> bodies{map_.get()};
    for (Operand& o : operands_) bodies.push_back(o.body.get());
    for (Result& r : results_) bodies.push_back(r.body.get());
    std::vector<int> opened(bodies.size(), 0);
    Expr number = b_.i64(0);
    for (size_t d = 0; d < counters.size(); ++d) {
      if (std::find(row_axes_.begin(), row_axes_.end(), static_cast<int>(d)) != row_axes_.end()) continue;
      number = number * extents_[d] + counters[d];
      for (size_t n = 0; n < bodies.size(); ++n) opened[n] += open_axis(*bodies[n], d, counters[d]);
    }
    panels_->enter_head(number);
    each_result(true, [&](size_t r) { panels_->clear_sums(r); });
    serial(b_.i64(0), b_.i64(keys_), parts_.block, [&](Expr key) {
      const Expr end = keys_ % parts_.block == 0 ? key + parts_.block : min(key + parts_.block, b_.i64(keys_));
      block(key, end);
    });
    each_result(true, [&](size_t r) {
      serial(b_.i64(0), b_.i64(rows_), 1, [&](Expr row) {
        const int open = open_row(*results_[r].body, row);
        write(r, row);
        close(*results_[r].body, open);
      });
    });
    for (size_t n = 0; n < bodies.size(); ++n) close(*bodies[n], opened[n]);
  }

  void each_result(bool over_keys, const std::function<void(size_t)>& body) {
    for (size_t r = 0; r < results_.size(); ++r)
      if (parts_.results[r].over_keys == over_keys) body(r);
  }

  int open_row(Body& body, Expr row) {
    const std::vector<Expr> at = digits(b_, row, row_extents_);
    int opened = 0;
    for (size_t k = 0; k < at.size(); ++k) opened += open_axis(body, row_axes_[k], at[k]);
    return opened;
  }

  // Writes a line of sums at the position of the result's body.
  void write(size_t r, Expr line) {
    Body& body = *results_[r].body;
    const int64_t width = width_of(r);
    const graph::ValueId value = results_[r].value;
    each_number(width, body.store_stride(value) == 1 || width == 1, [&](Expr at, int lanes, Expr count) {
      body.open_lanes(at, lanes, count);
      const GradientPanels::Place from = panels_->sum(r, line, at);
      body.store(value, b_.load(from.buffer, {Scalar::f32, lanes}, from.byte, 4));
      body.close();
    });
  }

  void block(Expr key, Expr end) {
    const size_t key_axis = extents_.size() - 1;
    for (size_t o = 0; o < operands_.size(); ++o) {
      if (!parts_.operands[o].by_key) continue;
      serial(key, end, 1, [&](Expr at) {
        const int opened = open_axis(*operands_[o].body, key_axis, at);
        unpack(o, at - key);
        close(*operands_[o].body, opened);
      });
      panels_->finish(o, end - key);
    }
    each_result(false, [&](size_t r) { panels_->clear_sums(r); });
    serial(b_.i64(0), b_.i64(parts_.tiles), 1, [&](Expr tile) {
      const int64_t rows = parts_.tile;
      const Expr first = tile * rows;
      const Expr count = rows_ % rows == 0 ? b_.i64(rows) : min(b_.i64(rows), rows_ - first);
      if (!range_) {
        pair(first, count, key, key, end);
        return;
      }
      find_bounds(first, count);
      const Expr from = max(key, down(b_.load(bounds_, {Scalar::i64, 1}, b_.i64(0), 8), lanes_));
      const Expr seen = down(b_.load(bounds_, {Scalar::i64, 1}, b_.i64(8), 8) + (lanes_ - 1), lanes_);
      const Expr to = min(end, seen);
      b_.branch(from < to, [&] { pair(first, count, key, from, to); });
    });
    each_result(false, [&](size_t r) {
      serial(key, end, 1, [&](Expr at) {
        const int opened = open_axis(*results_[r].body, key_axis, at);
        write(r, at - key);
        close(*results_[r].body, opened);
      });
    });
  }

  void find_bounds(Expr first, Expr count) {
    const VType i64{Scalar::i64, 1};
    b_.store(bounds_, b_.i64(keys_), b_.i64(0), 8);
    b_.store(bounds_, b_.i64(0), b_.i64(8), 8);
    serial(b_.i64(0), count, 1, [&](Expr i) {
      const int opened = open_row(*map_, first + i);
      const auto [from, to] = keys_of_row(b_, *map_, *range_);
      b_.store(bounds_, min(from, b_.load(bounds_, i64, b_.i64(0), 8)), b_.i64(0), 8);
      b_.store(bounds_, max(to, b_.load(bounds_, i64, b_.i64(8), 8)), b_.i64(8), 8);
      close(*map_, opened);
    });
  }

  // Fills line i of the operand's panel from the position of its body.
  void unpack(size_t o, Expr i) {
    Body& body = *operands_[o].body;
    const int64_t width = parts_.operands[o].width;
    panels_->clear_line(o, i);
    for_lanes(b_, body, lanes_, 1, b_.i64(0), b_.i64(width), width % lanes_ == 0,
              [&](int) { panels_->put(o, i, body.at(), body.value(operands_[o].value), body.count()); });
  }

  // Rows first .. of a tile and keys from .. to - 1 of the block that begins at `key`; `from` is a multiple of the
  // lanes, and padding keys of the last vector are computed but never used.
  void pair(Expr first, Expr count, Expr key, Expr from, Expr to) {
    for (size_t o = 0; o < operands_.size(); ++o) {
      if (parts_.operands[o].by_key) continue;
      serial(b_.i64(0), count, 1, [&](Expr i) {
        const int opened = open_row(*operands_[o].body, first + i);
        unpack(o, i);
        close(*operands_[o].body, opened);
      });
      panels_->finish(o, count);
    }
    const Expr begin = from - key, stop = to - key;
    for (size_t k = 0; k < parts_.products.size(); ++k) panels_->multiply(k, count, begin, stop);
    serial(b_.i64(0), count, 1, [&](Expr i) { apply_maps(first + i, i, key, from, to); });
    panels_->take_sources(count, begin, stop);
    for (size_t r = 0; r < results_.size(); ++r) panels_->add(r, first, count, begin, stop);
  }

  void apply_maps(Expr row, Expr i, Expr key, Expr from, Expr to) {
    const int opened = open_row(*map_, row);
    for_lanes(b_, *map_, lanes_, 1, from, to, keys_ % lanes_ == 0, [&](int) {
      const Expr at = map_->at() - key;
      const int lanes = map_->lanes();
      for (size_t k = 0; k < parts_.products.size(); ++k) {
        const GradientPanels::Place x = panels_->square(k, i, at);
        map_->set(a_.products[k].value, b_.load(x.buffer, {Scalar::f32, lanes}, x.byte, 4));
      }
      std::vector<Expr> x;
      for (const graph::ValueId s : sources_) x.push_back(map_->value(s));
      for (size_t k = 0; k < x.size(); ++k) {
        const GradientPanels::Place to_place = panels_->square(k, i, at);
        b_.store(to_place.buffer, panels_->reads_beside() ? existing(*map_, x[k]) : x[k], to_place.byte, 4);
      }
    });
    close(*map_, opened);
  }

  const graph::Plan& plan_;
  const graph::Group& group_;
  graph::Group nothing_;
  AttentionGradient a_;
  const std::vector<int64_t>& extents_;  // of the scores
  const std::vector<int>& row_axes_;
  std::vector<int64_t> row_extents_;
  int64_t task_bytes_ = 0;
  int64_t keys_ = 1, rows_ = 1;
  GradientParts parts_;
  std::vector<Operand> operands_;
  std::vector<Result> results_;
  const std::vector<graph::ValueId>& sources_;  // score-shaped values that results read
  const KeyRange* range_;
  std::unique_ptr<GradientPanels> panels_;  // products, then sources
  std::unique_ptr<Body> map_;
  BufferId bounds_ = -1;
};

}  // namespace

Synthesis attend_gradient_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                   Scalar factor) {
  return GradientKernel(plan, group, target, factor).run();
}

}  // namespace lumen::synth
