// See block_fill.h.
#include "kernel/synth/gemm/gpu/block_fill.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {

using Side = BlockProduct::Side;

BlockFill::BlockFill(DotWriter& w, const DotProblem& p, BlockProduct& product, const machine::Machine& m, Side side,
                     Supply supply)
    : w_(w),
      b_(w.b),
      p_(p),
      product_(product),
      m_(m),
      side_(side),
      supply_(supply),
      factor_(product.tile().factor),
      unit_(product.unit_elements()) {
  if (supply_ == Supply::transposed) down_ = unit_;
  if (supply_ == Supply::packed) along_ = std::min(p.loads[load()].format->block, product.tile().stage_k) / unit_;
  if (const auto& z = p.loads[load()].zeros) zeros_.emplace(b_, *z);
  LUMEN_CHECK(rows() % down_ == 0 && product_.units() % along_ == 0, "pieces of {}x{}", down_, along_);
}

BlockFill::ThreadTile BlockFill::thread_tile(Expr lane, int64_t round) {
  const int64_t across = product_.units() / along_;
  Expr number = lane + round * product_.tile().lanes();
  if (thread_tiles() % product_.tile().lanes() != 0) number = min(number, b_.i64(thread_tiles() - 1));
  return {number / across * down_, number % across * along_};
}

void BlockFill::where_thread_tile(Expr lane, int64_t round, int64_t all, const std::function<void()>& body) {
  const int64_t left = all - round * product_.tile().lanes();
  w_.where(left >= product_.tile().lanes() ? Expr{} : lane < left, body);
}

Expr BlockFill::row_in_memory(Expr row) {
  const Expr at = first_row_ + row;
  return index().extent % rows() == 0 ? at : min(at, b_.i64(index().extent - 1));
}

Expr BlockFill::row_at(Expr row) {
  const Expr at = row_in_memory(row);
  return is_joint() ? w_.row_of(load(), at) : at * index().strides[load()];
}

void BlockFill::hold_rows() {
  const int64_t all = product_.units() * rows(), lanes = product_.tile().lanes();
  if (supply_ != Supply::copies || (!is_joint() && !zeros_)) return;
  for (int64_t round = 0; round * lanes < all; ++round)
    for (int i = 0; i < (zeros_ ? zeros_->numbers() : 1); ++i) held_rows_.push_back(b_.alloc(zeros_ ? 4 : 8));
}

void BlockFill::enter_rows(Expr lane) {
  const size_t each = zeros_ ? zeros_->numbers() : 1;
  for (size_t round = 0; round * each < held_rows_.size(); ++round) {
    const Expr number = lane + int64_t(round) * product_.tile().lanes();
    const Expr row = row_at(min(number / product_.units(), b_.i64(rows() - 1)));
    if (!zeros_) {
      b_.store(held_rows_[round], row, b_.i64(0), 8);
      continue;
    }
    const BlockZeros::Place place = zeros_->first_place(base_ + row, p_.loads[load()].elements);
    b_.store(held_rows_[round * each], place.element, b_.i64(0), 4);
    for (size_t i = 1; i < each; ++i) b_.store(held_rows_[round * each + i], place.along[i - 1], b_.i64(0), 4);
  }
}

BlockZeros::Place BlockFill::held_row(int64_t round) {
  const int each = zeros_->numbers();
  const auto number = [&](int i) { return b_.load(held_rows_[round * each + i], {Scalar::u32, 1}, b_.i64(0), 4); };
  BlockZeros::Place out{number(0), {}};
  for (int i = 1; i < each; ++i) out.along.push_back(number(i));
  return out;
}

int64_t BlockFill::reach(const std::vector<DotIndex>& indices) const {
  int64_t last = 0;
  for (const DotIndex& i : indices) last += (i.extent - 1) * i.strides[load()];
  return last;
}

// Nothing is read if a window leaves the image, or past the end of K.
void BlockFill::copy_existing(BufferId panel, Expr to, const BlockZeros::Place& row, const BlockZeros::Place& k,
                              Expr exists) {
  const Expr inside = zeros_->inside(row, k);
  const Expr count = count_if(exists.exists() ? inside & exists : inside);
  const Expr from = zeros_->element(row, k) * scalar_bytes(factor_);
  b_.copy(panel, to, w_.buffer(load()), from, BlockProduct::kUnit, count);
}

void BlockFill::copy_rows_in_zeros(Expr lane, const StagePosition& at, BufferId panel, Expr to) {
  const int64_t lanes = product_.tile().lanes(), stage = product_.tile().stage_k, across = product_.units();
  const int64_t all = across * rows(), rounds = (all + lanes - 1) / lanes;
  std::vector<DotIndex> sums = p_.outer_k;
  sums.push_back(p_.k);
  const int64_t most = reach(sums);
  // If every run of a stage is within one place of the image, the place is the same for all lanes.
  const bool is_shared =
      BlockZeros::keeps_runs(*p_.loads[load()].zeros, stage) && p_.k.extent % stage == 0 &&
      std::ranges::all_of(p_.outer_k, [&](const DotIndex& i) { return i.strides[load()] % stage == 0; });
  const Expr first = at.outer + at.k;
  const BlockZeros::Place shared = is_shared ? zeros_->place(first, most) : BlockZeros::Place{};
  const auto copy_unit = [&](int64_t round, Expr unit, Expr place) {
    BlockZeros::Place k = shared;
    if (is_shared)
      k.element = k.element + cast(unit * unit_, Scalar::u32);
    else
      k = zeros_->place(first + unit * unit_, most);
    const Expr exists = p_.k.extent % stage == 0 ? Expr{} : at.k + unit * unit_ < p_.k.extent;
    copy_existing(panel, place, held_row(round), k, exists);
  };
  const bool is_even = lanes % across == 0 && lanes / across % BlockProduct::kSwizzle == 0 && all % lanes == 0;
  if (is_even) {
    const Expr unit = lane % across, place = to + product_.place(side_, lane / across, unit);
    for (int64_t round = 0; round < rounds; ++round)
      copy_unit(round, unit, place + round * (lanes / across) * product_.row_bytes(side_));
    return;
  }
  for (int64_t round = 0; round < rounds; ++round)
    where_thread_tile(lane, round, all, [&] {
      const Expr number = lane + round * lanes, unit = number % across;
      copy_unit(round, unit, to + product_.place(side_, number / across, unit));
    });
}

// A lane copies one unit of each run of a swizzled row, at the same k.
void BlockFill::copy_beside_in_zeros(Expr lane, const StagePosition& at, BufferId panel, Expr to) {
  constexpr int64_t kRun = BlockProduct::kSwizzle;
  const int64_t lanes = product_.tile().lanes(), stage = product_.tile().stage_k, units = rows() / unit_;
  const int64_t across = units % kRun == 0 ? kRun : units, runs = units / across, all = across * stage;
  const bool is_joint_k = !p_.joint_k.empty(), is_ragged = p_.k.extent % stage != 0;
  std::vector<DotIndex> places = p_.outer;
  places.push_back(index());
  places.insert(places.end(), p_.outer_k.begin(), p_.outer_k.end());
  const int64_t most = p_.loads[load()].offset + reach(places);
  const int64_t most_k = is_joint_k ? reach(p_.joint_k) : reach({p_.k});
  const auto place_of_run = [&](Expr unit) {
    Expr row = unit * unit_;
    if (index().extent % rows() != 0) row = min(row, index().extent - unit_ - first_row_);
    return zeros_->first_place(base_ + at.outer + first_row_ + row, most);
  };
  const auto copy_runs = [&](Expr number, const std::vector<BlockZeros::Place>& first) {
    const Expr unit = number % across, down = number / across, k = at.k + down;
    const Expr last = is_ragged ? min(k, b_.i64(p_.k.extent - 1)) : k;
    const BlockZeros::Place row =
        zeros_->place(is_joint_k ? w_.sum_of(load(), last) : last * p_.k.strides[load()], most_k);
    for (int64_t run = 0; run < runs; ++run)
      copy_existing(panel, to + product_.transposed_place(side_, unit + run * across, down), first[run], row,
                    is_ragged ? k < p_.k.extent : Expr{});
  };
  const auto places_of = [&](Expr unit) {
    std::vector<BlockZeros::Place> out;
    for (int64_t run = 0; run < runs; ++run) out.push_back(place_of_run(unit + run * across));
    return out;
  };
  const bool is_even = lanes % across == 0;
  const std::vector<BlockZeros::Place> first = is_even ? places_of(lane % across) : std::vector<BlockZeros::Place>{};
  for (int64_t round = 0; round * lanes < all; ++round)
    where_thread_tile(lane, round, all, [&] {
      const Expr number = lane + round * lanes;
      copy_runs(number, is_even ? first : places_of(number % across));
    });
}

Expr BlockFill::zero_unit() {
  const VType type{factor_, static_cast<int>(unit_)};
  return is_float(factor_) ? b_.real(0, type) : b_.integer(0, type);
}

// Bytes of a unit's copy if it exists; a copy of 0 bytes reads nothing.
Expr BlockFill::count_if(Expr exists) {
  return select(exists, b_.i64(BlockProduct::kUnit), b_.i64(0));
}

// Count of numbers from `from` on that come before `extent`, at most `most`.
Expr BlockFill::count_left(Expr from, int64_t extent, int64_t most) {
  return min(max(extent - from, b_.i64(0)), b_.i64(most));
}

// Each lane copies units that are a fixed number of rows apart: their addresses differ by a constant or (rows that do
// not exist) by little more. For wide contiguous rows it copies one unit of each run of a swizzled row, at the same k,
// and computes its address in memory once.
void BlockFill::copy(Expr lane, const StagePosition& at, BufferId panel, Expr to) {
  constexpr int64_t kRun = BlockProduct::kSwizzle;
  const bool beside = supply_ == Supply::beside, together = product_.tile().whole_rows;
  if (zeros_) return beside ? copy_beside_in_zeros(lane, at, panel, to) : copy_rows_in_zeros(lane, at, panel, to);
  const int64_t bytes = scalar_bytes(factor_), stage = product_.tile().stage_k, lanes = product_.tile().lanes();
  const int64_t row_stride = beside ? 1 : index().strides[load()], k_stride = beside ? p_.k.strides[load()] : 1;
  const int64_t down_stride = beside ? k_stride : row_stride;
  const bool whole = index().extent % rows() == 0, joint_k = beside && !p_.joint_k.empty(),
             joint_m = !beside && is_joint();
  // Rows that do not exist become zeros: otherwise all blocks would read the last row, from one place of the cache.
  const bool asks_count = m_.async_copies;
  // The panel's swizzle repeats every few rows.
  const auto apart_of = [&](int64_t units) {
    return lanes % units == 0 && lanes / units % kRun == 0 ? lanes / units : 0;
  };
  // Units across: along k within rows of a panel; along rows if those are contiguous (`beside`). Down: the other.
  const int64_t all_across = beside ? rows() / unit_ : product_.units();
  const bool in_runs = beside && all_across % kRun == 0 && (joint_k || apart_of(all_across) == 0);
  const int64_t across = in_runs ? kRun : all_across, runs = all_across / across;
  const int64_t all = across * (beside ? stage : rows()), apart = apart_of(across);
  const auto place_of = [&](Expr down, Expr unit) {
    return to + (beside ? product_.transposed_place(side_, unit, down) : product_.place(side_, down, unit));
  };
  Expr origin = base_ + at.outer;
  if (!joint_m) origin = origin + first_row_ * row_stride;
  if (!joint_k) origin = origin + at.k * k_stride;
  const auto copy_rounds = [&](int64_t first, int64_t last, Expr unit, Expr down) {
    const Expr k = at.k + (beside ? down : unit * unit_);
    std::vector<Expr> places, near, counts;
    for (int64_t run = 0; run < runs; ++run) {
      const Expr u = run == 0 ? unit : unit + run * across;
      Expr across_at = u * unit_;
      if (beside && !whole) {
        const Expr last_unit = index().extent - unit_ - first_row_;
        if (asks_count) counts.push_back(count_if(across_at <= last_unit));
        across_at = min(across_at, last_unit);
      }
      places.push_back(together ? to + first * lanes * BlockProduct::kUnit : place_of(down, u));
      near.push_back(origin + across_at);
    }
    for (int64_t round = first; round < last; ++round) {
      const int64_t further = (round - first) * apart;
      const auto element = [&](Expr from) { return from + down * down_stride + further * down_stride; };
      Expr row, count;
      if (joint_k) {
        const Expr number = k + further;
        row = w_.sum_of(load(), p_.k.extent % stage == 0 ? number : min(number, b_.i64(p_.k.extent - 1)));
      } else if (joint_m) {
        row = held_rows_.empty() ? row_at(down + further) : b_.load(held_rows_[round], {Scalar::i64, 1}, b_.i64(0), 8);
      } else if (!beside && !whole) {
        const auto narrow = [&](Expr x) { return cast(x, Scalar::i32); };
        const Expr last_row = index().extent - 1 - first_row_;
        if (asks_count) count = count_if(narrow(down + further) <= narrow(last_row));
        row = cast(min(narrow(down + further), narrow(last_row)), Scalar::i64) * down_stride;
      }
      const auto each_run = [&](const std::function<void(Expr place, Expr near, Expr count)>& body) {
        for (int64_t run = 0; run < runs; ++run)
          body(places[run] + further * product_.row_bytes(side_), near[run], counts.empty() ? count : counts[run]);
      };
      const auto begin = [&] {
        each_run([&](Expr place, Expr from, Expr exists) {
          const Expr number = row.exists() ? from + row : element(from);
          if (together)
            b_.copy_together(panel, place, w_.buffer(load()), number * bytes, BlockProduct::kUnit);
          else
            b_.copy(panel, place, w_.buffer(load()), number * bytes, BlockProduct::kUnit, exists);
        });
      };
      if (p_.k.extent % stage == 0) {
        begin();
        continue;
      }
      b_.branch((beside ? k + further : k) < p_.k.extent, begin, [&] {
        each_run([&](Expr place, Expr, Expr) {
          const Expr own = together ? place + lane * BlockProduct::kUnit : place;
          b_.store(panel, zero_unit(), own, BlockProduct::kUnit);
        });
      });
    }
  };
  const int64_t rounds = (all + lanes - 1) / lanes;
  const auto from = [&](int64_t first, int64_t last) {
    const Expr number = lane + first * lanes, down = number / across;
    copy_rounds(first, last, together ? product_.unit_at(side_, down, number % across) : number % across, down);
  };
  if (apart > 0 && all % lanes == 0) return from(0, rounds);
  for (int64_t round = 0; round < rounds; ++round) where_thread_tile(lane, round, all, [&] { from(round, round + 1); });
}

std::vector<Expr> BlockFill::fetch(Expr lane, const StagePosition& at, BufferId panel, Expr to) {
  std::vector<Expr> out;
  if (supply_ == Supply::packed && sharing() > 1) {
    unpack_shares(lane, at, panel, to);
    return out;
  }
  const bool ragged = p_.k.extent % product_.tile().stage_k != 0;
  for (int64_t round = 0; round < rounds(); ++round) {
    const ThreadTile thread_tile = this->thread_tile(lane, round);
    if (supply_ == Supply::transposed) {
      fetch_transposed(thread_tile, at, out);
    } else if (supply_ == Supply::packed) {
      where_thread_tile(lane, round, thread_tiles(), [&] { unpack(thread_tile, at, panel, to, 0, along_); });
    } else {
      const Expr k = at.k + thread_tile.unit * unit_;
      const bool masked = p_.k.strides[load()] == 1 && p_.loads[load()].kind == DotLoad::Kind::memory;
      const Expr inside = ragged && !masked ? min(k, b_.i64(p_.k.extent - 1)) : k;
      const Expr element = base_ + at.outer + (row_at(thread_tile.row) + inside * p_.k.strides[load()]);
      const Expr count = ragged ? count_left(k, p_.k.extent, unit_) : Expr{};
      const Expr x = w_.read(load(), element, p_.k.strides[load()], unit_, count);
      Expr y = b_.type(x).scalar == factor_ ? x : cast(x, factor_);
      if (ragged && !masked) {
        std::vector<int64_t> numbers;
        for (int64_t i = 0; i < unit_; ++i) numbers.push_back(i);
        const Expr exists = b_.lanes_integer(numbers, Scalar::i64) < b_.splat(count, unit_);
        y = select(exists, y, zero_unit());
      }
      out.push_back(y);
    }
  }
  return out;
}

// Loads as many numbers of k as a unit holds, for as many rows, which are contiguous in memory.
void BlockFill::fetch_transposed(const ThreadTile& thread_tile, const StagePosition& at, std::vector<Expr>& out) {
  const DotLoad& l = p_.loads[load()];
  const int lanes = unit_;
  const Expr row = first_row_ + thread_tile.row;
  const bool whole_rows = index().extent % rows() == 0, whole_k = p_.k.extent % product_.tile().stage_k == 0;
  Expr count = whole_rows ? Expr{} : count_left(row, index().extent, unit_);
  std::vector<Expr> tile;
  for (int64_t i = 0; i < unit_; ++i) {
    const Expr k = at.k + (thread_tile.unit * unit_ + i);
    Expr here = count;
    if (!whole_k) here = select(k < p_.k.extent, whole_rows ? b_.i64(unit_) : count, b_.i64(0));
    const Expr element = base_ + at.outer + (row + k * p_.k.strides[load()]);
    const Expr x = w_.read(load(), element, 1, lanes, here);
    tile.push_back(l.scalar == factor_ ? x : cast(x, factor_));
  }
  transpose(b_, tile);
  out.insert(out.end(), tile.begin(), tile.end());
}

int64_t BlockFill::sharing() const {
  const int64_t lanes = product_.tile().lanes();
  if (!stages_ || lanes % thread_tiles() != 0 || thread_tiles() % product_.tile().wave != 0) return 1;
  return std::gcd(lanes / thread_tiles(), along_);
}

void BlockFill::unpack_shares(Expr lane, const StagePosition& at, BufferId panel, Expr to) {
  const int64_t across = product_.units() / along_, count = along_ / sharing();
  for (int64_t share = 0; share < sharing(); ++share) {
    const Expr number = lane - share * thread_tiles();
    const Expr mine = (b_.i64(0) <= number) & (number < thread_tiles());
    const ThreadTile thread_tile{number / across * down_, number % across * along_};
    w_.where(mine, [&] { unpack(thread_tile, at, panel, to, share * count, count); });
  }
}

void BlockFill::unpack(const ThreadTile& thread_tile, const StagePosition& at, BufferId panel, Expr to, int64_t first,
                       int64_t count) {
  const DotLoad& l = p_.loads[load()];
  const int64_t block = l.format->block;
  Unpack cursor(b_, *l.format, w_.buffer(load()), l.rows, l.columns);
  cursor.use(m_);
  cursor.make_of_bytes();
  const Expr element = base_ + at.outer + row_in_memory(thread_tile.row) * index().strides[load()];
  if (!stages_ || l.format->row_bytes > 0 || l.format->tensor_bytes > 0) cursor.enter_row(element / l.columns);
  // Past the end of K the last block is read again, and not used.
  Expr k = at.k + thread_tile.unit * unit_;
  const bool ragged = p_.k.extent % product_.tile().stage_k != 0;
  const Expr exists = ragged ? k < p_.k.extent : Expr{};
  if (ragged) k = min(k, b_.i64(p_.k.extent - along_ * unit_));
  if (stages_)
    stages_->enter_block(cursor, thread_tile.row, k);
  else
    cursor.enter_block((element + k) / block);
  for (int64_t i = first; i < first + count; ++i) {
    const Expr x = cursor.values(at.position + i * unit_, unit_);
    Expr y = factor_ == Scalar::f32 ? x : cast(x, factor_);
    if (ragged) y = select(b_.splat(exists, unit_), y, zero_unit());
    b_.store(panel, y, to + product_.place(side_, thread_tile.row, thread_tile.unit, i, along_), BlockProduct::kUnit);
  }
}

void BlockFill::put(Expr lane, const std::vector<Expr>& fetched, BufferId panel, Expr to) {
  if (supply_ == Supply::packed) return;
  size_t next = 0;
  for (int64_t round = 0; round < rounds(); ++round) {
    const ThreadTile thread_tile = this->thread_tile(lane, round);
    const size_t first = next;
    const auto all = [&] {
      next = first;
      for (int64_t row = 0; row < down_; ++row)
        for (int64_t unit = 0; unit < along_; ++unit)
          b_.store(panel, fetched[next++],
                   to + product_.place(side_, thread_tile.row + row, thread_tile.unit, unit, along_),
                   BlockProduct::kUnit);
    };
    where_thread_tile(lane, round, thread_tiles(), all);
  }
}

}  // namespace lumen::synth
