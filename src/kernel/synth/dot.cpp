// Dots: the contraction is normalised, families of kernels bid for it (gemm/bid), and the cheapest bid is written.
#include "kernel/synth/dot.h"

#include "kernel/synth/gemm/bid/bid.h"
#include "kernel/synth/gemm/dot_group.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"

namespace lumen::synth {
namespace {

// A group as families see it, and what they bid. Bids refer to the problems.
struct Asked {
  Asked(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target, const Options& options)
      : problem(sort_rows(plan.graph, normalise_dot(plan, group), target, before)),
        plain(with_plain_formats(problem, target, true)),
        bids(ask_families(
            {plan.graph, problem, plain, target, options.exact, static_cast<int>(before.scratch.size())})) {}
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  Synthesis write(const Bid& bid) const {
    Synthesis out = before;
    bid.write(out);
    out.steps.back().cycles = bid.cycles;
    if (bid.without_codes) out.steps.back().plan += bids.why_no_codes();
    return out;
  }

  Synthesis before;  // steps that sort rows
  DotProblem problem, plain;
  Bids bids;
};

}  // namespace

Synthesis synthesize_dot(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                         const Options& options) {
  const Asked asked(plan, group, target, options);
  const Bid& best = asked.bids.all().front();
  const int candidates = best.others.size() + 1;
  const bool other = options.candidate > 0 && options.candidate < candidates;
  Synthesis out = asked.write(other ? best.others[options.candidate - 1] : best);
  out.candidates = candidates;
  out.bids = asked.bids.notes();
  return out;
}

std::vector<WrittenBid> synthesize_bids(const graph::Plan& plan, const graph::Group& group,
                                        const machine::Machine& target, const Options& options, bool others) {
  const Asked asked(plan, group, target, options);
  std::vector<WrittenBid> out;
  const auto add = [&](const Bid& b) { out.push_back({{b.family, b.plan, b.cycles, {}}, asked.write(b)}); };
  for (const Bid& b : asked.bids.all()) {
    add(b);
    for (size_t i = 0; others && i < b.others.size(); ++i) add(b.others[i]);
  }
  return out;
}

}  // namespace lumen::synth
