// Tiles, stages and tasks by estimated cycles; unit costs are in the machine's table (kernel/machine/costs.h).
#include "kernel/synth/gemm/cpu/dot_matrix_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/gemm/operand/coded_rows.h"
#include "kernel/synth/step/shortlist.h"

namespace lumen::synth {
namespace {

constexpr int64_t kFewestRows = 7;        // of a
constexpr int64_t kScaleGroup = 64;       // elements that share an activation scale, where the weight's groups allow it
constexpr int64_t kWideScaleGroup = 128;  // where the weight's groups are as wide
constexpr int64_t kSumsBytes = 256 << 10;    // private sums of a task
constexpr int64_t kSharedBytes = 256 << 20;  // of panels that tasks share
constexpr double kUnitThreads = 16;          // threads assumed busy at once, on a processor with a matrix unit
constexpr double kUnitTask = 5e4;            // least cycles of a task there
constexpr int64_t kTileGroup = 512;          // elements that share an activation scale on the matrix unit

class MatrixChooser {
 public:
  MatrixChooser(const DotProblem& p, const machine::Machine& m, MatrixPlan plan)
      : p_(p), m_(m), costs_(m.costs.panels), t_(std::move(plan)) {
    t_.may_share = t_.tile && can_share();
  }

  std::vector<MatrixPlan> choose() {
    const int64_t all = ceil_div(p_.n.extent, t_.lanes());
    t_.masked = p_.n.extent % t_.lanes() != 0;
    const int grain = t_.row_grain(), most = !t_.tile ? 12 : t_.weight_first ? 6 * grain : 3 * grain;
    const int64_t rows = t_.padded_m(p_.m.extent);
    for (int vectors = 1; vectors <= std::min<int64_t>(4, all); ++vectors)
      for (int height = grain; height <= std::min<int64_t>(most, rows); height += grain) {
        if (!fits_registers(height, vectors) && height * vectors > grain) continue;
        t_.vectors = vectors;
        t_.n_tiles = ceil_div(all, vectors);
        t_.last_vectors = all - (t_.n_tiles - 1) * vectors;
        t_.m_tiles = ceil_div(rows, height);
        t_.height = ceil_div(rows / grain, t_.m_tiles) * grain;
        t_.m_tiles = ceil_div(rows, t_.height);
        t_.last_height = rows - (t_.m_tiles - 1) * t_.height;
        stage();
        cut();
      }
    std::vector<MatrixPlan> plans;
    for (const TileCut& cut : shortlist(std::move(cuts_))) static_cast<TileCut&>(plans.emplace_back(t_)) = cut;
    return plans;
  }

 private:
  // Panels can be written before the product: their columns are known by then, and each outer index has its own.
  bool can_share() const {
    const auto differs = [](const DotIndex& i) { return i.strides[1] != 0; };
    const int64_t bytes =
        p_.outer_extent() * round_up(p_.n.extent, t_.tile_columns()) * t_.padded_k * t_.element_bytes();
    return !p_.pick && !p_.blocks && bytes <= kSharedBytes && std::ranges::all_of(p_.outer, differs);
  }

  bool fits_registers(int height, int vectors) const {
    if (t_.tile) {  // sums, a column of a, one of b
      const int tiles = height / t_.tile->rows;
      if (t_.is_outer()) return tiles * vectors <= m_.tile_registers;  // factors have registers of their own
      return tiles * vectors + (t_.weight_first ? vectors : tiles) + 1 <= m_.tile_registers;
    }
    const int sums = height * vectors, kinds = t_.integers ? 2 : 1;
    const int temporary = t_.row.accumulates ? 1 : 2;
    return kinds * sums + panel_registers(vectors) + 1 + temporary <= m_.vector_registers;
  }

  int panel_registers(int vectors) const { return t_.by_two ? 2 * vectors : vectors; }

  // Sizes stages so that the panel of one tile stays in the first-level cache.
  void stage() {
    const int64_t quad_bytes = t_.tile_columns() * t_.word_bytes();
    const int64_t most = std::max<int64_t>(m_.l1_bytes * 3 / 4 / quad_bytes * t_.row.k, t_.unit);
    const int64_t stages = ceil_div(t_.padded_k, most / t_.unit * t_.unit);
    t_.stage_k = ceil_div(ceil_div(t_.padded_k, stages), t_.unit) * t_.unit;
    t_.stages = ceil_div(t_.padded_k, t_.stage_k);
  }

  double tile_cycles(int height, int vectors) const {
    const double sums = height * vectors;
    if (t_.tile) {
      const double tiles = height / t_.tile->rows;
      const double step = std::max({tiles * vectors, (tiles + vectors) * costs_.broadcast, tiles * costs_.far}) *
                          m_.tile_cycles;  // products, loads
      // Sums move row by row if rows are vectors, otherwise as whole tiles.
      const double moved = tiles * vectors * (t_.is_outer() ? 2 * t_.tile->rows : 3 * m_.tile_cycles);
      double cycles = step * (t_.padded_k / t_.tile->k) + t_.stages * (moved + (t_.is_outer() ? kOuterRun : 0));
      if (t_.integers) cycles += sums * costs_.scaling * (t_.padded_k / t_.scale_group);
      return cycles;
    }
    const double chain = t_.row.accumulates ? 1 : t_.row.pairs.empty() ? costs_.widening : costs_.pairing;
    const double words = height / t_.row_grain();  // of a
    const double quad =
        std::max({sums * chain * m_.fma_cycles, (words * costs_.broadcast + panel_registers(vectors)) * m_.load_cycles,
                  m_.costs.tasks.latency});
    double cycles = quad * (t_.padded_k / t_.row.k);
    const double parting = t_.by_two ? sums * m_.fma_cycles : 0;  // sums of two rows become rows
    if (t_.integers) {
      const double per_group = sums * (t_.offsets ? 2.0 : 1.0) * m_.fma_cycles + 1.5;
      cycles += (per_group + parting) * (t_.padded_k / t_.group);
      cycles += sums * m_.fma_cycles * (t_.padded_k / t_.scale_group);
    }
    return cycles + t_.stages * (costs_.tile + costs_.sum * sums + parting);
  }

  double cost() const {
    double cycles = t_.sum([&](int height, int vectors) { return tile_cycles(height, vectors); });
    const double n = p_.n.extent, k = p_.k.extent;
    double fill = k * (t_.integers                                 ? costs_.code
                       : p_.loads[1].kind == DotLoad::Kind::packed ? costs_.number
                                                                   : costs_.copy);
    if (t_.integers) fill += k / t_.group * costs_.scale * (t_.offsets ? 2 : 1);
    cycles += fill * n * (t_.lays_panels() ? 1 : t_.m_tasks);
    if (t_.lays_panels()) cycles += n * t_.m_tasks * k * t_.element_bytes() / costs_.bytes;
    // Rows of a are read from beyond the second-level cache once per column of tasks, or once per thread if all of them
    // fit in it.
    const double readings = t_.tile && p_.m.extent * k * t_.element_bytes() <= m_.l2_bytes / 2
                                ? std::min<double>(t_.n_tasks, kUnitThreads)
                                : t_.n_tasks;
    cycles += p_.m.extent * readings * k * t_.element_bytes() / costs_.bytes;
    const double tasks = t_.tasks(p_);
    cycles = cycles * p_.outer_extent() + m_.costs.tasks.task / m_.task_divisor * tasks;
    return cycles * (t_.tile ? unit_balance(cycles, tasks) : balance(m_, cycles, tasks));
  }

  // Processors with a matrix unit have many cores, some of which have other work: tasks are as small as pays.
  static double unit_balance(double cycles, double tasks) {
    const double most = std::clamp(std::floor(cycles / kUnitTask), 1.0, 2.0 * kUnitThreads);
    return std::ceil(tasks / most) * most / tasks;
  }

  void cut() {
    // A matrix unit waits for data from beyond the second-level cache: its tasks use a good part of that cache.
    const int64_t most_sums = t_.tile ? m_.l2_bytes / 4 : std::min(kSumsBytes, m_.task_bytes);
    const int64_t most_tiles = t_.tile ? 16 : 8;
    for (int64_t n_task = 1; n_task <= std::min(t_.n_tiles, most_tiles); ++n_task) {
      std::optional<TileCut> best;
      for (int64_t m_tasks = 1; m_tasks <= std::min<int64_t>(t_.m_tiles, 64); m_tasks *= 2) {
        t_.n_task = n_task;
        t_.m_task = ceil_div(t_.m_tiles, m_tasks);
        t_.n_tasks = ceil_div(t_.n_tiles, n_task);
        t_.m_tasks = ceil_div(t_.m_tiles, t_.m_task);
        const int64_t columns = n_task * t_.tile_columns();
        if (t_.m_task * t_.height * columns * 4 > most_sums && t_.m_task > 1) continue;
        const bool fills = !t_.lays_panels() && t_.filled_tiles() > 1;
        if (fills && columns * t_.stage_k * t_.element_bytes() > m_.l2_bytes / 4) continue;
        t_.cycles = cost();
        if (!best || t_.cycles < best->cycles) best = t_;
      }
      if (best) cuts_.push_back(*best);
    }
  }

  const DotProblem& p_;
  const machine::Machine& m_;
  const machine::PanelCosts& costs_;
  MatrixPlan t_;
  std::vector<TileCut> cuts_;  // the best cut for each register tile and number of adjacent tiles
};

// The matrix unit's instruction as a dot row for the panel: words of neighbours along K, one per column.
machine::DotRow as_dot(const machine::TileRow& t) {
  const int word = 4 / scalar_bytes(t.a);
  const int64_t most = is_float(t.acc) ? 0 : t.b == Scalar::u8 ? 255 : 128;
  return {t.row, t.b, t.a, t.acc, word, t.columns, true, "", false, most};
}

// The longest run along K, of whole steps, in which neither operand's scales change: K need not be a multiple of
// kTileGroup for that (768 has runs of 384, 11008 of 256).
int64_t run_of_scales(int64_t one, int64_t other, int64_t k, int64_t step) {
  const auto within = [&](int64_t group) { return group >= kWholeRow ? k : group; };
  const int64_t shared = std::gcd(within(one), within(other));
  int64_t run = kTileGroup / step * step;
  while (run > step && shared % run != 0) run -= step;
  return run;
}

std::vector<MatrixPlan> choose_integers(const DotProblem& p, const machine::Machine& m,
                                        const std::optional<machine::TileRow>& tile, bool by_two,
                                        const CodedRows* coded, std::string* why) {
  const Format& f = *p.loads[1].format;
  MatrixPlan t;
  t.tile = tile;
  t.by_two = by_two;
  if (tile || by_two) {
    machine::Machine other = m;
    for (const machine::DotRow& row : tile ? std::vector{as_dot(*tile)} : m.squares) {
      other.dots = {row};
      const auto found = factor_integer(f, p.loads[1].columns, other, why);
      // Codes that a row takes unchanged need no sums for a correction.
      if (found && (!t.integers || (t.integers->bias != 0 && found->bias == 0))) t.integers = found;
    }
  } else {
    t.integers = factor_integer(f, p.loads[1].columns, m, why);
  }
  if (!t.integers) return {};
  const IntegerDot& d = *t.integers;
  t.row = d.row;
  const int64_t held = coded ? coded->form.group : kWholeRow;  // elements of a that share a scale already
  if (tile) {  // scaling costs as much as many products, so groups must be wide and need no corrections
    t.scale_group = t.group =
        coded ? run_of_scales(d.group, held, p.k.extent, t.step()) : std::gcd(std::gcd(d.group, held), kTileGroup);
    if (t.group < kTileGroup / 2 || d.bias != 0 || d.form.offset) return {};
  } else {
    t.scale_group = d.group >= kWideScaleGroup && d.group % kWideScaleGroup == 0 ? kWideScaleGroup : kScaleGroup;
    t.scale_group = std::gcd(t.scale_group, held);
    t.group = std::gcd(d.group, t.scale_group);
  }
  if (t.group % t.row.k != 0 || t.group % m.f32_lanes() != 0) {
    *why = fmt::format("groups of {} do not fill the machine's vectors", d.group);
    return {};
  }
  t.offsets = d.form.offset.has_value();
  t.starts = d.bias != 0 && !t.offsets;  // with offsets, the bias is part of them
  t.unit = std::lcm(std::lcm(f.block, t.step()), t.scale_group);
  const int64_t instruction = std::lcm(t.step(), t.scale_group);
  t.padded_k = ceil_div(p.k.extent, instruction) * instruction;
  if (coded && t.padded_k != p.k.extent) {
    *why = "codes that are held end within an instruction";
    return {};
  }
  return MatrixChooser(p, m, t).choose();
}

std::vector<MatrixPlan> choose_floats(const DotProblem& p, const machine::Machine& m, const machine::DotRow& row,
                                      const std::optional<machine::TileRow>& tile, bool by_two) {
  MatrixPlan t;
  t.tile = tile;
  t.by_two = by_two;
  t.row = row;
  const DotLoad& b = p.loads[1];
  t.unit = std::lcm(b.format ? b.format->block : 1, t.step());
  t.padded_k = ceil_div(p.k.extent, t.step()) * t.step();
  // For blocks of rows that pick matrices, panels are still transposed.
  t.weight_first = tile && !t.is_outer() && tile->rows == tile->columns && tile->a == tile->b && p.k.strides[1] == 1 &&
                   !p.pick && !p.blocks;
  return MatrixChooser(p, m, t).choose();
}

}  // namespace

std::vector<MatrixPlan> choose_matrix(const DotProblem& p, const machine::Machine& m, bool exact, std::string* why) {
  if (p.m.extent < kFewestRows || !p.outer_k.empty() || p.runs) return {};
  const DotLoad &a = p.loads[0], &b = p.loads[1];
  const std::optional<CodedRows> coded = coded_rows(p);
  if (!coded && (a.kind != DotLoad::Kind::memory || !is_float(a.scalar))) return {};
  // Floats of an instruction's own type, in either storage order.
  const bool turns = p.k.strides[1] == 1 || p.n.strides[1] == 1;
  const auto takes = [&](Scalar s) {
    return !coded && b.kind == DotLoad::Kind::memory && turns && b.scalar == s && (a.scalar == s || s == Scalar::f32);
  };
  std::vector<MatrixPlan> best;
  auto consider = [&](std::vector<MatrixPlan> plans) {
    if (!plans.empty() && (best.empty() || plans.front().cycles < best.front().cycles)) best = std::move(plans);
  };
  bool rounds = false;  // to the instruction's type
  if (b.kind == DotLoad::Kind::packed) {
    if (!unpacks_along(p, 1, p.k)) return {};
    if (!exact || coded) {
      const CodedRows* const held = coded ? &*coded : nullptr;
      consider(choose_integers(p, m, std::nullopt, false, held, why));
      std::string no_tiles;
      if (!m.squares.empty()) consider(choose_integers(p, m, std::nullopt, true, held, &no_tiles));
      for (const machine::TileRow& tile : m.tiles)
        if (tile.acc == Scalar::i32 && tile.a == Scalar::i8)
          consider(choose_integers(p, m, tile, false, held, &no_tiles));
      if (held) return best;  // in floats they would be rounded again
    }
    rounds = !exact && b.format->block_bytes * 8 <= 16 * b.format->block;  // not if that loses stored digits
  }
  const bool unpacks = b.kind == DotLoad::Kind::packed && !coded;
  const auto meets = [&](Scalar s) {
    return takes(s) || (s == Scalar::bf16 && rounds) || (s == Scalar::f32 && unpacks);
  };
  for (const machine::TileRow& tile : m.tiles)
    if (tile.acc == Scalar::f32 && meets(tile.a)) consider(choose_floats(p, m, as_dot(tile), tile, false));
  for (const bool by_two : {false, true})
    for (const machine::DotRow& row : by_two ? m.squares : m.dots)
      if (row.acc == Scalar::f32 && meets(row.a)) consider(choose_floats(p, m, row, std::nullopt, by_two));
  return best;
}

std::string describe(const MatrixPlan& t) {
  std::string text = fmt::format("matrix {}x{} task {}x{}", t.height, t.tile_columns(), t.m_task * t.height,
                                 t.n_task * t.tile_columns());
  if (t.stages > 1) text += fmt::format(" k {}x{}", t.stages, t.stage_k);
  if (t.integers) text += fmt::format(" scales of {}", t.scale_group);
  if (t.lays_panels()) text += " shared panels";
  return text + " " + t.row.row;
}

}  // namespace lumen::synth
