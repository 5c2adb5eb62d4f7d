// See dot_block_plan.h.
#include "kernel/synth/gemm/gpu/dot_block_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/gpu/block_zeros.h"
#include "kernel/synth/gemm/gpu/codes_stage.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {
namespace {

using Side = BlockProduct::Side;

constexpr int64_t kLeastWork = 4096;       // multiplications that are worth a block
constexpr int64_t kMostSums = 128;         // of a lane, in registers
constexpr int64_t kMostHeld = 192;         // the same with those of panels, if the instruction reads shared memory
constexpr int64_t kMostAhead = 208;        // registers of a lane: sums, and operands that are read ahead
constexpr double kMostBeside = 19.0 / 32;  // of a lane's registers: sums and what it fetches; factors need the rest
constexpr double kTransposed = 2.8;  // registers for a number of sixteen bits: apart on both sides, before it is moved
constexpr int kSchedulers = 4;       // of a multiprocessor
constexpr int64_t kSumsOfOne = 64 << 10;  // of a block that leaves no registers for a second one
constexpr double kMeeting = 128;          // cycles of barriers and waiting in a stage, if lanes fetch for themselves
constexpr int64_t kLeastSplitStages = 4;  // stages
constexpr int kColumnsBeside = 4;         // least lanes among which the columns of an instruction are divided
constexpr int kMostPanels = 4;            // of an operand
constexpr int kFewWaves = 4;              // of a block
constexpr size_t kCandidates = 4;
constexpr int kSmallGroup = 128;  // lanes of a block; a multiprocessor has registers for three such blocks
// Factor on the predicted cost of unpacking during products: in models less of a weight is in caches than in
// measurements.
constexpr double kInModels = 1.1;
constexpr double kLargeTile = 128 * 256, kSmallWalks = 1.12;  // elements; factor on stages of smaller persistent tiles
constexpr double kPromoting = 0.5;  // share of adding scaled sums of runs that overlapping products do not hide

bool is_copied(Supply s) {
  return s == Supply::copies || s == Supply::beside;
}

bool is_short(const DotLoad& l) {  // rounding to sixteen bits loses nothing
  return l.kind == DotLoad::Kind::packed ? l.format->block_bytes * 8 <= 16 * l.format->block
                                         : l.kind == DotLoad::Kind::memory && scalar_bytes(l.scalar) == 2;
}

class BlockChooser {
 public:
  BlockChooser(const DotProblem& p, const machine::Machine& m, const Factors& factors)
      : p_(p), m_(m), costs_(m.costs.blocks), multiplied_(factors), factor_(factors.a.scalar) {}

  std::vector<BlockPlan> choose() {
    for (const machine::MatrixRow* row : rows()) {
      const int wave = row ? row->collective->lanes : m_.wave;
      for (const int64_t m : {16, 32, 64, 128})
        for (const int64_t n : {16, 32, 64, 128})
          for (const auto& [down, across] : {std::pair{2, 2}, std::pair{1, 4}, std::pair{4, 1}, std::pair{2, 4}}) {
            BlockTile t{row, factor_, wave, down, across, 1, 1, 1};
            if (m % t.step_m() != 0 || n % t.step_n() != 0) continue;
            if (std::max(m, n) > 64 && (!row || m * n < 64 * 128))
              continue;  // no more sums than squares, but more reads
            t.tiles_m = m / t.step_m();
            t.tiles_n = n / t.step_n();
            consider(with_loads(t));
          }
    }
    for (const int n : {256, 192, 128, 64})
      if (const machine::MatrixRow* row =
              find_shared_matrix(m_, multiplied_, n, lies_beside(0, p_.m), lies_beside(1, p_.n)))
        for (const int down : {1, 2}) {
          consider({row, factor_, row->collective->lanes, down, 1, 1, 1, 1});
          // If a tile has all columns, only more rows reduce the reads of b.
          if (down > 1 && (p_.n.extent <= n || p_.loads[1].kind == DotLoad::Kind::packed))
            consider({row, factor_, row->collective->lanes, down, 1, 2, 1, 1});
        }
    // Among equals large instructions come first: they read less shared memory per product, or issue less.
    const auto width = [](const BlockPlan& t) { return t.tile.row ? t.tile.row->n : 0; };
    std::sort(plans_.begin(), plans_.end(), [&](const BlockPlan& x, const BlockPlan& y) {
      return x.cycles != y.cycles ? x.cycles < y.cycles : width(x) > width(y);
    });
    if (plans_.size() > kCandidates) plans_.resize(kCandidates);
    return std::move(plans_);
  }

 private:
  std::vector<const machine::MatrixRow*> rows() const {
    std::set<const machine::MatrixRow*> found;
    for (const int size : {16, 32})
      if (const machine::MatrixRow* row = find_matrix(m_, multiplied_, size)) found.insert(row);
    if (found.empty()) return {nullptr};
    return {found.begin(), found.end()};
  }

  // Whether sixteen bytes at a time are aligned: runs of numbers along `run`, `across` from one run to the next.
  bool is_aligned(size_t load, const DotIndex& run, const DotIndex& across) const {
    const auto whole = [&](int64_t elements) {
      return elements * scalar_bytes(p_.loads[load].scalar) % BlockProduct::kUnit == 0;
    };
    for (const auto* indices : {&p_.outer, &p_.outer_k, &p_.joint_m, &p_.joint_k})
      for (const DotIndex& i : *indices)
        if (!whole(i.strides[load])) return false;
    if (load == 1 && p_.pick && !whole(p_.pick->stride)) return false;
    if (const auto& zeros = p_.loads[load].zeros;
        zeros && !BlockZeros::keeps_runs(*zeros, BlockProduct::kUnit / scalar_bytes(p_.loads[load].scalar)))
      return false;
    return whole(p_.loads[load].offset) && (across.extent == 1 || whole(across.strides[load])) && whole(run.extent);
  }
  bool lies_beside(size_t load, const DotIndex& rows) const {
    const DotLoad& l = p_.loads[load];
    return l.kind == DotLoad::Kind::memory && l.scalar == factor_ && m_.async_copies && p_.k.strides[load] != 1 &&
           rows.strides[load] == 1 && is_aligned(load, rows, p_.k);
  }

  // Lanes load operands together if the machine can; contiguous rows only if tiles are wide.
  BlockTile with_loads(BlockTile t) const {
    if (p_.adds_runs() || !BlockProduct::can_load(m_, t)) {  // runs are scaled panel by panel
      t.swizzles = !m_.async_copies && BlockProduct::can_swizzle(m_, t);
      return t;
    }
    t.loads = true;
    for (const Side side : {Side::a, Side::b}) {
      BlockTile beside = t;
      const bool lies = side == Side::a ? lies_beside(0, p_.m) : lies_beside(1, p_.n);
      (side == Side::a ? beside.a_beside : beside.b_beside) = lies;
      if (lies && BlockProduct::can_load(m_, beside)) t = beside;
    }
    return t;
  }

  // Whether lanes copy an operand into its panel together.
  bool copies_together(size_t load, const DotIndex& rows) const {
    const DotLoad& l = p_.loads[load];
    return l.kind == DotLoad::Kind::memory && l.scalar == factor_ && m_.together_bytes == BlockProduct::kUnit &&
           !l.zeros && p_.k.strides[load] == 1 && is_aligned(load, p_.k, rows);
  }

  // Whether lanes have registers for operands of two steps besides their sums, and the number of steps is even.
  bool can_read_ahead(const BlockTile& tile) const {
    const int64_t lines = tile.group_lines(Side::a) + tile.group_lines(Side::b);
    const int64_t held = 2 * lines * BlockProduct::step_k(m_, tile) * scalar_bytes(factor_) / (4 * tile.wave);
    return !tile.has_partial() && sums_of(tile) + held <= kMostAhead && BlockProduct::steps(m_, tile) % 2 == 0;
  }

  Supply supply(size_t load, const DotIndex& rows, const BlockTile& tile, bool transposed) const {
    const int64_t stage_k = tile.stage_k;
    if (transposed) return Supply::beside;
    const DotLoad& l = p_.loads[load];
    const int64_t unit = BlockProduct::kUnit / scalar_bytes(factor_);
    if (l.kind == DotLoad::Kind::packed) {
      const int64_t block = l.format->block;
      const bool fits = block % unit == 0 && (block % stage_k == 0 || stage_k % block == 0);
      return fits && unpacks_along(p_, load, p_.k) ? Supply::packed : Supply::single;
    }
    if (l.kind != DotLoad::Kind::memory) return Supply::single;
    if (p_.k.strides[load] == 1) {
      const bool as_it_is = m_.async_copies ? l.scalar == factor_ && is_aligned(load, p_.k, rows)
                                            : tile.whole_rows && copies_together(load, rows);
      return as_it_is ? Supply::copies : Supply::along_k;
    }
    return rows.strides[load] == 1 && (is_float(l.scalar) || l.code) ? Supply::transposed : Supply::single;
  }

  void consider(BlockTile tile) {
    tile.scales_runs = p_.adds_runs();
    if (tile.scales_runs && !tile.row) return;
    const int64_t sums = sums_of(tile);
    const bool in_shared = tile.row && tile.row->in_shared, twice = tile.has_partial();
    const int64_t columns = scales_columns() ? int64_t{tile.step_n()} * tile.tiles_n / kColumnsBeside : 0;
    if (sums > kMostSums || sums * (twice ? 2 : 1) + columns > (in_shared ? kMostHeld : kMostSums)) return;
    const int64_t step = BlockProduct::step_k(m_, tile);
    // Stages of 128 bytes a row hide more latency; stages of 64 bytes are the fallback if those do not fit.
    for (const int64_t bytes : {128, 64}) {
      tile.stage_k = std::max(step, bytes / scalar_bytes(factor_) / step * step);
      tile.whole_rows = tile.swizzles && copies_together(0, p_.m) && copies_together(1, p_.n) &&
                        BlockProduct::can_have_whole_rows(m_, tile) && can_read_ahead(tile);
      if (tile.scales_runs && p_.run_k() % tile.stage_k != 0) continue;
      if (tile.stage_k % step == 0 && finish(tile)) return;
    }
  }

  bool finish(const BlockTile& tile) {
    BlockPlan t;
    t.tile = tile;
    t.a = supply(0, p_.m, tile, tile.transposed(Side::a));
    t.b = supply(1, p_.n, tile, tile.transposed(Side::b));
    const bool all_copies = is_copied(t.a) && is_copied(t.b);
    if (spills(t)) return false;
    // Zeros are written by copies only, and only rows of a are held.
    if (p_.reads_zeros() && (!all_copies || (p_.loads[1].zeros && t.b != Supply::beside))) return false;
    if (!p_.joint_k.empty() && (t.a != Supply::beside || t.b != Supply::beside)) return false;
    if (tile.scales_runs) t.run_stages = p_.run_k() / tile.stage_k;
    const int64_t stage = panel_bytes(tile) + (tile.scales_runs ? scale_bytes(tile) : 0);
    t.buffers = 2;
    t.chiplets = m_.chiplets;
    t.steps_ahead = tile.whole_rows;
    // A few waves that load for themselves leave room for another block, which multiplies while they wait at barriers.
    const int64_t shared = m_.shared_bytes - codes_shared_bytes(p_, tile, m_);
    const int64_t room = shared / (tile.loads && tile.lanes() <= kFewWaves * m_.wave ? 2 : 1);
    const bool by_lanes = !all_copies || tile.whole_rows;  // copies are in program order
    if (!by_lanes)
      while (t.buffers < kMostPanels && (t.buffers + 1) * stage <= room) ++t.buffers;
    if (t.buffers * stage > shared || (!p_.codes.empty() && !CodesStage(tile).fits())) return false;
    const bool halves = tile.stage_k * scalar_bytes(factor_) > 64;
    if (tile.loads && all_copies && t.buffers == 2 && halves)
      return false;  // smaller stages leave room for more of them in flight
    const bool alone = sums_of(tile) * tile.lanes() >= kSumsOfOne;
    if (by_lanes && t.buffers * stage * 2 > m_.shared_bytes && halves && !(tile.row && tile.row->in_shared) && !alone)
      return false;  // a smaller stage leaves room for another block, whose products hide this one's fetching
    t.m_tiles = ceil_div(p_.m.extent, tile.m());
    t.n_tiles = ceil_div(p_.n.extent, tile.n());
    t.per_k = ceil_div(p_.k.extent, tile.stage_k);
    t.stages = t.per_k * (p_.k_total() / p_.k.extent);
    for (size_t load = 0; load < 2; ++load)
      if ((load == 0 ? t.a : t.b) == Supply::packed)
        t.unrolled = std::max(t.unrolled, p_.loads[load].format->block / tile.stage_k);
    if (t.b == Supply::packed && m_.async_copies) {
      plan_weight_stages(t, shared);
    }
    // If lanes hold factors twice, no registers are left to unroll stages of a long block.
    if (t.unrolled > 1 && tile.row && tile.row->collective->operands[1].fragment.copies > 1) return true;
    const bool encodes = !p_.codes.empty();  // which needs complete sums
    for (const int64_t splits : splits_of(tile, p_.outer_extent() * t.m_tiles * t.n_tiles)) {
      t.split_stages = ceil_div(ceil_div(t.stages, splits), t.unrolled) * t.unrolled;
      t.splits = ceil_div(t.stages, t.split_stages);
      if (splits > 1 && (t.split_stages < kLeastSplitStages || encodes)) break;
      t.cycles = cost(t);
      plans_.push_back(t);
    }
    t.splits = 1;
    t.split_stages = t.stages;
    if (!by_lanes) consider_walks(t);
    return true;
  }

  // Stages b further ahead if there is room for it; not at all if there is none.
  void plan_weight_stages(BlockPlan& t, int64_t shared) const {
    for (const int panels : {BlockPlan::kUnpacked, 2}) {
      const bool ahead = panels > 2;
      t.buffers = panels;
      t.weight_stages = WeightStages::plan(p_, t.tile.stage_k, t.unrolled, t.tile.n(), t.tile.lanes(),
                                           ahead ? BlockPlan::kCopiedAhead + 1 : 2);
      if (ahead && !t.unpacks_ahead()) continue;
      const int64_t more = (t.panels_a() - panels) * BlockProduct::panel_bytes(m_, t.tile, Side::a);
      if (t.weight_stages && panels * panel_bytes(t.tile) + more + t.weight_stages->bytes() <= shared) return;
    }
    t.weight_stages.reset();
  }

  // Numbers of parts of K: powers of two. If groups of waves multiply from shared memory, of which a multiprocessor has
  // one or two at a time, also as many as give each multiprocessor one block, or two.
  std::vector<int64_t> splits_of(const BlockTile& tile, int64_t tiles) const {
    constexpr int64_t kMostDoubled = 32, kMost = 128;
    std::set<int64_t> out{1};
    for (int64_t splits = 2; splits <= kMostDoubled; splits *= 2) out.insert(splits);
    if (!tile.row || !tile.row->in_shared) return {out.begin(), out.end()};
    for (const int64_t blocks : {m_.units, 2 * m_.units})
      if (blocks / tiles >= 1 && blocks / tiles <= kMost) out.insert(blocks / tiles);
    return {out.begin(), out.end()};
  }

  // Persistent blocks, if there are several tiles for each. If some groups of waves add while others multiply, ends of
  // tiles are hidden as far as possible already. If waves multiply by themselves, other blocks hide the ends, and cards
  // of a generation differ too much in multiprocessors to fix the number of persistent blocks in advance.
  void consider_walks(BlockPlan t) {
    if (p_.pick || p_.blocks || t.tile.loads || t.tile.has_partial()) return;
    const int64_t tiles = p_.outer_extent() * t.m_tiles * t.n_tiles, least = TileScheduler::kLeastStages;
    if (t.stages < least) return;
    for (const bool stream_k : {false, true}) {
      t.scheduler = {tiles, t.stages, m_.units, stream_k};
      if (stream_k && !p_.codes.empty()) continue;
      if (stream_k ? !TileScheduler::can_stream_k(tiles, t.stages, m_.units) : tiles <= m_.units) continue;
      t.cycles = cost(t);
      plans_.push_back(t);
    }
  }

  static int64_t sums_of(const BlockTile& tile) {  // of a lane
    return int64_t{tile.tiles_m} * tile.tiles_n * tile.step_m() * tile.step_n() / tile.wave;
  }

  // Lanes that fetch for themselves hold a stage besides their sums. If an instruction's factors are held once (no
  // copies), enough registers are left: its sums have their own, or those factors take half as many.
  bool spills(const BlockPlan& t) const {
    const machine::MatrixRow* row = t.tile.row;
    if (m_.async_copies || (row && row->collective->operands[1].fragment.copies == 1)) return false;
    double held = sums_of(t.tile);
    for (const auto& [side, way] : {std::pair{Side::a, t.a}, {Side::b, t.b}}) {
      if (is_copied(way)) continue;
      const double bytes = scalar_bytes(factor_);
      const double registers = way == Supply::transposed && bytes == 2 ? kTransposed : bytes / 4;
      held += t.tile.lines(side) * t.tile.stage_k * registers / t.tile.lanes();
    }
    return held > kMostBeside * m_.registers;
  }

  // Cycles of a stage that nothing hides, if lanes fetch for themselves and their multiprocessor has no other block.
  double meeting(const BlockPlan& t) const {
    if (m_.async_copies || !t.tile.row || t.steps_ahead) return 0;
    const bool alone =
        2 * t.buffers * panel_bytes(t.tile) > m_.shared_bytes || sums_of(t.tile) * t.tile.lanes() >= kSumsOfOne;
    return alone ? kMeeting : 0;
  }

  int64_t panel_bytes(const BlockTile& tile) const {
    int64_t bytes = 0;
    for (const Side side : {Side::a, Side::b})
      bytes += ceil_div(BlockProduct::panel_bytes(m_, tile, side), BlockProduct::kAlign) * BlockProduct::kAlign;
    return bytes;
  }

  // Cycles of a multiprocessor for each number of a panel.
  double supply_cost(Supply s) const {
    switch (s) {
      case Supply::copies:
      case Supply::beside:
        return costs_.copied;
      case Supply::along_k:
        return costs_.along_k * (m_.async_copies ? 1 : double(scalar_bytes(factor_)) / 2);
      case Supply::transposed:
        return costs_.transposed;
      case Supply::packed:
        return costs_.packed;
      case Supply::single:
        return costs_.single;
    }
    LUMEN_UNREACHABLE("supply {}", ordinal(s));
  }

  double results() const { return double(p_.outer_extent()) * p_.m.extent * p_.n.extent; }

  // Parts of tiles are at different places of K at one time: what the second-level cache does not hold is read again
  // for each tile.
  double reread_bytes(const BlockPlan& t) const {
    const double bytes = scalar_bytes(factor_), k = p_.k_total(), a = p_.m.extent * k * bytes,
                 b = p_.n.extent * k * bytes;
    return std::max((a > kSecondCache ? t.n_tiles : 1) * a, (b > kSecondCache ? t.m_tiles : 1) * b);
  }

  // Groups of waves multiply panels that asynchronous copies fill. Blocks of a multiprocessor hide each other's
  // waiting, so a stage takes the time of all their products, or at least the latency of one.
  double cost_together(const BlockPlan& t) const {
    const machine::MatrixRow& row = *t.tile.row;
    const double m = t.tile.m(), n = t.tile.n(), units = m_.units;
    const double rate = double(row.m) * row.n * row.k / m_.find_row(row.row)->cycles;
    const double products = (m * n / rate * costs_.products_together + promotion(t)) * t.tile.stage_k;
    const double walks = t.scheduler.persistent_blocks > 0 && m * n < kLargeTile ? kSmallWalks : 1;
    const auto stages = [&](int64_t blocks) {
      return t.split_stages * std::max(blocks * products, costs_.stage_together) * walks;
    };
    const int64_t blocks = t.blocks(p_);
    if (t.scheduler.persistent_blocks > 0) {
      if (t.scheduler.tail() == 0)
        return costs_.enter_together + std::ceil(blocks / units) * (stages(1) + costs_.leave_together);
      const double partial = t.scheduler.persistent_blocks * m * n * 8;
      const double tail = double(t.scheduler.tail()) / blocks, all = blocks / units * stages(1);
      return costs_.enter_together + (1 - tail) * all +
             std::max(tail * all, tail * reread_bytes(t) / (units * costs_.bytes)) +
             (t.scheduler.waves() + 2) * costs_.leave_together + costs_.merge + partial / (units * costs_.merged_bytes);
    }
    const int64_t most = t.tile.lanes() > kSmallGroup ? 2 : 3;
    const int64_t beside = std::clamp<int64_t>(m_.shared_bytes / (t.buffers * panel_bytes(t.tile)), 1, most);
    const int64_t whole = blocks / (m_.units * beside), left = blocks % (m_.units * beside);
    double cycles = whole * (stages(beside) + costs_.enter_together);
    if (left > 0) cycles += stages(ceil_div(left, m_.units)) + costs_.enter_together;
    return t.splits > 1 ? cycles + cycles_of_parts(m_, results(), t.splits) : cycles;
  }

  // Lanes unpack b into panels while instructions read other panels: both use the bandwidth of shared memory, and other
  // instructions of the lanes hide little of it (measured: tiles of 128x64 to 256x128, four formats).
  double cost_unpacked(const BlockPlan& t) const {
    const machine::MatrixRow& row = *t.tile.row;
    const Format& f = *p_.loads[1].format;
    const double codes = double(t.tile.n()) * t.tile.stage_k, packed = codes / f.block * f.block_bytes;
    const double groups = double(t.tile.groups_m) * t.tile.groups_n * t.tile.tiles_m * t.tile.tiles_n;
    const double read = groups * (row.m + row.n) * t.tile.stage_k, written = t.tile.m() * t.tile.stage_k + codes;
    const double loads = packed / std::gcd(f.block_bytes, BlockProduct::kUnit) * costs_.unpacked_load;
    const double shared = ((read + written) * scalar_bytes(factor_) + packed) / costs_.cached_bytes + loads;
    const double code = t.unrolled > 1 ? costs_.unpacked_long : costs_.unpacked;
    const double blocks = t.blocks(p_), rounds = std::ceil(blocks / m_.units);
    double stage = shared + costs_.unpacked_stage + codes * code;
    if (blocks <= m_.units)
      stage = std::max(stage, costs_.unpacked_alone + codes / t.tile.lanes() * costs_.unpacked_lane);
    double cycles = rounds * (t.split_stages * stage + costs_.enter_together);
    return t.splits > 1 ? cycles + cycles_of_parts(m_, results(), t.splits) : cycles;
  }

  double cost(const BlockPlan& t) const {
    const machine::MatrixRow* row = t.tile.row;
    if (row && row->in_shared && is_copied(t.a) && is_copied(t.b)) return cost_together(t);
    if (t.unpacks_beside() && is_copied(t.a) && decodes_by_bytes(*p_.loads[1].format, m_))
      return kInModels * cost_unpacked(t);
    double rate = costs_.rate;
    if (row) {
      const machine::Row* instruction = m_.find_row(row->row);
      rate = double(row->m) * row->n * row->k / instruction->cycles * (row->in_shared ? 1 : kSchedulers);
    }
    const double m = t.tile.m(), n = t.tile.n();
    const double products = m * n / rate, fetch = m * supply_cost(t.a) + n * supply_cost(t.b);
    const bool hidden = is_copied(t.a) && is_copied(t.b);
    // Panel reads of lanes: shares of both factors for each instruction.
    const double reads =
        row && row->in_shared
            ? 0
            : m * n * scalar_bytes(factor_) / costs_.cached_bytes *
                  (1.0 / (t.tile.tiles_m * t.tile.step_m()) + 1.0 / (t.tile.tiles_n * t.tile.step_n()));
    const double unhidden = hidden || !m_.async_copies ? reads / 4 : 0;
    const double per_k = std::max(products, reads) + fetch + unhidden;
    double stage = (per_k + promotion(t)) * t.tile.stage_k + meeting(t);
    // Waves that wait for copies, while no other block hides that.
    if (hidden && row && m_.async_copies && t.blocks(p_) <= m_.units) stage = std::max(stage, costs_.stage_together);
    const double tile = stage * t.split_stages;
    const double block = tile + costs_.enter;
    const auto blocks = static_cast<double>(t.blocks(p_)), units = static_cast<double>(m_.units);
    if (t.scheduler.persistent_blocks > 0) {
      if (t.scheduler.tail() == 0) return costs_.enter + std::ceil(blocks / units) * (tile + costs_.leave);
      const double partial = t.scheduler.partial_tiles() * m * n * 8, waves = t.scheduler.waves(),
                   partial_tiles = blocks / units - waves;
      return costs_.enter + (waves + costs_.partial_tile * partial_tiles) * tile + (waves + 2) * costs_.leave +
             costs_.launch + partial / (units * costs_.bytes);
    }
    // Blocks on one multiprocessor hide each other's waiting.
    double cycles = std::ceil(blocks / units) * block * (blocks < 1.5 * units && !hidden ? costs_.alone : 1.0);
    if (t.splits > 1)
      cycles += costs_.launch + p_.outer_extent() * p_.m.extent * p_.n.extent * static_cast<double>(t.splits + 1) * 4 /
                                    (units * costs_.bytes);
    return cycles;
  }

  // Each column has its own scales, which lanes hold besides sums.
  bool scales_columns() const { return p_.run_scales[1] && p_.run_scales[1]->rows == 1; }
  // Scales of a stage, of every row and column at most.
  static int64_t scale_bytes(const BlockTile& tile) { return (tile.m() + tile.n()) * 4; }

  // Cycles of a multiprocessor per k for adding sums of runs under their scales, as far as products do not hide them: a
  // multiply-add of each sum, and a multiplication if each column has its own scale.
  double promotion(const BlockPlan& t) const {
    if (!t.tile.scales_runs) return 0;
    const double sums = static_cast<double>(t.tile.m()) * t.tile.n() * (scales_columns() ? 2 : 1);
    return sums / costs_.rate / (t.tile.stage_k * t.short_run()) * (t.overlaps() ? kPromoting : 1);
  }

  const DotProblem& p_;
  const machine::Machine& m_;
  const machine::BlockCosts& costs_;
  Factors multiplied_;
  Scalar factor_;
  std::vector<BlockPlan> plans_;
};

std::string_view supply_name(Supply s) {
  constexpr std::string_view kNames[] = {"copies", "copies beside", "along k", "transposed", "packed", "single"};
  return kNames[ordinal(s)];
}

}  // namespace

std::vector<BlockPlan> choose_blocks(const DotProblem& p, const machine::Machine& m, const Factors& factors) {
  for (size_t load = 0; load < 2; ++load)
    if (p.loads[load].zeros && !BlockZeros::can_count(*p.loads[load].zeros)) return {};
  if (m.wave <= 1 || p.m.extent * p.n.extent * p.k_total() < kLeastWork || p.n.extent < 2 || p.m.extent < 2) return {};
  return BlockChooser(p, m, factors).choose();
}

Factors choose_factors(const DotProblem& p, const machine::Machine& m, bool exact) {
  const DotLoad &a = p.loads[0], &b = p.loads[1];
  const auto both = [](Scalar s) { return Factors{{s, {}}, {s, {}}}; };
  const Factors own{{a.scalar, a.code}, {b.scalar, b.code}};
  if (a.kind == DotLoad::Kind::memory && b.kind == DotLoad::Kind::memory && a.scalar == b.scalar &&
      scalar_bytes(a.scalar) <= 2 && (is_float(a.scalar) || a.code || a.scalar == Scalar::i8) &&
      find_matrix(m, own, 32))
    return own;
  if (exact || (!is_short(a) && !is_short(b))) return both(Scalar::f32);
  for (const Scalar s : {Scalar::bf16, Scalar::f16})
    if (find_matrix(m, both(s), 32)) return both(s);
  return both(Scalar::f32);
}

double cycles_of_moving(const machine::Machine& m, double bytes) {
  return m.costs.blocks.launch + bytes / (m.units * m.costs.blocks.bytes);
}

bool BlockPlan::rounds(const DotProblem& p) const {
  return tile.factor != Scalar::f32 && std::any_of(p.loads.begin(), p.loads.begin() + 2, [&](const DotLoad& l) {
           return l.kind != DotLoad::Kind::memory || l.scalar != tile.factor;
         });
}

double cycles_of_parts(const machine::Machine& m, double elements, int64_t splits) {
  const machine::BlockCosts& costs = m.costs.blocks;
  return costs.merge + 4.0 * elements * (splits + 1) / (m.units * costs.merged_bytes);
}

std::string describe(const BlockPlan& t, const DotProblem& p) {
  std::string text = fmt::format("blocks {}x{}x{}", t.tile.m(), t.tile.n(), t.tile.stage_k);
  text += fmt::format(" {} {} {}{}", t.buffers, supply_name(t.a), supply_name(t.b), t.weight_stages ? " copies" : "");
  if (t.splits > 1) text += fmt::format(" splits {}", t.splits);
  if (t.scheduler.persistent_blocks > 0)
    text += fmt::format(" {} {}", t.scheduler.stream_k ? "stream-k" : "persistent", t.scheduler.persistent_blocks);
  if (t.run_stages > 0) text += fmt::format(" runs of {} scaled", p.run_k());
  if (p.reads_zeros()) text += " zeros by copies";
  if (!p.codes.empty()) text += p.extremes.empty() ? " with codes" : " with codes and extremes";
  if (t.rounds(p)) text += fmt::format(" rounded to {}", scalar_name(t.tile.factor));
  return text + " " + (t.tile.row ? t.tile.row->row : "f32 fma");
}

}  // namespace lumen::synth
