// See codes_write.h.
#include "kernel/synth/gemm/gpu/codes_write.h"

#include <algorithm>

namespace lumen::synth {

using graph::ValueId;

CodesWrite::CodesWrite(DotWriter& w, const DotProblem& p, const BlockPlan& t, const machine::Machine& m, Synthesis& out)
    : w_(w), b_(w.b), p_(p), t_(t), m_(m), stage_(t.tile) {
  // Fast math is exact enough for codes, for 16-bit floats and for sums of rounded factors.
  if (t.adds_rounded(p) || p.result < 0 || p.result_scalar != Scalar::f32) fast_ = {m.power2, m.reciprocal, ""};
  for (const graph::DotCodes& c : p.codes)
    for (const ValueId cast : {c.straight, c.transposed})
      if (cast >= 0) fields_.try_emplace(cast, *p.encoded.plan, *p.encoded.group, cast, m, out);
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
  sums_ = b_.alloc(stage_.sums_bytes(), 16, loop::Space::shared);
  for (const graph::DotCodes& c : p_.codes)
    if (c.transposed >= 0) transposed_[c.transposed] = b_.alloc(stage_.codes_bytes(), 16, loop::Space::shared);
  for (Extreme& e : extremes_) {
    e.lane = b_.alloc(4, 16);
    e.waves = b_.alloc(stage_.lanes / m_.wave * 4, 16, loop::Space::shared);
  }
}

void CodesWrite::write(const Lanes& lanes, BlockProduct& product, Expr m0, Expr n0, Expr tile) {
  lanes([&](Expr lane) {
    for (const Extreme& e : extremes_) b_.store(e.lane, e.parts.none(b_, 1), b_.i64(0), 4);
    for (auto& [cast, of] : fields_) {
      if (!of.has_rest()) continue;
      of.begin(b_);
      b_.branch((tile == 0) & (lane == 0), [&, &f = of] { f.write_rest(w_); });
    }
  });
  b_.count(0, t_.tile.n() / stage_.columns, 1, [&](Expr slab) {
    const Expr first = slab * stage_.columns;
    lanes([&](Expr lane) { put_sums(lane, product, first); });
    b_.barrier();
    lanes([&](Expr lane) { encode_vectors(lane, m0, n0 + first); });
    b_.barrier();
    if (!transposed_.empty()) lanes([&](Expr lane) { write_transposed(lane, m0, n0 + first); });
  });
  find_extremes(lanes, tile);
}

void CodesWrite::put_sums(Expr lane, BlockProduct& product, Expr first) {
  product.each_sum(lane, [&](Expr row, Expr column, Expr sums) {
    of_sums_ = b_.type(sums).scalar;
    const Expr inside = column - first;
    b_.branch((0 <= inside) & (inside < stage_.columns),
              [&] { b_.store(sums_, sums, row * stage_.row_bytes() + inside * 4, product.run() * 4); });
  });
}

void CodesWrite::where_inside(Expr m, Expr n, const std::function<void()>& body) {
  const bool whole_m = p_.m.extent % stage_.rows == 0, whole_n = p_.n.extent % t_.tile.n() == 0;
  if (whole_m && whole_n) return body();
  const Expr inside_m = m < p_.m.extent, inside_n = n < p_.n.extent;
  b_.branch(whole_m ? inside_n : whole_n ? inside_m : inside_m & inside_n, body);
}

void CodesWrite::encode_vectors(Expr lane, Expr m0, Expr n0) {
  for (auto& [cast, of] : fields_) of.begin(b_);
  const int64_t across = stage_.columns / CodesStage::kVector;
  b_.count(0, stage_.vectors(), 1, [&](Expr number) {
    const Expr at = lane + number * stage_.lanes;
    const Expr row = at / across, column = at % across * CodesStage::kVector;
    where_inside(m0 + row, n0 + column, [&] { encode_vector(m0 + row, n0 + column, row, column); });
  });
}

// Whether straight and transposed codes are equal: one format, and the tensor's scale from the same source.
bool CodesWrite::are_alike(const graph::DotCodes& c) const {
  if (c.straight < 0 || c.transposed < 0) return false;
  const graph::Graph& g = p_.encoded.plan->graph;
  const graph::Node &x = g[c.straight], &y = g[c.transposed];
  const auto same_supplies = [&] {
    return x.attributes.sources == y.attributes.sources &&
           std::equal(x.operands.begin() + 1, x.operands.end(), y.operands.begin() + 1, y.operands.end());
  };
  return x.type.element == y.type.element && !fields_.at(c.straight).are_many() && same_supplies();
}

Expr CodesWrite::code(ValueId cast, Expr x, Expr m, Expr n, bool transposed) {
  const CodeFields& of = fields_.at(cast);
  return of.code(b_, x, transposed ? of.below(b_, n, m, CodesStage::kVector) : of.along(b_, m, n, CodesStage::kVector));
}

void CodesWrite::encode_vector(Expr m, Expr n, Expr row, Expr column) {
  constexpr int kVector = CodesStage::kVector;
  const Expr sums = b_.load(sums_, {of_sums_, kVector}, row * stage_.row_bytes() + column * 4, 16);
  b_.use_fast_math(fast_);
  const DotWriter::MapValues values = w_.map_values(sums, m, n, {}, kVector);
  b_.use_fast_math({});
  const auto number = [&](ValueId v) {
    const Expr x = values.at(v);
    return b_.type(x).scalar == Scalar::f32 ? x : cast(x, Scalar::f32);
  };
  if (p_.result >= 0) w_.put(values.at(p_.result), m, n, {}, kVector * scalar_bytes(p_.result_scalar));
  for (const graph::DotCodes& c : p_.codes) {
    Expr codes;
    if (c.straight >= 0) {
      codes = code(c.straight, number(c.map), m, n, false);
      b_.store(blobs_.at(c.straight), codes, m * p_.n.extent + n, kVector);
    }
    if (c.transposed < 0) continue;
    if (!are_alike(c)) codes = code(c.transposed, number(c.map), m, n, true);
    for (int i = 0; i < kVector; ++i)
      b_.store(transposed_.at(c.transposed), b_.extract(codes, i), (column + i) * stage_.column_bytes() + row, 1);
  }
  for (const Extreme& e : extremes_) {
    const Expr before = b_.load(e.lane, {Scalar::f32, 1}, b_.i64(0), 4);
    b_.store(e.lane, b_.op(e.parts.op(), b_.fold(e.parts.op(), number(e.of)), before), b_.i64(0), 4);
  }
}

// Writes words of a column's codes, lane by lane: adjacent lanes write adjacent words.
void CodesWrite::write_transposed(Expr lane, Expr m0, Expr n0) {
  constexpr int64_t kWord = CodesStage::kWord;
  const int64_t words = stage_.rows / kWord;
  for (int64_t i = 0; i < stage_.words(); ++i) {
    const Expr word = lane + i * stage_.lanes;
    const Expr column = word / words, row = word % words * kWord;
    where_inside(m0 + row, n0 + column, [&] {
      for (const auto& [cast, stage] : transposed_) {
        const Expr codes = b_.load(stage, {Scalar::u32, 1}, column * stage_.column_bytes() + row, kWord);
        b_.store(blobs_.at(cast), codes, (n0 + column) * p_.m.extent + (m0 + row), kWord);
      }
    });
  }
}

void CodesWrite::find_extremes(const Lanes& lanes, Expr tile) {
  if (extremes_.empty()) return;
  lanes([&](Expr lane) {
    for (const Extreme& e : extremes_) {
      const Expr own = b_.load(e.lane, {Scalar::f32, 1}, b_.i64(0), 4);
      const Expr most = b_.fold_wave(e.parts.op(), own, m_.wave);
      b_.branch(lane % m_.wave == 0, [&] { b_.store(e.waves, most, lane / m_.wave * 4, 4); });
    }
  });
  b_.barrier();
  lanes([&](Expr lane) {
    b_.branch(lane == 0, [&] {
      for (const Extreme& e : extremes_) {
        Expr most;
        for (int64_t wave = 0; wave < stage_.lanes / m_.wave; ++wave) {
          const Expr x = b_.load(e.waves, {Scalar::f32, 1}, b_.i64(wave * 4), 4);
          most = most.exists() ? b_.op(e.parts.op(), x, most) : x;
        }
        e.parts.write(b_, tile, most);
      }
    });
  });
  b_.barrier();  // before the next tile's
}

}  // namespace lumen::synth
