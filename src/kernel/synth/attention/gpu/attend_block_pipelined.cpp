// Pipelined attention by blocks (attend_block_forward.h): panels of the next tile of keys are copied while this one is
// multiplied, and a tile's probabilities stay in registers, as the factor of the sums.
//
// A single group of lanes begins the products of a tile's scores and of the last tile's sums, and computes
// probabilities while they are in flight. Two groups share the streamed panels and take turns: between two barriers the
// first one multiplies a tile and then computes its probabilities, while the second one computes probabilities of the
// previous tile and then multiplies this one. So the matrix instructions are hardly ever idle, though a wave waits for
// its stationary ones to be begun.
//
// Proved by tests/kernel/synth/attention/synth_attend_stream_test.cpp.
#include <cmath>
#include <numbers>

#include "kernel/synth/attention/gpu/attend_block_forward.h"

namespace lumen::synth {

namespace {
constexpr double kMostProbability = 256;  // of a row whose maximum grew since its sums were last rescaled
}  // namespace

BlockProduct::Panel ForwardBlock::panel_at(const BlockProduct& p, BufferId panels_of_lines, Expr key) {
  const Expr number = key / tiles_.streamed % panels();
  return {panels_of_lines, number * p.panel_bytes(tiles_.streamed_side())};
}

// Stage of the pipeline: copies of the keys of one tile, with the values of the previous one.
void ForwardBlock::copy_tile(Tiles& t, Expr lane, Expr key) {
  const Side streamed = tiles_.streamed_side();
  pipeline().begin([&] {
    b_.branch(key < t.to, [&] { copy_lines(lane, laid_[1], key, t.s, streamed, panel_at(t.s, t.keys, key)); });
    const Expr before = key - tiles_.streamed;
    const BlockProduct::Panel to = panel_at(t.o, t.values, before);
    const int64_t lines = t.v->tile().n(), bytes = t.o.panel_bytes(streamed) * lines / tiles_.streamed;
    for (int64_t at = 0; at < tiles_.streamed; at += lines)
      copy_lines(lane, laid_[2], before + at, *t.v, streamed, {to.buffer, to.from + at / lines * bytes});
  });
}

ForwardBlock::RegisterOperand ForwardBlock::probabilities_operand() {
  RegisterOperand out;
  for (const BufferId p : probabilities_) out.push_back(b_.load(p, {tiles_.factor, 8}, b_.i64(0), 16));
  return out;
}

void ForwardBlock::hold(const RegisterOperand& x) {
  for (size_t k = 0; k < x.size(); ++k) b_.store(probabilities_[k], x[k], b_.i64(0), 16);
}

// Keeps the order: probabilities are computed while products are in flight, and their operands must stay. Compilers
// move a wait up to where the next lines could begin, and reuse registers that nothing reads any more. This guard
// prevents both: row_sums, sums of probabilities, are never negative, else the previous factors are reported.
void ForwardBlock::hold_until_here(const RegisterOperand& before) {
  Expr total = number(row_sum_[0]), detail = b_.i64(0);
  for (size_t r = 1; r < row_sum_.size(); ++r) total = total + number(row_sum_[r]);
  for (const Expr x : before)
    for (int l = 0; l < b_.type(x).lanes; l += 2)
      detail = detail + cast(bitcast(b_.extract(x, l), Scalar::u16), Scalar::i64);
  b_.guard(!(total < 0), detail, loop::kGuardFinite);
}

// These only use the group of `lane`.
void ForwardBlock::begin_scores(Tiles& t, Expr lane, Expr key) {
  t.s.begin(lane, {t.queries, b_.i64(0)}, panel_at(t.s, t.keys, key), true);
  b_.commit(loop::Flow::products);
}

void ForwardBlock::begin_sums(Tiles& t, Expr lane, const RegisterOperand& probabilities, Expr key) {
  t.o.begin(lane, probabilities, panel_at(t.o, t.values, key));
  b_.commit(loop::Flow::products);
}

// A tile after the first, by one group: computes its probabilities while the sums of the previous tile are in flight.
void ForwardBlock::multiply_and_find(Tiles& t, Expr lane, Expr any_lane, Expr key, bool whole) {
  const RegisterOperand before = probabilities_operand();
  begin_scores(t, any_lane, key);
  begin_sums(t, any_lane, before, key - tiles_.streamed);
  if (takes_turns()) copy_tile(t, lane, key + tiles_.streamed);
  b_.wait(loop::Flow::products, 1);
  t.s.ready();
  weigh(t.s, lane, key, whole);
  hold_until_here(before);
  b_.wait(loop::Flow::products, 0);
  t.o.ready();
  t.o.ready(before);
  rescale(t.o, lane);
  hold(t.o.hold(t.s));
}

// Whether a lane belongs to the first group: uniform in a wave, which the shuffle shows to compilers, so that they keep
// addresses of panels once per wave.
Expr ForwardBlock::is_first(Expr lane) {
  const Expr group = cast(lane / tiles_.wave(), Scalar::i32);
  return b_.wave_shuffle(group, b_.i64(0)) == 0;
}

// Probabilities of a tile whose scores are ready, with nothing in flight.
void ForwardBlock::find_probabilities(Tiles& t, Expr lane, Expr key, bool whole) {
  weigh(t.s, lane, key, whole);
  rescale(t.o, lane);
  hold(t.o.hold(t.s));
}

// The same by two groups; `whole`: this tile and the previous one, whose probabilities the second group computes. It
// leaves nothing in flight: panels are copied to where the previous products have read.
void ForwardBlock::take_turn(Tiles& t, Expr lane, Expr key, Expr before, bool whole) {
  b_.branch(
      is_first(lane), [&] { multiply_and_find(t, lane, b_.i64(0), key, whole); },
      [&] {
        copy_tile(t, lane, key + tiles_.streamed);
        find_probabilities(t, lane, before, whole);
        const Expr any_lane = b_.i64(tiles_.wave());
        const RegisterOperand probabilities = probabilities_operand();
        begin_scores(t, any_lane, key);
        begin_sums(t, any_lane, probabilities, before);
        b_.wait(loop::Flow::products, 0);
        t.s.ready();
        t.o.ready();
        t.o.ready(probabilities);
      });
}

// The first stage is keys alone, and two are in flight before it is used; the last one's values are used at the end.
void ForwardBlock::stream_copied(Tiles& t) {
  const int64_t streamed = tiles_.streamed;
  lane_loop([&](Expr lane) {
    pipeline().begin(
        [&] { copy_lines(lane, laid_[1], t.from, t.s, tiles_.streamed_side(), panel_at(t.s, t.keys, t.from)); });
    copy_tile(t, lane, t.from + streamed);
  });
  pipeline().wait_and_barrier(1);
  lane_loop([&](Expr lane) {
    begin_scores(t, lane, t.from);
    b_.wait(loop::Flow::products, 0);
    t.s.ready();
    const auto probabilities = [&] {
      weigh(t.s, lane, t.from, false);
      hold(t.o.hold(t.s));
    };
    takes_turns() ? b_.branch(is_first(lane), probabilities) : probabilities();
  });
  const Expr second = t.from + streamed;
  const auto tiles = [&](Expr from, Expr to, bool whole) {
    serial(from, to, streamed, [&](Expr key) {
      const Expr before = takes_turns() ? key - streamed : Expr{};
      const auto use = [&](Expr lane) {
        if (takes_turns()) return take_turn(t, lane, key, before, whole);
        copy_tile(t, lane, key + streamed);  // first: it takes longer than the products begun after it
        multiply_and_find(t, lane, lane, key, whole);
      };
      pipeline().step({.use = use});
    });
  };
  if (shown_) {
    // Tiles of which every row sees every key; where groups take turns, the later one is at the previous tile.
    const Expr clear = min(max(down(t.all_from + (streamed - 1), streamed), t.from), max(t.to, t.from));
    const Expr end = max(min(down(max(t.all_to, b_.i64(0)), streamed), t.to), second);
    const Expr whole = min(takes_turns() ? clear + streamed : max(clear, second), end);
    if (range_.hides_first()) tiles(second, whole, false);
    tiles(whole, end, true);
    tiles(end, t.to, false);
  } else {
    tiles(second, t.to, false);
  }
  pipeline().wait_and_barrier(0);
  lane_loop([&](Expr lane) {
    const Expr last = down(t.to - 1, streamed);
    if (takes_turns()) b_.branch(is_first(lane), [] {}, [&] { find_probabilities(t, lane, last, false); });
    const RegisterOperand probabilities = probabilities_operand();
    begin_sums(t, lane, probabilities, last);
    b_.wait(loop::Flow::products, 0);
    t.o.ready();
    t.o.ready(probabilities);
    return_to_row_max(t.o, lane);
  });
}

// Scores of a tile to probabilities, in place; the factors that rescale sums so far go to scales_. Probabilities are
// relative to the row's base: the maximum of some tiles, which later ones hardly exceed. So sums need no rescaling when
// a maximum grows a little, and no probability is greater than kMostProbability.
void ForwardBlock::weigh(BlockProduct& s, Expr lane, Expr key, bool whole) {
  // Scores may be the sums times a constant.
  const std::optional<double> multiple = whole ? range_.multiple_of(a_.scores) : std::nullopt;
  const double factor = multiple.value_or(1);
  const Expr log2e = b_.real(std::numbers::log2e, kOne);
  begin_fast_math();
  for (int r = 0; r < s.lines(tiles_.stationary_side); ++r) {
    Expr top = score(s, lane, r, key, whole, !multiple);
    if (multiple) top = top * factor;
    top = max(number(row_max_[r]), top);
    const Expr before = number(bases_[r]);
    const Expr grows = std::log(kMostProbability) < top - before;
    const Expr base = select(grows, top, before);
    const Expr scale = b_.power2((before - base) * log2e);
    // Scores far from zero, as masks and biases cause, have their maximum subtracted before they are scaled.
    const bool near = whole && range_.shows_only(a_.scores);
    const Expr low = near ? -(base * log2e) : base;
    const Expr by = b_.real(factor * std::numbers::log2e, kOne);
    const auto probability = [&](Expr x) {
      const int lanes = b_.type(x).lanes;
      const Expr times = b_.splat(by, lanes), away = b_.splat(low, lanes);
      return b_.power2(near ? fma(x, times, away) : (x - away) * times);
    };
    const Expr sum = add_up(s, lane, r, key, whole, scale, probability, [](Expr, Expr p) { return p; });
    set(row_max_[r], top);
    set(bases_[r], base);
    set(row_sum_[r], sum);
    set(scales_[r], scale);
  }
  end_fast_math();
}

// Rescales sums if the base of a row of the lane has changed.
void ForwardBlock::rescale(BlockProduct& o, Expr lane) {
  std::vector<Expr> scales;
  Expr some;
  for (const BufferId s : scales_) {
    scales.push_back(number(s));
    const Expr changed = scales.back() < 1;
    some = !some.exists() ? changed : some | changed;
  }
  b_.branch(some, [&] {
    for (size_t r = 0; r < scales.size(); ++r)
      o.change_line(tiles_.stationary_side, lane, r,
                    [&](Expr, Expr x) { return x * b_.splat(scales[r], b_.type(x).lanes); });
  });
}

// Makes the kept sums relative to the rows' maxima.
void ForwardBlock::return_to_row_max(BlockProduct& o, Expr lane) {
  for (size_t r = 0; r < bases_.size(); ++r) {
    const Expr scale = exp(number(bases_[r]) - number(row_max_[r]));
    set(scales_[r], scale);
    set(row_sum_[r], number(row_sum_[r]) * scale);
  }
  rescale(o, lane);
}

}  // namespace lumen::synth
