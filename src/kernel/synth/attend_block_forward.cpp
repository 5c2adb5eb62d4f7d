// Attention by blocks of lanes: a block owns a tile of query rows that share keys and values and walks tiles of keys.
//
//   for each tile of keys that some row sees:
//     panels of keys, and of values turned;  s = q k^T;  the group's maps, in the lanes' registers;
//     m' = maximum with the rows' lanes;  p = exp(s - m');  l, o *= exp(m - m');  l += p;  p to a panel;  o += p v
//   o / l
//
// Numbers: factors are rounded to the plan's type (p among them), everything else is f32. The sum l is kept lane by
// lane and folded at the end. Where there are few rows, groups of lanes share them (their maxima meet in shared
// memory), and blocks take parts of the keys, joined in order by attend_merge. Proved by
// tests/kernel/synth_attend_block_test.cpp.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>

#include "kernel/synth/attend_block.h"

namespace lumen::synth {

using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr double kMostPower = 256;  // of rows whose maximum grew since sums were last multiplied: exact in short floats
constexpr int64_t kTileRows = 64;  // beyond which rows of other heads are not taken in
constexpr int64_t kEnoughBlocks = 256;
constexpr int64_t kPart = 256;  // keys per part of a split row, at least
constexpr int64_t kMostParts = 64;
constexpr VType kOne{Scalar::f32, 1};

// Axes along which keys and values stay, from the innermost outwards until there are enough rows.
std::vector<int> tile_axes(const Attention& a) {
  std::vector<int> axes;
  int64_t rows = 1;
  for (int d = static_cast<int>(a.extents.size()) - 2; d >= 0 && rows < kTileRows; --d) {
    const auto at = static_cast<size_t>(d);
    if (a.extents[at] == 1 || a.k_access.strides[at] != 0 || a.v_access.strides[at] != 0) continue;
    axes.insert(axes.begin(), d);
    rows *= a.extents[at];
  }
  return axes;
}

class ForwardBlock : AttendBlock {
 public:
  ForwardBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, Attention attention)
      : AttendBlock(plan, target, attention.extents, tile_axes(attention)),
        group_(group),
        a_(std::move(attention)),
        range_(plan, group, a_.extents, a_.score) {
    nothing_.inputs = group.inputs;
  }

  std::optional<Synthesis> run(Scalar products) {
    AttendProblem problem;
    problem.own = rows_;
    problem.walk = keys();
    problem.owned = problem.walked = {a_.depth};
    problem.results = problem.apart = {a_.width};
    problem.heads = heads();
    problem.rows_meet = problem.grows = true;
    if (a_.depth == 1 || a_.width == 1) return std::nullopt;
    const std::vector<LaidOperand> laid = lay(products);
    std::optional<AttendPlan> found;
    if (!laid.empty()) found = plan_attend_stream(target_, products, problem);
    if (!found) found = plan_attend(target_, products, problem);
    if (!found) return std::nullopt;
    tiles_ = *found;
    const int64_t tiles = (rows_ + tiles_.own - 1) / tiles_.own;
    split_keys(heads() * tiles);
    for (const graph::ValueId v : group_.inputs) draft_.value(v, false);
    const int64_t all_rows = product(a_.row_extents());
    Synthesis out;
    out.scratch = declare_results(group_, a_, parts_);
    if (tiles_.streams) prepare(laid, out);
    const std::vector<bool> apart(a_.extents.size() + 1, true);
    using Accesses = std::map<graph::ValueId, Access>;
    dot_ = std::make_unique<Body>(draft_, plan_, nothing_, a_.dot_space(), apart, Accesses{{a_.k, a_.k_access}});
    queries_ = std::make_unique<Body>(draft_, plan_, nothing_, a_.dot_space(), apart, Accesses{{a_.q, a_.q_access}});
    map_ = std::make_unique<Body>(draft_, plan_, group_, a_.extents, apart);
    if (shown_plan_) shown_ = std::make_unique<Body>(draft_, *shown_plan_, group_, a_.extents, apart);
    pick_ = std::make_unique<Body>(draft_, plan_, nothing_, a_.pick_space(), apart, Accesses{{a_.v, a_.v_access}},
                                   Accesses{{a_.written, a_.result_access}});
    std::vector<Body*> bodies{dot_.get(), queries_.get(), map_.get(), pick_.get()};
    if (shown_) bodies.push_back(shown_.get());
    for_blocks(bodies, tiles, parts_, [&](ValueId head, ValueId tile, ValueId part) {
      // Later rows see more under most masks: their blocks begin first.
      const ValueId later = sub(b_.i64(tiles - 1), tile);
      tiles_.streams ? stream(head, later, part) : block(head, later, part);
    });
    double bytes = 0;
    for (const graph::ValueId v : {a_.q, a_.k, a_.v, a_.written})
      bytes += static_cast<double>(graph::byte_size(g_[v].type));
    const double pairs = static_cast<double>(all_rows) * static_cast<double>(keys());
    out.steps.push_back(
        draft_.finish(fmt::format("attend {} depth {} width {} {}{} by blocks {}{}", shape_text(a_.extents), a_.depth,
                                  a_.width, map_->summary(), range_.is_bounded() ? " bounded" : "", tiles_.text(),
                                  parts_ > 1 ? fmt::format(" parts {}", parts_) : ""),
                      2.0 * pairs * static_cast<double>(a_.depth + a_.width), bytes));
    if (parts_ > 1) out.steps.push_back(attend_merge(plan_, group_, a_, target_, parts_));
    return out;
  }

 private:
  // Queries, keys and values as blocks that stream read them; nothing where they cannot.
  std::vector<LaidOperand> lay(Scalar products) const {
    const int64_t unit = stream_unit(target_, products);
    std::vector<LaidOperand> out;
    if (unit == 0) return out;
    const auto add = [&](const Access& from, const std::vector<int>& lines, int64_t width) {
      if (auto o = lay_operand(plan_, group_, from, extents_, lines, width, products, unit)) out.push_back(*o);
    };
    const std::vector<int> key_axis{static_cast<int>(extents_.size()) - 1};
    add(a_.q_access, row_axes_, a_.depth);
    add(a_.k_access, key_axis, a_.depth);
    add(a_.v_access, key_axis, a_.width);
    if (out.size() < 3) out.clear();
    return out;
  }

  void prepare(std::vector<LaidOperand> laid, Synthesis& out) {
    for (LaidOperand& o : laid) {
      if (o.scratch >= 0) {
        o.scratch = static_cast<int>(out.scratch.size());
        out.scratch.push_back(o.elements * scalar_bytes(o.scalar));
        out.steps.push_back(write_laid(plan_, o, extents_, "attend"));
      }
      laid_.push_back(declare(o, !laid_.empty()));
    }
    if (range_.is_bounded()) shown_plan_ = range_.without_mask();
  }

  void split_keys(int64_t blocks) {
    const bool alone = group_.results.size() == 1;
    if (!alone || blocks >= kEnoughBlocks / 2 || keys() < 2 * kPart) return;
    const int64_t wanted = std::min((kEnoughBlocks + blocks - 1) / blocks, kMostParts);
    part_ = round_up(std::max(kPart, (keys() + wanted - 1) / wanted), tiles_.walk);
    parts_ = (keys() + part_ - 1) / part_;
  }

  void block(ValueId head, ValueId tile, ValueId part) {
    const Side own = tiles_.own_side, walked = tiles_.walk_side();
    BlockProduct s(b_, target_, tiles_.product(a_.depth)), o(b_, target_, tiles_.result(a_.width));
    const BufferId queries = panel(s, own), powers = panel(o, own);
    BufferId keys_panel = -1, values = -1;
    if (tiles_.one_by_one) {
      keys_panel = values =
          b_.alloc(std::max(s.panel_bytes(walked), o.panel_bytes(walked)), BlockProduct::kAlign, loop::Space::shared);
    } else {
      keys_panel = panel(s, walked);
      values = panel(o, walked);
    }
    const auto lines = static_cast<size_t>(s.lines(own));
    tops_.clear();
    totals_.clear();
    for (size_t r = 0; r < lines; ++r) {
      tops_.push_back(b_.alloc(4, 4));
      totals_.push_back(b_.alloc(4, 4));
    }
    if (tiles_.across > 1) statistics_ = shared(tiles_.own * tiles_.across * 4);
    first_ = times(tile, tiles_.own);
    lane_loop([&](ValueId lane) {
      fill(lane, {queries_.get(), a_.q, false, a_.depth}, first_, s, own, queries);
      o.clear();
      for (size_t r = 0; r < lines; ++r) {
        b_.store(tops_[r], b_.real(kLowest, kOne), b_.i64(0), 4);
        b_.store(totals_[r], b_.real(0, kOne), b_.i64(0), 4);
      }
    });
    ValueId from = times(part, part_), to = b_.i64(keys());
    if (parts_ > 1) to = least(b_.add(from, b_.i64(part_)), to);
    if (range_.is_bounded()) {
      const Seen seen = seen_keys(range_, *map_, first_, tiles_.own, shared(kBoundsBytes));
      from = most(from, down(seen.first, tiles_.walk));
      to = least(to, seen.end);
    } else {
      b_.barrier();
    }
    const Operand keys_of{dot_.get(), a_.k, true, a_.depth}, values_of{pick_.get(), a_.v, true, a_.width};
    serial(from, to, tiles_.walk, [&](ValueId key) {
      lane_loop([&](ValueId lane) {
        fill(lane, keys_of, key, s, walked, keys_panel);
        if (!tiles_.one_by_one) fill_turned(lane, values_of, key, o, values);
      });
      b_.barrier();
      lane_loop([&](ValueId lane) {
        s.clear();
        multiply(s, lane, queries, keys_panel);
        score(s, lane, key);
        if (tiles_.across == 1) soften(s, o, lane, key, powers);
      });
      b_.barrier();
      if (tiles_.across > 1 || tiles_.one_by_one) {
        lane_loop([&](ValueId lane) {
          if (tiles_.one_by_one) fill_turned(lane, values_of, key, o, values);
          if (tiles_.across > 1) soften(s, o, lane, key, powers);
        });
        b_.barrier();
      }
      lane_loop([&](ValueId lane) { multiply(o, lane, powers, values); });
      b_.barrier();
    });
    finish(o, head, part);
  }

  // As block(), but panels of the next tile are on their way while this one is multiplied, and the results of a tile
  // are added while the scores of the next one become powers, which the lanes hold.
  void stream(ValueId head, ValueId tile, ValueId part) {
    const Side own = tiles_.own_side, walked = tiles_.walk_side();
    const int64_t walk = tiles_.walk;
    BlockProduct s(b_, target_, tiles_.product(a_.depth)), o(b_, target_, tiles_.result(a_.width)),
        v(b_, target_, tiles_.turned(a_.width));  // values' panels
    const int64_t key_bytes = s.panel_bytes(walked), value_bytes = o.panel_bytes(walked), turned = v.tile().n();
    const BufferId queries = panel(s, own),
                   keys_panel = b_.alloc(2 * key_bytes, BlockProduct::kAlign, loop::Space::shared),
                   values = b_.alloc(2 * value_bytes, BlockProduct::kAlign, loop::Space::shared);
    const auto lines = static_cast<size_t>(s.lines(own));
    tops_.clear();
    bases_.clear();
    totals_.clear();
    scales_.clear();
    powers_.clear();
    for (size_t r = 0; r < lines; ++r) {
      tops_.push_back(b_.alloc(4, 4));
      bases_.push_back(b_.alloc(4, 4));
      totals_.push_back(b_.alloc(4, 4));
      scales_.push_back(b_.alloc(4, 4));
    }
    for (int64_t k = 0; k < walk; k += o.tile().row->k) powers_.push_back(b_.alloc(16, 16));
    first_ = times(tile, tiles_.own);
    ValueId from = times(part, part_), to = b_.i64(keys()), all_from = b_.i64(0), all_to = b_.i64(keys());
    if (parts_ > 1) to = least(b_.add(from, b_.i64(part_)), to);
    lane_loop([&](ValueId lane) {
      copy_lines(lane, laid_[0], first_, s, own, {queries, b_.i64(0)});
      o.clear();
      for (size_t r = 0; r < lines; ++r) {
        for (const auto* lowest : {&tops_, &bases_}) b_.store((*lowest)[r], b_.real(kLowest, kOne), b_.i64(0), 4);
        b_.store(totals_[r], b_.real(0, kOne), b_.i64(0), 4);
      }
    });
    if (range_.is_bounded()) {
      const Seen seen = seen_keys(range_, *map_, first_, tiles_.own, shared(kBoundsBytes));
      from = most(from, down(seen.first, walk));
      to = least(to, seen.end);
      all_from = seen.all_first;
      all_to = seen.all_end;
    }
    const auto panel_of = [&](BufferId buffer, ValueId key, int64_t bytes) -> BlockProduct::Panel {
      const ValueId number = b_.op(ScalarOp::rem_, b_.op(ScalarOp::div_, key, b_.i64(walk)), b_.i64(2));
      return {buffer, times(number, bytes)};
    };
    const auto keys_at = [&](ValueId key) { return panel_of(keys_panel, key, key_bytes); };
    const auto values_at = [&](ValueId key) { return panel_of(values, key, value_bytes); };
    // Keys of one tile with values of the one before.
    const auto copy = [&](ValueId lane, ValueId key) {
      b_.branch(less(key, to), [&] { copy_lines(lane, laid_[1], key, s, walked, keys_at(key)); });
      const ValueId before = sub(key, b_.i64(walk));
      for (int64_t at = 0; at < walk; at += turned)
        copy_lines(lane, laid_[2], b_.add(before, b_.i64(at)), v, walked,
                   {values, b_.add(values_at(before).from, b_.i64(at / turned * (value_bytes * turned / walk)))});
      b_.commit(loop::Flow::copies);
    };
    const auto wait = [&](int groups) {
      lane_loop([&](ValueId) { b_.wait(loop::Flow::copies, groups); });
      b_.barrier();
    };
    const auto held = [&] {
      BlockProduct::Held out;
      for (const BufferId p : powers_) out.push_back(b_.load(p, {tiles_.factor, 8}, b_.i64(0), 16));
      return out;
    };
    const auto hold = [&](const BlockProduct::Held& x) {
      for (size_t k = 0; k < x.size(); ++k) b_.store(powers_[k], x[k], b_.i64(0), 16);
    };
    // Powers are to be found while products are under way, and what these read must stay: code generators move a wait
    // up to where the next lines could begin, and take registers that nothing reads any more. Here is a reason for
    // both: totals, sums of powers, are never negative, or the factors before are reported.
    const auto before_wait = [&](const BlockProduct::Held& before) {
      ValueId total = b_.load(totals_[0], kOne, b_.i64(0), 4), detail = b_.i64(0);
      for (size_t r = 1; r < totals_.size(); ++r) total = b_.add(total, b_.load(totals_[r], kOne, b_.i64(0), 4));
      for (const ValueId x : before)
        for (int l = 0; l < b_.type(x).lanes; l += 2)
          detail = b_.add(detail, b_.convert(ScalarOp::cast_, Scalar::i64,
                                             b_.convert(ScalarOp::bitcast_, Scalar::u16, b_.extract(x, l))));
      b_.guard(b_.op(ScalarOp::not_, less(total, b_.real(0, kOne))), detail, loop::kGuardFinite);
    };
    const auto begin_scores = [&](ValueId lane, ValueId key) {
      s.begin(lane, {queries, b_.i64(0)}, keys_at(key), true);
      b_.commit(loop::Flow::products);
    };
    const auto step = [&](ValueId key, bool whole) {
      wait(0);
      lane_loop([&](ValueId lane) {
        copy(lane, b_.add(key, b_.i64(walk)));
        const BlockProduct::Held before = held();
        begin_scores(lane, key);
        o.begin(lane, before, values_at(sub(key, b_.i64(walk))));
        b_.commit(loop::Flow::products);
        b_.wait(loop::Flow::products, 1);
        s.ready();
        weigh(s, lane, key, whole);
        before_wait(before);
        b_.wait(loop::Flow::products, 0);
        o.ready();
        o.ready(before);
        rescale(o, lane);
        hold(o.hold(s));
      });
    };
    // Two groups take turns: one multiplies while the other one finds powers.
    const bool turns = tiles_.down == 2 && !getenv("ATT_NOTURNS");
    const auto is_first = [&](ValueId lane) {
      const ValueId group = b_.convert(ScalarOp::cast_, Scalar::i32, b_.op(ScalarOp::div_, lane, b_.i64(tiles_.wave())));
      return b_.op(ScalarOp::eq_, b_.exchange(group, b_.i64(0)), b_.integer(0, {Scalar::i32, 1}));
    };
    const auto find_powers = [&](ValueId lane, ValueId key, bool whole) {
      weigh(s, lane, key, whole);
      rescale(o, lane);
      hold(o.hold(s));
    };
    const auto turn = [&](ValueId key, bool whole) {
      const ValueId before_key = sub(key, b_.i64(walk));
      wait(0);
      lane_loop([&](ValueId lane) {
        // `first_lane` of the group: a number that does not depend on the lane.
        const auto multiply = [&](int64_t first_lane, const std::function<void()>& meanwhile, bool early = false) {
          const BlockProduct::Held before = held();
          begin_scores(b_.i64(first_lane), key);
          o.begin(b_.i64(first_lane), before, values_at(before_key));
          b_.commit(loop::Flow::products);
          meanwhile();
          if (early) {
            b_.wait(loop::Flow::products, 1);
            s.ready();
            weigh(s, lane, key, whole);
            before_wait(before);
          }
          b_.wait(loop::Flow::products, 0);
          if (!early) s.ready();
          o.ready();
          o.ready(before);
        };
        const auto copy_next = [&] { copy(lane, b_.add(key, b_.i64(walk))); };
        b_.branch(
            is_first(lane),
            [&] {
              if (getenv("ATT_G")) {
                multiply(0, copy_next, true);
                rescale(o, lane);
                hold(o.hold(s));
              } else {
                multiply(0, copy_next);
                find_powers(lane, key, whole);
              }
            },
            [&] {
              if (!getenv("ATT_C")) copy_next();
              find_powers(lane, before_key, whole);
              if (getenv("ATT_C")) copy_next();
              multiply(tiles_.wave(), [] {});
            });
      });
    };
    b_.branch(less(from, to), [&] {
      lane_loop([&](ValueId lane) {
        copy_lines(lane, laid_[1], from, s, walked, keys_at(from));
        b_.commit(loop::Flow::copies);
        copy(lane, b_.add(from, b_.i64(walk)));
      });
      wait(1);
      lane_loop([&](ValueId lane) {
        begin_scores(lane, from);
        b_.wait(loop::Flow::products, 0);
        s.ready();
        const auto begin = [&] {
          weigh(s, lane, from, false);
          hold(o.hold(s));
        };
        turns ? b_.branch(is_first(lane), begin) : begin();
      });
      const ValueId second = b_.add(from, b_.i64(walk));
      const auto go_on = [&](ValueId key, bool whole) { turns ? turn(key, whole) : step(key, whole); };
      if (shown_) {
        // Tiles of which every row sees every key; where groups take turns, the one behind is at the tile before.
        const ValueId clear = least(most(down(b_.add(all_from, b_.i64(walk - 1)), walk), from), most(to, from));
        const ValueId end = most(least(down(most(all_to, b_.i64(0)), walk), to), second);
        const ValueId whole = least(turns ? b_.add(clear, b_.i64(walk)) : most(clear, second), end);
        if (range_.hides_first()) serial(second, whole, walk, [&](ValueId key) { go_on(key, false); });
        serial(whole, end, walk, [&](ValueId key) { go_on(key, true); });
        serial(end, to, walk, [&](ValueId key) { go_on(key, false); });
      } else {
        serial(second, to, walk, [&](ValueId key) { go_on(key, false); });
      }
      wait(0);
      lane_loop([&](ValueId lane) {
        const ValueId last = down(sub(to, b_.i64(1)), walk);
        if (turns) b_.branch(is_first(lane), [] {}, [&] { find_powers(lane, last, false); });
        const BlockProduct::Held powers = held();
        o.begin(lane, powers, values_at(last));
        b_.commit(loop::Flow::products);
        b_.wait(loop::Flow::products, 0);
        o.ready();
        o.ready(powers);
        return_to_tops(o, lane);
      });
    });
    finish(o, head, part);
  }

  // Scores of a tile to powers, in place; what sums so far are to be multiplied by goes to scales_. Powers are those of
  // the distance to the row's base: a maximum of some tiles, that later ones hardly exceed. So sums need not be
  // multiplied where a maximum grows a little, and no power is greater than kMostPower.
  void weigh(BlockProduct& s, ValueId lane, ValueId key, bool whole) {
    const Side own = tiles_.own_side;
    Body& map = whole ? *shown_ : *map_;
    const std::optional<double> multiple =
        whole && !getenv("ATT_NOMUL") ? range_.multiple_of(a_.scores) : std::nullopt;  // scores are the sums times that
    const ValueId log2e = b_.real(std::numbers::log2e, kOne);
    begin_rough();
    for (int r = 0; r < s.lines(own); ++r) {
      const auto at = static_cast<size_t>(r);
      const int opened = open_line(map, false, b_.add(first_, s.line(own, lane, r)));
      ValueId top = -1;
      s.change_line(own, lane, r, [&](ValueId along, ValueId x) -> ValueId {
        if (multiple) {
          top = top < 0 ? x : most(top, x);
          return -1;
        }
        const ValueId y = at_walked(
            map, true, b_.add(key, along), {x}, kLowest,
            [&](Body& scores, const auto& sums) {
              scores.set(a_.scores, sums[0]);
              return std::vector<ValueId>{as_f32(scores.value(a_.score))};
            },
            whole)[0];
        top = top < 0 ? y : most(top, y);
        return y;
      });
      close(map, opened);
      top = s.fold_line(own, ScalarOp::max_, b_.fold(ScalarOp::max_, top));
      if (multiple) top = b_.mul(top, b_.real(*multiple, kOne));
      top = most(b_.load(tops_[at], kOne, b_.i64(0), 4), top);
      const ValueId before = b_.load(bases_[at], kOne, b_.i64(0), 4);
      const ValueId grows = less(b_.real(getenv("ATT_RESC") ? 0.0 : std::log(kMostPower), kOne), sub(top, before));
      const ValueId base = b_.op(ScalarOp::select_, grows, top, before);
      const ValueId scale = b_.power2(b_.mul(sub(before, base), log2e));
      // Scores far from zero, which masks and biases make, must meet their maximum before they are scaled.
      const bool near = whole && range_.shows_only(a_.scores);
      const ValueId low = near ? b_.op(ScalarOp::neg_, b_.mul(base, log2e)) : base;
      const ValueId by = multiple ? b_.real(*multiple * std::numbers::log2e, kOne) : log2e;
      ValueId total = -1;
      s.change_line(own, lane, r, [&](ValueId along, ValueId x) {
        const int lanes = b_.type(x).lanes;
        const ValueId factor = b_.splat(by, lanes), away = b_.splat(low, lanes);
        ValueId p = b_.power2(near ? b_.op(ScalarOp::fma_, x, factor, away) : b_.mul(sub(x, away), factor));
        const ValueId there = whole ? -1 : exists(true, b_.add(key, along), lanes);
        if (there >= 0) p = b_.op(ScalarOp::select_, there, p, b_.real(0, b_.type(p)));
        total = total < 0 ? p : b_.add(total, p);
        return p;
      });
      const ValueId sum =
          b_.op(ScalarOp::fma_, b_.load(totals_[at], kOne, b_.i64(0), 4), scale, b_.fold(ScalarOp::add_, total));
      b_.store(tops_[at], top, b_.i64(0), 4);
      b_.store(bases_[at], base, b_.i64(0), 4);
      b_.store(totals_[at], sum, b_.i64(0), 4);
      b_.store(scales_[at], scale, b_.i64(0), 4);
    }
    end_rough();
  }

  // Where a row of the lane has another base than before.
  void rescale(BlockProduct& o, ValueId lane) {
    std::vector<ValueId> scales;
    ValueId some = -1;
    for (const BufferId s : scales_) {
      scales.push_back(b_.load(s, kOne, b_.i64(0), 4));
      const ValueId changed = less(scales.back(), b_.real(1, kOne));
      some = some < 0 ? changed : b_.op(ScalarOp::or_, some, changed);
    }
    const auto all = [&] {
      for (size_t r = 0; r < scales.size(); ++r)
        o.change_line(tiles_.own_side, lane, static_cast<int>(r),
                      [&](ValueId, ValueId x) { return b_.mul(x, b_.splat(scales[r], b_.type(x).lanes)); });
    };
    getenv("ATT_RESC") ? all() : b_.branch(some, all);
  }

  // What is kept is said of the rows' maxima.
  void return_to_tops(BlockProduct& o, ValueId lane) {
    for (size_t r = 0; r < bases_.size(); ++r) {
      const auto of = [&](BufferId x) { return b_.load(x, kOne, b_.i64(0), 4); };
      const ValueId scale = b_.op(ScalarOp::exp_, sub(of(bases_[r]), of(tops_[r])));
      b_.store(scales_[r], scale, b_.i64(0), 4);
      b_.store(totals_[r], b_.mul(of(totals_[r]), scale), b_.i64(0), 4);
    }
    rescale(o, lane);
  }

  ValueId statistic(ValueId across, ValueId line) { return bytes(b_.add(times(across, tiles_.own), line), 1); }

  // Sums to scores, in place, and the rows' maxima: kept where a group has whole rows, else for the others to see.
  void score(BlockProduct& s, ValueId lane, ValueId key) {
    const Side own = tiles_.own_side;
    for (int r = 0; r < s.lines(own); ++r) {
      const ValueId line = s.line(own, lane, r);
      const int opened = open_line(*map_, false, b_.add(first_, line));
      ValueId top = -1;
      s.change_line(own, lane, r, [&](ValueId along, ValueId x) {
        const ValueId y = at_walked(*map_, true, b_.add(key, along), {x}, kLowest, [&](Body& map, const auto& sums) {
          map.set(a_.scores, sums[0]);
          return std::vector<ValueId>{as_f32(map.value(a_.score))};
        })[0];
        top = top < 0 ? y : most(top, y);
        return y;
      });
      close(*map_, opened);
      top = s.fold_line(own, ScalarOp::max_, b_.fold(ScalarOp::max_, top));
      if (tiles_.across == 1)
        found_.push_back(top);
      else
        b_.branch(s.leads_line(own, lane),
                  [&] { b_.store(statistics_, top, statistic(s.group_across(own, lane), line), 4); });
    }
  }

  // Scores to powers, into their panel.
  void soften(BlockProduct& s, BlockProduct& o, ValueId lane, ValueId key, BufferId powers) {
    const Side own = tiles_.own_side;
    for (int r = 0; r < s.lines(own); ++r) {
      const auto at = static_cast<size_t>(r);
      const ValueId line = s.line(own, lane, r), before = b_.load(tops_[at], kOne, b_.i64(0), 4);
      ValueId top = before;
      if (tiles_.across == 1) {
        top = most(top, found_[at]);
      } else {
        for (int g = 0; g < tiles_.across; ++g)
          top = most(top, b_.load(statistics_, kOne, statistic(b_.i64(g), line), 4));
      }
      const ValueId scale = b_.op(ScalarOp::exp_, sub(before, top));
      ValueId total = -1;
      s.change_line(own, lane, r, [&](ValueId along, ValueId x) {
        const int lanes = b_.type(x).lanes;
        ValueId p = b_.op(ScalarOp::exp_, sub(x, b_.splat(top, lanes)));
        const ValueId there = exists(true, b_.add(key, along), lanes);
        if (there >= 0) p = b_.op(ScalarOp::select_, there, p, b_.real(0, b_.type(p)));
        put(o, line, along, p, powers);
        total = total < 0 ? p : b_.add(total, p);
        return -1;
      });
      const ValueId sum =
          b_.op(ScalarOp::fma_, b_.load(totals_[at], kOne, b_.i64(0), 4), scale, b_.fold(ScalarOp::add_, total));
      b_.store(tops_[at], top, b_.i64(0), 4);
      b_.store(totals_[at], sum, b_.i64(0), 4);
      o.change_line(own, lane, r, [&](ValueId, ValueId x) { return b_.mul(x, b_.splat(scale, b_.type(x).lanes)); });
    }
    found_.clear();
  }

  // Sums of rows are joined, then written.
  void finish(BlockProduct& o, ValueId head, ValueId part) {
    const Side own = tiles_.own_side;
    const auto each_line = [&](const std::function<void(size_t)>& body) {
      for (size_t r = 0; r < totals_.size(); ++r) body(r);
    };
    const auto join = [&](ValueId lane) {
      each_line([&](size_t r) {
        const ValueId total = o.fold_line(own, ScalarOp::add_, b_.load(totals_[r], kOne, b_.i64(0), 4));
        b_.store(totals_[r], total, b_.i64(0), 4);
        if (tiles_.across == 1) return;
        const ValueId line = o.line(own, lane, static_cast<int>(r));
        b_.branch(o.leads_line(own, lane),
                  [&] { b_.store(statistics_, total, statistic(o.group_across(own, lane), line), 4); });
      });
    };
    lane_loop(join);
    if (tiles_.across > 1) b_.barrier();
    lane_loop([&](ValueId lane) {
      std::vector<ValueId> totals;
      each_line([&](size_t r) {
        totals.push_back(b_.load(totals_[r], kOne, b_.i64(0), 4));
        if (tiles_.across == 1) return;
        const ValueId line = o.line(own, lane, static_cast<int>(r));
        for (int g = 0; g < tiles_.across; ++g) {
          const ValueId x = b_.load(statistics_, kOne, statistic(b_.i64(g), line), 4);
          totals[r] = g == 0 ? x : b_.add(totals[r], x);
        }
      });
      if (parts_ > 1) return keep(o, lane, head, part, totals);
      for (const graph::ValueId result : group_.results)
        if (result != a_.written)
          each_line([&](size_t r) {
            once(o, lane, r, [&](ValueId line) {
              const int opened = open_line(*map_, false, line);
              map_->open_scalar();
              map_->store(result, result == a_.top ? b_.load(tops_[r], kOne, b_.i64(0), 4) : totals[r]);
              map_->close();
              close(*map_, opened);
            });
          });
      if (tiles_.streams)  // one division a row: the sums are of rounded factors
        for (ValueId& total : totals) total = b_.op(ScalarOp::div_, b_.real(1, kOne), total);
      write(o, lane, *pick_, a_.written, false, first_, a_.width, [&](int r, ValueId x) {
        return b_.op(tiles_.streams ? ScalarOp::mul_ : ScalarOp::div_, x,
                     b_.splat(totals[static_cast<size_t>(r)], b_.type(x).lanes));
      });
    });
  }

  // By one of the lanes that hold parts of a row, where the row exists.
  void once(BlockProduct& o, ValueId lane, size_t r, const std::function<void(ValueId line)>& body) {
    const Side own = tiles_.own_side;
    const ValueId line = b_.add(first_, o.line(own, lane, static_cast<int>(r)));
    ValueId mine = b_.op(ScalarOp::and_, o.leads_line(own, lane), less(line, b_.i64(rows_)));
    if (tiles_.across > 1)
      mine = b_.op(ScalarOp::and_, mine, b_.op(ScalarOp::eq_, o.group_across(own, lane), b_.i64(0)));
    b_.branch(mine, [&] { body(line); });
  }

  // A part's rows for attend_merge.
  void keep(BlockProduct& o, ValueId lane, ValueId head, ValueId part, const std::vector<ValueId>& totals) {
    const Side own = tiles_.own_side;
    const std::vector<int64_t> heads = head_extents(), dense = dense_strides_of(a_.row_extents());
    ValueId base = times(part, product(a_.row_extents()));
    const std::vector<ValueId> of_head = digits(b_, head, heads);
    for (size_t d = 0; d < heads.size(); ++d) base = b_.add(base, times(of_head[d], dense[d]));
    const auto number_of = [&](ValueId line) {
      ValueId number = base;
      const std::vector<ValueId> at = digits(b_, line, row_extents_);
      for (size_t k = 0; k < at.size(); ++k)
        number = b_.add(number, times(at[k], dense[static_cast<size_t>(row_axes_[k])]));
      return number;
    };
    for (size_t r = 0; r < totals.size(); ++r) {
      once(o, lane, r,
           [&](ValueId line) { keep_extremes(number_of(line), b_.load(tops_[r], kOne, b_.i64(0), 4), totals[r]); });
      const ValueId line = b_.add(first_, o.line(own, lane, static_cast<int>(r)));
      b_.branch(less(line, b_.i64(rows_)), [&] {
        const ValueId number = number_of(line);
        o.change_line(own, lane, static_cast<int>(r), [&](ValueId along, ValueId x) {
          const ValueId count = a_.width % b_.type(x).lanes == 0 ? -1 : sub(b_.i64(a_.width), along);
          b_.branch(less(along, b_.i64(a_.width)),
                    [&] { b_.store(partial_, x, bytes(b_.add(times(number, a_.width), along), 1), 4, count); });
          return -1;
        });
      });
    }
  }

  const graph::Group& group_;
  graph::Group nothing_;  // the same memory, no nodes: for bodies that only read what they are given
  Attention a_;
  KeyRange range_;
  std::unique_ptr<Body> dot_, queries_, map_,
      pick_;  // over (rows, keys, depth) twice, (rows, keys), (rows, keys, width)
  int64_t parts_ = 1, part_ = 0;
  BufferId statistics_ = -1;
  std::vector<BufferId> tops_, bases_, totals_, scales_;  // of a lane's rows
  std::vector<BufferId> powers_;                  // of the tile before, held
  std::vector<Laid> laid_;                        // queries, keys, values
  std::optional<graph::Plan> shown_plan_;         // without the mask
  std::unique_ptr<Body> shown_;                   // map_ of that
  std::vector<ValueId> found_;                    // maxima of the tile of keys at hand, by row
  ValueId first_ = -1;
};

}  // namespace

std::optional<Synthesis> attend_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                          const machine::Machine& target, Scalar products) {
  if (target.wave <= 1) return std::nullopt;
  return ForwardBlock(plan, group, target, Attention(plan, group)).run(products);
}

}  // namespace lumen::synth
