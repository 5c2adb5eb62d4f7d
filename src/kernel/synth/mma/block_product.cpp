// See block_product.h.
#include "kernel/synth/mma/block_product.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "kernel/synth/order/lane_pass.h"

namespace lumen::synth {

namespace {

constexpr int kRowsOfLanes = 8;  // of lanes, in a wave that multiplies without matrix instructions
constexpr int64_t kSwizzledRow = BlockProduct::kSwizzledRow;

// A wave's lanes as a rectangle; each multiplies its own sums.
loop::Fragment lane_sums(int wave) {
  return loop::fragment(32, 1, {{kRowsOfLanes, wave / kRowsOfLanes, 0}}, {{wave / kRowsOfLanes, 1, 0}});
}
loop::Fragment lane_rows(int wave) {
  return loop::fragment(32, 1, {{kRowsOfLanes, wave / kRowsOfLanes, 0}}, {{1, 0, 1}});
}
loop::Fragment lane_columns(int wave) {
  return loop::fragment(32, 1, {{wave / kRowsOfLanes, 1, 0}}, {{1, 0, 1}});
}

// Adds padding: if lanes read for themselves, those that write neighbours along k in several chunks would share a bank.
int64_t bytes_of_chunk(const BlockTile& tile, int64_t rows, int64_t chunk_k) {
  const int64_t row_bytes = chunk_k * scalar_bytes(tile.factor);
  const bool meet = !tile.swizzled() || (tile.swizzles && tile.stage_k > chunk_k);
  return rows * row_bytes + (meet && row_bytes % kSwizzledRow != 0 ? row_bytes : 0);
}

loop::Fragment sums_of(const BlockTile& tile) {
  return tile.row ? tile.row->collective->operands[0].fragment : lane_sums(tile.wave);
}

}  // namespace

Scalar sums_of_factor(const machine::Factor& factor) {
  return factor.scalar == Scalar::i8 ? Scalar::i32 : Scalar::f32;
}

int BlockTile::step_m() const {
  return row ? row->m : kRowsOfLanes;
}
int BlockTile::step_n() const {
  return row ? row->n : wave / kRowsOfLanes;
}

const machine::MatrixRow* find_matrix(const machine::Machine& m, const machine::Factor& factor, int size) {
  return find_matrix(m, Factors{factor, factor}, size);
}

const machine::MatrixRow* find_matrix(const machine::Machine& m, const Factors& factors, int size) {
  const machine::MatrixRow* best = nullptr;
  for (const machine::MatrixRow& r : m.matrices) {
    if (r.in_shared || r.scale_group > 0 || r.acc != sums_of_factor(factors.a)) continue;
    if (!(r.a == factors.a) || !(r.b == factors.b)) continue;
    if (r.m > size || r.n > size) continue;
    if (!best || int64_t{r.m} * r.n * r.k > int64_t{best->m} * best->n * best->k ||
        (int64_t{r.m} * r.n * r.k == int64_t{best->m} * best->n * best->k && r.m > best->m))
      best = &r;
  }
  return best;
}

const machine::MatrixRow* find_shared_matrix(const machine::Machine& m, const machine::Factor& factor, int n,
                                             bool a_transposed, bool b_transposed, bool a_in_registers) {
  return find_shared_matrix(m, Factors{factor, factor}, n, a_transposed, b_transposed, a_in_registers);
}

const machine::MatrixRow* find_shared_matrix(const machine::Machine& m, const Factors& factors, int n,
                                             bool a_transposed, bool b_transposed, bool a_in_registers) {
  for (const machine::MatrixRow& r : m.matrices)
    if (r.in_shared && r.a_in_registers == a_in_registers && r.n == n && r.acc == sums_of_factor(factors.a) &&
        r.a == factors.a && r.b == factors.b && r.a_transposed == a_transposed && r.b_transposed == b_transposed)
      return &r;
  return nullptr;
}

int64_t BlockProduct::step_k(const machine::Machine& m, const BlockTile& tile) {
  const int64_t unit = kUnit / scalar_bytes(tile.factor);
  if (!tile.row) return unit;
  if (tile.row->in_shared) return kSwizzledRow / scalar_bytes(tile.factor);
  if (tile.loads) return kSwizzledRow / 2 / scalar_bytes(tile.factor);
  const FragmentDigits holding = FragmentDigits::of(tile.row->collective->operands[1].fragment);
  const int64_t share = holding.column_parts.size();
  LUMEN_CHECK(m.wave > 1 && (share % unit == 0 || unit % share == 0), "a share of {} numbers", share);
  return tile.row->k * std::max<int64_t>(1, unit / share);
}

int64_t BlockProduct::chunk_of(const machine::Machine& m, const BlockTile& tile) {
  const int64_t step = step_k(m, tile);
  if (tile.loads) return tile.stage_k % (2 * step) == 0 ? 2 * step : step;
  if (tile.whole_rows) return tile.stage_k;
  // A short stage in one chunk needs no padding; a long one is in several, so that instructions wait for less.
  return tile.swizzles && tile.stage_k * scalar_bytes(tile.factor) <= kSwizzledRow / 2 ? tile.stage_k : step;
}

bool BlockProduct::can_load(const machine::Machine& m, const BlockTile& tile) {
  if (!tile.row || tile.row->in_shared || tile.row->scale_group > 0) return false;
  for (const Side side : {Side::a, Side::b}) {
    const bool beside = side == Side::a ? tile.a_beside : tile.b_beside;
    const auto& operand = tile.row->collective->operands[side == Side::a ? 1 : 2];
    const std::optional<FragmentLoads> found = FragmentLoads::of(m, operand.fragment, beside);
    if (!found || tile.tiles(side) % found->tiles != 0) return false;
    // Other tiles' places are the lane's own with bits flipped: bits of a group's number within a run must be separate.
    const int64_t bytes = tile.group_lines(side) * scalar_bytes(tile.factor);
    const bool apart =
        tile.lines(side) == tile.group_lines(side) || bytes % kSwizzledRow == 0 || (bytes & (bytes - 1)) == 0;
    if (beside && (!apart || tile.lines(side) * scalar_bytes(tile.factor) % kSwizzledRow != 0)) return false;
  }
  return true;
}

bool BlockProduct::can_swizzle(const machine::Machine& m, const BlockTile& tile) {
  if (!tile.row || tile.row->in_shared || tile.loads || tile.row->m % kSwizzle != 0 || tile.row->n % kSwizzle != 0)
    return false;
  for (const size_t operand : {1, 2}) {
    const FragmentDigits holding = FragmentDigits::of(tile.row->collective->operands[operand].fragment);
    const int64_t share = holding.column_parts.size() * step_k(m, tile) / tile.row->k * scalar_bytes(tile.factor);
    if (holding.row_parts.size() != 1 || share % kUnit != 0) return false;
  }
  return step_k(m, tile) * scalar_bytes(tile.factor) <= kSwizzledRow;
}

bool BlockProduct::can_have_whole_rows(const machine::Machine& m, const BlockTile& tile) {
  if (!can_swizzle(m, tile)) return false;
  const int64_t bytes = tile.stage_k * scalar_bytes(tile.factor), step = step_k(m, tile) * scalar_bytes(tile.factor);
  return bytes <= kSwizzledRow && (bytes & (bytes - 1)) == 0 && (step & (step - 1)) == 0 && bytes % step == 0;
}

int64_t BlockProduct::steps(const machine::Machine& m, const BlockTile& tile) {
  return tile.stage_k / step_k(m, tile);
}

void BlockProduct::prepare(Factor& f, const loop::Fragment& fragment, int64_t rows) {
  f.holding = FragmentDigits::of(fragment);
  f.rows = rows;
  const int64_t bytes = scalar_bytes(tile_.factor);
  f.row_bytes = chunk_k_ * bytes;
  f.chunk_bytes = bytes_of_chunk(tile_, rows, chunk_k_);
}

BlockProduct::BlockProduct(Builder& b, const machine::Machine& m, BlockTile tile) : b_(b), tile_(tile) {
  chunk_k_ = chunk_of(m, tile_);
  LUMEN_CHECK(tile_.stage_k % chunk_k_ == 0, "stages of {} in steps of {}", tile_.stage_k, chunk_k_);
  const loop::Fragment acc = sums_of(tile_);
  if (!tile_.row) {
    together_ = chunk_k_;
    prepare(a_, lane_rows(tile_.wave), tile_.m());
    prepare(c_, lane_columns(tile_.wave), tile_.n());
  } else {
    const auto& operands = tile_.row->collective->operands;
    together_ = (tile_.whole_rows ? step_k(m, tile_) : chunk_k_) / tile_.row->k;
    if (tile_.row->in_shared) {
      for (const Side side : {Side::a, Side::b})
        LUMEN_CHECK(!is_transposed(side) || tile_.stage_k % machine::kTransposedColumns == 0, "transposed panels of {}",
                    tile_.stage_k);
      for (Factor* f : {&a_, &c_}) {
        f->rows = tile_.lines(f == &a_ ? Side::a : Side::b);
        f->row_bytes = kSwizzledRow;
        f->chunk_bytes = f->rows * kSwizzledRow;
      }
    } else {
      prepare(a_, operands[1].fragment, tile_.m());
      prepare(c_, operands[2].fragment, tile_.n());
      LUMEN_CHECK(a_.holding.column_parts.size() == c_.holding.column_parts.size() &&
                  a_.holding.columns.size() == c_.holding.columns.size());
    }
    if (tile_.loads) {
      LUMEN_CHECK(can_load(m, tile_), "{} does not load factors of {}", m.name, tile_.row->row);
      a_.loads = FragmentLoads::of(m, operands[1].fragment, tile_.a_beside);
      c_.loads = FragmentLoads::of(m, operands[2].fragment, tile_.b_beside);
    }
  }
  acc_ = FragmentDigits::of(acc);
  acc_elements_ = acc.lane_bits / acc.bits;
  const auto run_of = [](const Digit& last) { return last.lanes == 0 && last.elements == 1 ? last.extent : 1; };
  run_ = run_of(acc_.columns.back());
  column_run_ = run_of(acc_.rows.back());
  for (int i = 0; i < tile_.tiles_m * tile_.tiles_n; ++i) sums_.push_back(b_.alloc(int64_t{acc_elements_} * 4, 16));
  LUMEN_CHECK(tile_.row || !tile_.scales_runs, "runs are scaled after matrix instructions");
  if (tile_.has_partial())
    for (int i = 0; i < tile_.tiles_m * tile_.tiles_n; ++i)
      partial_.push_back(b_.alloc(int64_t{acc_elements_} * 4, 16));
}

int64_t BlockProduct::panel_bytes(const machine::Machine& m, const BlockTile& tile, Side side) {
  const int64_t chunk_k = chunk_of(m, tile);
  return tile.stage_k / chunk_k * bytes_of_chunk(tile, tile.lines(side), chunk_k);
}

int64_t BlockProduct::panel_bytes(Side side) const {
  return tile_.stage_k / chunk_k_ * factor(side).chunk_bytes;
}

Expr BlockProduct::transposed_place(Side side, Expr unit, Expr k) {
  LUMEN_CHECK(is_transposed(side) && (tile_.loads || tile_.stage_k == machine::kTransposedColumns));
  const int64_t units = kSwizzledRow / kUnit;
  const Expr inside = (unit % units) ^ (k % units);
  const Expr run = unit / units * (tile_.stage_k * kSwizzledRow);
  return run + (k * kSwizzledRow + inside * kUnit);
}

Expr BlockProduct::place(Side side, Expr row, Expr unit) {
  LUMEN_CHECK(!is_transposed(side));
  const Factor& f = factor(side);
  const int64_t units = f.row_bytes / kUnit;
  Expr chunk = b_.i64(0), inside = unit;
  if (tile_.stage_k > chunk_k_) {
    chunk = unit / units * f.chunk_bytes;
    inside = unit % units;
  }
  if (tile_.swizzled()) inside = inside ^ swizzle_of(f, row);
  return chunk + (row * f.row_bytes + inside * kUnit);
}

Expr BlockProduct::place(Side side, Expr row, Expr unit, int64_t further, int64_t run) {
  const Factor& f = factor(side);
  const int64_t units = f.row_bytes / kUnit;
  if (tile_.swizzled() || (units % run != 0 && run % units != 0)) return place(side, row, unit + further);
  return place(side, row, unit) + (further / units * f.chunk_bytes + further % units * kUnit);
}

// Partial sums of instructions that keep few digits, and of panels with their own scales, begin at zero for every panel
// and are added in f32.
void BlockProduct::add_partial(const Scales* scales) {
  LUMEN_CHECK((scales != nullptr) == tile_.scales_runs, "scales of panels");
  const VType products = products_type(), sums = sums_type();
  for (int i = 0; i < tile_.tiles_m && !partial_.empty(); ++i)
    for (int j = 0; j < tile_.tiles_n; ++j) {
      const Expr before = b_.load(sum(i, j), sums, b_.i64(0), 16),
                 more = b_.load(product(i, j), products, b_.i64(0), 16);
      const Expr after = scales ? fma(cast(more, Scalar::f32), scales_of(*scales, i, j), before) : before + more;
      b_.store(sum(i, j), after, b_.i64(0), 16);
    }
}

// The scale of each of a lane's sums of an instruction.
Expr BlockProduct::scales_of(const Scales& scales, int i, int j) {
  const auto &rows = acc_.row_parts, &columns = acc_.column_parts;
  std::map<std::pair<int, int>, Expr> products;  // by value: most columns share theirs
  std::vector<Expr> of(acc_elements_);
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t c = 0; c < columns.size(); ++c) {
      const Expr row = scales.rows.empty() ? Expr{} : scales.rows[i * rows.size() + r];
      const Expr column = scales.columns.empty() ? Expr{} : scales.columns[j * columns.size() + c];
      Expr& x = products[{row.id(), column.id()}];
      if (!x.exists()) x = !row.exists() ? column : !column.exists() ? row : row * column;
      of[rows[r].element + columns[c].element] = x;
    }
  return b_.join(acc_elements_, [&](int element) { return of[element]; });
}

Expr BlockProduct::zero(VType type) {
  return is_float(type.scalar) ? b_.real(0, type) : b_.integer(0, type);
}

void BlockProduct::clear() {
  for (const BufferId s : sums_) b_.store(s, zero(sums_type()), b_.i64(0), 16);
}

// Bytes of a panel where a lane's share of its group's first instruction begins, or where its units are. With whole
// rows, the units of one step: they are neighbours, so that another step's units have the same places with bits
// flipped.
std::vector<Expr> BlockProduct::lane_places(Side side, Expr lane, int64_t step) {
  const Factor& f = factor(side);
  const Expr in_wave = lane % tile_.wave, mine = own_group(side, lane);
  const Expr row = mine * tile_.group_lines(side) + number_of(f.holding.rows, in_wave),
             group = group_of(f.holding.columns, in_wave);
  const int64_t share = f.holding.column_parts.size() * together_ * scalar_bytes(tile_.factor), units = share / kUnit;
  if (!tile_.swizzles) return {row * f.row_bytes + group * share};
  std::vector<Expr> places;
  for (int64_t unit = 0; unit < units; ++unit) {
    const Expr inside = (group * units + unit) ^ swizzle_of(f, row);
    const Expr place = row * f.row_bytes + inside * kUnit;
    const int64_t flipped = step * tile_.row->k * together_ * scalar_bytes(tile_.factor);
    places.push_back(flipped == 0 ? place : place ^ flipped);
  }
  return places;
}

BlockProduct::Shares BlockProduct::shares(Side side, Expr lane, Panel panel, int64_t step) {
  Shares out{panel.buffer, lane_places(side, lane, step)};
  for (Expr& place : out.from) place = panel.from + place;
  return out;
}

// XOR mask for the numbers of a row's units. Rows that fill all banks together have the same mask.
Expr BlockProduct::swizzle_of(const Factor& f, Expr row) {
  return row / (kSwizzledRow / f.row_bytes) % (f.row_bytes / kUnit);
}

void BlockProduct::multiply(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k,
                            const Scales* scales) {
  if (k < 0) k = tile_.stage_k;
  if (tile_.row && tile_.row->in_shared) return multiply_shared(lane, a, a_from, b, b_from, k, scales);
  if (tile_.loads) return multiply_loaded(lane, a, a_from, b, b_from, k);
  for (const BufferId s : partial_) b_.store(s, zero(products_type()), b_.i64(0), 16);
  const int64_t step_k = tile_.row ? tile_.row->k * together_ : chunk_k_;
  if (tile_.whole_rows)
    for (int64_t step = 0; step * step_k < k; ++step)
      multiply_chunk(shares(Side::a, lane, {a, a_from}, step), shares(Side::b, lane, {b, b_from}, step));
  else
    multiply_rows(shares(Side::a, lane, {a, a_from}), shares(Side::b, lane, {b, b_from}),
                  (k + chunk_k_ - 1) / chunk_k_);
  add_partial(scales);
}

void BlockProduct::multiply_rows(const Shares& a, const Shares& b, int64_t chunks) {
  // Loads of an unrolled loop may all be issued at once.
  constexpr int64_t kMostUnrolled = 4, kMostFetched = 160;  // registers
  const auto fetched = [&](const Factor& f, int tiles) {
    return static_cast<int64_t>(f.holding.row_parts.size() * f.holding.column_parts.size()) * together_ *
           scalar_bytes(tile_.factor) / 4 * tiles;
  };
  if (!tile_.row || chunks > kMostUnrolled ||
      chunks * (fetched(a_, tile_.tiles_m) + fetched(c_, tile_.tiles_n)) >= kMostFetched) {
    b_.loop(LoopKind::serial, b_.i64(0), b_.i64(chunks), 1,
            [&](Expr c) { multiply_chunk(a.further(c * a_.chunk_bytes), b.further(c * c_.chunk_bytes)); });
    return;
  }
  for (int64_t c = 0; c < chunks; ++c) multiply_chunk(a.further(c * a_.chunk_bytes), b.further(c * c_.chunk_bytes));
}

// A lane's numbers of the rows of one instruction, the first being `row` of its group's, for `together_` consecutive
// instructions.
BlockProduct::Runs BlockProduct::fetch(const Factor& f, const Shares& shares, int64_t row) {
  const int64_t units = shares.from.size();
  const VType type{tile_.factor, static_cast<int>(f.holding.column_parts.size() * together_ / units)};
  Runs runs;
  for (const Part& p : f.holding.row_parts) {
    Runs parts;
    for (const Expr& from : shares.from)
      parts.push_back(b_.load(shares.buffer, type, from + row * f.row_bytes + p.offset * f.row_bytes, kUnit));
    for (; parts.size() > 1; parts.resize(parts.size() / 2))
      for (size_t i = 0; i < parts.size() / 2; ++i) parts[i] = b_.concat(parts[2 * i], parts[2 * i + 1]);
    runs.push_back(parts[0]);
  }
  return runs;
}

// The operand of instruction `step` of a fetch.
Expr BlockProduct::operand(const Factor& f, const std::vector<Expr>& runs, size_t index, int64_t step) {
  const VType type = machine::operand_type(*tile_.row, index);
  if (runs.size() == 1 && b_.type(runs[0]).lanes == type.lanes && together_ == 1) return runs[0];
  return f.holding.operand(b_, type, runs, step);
}

// The side with fewer instructions is held in registers, the other one is streamed.
void BlockProduct::multiply_chunk(const Shares& a, const Shares& b) {
  const auto left = [&](int i) { return fetch(a_, a, i * tile_.step_m()); };
  const auto right = [&](int j) { return fetch(c_, b, j * tile_.step_n()); };
  const bool holds_left = tile_.tiles_m <= tile_.tiles_n;
  std::vector<std::vector<Expr>> kept;
  for (int h = 0; h < (holds_left ? tile_.tiles_m : tile_.tiles_n); ++h)
    kept.push_back(holds_left ? left(h) : right(h));
  for (int p = 0; p < (holds_left ? tile_.tiles_n : tile_.tiles_m); ++p) {
    const std::vector<Expr> passing = holds_left ? right(p) : left(p);
    for (int64_t step = 0; step < together_; ++step)
      for (int h = 0; h < std::ssize(kept); ++h)
        holds_left ? add_products(h, p, step, kept[h], passing) : add_products(p, h, step, passing, kept[h]);
  }
}

void BlockProduct::add_products(int i, int j, int64_t step, const Runs& left, const Runs& right) {
  const VType sums = products_type();
  const Expr before = b_.load(product(i, j), sums, b_.i64(0), 16);
  const Expr after =
      tile_.row ? b_.inst(tile_.row->row, sums, {before, operand(a_, left, 1, step), operand(c_, right, 2, step)})
                : fma(b_.extract(left[0], step), b_.extract(right[0], step), before);
  b_.store(product(i, j), after, b_.i64(0), 16);
}

// Byte of the panel row that a lane points at, for its group's first instructions and the first step of k.
Expr BlockProduct::loads_from(Side side, Expr lane) {
  const Expr in_wave = lane % tile_.wave, mine = own_group(side, lane), near = in_wave % FragmentLoads::kRows;
  const Expr row = mine * tile_.group_lines(side) + loads(side).row(in_wave), column = loads(side).column(in_wave);
  const int64_t unit = unit_elements();
  return is_transposed(side) ? transposed_place(side, row / unit, column + near)
                             : place(side, row + near, column / unit);
}

// The operands of all instructions of a side for one step of k. An offset within a swizzled row flips the same bits of
// every place.
std::vector<Expr> BlockProduct::load(Side side, BufferId buffer, Expr from, Expr lane_place, int64_t step) {
  const Factor& f = factor(side);
  const FragmentLoads& way = loads(side);
  const int lanes = FragmentLoads::kMatrices * 4 / scalar_bytes(tile_.factor);
  const VType all{tile_.factor, lanes};
  const VType one = machine::operand_type(*tile_.row, side == Side::a ? 1 : 2);
  const int64_t k = step * tile_.row->k, units = (is_transposed(side) ? kSwizzledRow : f.row_bytes) / kUnit;
  std::vector<Expr> out;
  for (int tile = 0; tile < tile_.tiles(side); tile += way.tiles) {
    const int64_t row = int64_t{tile} * tile_.step(side), unit = (is_transposed(side) ? row : k) / unit_elements();
    const int64_t further = is_transposed(side) ? unit / units * (tile_.stage_k * kSwizzledRow) + k * kSwizzledRow
                                                : unit / units * f.chunk_bytes + row * f.row_bytes;
    const Expr place = (lane_place ^ (unit % units * kUnit)) + further;
    const Expr loaded = b_.load_matrix(way.load->row, all, buffer, from + place);
    for (int t = 0; t < way.tiles; ++t) {
      std::vector<int> mask;
      for (int i = 0; i < one.lanes; ++i) mask.push_back(t * one.lanes + i);
      out.push_back(way.tiles == 1 ? loaded : b_.shuffle({loaded}, mask));
    }
  }
  return out;
}

// Software pipelining: operands of the next step are loaded while those of this one are multiplied.
void BlockProduct::multiply_loaded(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k) {
  const int64_t steps = (k + tile_.row->k - 1) / tile_.row->k;
  const Expr a_lane = loads_from(Side::a, lane), b_lane = loads_from(Side::b, lane);
  const VType sums = sums_type();
  std::vector<std::vector<Expr>> left, right;
  const auto fetch = [&](int64_t step) {
    left.push_back(load(Side::a, a, a_from, a_lane, step));
    right.push_back(load(Side::b, b, b_from, b_lane, step));
  };
  fetch(0);
  for (int64_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) fetch(step + 1);
    if (tile_.row->short_sums) continue;
    for (int j = 0; j < tile_.tiles_n; ++j)
      for (int i = 0; i < tile_.tiles_m; ++i) {
        const Expr before = b_.load(sum(i, j), sums, b_.i64(0), 16);
        b_.store(sum(i, j), b_.inst(tile_.row->row, sums, {before, left[step][i], right[step][j]}), b_.i64(0), 16);
      }
  }
  if (tile_.row->short_sums) multiply_short(left, right);
}

// Partial sums of a panel's products begin at zero and are added at once.
void BlockProduct::multiply_short(const std::vector<std::vector<Expr>>& left,
                                  const std::vector<std::vector<Expr>>& right) {
  const VType sums = sums_type();
  for (int j = 0; j < tile_.tiles_n; ++j)
    for (int i = 0; i < tile_.tiles_m; ++i) {
      Expr now = zero(sums);
      for (size_t step = 0; step < left.size(); ++step)
        now = b_.inst(tile_.row->row, sums, {now, left[step][i], right[step][j]});
      b_.store(sum(i, j), b_.load(sum(i, j), sums, b_.i64(0), 16) + now, b_.i64(0), 16);
    }
}

// Whether a lane's sums of neighbouring instructions, one after the other, are its operand.
bool BlockProduct::holds(const BlockTile& tile, const BlockTile& of) {
  if (!tile.loads || !of.loads || of.groups_n > 1 || of.tiles_m != tile.tiles_m) return false;
  if (!is_float(tile.row->acc) || scalar_bits(tile.factor) != 16) return false;
  const loop::Fragment &sums = of.row->collective->operands[0].fragment,
                       &factor = tile.row->collective->operands[1].fragment;
  const int64_t elements = sums.lane_bits / sums.bits, count = factor.columns / sums.columns;
  if (factor.columns % sums.columns != 0 || sums.rows != factor.rows || of.tiles_n % count != 0 ||
      factor.lane_bits / factor.bits != elements * count)
    return false;
  for (int64_t row = 0; row < factor.rows; ++row)
    for (int64_t column = 0; column < factor.columns; ++column) {
      const int64_t bit = sums.bit_of(row * sums.columns + column % sums.columns),
                    wanted = factor.bit_of(row * factor.columns + column);
      if (bit / sums.lane_bits != wanted / factor.lane_bits ||
          bit % sums.lane_bits / sums.bits + column / sums.columns * elements !=
              wanted % factor.lane_bits / factor.bits)
        return false;
    }
  return true;
}

void BlockProduct::multiply(Expr lane, const RegisterOperand& a, BufferId b, Expr b_from) {
  const VType sums = sums_type();
  const int64_t steps = std::ssize(a) / tile_.tiles_m;
  LUMEN_CHECK(tile_.loads && !tile_.row->short_sums && steps * tile_.row->k <= tile_.stage_k);
  const Expr place = loads_from(Side::b, lane);
  std::vector<Expr> right = load(Side::b, b, b_from, place, 0);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Expr> next;
    if (step + 1 < steps) next = load(Side::b, b, b_from, place, step + 1);
    for (int j = 0; j < tile_.tiles_n; ++j)
      for (int i = 0; i < tile_.tiles_m; ++i) {
        const Expr before = b_.load(sum(i, j), sums, b_.i64(0), 16);
        b_.store(sum(i, j), b_.inst(tile_.row->row, sums, {before, a[i * steps + step], right[j]}), b_.i64(0), 16);
      }
    right = std::move(next);
  }
}

// Products that read their factors from shared memory; waits for them.
void BlockProduct::multiply_shared(Expr lane, BufferId a, Expr a_from, BufferId b, Expr b_from, int64_t k,
                                   const Scales* scales) {
  begin(lane, nullptr, {a, a_from}, {b, b_from}, !partial_.empty(), k);
  b_.commit(loop::Flow::products);
  b_.wait(loop::Flow::products, 0);
  ready(scales);
}

void BlockProduct::begin(Expr lane, Panel a, Panel b, bool fresh) {
  begin(lane, nullptr, a, b, fresh, tile_.stage_k);
}

void BlockProduct::begin(Expr lane, const RegisterOperand& a, Panel b) {
  begin(lane, &a, {}, b, false, a.size() * tile_.row->k);
}

void BlockProduct::begin(Expr lane, const RegisterOperand* a_operand, Panel a, Panel b, bool fresh, int64_t k) {
  LUMEN_CHECK(tile_.row && tile_.row->in_shared && tile_.row->a_in_registers == (a_operand != nullptr));
  LUMEN_CHECK(!a_operand || tile_.tiles_m == 1, "{} rows of instructions are held", tile_.tiles_m);
  const VType sums = products_type();
  const Expr group = lane / tile_.wave;
  const Expr down = group / tile_.groups_n, across = group % tile_.groups_n;
  const int64_t step_bytes = tile_.row->k * scalar_bytes(tile_.factor);
  const int64_t steps = kSwizzledRow / step_bytes;
  // Rows of one instruction follow each other or (transposed) form runs of kSwizzledRow bytes, whose panels of
  // kTransposedColumns of k follow each other.
  const auto at = [&](Side side, Expr from, Expr mine, int64_t tile, int64_t step) {
    const Factor& f = factor(side);
    const int64_t bytes =
        tile_.step(side) *
        (is_transposed(side) ? scalar_bytes(tile_.factor) * machine::kTransposedColumns : kSwizzledRow);
    const int64_t transposed_k = step * tile_.row->k, columns = machine::kTransposedColumns;
    const int64_t inside = is_transposed(side)
                               ? transposed_k / columns * f.rows * scalar_bytes(tile_.factor) * columns +
                                     transposed_k % columns * kSwizzledRow
                               : step / steps * f.chunk_bytes + step % steps * step_bytes;
    return from + mine * (bytes * tile_.tiles(side)) + (tile * bytes + inside);
  };
  // All operands are read before the products, which then follow each other: registers are settled once for all of
  // them, and there is one wait.
  struct Chain {
    Expr sums;
    std::vector<std::pair<Expr, Expr>> factors;
  };
  std::vector<Chain> chains;
  for (int i = 0; i < tile_.tiles_m; ++i)
    for (int j = 0; j < tile_.tiles_n; ++j) {
      Chain& chain = chains.emplace_back();
      for (int64_t step = 0; step < k / tile_.row->k; ++step)
        chain.factors.emplace_back(a_operand ? (*a_operand)[step] : at(Side::a, a.from, down, i, step),
                                   at(Side::b, b.from, across, j, step));
      chain.sums = fresh ? zero(sums) : b_.load(product(i, j), sums, b_.i64(0), 16);
    }
  for (Chain& chain : chains)
    for (const auto& [left, right] : chain.factors)
      chain.sums = a_operand ? b_.product(tile_.row->row, chain.sums, left, b.buffer, right)
                             : b_.product(tile_.row->row, chain.sums, a.buffer, left, b.buffer, right);
  for (int i = 0; i < tile_.tiles_m; ++i)
    for (int j = 0; j < tile_.tiles_n; ++j) b_.store(product(i, j), chains[i * tile_.tiles_n + j].sums, b_.i64(0), 16);
}

void BlockProduct::ready(const Scales* scales) {
  const VType sums = products_type();
  for (const BufferId s : partial_.empty() ? sums_ : partial_)
    b_.store(s, b_.ready(b_.load(s, sums, b_.i64(0), 16)), b_.i64(0), 16);
  add_partial(scales);
}

void BlockProduct::ready(const RegisterOperand& a_operand) {
  for (const Expr x : a_operand) b_.ready(x);
}

// A lane's sums are exactly the factor that the instruction expects from it, in the same order.
BlockProduct::RegisterOperand BlockProduct::hold(const BlockProduct& of) {
  if (tile_.loads) {
    LUMEN_CHECK(holds(of));
    const int count = tile_.row->k / of.tile_.step_n();
    RegisterOperand out;
    for (int i = 0; i < of.tile_.tiles_m; ++i)
      for (int j = 0; j < of.tile_.tiles_n; j += count) {
        Expr all;
        for (int t = 0; t < count; ++t) {
          const Expr x = b_.load(of.sum(i, j + t), of.sums_type(), b_.i64(0), 16);
          all = all.exists() ? b_.concat(all, x) : x;
        }
        out.push_back(cast(all, tile_.factor));
      }
    return out;
  }
  const loop::Fragment &sums = of.tile_.row->collective->operands[0].fragment,
                       &factor = tile_.row->collective->operands[1].fragment;
  const int64_t elements = factor.lane_bits / factor.bits, steps = sums.columns / factor.columns;
  for (int64_t row = 0; row < sums.rows; ++row)
    for (int64_t column = 0; column < sums.columns; ++column) {
      const int64_t bit = sums.bit_of(row * sums.columns + column),
                    wanted = factor.bit_of(row * factor.columns + column % factor.columns);
      LUMEN_CHECK(bit / sums.lane_bits == wanted / factor.lane_bits &&
                      bit % sums.lane_bits / sums.bits ==
                          wanted % factor.lane_bits / factor.bits + column / factor.columns * elements,
                  "{} cannot hold sums of {}", tile_.row->row, of.tile_.row->row);
    }
  const VType share{Scalar::f32, static_cast<int>(elements)};
  RegisterOperand out;
  for (int j = 0; j < of.tile_.tiles_n; ++j)
    for (int64_t step = 0; step < steps; ++step)
      out.push_back(cast(b_.load(of.sum(0, j), share, b_.i64(step * elements * 4), 16), tile_.factor));
  return out;
}

void BlockProduct::each_sum(Expr lane, const Visit& visit) {
  change_sums(lane, [&](Expr m, Expr n, Expr x) {
    visit(m, n, x);
    return Expr{};
  });
}

void BlockProduct::change_sums(Expr lane, const Change& change) {
  for (int number = 0; number < lines(Side::a); ++number) {
    const Expr m = line(Side::a, lane, number);
    change_line(Side::a, lane, number, [&](Expr n, Expr x) { return change(m, n, x); });
  }
}

// The number of a lane's group among those down (across) the tile.
Expr BlockProduct::own_group(Side side, Expr lane) const {
  const Expr group = lane / tile_.wave;
  return side == Side::a ? group / tile_.groups_n : group % tile_.groups_n;
}

// The row (column) of the tile where a lane's first one lies.
Expr BlockProduct::first_line(Side side, Expr lane) {
  const Expr mine = own_group(side, lane), in_wave = lane % tile_.wave;
  return mine * tile_.group_lines(side) + number_of(digits(side), in_wave);
}

Expr BlockProduct::line(Side side, Expr lane, int number) {
  const int count = parts(side).size();
  return first_line(side, lane) + (number / count * tile_.step(side) + parts(side)[number % count].offset);
}

void BlockProduct::change_line(Side side, Expr lane, int number, const ChangeLine& change) {
  const Side across = other(side);
  const int count = parts(side).size(), tile = number / count;
  const Part& mine = parts(side)[number % count];
  const Expr first = first_line(across, lane);
  const VType type{sums_type().scalar, run(side)};
  for (int t = 0; t < tile_.tiles(across); ++t)
    for (const Part& p : parts(across)) {
      if (type.lanes > 1 && p.offset % type.lanes != 0) continue;
      const Expr along = first + (t * tile_.step(across) + p.offset);
      const Expr at = b_.i64(int64_t{mine.element + p.element} * 4);
      const BufferId sums = side == Side::a ? sum(tile, t) : sum(t, tile);
      const Expr x = change(along, cast(b_.load(sums, type, at, 4), Scalar::f32));
      if (!x.exists()) continue;
      LUMEN_CHECK(type.scalar == Scalar::f32, "sums of integers are only read");
      b_.store(sums, x, at, 4);
    }
}

Expr BlockProduct::fold_line(Side side, ScalarOp op, Expr x) {
  for (const Digit& d : digits(other(side)))
    for (int apart = 1; apart < (d.lanes > 0 ? d.extent : 1); apart *= 2)
      x = b_.op(op, x, b_.wave_shuffle(x, b_.lane_id() ^ (int64_t{apart} * d.lanes)));
  return x;
}

int BlockProduct::lanes_of_line(const BlockTile& tile, Side side) {
  const FragmentDigits sums = FragmentDigits::of(sums_of(tile));
  return FragmentDigits::lanes_extent(side == Side::a ? sums.columns : sums.rows);
}

Expr BlockProduct::leads_line(Side side, Expr lane) {
  return number_of(digits(other(side)), lane % tile_.wave) == 0;
}

Expr BlockProduct::group_across(Side side, Expr lane) const {
  return own_group(other(side), lane);
}

int BlockProduct::lanes_beside() const {
  const auto& digits = acc_.columns;
  if (digits.size() < 2 || run_ == 1) return 1;
  const Digit& lanes = digits[digits.size() - 2];
  const bool others = std::any_of(digits.begin(), digits.end() - 2, [](const Digit& d) { return d.lanes > 0; });
  if (lanes.lanes == 0 || others || (lanes.extent & (lanes.extent - 1)) != 0) return 1;
  const auto runs = static_cast<int>(acc_.column_parts.size()) / run_;
  const bool even = step_apart(runs) == apart_beside();
  int count = lanes.extent;
  while (runs * tile_.tiles_n % count != 0) count /= 2;
  return even ? count : 1;
}

// Columns from one run of a lane to the next.
int64_t BlockProduct::step_apart(int runs) const {
  return runs > 1 ? tile_.step_n() / runs : tile_.step_n();
}

Expr BlockProduct::number_beside(Expr lane, int lanes) {
  const int stride = acc_.columns[acc_.columns.size() - 2].lanes;
  const Expr in_wave = lane % tile_.wave;
  return in_wave / stride % lanes;
}

Expr BlockProduct::pass_beside(Expr lane, std::vector<Expr> runs) {
  const int stride = acc_.columns[acc_.columns.size() - 2].lanes;
  const Expr number = number_beside(lane, runs.size());
  for (Expr& run : runs) run = as_words(b_, run);
  return beside_each_other(b_, pass_among_lanes(b_, number, stride, std::move(runs)));
}

}  // namespace lumen::synth
