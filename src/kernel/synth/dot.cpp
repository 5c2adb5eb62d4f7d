// Dots: the contraction is normalised, families of kernels bid for it (gemm/bid), and the cheapest bid is written.
#include "kernel/synth/dot.h"

#include <memory>

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/dot_group.h"
#include "kernel/synth/gemm/operand/coded_rows.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"

namespace lumen::synth {
namespace {

// A group as families see it, and what they bid. Bids refer to the problems.
struct Asked {
  // What is held in a format is rounded already: no family rounds it again. `decodes`: a step before decodes it.
  Asked(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, const Options& options,
        bool decodes = false)
      : is_held(is_held_in_format(plan.graph, normalise_dot(plan, group))),
        problem(sort_rows(plan.graph, rows_of(plan, group, target, decodes), target, before)),
        plain(with_plain_formats(problem, target, true)),
        bids(ask_families(
            {plan.graph, problem, plain, target, options.exact || is_held, static_cast<int>(before.scratch.size())})) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  Synthesis write(const Bid& bid) const {
    Synthesis out = before;
    bid.write(out);
    out.steps.back().cycles = bid.cycles;
    if (bid.without_codes) out.steps.back().plan += bids.why_no_codes();
    return out;
  }

  bool is_held = false;  // a, in a format
  Synthesis before;      // steps that decode a, or sort rows
  DotProblem problem, plain;
  Bids bids;

 private:
  DotProblem rows_of(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, bool decodes) {
    DotProblem p = normalise_dot(plan, group);
    if (!is_held || (!decodes && !p.pick)) return p;
    return decode_rows(plan.graph, p, target, before).value_or(p);
  }
};

// The cheapest way; of what is held in a format by its codes, or decoded first.
std::unique_ptr<Asked> ask(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                           const Options& options) {
  auto asked = std::make_unique<Asked>(plan, group, target, options);
  if (!asked->is_held || asked->problem.loads[0].kind != DotLoad::Kind::packed) return asked;
  auto decoded = std::make_unique<Asked>(plan, group, target, options, true);
  const auto cycles = [](const Asked& a) { return a.bids.all().front().cycles; };
  return cycles(*decoded) < cycles(*asked) ? std::move(decoded) : std::move(asked);
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
