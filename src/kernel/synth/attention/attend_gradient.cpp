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
// Numbers: f32 throughout, sums in the order of blocks and tiles, fixed by the shape and the machine.
// Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#include <algorithm>

#include "base/check.h"
#include "kernel/synth/attention/attend.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

using graph::Op;

namespace {

constexpr int64_t kRows = 32;  // of a tile
constexpr int64_t kKeys = 64;  // of a block

// An operand of a product or result, unpacked for a tile of rows or a block of keys.
struct Operand {
  graph::ValueId value = -1;
  Access access;
  bool by_key = false;  // varies along keys, otherwise along rows
  int64_t width = 1, padded = 1;
  bool transposed = false;  // needed with keys as lanes
  std::unique_ptr<Body> body;
  BufferId buffer = -1, transposed_buffer = -1;
};

struct Result {
  graph::ValueId value = -1;
  int source = -1;  // which of the score-shaped values
  int operand = -1;
  bool over_keys = false;
  int64_t padded = 1;
  Access access;
  std::unique_ptr<Body> body;
  BufferId sums = -1;
};

class GradientKernel : AttendWriter {
 public:
  GradientKernel(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target)
      : AttendWriter(plan, target),
        plan_(plan),
        group_(group),
        a_(plan, group),
        extents_(a_.extents),
        row_axes_(a_.row_axes),
        products_(a_.products),
        sources_(a_.sources),
        range_(a_.range.get()) {
    nothing_.inputs = group.inputs;
    keys_ = extents_.back();
    task_bytes_ = target.task_bytes;
    const int sums = target.vector_registers >= 32 ? 16 : 8;
    vectors_ = 2;
    together_ = sums / vectors_;
  }

  Synthesis run() {
    take_apart();
    builder_.declare(group_);
    Synthesis out;
    const std::vector<bool> apart(extents_.size() + 1, true);
    for (Operand& o : operands_) {
      std::vector<int64_t> space = extents_;
      space.push_back(o.width);
      o.body = std::make_unique<Body>(builder_, plan_, nothing_, space, apart,
                                      std::map<graph::ValueId, Access>{{o.value, o.access}});
    }
    map_ = std::make_unique<Body>(builder_, plan_, group_, extents_, apart);
    for (Result& r : results_) {
      std::vector<int64_t> space = extents_;
      space.push_back(operands_[r.operand].width);
      r.body = std::make_unique<Body>(builder_, plan_, nothing_, space, apart, std::map<graph::ValueId, Access>{},
                                      std::map<graph::ValueId, Access>{{r.value, r.access}});
    }
    std::vector<int64_t> outer(extents_.begin(), extents_.end() - 1);
    for (const int d : row_axes_) outer[d] = 1;
    for (Result& r : results_) {
      if (!r.over_keys) continue;
      out.scratch.push_back(product(outer) * tiles_ * tile_ * r.padded * 4);
      r.sums = builder_.scratch(out.scratch.size() - 1, out.scratch.back(), true);
    }
    Tasks tasks;
    tasks.rows = product(outer);
    tasks.part = 1;
    for_tasks(
        b_, tasks, outer, 1, [&] { begin(); }, [&](const std::vector<Expr>& counters, Expr, Expr) { head(counters); });
    double work = 0, bytes = 0;
    for (const AttentionGradient::Product& p : products_) work += operands_[p.rows].width;
    for (const Result& r : results_) work += operands_[r.operand].width;
    for (const graph::ValueId v : group_.inputs) bytes += graph::byte_size(g_[v].type);
    for (const graph::ValueId v : group_.results) bytes += graph::byte_size(g_[v].type);
    out.steps.push_back(builder_.finish(
        fmt::format("attend gradient {} {} results {}{} tile {}x{} by {}x{}", shape_text(extents_), results_.size(),
                    map_->summary(), range_ ? " bounded" : "", tile_, block_, together_, vectors_ * lanes_),
        2.0 * product(extents_) * work, bytes));
    return out;
  }

 private:
  void take_apart() {
    for (const AttentionGradient::Operand& o : a_.operands) {
      Operand mine;
      mine.value = o.value;
      mine.access = o.access;
      mine.by_key = o.by_key;
      mine.width = o.width;
      mine.padded = round_up(o.width, int64_t{lanes_});
      operands_.push_back(std::move(mine));
    }
    for (const AttentionGradient::Product& p : a_.products) operands_[p.keys].transposed = true;
    for (const AttentionGradient::Result& r : a_.results) {
      Result mine;
      mine.value = r.value;
      mine.source = r.source;
      mine.operand = r.operand;
      mine.over_keys = r.over_keys;
      mine.padded = operands_[r.operand].padded;
      mine.access = r.access;
      results_.push_back(std::move(mine));
    }
    for (const int d : row_axes_) row_extents_.push_back(extents_[d]);
    rows_ = product(row_extents_);
    int64_t row_bytes = 0;  // of what is kept beside a row or a key
    for (const Operand& o : operands_) row_bytes += o.padded * 4;
    const int64_t fitting = std::max<int64_t>(task_bytes_ / row_bytes, 1);
    const int64_t most = std::min(kRows, fitting);
    tiles_ = (rows_ + most - 1) / most;
    tile_ = round_up((rows_ + tiles_ - 1) / tiles_, together_);
    tiles_ = (rows_ + tile_ - 1) / tile_;
    const int64_t panel = int64_t{vectors_} * lanes_;
    block_ = std::min(round_up(std::min(kKeys, fitting), panel), round_up(keys_, panel));
  }

  // ---- one head

  void begin() {
    for (Operand& o : operands_) {
      o.body->begin_task();
      o.buffer = b_.alloc((o.by_key ? block_ : tile_) * o.padded * 4, 64);
      if (o.transposed) o.transposed_buffer = b_.alloc(block_ * o.padded * 4, 64);
    }
    map_->begin_task();
    for (Result& r : results_) {
      r.body->begin_task();
      if (!r.over_keys) r.sums = b_.alloc(block_ * r.padded * 4, 64);
    }
    for (size_t k = 0; k < std::max(products_.size(), sources_.size()); ++k)
      squares_.push_back(b_.alloc(tile_ * block_ * 4, 64));
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
    head_ = number;
    for (Result& r : results_)
      if (r.over_keys) fill(r.sums, row_place(r, b_.i64(0)), tiles_ * tile_ * r.padded);
    serial(b_.i64(0), b_.i64(keys_), block_, [&](Expr key) {
      const Expr end = keys_ % block_ == 0 ? key + block_ : min(key + block_, b_.i64(keys_));
      block(key, end);
    });
    for (Result& r : results_)
      if (r.over_keys)
        serial(b_.i64(0), b_.i64(rows_), 1, [&](Expr row) {
          const int open = open_row(*r.body, row);
          write(r, row_place(r, row));
          close(*r.body, open);
        });
    for (size_t n = 0; n < bodies.size(); ++n) close(*bodies[n], opened[n]);
  }

  void fill(BufferId buffer, Expr from, int64_t count) {
    serial(b_.i64(0), b_.i64(count), lanes_,
           [&](Expr at) { b_.store(buffer, b_.real(0, vector()), from + bytes(at, 1), line_); });
  }

  int open_row(Body& body, Expr row) {
    const std::vector<Expr> at = digits(b_, row, row_extents_);
    int opened = 0;
    for (size_t k = 0; k < at.size(); ++k) opened += open_axis(body, row_axes_[k], at[k]);
    return opened;
  }

  // Byte of a row's sums in the scratch of a result over keys.
  Expr row_place(const Result& r, Expr row) { return bytes(head_ * (tiles_ * tile_) + row, r.padded); }

  void write(Result& r, Expr from) {
    const int64_t width = operands_[r.operand].width;
    each_number(width, r.body->store_stride(r.value) == 1 || width == 1, [&](Expr at, int lanes, Expr count) {
      r.body->open_lanes(at, lanes, count);
      r.body->store(r.value, b_.load(r.sums, {Scalar::f32, lanes}, from + bytes(at, 1), 4));
      r.body->close();
    });
  }

  void block(Expr key, Expr end) {
    const size_t key_axis = extents_.size() - 1;
    for (Operand& o : operands_) {
      if (!o.by_key) continue;
      serial(key, end, 1, [&](Expr at) {
        const int opened = open_axis(*o.body, key_axis, at);
        unpack(o, at - key);
        close(*o.body, opened);
      });
      if (o.transposed) transpose_operand(o, end - key);
    }
    for (Result& r : results_)
      if (!r.over_keys) fill(r.sums, b_.i64(0), block_ * r.padded);
    serial(b_.i64(0), b_.i64(tiles_), 1, [&](Expr tile) {
      const Expr first = tile * tile_;
      const Expr count = rows_ % tile_ == 0 ? b_.i64(tile_) : min(b_.i64(tile_), rows_ - first);
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
    for (Result& r : results_)
      if (!r.over_keys)
        serial(key, end, 1, [&](Expr at) {
          const int opened = open_axis(*r.body, key_axis, at);
          write(r, bytes(at - key, r.padded));
          close(*r.body, opened);
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

  // Line i of the operand's buffer, from where its body stands.
  void unpack(Operand& o, Expr i) {
    if (o.padded != o.width)
      b_.store(o.buffer, b_.real(0, vector()), bytes(i, o.padded) + (o.padded - lanes_) * 4, line_);
    for_lanes(b_, *o.body, lanes_, 1, b_.i64(0), b_.i64(o.width), o.width % lanes_ == 0, [&](int) {
      b_.store(o.buffer, as_f32(o.body->value(o.value)), bytes(i * o.padded + o.body->at(), 1), 4, o.body->count());
    });
  }

  void transpose_operand(Operand& o, Expr count) {
    serial(b_.i64(0), count, lanes_, [&](Expr key) {
      serial(b_.i64(0), b_.i64(o.padded), lanes_, [&](Expr at) {
        std::vector<Expr> square;
        for (int j = 0; j < lanes_; ++j)
          square.push_back(b_.load(o.buffer, vector(), bytes((key + j) * o.padded + at, 1), line_));
        transpose(b_, square);
        for (int l = 0; l < lanes_; ++l)
          b_.store(o.transposed_buffer, square[l], bytes((at + l) * block_ + key, 1), line_);
      });
    });
  }

  // Rows first .. of a tile and keys from .. to - 1 of the block that begins at `key`; `from` is a multiple of the
  // lanes, and keys that fill up the last vector are computed and never used.
  void pair(Expr first, Expr count, Expr key, Expr from, Expr to) {
    for (Operand& o : operands_) {
      if (o.by_key) continue;
      serial(b_.i64(0), count, 1, [&](Expr i) {
        const int opened = open_row(*o.body, first + i);
        unpack(o, i);
        close(*o.body, opened);
      });
    }
    const Expr begin = from - key, stop = to - key;
    const int64_t panel = int64_t{vectors_} * lanes_;
    for (size_t k = 0; k < products_.size(); ++k) {
      const Operand &q = operands_[products_[k].rows], &t = operands_[products_[k].keys];
      serial(down(begin, panel), stop, panel, [&](Expr column) {
        multiply({squares_[k], b_.i64(0), block_}, {q.buffer, q.padded, 1}, {t.transposed_buffer, block_}, b_.i64(0),
                 count, b_.i64(0), b_.i64(q.width), column, vectors_, false);
      });
    }
    serial(b_.i64(0), count, 1, [&](Expr i) { apply_maps(first + i, i, key, from, to); });
    for (Result& r : results_) {
      const Operand& o = operands_[r.operand];
      for (int64_t e = 0; e < o.padded;) {
        int vectors = vectors_;
        while (e + int64_t{vectors} * lanes_ > o.padded) vectors /= 2;
        const int64_t step = int64_t{vectors} * lanes_, last = e + (o.padded - e) / step * step;
        serial(b_.i64(e), b_.i64(last), step, [&](Expr column) {
          if (r.over_keys) {
            multiply({r.sums, row_place(r, first), r.padded}, {squares_[r.source], block_, 1}, {o.buffer, o.padded},
                     b_.i64(0), count, begin, stop, column, vectors, true);
          } else {
            multiply({r.sums, b_.i64(0), r.padded}, {squares_[r.source], 1, block_}, {o.buffer, o.padded}, begin, stop,
                     b_.i64(0), count, column, vectors, true);
          }
        });
        e = last;
      }
    }
  }

  void apply_maps(Expr row, Expr i, Expr key, Expr from, Expr to) {
    const int opened = open_row(*map_, row);
    for_lanes(b_, *map_, lanes_, 1, from, to, keys_ % lanes_ == 0, [&](int) {
      const Expr at = bytes(i * block_ + (map_->at() - key), 1);
      for (size_t k = 0; k < products_.size(); ++k)
        map_->set(products_[k].value, b_.load(squares_[k], {Scalar::f32, map_->lanes()}, at, 4));
      std::vector<Expr> x;
      for (const graph::ValueId s : sources_) x.push_back(map_->value(s));
      for (size_t k = 0; k < x.size(); ++k) b_.store(squares_[k], x[k], at, 4);
    });
    close(*map_, opened);
  }

  // c[i, column ..] (+)= sum over n of a[i, n] b[n, column ..], i in steps of together_ (lines behind the last are
  // computed, too: buffers hold whole steps).
  struct Lines {
    BufferId buffer;
    Expr offset;  // bytes
    int64_t stride;
  };
  struct Numbers {
    BufferId buffer;
    int64_t line, step;
  };
  struct Vectors {
    BufferId buffer;
    int64_t stride;
  };
  void multiply(Lines c, Numbers a, Vectors v, Expr first, Expr end, Expr from, Expr to, Expr column, int vectors,
                bool adds) {
    serial(first, end, together_, [&](Expr i) {
      Accumulators sums(b_, g_, {group_.root}, lanes_, together_ * vectors);
      const auto place = [&](int r, int w) {
        return c.offset + bytes((i + r) * c.stride + column + int64_t{w} * lanes_, 1);
      };
      for (int r = 0; r < together_; ++r)
        for (int w = 0; w < vectors; ++w)
          sums.put(r * vectors + w, adds ? b_.load(c.buffer, vector(), place(r, w), line_) : b_.real(0, vector()));
      serial(from, to, 1, [&](Expr n) {
        std::vector<Expr> x;
        for (int w = 0; w < vectors; ++w)
          x.push_back(b_.load(v.buffer, vector(), bytes(n * v.stride + column + int64_t{w} * lanes_, 1), line_));
        for (int r = 0; r < together_; ++r) {
          const Expr at = bytes((i + r) * a.line + n * a.step, 1);
          const Expr y = b_.splat(b_.load(a.buffer, {Scalar::f32, 1}, at, 4), lanes_);
          for (int w = 0; w < vectors; ++w) sums.multiply_add(r * vectors + w, y, x[w], fused_);
        }
      });
      for (int r = 0; r < together_; ++r)
        for (int w = 0; w < vectors; ++w) b_.store(c.buffer, sums.get(0, r * vectors + w), place(r, w), line_);
    });
  }

  const graph::Plan& plan_;
  const graph::Group& group_;
  graph::Group nothing_;
  AttentionGradient a_;
  const std::vector<int64_t>& extents_;  // of the scores
  const std::vector<int>& row_axes_;
  std::vector<int64_t> row_extents_;
  int64_t task_bytes_ = 0;
  int64_t keys_ = 1, rows_ = 1, tile_ = 1, tiles_ = 1, block_ = 1;
  int together_ = 8, vectors_ = 2;
  std::vector<Operand> operands_;
  std::vector<Result> results_;
  const std::vector<AttentionGradient::Product>& products_;
  const std::vector<graph::ValueId>& sources_;  // score-shaped values that results read
  const KeyRange* range_;
  std::unique_ptr<Body> map_;
  std::vector<BufferId> squares_;  // tile x block: products, then sources
  BufferId bounds_ = -1;
  Expr head_;
};

}  // namespace

Synthesis attend_gradient_by_tasks(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target) {
  return GradientKernel(plan, group, target).run();
}

}  // namespace lumen::synth
