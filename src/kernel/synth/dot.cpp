// Dots: the contraction is normalised, families of kernels bid for it (gemm/bid), and the cheapest bid is written.
#include "kernel/synth/dot.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/dot_group.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/gemm/operand/coded_rows.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "kernel/synth/gemm/operand/row_scales.h"
#include "kernel/synth/move/move.h"
#include "kernel/synth/step/append.h"

namespace lumen::synth {
namespace {

// How operand a is read if it is stored in a format.
enum class Activations : uint8_t {
  codes,       // it is read as stored
  decoded,     // a preceding step decodes it to f32
  row_scales,  // codes are multiplied, then the sums are scaled
  run_scales,  // .. those that vary along K after sums of runs of it
  laid_short,  // preceding steps lay both operands out as the 16-bit floats that they are
};
// .. and the padding of an image: written by the product's copies, or by a preceding step that lays the image out.
enum class Zeros : uint8_t { laid, by_copies };

// Makes the pad a group of its own, whose result is scratch that p reads.
DotProblem with_zeros_laid(const graph::Plan& plan, DotProblem p, const machine::Machine& m, Synthesis& out) {
  for (DotLoad& l : p.loads) {
    if (!l.zeros) continue;
    const int number = std::ssize(out.scratch);
    out.scratch.push_back(l.elements * scalar_bytes(l.scalar));
    graph::Group group{graph::KernelShape::move, {}, {l.zeros->image}, {l.zeros->pad}, l.zeros->pad};
    for (graph::ValueId v = l.zeros->pad; v != l.zeros->image; v = plan.graph[v].operands[0]) group.nodes.push_back(v);
    std::ranges::reverse(group.nodes);
    append(
        synthesize_move(plan, group, m),
        [&](graph::ValueId v) {
          return v == l.zeros->pad ? Argument{Argument::From::scratch, number} : Argument{Argument::From::value, v};
        },
        out);
    l.scratch = number;
    l.zeros.reset();
  }
  return p;
}

// Cycles of a GPU's preceding steps, which only move bytes.
double cycles_of(const Synthesis& before, const machine::Machine& m) {
  double cycles = 0;
  if (m.kind == machine::Kind::gpu)
    for (const Step& s : before.steps) cycles += cycles_of_moving(m, s.bytes);
  return cycles;
}

// A group as families see it, and their bids. Bids refer to the problems.
struct Asked {
  // Operands stored in a format are rounded already: no family rounds them again, nor the other operand of a weight
  // that is encoded where it is used.
  Asked(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, const Options& options,
        Activations as = Activations::codes, Zeros zeros = Zeros::laid)
      : is_held(is_held_in_format(plan.graph, normalise_dot(plan, group))),
        problem(problem_of(plan, group, target, options, as, zeros)),
        plain(with_plain_formats(problem, target, true)),
        bids(ask_families({plan.graph, problem, plain, target, options.exact || is_rounded_enough(plan.graph),
                           int(before.scratch.size()), options.invariant})),
        cycles_of_zeros(has_zeros(plan, group) ? cycles_of(before, target) : 0) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  Synthesis write(const Bid& bid) const {
    Synthesis out = before;
    bid.write(out);
    out.steps.back().cycles = bid.cycles + cycles_of_zeros;
    if (bid.without_codes) out.steps.back().plan += bids.why_no_codes();
    return out;
  }
  // Its operands have been rounded already: no family rounds either again.
  bool is_rounded_enough(const graph::Graph& g) const {
    if (!problem.row_scales.empty() || problem.adds_runs() || problem.are_short) return false;
    return is_weight_made_here(g, problem) ? !are_codes(problem) : is_held;
  }
  bool reads_format() const { return is_held && problem.loads[0].kind == DotLoad::Kind::packed; }
  double cycles() const { return bids.least() + cycles_of_zeros; }
  static bool has_zeros(const graph::Plan& plan, const graph::Group& group) {
    return normalise_dot(plan, group).reads_zeros();
  }

  bool is_held = false;  // a, in a format
  Synthesis before;      // preceding steps that decode a, or sort rows
  DotProblem problem, plain;
  Bids bids;
  double cycles_of_zeros = 0;  // of laying out zeros

 private:
  DotProblem problem_of(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                        const Options& options, Activations as, Zeros zeros) {
    DotProblem p = sort_rows(plan.graph, rows_of(plan, group, target, as, zeros), target, before, !options.invariant);
    return options.invariant ? p.in_slices() : p;
  }
  DotProblem rows_of(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, Activations as,
                     Zeros zeros) {
    DotProblem p = normalise_dot(plan, group);
    if (zeros == Zeros::laid) p = with_zeros_laid(plan, std::move(p), target, before);
    if (as == Activations::run_scales) return with_run_scales(p, target, !is_held).value_or(p);
    if (!is_held) return p;
    if (as == Activations::laid_short) {
      const auto scaled = p.pick ? std::nullopt : with_row_scales(p, target, true);
      return scaled ? lay_short(plan.graph, *scaled, target, before).value_or(p) : p;
    }
    if (as == Activations::row_scales)
      return with_row_scales(p, target, is_weight_made_here(plan.graph, p)).value_or(p);
    if (as == Activations::codes && !p.pick) return p;
    return decode_rows(plan.graph, p, target, before).value_or(p);
  }
};

// The cheapest way.
std::unique_ptr<Asked> ask(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                           const Options& options) {
  auto best = std::make_unique<Asked>(plan, group, target, options);
  if (options.invariant) return best;
  const auto consider = [&](Activations as) {
    auto other = std::make_unique<Asked>(plan, group, target, options, as);
    if (other->cycles() < best->cycles()) best = std::move(other);
  };
  const bool has_short_ways = target.kind == machine::Kind::gpu && !options.exact;
  if (best->reads_format()) {
    consider(Activations::decoded);
    if (has_short_ways) consider(Activations::row_scales);
    if (target.kind == machine::Kind::cpu && !options.exact && multiplies_short(target) &&
        is_weight_made_here(plan.graph, best->problem))
      consider(Activations::laid_short);
  }
  if (target.async_copies && Asked::has_zeros(plan, group)) {
    auto other = std::make_unique<Asked>(plan, group, target, options, Activations::codes, Zeros::by_copies);
    if (other->cycles() < best->cycles()) best = std::move(other);
  }
  if (has_short_ways && with_run_scales(normalise_dot(plan, group), target, !best->is_held))
    consider(Activations::run_scales);
  return best;
}

}  // namespace

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options) {
  const std::unique_ptr<Asked> asked = ask(plan, group, target, options);
  const Bid& best = asked->bids.all().front();
  const int candidates = best.others.size() + 1;
  const bool other = options.candidate > 0 && options.candidate < candidates;
  Synthesis out = asked->write(other ? best.others[options.candidate - 1] : best);
  out.candidates = candidates;
  out.bids = asked->bids.notes();
  return out;
}

double product_cycles(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                      const Options& options) {
  return ask(plan, group, target, options)->cycles();
}

std::string product_schedule(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                             const Options& options) {
  return ask(plan, group, target, options)->bids.all().front().schedule.text();
}

std::vector<WrittenBid> synthesize_bids(const graph::Plan& plan, const graph::Group& group,
                                        const machine::Machine& target, const Options& options, bool others) {
  const std::unique_ptr<Asked> asked = ask(plan, group, target, options);
  std::vector<WrittenBid> out;
  const auto add = [&](const Bid& b) { out.push_back({{b.family, b.plan, b.cycles, {}}, asked->write(b)}); };
  for (const Bid& b : asked->bids.all()) {
    add(b);
    for (size_t i = 0; others && i < b.others.size(); ++i) add(b.others[i]);
  }
  return out;
}

}  // namespace lumen::synth
