// Writes the nest: tasks, stages of K, panels, tiles, products, epilogue. Sums of one element are added in the order of
// k, whatever the cut into tasks, so the result depends on the plan alone.
#include "kernel/synth/gemm/cpu/dot_tile.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "kernel/synth/gemm/cpu/pack_step.h"
#include "kernel/synth/gemm/pack.h"

namespace lumen::synth {
namespace {

using Value = loop::ValueId;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kTransposeColumns = 256;  // of K, unpacked beside each other before they are transposed
constexpr int kStraightEpilogue = 96;  // operations of an epilogue written out tile-wide; longer ones loop over rows

// One operand inside the register tile: bytes between neighbours.
struct Walk {
  loop::BufferId buffer = -1;
  Value start = -1;              // byte of the tile's first element at k = 0
  int64_t step = 0;              // next row of a, next vector of b
  int64_t k = 0;                 // next inner k
  std::vector<int64_t> outer_k;  // next outer k, by digit
};

// The piece of K a stage covers.
struct Stage {
  std::vector<Value> digits;  // outer k, when a stage has one of them
  Value k0 = -1, count = -1;  // inner k
  Value flat_k = -1;          // where it begins, counted over all of K
  int64_t fixed = -1;         // count, where it is known
};

class TileKernel {
 public:
  TileKernel(const graph::Graph& g, const DotProblem& p, const TilePlan& t, int scratch)
      : p_(p), t_(t), w_(g, p, "dot"), b_(w_.b), lane_bytes_(t.lanes * 4) {
    if (t.a != Fetch::tiles) return;
    laid_ = synth::tiles_of_a(p, t);
    a_panel_ = w_.scratch_param("tiles", scratch, laid_.bytes, false);
  }

  Step write(std::string plan) {
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(t_.tasks(p_)), 1, [&](Value task) { write_task(task); });
    return w_.step(std::move(plan));
  }

 private:
  int64_t outer_k_extent() const { return p_.k_total() / p_.k.extent; }
  bool stage_holds_outer() const { return t_.stages == 1; }
  int64_t panel_k() const { return stage_holds_outer() ? p_.k_total() : t_.stage_k; }
  int64_t transpose_columns() const {  // whole blocks of a packed b
    const int64_t block = p_.loads[1].format->block;
    return std::max(kTransposeColumns / block, int64_t{1}) * block;
  }
  // Transposed squares write whole vectors of k, the last of them beyond the end.
  int64_t padded_k() const {
    return (panel_k() + t_.lanes - 1) / t_.lanes * t_.lanes + (p_.outer_k.empty() ? 0 : t_.lanes);
  }
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, w_.i64(y)); }
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, w_.i64(y)); }
  Value sub(Value x, Value y) { return b_.op(ScalarOp::sub_, x, y); }
  Value lt(Value x, Value y) { return b_.op(ScalarOp::lt_, x, y); }

  void write_task(Value task);
  void multiply_task();
  void write_stage(const Stage& s);
  void pack_a(const Stage& s);
  void pack_b(const Stage& s);
  void each_width(Value tile, const std::function<void(int, bool)>& code);
  bool tiles_of_a() const {  // the panel of a holds tile after tile: k rows of one tile's height
    if (t_.a == Fetch::direct || t_.a == Fetch::tiles || t_.a_along_k) return false;
    return t_.a == Fetch::gather || p_.loads[0].kind != DotLoad::Kind::packed;
  }
  void transpose_rows(const loop::BufferId buffer, const std::function<Value(int, Value, Value)>& read, Value count,
                      Value to);
  void write_tile(const Stage& s, Value m_tile, Value n_tile, int height, int vectors, bool masked);
  void sum_products(const Stage& s, const Walk& a, const Walk& b, int height, int vectors, Value last_count);
  void finish_private();
  Value stage_base(size_t load, const Stage& s);
  void each_k_outer(const Stage& s, size_t digit, Value a, Value b, const Walk& wa, const Walk& wb,
                    const std::function<void(Value, Value)>& body);
  void each_outer_k(const Stage& s, const std::function<void(const std::vector<Value>&, Value)>& body);

  const DotProblem& p_;
  const TilePlan& t_;
  DotWriter w_;
  loop::Builder& b_;
  int64_t lane_bytes_;
  loop::BufferId a_panel_ = -1, b_panel_ = -1, sums_ = -1, temporary_ = -1, rows_ = -1;
  std::vector<loop::BufferId> accumulators_;
  Value m_first_, m_last_, n_first_, n_last_;  // tiles of this task
  Value outer_ = -1;
  TilesOfA laid_;            // a, when a step before laid it out
  int64_t a_row_bytes_ = 0;  // of the copied panel of a
};

void TileKernel::write_task(Value task) {
  n_first_ = w_.scaled(rem(task, t_.n_tasks), t_.n_task);
  m_first_ = w_.scaled(rem(div(task, t_.n_tasks), t_.m_tasks), t_.m_task);
  outer_ = div(task, t_.n_tasks * t_.m_tasks);
  w_.enter_outer(outer_);
  n_last_ = w_.min(w_.add(n_first_, w_.i64(t_.n_task)), w_.i64(t_.n_tiles));
  m_last_ = w_.used_tiles(w_.min(w_.add(m_first_, w_.i64(t_.m_task)), w_.i64(t_.m_tiles)), t_.height);
  w_.where_row(w_.scaled(m_first_, t_.height), [&] { multiply_task(); });
}

void TileKernel::multiply_task() {
  const int64_t tile_columns = t_.vectors * t_.lanes;
  if (t_.b != Fetch::direct) b_panel_ = b_.alloc(t_.n_task * padded_k() * tile_columns * 4);
  if (t_.b == Fetch::transpose && p_.loads[1].kind == DotLoad::Kind::packed)
    temporary_ = b_.alloc(t_.lanes * transpose_columns() * 4);
  if (t_.b == Fetch::copy && p_.loads[1].kind == DotLoad::Kind::packed) rows_ = b_.alloc(t_.n_task * tile_columns * 4);
  if (t_.a != Fetch::direct && t_.a != Fetch::tiles) {
    const int64_t rows = t_.m_task * t_.height;
    // A cache line more than the row, so that rows do not fall into one set of the cache.
    const int64_t across = tiles_of_a() ? t_.height : rows;
    a_row_bytes_ = t_.a_along_k ? padded_k() * 4 + 64 : (across + t_.lanes - 1) / t_.lanes * lane_bytes_;
    a_panel_ = b_.alloc((t_.a_along_k ? rows : padded_k() * (tiles_of_a() ? t_.m_task : 1)) * a_row_bytes_);
  }
  for (int i = 0; i < t_.height * t_.vectors; ++i) accumulators_.push_back(b_.alloc(lane_bytes_));

  Stage s;
  if (t_.stages == 1) {
    s.k0 = s.flat_k = w_.i64(0);
    s.fixed = p_.runs ? -1 : p_.k.extent;
    s.count = p_.runs ? w_.run() : w_.i64(s.fixed);
    return write_stage(s);
  }
  const int64_t row_bytes = t_.n_task * tile_columns * 4;
  sums_ = b_.alloc(t_.m_task * t_.height * row_bytes);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.m_task * t_.height * row_bytes), lane_bytes_,
          [&](Value at) { b_.store(sums_, w_.zero(t_.lanes), at, 4); });
  const int64_t inner_stages = (p_.k.extent + t_.stage_k - 1) / t_.stage_k;
  const Value stages = p_.runs ? div(w_.add(w_.run(), w_.i64(t_.stage_k - 1)), t_.stage_k) : w_.i64(t_.stages);
  b_.loop(LoopKind::serial, w_.i64(0), stages, 1, [&](Value number) {
    s.k0 = w_.scaled(rem(number, inner_stages), t_.stage_k);
    if (p_.runs) {
      s.count = w_.min(w_.i64(t_.stage_k), sub(w_.run(), s.k0));
    } else if (p_.k.extent % t_.stage_k == 0) {
      s.fixed = t_.stage_k;
      s.count = w_.i64(s.fixed);
    } else {
      s.count = w_.min(w_.i64(t_.stage_k), sub(w_.i64(p_.k.extent), s.k0));
    }
    Value rest = div(number, inner_stages);
    s.flat_k = w_.add(w_.scaled(rest, p_.k.extent), s.k0);
    s.digits.assign(p_.outer_k.size(), -1);
    for (size_t d = p_.outer_k.size(); d-- > 0;) {
      s.digits[d] = rem(rest, p_.outer_k[d].extent);
      rest = div(rest, p_.outer_k[d].extent);
    }
    write_stage(s);
  });
  finish_private();
}

// Element of a load where the stage begins, at m = n = 0 of the outer indices.
Value TileKernel::stage_base(size_t load, const Stage& s) {
  Value at = w_.add(w_.base(load), w_.scaled(s.k0, p_.k.strides[load]));
  for (size_t d = 0; d < s.digits.size(); ++d) at = w_.add(at, w_.scaled(s.digits[d], p_.outer_k[d].strides[load]));
  return at;
}

// Every outer k a stage holds: its digits, and its number.
void TileKernel::each_outer_k(const Stage& s, const std::function<void(const std::vector<Value>&, Value)>& body) {
  if (!stage_holds_outer() || p_.outer_k.empty()) return body({}, w_.i64(0));
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(outer_k_extent()), 1, [&](Value number) {
    std::vector<Value> digits(p_.outer_k.size());
    Value rest = number;
    for (size_t d = digits.size(); d-- > 0;) {
      digits[d] = rem(rest, p_.outer_k[d].extent);
      rest = div(rest, p_.outer_k[d].extent);
    }
    body(digits, number);
  });
}

void TileKernel::pack_a(const Stage& s) {
  const Value m0 = w_.scaled(m_first_, t_.height);
  const Value rows = sub(w_.min(w_.scaled(m_last_, t_.height), w_.i64(p_.m.extent)), m0);
  each_outer_k(s, [&](const std::vector<Value>& digits, Value number) {
    Stage here = s;
    if (!digits.empty()) here.digits = digits;
    const Value first = w_.add(stage_base(0, here), w_.scaled(m0, p_.m.strides[0]));
    const Value k_first = w_.scaled(number, p_.k.extent);
    if (t_.a_along_k && t_.a == Fetch::copy)
      return copy_rows(w_, p_, {0, first, p_.m.strides[0]}, rows, s.count,
                       {a_panel_, w_.scaled(k_first, 4), a_row_bytes_}, t_.lanes);
    const Value start = w_.scaled(k_first, a_row_bytes_);
    if (!tiles_of_a())
      return copy_rows(w_, p_, {0, first, p_.k.strides[0]}, s.count, rows, {a_panel_, start, a_row_bytes_}, t_.lanes);
    b_.loop(LoopKind::serial, w_.i64(0), s.count, 1, [&](Value k) {
      b_.loop(LoopKind::serial, w_.i64(0), sub(m_last_, m_first_), 1, [&](Value tile) {
        const Value to = w_.add(start, w_.add(w_.scaled(k, a_row_bytes_), w_.scaled(tile, padded_k() * a_row_bytes_)));
        for (int at = 0; at < t_.height; at += t_.lanes) {
          const Value m = w_.add(w_.scaled(tile, t_.height), w_.i64(at));
          Value count = w_.i64(std::min(t_.lanes, t_.height - at));
          if (t_.last_height != t_.height) count = b_.op(ScalarOp::max_, w_.min(count, sub(rows, m)), w_.i64(0));
          const Value from = w_.add(first, w_.add(w_.scaled(k, p_.k.strides[0]), w_.scaled(m, p_.m.strides[0])));
          const Value v = w_.read_f32(0, from, p_.m.strides[0], t_.lanes, count);
          b_.store(a_panel_, v, w_.add(to, w_.i64(at * 4)), 4);
        }
      });
    });
  });
}

// Rows along k, `lanes` of them, become vectors along n: read(row, k, count or -1).
void TileKernel::transpose_rows(loop::BufferId buffer, const std::function<Value(int, Value, Value)>& read, Value count,
                                Value to) {
  const int64_t row = t_.vectors * lane_bytes_;
  const Value whole = w_.scaled(div(count, t_.lanes), t_.lanes);
  auto block = [&](Value k, Value k_count) {
    std::vector<Value> rows;
    for (int i = 0; i < t_.lanes; ++i) rows.push_back(read(i, k, k_count));
    rows = transposed(b_, std::move(rows));
    for (int i = 0; i < t_.lanes; ++i)  // rows beyond the count fall into the panel's padding
      b_.store(buffer, rows[i], w_.add(w_.add(to, w_.scaled(k, row)), w_.i64(i * row)), 4);
  };
  b_.loop(LoopKind::serial, w_.i64(0), whole, t_.lanes, [&](Value k) { block(k, -1); });
  b_.branch(lt(whole, count), [&] { block(whole, sub(count, whole)); });
}

void TileKernel::pack_b(const Stage& s) {
  const int64_t row = t_.vectors * lane_bytes_;  // bytes of one k of a tile
  const int64_t panel = padded_k() * row;        // of a tile
  const int64_t n_stride = p_.n.strides[1], k_stride = p_.k.strides[1];
  const Value vectors_first = w_.scaled(n_first_, t_.vectors);
  const int64_t all_vectors = (p_.n.extent + t_.lanes - 1) / t_.lanes;
  const Value vectors_last = w_.min(w_.scaled(n_last_, t_.vectors), w_.i64(all_vectors));
  const bool packed = p_.loads[1].kind == DotLoad::Kind::packed;
  each_outer_k(s, [&](const std::vector<Value>& digits, Value number) {
    Stage here = s;
    if (!digits.empty()) here.digits = digits;
    const Value base = stage_base(1, here);
    const Value k_first = w_.scaled(number, p_.k.extent * row);
    // Where vector v (counted over N) begins in the panel.
    auto place = [&](Value v) {
      const Value inside = sub(v, vectors_first);
      return w_.add(k_first,
                    w_.add(w_.scaled(div(inside, t_.vectors), panel), w_.scaled(rem(inside, t_.vectors), lane_bytes_)));
    };
    if (t_.b == Fetch::copy && packed) {
      // Rows along n, unpacked into the tiles' panels side by side: a row at a time through a private row.
      const Value n0 = w_.scaled(vectors_first, t_.lanes);
      const Value columns = sub(w_.min(w_.scaled(vectors_last, t_.lanes), w_.i64(p_.n.extent)), n0);
      b_.loop(LoopKind::serial, w_.i64(0), s.count, 1, [&](Value k) {
        const Value first = w_.add(base, w_.add(w_.scaled(k, k_stride), n0));
        copy_rows(w_, p_, {1, first, k_stride}, w_.i64(1), columns, {rows_, w_.i64(0), 0}, t_.lanes);
        b_.loop(LoopKind::serial, vectors_first, vectors_last, 1, [&](Value v) {
          const Value x = b_.load(rows_, {Scalar::f32, t_.lanes}, w_.scaled(sub(v, vectors_first), lane_bytes_), 4);
          b_.store(b_panel_, x, w_.add(place(v), w_.scaled(k, row)), 4);
        });
      });
      return;
    }
    if (t_.b != Fetch::transpose) {
      // Row by row through all tiles of the task: what they read of a row lies together.
      b_.loop(LoopKind::serial, w_.i64(0), s.count, 1, [&](Value k) {
        const Value from = w_.add(base, w_.scaled(k, k_stride));
        b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Value tile) {
          const Value n = w_.scaled(tile, t_.vectors * t_.lanes);
          const Value to = w_.add(w_.add(k_first, w_.scaled(sub(tile, n_first_), panel)), w_.scaled(k, row));
          each_width(tile, [&](int vectors, bool masked) {
            const Value last =
                masked ? sub(w_.i64(p_.n.extent), w_.add(n, w_.i64(static_cast<int64_t>(vectors - 1) * t_.lanes))) : -1;
            for (int j = 0; j < vectors; ++j) {
              const Value column = w_.add(n, w_.i64(static_cast<int64_t>(j) * t_.lanes));
              const Value at = w_.add(from, w_.scaled(column, n_stride));
              const Value x = w_.read_f32(1, at, n_stride, t_.lanes, j == vectors - 1 ? last : -1);
              b_.store(b_panel_, x, w_.add(to, w_.i64(j * lane_bytes_)), 4);
            }
          });
        });
      });
      return;
    }
    b_.loop(LoopKind::serial, vectors_first, vectors_last, 1, [&](Value v) {
      const Value n = w_.scaled(v, t_.lanes);
      const Value to = place(v);
      // Rows that do not exist repeat the last one; their sums are never stored.
      auto row_first = [&](int i) {
        const Value r = w_.add(n, w_.i64(i));
        return w_.add(base, w_.scaled(t_.masked ? w_.min(r, w_.i64(p_.n.extent - 1)) : r, n_stride));
      };
      if (!packed) {
        transpose_rows(
            b_panel_,
            [&](int i, Value k, Value count) { return w_.read_f32(1, w_.add(row_first(i), k), 1, t_.lanes, count); },
            s.count, to);
        return;
      }
      const int64_t chunk = transpose_columns();
      b_.loop(LoopKind::serial, w_.i64(0), s.count, chunk, [&](Value k) {
        const Value columns = w_.min(w_.i64(chunk), sub(s.count, k));
        b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.lanes), 1, [&](Value i) {
          const Value r = w_.add(n, i);
          const Value at = w_.scaled(t_.masked ? w_.min(r, w_.i64(p_.n.extent - 1)) : r, n_stride);
          copy_rows(w_, p_, {1, w_.add(base, w_.add(at, k)), 0}, w_.i64(1), columns,
                    {temporary_, w_.scaled(i, transpose_columns() * 4), 0}, t_.lanes);
        });
        transpose_rows(
            b_panel_,
            [&](int i, Value c, Value count) {
              return b_.load(temporary_, {Scalar::f32, t_.lanes},
                             w_.add(w_.i64(i * transpose_columns() * 4), w_.scaled(c, 4)), 4, count);
            },
            columns, w_.add(to, w_.scaled(k, row)));
      });
    });
  });
}

// Code for a tile of full width, and for the last of a row where that is narrower or not full.
void TileKernel::each_width(Value tile, const std::function<void(int, bool)>& code) {
  const bool narrow = t_.masked || t_.last_vectors != t_.vectors;
  auto whole = [&] { code(t_.vectors, false); };
  auto last = [&] { code(t_.last_vectors, t_.masked); };
  if (!narrow) {
    whole();
  } else if (t_.n_tiles == 1) {
    last();
  } else {
    b_.branch(lt(tile, w_.i64(t_.n_tiles - 1)), whole, last);
  }
}

void TileKernel::write_stage(const Stage& s) {
  if (t_.b != Fetch::direct) pack_b(s);
  if (t_.a != Fetch::direct && t_.a != Fetch::tiles) pack_a(s);
  b_.loop(LoopKind::serial, m_first_, m_last_, 1, [&](Value m_tile) {
    b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Value n_tile) {
      auto widths = [&](int height) {
        each_width(n_tile, [&](int vectors, bool masked) { write_tile(s, m_tile, n_tile, height, vectors, masked); });
      };
      if (t_.last_height == t_.height || t_.m_tiles == 1)
        widths(t_.last_height);
      else
        b_.branch(lt(m_tile, w_.i64(t_.m_tiles - 1)), [&] { widths(t_.height); }, [&] { widths(t_.last_height); });
    });
  });
}

void TileKernel::write_tile(const Stage& s, Value m_tile, Value n_tile, int height, int vectors, bool masked) {
  const Value m = w_.scaled(m_tile, t_.height), n = w_.scaled(n_tile, t_.vectors * t_.lanes);
  const Value last_count =
      masked ? sub(w_.i64(p_.n.extent), w_.add(n, w_.i64(static_cast<int64_t>(vectors - 1) * t_.lanes))) : -1;
  auto packed_outer = [&](Walk& walk) {  // digits of outer k follow each other in a panel
    int64_t step = p_.k.extent * walk.k;
    walk.outer_k.resize(p_.outer_k.size());
    for (size_t d = p_.outer_k.size(); d-- > 0; step *= p_.outer_k[d].extent) walk.outer_k[d] = step;
  };
  Walk a, bw;
  if (t_.a == Fetch::direct) {
    a = {w_.buffer(0),
         w_.scaled(w_.add(stage_base(0, s), w_.scaled(m, p_.m.strides[0])), 4),
         p_.m.strides[0] * 4,
         p_.k.strides[0] * 4,
         {}};
    for (const DotIndex& i : p_.outer_k) a.outer_k.push_back(i.strides[0] * 4);
  } else if (t_.a == Fetch::tiles) {
    const Value tile = w_.add(w_.scaled(outer_, t_.m_tiles), m_tile);
    a = {a_panel_,
         w_.add(w_.scaled(tile, laid_.tile_bytes), w_.scaled(s.flat_k, laid_.row_bytes)),
         4,
         laid_.row_bytes,
         {}};
    packed_outer(a);
  } else {
    const Value inside = w_.scaled(sub(m_tile, m_first_), t_.height);
    a = {a_panel_,
         tiles_of_a() ? w_.scaled(sub(m_tile, m_first_), padded_k() * a_row_bytes_)
                      : w_.scaled(inside, t_.a_along_k ? a_row_bytes_ : 4),
         t_.a_along_k ? a_row_bytes_ : 4,
         t_.a_along_k ? 4 : a_row_bytes_,
         {}};
    packed_outer(a);
  }
  if (t_.b == Fetch::direct) {
    bw = {w_.buffer(1), w_.scaled(w_.add(stage_base(1, s), n), 4), lane_bytes_, p_.k.strides[1] * 4, {}};
    for (const DotIndex& i : p_.outer_k) bw.outer_k.push_back(i.strides[1] * 4);
  } else {
    const int64_t row = t_.vectors * lane_bytes_;
    bw = {b_panel_, w_.scaled(sub(n_tile, n_first_), padded_k() * row), lane_bytes_, row, {}};
    packed_outer(bw);
  }

  const Value sums_at = t_.stages == 1
                            ? -1
                            : w_.add(w_.scaled(sub(m_tile, m_first_), t_.height * t_.n_task * t_.vectors * lane_bytes_),
                                     w_.scaled(sub(n_tile, n_first_), t_.vectors * lane_bytes_));
  auto sums_place = [&](int i, int j) {
    return w_.add(sums_at, w_.i64(i * t_.n_task * t_.vectors * lane_bytes_ + j * lane_bytes_));
  };
  const VType vector{Scalar::f32, t_.lanes};
  for (int i = 0; i < height; ++i)
    for (int j = 0; j < vectors; ++j)
      b_.store(accumulators_[i * vectors + j],
               t_.stages == 1 ? w_.zero(t_.lanes) : b_.load(sums_, vector, sums_place(i, j), 4), w_.i64(0), 4);
  sum_products(s, a, bw, height, vectors, t_.b == Fetch::direct ? last_count : -1);
  auto sum = [&](int i, int j) { return b_.load(accumulators_[i * vectors + j], vector, w_.i64(0), 4); };
  if (t_.stages > 1) {
    for (int i = 0; i < height; ++i)
      for (int j = 0; j < vectors; ++j) b_.store(sums_, sum(i, j), sums_place(i, j), 4);
    return;
  }
  auto finish = [&](Value row, int j, Value v) {
    const bool part = masked && j == vectors - 1;
    w_.finish_vector(v, row, w_.add(n, w_.i64(static_cast<int64_t>(j) * t_.lanes)), part ? last_count : -1);
  };
  if (w_.epilogue_nodes() * height * vectors <= kStraightEpilogue) {
    for (int i = 0; i < height; ++i)
      for (int j = 0; j < vectors; ++j) finish(w_.add(m, w_.i64(i)), j, sum(i, j));
    return;
  }
  const loop::BufferId tile = b_.alloc(height * vectors * lane_bytes_);
  for (int i = 0; i < height; ++i)
    for (int j = 0; j < vectors; ++j) b_.store(tile, sum(i, j), w_.i64((i * vectors + j) * lane_bytes_), 4);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(height), 1, [&](Value i) {
    for (int j = 0; j < vectors; ++j)
      finish(w_.add(m, i), j,
             b_.load(tile, vector, w_.add(w_.scaled(i, vectors * lane_bytes_), w_.i64(j * lane_bytes_)), 4));
  });
}

// Loops over the outer k a stage holds, then `body` with the bytes where the inner k begins.
void TileKernel::each_k_outer(const Stage& s, size_t digit, Value a, Value b, const Walk& wa, const Walk& wb,
                              const std::function<void(Value, Value)>& body) {
  if (!stage_holds_outer() || digit == p_.outer_k.size()) return body(a, b);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(p_.outer_k[digit].extent), 1, [&](Value x) {
    each_k_outer(s, digit + 1, w_.add(a, w_.scaled(x, wa.outer_k[digit])), w_.add(b, w_.scaled(x, wb.outer_k[digit])),
                 wa, wb, body);
  });
}

void TileKernel::sum_products(const Stage& s, const Walk& a, const Walk& bw, int height, int vectors,
                              Value last_count) {
  const VType vector{Scalar::f32, t_.lanes};
  auto products = [&](Value a_at, Value b_at, int64_t ahead, std::vector<Value>& sums) {
    std::vector<Value> right;
    for (int j = 0; j < vectors; ++j)
      right.push_back(b_.load(bw.buffer, vector, w_.add(b_at, w_.i64(ahead * bw.k + j * bw.step)), 4,
                              j == vectors - 1 ? last_count : -1));
    for (int i = 0; i < height; ++i) {
      const Value left =
          b_.splat(b_.load(a.buffer, {Scalar::f32, 1}, w_.add(a_at, w_.i64(ahead * a.k + i * a.step)), 4), t_.lanes);
      for (int j = 0; j < vectors; ++j)
        sums[i * vectors + j] = b_.op(ScalarOp::fma_, left, right[j], sums[i * vectors + j]);
    }
  };
  const int count = height * vectors;
  auto with_sums = [&](const std::function<void(std::vector<Value>&)>& body) {
    std::vector<Value> sums;
    for (int i = 0; i < count; ++i) sums.push_back(b_.load(accumulators_[i], vector, w_.i64(0), 4));
    body(sums);
    for (int i = 0; i < count; ++i) b_.store(accumulators_[i], sums[i], w_.i64(0), 4);
  };
  each_k_outer(s, 0, a.start, bw.start, a, bw, [&](Value a_start, Value b_start) {
    auto at_k = [&](Value k, int times, std::vector<Value>& sums) {
      const Value a_at = w_.add(a_start, w_.scaled(k, a.k)), b_at = w_.add(b_start, w_.scaled(k, bw.k));
      for (int u = 0; u < times; ++u) products(a_at, b_at, u, sums);
    };
    const Value whole = w_.scaled(div(s.count, t_.unroll), t_.unroll);
    b_.loop(LoopKind::serial, w_.i64(0), whole, t_.unroll,
            [&](Value k) { with_sums([&](std::vector<Value>& sums) { at_k(k, t_.unroll, sums); }); });
    if (s.fixed >= 0) {
      if (const int rest = static_cast<int>(s.fixed % t_.unroll); rest > 0)
        with_sums([&](std::vector<Value>& sums) { at_k(whole, rest, sums); });
    } else if (t_.unroll > 1) {
      b_.loop(LoopKind::serial, whole, s.count, 1,
              [&](Value k) { with_sums([&](std::vector<Value>& sums) { at_k(k, 1, sums); }); });
    }
  });
}

// The private tile of sums goes through the epilogue.
void TileKernel::finish_private() {
  const int64_t row_bytes = t_.n_task * t_.vectors * lane_bytes_;
  const Value m0 = w_.scaled(m_first_, t_.height), n0 = w_.scaled(n_first_, t_.vectors * t_.lanes);
  const Value m_end = w_.min(w_.scaled(m_last_, t_.height), w_.i64(p_.m.extent));
  const Value n_end = w_.min(w_.scaled(n_last_, t_.vectors * t_.lanes), w_.i64(p_.n.extent));
  b_.loop(LoopKind::serial, m0, m_end, 1, [&](Value m) {
    b_.loop(LoopKind::serial, n0, n_end, t_.lanes, [&](Value n) {
      const Value at = w_.add(w_.scaled(sub(m, m0), row_bytes), w_.scaled(sub(n, n0), 4));
      const Value count = t_.masked ? w_.min(sub(n_end, n), w_.i64(t_.lanes)) : -1;
      w_.finish_vector(b_.load(sums_, {Scalar::f32, t_.lanes}, at, 4), m, n, count);
    });
  });
}

}  // namespace

void write_tile_kernels(const graph::Graph& g, const DotProblem& p, const TilePlan& t, Synthesis& out) {
  const int scratch = static_cast<int>(out.scratch.size());
  if (t.a == Fetch::tiles) {
    out.scratch.push_back(tiles_of_a(p, t).bytes);
    out.steps.push_back(write_pack_step(g, p, t, scratch));
  }
  Step s = TileKernel(g, p, t, scratch).write(describe_shape(p) + " " + describe(t));
  s.flops = p.flops();
  out.steps.push_back(std::move(s));
}

}  // namespace lumen::synth
