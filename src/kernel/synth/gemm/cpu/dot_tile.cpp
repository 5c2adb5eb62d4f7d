// Writes the nest: tasks, stages of K, panels, tiles, products, epilogue. Sums of one element are added in the order of
// k however the work is cut into tasks, so the result depends on the plan alone. Panels hold 32-bit numbers: f32, or
// for integers i32 or words of several.
#include "kernel/synth/gemm/cpu/dot_tile.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/gemm/cpu/product_writer.h"
#include "kernel/synth/gemm/operand/pack_step.h"
#include "kernel/synth/gemm/pack.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {
namespace {

constexpr int64_t kTransposeColumns = 256;  // elements of K that are unpacked before they are transposed
constexpr int kStraightEpilogue = 96;  // operations of an epilogue unrolled over the tile; longer ones loop over rows

// An operand inside the register tile, with strides in bytes.
struct Walk {
  BufferId buffer = -1;
  Expr start;                    // byte of the tile's first element at k = 0
  int64_t step = 0;              // next row of a, next vector of b
  int64_t k = 0;                 // next inner k
  std::vector<int64_t> outer_k;  // next outer k, by digit
  int64_t vector = 0;            // of a along a batch: next vector
  Scalar scalar = Scalar::f32;   // type of the numbers in `buffer`
};

// The part of K that a stage covers.
struct Stage {
  std::vector<Expr> digits;  // outer k: digits above those that a stage covers
  Expr k0, count;            // inner k
  Expr flat_k;               // where it begins, counted over all of K
  int64_t fixed = -1;        // count as a constant, if known
};

class TileKernel : ProductWriter {
 public:
  TileKernel(const graph::Graph& g, const DotProblem& p, const TilePlan& t, int scratch)
      : ProductWriter(g, p, t, t.lanes), t_(t), lane_bytes_(t.lanes * 4) {
    if (t.a != Fetch::tiles) return;
    laid_ = synth::tiles_of_a(p, t);
    a_panel_ = w_.scratch_param("tiles", scratch, laid_.bytes, false);
  }

  Step write(std::string plan) {
    return ProductWriter::write(std::move(plan), [&] { multiply_task(); });
  }

 private:
  size_t first_digit() const { return p_.outer_k.size() - t_.stage_digits; }  // of those that a stage covers
  int64_t outer_k_of_stage() const {
    int64_t count = 1;
    for (size_t d = first_digit(); d < p_.outer_k.size(); ++d) count *= p_.outer_k[d].extent;
    return count;
  }
  bool is_shifted() const { return t_.row && t_.row->shift != 0; }
  int64_t panel_k() const { return outer_k_of_stage() * t_.stage_k; }
  int64_t transpose_columns() const {  // whole blocks of a packed b
    const int64_t block = p_.loads[1].format->block;
    return std::max(kTransposeColumns / block, int64_t{1}) * block;
  }
  // Transposed squares write whole vectors of k, the last of them past the end.
  int64_t padded_k() const {
    return (panel_k() + t_.lanes - 1) / t_.lanes * t_.lanes + (p_.outer_k.empty() ? 0 : t_.lanes);
  }

  void multiply_task();
  void write_stage(const Stage& s);
  void write_tiles(const Stage& s);
  void pack_a(const Stage& s);
  void pack_b(const Stage& s);
  bool tiles_of_a() const {  // the panel of a holds tile after tile: k rows of one tile's height
    if (t_.a == Fetch::direct || t_.a == Fetch::tiles || t_.a_along_k) return false;
    return t_.a == Fetch::gather || p_.loads[0].kind != DotLoad::Kind::packed;
  }
  void widen_a();
  void pack_words_of_a(const Stage& s, Expr first, Expr rows, Expr to);
  void pack_words_of_b(const Stage& s, Expr base, Expr vectors_first, Expr vectors_last,
                       const std::function<Expr(Expr)>& place);
  void add_shift_sums(const std::vector<Expr>& words, Expr at);
  void each_words(const Stage& s, const std::function<void(Expr word, int64_t numbers)>& body);
  Expr factor(Expr x) const { return b_.type(x).scalar == p_.sum ? x : cast(x, p_.sum); }
  Walk in_place(size_t load, Expr start) const;
  void transpose_rows(const BufferId buffer, const std::function<Expr(int, Expr, Expr)>& read, Expr count, Expr to);
  void write_sized_tile(const Stage& s, Expr m_tile, Expr n_tile);
  void write_tile(const Stage& s, Expr m_tile, Expr n_tile, int height, int vectors, bool masked);
  void sum_products(const Stage& s, const Walk& a, const Walk& b, int height, int vectors, Expr last_count);
  Expr stage_base(size_t load, const Stage& s);
  void sum_words(const Walk& a, Expr a_at, const Walk& bw, Expr b_at, int words, int height, int vectors,
                 std::vector<Expr>& sums);
  void each_k_outer(const Stage& s, size_t digit, Expr a, Expr b, const Walk& wa, const Walk& wb,
                    const std::function<void(Expr, Expr)>& body);
  void each_outer_k(const Stage& s, const std::function<void(const std::vector<Expr>&, Expr)>& body);

  const TilePlan& t_;
  int64_t lane_bytes_;
  BufferId a_panel_ = -1, b_panel_ = -1, sums_ = -1, temporary_ = -1, rows_ = -1;
  BufferId shift_sums_ = -1;  // products of a's shift with the columns of a stage's panel of b
  std::vector<BufferId> accumulators_;
  TilesOfA laid_;            // a, if an earlier step laid it out
  int64_t a_row_bytes_ = 0;  // of the copied panel of a
};

void TileKernel::multiply_task() {
  const int64_t tile_columns = t_.vectors * t_.lanes;
  if (t_.b != Fetch::direct) b_panel_ = b_.alloc(t_.n_task * padded_k() * tile_columns * 4);
  if (is_shifted()) shift_sums_ = b_.alloc(t_.n_task * tile_columns * 4);
  if (t_.b == Fetch::transpose && p_.loads[1].kind == DotLoad::Kind::packed)
    temporary_ = b_.alloc(t_.lanes * transpose_columns() * 4);
  if (t_.b == Fetch::copy && p_.loads[1].kind == DotLoad::Kind::packed) rows_ = b_.alloc(t_.n_task * tile_columns * 4);
  if (t_.a == Fetch::span) {
    a_panel_ = b_.alloc((span_of_a(p_, *t_.row) + p_.word * t_.lanes) * scalar_bytes(t_.row->type_of(0)));
  } else if (t_.a != Fetch::direct && t_.a != Fetch::tiles) {
    const int64_t rows = t_.m_task * t_.height;
    // A cache line more than the row, to avoid cache set conflicts.
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
          [&](Expr at) { b_.store(sums_, w_.zero(t_.lanes), at, 4); });
  const int64_t inner_stages = (p_.k.extent + t_.stage_k - 1) / t_.stage_k;
  const Expr stages = p_.runs ? (w_.run() + (t_.stage_k - 1)) / t_.stage_k : w_.i64(t_.stages);
  b_.loop(LoopKind::serial, w_.i64(0), stages, 1, [&](Expr number) {
    s.k0 = number % inner_stages * t_.stage_k;
    if (p_.runs) {
      s.count = min(w_.i64(t_.stage_k), w_.run() - s.k0);
    } else if (p_.k.extent % t_.stage_k == 0) {
      s.fixed = t_.stage_k;
      s.count = w_.i64(s.fixed);
    } else {
      s.count = min(w_.i64(t_.stage_k), p_.k.extent - s.k0);
    }
    Expr rest = number / inner_stages;
    s.flat_k = rest * (outer_k_of_stage() * p_.k.extent) + s.k0;
    s.digits.assign(first_digit(), {});
    for (size_t d = first_digit(); d-- > 0;) {
      s.digits[d] = rest % p_.outer_k[d].extent;
      rest = rest / p_.outer_k[d].extent;
    }
    write_stage(s);
  });
  finish_sums(sums_, [&](Expr m, Expr m0, Expr n, Expr n0) { return (m - m0) * row_bytes + (n - n0) * 4; });
}

// Element of a load where the stage begins, at m = n = 0 of the outer indices.
Expr TileKernel::stage_base(size_t load, const Stage& s) {
  Expr at = w_.base(load) + s.k0 * p_.k.strides[load];
  for (size_t d = 0; d < s.digits.size(); ++d) at = at + s.digits[d] * p_.outer_k[d].strides[load];
  return at;
}

// Loops over the outer k of a stage: passes all digits, and the flat number.
void TileKernel::each_outer_k(const Stage& s, const std::function<void(const std::vector<Expr>&, Expr)>& body) {
  if (t_.stage_digits == 0) return body(s.digits, w_.i64(0));
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(outer_k_of_stage()), 1, [&](Expr number) {
    std::vector<Expr> digits = s.digits;
    digits.resize(p_.outer_k.size());
    Expr rest = number;
    for (size_t d = digits.size(); d-- > first_digit();) {
      digits[d] = rest % p_.outer_k[d].extent;
      rest = rest / p_.outer_k[d].extent;
    }
    body(digits, number);
  });
}

void TileKernel::pack_a(const Stage& s) {
  const Expr m0 = m_first_ * t_.height;
  const Expr rows = min(m_last_ * t_.height, w_.i64(p_.m.extent)) - m0;
  each_outer_k(s, [&](const std::vector<Expr>& digits, Expr number) {
    Stage here = s;
    here.digits = digits;
    const Expr first = stage_base(0, here) + m0 * p_.m.strides[0];
    const Expr k_first = number * p_.k.extent;
    if (t_.row) return pack_words_of_a(here, first, rows, k_first * 4);
    if (t_.a_along_k && t_.a == Fetch::copy)
      return copy_rows(w_, p_, {0, first, p_.m.strides[0]}, rows, s.count, {a_panel_, k_first * 4, a_row_bytes_},
                       t_.lanes);
    const Expr start = k_first * a_row_bytes_;
    if (!tiles_of_a())
      return copy_rows(w_, p_, {0, first, p_.k.strides[0]}, s.count, rows, {a_panel_, start, a_row_bytes_}, t_.lanes);
    b_.loop(LoopKind::serial, w_.i64(0), s.count, 1, [&](Expr k) {
      b_.loop(LoopKind::serial, w_.i64(0), m_last_ - m_first_, 1, [&](Expr tile) {
        const Expr to = start + (k * a_row_bytes_ + tile * (padded_k() * a_row_bytes_));
        for (int at = 0; at < t_.height; at += t_.lanes) {
          Expr m = tile * t_.height + at;
          Expr count = w_.i64(std::min(t_.lanes, t_.height - at));
          if (t_.last_height != t_.height) {
            count = max(min(count, rows - m), w_.i64(0));
            m = min(m, rows - 1);  // if none is left, lanes that do not exist read the last row
          }
          const Expr from = first + (k * p_.k.strides[0] + m * p_.m.strides[0]);
          const Expr v = w_.read_factor(0, from, p_.m.strides[0], t_.lanes, count);
          b_.store(a_panel_, v, to + at * 4, 4);
        }
      });
    });
  });
}

// Transposes rows along k, `lanes` of them, into vectors along n: read(row, k, count or -1).
void TileKernel::transpose_rows(BufferId buffer, const std::function<Expr(int, Expr, Expr)>& read, Expr count,
                                Expr to) {
  const int64_t row = t_.vectors * lane_bytes_;
  const Expr whole = count / t_.lanes * t_.lanes;
  auto block = [&](Expr k, Expr k_count) {
    std::vector<Expr> rows;
    for (int i = 0; i < t_.lanes; ++i) rows.push_back(read(i, k, k_count));
    transpose(b_, rows);
    for (int i = 0; i < t_.lanes; ++i)  // rows past the count fall into the panel's padding
      b_.store(buffer, rows[i], to + k * row + i * row, 4);
  };
  b_.loop(LoopKind::serial, w_.i64(0), whole, t_.lanes, [&](Expr k) { block(k, {}); });
  b_.branch(whole < count, [&] { block(whole, count - whole); });
}

void TileKernel::pack_b(const Stage& s) {
  const int64_t row = t_.vectors * lane_bytes_;  // bytes of one k of a tile
  const int64_t panel = padded_k() * row;        // of a tile
  const int64_t n_stride = p_.n.strides[1], k_stride = p_.k.strides[1];
  const Expr vectors_first = n_first_ * t_.vectors;
  const int64_t all_vectors = (p_.n.extent + t_.lanes - 1) / t_.lanes;
  const Expr vectors_last = min(n_last_ * t_.vectors, w_.i64(all_vectors));
  const bool packed = p_.loads[1].kind == DotLoad::Kind::packed;
  if (is_shifted()) {
    b_.loop(LoopKind::serial, w_.i64(0), (vectors_last - vectors_first) * lane_bytes_, lane_bytes_,
            [&](Expr at) { b_.store(shift_sums_, w_.zero(t_.lanes), at, 4); });
  }
  each_outer_k(s, [&](const std::vector<Expr>& digits, Expr number) {
    Stage here = s;
    here.digits = digits;
    const Expr base = stage_base(1, here);
    const Expr k_first = number * (p_.k.extent * row);
    // Start of vector v (counted over N) in the panel.
    auto place = [&](Expr v) {
      const Expr inside = v - vectors_first;
      return k_first + (inside / t_.vectors * panel + inside % t_.vectors * lane_bytes_);
    };
    if (t_.row) return pack_words_of_b(here, base, vectors_first, vectors_last, place);
    if (t_.b == Fetch::copy && packed) {
      // Rows along n, unpacked into adjacent tiles' panels: one row at a time through a private row.
      const Expr n0 = vectors_first * t_.lanes;
      const Expr columns = min(vectors_last * t_.lanes, w_.i64(p_.n.extent)) - n0;
      b_.loop(LoopKind::serial, w_.i64(0), s.count, 1, [&](Expr k) {
        const Expr first = base + (k * k_stride + n0);
        copy_rows(w_, p_, {1, first, k_stride}, w_.i64(1), columns, {rows_, w_.i64(0), 0}, t_.lanes);
        b_.loop(LoopKind::serial, vectors_first, vectors_last, 1, [&](Expr v) {
          const Expr x = b_.load(rows_, {Scalar::f32, t_.lanes}, (v - vectors_first) * lane_bytes_, 4);
          b_.store(b_panel_, x, place(v) + k * row, 4);
        });
      });
      return;
    }
    if (t_.b != Fetch::transpose) {
      // Row by row through all tiles of the task: their reads of a row are contiguous.
      b_.loop(LoopKind::serial, w_.i64(0), s.count, 1, [&](Expr k) {
        const Expr from = base + k * k_stride;
        b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Expr tile) {
          const Expr n = tile * (t_.vectors * t_.lanes);
          const Expr to = k_first + (tile - n_first_) * panel + k * row;
          each_width(tile, true, [&](int vectors, bool masked) {
            const Expr last = masked ? p_.n.extent - (n + static_cast<int64_t>(vectors - 1) * t_.lanes) : Expr{};
            for (int j = 0; j < vectors; ++j) {
              const Expr column = n + static_cast<int64_t>(j) * t_.lanes;
              const Expr at = from + column * n_stride;
              const Expr x = w_.read_factor(1, at, n_stride, t_.lanes, j == vectors - 1 ? last : Expr{});
              b_.store(b_panel_, x, to + j * lane_bytes_, 4);
            }
          });
        });
      });
      return;
    }
    b_.loop(LoopKind::serial, vectors_first, vectors_last, 1, [&](Expr v) {
      const Expr n = v * t_.lanes;
      const Expr to = place(v);
      // Rows that do not exist repeat the last one; their sums are never stored.
      auto row_first = [&](int i) {
        const Expr r = n + i;
        return base + (t_.masked ? min(r, w_.i64(p_.n.extent - 1)) : r) * n_stride;
      };
      if (!packed) {
        transpose_rows(
            b_panel_,
            [&](int i, Expr k, Expr count) { return w_.read_factor(1, row_first(i) + k, 1, t_.lanes, count); }, s.count,
            to);
        return;
      }
      const int64_t chunk = transpose_columns();
      b_.loop(LoopKind::serial, w_.i64(0), s.count, chunk, [&](Expr k) {
        const Expr columns = min(w_.i64(chunk), s.count - k);
        b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.lanes), 1, [&](Expr i) {
          const Expr r = n + i;
          const Expr at = (t_.masked ? min(r, w_.i64(p_.n.extent - 1)) : r) * n_stride;
          copy_rows(w_, p_, {1, base + (at + k), 0}, w_.i64(1), columns, {temporary_, i * (transpose_columns() * 4), 0},
                    t_.lanes);
        });
        transpose_rows(
            b_panel_,
            [&](int i, Expr c, Expr count) {
              return b_.load(temporary_, {Scalar::f32, t_.lanes}, i * transpose_columns() * 4 + c * 4, 4, count);
            },
            columns, to + k * row);
      });
    });
  });
}

// Words of a row of K from `s.k0` on, vector by vector, with their count of numbers.
void TileKernel::each_words(const Stage& s, const std::function<void(Expr word, int64_t numbers)>& body) {
  const int64_t step = int64_t{t_.lanes} * p_.word;
  const int64_t known = s.fixed == p_.k.extent ? p_.k_numbers : s.fixed * p_.word;
  if (s.fixed == p_.k.extent || (s.fixed > 0 && p_.k_numbers % p_.word == 0)) {
    const int64_t whole = known / step * t_.lanes;
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole), t_.lanes, [&](Expr word) { body(word, step); });
    if (known % step > 0) body(w_.i64(whole), known % step);
    return;
  }
  b_.loop(LoopKind::serial, w_.i64(0), s.count, t_.lanes, [&](Expr word) { body(word, 0); });
}

void TileKernel::widen_a() {
  const int64_t span = span_of_a(p_, *t_.row), step = int64_t{t_.lanes} * p_.word, whole = span / step * step;
  const auto widen = [&](Expr at, int64_t numbers) {
    const Expr x = read_words(w_, *t_.row, 0, w_.base(0) + at, t_.lanes, numbers);
    b_.store(a_panel_, x, at * scalar_bytes(t_.row->type_of(0)), 4);
  };
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole), step, [&](Expr at) { widen(at, step); });
  if (whole < span) widen(w_.i64(whole), span - whole);
}

void TileKernel::pack_words_of_a(const Stage& s, Expr first, Expr rows, Expr to) {
  b_.loop(LoopKind::serial, w_.i64(0), rows, 1, [&](Expr r) {
    const Expr from = first + r * p_.m.strides[0], out = to + r * a_row_bytes_;
    each_words(s, [&](Expr word, int64_t numbers) {
      const Expr at = from + word * p_.word;
      const Expr left = p_.k_numbers - (s.k0 + word) * p_.word;
      const Expr x = numbers > 0 ? read_words(w_, *t_.row, 0, at, t_.lanes, numbers)
                                 : read_words(w_, *t_.row, 0, at, t_.lanes, left);
      b_.store(a_panel_, x, out + word * 4, 4);
    });
  });
}

void TileKernel::pack_words_of_b(const Stage& s, Expr base, Expr vectors_first, Expr vectors_last,
                                 const std::function<Expr(Expr)>& place) {
  const int64_t row = t_.vectors * lane_bytes_;
  b_.loop(LoopKind::serial, vectors_first, vectors_last, 1, [&](Expr v) {
    const Expr to = place(v);
    const Expr sums_at = is_shifted() ? (v - vectors_first) * lane_bytes_ : Expr{};
    each_words(s, [&](Expr word, int64_t numbers) {
      Expr left = p_.k_numbers - (s.k0 + word) * p_.word;
      if (is_shifted()) left = min(left, (s.count - word) * p_.word);  // shift sums cover this stage only
      std::vector<Expr> rows;
      for (int i = 0; i < t_.lanes; ++i) {
        const Expr n = v * t_.lanes + i;  // rows that do not exist repeat the last one; their sums are never stored
        const Expr at = base + (t_.masked ? min(n, w_.i64(p_.n.extent - 1)) : n) * p_.n.strides[1] + word * p_.word;
        rows.push_back(numbers > 0 ? read_words(w_, *t_.row, 1, at, t_.lanes, numbers)
                                   : read_words(w_, *t_.row, 1, at, t_.lanes, left));
      }
      transpose(b_, rows, p_.word);
      if (is_shifted()) add_shift_sums(rows, sums_at);
      for (int i = 0; i < t_.lanes; ++i)  // rows beyond the count fall into the panel's padding
        b_.store(b_panel_, rows[i], to + word * row + i * row, 4);
    });
  });
}

// Words past the end of the stage are zeros.
void TileKernel::add_shift_sums(const std::vector<Expr>& words, Expr at) {
  constexpr int kChains = 4;  // independent chains of additions
  std::vector<Expr> sums(kChains, w_.zero(t_.lanes));
  sums[0] = b_.load(shift_sums_, {p_.sum, t_.lanes}, at, 4);
  for (int i = 0; i < t_.lanes; ++i) sums[i % kChains] = add_shift(b_, *t_.row, words[i], sums[i % kChains]);
  b_.store(shift_sums_, (sums[0] + sums[1]) + (sums[2] + sums[3]), at, 4);
}

void TileKernel::write_stage(const Stage& s) {
  if (t_.b != Fetch::direct) pack_b(s);
  if (t_.outer_task == 1) return write_tiles(s);
  const Expr first = outer_;
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.outer_task), 1, [&](Expr i) {
    outer_ = first + i;
    w_.enter_outer(outer_);
    write_tiles(s);
  });
}

void TileKernel::write_tiles(const Stage& s) {
  if (t_.a == Fetch::span)
    widen_a();
  else if (t_.a != Fetch::direct && t_.a != Fetch::tiles)
    pack_a(s);
  if (t_.row) {  // the panel of one tile of b, which is the longer one, stays in cache
    return b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Expr n_tile) {
      b_.loop(LoopKind::serial, m_first_, m_last_, 1, [&](Expr m_tile) { write_sized_tile(s, m_tile, n_tile); });
    });
  }
  b_.loop(LoopKind::serial, m_first_, m_last_, 1, [&](Expr m_tile) {
    b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Expr n_tile) { write_sized_tile(s, m_tile, n_tile); });
  });
}

void TileKernel::write_sized_tile(const Stage& s, Expr m_tile, Expr n_tile) {
  each_height(m_tile, [&](int height) {
    each_width(n_tile, true, [&](int vectors, bool masked) { write_tile(s, m_tile, n_tile, height, vectors, masked); });
  });
}

// Strides of an operand that is read in place.
Walk TileKernel::in_place(size_t load, Expr start) const {
  Walk walk;
  walk.scalar = p_.loads[load].scalar;
  const int64_t bytes = scalar_bytes(walk.scalar);
  walk.buffer = w_.buffer(load);
  walk.start = start * bytes;
  walk.k = p_.k.strides[load] * bytes;
  for (const DotIndex& i : p_.outer_k) walk.outer_k.push_back(i.strides[load] * bytes);
  return walk;
}

void TileKernel::write_tile(const Stage& s, Expr m_tile, Expr n_tile, int height, int vectors, bool masked) {
  const Expr m = m_tile * t_.height, n = n_tile * (t_.vectors * t_.lanes);
  const Expr last_count = masked ? p_.n.extent - (n + static_cast<int64_t>(vectors - 1) * t_.lanes) : Expr{};
  auto packed_outer = [&](Walk& walk) {  // digits of outer k follow each other in a panel
    walk.scalar = p_.sum;
    int64_t step = p_.k.extent * walk.k;
    walk.outer_k.resize(p_.outer_k.size());
    for (size_t d = p_.outer_k.size(); d-- > 0; step *= p_.outer_k[d].extent) walk.outer_k[d] = step;
  };
  Walk a, bw;
  if (t_.a == Fetch::direct) {
    const Expr start = stage_base(0, s) + m * p_.m.strides[0];
    a = in_place(0, p_.is_along_batch() ? start + n : start);
    const int64_t bytes = scalar_bytes(a.scalar);
    a.step = p_.m.strides[0] * bytes;
    if (p_.is_along_batch()) a.vector = t_.lanes * bytes;
  } else if (t_.a == Fetch::span) {
    const int64_t bytes = scalar_bytes(t_.row->type_of(0));
    a = {a_panel_, m * (p_.m.strides[0] * bytes), p_.m.strides[0] * bytes, p_.k.strides[0] * bytes, {}};
    a.scalar = t_.row->type_of(0);
    for (const DotIndex& i : p_.outer_k) a.outer_k.push_back(i.strides[0] * bytes);
  } else if (t_.a == Fetch::tiles) {
    const Expr tile = outer_ * t_.m_tiles + m_tile;
    a = {a_panel_, tile * laid_.tile_bytes + s.flat_k * laid_.row_bytes, 4, laid_.row_bytes, {}};
    packed_outer(a);
  } else {
    const Expr inside = (m_tile - m_first_) * t_.height;
    a = {a_panel_,
         tiles_of_a() ? (m_tile - m_first_) * (padded_k() * a_row_bytes_) : inside * (t_.a_along_k ? a_row_bytes_ : 4),
         t_.a_along_k ? a_row_bytes_ : 4,
         t_.a_along_k ? 4 : a_row_bytes_,
         {}};
    packed_outer(a);
  }
  if (t_.b == Fetch::direct) {
    const int64_t stride = t_.lanes == 1 ? p_.n.strides[1] : 1;
    bw = in_place(1, stage_base(1, s) + n * stride);
    bw.step = t_.lanes * stride * scalar_bytes(bw.scalar);
  } else {
    const int64_t row = t_.vectors * lane_bytes_;
    bw = {b_panel_, (n_tile - n_first_) * (padded_k() * row), lane_bytes_, row, {}};
    packed_outer(bw);
  }

  const Expr sums_at = t_.stages == 1 ? Expr{}
                                      : (m_tile - m_first_) * (t_.height * t_.n_task * t_.vectors * lane_bytes_) +
                                            (n_tile - n_first_) * (t_.vectors * lane_bytes_);
  auto sums_place = [&](int i, int j) {
    return sums_at + (i * t_.n_task * t_.vectors * lane_bytes_ + j * lane_bytes_);
  };
  const VType vector{p_.sum, t_.lanes};
  std::vector<Expr> shifts;
  for (int j = 0; is_shifted() && j < vectors; ++j) {
    const Expr tile = (n_tile - n_first_) * (t_.vectors * lane_bytes_);
    shifts.push_back(b_.load(shift_sums_, vector, tile + j * lane_bytes_, 4));
  }
  for (int i = 0; i < height; ++i)
    for (int j = 0; j < vectors; ++j) {
      const Expr begin = t_.stages == 1 ? w_.zero(t_.lanes) : b_.load(sums_, vector, sums_place(i, j), 4);
      b_.store(accumulators_[i * vectors + j], is_shifted() ? begin - shifts[j] : begin, w_.i64(0), 4);
    }
  sum_products(s, a, bw, height, vectors, last_count);
  auto sum = [&](int i, int j) { return b_.load(accumulators_[i * vectors + j], vector, w_.i64(0), 4); };
  if (t_.stages > 1) {
    for (int i = 0; i < height; ++i)
      for (int j = 0; j < vectors; ++j) b_.store(sums_, sum(i, j), sums_place(i, j), 4);
    return;
  }
  auto finish = [&](Expr row, int j, Expr v) {
    const bool part = masked && j == vectors - 1;
    w_.finish_vector(v, row, n + static_cast<int64_t>(j) * t_.lanes, part ? last_count : Expr{});
  };
  if (w_.epilogue_nodes() * height * vectors <= kStraightEpilogue) {
    for (int i = 0; i < height; ++i)
      for (int j = 0; j < vectors; ++j) finish(m + i, j, sum(i, j));
    return;
  }
  const BufferId tile = b_.alloc(height * vectors * lane_bytes_);
  for (int i = 0; i < height; ++i)
    for (int j = 0; j < vectors; ++j) b_.store(tile, sum(i, j), w_.i64((i * vectors + j) * lane_bytes_), 4);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(height), 1, [&](Expr i) {
    for (int j = 0; j < vectors; ++j)
      finish(m + i, j, b_.load(tile, vector, i * (vectors * lane_bytes_) + j * lane_bytes_, 4));
  });
}

// Loops over the outer k of a stage, then writes `body` with the bytes where the inner k begins.
void TileKernel::each_k_outer(const Stage& s, size_t digit, Expr a, Expr b, const Walk& wa, const Walk& wb,
                              const std::function<void(Expr, Expr)>& body) {
  if (digit == p_.outer_k.size()) return body(a, b);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(p_.outer_k[digit].extent), 1, [&](Expr x) {
    each_k_outer(s, digit + 1, a + x * wa.outer_k[digit], b + x * wb.outer_k[digit], wa, wb, body);
  });
}

// Multiplies two consecutive words with a row of a before the next row, so that few products wait for their sum.
void TileKernel::sum_words(const Walk& a, Expr a_at, const Walk& bw, Expr b_at, int words, int height, int vectors,
                           std::vector<Expr>& sums) {
  const CodesDot& row = *t_.row;
  for (int first = 0; first < words; first += 2) {
    const int count = std::min(2, words - first);
    std::vector<Expr> right;
    for (int u = 0; u < count; ++u)
      for (int j = 0; j < vectors; ++j)
        right.push_back(
            b_.load(bw.buffer, {row.type_of(1), t_.lanes * row.k}, b_at + ((first + u) * bw.k + j * bw.step), 4));
    for (int i = 0; i < height; ++i) {
      for (int u = 0; u < count; ++u) {
        const Expr at = a_at + ((first + u) * a.k + i * a.step);
        const Expr x = word_everywhere(b_, row, a.buffer, at, scalar_bytes(a.scalar));
        for (int j = 0; j < vectors; ++j) {
          Expr& sum = sums[i * vectors + j];
          sum = add_dot(b_, row, right[u * vectors + j], x, sum);
        }
      }
    }
  }
}

void TileKernel::sum_products(const Stage& s, const Walk& a, const Walk& bw, int height, int vectors, Expr last_count) {
  const VType vector{p_.sum, t_.lanes};
  const auto read = [&](const Walk& from, int lanes, Expr at, Expr count) {
    return factor(b_.load(from.buffer, {from.scalar, lanes}, at, scalar_bytes(from.scalar), count));
  };
  const auto last = [&](int j) { return j == vectors - 1 ? last_count : Expr{}; };  // lanes of vector j that exist
  auto products = [&](Expr a_at, Expr b_at, int64_t ahead, std::vector<Expr>& sums) {
    std::vector<Expr> right;
    for (int j = 0; j < vectors; ++j)
      right.push_back(
          read(bw, t_.lanes, b_at + (ahead * bw.k + j * bw.step), t_.b == Fetch::direct ? last(j) : Expr{}));
    for (int i = 0; i < height; ++i) {
      const Expr row = a_at + (ahead * a.k + i * a.step);
      const Expr left = a.vector == 0 ? b_.splat(read(a, 1, row, {}), t_.lanes) : Expr{};
      for (int j = 0; j < vectors; ++j) {
        const Expr own = a.vector == 0 ? left : read(a, t_.lanes, row + j * a.vector, last(j));
        Expr& sum = sums[i * vectors + j];
        sum = p_.are_whole() ? sum + own * right[j] : fma(own, right[j], sum);
      }
    }
  };
  const int count = height * vectors;
  auto with_sums = [&](const std::function<void(std::vector<Expr>&)>& body) {
    std::vector<Expr> sums;
    for (int i = 0; i < count; ++i) sums.push_back(b_.load(accumulators_[i], vector, w_.i64(0), 4));
    body(sums);
    for (int i = 0; i < count; ++i) b_.store(accumulators_[i], sums[i], w_.i64(0), 4);
  };
  // In panels each outer k follows the previous one without a gap.
  const bool follow = t_.row && t_.a == Fetch::copy && s.fixed == p_.k.extent;
  const int64_t fixed = follow ? s.fixed * outer_k_of_stage() : s.fixed;
  const Expr words = follow ? w_.i64(fixed) : s.count;
  each_k_outer(s, follow ? p_.outer_k.size() : first_digit(), a.start, bw.start, a, bw,
               [&](Expr a_start, Expr b_start) {
                 auto at_k = [&](Expr k, int times, std::vector<Expr>& sums) {
                   const Expr a_at = a_start + k * a.k, b_at = b_start + k * bw.k;
                   if (t_.row) return sum_words(a, a_at, bw, b_at, times, height, vectors, sums);
                   for (int u = 0; u < times; ++u) products(a_at, b_at, u, sums);
                 };
                 const Expr whole = words / t_.unroll * t_.unroll;
                 b_.loop(LoopKind::serial, w_.i64(0), whole, t_.unroll,
                         [&](Expr k) { with_sums([&](std::vector<Expr>& sums) { at_k(k, t_.unroll, sums); }); });
                 if (fixed >= 0) {
                   if (const int rest = fixed % t_.unroll; rest > 0)
                     with_sums([&](std::vector<Expr>& sums) { at_k(whole, rest, sums); });
                 } else if (t_.unroll > 1) {
                   b_.loop(LoopKind::serial, whole, s.count, 1,
                           [&](Expr k) { with_sums([&](std::vector<Expr>& sums) { at_k(k, 1, sums); }); });
                 }
               });
}

}  // namespace

void write_tile_kernels(const graph::Graph& g, const DotProblem& p, const TilePlan& t, Synthesis& out) {
  const int scratch = out.scratch.size();
  if (t.a == Fetch::tiles) {
    out.scratch.push_back(tiles_of_a(p, t).bytes);
    out.steps.push_back(write_pack_step(g, p, t, scratch));
  }
  out.steps.push_back(TileKernel(g, p, t, scratch).write(describe_shape(p) + " " + describe(t)));
}

}  // namespace lumen::synth
