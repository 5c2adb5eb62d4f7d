// Attention by blocks of lanes: a block owns a tile of query rows that share keys and values and walks tiles of keys.
//
//   for each tile of keys that some row sees:
//     panels of keys, and of values transposed;  s = q k^T;  the group's maps, in the lanes' registers;
//     m' = maximum with the rows' lanes;  p = exp(s - m');  l, o *= exp(m - m');  l += p;  p to a panel;  o += p v
//   o / l
//
// Numbers: factors are rounded to the plan's type (p among them), everything else is f32. The sum l is kept lane by
// lane and folded at the end. Where there are few rows, groups of lanes share them (their maxima meet in shared
// memory), and blocks take parts of the keys, joined in order by attend_merge. Proved by
// tests/kernel/synth/attention/synth_attend_block_test.cpp.
#include "kernel/synth/attention/gpu/attend_block_forward.h"

#include <algorithm>
#include <limits>

namespace lumen::synth {

using loop::BufferId;
using loop::Expr;
using loop::VType;

namespace {

constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr int64_t kTileRows = 64;  // beyond which rows of other heads are not taken in
constexpr int64_t kEnoughBlocks = 256;
constexpr int64_t kPart = 256;  // keys per part of a split row, at least
constexpr int64_t kMostParts = 64;

// Axes along which keys and values stay, from the innermost outwards until there are enough rows.
std::vector<int> tile_axes(const Attention& a) {
  std::vector<int> axes;
  int64_t rows = 1;
  for (int d = static_cast<int>(a.extents.size()) - 2; d >= 0 && rows < kTileRows; --d) {
    const auto at = static_cast<size_t>(d);
    if (a.extents[at] == 1 || !a.shares_keys(at)) continue;
    axes.insert(axes.begin(), d);
    rows *= a.extents[at];
  }
  return axes;
}

}  // namespace

ForwardBlock::ForwardBlock(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                           Attention attention)
    : AttendBlock(plan, target, attention.extents, tile_axes(attention)),
      group_(group),
      a_(std::move(attention)),
      range_(plan, group, a_.extents, a_.score) {
  nothing_.inputs = group.inputs;
}

std::optional<Synthesis> ForwardBlock::run(Scalar products, const AttendEnough& enough) {
  AttendProblem problem;
  problem.own = rows_;
  problem.walk = keys();
  problem.owned = problem.walked = {a_.depth};
  problem.results = problem.apart = {a_.width};
  problem.heads = heads();
  problem.rows_meet = true;
  problem.enough = enough;
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
  Accesses dot{{a_.k, a_.k_access}}, pick{{a_.v, a_.v_access}};
  if (a_.k_found) dot[a_.k_found->index] = a_.k_found->access;
  if (a_.v_found) pick[a_.v_found->index] = a_.v_found->access;
  dot_ = std::make_unique<Body>(draft_, plan_, nothing_, a_.dot_space(), apart, dot);
  queries_ = std::make_unique<Body>(draft_, plan_, nothing_, a_.dot_space(), apart, Accesses{{a_.q, a_.q_access}});
  map_ = std::make_unique<Body>(draft_, plan_, group_, a_.extents, apart);
  if (shown_plan_) shown_ = std::make_unique<Body>(draft_, *shown_plan_, group_, a_.extents, apart);
  pick_ = std::make_unique<Body>(draft_, plan_, nothing_, a_.pick_space(), apart, pick,
                                 Accesses{{a_.written, a_.result_access}});
  std::vector<Body*> bodies{dot_.get(), queries_.get(), map_.get(), pick_.get()};
  if (shown_) bodies.push_back(shown_.get());
  for_blocks(bodies, tiles, parts_, [&](Expr head, Expr tile, Expr part) {
    // Later rows see more under most masks: their blocks begin first.
    const Expr later = tiles - 1 - tile;
    tiles_.streams ? stream(head, later, part) : block(head, later, part);
  });
  double bytes = 0;
  for (const graph::ValueId v : {a_.q, a_.k, a_.v, a_.written})
    bytes += static_cast<double>(graph::byte_size(g_[v].type));
  const double pairs = static_cast<double>(all_rows) * static_cast<double>(keys());
  out.steps.push_back(draft_.finish(
      fmt::format("attend {} depth {} width {} {}{}{} by blocks {}{}", shape_text(a_.extents), a_.depth, a_.width,
                  map_->summary(), a_.is_found() ? " by table" : "", range_.is_bounded() ? " bounded" : "",
                  tiles_.text(), parts_ > 1 ? fmt::format(" parts {}", parts_) : ""),
      2.0 * pairs * static_cast<double>(a_.depth + a_.width), bytes));
  if (parts_ > 1) out.steps.push_back(attend_merge(plan_, group_, a_, target_, parts_));
  return out;
}

// Queries, keys and values as blocks that stream read them; nothing where they cannot.
std::vector<LaidOperand> ForwardBlock::lay(Scalar products) const {
  const int64_t unit = stream_unit(target_, products);
  std::vector<LaidOperand> out;
  if (unit == 0 || a_.is_found()) return out;
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

void ForwardBlock::prepare(std::vector<LaidOperand> laid, Synthesis& out) {
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

void ForwardBlock::split_keys(int64_t blocks) {
  const bool alone = group_.results.size() == 1;
  if (!alone || blocks >= kEnoughBlocks / 2 || keys() < 2 * kPart) return;
  const int64_t wanted = std::min((kEnoughBlocks + blocks - 1) / blocks, kMostParts);
  part_ = round_up(std::max(kPart, (keys() + wanted - 1) / wanted), tiles_.walk);
  parts_ = (keys() + part_ - 1) / part_;
}

void ForwardBlock::block(Expr head, Expr tile, Expr part) {
  const Side own = tiles_.own_side, walked = tiles_.walk_side();
  BlockProduct s(b_, target_, tiles_.product(a_.depth)), o(b_, target_, tiles_.result(a_.width));
  const BufferId queries = panel(s, own), probabilities = panel(o, own);
  BufferId keys_panel = -1, values = -1;
  if (tiles_.one_by_one) {
    keys_panel = values =
        b_.alloc(std::max(s.panel_bytes(walked), o.panel_bytes(walked)), BlockProduct::kAlign, loop::Space::shared);
  } else {
    keys_panel = panel(s, walked);
    values = panel(o, walked);
  }
  const auto lines = static_cast<size_t>(s.lines(own));
  row_max_.clear();
  row_sum_.clear();
  for (size_t r = 0; r < lines; ++r) {
    row_max_.push_back(b_.alloc(4, 4));
    row_sum_.push_back(b_.alloc(4, 4));
  }
  if (tiles_.across > 1) statistics_ = shared(tiles_.own * tiles_.across * 4);
  first_ = times(tile, tiles_.own);
  lane_loop([&](Expr lane) {
    fill(lane, {queries_.get(), a_.q, false, a_.depth}, first_, s, own, queries);
    o.clear();
    for (size_t r = 0; r < lines; ++r) {
      b_.store(row_max_[r], b_.real(kLowest, kOne), b_.i64(0), 4);
      b_.store(row_sum_[r], b_.real(0, kOne), b_.i64(0), 4);
    }
  });
  Expr from = times(part, part_), to = b_.i64(keys());
  if (parts_ > 1) to = least(from + part_, to);
  if (range_.is_bounded()) {
    const Seen seen = seen_keys(range_, *map_, first_, tiles_.own, shared(kBoundsBytes));
    from = most(from, down(seen.first, tiles_.walk));
    to = least(to, seen.end);
  } else {
    b_.barrier();
  }
  const auto found = [](const std::optional<Attention::Found>& f) { return f ? &*f : nullptr; };
  const Operand keys_of{dot_.get(), a_.k, true, a_.depth, found(a_.k_found)},
      values_of{pick_.get(), a_.v, true, a_.width, found(a_.v_found)};
  serial(from, to, tiles_.walk, [&](Expr key) {
    lane_loop([&](Expr lane) {
      fill(lane, keys_of, key, s, walked, keys_panel);
      if (!tiles_.one_by_one) fill_transposed(lane, values_of, key, o, values);
    });
    b_.barrier();
    lane_loop([&](Expr lane) {
      s.clear();
      multiply(s, lane, queries, keys_panel);
      score(s, lane, key);
      if (tiles_.across == 1) soften(s, o, lane, key, probabilities);
    });
    b_.barrier();
    if (tiles_.across > 1 || tiles_.one_by_one) {
      lane_loop([&](Expr lane) {
        if (tiles_.one_by_one) fill_transposed(lane, values_of, key, o, values);
        if (tiles_.across > 1) soften(s, o, lane, key, probabilities);
      });
      b_.barrier();
    }
    lane_loop([&](Expr lane) { multiply(o, lane, probabilities, values); });
    b_.barrier();
  });
  finish(o, head, part);
}

// Sums to scores, in place, and the rows' maxima: kept where a group has whole rows, else for the others to see.
void ForwardBlock::score(BlockProduct& s, Expr lane, Expr key) {
  const Side own = tiles_.own_side;
  for (int r = 0; r < s.lines(own); ++r) {
    const Expr line = s.line(own, lane, r);
    const int opened = open_line(*map_, false, first_ + line);
    Expr top;
    s.change_line(own, lane, r, [&](Expr along, Expr x) {
      const Expr y = at_walked(*map_, true, key + along, {x}, kLowest, [&](Body& map, const auto& sums) {
        map.set(a_.scores, sums[0]);
        return std::vector<Expr>{as_f32(map.value(a_.score))};
      })[0];
      top = !top.exists() ? y : most(top, y);
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

// Scores to probabilities, into their panel.
void ForwardBlock::soften(BlockProduct& s, BlockProduct& o, Expr lane, Expr key, BufferId probabilities) {
  const Side own = tiles_.own_side;
  for (int r = 0; r < s.lines(own); ++r) {
    const auto at = static_cast<size_t>(r);
    const Expr line = s.line(own, lane, r), before = b_.load(row_max_[at], kOne, b_.i64(0), 4);
    Expr top = before;
    if (tiles_.across == 1) {
      top = most(top, found_[at]);
    } else {
      for (int g = 0; g < tiles_.across; ++g)
        top = most(top, b_.load(statistics_, kOne, statistic(b_.i64(g), line), 4));
    }
    const Expr scale = exp(before - top);
    Expr total;
    s.change_line(own, lane, r, [&](Expr along, Expr x) {
      const int lanes = b_.type(x).lanes;
      Expr p = exp(x - b_.splat(top, lanes));
      const Expr there = exists(true, key + along, lanes);
      if (there.exists()) p = select(there, p, b_.real(0, b_.type(p)));
      put(o, line, along, p, probabilities);
      total = !total.exists() ? p : total + p;
      return Expr{};
    });
    const Expr sum = fma(b_.load(row_sum_[at], kOne, b_.i64(0), 4), scale, b_.fold(ScalarOp::add_, total));
    b_.store(row_max_[at], top, b_.i64(0), 4);
    b_.store(row_sum_[at], sum, b_.i64(0), 4);
    o.change_line(own, lane, r, [&](Expr, Expr x) { return x * b_.splat(scale, b_.type(x).lanes); });
  }
  found_.clear();
}

// Sums of rows are joined, then written.
void ForwardBlock::finish(BlockProduct& o, Expr head, Expr part) {
  const Side own = tiles_.own_side;
  const auto each_line = [&](const std::function<void(size_t)>& body) {
    for (size_t r = 0; r < row_sum_.size(); ++r) body(r);
  };
  const auto join = [&](Expr lane) {
    each_line([&](size_t r) {
      const Expr total = o.fold_line(own, ScalarOp::add_, b_.load(row_sum_[r], kOne, b_.i64(0), 4));
      b_.store(row_sum_[r], total, b_.i64(0), 4);
      if (tiles_.across == 1) return;
      const Expr line = o.line(own, lane, static_cast<int>(r));
      b_.branch(o.leads_line(own, lane),
                [&] { b_.store(statistics_, total, statistic(o.group_across(own, lane), line), 4); });
    });
  };
  lane_loop(join);
  if (tiles_.across > 1) b_.barrier();
  lane_loop([&](Expr lane) {
    std::vector<Expr> row_sums;
    each_line([&](size_t r) {
      row_sums.push_back(b_.load(row_sum_[r], kOne, b_.i64(0), 4));
      if (tiles_.across == 1) return;
      const Expr line = o.line(own, lane, static_cast<int>(r));
      for (int g = 0; g < tiles_.across; ++g) {
        const Expr x = b_.load(statistics_, kOne, statistic(b_.i64(g), line), 4);
        row_sums[r] = g == 0 ? x : row_sums[r] + x;
      }
    });
    if (parts_ > 1) return keep(o, lane, head, part, row_sums);
    for (const graph::ValueId result : group_.results)
      if (result != a_.written)
        each_line([&](size_t r) {
          once(o, lane, r, [&](Expr line) {
            const int opened = open_line(*map_, false, line);
            map_->open_scalar();
            map_->store(result, result == a_.top ? b_.load(row_max_[r], kOne, b_.i64(0), 4) : row_sums[r]);
            map_->close();
            close(*map_, opened);
          });
        });
    if (tiles_.streams)  // one division a row: the sums are of rounded factors
      for (Expr& total : row_sums) total = 1 / total;
    write(o, lane, *pick_, a_.written, false, first_, a_.width, [&](int r, Expr x) {
      return b_.op(tiles_.streams ? ScalarOp::mul_ : ScalarOp::div_, x,
                   b_.splat(row_sums[static_cast<size_t>(r)], b_.type(x).lanes));
    });
  });
}

// By one of the lanes that hold parts of a row, where the row exists.
void ForwardBlock::once(BlockProduct& o, Expr lane, size_t r, const std::function<void(Expr line)>& body) {
  const Side own = tiles_.own_side;
  const Expr line = first_ + o.line(own, lane, static_cast<int>(r));
  Expr mine = o.leads_line(own, lane) & (line < rows_);
  if (tiles_.across > 1) mine = mine & (o.group_across(own, lane) == 0);
  b_.branch(mine, [&] { body(line); });
}

// A part's rows for attend_merge.
void ForwardBlock::keep(BlockProduct& o, Expr lane, Expr head, Expr part, const std::vector<Expr>& row_sums) {
  const Side own = tiles_.own_side;
  const std::vector<int64_t> heads = head_extents(), dense = dense_strides_of(a_.row_extents());
  Expr base = times(part, product(a_.row_extents()));
  const std::vector<Expr> of_head = digits(b_, head, heads);
  for (size_t d = 0; d < heads.size(); ++d) base = base + times(of_head[d], dense[d]);
  const auto number_of = [&](Expr line) {
    Expr number = base;
    const std::vector<Expr> at = digits(b_, line, row_extents_);
    for (size_t k = 0; k < at.size(); ++k) number = number + times(at[k], dense[static_cast<size_t>(row_axes_[k])]);
    return number;
  };
  for (size_t r = 0; r < row_sums.size(); ++r) {
    once(o, lane, r,
         [&](Expr line) { keep_extremes(number_of(line), b_.load(row_max_[r], kOne, b_.i64(0), 4), row_sums[r]); });
    const Expr line = first_ + o.line(own, lane, static_cast<int>(r));
    b_.branch(line < rows_, [&] {
      const Expr number = number_of(line);
      o.change_line(own, lane, static_cast<int>(r), [&](Expr along, Expr x) {
        const Expr count = a_.width % b_.type(x).lanes == 0 ? Expr{} : a_.width - along;
        b_.branch(along < a_.width,
                  [&] { b_.store(partial_, x, bytes(times(number, a_.width) + along, 1), 4, count); });
        return Expr{};
      });
    });
  }
}

std::optional<Synthesis> attend_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                          const machine::Machine& target, Scalar products, const AttendEnough& enough) {
  if (target.wave <= 1) return std::nullopt;
  return ForwardBlock(plan, group, target, Attention(plan, group)).run(products, enough);
}

}  // namespace lumen::synth
