// See attend_block_plan.h. Proved by tests/kernel/synth/attention/synth_attend_block_test.cpp.
#include "kernel/synth/attention/gpu/attend_block_plan.h"

#include <algorithm>
#include <numeric>

#include "base/round_up.h"

namespace lumen::synth {

using Side = BlockProduct::Side;

namespace {

constexpr int64_t kMostSums = 108;        // of a lane, which also holds factors
constexpr int64_t kMostSumsCopied = 180;  // where there is no other plan of that kind
constexpr int64_t kMostSumsAlone = 136;   // where factors stay in shared memory
constexpr int64_t kMostStationary = 64;   // lines: more would leave one block, not two that hide each other's latency
constexpr int64_t kMostStreamed = 64;
constexpr int kMostWaves = 8;
constexpr int kGoodWaves = 4;  // of a block, to load with
constexpr int64_t kEnoughBlocks = 128;
constexpr double kFetch = 16;             // lines whose products take as long as fetching one
constexpr int64_t kFewestPipelined = 33;  // stationary lines
constexpr int64_t kMostPipelined = 224;   // registers of a lane's sums and held factors
constexpr int kGroups = 2;                // that take turns
constexpr int64_t kGroupLines = 64;       // of a tile
constexpr int64_t kWideStreamed = 128;    // lines
constexpr int64_t kMostWide = 176;        // registers, of one of several groups
constexpr int64_t kPipelinedPanels = 2;
constexpr int64_t kStatistics = 4096;    // bytes: rows' extremes, bounds
constexpr int64_t kOneBlock = 64 << 10;  // bytes of shared memory for which one block alone pays

// A panel's bytes, at most; see block_product.cpp.
int64_t panel_bytes(int64_t rows, int64_t k, Scalar factor) {
  return round_up((rows + 1) * k * scalar_bytes(factor), BlockProduct::kAlign);
}

int64_t shared_bytes(const AttendPlan& p, const AttendProblem& problem) {
  const int64_t step_k = BlockProduct::step_k(*p.machine, p.product(1));
  int64_t resident = 0, all = 0, most = 0;
  if (!p.copies) resident = problem.sources * panel_bytes(p.stationary, p.streamed, p.factor);
  for (const int64_t k : problem.stationary_widths)
    resident += panel_bytes(p.stationary, round_up(k, step_k), p.factor);
  const auto streamed = [&](int64_t bytes) {
    all += bytes;
    most = std::max(most, bytes);
  };
  for (const int64_t k : problem.streamed_widths) streamed(panel_bytes(p.streamed, round_up(k, step_k), p.factor));
  if (p.copies) return resident + kPipelinedPanels * all + kStatistics;
  for (const int64_t w : problem.results)
    streamed(panel_bytes(p.result(w).lines(p.streamed_side()), p.streamed, p.factor));
  return resident + (p.one_by_one ? most : all) + kStatistics;
}

int64_t sums(const AttendPlan& p, const AttendProblem& problem) {
  int64_t columns = problem.products * p.streamed;
  for (const int64_t w : problem.results) columns += p.result(w).lines(p.streamed_side());
  return p.stationary * columns / p.lanes();
}

// 32-bit registers of a lane for both factors of an instruction.
int64_t factor_registers(const AttendPlan& p) {
  if (!p.row) return 0;
  const auto& operands = p.row->collective->operands;
  return (operands[1].fragment.lane_bits + operands[2].fragment.lane_bits) / 32;
}

// Rates a plan; 0: it is not possible.
double worth(const AttendPlan& p, const AttendProblem& problem, int64_t most_sums = kMostSums) {
  const int64_t stationary_unit = p.step(p.stationary_side) * p.down,
                streamed_unit = p.step(p.streamed_side()) * p.across;
  if (p.stationary % stationary_unit != 0 || p.streamed % streamed_unit != 0) return 0;
  if (p.streamed % BlockProduct::step_k(*p.machine, p.product(1)) != 0) return 0;
  if (p.in_shared()) {
    for (const int64_t w : problem.results)
      if (!p.result(w).row) return 0;
    if (p.across > 1 || p.streamed != machine::kTransposedColumns || sums(p, problem) > kMostSumsAlone) return 0;
  } else if (sums(p, problem) > most_sums - 2 * factor_registers(p)) {
    return 0;
  }
  const int64_t half = p.machine->shared_bytes / 2,
                limit = p.copies ? half : std::max(half, std::min(p.machine->shared_bytes, kOneBlock));
  if (shared_bytes(p, problem) > limit) return 0;
  const auto used = [](int64_t tile, int64_t lines) { return static_cast<double>(std::min(lines, tile)); };
  double worth = used(p.stationary, problem.stationary) * used(p.streamed, problem.streamed);
  const auto wasted = [](int64_t tile, int64_t lines) { return round_up(lines, tile) / static_cast<double>(lines); };
  worth /= wasted(p.stationary, problem.stationary) * wasted(p.streamed, problem.streamed);
  const int64_t blocks = problem.heads * ((problem.stationary + p.stationary - 1) / p.stationary);
  if (blocks < kEnoughBlocks) worth *= static_cast<double>(blocks) / kEnoughBlocks;
  const int waves = p.lanes() / p.machine->wave;
  if (waves < kGoodWaves) worth *= static_cast<double>(waves) / kGoodWaves;
  if (waves > kGoodWaves) worth *= 0.95;
  if (p.across > 1 && problem.rows_meet) worth *= 0.75;
  // Shared memory traffic of each group of lanes for its part of the products.
  worth /= 1 + kFetch * (p.down / static_cast<double>(p.stationary) + p.across / static_cast<double>(p.streamed));
  if (p.one_by_one) worth *= 0.8;
  return worth;
}

// Stationary lines take the side where fewer lanes share a line.
Side stationary_side_of(const AttendPlan& p) {
  const BlockTile tile{p.row, p.factor, p.wave(), 1, 1, 1, 1, 1};
  return BlockProduct::lanes_of_line(tile, Side::a) <= BlockProduct::lanes_of_line(tile, Side::b) ? Side::a : Side::b;
}

}  // namespace

Side AttendPlan::streamed_side() const {
  return stationary_side == Side::a ? Side::b : Side::a;
}

int64_t AttendPlan::step(Side side) const {
  return BlockTile{row, factor, wave(), 1, 1, 1, 1, 1}.step(side);
}

BlockTile AttendPlan::product(int64_t k) const {
  BlockTile t{row, factor, wave(), 1, 1, 1, 1, 1};
  const int stationary_tiles = stationary / step(stationary_side) / down,
            streamed_tiles = streamed / step(streamed_side()) / across;
  const bool rows = stationary_side == Side::a;
  t.groups_m = rows ? down : across;
  t.groups_n = rows ? across : down;
  t.tiles_m = rows ? stationary_tiles : streamed_tiles;
  t.tiles_n = rows ? streamed_tiles : stationary_tiles;
  t.loads = loads;
  t.stage_k = round_up(k, BlockProduct::step_k(*machine, t));
  return t;
}

BlockTile AttendPlan::result(int64_t width) const {
  BlockTile t = product(1);
  const int64_t unit = step(streamed_side()) * across;
  (stationary_side == Side::a ? t.tiles_n : t.tiles_m) = round_up(width, unit) / unit;
  if (in_shared()) {
    int n = machine::kTransposedColumns;
    while (n < width) n *= 2;
    t.row = find_shared_matrix(*machine, {factor, {}}, n, false, true, pipelined);
    t.tiles_n = 1;
  }
  t.stage_k = streamed;
  if (!loads) return t;
  BlockTile beside = t;
  (streamed_side() == Side::a ? beside.a_beside : beside.b_beside) = true;
  return BlockProduct::can_load(*machine, beside) ? beside : t;
}

// All or none: results share the panels of the products that they read.
bool AttendPlan::can_load(const AttendProblem& problem) const {
  AttendPlan p = *this;
  p.loads = true;
  const auto can = [&](const BlockTile& t) { return BlockProduct::can_load(*machine, t); };
  return can(p.product(1)) && std::ranges::all_of(problem.results, [&](int64_t width) { return can(p.result(width)); });
}

BlockTile AttendPlan::transposed(int64_t width) const {
  BlockTile t = product(width);
  t.row = find_shared_matrix(*machine, {factor, {}}, machine::kTransposedColumns);
  t.tiles_n = 1;
  return t;
}

std::string AttendPlan::text() const {
  return fmt::format("{} {}x{} by {}x{} waves{}", row ? row->row : "fma", stationary, streamed,
                     down * wave() / machine->wave, across,
                     one_by_one  ? ", panels in turn"
                     : pipelined ? ", pipelined"
                     : copies    ? ", copied panels"
                                 : "");
}

int64_t pipelined_unit(const machine::Machine& m, Scalar products) {
  if (!is_float(products) || scalar_bytes(products) != 2) return 0;
  const machine::MatrixRow* row = find_shared_matrix(m, {products, {}}, kMostStreamed);
  if (!row) return 0;
  return BlockProduct::step_k(m, {row, products, row->collective->lanes, 1, 1, 1, 1, 1});
}

namespace {

// Registers of a lane: sums of products and results, and the products it holds; 0: an instruction is missing.
int64_t pipelined_registers(const AttendPlan& p, const AttendProblem& problem) {
  int64_t sums = problem.products * p.streamed / 2;
  for (const int64_t w : problem.results) {
    if (!p.result(w).row) return 0;
    sums += p.result(w).row->n / 2;
  }
  return sums + problem.sources * p.streamed / 4;
}

int64_t pipelined_bytes(const AttendPlan& p, const AttendProblem& problem) {
  const int64_t step = pipelined_unit(*p.machine, p.factor);
  int64_t bytes = kStatistics;
  for (const int64_t k : problem.stationary_widths) bytes += panel_bytes(p.stationary, round_up(k, step), p.factor);
  for (const int64_t k : problem.streamed_widths)
    bytes +=
        kPipelinedPanels * panel_bytes(p.streamed, p.result(k).row ? p.result(k).row->n : round_up(k, step), p.factor);
  for (const int64_t w : problem.apart)
    bytes += kPipelinedPanels * panel_bytes(p.streamed, p.result(w).row->n, p.factor);
  return bytes;
}

}  // namespace

std::optional<AttendPlan> plan_attend_pipelined(const machine::Machine& m, Scalar products,
                                                const AttendProblem& problem) {
  AttendPlan p;
  p.machine = &m;
  p.factor = products;
  p.pipelined = true;
  if (problem.stationary < kFewestPipelined || pipelined_unit(m, products) == 0) return std::nullopt;
  const auto fits = [&](int down, int64_t streamed, int64_t registers) {
    p.row = find_shared_matrix(m, {products, {}}, streamed);
    if (!p.row) return false;
    p.down = down;
    p.stationary = p.step(p.stationary_side) * down;
    p.streamed = streamed;
    const int64_t needed = pipelined_registers(p, problem);
    return needed > 0 && needed <= registers && pipelined_bytes(p, problem) <= m.shared_bytes;
  };
  // Two groups take turns (attend_block_pipelined.cpp) and load streamed lines half as often. Tiles are wide, because
  // groups wait for each other once a tile; where lines are short, that costs more than it saves (measured).
  const int64_t stationary = kGroups * kGroupLines,
                blocks = problem.heads * ((problem.stationary + stationary - 1) / stationary);
  int64_t widths = 0;
  for (const auto* of : {&problem.streamed_widths, &problem.apart})
    widths += std::accumulate(of->begin(), of->end(), int64_t{0});
  if (problem.enough && blocks >= problem.enough->blocks && widths >= problem.enough->width &&
      problem.streamed > kMostStreamed && fits(kGroups, kWideStreamed, kMostWide))
    return p;
  if (fits(1, machine::kTransposedColumns, kMostPipelined)) return p;
  return std::nullopt;
}

int64_t copied_unit(const machine::Machine& m, Scalar products) {
  const bool copies = m.async_copies && is_float(products) && scalar_bytes(products) == 2;
  return copies ? BlockProduct::kSwizzledRow / scalar_bytes(products) : 0;
}

std::optional<AttendPlan> plan_attend_copied(const machine::Machine& m, Scalar products, const AttendProblem& problem) {
  const int64_t unit = copied_unit(m, products);
  const auto runs = [&](const std::vector<int64_t>& widths) {
    return std::ranges::all_of(widths, [&](int64_t width) { return width % unit == 0; });
  };
  if (unit == 0 || problem.stationary < kFewestPipelined || problem.sources > problem.products) return std::nullopt;
  if (!runs(problem.stationary_widths) || !runs(problem.streamed_widths) || !runs(problem.results)) return std::nullopt;
  std::optional<AttendPlan> best;
  double most = 0;
  const auto find = [&](int size, int64_t most_sums) {
    AttendPlan p;
    p.machine = &m;
    p.factor = products;
    p.row = find_matrix(m, {products, {}}, size);
    if (!p.row || p.row->in_shared || p.row->short_sums) return;
    p.stationary_side = stationary_side_of(p);
    if (p.stationary_side != Side::a) return;
    p.copies = p.loads = true;
    // A result reads the streamed lines transposed, and the products from registers.
    const auto holds = [&](int64_t width) {
      const BlockTile t = p.result(width);
      return t.transposed(p.streamed_side()) && BlockProduct::holds(t, p.product(width));
    };
    for (p.stationary = kMostStationary; p.stationary >= kMostStationary / 2; p.stationary /= 2)
      for (p.streamed = kMostStreamed; p.streamed >= 16; p.streamed /= 2)
        for (p.down = 1; p.down * p.wave() <= kMostWaves * m.wave; p.down *= 2) {
          if (p.stationary % (p.step(Side::a) * p.down) != 0 || p.lanes() < kGoodWaves * m.wave) continue;
          if (p.streamed % p.step(Side::b) != 0 || !p.can_load(problem)) continue;
          if (!std::ranges::all_of(problem.results, holds)) continue;
          if (const double w = worth(p, problem, most_sums); w > most) {
            most = w;
            best = p;
          }
        }
  };
  for (const int64_t sums : {kMostSums, kMostSumsCopied})
    for (const int size : {32, 16})
      if (!best || sums == kMostSums) find(size, sums);
  return best;
}

std::optional<AttendPlan> plan_attend(const machine::Machine& m, Scalar products, const AttendProblem& problem) {
  if (m.wave <= 1) return std::nullopt;
  struct Choice {
    const machine::MatrixRow* row;
    Scalar factor;
  };
  std::vector<std::vector<Choice>> preferred(3);
  if (is_float(products) && scalar_bytes(products) < 4)
    if (const auto* row = find_shared_matrix(m, {products, {}}, kMostStreamed)) preferred[0].push_back({row, products});
  for (const int size : {32, 16}) {
    if (is_float(products) && scalar_bytes(products) < 4)
      if (const auto* row = find_matrix(m, {products, {}}, size)) preferred[0].push_back({row, products});
    if (const auto* row = find_matrix(m, {Scalar::f32, {}}, size)) preferred[1].push_back({row, Scalar::f32});
  }
  preferred[2].push_back({nullptr, Scalar::f32});
  for (const std::vector<Choice>& choices : preferred) {
    std::optional<AttendPlan> best;
    double most = 0;
    for (const Choice& c : choices) {
      AttendPlan p;
      p.machine = &m;
      p.row = c.row;
      p.factor = c.factor;
      p.stationary_side = stationary_side_of(p);
      for (p.stationary = kMostStationary; p.stationary >= 8; p.stationary /= 2)
        for (p.streamed = kMostStreamed; p.streamed >= 8; p.streamed /= 2)
          for (p.down = 1; p.down <= kMostWaves; p.down *= 2)
            for (p.across = 1; p.down * p.across * p.wave() <= kMostWaves * m.wave; p.across *= 2)
              for (const bool in_turn : {false, true}) {
                p.one_by_one = in_turn;
                p.loads = false;
                p.loads = p.can_load(problem);
                if (const double w = worth(p, problem); w > most) {
                  most = w;
                  best = p;
                }
              }
    }
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace lumen::synth
