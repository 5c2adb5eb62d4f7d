// Rows of b are unpacked one after another into a few private rows, which are then transposed, word by word; or, if the
// weight is a matrix unit's first factor, straight into the panel.
#include "kernel/synth/gemm/cpu/dot_matrix_panel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/pack.h"
#include "kernel/synth/order/pairs.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

namespace {

int64_t row_bytes(const MatrixPlan& t) {  // a cache line more than the row, to avoid cache set conflicts
  return t.stage_k * t.element_bytes() + 64;
}

}  // namespace

MatrixPanel::MatrixPanel(DotWriter& w, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m)
    : w_(w), b_(w.b), p_(p), t_(t), m_(m), value_lanes_(m.f32_lanes()) {
  codes_ = b_.alloc(t.filled_tiles() * tile_bytes());
  if (t.integers) scales_ = b_.alloc(t.stage_k / t.group * group_bytes());
  if (t.offsets) offsets_ = b_.alloc(t.stage_k / t.group * group_bytes());
  codes_from_ = groups_from_ = w_.i64(0);
  begin_task();
}

MatrixPanel::MatrixPanel(DotWriter& w, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                         const LaidPanels& laid, bool written)
    : w_(w), b_(w.b), p_(p), t_(t), m_(m), value_lanes_(m.f32_lanes()), laid_(true) {
  const int64_t panels = p.outer_extent() * t.n_tiles * t.stages;
  codes_ = w_.scratch_param("panels", laid.codes, panels * tile_bytes(), written);
  const int64_t groups = t.integers ? panels * (t.stage_k / t.group) * group_bytes() : 0;
  if (t.integers) scales_ = w_.scratch_param("panel_scales", laid.scales, groups, written);
  if (t.offsets) offsets_ = w_.scratch_param("panel_offsets", laid.offsets, groups, written);
}

void MatrixPanel::enter(Expr outer, Expr tile, Expr stage) {
  const Expr number = (outer * t_.n_tiles + tile) * t_.stages + stage;
  codes_from_ = number * tile_bytes();
  groups_from_ = t_.integers ? number * (t_.stage_k / t_.group * group_bytes()) : w_.i64(0);
}

void MatrixPanel::begin_task() {
  const DotLoad& load = p_.loads[1];
  along_n_ = load.kind == DotLoad::Kind::memory && p_.k.strides[1] != 1;
  if (along_n_) return;
  if (!t_.weight_first) rows_ = b_.alloc(t_.lanes() * row_bytes(t_));
  if (load.kind == DotLoad::Kind::memory) return;
  cursor_ = std::make_unique<Unpack>(b_, *load.format, w_.buffer(1), load.rows, load.columns);
  cursor_->enter_tensor();
}

void MatrixPanel::fill(Expr first, Expr last, Expr k0, Expr count) {
  const int64_t all = (p_.n.extent + t_.lanes() - 1) / t_.lanes();
  const Expr from = first * t_.vectors;
  const Expr to = min(last * t_.vectors, w_.i64(all));
  b_.loop(LoopKind::serial, from, to, 1, [&](Expr vector) {
    const Expr inside = vector - from;
    const Expr tile = inside / t_.vectors;
    const Expr place = inside % t_.vectors;
    const Expr here = codes_from_ + (tile * tile_bytes() + place * vector_bytes());
    if (along_n_) return join_rows(vector * t_.lanes(), here, k0, count);
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.lanes()), 1, [&](Expr i) {
      Expr n = vector * t_.lanes() + i;
      if (t_.masked) n = min(n, w_.i64(p_.n.extent - 1));  // repeats the last row; its sums are not stored
      const Expr row = rows_ < 0 ? here + i * (t_.tile->k * t_.element_bytes()) : i * row_bytes(t_);
      unpack_row(row, n, inside * t_.lanes() + i, k0, count);
    });
    if (rows_ >= 0) transpose_rows(here, count);
  });
}

// Rows of the next tile are far away in memory: only this prefetch brings them in time.
void MatrixPanel::ask_ahead(Expr row, Expr k0) {
  if (!is_read_ahead(p_, m_)) return;
  const DotLoad& b = p_.loads[1];
  const int64_t block = cursor_ ? b.format->block : 1,
                block_bytes = cursor_ ? b.format->block_bytes : t_.element_bytes();
  const Expr behind = w_.base(1) + (row + t_.tile_columns()) * p_.n.strides[1] + k0;
  w_.ask_for(1, behind / block * block_bytes, 0, t_.stage_k / block * block_bytes, m_.ahead_into);
}

// Stores elements from `position` on after element k of a row that begins at byte `to`.
void MatrixPanel::store(Expr v, Expr to, Expr k, int64_t position) {
  if (rows_ >= 0) return b_.store(rows_, v, to + (k * t_.element_bytes() + position * t_.element_bytes()));
  const int64_t run = t_.tile->k, bytes = run * t_.element_bytes();  // of an instruction; k is a multiple of `run`
  const int64_t inside = position / run * (t_.lanes() * bytes) + position % run * t_.element_bytes();
  b_.store(codes_, v, to + (k / run * (t_.lanes() * bytes) + inside));
}

void MatrixPanel::unpack_row(Expr to, Expr row, Expr column, Expr k0, Expr count) {
  const Expr element = w_.base(1) + row * p_.n.strides[1];
  ask_ahead(row, k0);
  if (!cursor_) {
    const VType type{t_.row.a, static_cast<int>(t_.step())};
    b_.loop(LoopKind::serial, w_.i64(0), count, t_.step(), [&](Expr k) {
      const Expr at = k0 + k;
      const Expr exist = p_.k.extent == t_.padded_k ? Expr{} : p_.k.extent - at;
      const Expr v = b_.load(w_.buffer(1), type, (element + at) * t_.element_bytes(), t_.element_bytes(), exist);
      store(v, to, k, 0);
    });
    return;
  }
  const int64_t block = p_.loads[1].format->block;
  cursor_->enter_row(element / p_.loads[1].columns);
  const Expr first = (element + k0) / block;
  const int64_t whole = p_.k.extent / t_.unit * t_.unit, rest = p_.k.extent - whole;
  const Expr inside = rest == 0 && whole == t_.padded_k ? count : min(k0 + count, w_.i64(whole)) - k0;
  b_.loop(LoopKind::serial, w_.i64(0), inside, t_.unit,
          [&](Expr k) { unpack_run(to, column, first + k / block, k, t_.unit, t_.unit); });
  if (whole == t_.padded_k) return;
  auto tail = [&] { unpack_run(to, column, first + inside / block, inside, rest, t_.padded_k - whole); };
  if (t_.stages == 1)
    tail();
  else
    b_.branch(whole < k0 + count, tail);
}

// Unpacks elements k .. k + count of the stage, in whole blocks from `block` on; zeros up to `padded`.
void MatrixPanel::unpack_run(Expr to, Expr column, Expr block, Expr k, int64_t count, int64_t padded) {
  if (count > 0) cursor_->enter_block(block, count / p_.loads[1].format->block);
  // Rounds two vectors at once if the machine can. Denormals that this flushes are flushed by the products anyway.
  const std::string pair = round_pair_row(m_, t_.row.a, value_lanes_);
  const bool by_pairs = !t_.integers && !pair.empty() && count % (2 * value_lanes_) == 0;
  const int64_t instruction = t_.is_outer() ? std::min<int64_t>(t_.step(), m_.vector_bits / 8)
                              : t_.by_two   ? t_.step() / 2
                                            : t_.step();
  const int64_t chunk = t_.integers ? instruction : by_pairs ? 2 * value_lanes_ : value_lanes_;
  const VType type{t_.row.a, static_cast<int>(chunk)};
  for (int64_t position = 0; position < padded; position += chunk) {
    Expr v;
    const int here = std::clamp<int64_t>(count - position, 0, chunk);
    if (here == 0) {
      v = is_float(type.scalar) ? b_.real(0, type) : b_.integer(0, type);
    } else if (t_.integers) {
      std::vector<int64_t> elements(chunk, -1);
      std::iota(elements.begin(), elements.begin() + here, position);
      v = integer_codes(b_, *cursor_, *t_.integers, m_, std::move(elements));
    } else if (by_pairs) {
      const Expr below = cursor_->values(position, value_lanes_);
      v = b_.inst(pair, type, {cursor_->values(position + value_lanes_, value_lanes_), below});
    } else {
      v = cast(cursor_->values(position, here), t_.row.a);
      if (here < chunk) {
        std::vector<int> mask(chunk, -1);
        for (int lane = 0; lane < here; ++lane) mask[lane] = lane;
        v = here == 1 ? b_.insert(b_.real(0, type), v, 0) : b_.shuffle({v}, mask);
      }
    }
    store(v, to, k, position);
  }
  if (!t_.integers) return;
  const IntegerDot& d = *t_.integers;
  const Expr groups = groups_from_ + (k / t_.group * group_bytes() + column * 4);
  const VType one{Scalar::f32, 1};
  for (int64_t position = 0; position < padded; position += t_.group) {
    const bool exists = position < count;
    const Expr at = groups + position / t_.group * group_bytes();
    const Expr scale = exists ? cursor_->expression(d.form.scale, position, 1, false) : b_.real(0, one);
    b_.store(scales_, scale, at, 4);
    if (!t_.offsets) continue;
    Expr offset = b_.real(0, one);
    if (exists) {  // it includes the bias of the codes
      offset = cursor_->expression(*d.form.offset, position, 1, false);
      if (d.bias != 0) offset = fma(scale, b_.real(d.bias, one), offset);
    }
    b_.store(offsets_, offset, at, 4);
  }
}

LaidPanels write_panels(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                        Synthesis& out) {
  DotProblem only_b = p;
  only_b.loads.resize(2);
  only_b.loads[0] = {};
  only_b.loads[0].kind = DotLoad::Kind::splat;
  only_b.epilogue.clear();
  only_b.row_scales.clear();
  only_b.result = -1;
  LaidPanels laid;
  const auto add = [&](int& scratch) { scratch = std::ssize(out.scratch), out.scratch.push_back(0); };
  add(laid.codes);
  if (t.integers) add(laid.scales);
  if (t.offsets) add(laid.offsets);
  DotWriter w(g, only_b, "panels");
  MatrixPanel panel(w, only_b, t, m, laid, true);
  const auto bytes_of = [&](BufferId buffer) { return w.b.kernel.params[buffer].bytes; };
  out.scratch[laid.codes] = bytes_of(panel.codes());
  if (t.integers) out.scratch[laid.scales] = bytes_of(panel.scales());
  if (t.offsets) out.scratch[laid.offsets] = bytes_of(panel.offsets());
  const int64_t panels = t.n_tiles * t.stages;
  w.b.loop(LoopKind::parallel, w.i64(0), w.i64(p.outer_extent() * panels), 1, [&](Expr task) {
    const Expr outer = task / panels, tile = task % panels / t.stages, stage = task % t.stages;
    w.enter_outer(outer);
    panel.begin_task();
    panel.enter(outer, tile, stage);
    const Expr k0 = stage * t.stage_k;
    const bool even = t.padded_k % t.stage_k == 0;
    panel.fill(tile, tile + 1, k0, even ? w.i64(t.stage_k) : min(w.i64(t.stage_k), t.padded_k - k0));
  });
  out.steps.push_back(
      w.step(fmt::format("panels {}x{} of {}x{}", p.n.extent, p.k.extent, t.tile_columns(), t.stage_k)));
  return laid;
}

// Joins rows along n in memory, as many as a word holds numbers: they are interleaved in the panel. Nothing past the
// ends is read.
void MatrixPanel::join_rows(Expr n, Expr to, Expr k0, Expr count) {
  const int step = t_.row.k, lanes = t_.lanes();
  LUMEN_CHECK(step == 1 || step == 2 || step == 4, "{} rows at a time", step);
  const VType type{t_.row.a, t_.lanes()};
  const Expr columns = t_.masked ? p_.n.extent - n : Expr{};
  const bool tail = p_.k.extent != t_.padded_k;
  const std::vector<int> alternate = by_turns(0, lanes, lanes);
  b_.loop(LoopKind::serial, w_.i64(0), count, step, [&](Expr k) {
    std::vector<Expr> rows;
    for (int j = 0; j < step; ++j) {
      const Expr at = k0 + k + j;
      Expr exist = columns;
      Expr row = at;
      if (tail) {  // rows beyond K are zero
        const Expr inside = at < p_.k.extent;
        exist = select(inside, !columns.exists() ? w_.i64(t_.lanes()) : columns, w_.i64(0));
        row = min(at, w_.i64(p_.k.extent - 1));
      }
      const Expr element = w_.base(1) + n + row * p_.k.strides[1];
      rows.push_back(b_.load(w_.buffer(1), type, element * t_.element_bytes(), t_.element_bytes(), exist));
    }
    const Expr quad = k / step;
    if (step == 1) {
      b_.store(codes_, rows[0], to + quad * quad_bytes(), 4);
    } else if (step == 4) {  // interleave 0 with 2 and 1 with 3, then both
      const Expr even = b_.shuffle({rows[0], rows[2]}, alternate), odd = b_.shuffle({rows[1], rows[3]}, alternate);
      b_.store(codes_, b_.shuffle({even, odd}, by_turns(0, 2 * lanes, 2 * lanes)), to + quad * quad_bytes(), 4);
    } else {
      b_.store(codes_, b_.shuffle(rows, alternate), to + quad * quad_bytes(), 4);
    }
  });
}

// Transposes `lanes` private rows of words into words of `lanes` rows.
void MatrixPanel::transpose_rows(Expr to, Expr count) {
  const int word = t_.word_bytes();
  LUMEN_CHECK(word == 2 || word == 4 || word == 8, "words of {} bytes", word);
  const VType words{word == 2 ? Scalar::u16 : word == 4 ? Scalar::u32 : Scalar::u64, t_.lanes()};
  const Expr bytes = count * t_.element_bytes();
  if (word == 8 && m_.scalable) {  // vectors hold few such words: transposing costs more than moving them one by one
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.lanes()), 1, [&](Expr i) {
      b_.loop(LoopKind::serial, w_.i64(0), bytes, word, [&](Expr at) {
        const Expr x = b_.load(rows_, {Scalar::u64, 1}, at + i * row_bytes(t_), word);
        b_.store(codes_, x, to + at / word * quad_bytes() + i * word, word);
      });
    });
    return;
  }
  // Outer products have longer vectors than the transpose takes.
  if (const int side = m_.f32_lanes(); t_.is_outer() && side < t_.lanes()) {
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.lanes()), side, [&](Expr first) {
      b_.loop(LoopKind::serial, w_.i64(0), bytes, int64_t{side} * word, [&](Expr at) {
        std::vector<Expr> rows;
        for (int i = 0; i < side; ++i)
          rows.push_back(b_.load(rows_, {words.scalar, side}, at + (first + i) * row_bytes(t_), word));
        transpose(b_, rows);
        const Expr out = to + at / word * quad_bytes() + first * word;
        for (int i = 0; i < side; ++i) b_.store(codes_, rows[i], out + i * quad_bytes(), word);
      });
    });
    return;
  }
  b_.loop(LoopKind::serial, w_.i64(0), bytes, t_.lanes() * word, [&](Expr at) {
    std::vector<Expr> rows;
    for (int i = 0; i < t_.lanes(); ++i) rows.push_back(b_.load(rows_, words, at + i * row_bytes(t_), word));
    transpose(b_, rows);
    const Expr out = to + at / word * quad_bytes();
    for (int i = 0; i < t_.lanes(); ++i) b_.store(codes_, rows[i], out + i * quad_bytes(), word);
  });
}

}  // namespace lumen::synth
