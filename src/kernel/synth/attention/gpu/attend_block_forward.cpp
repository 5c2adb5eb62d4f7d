// Attention by blocks of lanes: a block owns a tile of query rows that share keys and values and streams tiles of keys.
//
//   for each tile of keys that some row sees:
//     panels of keys, and of values transposed;  s = q k^T;  the group's maps, in the lanes' registers;
//     m' = maximum with the rows' lanes;  p = exp(s - m');  l, o *= exp(m - m');  l += p;  p to a panel;  o += p v
//   o / l
//
// Numbers: factors are rounded to the plan's type (p among them), everything else is f32. Each lane keeps its part of
// the sum l; they are reduced at the end. Where there are few rows, groups of lanes share them (exchanging maxima in
// shared memory), and blocks take parts of the keys, joined in order by attend_merge. Proved by
// tests/kernel/synth/attention/synth_attend_block_test.cpp.
#include "kernel/synth/attention/gpu/attend_block_forward.h"

#include <algorithm>
#include <limits>

namespace lumen::synth {

namespace {

constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr int64_t kTileRows = 64;  // from which on rows of other heads are not added
constexpr int64_t kEnoughBlocks = 512;
constexpr int64_t kPart = 64;  // keys per part of a split row, at least
constexpr int64_t kMostParts = 64;
constexpr int kHalfExponent = 5;  // bits of f16's

// Axes that share keys and values, from the innermost outwards until there are enough rows.
std::vector<int> tile_axes(const Attention& a) {
  std::vector<int> axes;
  int64_t rows = 1;
  for (int d = a.extents.size() - 2; d >= 0 && rows < kTileRows; --d) {
    if (a.extents[d] == 1 || !a.shares_keys(d)) continue;
    axes.insert(axes.begin(), d);
    rows *= a.extents[d];
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
  problem.stationary = rows_;
  problem.streamed = keys();
  problem.stationary_widths = problem.streamed_widths = {a_.depth};
  problem.results = problem.apart = {a_.width};
  problem.heads = heads();
  problem.rows_meet = true;
  problem.enough = enough;
  if (a_.depth == 1 || a_.width == 1) return std::nullopt;
  const std::vector<LaidOperand> laid = lay(products);
  std::optional<AttendPlan> found;
  if (!laid.empty()) found = plan_attend_pipelined(target_, products, problem);
  if (!found) found = plan_attend(target_, products, problem);
  if (!found) return std::nullopt;
  tiles_ = *found;
  const int64_t tiles = (rows_ + tiles_.stationary - 1) / tiles_.stationary;
  split_keys(heads() * tiles);
  for (const graph::ValueId v : group_.inputs) builder_.value(v, false);
  const int64_t all_rows = product(a_.row_extents());
  Synthesis out;
  out.scratch = declare_results(group_, a_, parts_);
  if (tiles_.pipelined) prepare(laid, out);
  const std::vector<bool> apart(a_.extents.size() + 1, true);
  using Accesses = std::map<graph::ValueId, Access>;
  Accesses dot{{a_.k, a_.k_access}}, pick{{a_.v, a_.v_access}};
  if (a_.k_found) dot[a_.k_found->index] = a_.k_found->access;
  if (a_.v_found) pick[a_.v_found->index] = a_.v_found->access;
  dot_ = std::make_unique<Body>(builder_, plan_, nothing_, a_.dot_space(), apart, dot);
  queries_ = std::make_unique<Body>(builder_, plan_, nothing_, a_.dot_space(), apart, Accesses{{a_.q, a_.q_access}});
  map_ = std::make_unique<Body>(builder_, plan_, group_, a_.extents, apart);
  if (shown_plan_) shown_ = std::make_unique<Body>(builder_, *shown_plan_, group_, a_.extents, apart);
  pick_ = std::make_unique<Body>(builder_, plan_, nothing_, a_.pick_space(), apart, pick,
                                 Accesses{{a_.written, a_.result_access}});
  std::vector<Body*> bodies{dot_.get(), queries_.get(), map_.get(), pick_.get()};
  if (shown_) bodies.push_back(shown_.get());
  for_blocks(bodies, tiles, parts_, [&](Expr head, Expr tile, Expr part) {
    block(head, tiles - 1 - tile, part);  // later rows see more under most masks: their blocks begin first
  });
  double bytes = 0;
  for (const graph::ValueId v : {a_.q, a_.k, a_.v, a_.written}) bytes += graph::byte_size(g_[v].type);
  const double pairs = all_rows * static_cast<double>(keys());
  out.steps.push_back(builder_.finish(
      fmt::format("attend {} depth {} width {} {}{}{} by blocks {}{}", shape_text(a_.extents), a_.depth, a_.width,
                  map_->summary(), a_.is_found() ? " by table" : "", range_.is_bounded() ? " bounded" : "",
                  tiles_.text(), parts_ > 1 ? fmt::format(" splits {}", parts_) : ""),
      2.0 * pairs * (a_.depth + a_.width), bytes));
  if (parts_ > 1) out.steps.push_back(attend_merge(plan_, a_, target_, parts_));
  return out;
}

// Queries, keys and values in the layout of pipelined blocks; empty if they cannot have it.
std::vector<LaidOperand> ForwardBlock::lay(Scalar products) const {
  const int64_t unit = pipelined_unit(target_, products);
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
      o.scratch = out.scratch.size();
      out.scratch.push_back(o.elements * scalar_bytes(o.scalar));
      out.steps.push_back(write_laid(plan_, o, extents_, "attend"));
    }
    laid_.push_back(declare(o, !laid_.empty()));
  }
  if (range_.is_bounded()) shown_plan_ = range_.without_mask();
}

void ForwardBlock::split_keys(int64_t blocks) {
  const bool alone = group_.results.size() == 1;
  if (!alone || blocks >= kEnoughBlocks / 4 || keys() < 2 * kPart) return;
  const int64_t wanted = std::min((kEnoughBlocks + blocks - 1) / blocks, kMostParts);
  part_ = round_up(std::max(kPart, (keys() + wanted - 1) / wanted), tiles_.streamed);
  parts_ = (keys() + part_ - 1) / part_;
}

void ForwardBlock::block(Expr head, Expr tile, Expr part) {
  Tiles t{{b_, target_, tiles_.product(a_.depth)}, {b_, target_, tiles_.result(a_.width)}};
  if (tiles_.pipelined) t.v.emplace(b_, target_, tiles_.transposed(a_.width));
  reserve(t);
  first_ = tile * tiles_.stationary;
  const auto stream = [&] {
    if (tiles_.pipelined)
      b_.branch(t.from < t.to, [&] { stream_copied(t); });
    else
      stream_filled(t);
    finish(t.o, head, part);
  };
  if (parts_ == 1 || !range_.is_bounded()) {
    if (tiles_.pipelined) keys_of_part(t, part);
    begin_queries(t);
    if (!tiles_.pipelined) keys_of_part(t, part);
    if (range_.is_bounded())
      keys_seen(t);
    else if (!tiles_.pipelined)
      b_.barrier();
    return stream();
  }
  // A part without keys computes nothing: attend_merge leaves it out.
  keys_of_part(t, part);
  keys_seen(t);
  const auto compute = [&] {
    begin_queries(t);
    if (!tiles_.pipelined) b_.barrier();
    stream();
  };
  b_.branch(t.from < t.to, compute, [&] {
    lane_loop([&](Expr lane) {
      for (size_t r = 0; r < row_sum_.size(); ++r)
        once(t.o, lane, r, [&](Expr line) { keep_no_keys(number_of(head, part, line)); });
    });
  });
}

void ForwardBlock::reserve(Tiles& t) {
  const Side stationary = tiles_.stationary_side, streamed = tiles_.streamed_side();
  const int64_t keys = t.s.panel_bytes(streamed), values = t.o.panel_bytes(streamed);
  const auto of_lines = [&](int64_t bytes) {
    return b_.alloc(panels() * bytes, BlockProduct::kAlign, loop::Space::shared);
  };
  const auto of_rows = [&](const std::vector<std::vector<BufferId>*>& lists) {
    for (auto* list : lists) list->clear();
    for (int r = 0; r < t.s.lines(stationary); ++r)
      for (auto* list : lists) list->push_back(b_.alloc(4, 4));
  };
  t.queries = panel(t.s, stationary);
  if (!tiles_.pipelined && !keeps_probabilities(t)) t.probabilities = panel(t.o, stationary);
  t.keys = of_lines(tiles_.one_by_one ? std::max(keys, values) : keys);
  t.values = tiles_.one_by_one ? t.keys : of_lines(values);
  if (!tiles_.pipelined) {
    of_rows({&row_max_, &row_sum_});
    if (tiles_.across > 1) statistics_ = shared(tiles_.stationary * tiles_.across * 4);
    return;
  }
  for (auto* list : {&row_max_, &bases_, &row_sum_, &scales_}) of_rows({list});
  probabilities_.clear();
  for (int64_t k = 0; k < tiles_.streamed; k += t.o.tile().row->k) probabilities_.push_back(b_.alloc(16, 16));
}

void ForwardBlock::keys_of_part(Tiles& t, Expr part) {
  t.from = part * part_;
  t.to = t.all_to = b_.i64(keys());
  t.all_from = b_.i64(0);
  if (parts_ > 1) t.to = min(t.from + part_, t.to);
}

void ForwardBlock::keys_seen(Tiles& t) {
  const Seen seen = seen_keys(range_, *map_, first_, tiles_.stationary, shared(kBoundsBytes));
  t.from = max(t.from, down(seen.first, tiles_.streamed));
  t.to = min(t.to, seen.end);
  t.all_from = seen.all_first;
  t.all_to = seen.all_end;
}

// Begins to load queries.
void ForwardBlock::begin_queries(Tiles& t) {
  lane_loop([&](Expr lane) {
    if (tiles_.pipelined)
      copy_lines(lane, laid_[0], first_, t.s, tiles_.stationary_side, {t.queries, b_.i64(0)});
    else
      fill(lane, {queries_.get(), a_.q, false, a_.depth}, first_, t.s, tiles_.stationary_side, t.queries);
    t.o.clear();
    for (size_t r = 0; r < row_max_.size(); ++r) {
      set(row_max_[r], b_.real(kLowest, kOne));
      if (tiles_.pipelined) set(bases_[r], b_.real(kLowest, kOne));
      set(row_sum_[r], b_.real(0, kOne));
    }
  });
}

void ForwardBlock::stream_filled(Tiles& t) {
  const auto found = [](const std::optional<Attention::Found>& f) { return f ? &*f : nullptr; };
  const Operand keys_of{dot_.get(), a_.k, true, a_.depth, found(a_.k_found)},
      values_of{pick_.get(), a_.v, true, a_.width, found(a_.v_found)};
  const bool apart = tiles_.one_by_one, shared = tiles_.across > 1;  // panels take turns; groups of lanes share rows
  const bool keeps = keeps_probabilities(t);
  serial(t.from, t.to, tiles_.streamed, [&](Expr key) {
    const auto bring_keys = [&](Expr lane) {
      fill(lane, keys_of, key, t.s, tiles_.streamed_side(), t.keys);
      if (!apart) fill_transposed(lane, values_of, key, t.o, t.values);
    };
    const auto find_scores = [&](Expr lane) {
      t.s.clear();
      multiply(t.s, lane, t.queries, t.keys);
      if (shared)
        share_maxima(t.s, lane, key);
      else
        soften(t, lane, key);
      if (keeps) t.o.multiply(lane, t.o.hold(t.s), t.values, b_.i64(0));
    };
    const auto bring_values = [&](Expr lane) {
      if (apart) fill_transposed(lane, values_of, key, t.o, t.values);
      if (shared) soften(t, lane, key);
    };
    pipeline().step({.begin = bring_keys, .use = find_scores});
    if (keeps) return;
    pipeline().step({.begin = apart || shared ? SoftwarePipeline::OfLane(bring_values) : nullptr,
                     .use = [&](Expr lane) { multiply(t.o, lane, t.probabilities, t.values); }});
  });
}

Expr ForwardBlock::score(BlockProduct& s, Expr lane, int r, Expr key, bool whole, bool in_place) {
  Body& map = whole ? *shown_ : *map_;
  const int opened = open_line(map, false, first_ + s.line(tiles_.stationary_side, lane, r));
  Expr top;
  s.change_line(tiles_.stationary_side, lane, r, [&](Expr along, Expr x) {
    Expr y = x;
    if (in_place)
      y = at_streamed(
          map, true, key + along, {x}, kLowest,
          [&](Body& scores, const auto& sums) {
            scores.set(a_.scores, sums[0]);
            return std::vector<Expr>{as_f32(scores.value(a_.score))};
          },
          whole)[0];
    top = !top.exists() ? y : max(top, y);
    return in_place ? y : Expr{};
  });
  close(map, opened);
  return s.fold_line(tiles_.stationary_side, ScalarOp::max_, b_.fold(ScalarOp::max_, top));
}

Expr ForwardBlock::add_up(BlockProduct& s, Expr lane, int r, Expr key, bool whole, Expr scale,
                          const std::function<Expr(Expr)>& weigh, const BlockProduct::ChangeLine& keep) {
  Expr total;
  s.change_line(tiles_.stationary_side, lane, r, [&](Expr along, Expr x) {
    Expr p = weigh(x);
    const Expr there = whole ? Expr{} : exists(true, key + along, b_.type(x).lanes);
    if (there.exists()) p = select(there, p, b_.real(0, b_.type(p)));
    const Expr kept = keep(along, p);
    total = !total.exists() ? p : total + p;
    return kept;
  });
  return fma(number(row_sum_[r]), scale, b_.fold(ScalarOp::add_, total));
}

// Where groups of lanes share rows: publishes maxima to the other groups.
void ForwardBlock::share_maxima(BlockProduct& s, Expr lane, Expr key) {
  const Side stationary = tiles_.stationary_side;
  for (int r = 0; r < s.lines(stationary); ++r) {
    const Expr line = s.line(stationary, lane, r), top = score(s, lane, r, key, false, true);
    b_.branch(s.leads_line(stationary, lane),
              [&] { b_.store(statistics_, top, statistic(s.group_across(stationary, lane), line), 4); });
  }
}

// Scores to probabilities, into their panel.
void ForwardBlock::soften(Tiles& t, Expr lane, Expr key) {
  const Side stationary = tiles_.stationary_side;
  std::vector<Expr> found;  // where rows are not shared
  if (rounds_factors()) begin_fast_math();
  for (int r = 0; r < t.s.lines(stationary) && tiles_.across == 1; ++r)
    found.push_back(score(t.s, lane, r, key, false, true));
  for (int r = 0; r < t.s.lines(stationary); ++r) {
    const Expr line = t.s.line(stationary, lane, r), before = number(row_max_[r]);
    Expr top = before;
    if (tiles_.across == 1) top = max(top, found[r]);
    for (int g = 0; g < tiles_.across && tiles_.across > 1; ++g)
      top = max(top, b_.load(statistics_, kOne, statistic(b_.i64(g), line), 4));
    const Expr scale = exp(before - top);
    const Expr sum = add_up(
        t.s, lane, r, key, false, scale, [&](Expr x) { return exp(x - b_.splat(top, b_.type(x).lanes)); },
        [&](Expr along, Expr p) {
          if (keeps_probabilities(t)) return p;
          put(t.o, line, along, p, t.probabilities);
          return Expr{};
        });
    set(row_max_[r], top);
    set(row_sum_[r], sum);
    t.o.change_line(stationary, lane, r, [&](Expr, Expr x) { return x * b_.splat(scale, b_.type(x).lanes); });
  }
  end_fast_math();
}

// Sums of rows are reduced over the lanes, then written.
void ForwardBlock::finish(BlockProduct& o, Expr head, Expr part) {
  const Side stationary = tiles_.stationary_side;
  const auto each_line = [&](const std::function<void(size_t)>& body) {
    for (size_t r = 0; r < row_sum_.size(); ++r) body(r);
  };
  const auto join = [&](Expr lane) {
    each_line([&](size_t r) {
      const Expr total = o.fold_line(stationary, ScalarOp::add_, number(row_sum_[r]));
      set(row_sum_[r], total);
      if (tiles_.across == 1) return;
      const Expr line = o.line(stationary, lane, r);
      b_.branch(o.leads_line(stationary, lane),
                [&] { b_.store(statistics_, total, statistic(o.group_across(stationary, lane), line), 4); });
    });
  };
  lane_loop(join);
  if (tiles_.across > 1) b_.barrier();
  lane_loop([&](Expr lane) {
    std::vector<Expr> row_sums;
    each_line([&](size_t r) {
      row_sums.push_back(number(row_sum_[r]));
      if (tiles_.across == 1) return;
      const Expr line = o.line(stationary, lane, r);
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
            map_->store(result, result == a_.top ? number(row_max_[r]) : row_sums[r]);
            map_->close();
            close(*map_, opened);
          });
        });
    if (tiles_.pipelined)  // one division a row: the sums are of rounded factors
      for (Expr& total : row_sums) total = 1 / total;
    write(o, lane, *pick_, a_.written, false, first_, a_.width, [&](int r, Expr x) {
      return b_.op(tiles_.pipelined ? ScalarOp::mul_ : ScalarOp::div_, x, b_.splat(row_sums[r], b_.type(x).lanes));
    });
  });
}

// Runs `body` on one of the lanes that hold parts of a row, if the row exists.
void ForwardBlock::once(BlockProduct& o, Expr lane, size_t r, const std::function<void(Expr line)>& body) {
  const Side stationary = tiles_.stationary_side;
  const Expr line = first_ + o.line(stationary, lane, r);
  Expr mine = o.leads_line(stationary, lane) & (line < rows_);
  if (tiles_.across > 1) mine = mine & (o.group_across(stationary, lane) == 0);
  b_.branch(mine, [&] { body(line); });
}

// The number of a part's row among those that attend_merge reads.
Expr ForwardBlock::number_of(Expr head, Expr part, Expr line) {
  const std::vector<int64_t> heads = head_extents(), dense = dense_strides_of(a_.row_extents());
  Expr number = part * product(a_.row_extents());
  const std::vector<Expr> of_head = digits(b_, head, heads);
  for (size_t d = 0; d < heads.size(); ++d) number = number + of_head[d] * dense[d];
  const std::vector<Expr> at = digits(b_, line, row_extents_);
  for (size_t k = 0; k < at.size(); ++k) number = number + at[k] * dense[row_axes_[k]];
  return number;
}

// Writes a part's rows for attend_merge.
void ForwardBlock::keep(BlockProduct& o, Expr lane, Expr head, Expr part, const std::vector<Expr>& row_sums) {
  const Side stationary = tiles_.stationary_side;
  for (size_t r = 0; r < row_sums.size(); ++r) {
    once(o, lane, r, [&](Expr line) { keep_extremes(number_of(head, part, line), number(row_max_[r]), row_sums[r]); });
    const Expr line = first_ + o.line(stationary, lane, r);
    b_.branch(line < rows_, [&] {
      const Expr number = number_of(head, part, line);
      o.change_line(stationary, lane, r, [&](Expr along, Expr x) {
        const Expr count = a_.width % b_.type(x).lanes == 0 ? Expr{} : a_.width - along;
        b_.branch(along < a_.width, [&] { b_.store(partial_, x, bytes(number * a_.width + along, 1), 4, count); });
        return Expr{};
      });
    });
  }
}

Scalar attention_factors(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         Scalar products) {
  if (target.wave <= 1 || products != Scalar::f32) return products;
  const Attention a(plan, group);
  Scalar factors = Scalar::f16;
  for (const graph::ValueId source : {a.k_access.source, a.v_access.source}) {
    const graph::Node& node = plan.graph[source];
    const graph::Element held =
        node.op == graph::Op::cast_ ? plan.graph[node.operands[0]].type.element : node.type.element;
    const bool is_short =
        held.format ? held.format->bits_per_weight() <= 16 : is_float(held.scalar) && scalar_bytes(held.scalar) == 2;
    if (!is_short) return products;
    const auto is_wide = [](const Field& f) { return f.type.is_float && f.type.exponent_bits > kHalfExponent; };
    const bool leaves_half =
        held.format ? std::ranges::any_of(held.format->fields, is_wide) : held.scalar == Scalar::bf16;
    if (leaves_half) factors = Scalar::bf16;
  }
  for (const int size : {32, 16})
    if (find_matrix(target, {factors, {}}, size)) return factors;
  return products;
}

std::optional<Synthesis> attend_by_blocks(const graph::Plan& plan, const graph::Group& group,
                                          const machine::Machine& target, Scalar products, const AttendEnough& enough) {
  if (target.wave <= 1) return std::nullopt;
  return ForwardBlock(plan, group, target, Attention(plan, group)).run(products, enough);
}

}  // namespace lumen::synth
