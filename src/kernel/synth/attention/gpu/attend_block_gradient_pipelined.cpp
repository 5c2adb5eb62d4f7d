// Pipelined gradients of an attention (attend_block_gradient.h): panels of the next streamed tile are copied while this
// one is multiplied, and sums are added while later maps are computed. Plans whose panels are only copied
// (AttendPlan::copies) work the same way with a step of their own: lanes load their factors together, and hold what
// results read in registers. Row numbers are copied with the panels; tiles that no mask hides skip it. Proved by
// tests/kernel/synth/attention/synth_attend_stream_test.cpp.
#include "kernel/synth/attention/gpu/attend_block_gradient.h"

namespace lumen::synth {

bool GradientBlock::reads(graph::ValueId v, graph::ValueId of, graph::ValueId except) const {
  if (v == of) return true;
  if (v == except || is_load(plan_, group_, v)) return false;
  const auto& operands = g_[v].operands;
  return std::any_of(operands.begin(), operands.end(), [&](graph::ValueId o) { return reads(o, of, except); });
}

// Finds the first product, and the source that needs no other one; false if sources cannot be computed one after the
// other, or results read operands that no product reads.
bool GradientBlock::find_order() {
  for (const auto* r : results_)
    if (std::find(streamed_.begin(), streamed_.end(), r->operand) == streamed_.end()) return false;
  for (const AttentionGradient::Product& p : a_.products)
    if (operand(p.rows).width != operand(p.keys).width) return false;
  if (a_.products.size() != 2) return false;
  for (const size_t first : {size_t{0}, size_t{1}}) {
    const graph::ValueId late = a_.products[1 - first].value;
    for (size_t s = 0; s < a_.sources.size(); ++s) {
      const graph::ValueId early = a_.sources[s];
      if (reads(early, late, -1) || g_[early].type.element.scalar != Scalar::f32) continue;
      size_t others = 0;
      bool apart = true;
      for (const int o : sources_) {
        if (o == static_cast<int>(s)) continue;
        ++others;
        apart = apart && !reads(a_.sources[o], a_.products[first].value, early);
      }
      if (!apart || others > 1) continue;
      first_product_ = first;
      early_ = s;
      return true;
    }
  }
  return false;
}

Expr GradientBlock::place_of_row(const Access& a, Expr row) {
  Expr at = b_.i64(a.offset);
  for (size_t d = 0; d < head_.size(); ++d) at = at + head_[d] * a.strides[d];
  const std::vector<Expr> digit = digits(b_, min(row, b_.i64(rows_ - 1)), row_extents_);
  for (size_t k = 0; k < digit.size(); ++k) at = at + digit[k] * a.strides[row_axes_[k]];
  return at;
}

void GradientBlock::copy_row_numbers(Expr lane, Expr line, Expr number) {
  if (row_numbers_.empty() || over_keys_) return;
  b_.branch(lane < tiles_.streamed, [&] {
    const Expr to = bytes(number % 2 * tiles_.streamed + lane, 1);
    for (const RowNumber& n : row_numbers_)
      b_.copy(n.panel, to, n.source, bytes(place_of_row(n.access, line + lane), 1), 4);
  });
}

// Sets a map's row numbers for `lanes` streamed lines from `along` of the tile on.
void GradientBlock::set_row_numbers(Body& body, const StreamedTile& w, Expr along, int lanes) {
  const Expr at = bytes(w.number % 2 * tiles_.streamed + along, 1);
  for (const RowNumber& n : row_numbers_) {
    const Expr x = b_.load(n.panel, {Scalar::f32, lanes}, at, lanes * 4);
    body.set(n.value, x);
    if (n.divides) b_.know_reciprocal(x, x);
  }
}

void GradientBlock::hold_row_numbers(Expr lane, BlockProduct& of) {
  for (size_t r = 0; r < held_.size(); ++r) {
    const Expr row = first_ + of.line(tiles_.stationary_side, lane, r);
    for (size_t k = 0; k < row_numbers_.size(); ++k) {
      const RowNumber& n = row_numbers_[k];
      const Expr x = b_.load(n.source, {Scalar::f32, 1}, bytes(place_of_row(n.access, row), 1), 4);
      b_.store(held_[r][k], n.divides ? 1 / x : x, b_.i64(0), 4);
    }
  }
}

void GradientBlock::set_held_numbers(Body& body, int line, int lanes) {
  for (size_t k = 0; k < row_numbers_.size(); ++k) {
    const RowNumber& n = row_numbers_[k];
    const Expr x = b_.splat(b_.load(held_[line][k], {Scalar::f32, 1}, b_.i64(0), 4), lanes);
    body.set(n.value, x);
    if (n.divides) b_.know_reciprocal(x, x);
  }
}

BlockProduct::Panel GradientBlock::streamed_panel(const Memory& m, size_t k, Expr number) {
  return {m.streamed[k], number % 2 * streamed_bytes_[k]};
}

void GradientBlock::copy_streamed(const Memory& m, Expr lane, Expr line, Expr number) {
  pipeline().begin([&] {
    copy_row_numbers(lane, line, number);
    for (size_t k = 0; k < streamed_.size(); ++k)
      copy_lines(lane, laid_[streamed_[k]], line, *product_of(m, streamed_[k], false), tiles_.streamed_side(),
                 streamed_panel(m, k, number));
  });
}

void GradientBlock::stream_keys(Memory& m) {
  const int64_t streamed = tiles_.streamed;
  Expr from = b_.i64(0), to = b_.i64(keys()), clear = from, end = down(to, streamed);
  if (a_.range) {
    const Seen seen = seen_keys(*a_.range, *ranges_, first_, tiles_.stationary, m.bounds);
    from = down(seen.first, streamed);
    to = seen.end;
    clear = min(max(down(seen.all_first + (streamed - 1), streamed), from), max(to, from));
    end = max(min(down(max(seen.all_end, b_.i64(0)), streamed), to), clear);
  }
  const auto tiles = [&](Expr begin, Expr stop, bool whole) {
    serial(begin, stop, streamed, [&](Expr key) {
      const Expr next = key + streamed;
      streamed_step(m, {key, (key - from) / streamed, next, next < to}, whole);
    });
  };
  lane_loop([&](Expr lane) { copy_streamed(m, lane, from, b_.i64(0)); });
  if (a_.range && a_.range->hides_first()) tiles(from, clear, false);
  tiles(clear, end, true);
  tiles(end, to, false);
}

// Rows along the innermost axis, from the first to the last one that sees a key of this block; repeated over the other
// axes.
void GradientBlock::stream_rows(Memory& m) {
  const int64_t streamed = tiles_.streamed;
  int64_t inner = rows_, outer = 1;
  if (row_extents_.size() > 1 && row_extents_.back() % streamed == 0) {
    inner = row_extents_.back();
    outer = rows_ / inner;
  }
  Expr from = b_.i64(0), to = b_.i64(inner), clear = from;
  if (a_.range) {
    const auto [begin, end, hidden, unused] =
        block_range([&](Expr lane) { return rows_that_see(lane, inner); }, m.bounds);
    from = down(begin, streamed);
    to = end;
    clear = hidden;
  }
  const Expr stop = down(to + (streamed - 1), streamed);
  clear = max(min(down(clear + (streamed - 1), streamed), stop), from);
  const Expr whole_end = rows_ % streamed == 0 ? stop : max(min(stop, b_.i64(rows_ / streamed * streamed)), clear);
  const Expr each = (stop - from) / streamed;
  b_.branch(from < stop, [&] {
    lane_loop([&](Expr lane) { copy_streamed(m, lane, from, b_.i64(0)); });
    serial(b_.i64(0), b_.i64(outer), 1, [&](Expr o) {
      const auto tiles = [&](Expr begin, Expr end, bool whole) {
        serial(begin, end, streamed, [&](Expr t) {
          const Expr line = o * inner + t, behind = t + streamed;
          const Expr number = o * each + (t - from) / streamed;
          const Expr here = behind < stop;
          const Expr next = select(here, line + streamed, (o + 1) * inner + from);
          const Expr more = here | (o + 1 < outer);
          streamed_step(m, {line, number, next, more}, whole);
        });
      };
      tiles(from, clear, false);
      tiles(clear, whole_end, true);
      if (rows_ % streamed != 0) tiles(whole_end, stop, false);
    });
  });
}

// Over a lane's share of the rows along the innermost axis: the first that sees a key of this block, the end of those
// that do, and the end of those that do not see all of its keys.
std::array<Expr, 4> GradientBlock::rows_that_see(Expr lane, int64_t inner) {
  bool varies = false;
  for (size_t k = 0; k + 1 < row_axes_.size(); ++k) varies = varies || a_.range->varies(row_axes_[k]);
  const VType i64{Scalar::i64, 1};
  const BufferId found = b_.alloc(24, 8);
  const auto at = [&](int which) { return b_.i64(which * 8); };
  b_.store(found, b_.i64(inner), at(0), 8);
  b_.store(found, b_.i64(0), at(1), 8);
  b_.store(found, b_.i64(0), at(2), 8);
  const Expr last = min(first_ + tiles_.stationary, b_.i64(keys()));
  serial(lane, b_.i64(varies ? rows_ : inner), tiles_.lanes(), [&](Expr row) {
    const int opened = open_line(*ranges_, false, row);
    const auto [sees, sees_end] = keys_of_row(b_, *ranges_, *a_.range);
    const auto [shown, shown_end] = keys_shown_to_row(b_, *ranges_, *a_.range);
    close(*ranges_, opened);
    const Expr number = row % inner, behind = number + 1;
    const Expr some = (sees < last) & (first_ < sees_end), part = (first_ < shown) | (shown_end < last);
    const auto change = [&](int which, ScalarOp op, Expr x, Expr where) {
      const Expr now = b_.load(found, i64, at(which), 8);
      b_.store(found, select(where, b_.op(op, now, x), now), at(which), 8);
    };
    change(0, ScalarOp::min_, number, some);
    change(1, ScalarOp::max_, behind, some);
    change(2, ScalarOp::max_, behind, part);
  });
  return {b_.load(found, i64, at(0), 8), b_.load(found, i64, at(1), 8), b_.load(found, i64, at(2), 8), b_.i64(0)};
}

void GradientBlock::streamed_step(Memory& m, const StreamedTile& w, bool whole) {
  tiles_.pipelined ? pipelined_step(m, w, whole) : copied_step(m, w, whole);
}

// Lanes hold what results read in registers: only a tile's copies go through shared memory.
void GradientBlock::copied_step(Memory& m, const StreamedTile& w, bool whole) {
  const auto use = [&](Expr lane) {
    b_.branch(w.has_next, [&] { copy_streamed(m, lane, w.next, w.number + 1); });
    for (size_t k = 0; k < a_.products.size(); ++k) {
      const BlockProduct::Panel of = streamed_panel(m, place(streamed_, streamed_of(a_.products[k])), w.number);
      m.products[k]->clear();
      m.products[k]->multiply(lane, m.stationary[place(stationary_, stationary_of(a_.products[k]))], b_.i64(0),
                              of.buffer, of.from);
    }
    apply_maps(m, lane, w.line, &w, whole);
    for (size_t k = 0; k < results_.size(); ++k) {
      const BlockProduct::Panel of = streamed_panel(m, place(streamed_, results_[k]->operand), w.number);
      const BlockProduct& source = *m.products[place(sources_, results_[k]->source)];
      m.results[k]->multiply(lane, m.results[k]->hold(source), of.buffer, of.from);
    }
  };
  pipeline().step({.use = use});
}

// Results that read the early source are in flight while the late one is computed.
void GradientBlock::pipelined_step(Memory& m, const StreamedTile& w, bool whole) {
  const auto use = [&](Expr lane) {
    b_.branch(w.has_next, [&] { copy_streamed(m, lane, w.next, w.number + 1); });
    BlockProduct &first = *m.products[first_product_], &second = *m.products[1 - first_product_];
    for (const size_t k : {first_product_, 1 - first_product_}) {
      m.products[k]->begin(lane, {m.stationary[place(stationary_, stationary_of(a_.products[k]))], b_.i64(0)},
                           streamed_panel(m, place(streamed_, streamed_of(a_.products[k])), w.number), true);
      b_.commit(loop::Flow::products);
    }
    std::vector<std::pair<BlockProduct*, BlockProduct::RegisterOperand>> operands;
    const auto begin_results = [&](bool early) {
      bool any = false;
      for (size_t k = 0; k < results_.size(); ++k) {
        if ((results_[k]->source == early_) != early) continue;
        operands.emplace_back(m.results[k].get(), m.results[k]->hold(early ? first : second));
        m.results[k]->begin(lane, operands.back().second,
                            streamed_panel(m, place(streamed_, results_[k]->operand), w.number));
        any = true;
      }
      if (any) b_.commit(loop::Flow::products);
      return any;
    };
    Body& map = whole && shown_ ? *shown_ : *map_;
    begin_fast_math();
    b_.wait(loop::Flow::products, 1);
    first.ready();
    find_source(first, nullptr, map, lane, w, early_, whole);
    const bool early = begin_results(true);
    b_.wait(loop::Flow::products, early ? 1 : 0);
    second.ready();
    for (const int s : sources_)
      if (s != early_) find_source(second, &first, map, lane, w, s, whole);
    end_fast_math();
    begin_results(false);
    b_.wait(loop::Flow::products, 0);
    for (auto& [result, x] : operands) {
      result->ready();
      result->ready(x);
    }
  };
  pipeline().step({.use = use});
}

// The sums of `of` become a source; `early` holds the other one.
void GradientBlock::find_source(BlockProduct& of, BlockProduct* early, Body& map, Expr lane, const StreamedTile& w,
                                int source, bool whole) {
  const Side stationary = tiles_.stationary_side;
  const size_t product = early ? 1 - first_product_ : first_product_;
  for (int r = 0; r < of.lines(stationary); ++r) {
    std::vector<Expr> known;
    if (early)
      early->change_line(stationary, lane, r, [&](Expr, Expr x) {
        known.push_back(x);
        return Expr{};
      });
    const int opened = open_line(map, !over_keys_, first_ + of.line(stationary, lane, r));
    size_t number = 0;
    of.change_line(stationary, lane, r, [&](Expr along, Expr x) {
      std::vector<Expr> given{x};
      if (early) given.push_back(known[number++]);
      const auto become = [&](Body& body, const std::vector<Expr>& sums) {
        set_row_numbers(body, w, along, b_.type(sums[0]).lanes);
        body.set(a_.products[product].value, sums[0]);
        if (early) body.set(a_.sources[early_], sums[1]);
        return std::vector<Expr>{as_f32(body.value(a_.sources[source]))};
      };
      return at_streamed(map, over_keys_, w.line + along, given, 0, become, whole)[0];
    });
    close(map, opened);
  }
}

}  // namespace lumen::synth
