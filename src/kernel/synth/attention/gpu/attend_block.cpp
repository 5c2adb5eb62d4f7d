// See attend_block.h.
#include "kernel/synth/attention/gpu/attend_block.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace lumen::synth {

namespace {
constexpr int64_t kReads = 8;  // of 16 bytes that a lane has in flight together
}

AttendBlock::AttendBlock(const graph::Plan& plan, const machine::Machine& target, std::vector<int64_t> extents,
                         std::vector<int> row_axes)
    : AttendWriter(plan, target),
      plan_(plan),
      target_(target),
      extents_(std::move(extents)),
      row_axes_(std::move(row_axes)) {
  std::erase_if(row_axes_, [&](int d) { return extents_[d] == 1; });
  for (const int d : row_axes_) row_extents_.push_back(extents_[d]);
  rows_ = product(row_extents_);
}

std::vector<int64_t> AttendBlock::head_extents() const {
  std::vector<int64_t> heads(extents_.begin(), extents_.end() - 1);
  for (const int d : row_axes_) heads[d] = 1;
  return heads;
}

int64_t AttendBlock::heads() const {
  return product(head_extents());
}

void AttendBlock::for_blocks(const std::vector<Body*>& bodies, int64_t first, int64_t second,
                             const std::function<void(Expr, Expr, Expr)>& block, bool by_first) {
  const std::vector<int64_t> heads = head_extents();
  std::vector<int64_t> all = heads;
  all.insert(by_first ? all.begin() : all.end(), first);
  all.push_back(second);
  b_.loop(LoopKind::grid, b_.i64(0), b_.i64(product(all)), 1, [&](Expr number) {
    std::vector<Expr> at = digits(b_, number, all);
    const Expr part = at.back();
    at.pop_back();
    const auto of_first = by_first ? at.begin() : std::prev(at.end());
    const Expr tile = *of_first;
    at.erase(of_first);
    for (Body* body : bodies) body->begin_task();
    Expr head = b_.i64(0);
    head_ = at;
    for (size_t d = 0; d < at.size(); ++d) {
      head = head * heads[d] + at[d];
      if (std::find(row_axes_.begin(), row_axes_.end(), static_cast<int>(d)) != row_axes_.end()) continue;
      for (Body* body : bodies) open_axis(*body, d, at[d]);
    }
    block(head, tile, part);
  });
}

int AttendBlock::open_line(Body& body, bool by_key, Expr number) {
  if (by_key) return open_axis(body, extents_.size() - 1, min(number, b_.i64(keys() - 1)));
  const std::vector<Expr> at = digits(b_, min(number, b_.i64(rows_ - 1)), row_extents_);
  int opened = 0;
  for (size_t k = 0; k < at.size(); ++k) opened += open_axis(body, row_axes_[k], at[k]);
  return opened;
}

int AttendBlock::open_line(const Operand& o, Expr number) {
  const int opened = open_line(*o.body, o.by_key, number);
  if (!o.found) return opened;
  LUMEN_CHECK(o.by_key && opened == 1, "one of several keys is found by a table");
  const Expr at = key_in_table(*o.body, *o.found);
  o.body->shift_load(o.value, (at - min(number, b_.i64(keys() - 1))) * o.found->stride);
  return opened;
}

BufferId AttendBlock::panel(const BlockProduct& p, Side side) {
  return b_.alloc(p.panel_bytes(side), BlockProduct::kAlign, loop::Space::shared);
}

BufferId AttendBlock::shared(int64_t bytes) {
  return b_.alloc(bytes, 16, loop::Space::shared);
}

// All pairs, distributed over the lanes; adjacent lanes get adjacent pairs along `inner`. Each pair takes `reads` loads
// of 16 bytes.
void AttendBlock::each(Expr lane, int64_t outer, int64_t inner, int64_t reads,
                       const std::function<void(Expr, Expr)>& body) {
  const int64_t lanes = tiles_.lanes(), total = outer * inner;
  if (total % lanes != 0 || (lanes % inner != 0 && inner % lanes != 0)) {
    serial(lane, b_.i64(total), lanes, [&](Expr at) { body(at / inner, at % inner); });
    return;
  }
  const auto step = [&](Expr t) {
    if (lanes % inner == 0) {
      body(lane / inner + t * (lanes / inner), lane % inner);
    } else {
      body(t / (inner / lanes), lane + t % (inner / lanes) * lanes);
    }
  };
  const int64_t trips = total / lanes;
  int64_t together = std::max<int64_t>(kReads / reads, 1);
  while (trips % together != 0) together /= 2;
  serial(b_.i64(0), b_.i64(trips), together, [&](Expr t) {
    for (int64_t i = 0; i < together; ++i) step(t + i);
  });
}

// Concatenates parts to a vector of `lanes` factors, padded with zeros.
Expr AttendBlock::join(const std::vector<Expr>& parts, int lanes, Scalar type) {
  if (parts.size() == 1 && b_.type(parts[0]).lanes == lanes) return parts[0];
  Expr out = b_.real(0, {type, lanes});
  int at = 0;
  for (const Expr part : parts)
    for (int l = 0; l < b_.type(part).lanes && at < lanes; ++l) out = b_.insert(out, b_.extract(part, l), at++);
  return out;
}

void AttendBlock::fill(Expr lane, const Operand& o, Expr first, BlockProduct& p, Side side, BufferId to) {
  fill_units(
      lane, o, first, p.tile().lines(side), p.units(), p.unit_elements(),
      [&](Expr line, Expr number) { return p.place(side, line, number); }, to);
}

// Units beyond the last number are zero.
void AttendBlock::fill_units(Expr lane, const Operand& o, Expr first, int64_t lines, int64_t units, int unit,
                             const Place& place, BufferId to) {
  const auto store = [&](Expr line, Expr number, Expr x) {
    b_.store(to, as_factor(x), place(line, number), BlockProduct::kUnit);
  };
  Body::Chunking chunks = o.body->chunking(unit);
  const int64_t whole_units = o.width / unit, filled = (o.width + unit - 1) / unit;
  if (chunks.lanes == 0) {
    const auto load = [&](Expr line, Expr number, int count) {
      const int opened = open_line(o, first + line);
      o.body->open_lanes(number * unit, count, {});
      const Expr x = o.body->value(o.value);
      const bool as_it_is = b_.type(x).scalar == tiles_.factor;  // rounding to the same type changes nothing
      store(line, number, join({as_it_is ? x : as_f32(x)}, unit, as_it_is ? tiles_.factor : Scalar::f32));
      o.body->close();
      close(*o.body, opened);
    };
    if (whole_units > 0)
      each(lane, lines, whole_units, unit / 4, [&](Expr line, Expr number) { load(line, number, unit); });
    if (filled > whole_units)
      each(lane, lines, 1, kReads,
           [&](Expr line, Expr) { load(line, b_.i64(whole_units), static_cast<int>(o.width - whole_units * unit)); });
  } else {
    int64_t item = std::lcm<int64_t>(chunks.chunk, unit);
    int width = chunks.lanes;
    if (o.width % item != 0) {  // a whole line at once
      item = o.width;
      width = chunks.unit_lanes;
    }
    each(lane, lines, o.width / item, kReads, [&](Expr line, Expr number) {
      const int opened = open_line(o, first + line);
      const Expr start = number * item;
      o.body->enter_chunk(start, item);
      std::vector<Expr> parts;
      for (int64_t at = 0; at < item; at += width) {
        o.body->set_position(at);
        o.body->open_lanes(start + at, width, {});
        parts.push_back(as_f32(o.body->value(o.value)));
        o.body->close();
        if ((at + width) % unit != 0 && at + width < item) continue;
        store(line, number * ((item + unit - 1) / unit) + at / unit, join(parts, unit, Scalar::f32));
        parts.clear();
      }
      close(*o.body, opened);
    });
  }
  if (filled < units)
    each(lane, lines, units - filled, kReads,
         [&](Expr line, Expr number) { store(line, number + filled, b_.real(0, {Scalar::f32, unit})); });
}

void AttendBlock::fill_transposed(Expr lane, const Operand& o, Expr first, BlockProduct& p, BufferId to) {
  const Side side = tiles_.streamed_side();
  const int unit = p.unit_elements();
  const int64_t bytes = scalar_bytes(tiles_.factor);
  if (p.is_transposed(side)) {  // the instruction transposes it
    fill_units(
        lane, o, first, tiles_.streamed, 0, unit,
        [&](Expr line, Expr number) { return p.transposed_place(side, number, line); }, to);
    return;
  }
  const Body::Chunking chunks = o.body->chunking(lanes_);
  if (chunks.lanes == 0) {
    // A square of lines and numbers is transposed in registers. Adjacent lanes take adjacent lines, whose units are
    // adjacent in the panel. Lookups in a table take further registers.
    const int across = o.width % 4 != 0 ? 1 : o.found ? 2 : 4;
    each(lane, o.width / across, tiles_.streamed / unit, unit, [&](Expr column, Expr number) {
      std::vector<Expr> lines;
      for (int j = 0; j < unit; ++j) {
        const int opened = open_line(o, first + (number * unit + j));
        o.body->open_lanes(column * across, across, {});
        lines.push_back(as_f32(o.body->value(o.value)));
        o.body->close();
        close(*o.body, opened);
      }
      for (int l = 0; l < across; ++l) {
        std::vector<Expr> transposed;
        for (const Expr line : lines) transposed.push_back(b_.extract(line, l));
        b_.store(to, as_factor(join(transposed, unit, Scalar::f32)), p.place(side, column * across + l, number),
                 BlockProduct::kUnit);
      }
    });
    return;
  }
  // Numbers that are unpacked together are stored one by one.
  const int64_t item = o.width % chunks.chunk == 0 ? chunks.chunk : o.width;
  const int width = item == chunks.chunk ? chunks.lanes : chunks.unit_lanes;
  each(lane, o.width / item, tiles_.streamed, kReads, [&](Expr number, Expr line) {
    const int opened = open_line(o, first + line);
    const Expr start = number * item;
    const Expr of_line = line / unit, inside = line % unit * bytes;
    o.body->enter_chunk(start, item);
    for (int64_t at = 0; at < item; at += width) {
      o.body->set_position(at);
      o.body->open_lanes(start + at, width, {});
      const Expr x = as_factor(as_f32(o.body->value(o.value)));
      o.body->close();
      for (int l = 0; l < width; ++l)
        b_.store(to, b_.extract(x, l), p.place(side, start + (at + l), of_line) + inside, bytes);
    }
    close(*o.body, opened);
  });
}

void AttendBlock::put(BlockProduct& p, Expr line, Expr along, Expr x, BufferId to) {
  const int64_t unit = p.unit_elements(), bytes = scalar_bytes(tiles_.factor);
  const int lanes = b_.type(x).lanes;
  LUMEN_CHECK(unit % lanes == 0, "{} neighbours in units of {}", lanes, unit);
  const Expr place = p.place(tiles_.stationary_side, line, along / unit);
  b_.store(to, as_factor(x), place + along % unit * bytes, lanes * bytes);
}

void AttendBlock::multiply(BlockProduct& p, Expr lane, BufferId stationary, BufferId streamed) {
  const bool rows = tiles_.stationary_side == Side::a;
  p.multiply(lane, rows ? stationary : streamed, b_.i64(0), rows ? streamed : stationary, b_.i64(0));
}

Expr AttendBlock::exists(bool by_key, Expr number, int lanes) {
  if (count(by_key) % tiles_.streamed == 0) return Expr{};
  const Expr end = b_.i64(count(by_key));
  if (lanes == 1) return number < end;
  std::vector<int64_t> steps;
  for (int l = 0; l < lanes; ++l) steps.push_back(l);
  return b_.splat(number, lanes) + b_.lanes_integer(steps, Scalar::i64) < b_.splat(end, lanes);
}

std::vector<Expr> AttendBlock::at_streamed(Body& map, bool streams_keys, Expr number, const std::vector<Expr>& x,
                                           double hidden, const Maps& maps, bool whole) {
  const int lanes = b_.type(x[0]).lanes;
  const auto seen = [&](std::vector<Expr> y, Expr from) {
    const Expr there = whole ? Expr{} : exists(streams_keys, from, b_.type(y[0]).lanes);
    if (there.exists())
      for (Expr& v : y) v = select(there, v, b_.real(hidden, b_.type(v)));
    return y;
  };
  if (streams_keys) {
    Expr at = number, count;
    if (!whole && keys() % tiles_.streamed != 0) {  // at least the last one is read
      at = min(number, b_.i64(keys() - 1));
      if (lanes > 1) count = min(b_.i64(lanes), keys() - at);
    }
    map.open_lanes(at, lanes, count);
    std::vector<Expr> y = maps(map, x);
    map.close();
    return seen(std::move(y), number);
  }
  const bool together = row_extents_.empty() || row_extents_.back() % lanes == 0;
  if (together && !row_extents_.empty()) {  // a vector varies along the innermost axis of rows alone
    Expr first = number;
    if (!whole && rows_ % tiles_.streamed != 0) first = min(first, b_.i64(rows_ - lanes));
    const std::vector<Expr> at = digits(b_, first, row_extents_);
    int opened = 0;
    for (size_t k = 0; k + 1 < at.size(); ++k) opened += open_axis(map, row_axes_[k], at[k]);
    map.open_lanes(at.back(), lanes, {});
    std::vector<Expr> y = maps(map, x);
    map.close();
    close(map, opened);
    return seen(std::move(y), number);
  }
  std::vector<Expr> out;
  for (int l = 0; l < lanes; ++l) {
    std::vector<Expr> one;
    for (const Expr v : x) one.push_back(b_.extract(v, l));
    const Expr row = number + l;
    const std::vector<Expr> at = digits(b_, min(row, b_.i64(rows_ - 1)), row_extents_);
    int opened = 0;
    for (size_t k = 0; k + 1 < at.size(); ++k) opened += open_axis(map, row_axes_[k], at[k]);
    map.open_lanes(at.empty() ? b_.i64(0) : at.back(), 1, {});
    const std::vector<Expr> y = seen(maps(map, one), row);
    map.close();
    close(map, opened);
    for (size_t k = 0; k < y.size(); ++k) {
      if (l == 0) out.push_back(b_.splat(y[k], lanes));
      if (l > 0) out[k] = b_.insert(out[k], y[k], l);
    }
  }
  return out;
}

std::array<Expr, 4> AttendBlock::block_range(const std::function<std::array<Expr, 4>(Expr)>& numbers, BufferId bounds) {
  constexpr std::array<ScalarOp, 4> kFolds{ScalarOp::min_, ScalarOp::max_, ScalarOp::max_, ScalarOp::min_};
  const int waves = tiles_.lanes() / target_.wave;
  LUMEN_CHECK(waves * 32 <= kBoundsBytes, "{} waves", waves);
  lane_loop([&](Expr lane) {
    std::array<Expr, 4> x = numbers(lane);
    for (size_t i = 0; i < 4; ++i) x[i] = b_.fold_wave(kFolds[i], x[i], target_.wave);
    b_.branch(b_.lane_id() == 0, [&] {
      const Expr at = lane / target_.wave * 32;
      for (size_t i = 0; i < 4; ++i) b_.store(bounds, x[i], at + static_cast<int64_t>(i) * 8, 8);
    });
  });
  b_.barrier();
  std::array<Expr, 4> out{};
  for (int w = 0; w < waves; ++w)
    for (size_t i = 0; i < 4; ++i) {
      const Expr x = b_.load(bounds, {Scalar::i64, 1}, b_.i64(w * 32 + i * 8), 8);
      out[i] = w == 0 ? x : b_.op(kFolds[i], out[i], x);
    }
  return out;
}

AttendBlock::Seen AttendBlock::seen_keys(const KeyRange& range, Body& map, Expr first, int64_t lines, BufferId bounds) {
  const auto [from, to, all_from, all_to] = block_range(
      [&](Expr lane) {
        std::array<Expr, 4> x;
        for (int64_t at = 0; at < lines; at += tiles_.lanes()) {
          const int opened = open_line(map, false, first + min(lane + at, b_.i64(lines - 1)));
          const auto [begin, end] = keys_of_row(b_, map, range);
          const auto [shown, shown_end] = keys_shown_to_row(b_, map, range);
          x[0] = at == 0 ? begin : min(x[0], begin);
          x[1] = at == 0 ? end : max(x[1], end);
          x[2] = at == 0 ? shown : max(x[2], shown);
          x[3] = at == 0 ? shown_end : min(x[3], shown_end);
          close(map, opened);
        }
        return x;
      },
      bounds);
  return {from, to, all_from, all_to};
}

AttendBlock::Laid AttendBlock::declare(const LaidOperand& o, bool by_key) {
  const BufferId buffer = o.scratch < 0 ? builder_.value(o.from.source, false)
                                        : builder_.scratch(o.scratch, o.elements * scalar_bytes(o.scalar), false);
  return {o, buffer, by_key};
}

void AttendBlock::copy_lines(Expr lane, const Laid& o, Expr first, BlockProduct& p, Side side, BlockProduct::Panel to) {
  const int64_t bytes = scalar_bytes(o.operand.scalar), unit = p.unit_elements();
  const int64_t lines = p.tile().lines(side);
  const std::vector<int64_t>& strides = o.operand.at.strides;
  Expr base = b_.i64(o.operand.at.offset);
  for (size_t d = 0; d < head_.size(); ++d) base = base + head_[d] * strides[d];
  const auto place_of = [&](Expr line) {
    if (o.by_key) return line * strides[extents_.size() - 1];
    bool dense = true;
    for (size_t k = 0; k + 1 < row_axes_.size(); ++k)
      dense = dense && strides[row_axes_[k]] == strides[row_axes_[k + 1]] * row_extents_[k + 1];
    if (row_axes_.empty()) return b_.i64(0);
    if (dense) return line * strides[row_axes_.back()];
    const std::vector<Expr> at = digits(b_, line, row_extents_);
    Expr out = b_.i64(0);
    for (size_t k = 0; k < at.size(); ++k) out = out + at[k] * strides[row_axes_[k]];
    return out;
  };
  each(lane, lines, p.units(), 1, [&](Expr inside, Expr number) {
    Expr line = first + inside;
    if (count(o.by_key) % (side == tiles_.stationary_side ? tiles_.stationary : tiles_.streamed) != 0)
      line = min(line, b_.i64(count(o.by_key) - 1));
    const Expr at = base + place_of(line) + number * unit;
    b_.copy(to.buffer, to.from + p.place(side, inside, number), o.buffer, at * bytes, BlockProduct::kUnit);
  });
}

void AttendBlock::write(BlockProduct& p, Expr lane, Body& body, graph::ValueId result, bool by_key, Expr first,
                        int64_t width, const Last& change) {
  const Side stationary = tiles_.stationary_side;
  const Scalar type = g_[result].type.element.scalar;
  const bool dense = body.store_stride(result) == 1;
  for (int number = 0; number < p.lines(stationary); ++number) {
    const Expr line = first + p.line(stationary, lane, number);
    b_.branch(line < count(by_key), [&] {
      const int opened = open_line(body, by_key, line);
      p.change_line(stationary, lane, number, [&](Expr along, Expr x) {
        const Expr y = cast(change(number, x), type);
        const int lanes = b_.type(y).lanes;
        const auto store = [&](Expr at, Expr v) {
          body.open_lanes(at, b_.type(v).lanes, {});
          body.store(result, v);
          body.close();
        };
        const auto alone = [&] {
          for (int l = 0; l < lanes; ++l) {
            const Expr at = along + l;
            b_.branch(at < width, [&] { store(at, b_.extract(y, l)); });
          }
        };
        if (lanes > 1 && (!dense || width % lanes != 0)) {
          alone();
        } else {
          b_.branch(along < width, [&] { store(along, y); });
        }
        return Expr{};
      });
      close(body, opened);
    });
  }
}

}  // namespace lumen::synth
