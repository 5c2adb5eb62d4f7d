// Tiles, stages and tasks by estimated cycles. Constants were measured on one processor (bench/gemm.cpp); they decide
// about speed alone.
#include "kernel/synth/dot_matrix_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernel/synth/choose.h"

namespace lumen::synth {
namespace {

constexpr int64_t kFewestRows = 7;        // of a
constexpr int64_t kScaleGroup = 64;       // elements that share an activation scale, where the weight's groups allow it
constexpr int64_t kWideScaleGroup = 128;  // where the weight's groups are as wide
constexpr int64_t kSumsBytes = 256 << 10;  // private sums of a task
constexpr double kTaskCycles = 300;
constexpr double kTileCycles = 20;       // entering a tile in a stage
constexpr double kScalarCycles = 6;      // one scale or offset out of a format
constexpr double kElementCycles = 0.35;  // one code out of a format, turned into the panel

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

class MatrixChooser {
 public:
  MatrixChooser(const DotProblem& p, const machine::Machine& m, MatrixPlan plan) : p_(p), m_(m), t_(std::move(plan)) {}

  MatrixPlan choose() {
    const int64_t all = ceil_div(p_.n.extent, t_.lanes());
    t_.masked = p_.n.extent % t_.lanes() != 0;
    best_.cycles = -1;
    for (int vectors = 1; vectors <= std::min<int64_t>(4, all); ++vectors)
      for (int height = 1; height <= std::min<int64_t>(12, p_.m.extent); ++height) {
        if (!fits_registers(height, vectors) && height * vectors > 1) continue;
        t_.vectors = vectors;
        t_.n_tiles = ceil_div(all, vectors);
        t_.last_vectors = static_cast<int>(all - (t_.n_tiles - 1) * vectors);
        t_.m_tiles = ceil_div(p_.m.extent, height);
        t_.height = static_cast<int>(ceil_div(p_.m.extent, t_.m_tiles));
        t_.m_tiles = ceil_div(p_.m.extent, t_.height);
        t_.last_height = static_cast<int>(p_.m.extent - (t_.m_tiles - 1) * t_.height);
        stage();
        cut();
      }
    return best_;
  }

 private:
  bool has_parts() const { return t_.integers && t_.group < t_.scale_group; }

  bool fits_registers(int height, int vectors) const {
    const int sums = height * vectors, kinds = t_.integers ? 2 : 1;
    const int temporary = t_.row.accumulates ? 1 : 2;
    return kinds * sums + vectors + 1 + temporary <= m_.vector_registers;
  }

  // The panel of one tile stays in the first-level cache.
  void stage() {
    const int64_t quad_bytes = t_.tile_columns() * t_.word_bytes();
    const int64_t most = std::max<int64_t>(m_.l1_bytes * 3 / 4 / quad_bytes * t_.row.k, t_.unit);
    const int64_t stages = ceil_div(t_.padded_k, most / t_.unit * t_.unit);
    t_.stage_k = ceil_div(ceil_div(t_.padded_k, stages), t_.unit) * t_.unit;
    t_.stages = ceil_div(t_.padded_k, t_.stage_k);
  }

  double tile_cycles(int height, int vectors) const {
    const double sums = height * vectors;
    const double chain = t_.row.accumulates ? 1 : t_.row.pairs.empty() ? 1.5 : 2.5;
    const double quad = std::max({sums * chain * m_.fma_cycles, (height * 0.75 + vectors) * m_.load_cycles, 4.0});
    double cycles = quad * static_cast<double>(t_.padded_k / t_.row.k);
    if (t_.integers) {
      const double per_group = sums * (t_.offsets ? 2.0 : 1.0) * m_.fma_cycles + 1.5;
      cycles += per_group * static_cast<double>(t_.padded_k / t_.group);
      cycles += sums * m_.fma_cycles * static_cast<double>(t_.padded_k / t_.scale_group);
    }
    return cycles + static_cast<double>(t_.stages) * (kTileCycles + 4 * sums);
  }

  double cost() const {
    auto column = [&](int vectors) {
      return static_cast<double>(t_.m_tiles - 1) * tile_cycles(t_.height, vectors) +
             tile_cycles(t_.last_height, vectors);
    };
    double cycles = static_cast<double>(t_.n_tiles - 1) * column(t_.vectors) + column(t_.last_vectors);
    const double n = static_cast<double>(p_.n.extent), k = static_cast<double>(p_.k.extent);
    double fill = k * kElementCycles;
    if (t_.integers) fill += k / static_cast<double>(t_.group) * kScalarCycles * (t_.offsets ? 2 : 1);
    cycles += fill * n * static_cast<double>(t_.m_tasks);
    // Rows of a come from beyond the second-level cache once for every column of tasks.
    cycles += static_cast<double>(p_.m.extent * t_.n_tasks) * k * static_cast<double>(t_.element_bytes()) / 16;
    const auto tasks = static_cast<double>(t_.tasks(p_));
    cycles = cycles * static_cast<double>(p_.outer_extent()) + kTaskCycles * tasks;
    const double threads = cycles > 4e5 ? 8 : cycles > 4e4 ? 2 : 1;
    return cycles * std::ceil(tasks / threads) * threads / tasks;
  }

  void cut() {
    for (int64_t n_task = 1; n_task <= std::min<int64_t>(t_.n_tiles, 8); ++n_task)
      for (int64_t m_tasks = 1; m_tasks <= std::min<int64_t>(t_.m_tiles, 64); m_tasks *= 2) {
        t_.n_task = n_task;
        t_.m_task = ceil_div(t_.m_tiles, m_tasks);
        if (t_.m_task * t_.height * n_task * t_.tile_columns() * 4 > kSumsBytes && t_.m_task > 1) continue;
        if (n_task * t_.tile_columns() * t_.stage_k * t_.element_bytes() > m_.l2_bytes / 4 && n_task > 1) continue;
        t_.n_tasks = ceil_div(t_.n_tiles, n_task);
        t_.m_tasks = ceil_div(t_.m_tiles, t_.m_task);
        t_.cycles = cost();
        if (best_.cycles < 0 || t_.cycles < best_.cycles) best_ = t_;
      }
  }

  const DotProblem& p_;
  const machine::Machine& m_;
  MatrixPlan t_, best_;
};

}  // namespace

bool matrix_possible(const DotProblem& p) {
  if (p.m.extent < kFewestRows || !p.outer_k.empty()) return false;
  const DotLoad &a = p.loads[0], &b = p.loads[1];
  if (a.kind != DotLoad::Kind::memory || !is_float(a.scalar) || p.k.strides[0] != 1) return false;
  return b.kind == DotLoad::Kind::packed && unpacks_along(p, 1, p.k);
}

std::optional<MatrixPlan> choose_matrix(const DotProblem& p, const machine::Machine& m, std::string* why) {
  const Format& f = *p.loads[1].format;
  MatrixPlan t;
  t.integers = factor_integer(f, p.loads[1].columns, m, why);
  if (!t.integers) return std::nullopt;
  const IntegerDot& d = *t.integers;
  t.row = d.row;
  t.scale_group = d.group >= kWideScaleGroup && d.group % kWideScaleGroup == 0 ? kWideScaleGroup : kScaleGroup;
  t.group = std::gcd(d.group, t.scale_group);
  if (t.group % t.row.k != 0 || t.group % m.f32_lanes() != 0) {
    *why = fmt::format("groups of {} do not fill the machine's vectors", d.group);
    return std::nullopt;
  }
  t.offsets = d.form.offset.has_value();
  t.starts = d.bias != 0 && !t.offsets;  // with offsets, the bias is part of them
  t.unit = std::lcm(std::lcm(f.block, t.step()), t.scale_group);
  const int64_t instruction = std::lcm(t.step(), t.scale_group);
  t.padded_k = ceil_div(p.k.extent, instruction) * instruction;
  return MatrixChooser(p, m, t).choose();
}

std::string describe(const MatrixPlan& t) {
  std::string text = fmt::format("matrix {}x{} task {}x{}", t.height, t.tile_columns(), t.m_task * t.height,
                                 t.n_task * t.tile_columns());
  if (t.stages > 1) text += fmt::format(" k {}x{}", t.stages, t.stage_k);
  if (t.integers) text += fmt::format(" scales of {}", t.scale_group);
  return text + " " + t.row.row;
}

}  // namespace lumen::synth
