// See bid.h.
#include "kernel/synth/gemm/bid/bid.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"

namespace lumen::synth {
namespace {

using Workers = ProductSchedule::Workers;
using Place = ProductSchedule::Place;
using By = ProductSchedule::By;

enum Traits : int { kNone = 0, kWhole = 1, kInvariant = 2 };

// A row of families.def.
struct Family {
  const char* name;
  void (*bid)(const Contraction&, Bids&);
  Workers workers;
  ProductSchedule::Operand a, b;
  Place sums;
  int traits;

  bool has(Traits t) const { return (traits & t) != 0; }
  ProductSchedule row() const {
    ProductSchedule s;
    s.workers = workers;
    s.a = a;
    s.b = b;
    s.sums = sums;
    return s;
  }
};
constexpr Family kFamilies[] = {
#define LUMEN_FAMILY(name, text, workers, a, a_by, b, b_by, sums, traits) \
  {text, bid_##name, Workers::workers, {Place::a, By::a_by}, {Place::b, By::b_by}, Place::sums, traits},
#include "kernel/synth/gemm/bid/families.def"
#undef LUMEN_FAMILY
};

double bytes_of(const DotLoad& l) {
  const double elements = l.elements;
  if (l.kind == DotLoad::Kind::packed) return elements / l.format->block * l.format->block_bytes;
  return l.kind == DotLoad::Kind::memory ? elements * scalar_bytes(l.scalar) : 0;
}

// Time of two overlapping activities: the longer one, plus a little if the shorter is nearly as long; as measured.
double overlapped(double x, double y) {
  return std::sqrt(std::sqrt(x * x * x * x + y * y * y * y));
}

}  // namespace

double Contraction::weight_bytes() const {
  const double all = bytes_of(problem.loads[1]);
  const std::optional<DotPick>& pick = problem.pick;
  if (!pick || pick->scatters || pick->row_count() >= pick->count) return all;
  return all * pick->row_count() / pick->count;
}

double Contraction::bytes() const {
  double all = weight_bytes() + problem.result_bytes;
  const auto scales_runs = [&](size_t load) {  // of a or b, whose bytes are counted already
    return std::ranges::any_of(problem.run_scales, [&](const auto& s) { return s && s->load == load; });
  };
  for (size_t i = 0; i < problem.loads.size(); ++i)
    if (i != 1 && !scales_runs(i)) all += bytes_of(problem.loads[i]);
  return all;
}

double Contraction::of_machine(double task_cycles) const {
  const machine::CostTable& costs = machine.costs;
  if (machine.kind == machine::Kind::cpu) return task_cycles;
  return std::max(task_cycles / costs.cores, bytes() / (machine.units * costs.task_bytes));
}

double Contraction::streamed(double instructions, bool copied) const {
  const double numbers = problem.outer_extent() * static_cast<double>(problem.n.extent) * problem.k_total();
  const machine::CostTable& costs = machine.costs;
  const double memory = bytes() / (copied ? costs.blocks.bytes : costs.task_bytes);
  return overlapped(numbers * instructions / costs.streams.lanes, memory) / machine.units;
}

ProductSchedule schedule_of_rows(ProductSchedule row, const RowsPlan& t, const Contraction& c) {
  if (c.machine.wave > 1) row.workers = Workers::waves;
  return row.with(t, c.problem);
}

void Bids::offer(ProductSchedule schedule, std::string plan, double cycles, std::function<void(Synthesis&)> write,
                 bool without_codes) {
  Bid bid{family_, std::move(plan), cycles, std::move(write), without_codes, std::move(schedule), {}};
  if (!bids_.empty() && bids_.back().family == family_) {
    bids_.back().others.push_back(std::move(bid));
  } else {
    bids_.push_back(std::move(bid));
  }
}

void Bids::refuse(std::string why) {
  refused_.push_back({family_, {}, 0, std::move(why)});
}

void Bids::no_codes(const std::string& why) {
  why_no_codes_ += ", no " + why;
}

double Bids::least() const {
  double least = std::numeric_limits<double>::infinity();
  for (const Bid& b : bids_) least = std::min(least, b.cycles);
  return least;
}

std::vector<BidNote> Bids::notes() const {
  std::vector<BidNote> out;
  for (const Bid& b : bids_) out.push_back({b.family, b.plan, b.cycles, {}});
  out.insert(out.end(), refused_.begin(), refused_.end());
  return out;
}

Bids ask_families(const Contraction& c) {
  Bids bids;
  const bool only_blocks = c.problem.adds_runs() || c.problem.reads_zeros() || !c.problem.codes.empty();
  for (const Family& f : kFamilies) {
    if (c.invariant && (!f.has(kInvariant) || !bids.bids_.empty())) continue;  // the first that can
    if (only_blocks && f.bid != bid_blocks) continue;
    if (c.problem.are_whole() && !f.has(kWhole)) continue;
    bids.family_ = f.name;
    bids.row_ = f.row();
    f.bid(c, bids);
  }
  LUMEN_CHECK(only_blocks || !bids.bids_.empty(), "no family of kernels computes {}", describe_shape(c.problem));
  std::stable_sort(bids.bids_.begin(), bids.bids_.end(),
                   [](const Bid& x, const Bid& y) { return x.cycles < y.cycles; });
  return bids;
}

}  // namespace lumen::synth
