// See codes_write.h.
#include "kernel/synth/gemm/gpu/codes_write.h"

#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/gpu/codes_stage.h"

namespace lumen::synth {

using graph::ValueId;

CodesWrite::CodesWrite(DotWriter& w, const DotProblem& p, const BlockPlan& t, const machine::Machine& m, Synthesis& out)
    : w_(w), b_(w.b), p_(p), t_(t), m_(m) {
  // As exact as what is made of it: codes, 16-bit floats, or sums of rounded factors.
  const bool rounds = is_float(t.tile.factor) ? scalar_bytes(t.tile.factor) < 4 : p.sum == Scalar::f32;
  if (rounds || p.result < 0 || p.result_scalar != Scalar::f32) fast_ = {m.power2, m.reciprocal, ""};
  for (const graph::DotCodes& c : p.codes) {
    for (const ValueId cast : {c.straight, c.transposed})
      if (cast >= 0) fields_.try_emplace(cast, *p.encoded.plan, *p.encoded.group, cast, m, out);
    if (c.transposed >= 0) staged_.push_back(c);
  }
  for (auto& [cast, of] : fields_) of.declare(w_);
  for (const auto& [cast, of] : fields_) blobs_[cast] = w_.value(cast, true);
  for (const graph::DotExtreme& e : p.extremes) {
    extremes_.push_back({e.of, ExtremeParts(p.encoded.plan->graph, e.reduction)});
    extremes_.back().parts.declare(w_, out);
    extremes_.back().parts.set_parts(w_, t.m_tiles * t.n_tiles);
  }
}

void CodesWrite::add_last_steps(Synthesis& out) const {
  for (const Extreme& e : extremes_) e.parts.add_last_step(m_, out);
}

void CodesWrite::begin() {
  if (!staged_.empty()) stage_ = b_.alloc(codes_stage_bytes(t_.tile), 16, loop::Space::shared);
  for (Extreme& e : extremes_) {
    e.lane = b_.alloc(4, 16);
    e.waves = b_.alloc(t_.tile.lanes() / m_.wave * int64_t{4}, 16, loop::Space::shared);
  }
}

void CodesWrite::write(const Lanes& lanes, BlockWrite& sums, Expr m0, Expr n0, Expr tile) {
  for (size_t pass = 0; pass == 0 || is_staged(pass); ++pass) {
    lanes([&](Expr lane) {
      for (auto& [cast, of] : fields_) of.begin(b_);
      if (pass == 0) {
        for (const auto& [cast, of] : fields_)
          if (of.has_rest()) b_.branch((tile == 0) & (lane == 0), [&, &f = of] { f.write_rest(w_); });
        for (const Extreme& e : extremes_) b_.store(e.lane, e.parts.none(b_, 1), b_.i64(0), 4);
      }
      sums.each(lane, m0, n0, [&](Expr x, Expr m, Expr n, Expr count, int64_t beside) {
        b_.use_fast_math(fast_);
        const DotWriter::MapValues values = w_.map_values(x, m, n, count, beside);
        b_.use_fast_math({});
        visit(pass, values, m, n, m - m0, n - n0, count, beside);
      });
      if (pass == 0) fold_extremes(lane);
    });
    if (stage_ < 0 && extremes_.empty()) return;
    b_.barrier();
    lanes([&](Expr lane) {
      if (is_staged(pass)) {
        for (auto& [cast, of] : fields_) of.begin(b_);
        write_staged(lane, m0, n0, staged_[pass].transposed);
      }
      if (pass == 0) write_extremes(lane, tile);
    });
    b_.barrier();
  }
}

Expr CodesWrite::code(ValueId cast, Expr x, Expr row, Expr column, bool transposed) {
  const CodeFields& of = fields_.at(cast);
  const int lanes = b_.type(x).lanes;
  return of.code(b_, x, transposed ? of.below(b_, column, row, lanes) : of.along(b_, row, column, lanes));
}

void CodesWrite::visit(size_t pass, const DotWriter::MapValues& values, Expr m, Expr n, Expr row, Expr column,
                       Expr count, int64_t beside) {
  LUMEN_CHECK(!count.exists(), "vectors of codes are whole");
  const auto number = [&](ValueId v) {
    const Expr x = values.at(v);
    return b_.type(x).scalar == Scalar::f32 ? x : cast(x, Scalar::f32);
  };
  if (pass == 0) {
    if (p_.result >= 0) w_.put(values.at(p_.result), m, n, {}, beside * scalar_bytes(p_.result_scalar));
    for (const graph::DotCodes& c : p_.codes) {
      if (c.straight < 0) continue;
      b_.store(blobs_.at(c.straight), code(c.straight, number(c.map), m, n, false), m * p_.n.extent + n, beside);
    }
    for (const Extreme& e : extremes_) {
      const Expr most = b_.fold(e.parts.op(), number(e.of)), before = b_.load(e.lane, {Scalar::f32, 1}, b_.i64(0), 4);
      b_.store(e.lane, b_.op(e.parts.op(), most, before), b_.i64(0), 4);
    }
  }
  if (!is_staged(pass)) return;
  const graph::DotCodes& c = staged_[pass];
  const Expr codes = code(c.transposed, number(c.map), m, n, true);
  const int64_t column_bytes = codes_stage_column(t_.tile);
  for (int i = 0; i < b_.type(codes).lanes; ++i)
    b_.store(stage_, b_.extract(codes, i), (column + i) * column_bytes + row, 1);
}

// Words of a column's codes, lane by lane: those beside each other go to memory together.
void CodesWrite::write_staged(Expr lane, Expr m0, Expr n0, ValueId cast) {
  constexpr int64_t kWord = 4, kUnroll = 4;
  const BlockTile& tile = t_.tile;
  const int64_t words = tile.m() / kWord, of_lane = words * tile.n() / tile.lanes();
  const bool whole = p_.m.extent % tile.m() == 0 && p_.n.extent % tile.n() == 0;
  b_.count(0, of_lane, std::gcd(kUnroll, of_lane), [&](Expr first) {
    for (int64_t i = 0; i < std::gcd(kUnroll, of_lane); ++i) {
      const Expr word = lane + (first + i) * int64_t{tile.lanes()};
      const Expr column = word / words, row = word % words * kWord;
      const auto write = [&] {
        const Expr codes = b_.load(stage_, {Scalar::u32, 1}, column * codes_stage_column(tile) + row, kWord);
        b_.store(blobs_.at(cast), codes, (n0 + column) * p_.m.extent + (m0 + row), kWord);
      };
      if (whole)
        write();
      else
        b_.branch((m0 + row < p_.m.extent) & (n0 + column < p_.n.extent), write);
    }
  });
}

void CodesWrite::fold_extremes(Expr lane) {
  for (const Extreme& e : extremes_) {
    const Expr own = b_.load(e.lane, {Scalar::f32, 1}, b_.i64(0), 4);
    const Expr most = b_.fold_wave(e.parts.op(), own, m_.wave);
    b_.branch(lane % m_.wave == 0, [&] { b_.store(e.waves, most, lane / m_.wave * 4, 4); });
  }
}

void CodesWrite::write_extremes(Expr lane, Expr tile) {
  for (const Extreme& e : extremes_)
    b_.branch(lane == 0, [&] {
      Expr most;
      for (int64_t wave = 0; wave < t_.tile.lanes() / m_.wave; ++wave) {
        const Expr x = b_.load(e.waves, {Scalar::f32, 1}, b_.i64(wave * 4), 4);
        most = most.exists() ? b_.op(e.parts.op(), x, most) : x;
      }
      e.parts.write(b_, tile, most);
    });
}

}  // namespace lumen::synth
