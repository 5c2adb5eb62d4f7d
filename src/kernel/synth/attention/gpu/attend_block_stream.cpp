// Attention by blocks that stream (attend_block_forward.h): panels of the next tile of keys are copied while this one
// is multiplied, and the probabilities of a tile stay with the lanes, which hold them as the factor of the sums.
//
// One group of lanes alone begins the products of a tile's scores and of the last tile's sums, and finds probabilities
// while they are under way. Two groups share what is walked and take turns: between two barriers the first one
// multiplies a tile and then finds its probabilities, while the second one finds probabilities of the tile before and
// then multiplies this one. So the instructions that multiply are hardly ever without work, though a wave waits for its
// own ones to be begun.
//
// Proved by tests/kernel/synth/attention/synth_attend_stream_test.cpp.
#include <cmath>
#include <limits>
#include <numbers>

#include "kernel/synth/attention/gpu/attend_block_forward.h"

namespace lumen::synth {

using loop::BufferId;
using loop::Expr;

namespace {
constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr double kMostProbability = 256;  // of a row whose maximum grew since its sums were last multiplied
constexpr int64_t kPanels = 2;            // of keys, of values
}  // namespace

void ForwardBlock::stream(Expr head, Expr tile, Expr part) {
  const Side own = tiles_.own_side, walked = tiles_.walk_side();
  Stream t{{b_, target_, tiles_.product(a_.depth)},
           {b_, target_, tiles_.result(a_.width)},
           {b_, target_, tiles_.transposed(a_.width)}};
  t.queries = panel(t.s, own);
  t.keys = b_.alloc(kPanels * t.s.panel_bytes(walked), BlockProduct::kAlign, loop::Space::shared);
  t.values = b_.alloc(kPanels * t.o.panel_bytes(walked), BlockProduct::kAlign, loop::Space::shared);
  for (auto* of_rows : {&row_max_, &bases_, &row_sum_, &scales_}) {
    of_rows->clear();
    for (int r = 0; r < t.s.lines(own); ++r) of_rows->push_back(b_.alloc(4, 4));
  }
  probabilities_.clear();
  for (int64_t k = 0; k < tiles_.walk; k += t.o.tile().row->k) probabilities_.push_back(b_.alloc(16, 16));
  first_ = times(tile, tiles_.own);
  begin_block(t, part);
  b_.branch(t.from < t.to, [&] { walk(t); });
  finish(t.o, head, part);
}

// Begins to copy queries, and finds the keys to walk.
void ForwardBlock::begin_block(Stream& t, Expr part) {
  t.from = times(part, part_);
  t.to = t.all_to = b_.i64(keys());
  t.all_from = b_.i64(0);
  if (parts_ > 1) t.to = least(t.from + part_, t.to);
  lane_loop([&](Expr lane) {
    copy_lines(lane, laid_[0], first_, t.s, tiles_.own_side, {t.queries, b_.i64(0)});
    t.o.clear();
    for (size_t r = 0; r < row_max_.size(); ++r) {
      for (const auto* lowest : {&row_max_, &bases_}) b_.store((*lowest)[r], b_.real(kLowest, kOne), b_.i64(0), 4);
      b_.store(row_sum_[r], b_.real(0, kOne), b_.i64(0), 4);
    }
  });
  if (!range_.is_bounded()) return;
  const Seen seen = seen_keys(range_, *map_, first_, tiles_.own, shared(kBoundsBytes));
  t.from = most(t.from, down(seen.first, tiles_.walk));
  t.to = least(t.to, seen.end);
  t.all_from = seen.all_first;
  t.all_to = seen.all_end;
}

BlockProduct::Panel ForwardBlock::keys_at(Stream& t, Expr key) {
  const Expr number = key / tiles_.walk % kPanels;
  return {t.keys, times(number, t.s.panel_bytes(tiles_.walk_side()))};
}

BlockProduct::Panel ForwardBlock::values_at(Stream& t, Expr key) {
  const Expr number = key / tiles_.walk % kPanels;
  return {t.values, times(number, t.o.panel_bytes(tiles_.walk_side()))};
}

// Begins copies of the keys of one tile, with the values of the one before.
void ForwardBlock::copy_tile(Stream& t, Expr lane, Expr key) {
  const Side walked = tiles_.walk_side();
  b_.branch(key < t.to, [&] { copy_lines(lane, laid_[1], key, t.s, walked, keys_at(t, key)); });
  const Expr before = key - tiles_.walk;
  const BlockProduct::Panel to = values_at(t, before);
  const int64_t lines = t.v.tile().n(), bytes = t.o.panel_bytes(walked) * lines / tiles_.walk;
  for (int64_t at = 0; at < tiles_.walk; at += lines)
    copy_lines(lane, laid_[2], before + at, t.v, walked, {to.buffer, to.from + at / lines * bytes});
  b_.commit(loop::Flow::copies);
}

void ForwardBlock::wait_for_copies(int groups) {
  lane_loop([&](Expr) { b_.wait(loop::Flow::copies, groups); });
  b_.barrier();
}

ForwardBlock::Held ForwardBlock::held() {
  Held out;
  for (const BufferId p : probabilities_) out.push_back(b_.load(p, {tiles_.factor, 8}, b_.i64(0), 16));
  return out;
}

void ForwardBlock::hold(const Held& x) {
  for (size_t k = 0; k < x.size(); ++k) b_.store(probabilities_[k], x[k], b_.i64(0), 16);
}

// Probabilities are to be found while products are under way, and what these read must stay: code generators move a
// wait up to where the next lines could begin, and take registers that nothing reads any more. Here is a reason for
// both: row_sums, sums of probabilities, are never negative, or the factors before are reported.
void ForwardBlock::hold_until_here(const Held& before) {
  Expr total = b_.load(row_sum_[0], kOne, b_.i64(0), 4), detail = b_.i64(0);
  for (size_t r = 1; r < row_sum_.size(); ++r) total = total + b_.load(row_sum_[r], kOne, b_.i64(0), 4);
  for (const Expr x : before)
    for (int l = 0; l < b_.type(x).lanes; l += 2)
      detail = detail + cast(bitcast(b_.extract(x, l), Scalar::u16), Scalar::i64);
  b_.guard(!(total < 0), detail, loop::kGuardFinite);
}

// These only read which group `lane` belongs to.
void ForwardBlock::begin_scores(Stream& t, Expr lane, Expr key) {
  t.s.begin(lane, {t.queries, b_.i64(0)}, keys_at(t, key), true);
  b_.commit(loop::Flow::products);
}

void ForwardBlock::begin_sums(Stream& t, Expr lane, const Held& probabilities, Expr key) {
  t.o.begin(lane, probabilities, values_at(t, key));
  b_.commit(loop::Flow::products);
}

// A tile behind the first one by one group: finds its probabilities while the sums of the tile before are under way.
void ForwardBlock::multiply_and_find(Stream& t, Expr lane, Expr any_lane, Expr key, bool whole) {
  const Held before = held();
  begin_scores(t, any_lane, key);
  begin_sums(t, any_lane, before, key - tiles_.walk);
  if (takes_turns()) copy_tile(t, lane, key + tiles_.walk);
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

void ForwardBlock::step(Stream& t, Expr key, bool whole) {
  wait_for_copies(0);
  lane_loop([&](Expr lane) {
    copy_tile(t, lane, key + tiles_.walk);  // first: it takes longer than what is begun behind it
    multiply_and_find(t, lane, lane, key, whole);
  });
}

// Whether a lane belongs to the first group: the same for all lanes of a wave, which code generators see by the
// exchange, so that they keep addresses of panels once for a wave.
Expr ForwardBlock::is_first(Expr lane) {
  const Expr group = cast(lane / tiles_.wave(), Scalar::i32);
  return b_.exchange(group, b_.i64(0)) == 0;
}

// Probabilities of a tile whose scores are ready, where nothing is under way.
void ForwardBlock::find_probabilities(Stream& t, Expr lane, Expr key, bool whole) {
  weigh(t.s, lane, key, whole);
  rescale(t.o, lane);
  hold(t.o.hold(t.s));
}

// The same by two groups; `whole`: this tile and the one before, whose probabilities the second group finds. It leaves
// nothing under way: panels are copied to where the products before have read.
void ForwardBlock::turn(Stream& t, Expr key, bool whole) {
  const Expr before = key - tiles_.walk;
  wait_for_copies(0);
  lane_loop([&](Expr lane) {
    b_.branch(
        is_first(lane), [&] { multiply_and_find(t, lane, b_.i64(0), key, whole); },
        [&] {
          copy_tile(t, lane, key + tiles_.walk);
          find_probabilities(t, lane, before, whole);
          const Expr any_lane = b_.i64(tiles_.wave());
          const Held probabilities = held();
          begin_scores(t, any_lane, key);
          begin_sums(t, any_lane, probabilities, before);
          b_.wait(loop::Flow::products, 0);
          t.s.ready();
          t.o.ready();
          t.o.ready(probabilities);
        });
  });
}

void ForwardBlock::walk(Stream& t) {
  const int64_t walk = tiles_.walk;
  lane_loop([&](Expr lane) {
    copy_lines(lane, laid_[1], t.from, t.s, tiles_.walk_side(), keys_at(t, t.from));
    b_.commit(loop::Flow::copies);
    copy_tile(t, lane, t.from + walk);
  });
  wait_for_copies(1);
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
  const Expr second = t.from + walk;
  const auto tiles = [&](Expr from, Expr to, bool whole) {
    serial(from, to, walk, [&](Expr key) { takes_turns() ? turn(t, key, whole) : step(t, key, whole); });
  };
  if (shown_) {
    // Tiles of which every row sees every key; where groups take turns, the one behind is at the tile before.
    const Expr clear = least(most(down(t.all_from + (walk - 1), walk), t.from), most(t.to, t.from));
    const Expr end = most(least(down(most(t.all_to, b_.i64(0)), walk), t.to), second);
    const Expr whole = least(takes_turns() ? clear + walk : most(clear, second), end);
    if (range_.hides_first()) tiles(second, whole, false);
    tiles(whole, end, true);
    tiles(end, t.to, false);
  } else {
    tiles(second, t.to, false);
  }
  wait_for_copies(0);
  lane_loop([&](Expr lane) {
    const Expr last = down(t.to - 1, walk);
    if (takes_turns()) b_.branch(is_first(lane), [] {}, [&] { find_probabilities(t, lane, last, false); });
    const Held probabilities = held();
    begin_sums(t, lane, probabilities, last);
    b_.wait(loop::Flow::products, 0);
    t.o.ready();
    t.o.ready(probabilities);
    return_to_row_max(t.o, lane);
  });
}

// Scores of a tile to probabilities, in place; what sums so far are to be multiplied by goes to scales_. Probabilities
// are those of the distance to the row's base: a maximum of some tiles, that later ones hardly exceed. So sums need not
// be multiplied where a maximum grows a little, and no probability is greater than kMostProbability.
void ForwardBlock::weigh(BlockProduct& s, Expr lane, Expr key, bool whole) {
  const Side own = tiles_.own_side;
  Body& map = whole ? *shown_ : *map_;
  const std::optional<double> multiple =
      whole ? range_.multiple_of(a_.scores) : std::nullopt;  // scores are the sums times that
  const Expr log2e = b_.real(std::numbers::log2e, kOne);
  begin_fast_math();
  for (int r = 0; r < s.lines(own); ++r) {
    const auto at = static_cast<size_t>(r);
    const int opened = open_line(map, false, first_ + s.line(own, lane, r));
    Expr top;
    s.change_line(own, lane, r, [&](Expr along, Expr x) -> Expr {
      if (multiple) {
        top = !top.exists() ? x : most(top, x);
        return {};
      }
      const Expr y = at_walked(
          map, true, key + along, {x}, kLowest,
          [&](Body& scores, const auto& sums) {
            scores.set(a_.scores, sums[0]);
            return std::vector<Expr>{as_f32(scores.value(a_.score))};
          },
          whole)[0];
      top = !top.exists() ? y : most(top, y);
      return y;
    });
    close(map, opened);
    top = s.fold_line(own, ScalarOp::max_, b_.fold(ScalarOp::max_, top));
    if (multiple) top = top * *multiple;
    top = most(b_.load(row_max_[at], kOne, b_.i64(0), 4), top);
    const Expr before = b_.load(bases_[at], kOne, b_.i64(0), 4);
    const Expr grows = std::log(kMostProbability) < top - before;
    const Expr base = select(grows, top, before);
    const Expr scale = b_.power2((before - base) * log2e);
    // Scores far from zero, which masks and biases make, must meet their maximum before they are scaled.
    const bool near = whole && range_.shows_only(a_.scores);
    const Expr low = near ? -(base * log2e) : base;
    const Expr by = multiple ? b_.real(*multiple * std::numbers::log2e, kOne) : log2e;
    Expr total;
    s.change_line(own, lane, r, [&](Expr along, Expr x) {
      const int lanes = b_.type(x).lanes;
      const Expr factor = b_.splat(by, lanes), away = b_.splat(low, lanes);
      Expr p = b_.power2(near ? fma(x, factor, away) : (x - away) * factor);
      const Expr there = whole ? Expr{} : exists(true, key + along, lanes);
      if (there.exists()) p = select(there, p, b_.real(0, b_.type(p)));
      total = !total.exists() ? p : total + p;
      return p;
    });
    const Expr sum = fma(b_.load(row_sum_[at], kOne, b_.i64(0), 4), scale, b_.fold(ScalarOp::add_, total));
    b_.store(row_max_[at], top, b_.i64(0), 4);
    b_.store(bases_[at], base, b_.i64(0), 4);
    b_.store(row_sum_[at], sum, b_.i64(0), 4);
    b_.store(scales_[at], scale, b_.i64(0), 4);
  }
  end_fast_math();
}

// Where a row of the lane has another base than before.
void ForwardBlock::rescale(BlockProduct& o, Expr lane) {
  std::vector<Expr> scales;
  Expr some;
  for (const BufferId s : scales_) {
    scales.push_back(b_.load(s, kOne, b_.i64(0), 4));
    const Expr changed = scales.back() < 1;
    some = !some.exists() ? changed : some | changed;
  }
  b_.branch(some, [&] {
    for (size_t r = 0; r < scales.size(); ++r)
      o.change_line(tiles_.own_side, lane, static_cast<int>(r),
                    [&](Expr, Expr x) { return x * b_.splat(scales[r], b_.type(x).lanes); });
  });
}

// What is kept is said of the rows' maxima.
void ForwardBlock::return_to_row_max(BlockProduct& o, Expr lane) {
  for (size_t r = 0; r < bases_.size(); ++r) {
    const auto of = [&](BufferId x) { return b_.load(x, kOne, b_.i64(0), 4); };
    const Expr scale = exp(of(bases_[r]) - of(row_max_[r]));
    b_.store(scales_[r], scale, b_.i64(0), 4);
    b_.store(row_sum_[r], of(row_sum_[r]) * scale, b_.i64(0), 4);
  }
  rescale(o, lane);
}

}  // namespace lumen::synth
