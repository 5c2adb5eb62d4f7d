// A few rows of a beside a weight that streams into matrix instructions, where the machine has them. Else rows for few
// rows of a, in integers or 16-bit floats where the format and the machine have them; for many, blocks of
// lanes where the machine has them, a panel of b where its format factors into integers and they are allowed; tiles for
// everything else.
#include "kernel/synth/dot.h"

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_integer.h"
#include "kernel/synth/gemm/cpu/dot_matrix.h"
#include "kernel/synth/gemm/cpu/dot_rows.h"
#include "kernel/synth/gemm/cpu/dot_short.h"
#include "kernel/synth/gemm/cpu/dot_tile.h"
#include "kernel/synth/gemm/dot_group.h"
#include "kernel/synth/gemm/gpu/dot_block.h"
#include "kernel/synth/gemm/skinny/dot_stream.h"
#include "kernel/synth/gemm/skinny/dot_stream_matrix.h"

namespace lumen::synth {
namespace {

// Beyond, matrix instructions take less time than multiply-adds of f32, those of what streams, and dots of bytes.
constexpr int kRowsOfWaves = 2, kRowsOfStreams = 4, kRowsOfPairs = 8, kRowsOfIntegers = 16, kFewRowsOfIntegers = 2;

}  // namespace

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options) {
  Synthesis out;
  const DotProblem p = sort_rows(plan.graph, normalise_dot(plan, group), target, out);
  std::vector<TilePlan> chosen;  // only where a kernel may be tiles
  const auto tiles = [&]() -> const std::vector<TilePlan>& {
    if (chosen.empty()) chosen = choose_tiles(p, target);
    return chosen;
  };
  const auto pick = [&](const auto& plans) {
    out.candidates = static_cast<int>(plans.size());
    return plans[options.candidate < out.candidates ? static_cast<size_t>(options.candidate) : 0];
  };
  std::string why;
  // Measured: so few rows cost dots of integers little more than one.
  if (p.m.extent > 1 && p.m.extent <= kFewRowsOfIntegers)
    if (const auto streams = choose_streams(p, target, options.exact, &why); !streams.empty() && streams[0].integers) {
      out.steps.push_back(write_stream_kernel(plan.graph, p, streams[0], target));
      return out;
    }
  why.clear();
  const DotProblem plain = with_plain_formats(p, target, true);
  if (const auto streams = choose_matrix_streams(plain, target, options.exact); !streams.empty()) {
    write_matrix_stream_kernels(plan.graph, plain, streams.front(), target, out);
    return out;
  }
  if (const auto streams = choose_streams(p, target, options.exact, &why); !streams.empty()) {
    const StreamPlan& t = streams.front();
    if (p.m.extent <= (t.integers           ? kRowsOfIntegers
                       : t.looks_up_pairs() ? kRowsOfPairs
                                            : kRowsOfStreams) ||
        (rows_possible(p) && choose_factor(p, target, options.exact).scalar == Scalar::f32)) {
      out.steps.push_back(write_stream_kernel(plan.graph, p, t, target));
      if (!why.empty()) out.steps.back().plan += ", no integers: " + why;
      return out;
    }
    why.clear();
  }
  if (rows_possible(p)) {
    const RowsPlan rows = choose_rows(p, target);
    if (!options.exact && integer_possible(p)) {
      if (const auto d = factor_integer(*p.loads[1].format, p.loads[1].columns, target, &why)) {
        write_integer_kernels(plan.graph, p, rows, *d, target, out);
        return out;
      }
      if (target.wave == 1) {
        std::string no_shorts;
        if (const auto d = factor_short(*p.loads[1].format, target, &no_shorts)) {
          write_short_kernels(plan.graph, p, rows, *d, target, out);
          out.steps.back().plan += ", no integers: " + why;
          return out;
        }
        why += ", no short floats: " + no_shorts;
      }
    }
    if (target.wave > 1 ? rows.height <= kRowsOfWaves || choose_factor(p, target, options.exact).scalar == Scalar::f32
                        : rows.cycles < tiles().front().cycles) {
      out.steps.push_back(write_rows_kernel(plan.graph, p, rows, target));
      if (!why.empty()) out.steps.back().plan += ", no integers: " + why;
      return out;
    }
  }
  if (const auto dots = choose_block_dots(p, target, options.exact, out.scratch.size()); !dots.empty()) {
    write_block_dot(plan.graph, dots.front(), target, out);
    return out;
  }
  if (const auto plans = choose_matrix(p, target, options.exact, &why); !plans.empty()) {
    write_matrix_kernels(plan.graph, p, pick(plans), target, out);
    if (!why.empty() && !plans.front().integers) out.steps.back().plan += ", no integers: " + why;
    return out;
  }
  // Numbers of the instruction's own type in both operands, whichever way they lie.
  std::string unused;
  if (const auto plans = choose_matrix(plain, target, options.exact, &unused); !plans.empty()) {
    write_matrix_kernels(plan.graph, plain, pick(plans), target, out);
    return out;
  }
  write_tile_kernels(plan.graph, p, pick(tiles()), out);
  if (!why.empty()) out.steps.back().plan += ", no integers: " + why;
  return out;
}

}  // namespace lumen::synth
