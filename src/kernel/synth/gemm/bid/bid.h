// How families of kernels compete for a contraction: each family offers bids, plans with a predicted cost, and the
// cheapest is written. A family is a file in this room and a line in families.def. All predict in the same unit, cycles
// by the machine's table (kernel/machine/costs.h). Proved by tests/kernel/synth/gemm/bid_test.cpp.
//
// May include: base, kernel/machine, kernel/synth/gemm, kernel/synth/gemm/cpu, kernel/synth/gemm/gpu,
// kernel/synth/gemm/held, kernel/synth/gemm/skinny, kernel/synth/gemm/unit, kernel/synth/step.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/gemm/product_schedule.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// The contraction that families bid for.
struct Contraction {
  const graph::Graph& graph;
  const DotProblem& problem;  // rows that pick their matrix are sorted
  const DotProblem& plain;    // the same, with a packed operand that is a plain scalar seen as memory
  const machine::Machine& machine;
  bool exact = false;      // activations stay f32 with packed weights
  int scratch = 0;         // buffers that earlier steps have taken
  bool invariant = false;  // Options::invariant; rows are in slices

  double weight_bytes() const;                  // of b in memory, read once
  double bytes() const;                         // that a kernel reads and writes at least
  double of_machine(double task_cycles) const;  // cycles of the whole machine for tasks of so many cycles
  // Cycles of a GPU that streams the weight, with so many instructions of a lane per number of it. `copied`: loads are
  // asynchronous copies; otherwise tasks wait for their loads.
  double streamed(double instructions, bool copied) const;
};

// One way of computing it.
struct Bid {
  std::string family;
  std::string plan;                       // its last step's
  double cycles = 0;                      // predicted, of all its steps; see Step::cycles
  std::function<void(Synthesis&)> write;  // adds steps and scratch
  bool without_codes = false;             // computes in floats; its plan gives the reason
  ProductSchedule schedule;               // of the step that multiplies
  std::vector<Bid> others;  // further candidates of the family to measure: the same bits, only the last step differs
};

// Schedules of kernels of few rows; on GPUs waves have the columns.
ProductSchedule schedule_of_rows(ProductSchedule row, const RowsPlan& t, const Contraction& c);

ProductSchedule schedule_of_tiles(const ProductSchedule& row, const TilePlan& t, const DotProblem& p);

class Bids {
 public:
  // Called by a family. Its first bid competes with those of other families; later ones give the same bits.
  void offer(ProductSchedule schedule, std::string plan, double cycles, std::function<void(Synthesis&)> write,
             bool without_codes = false);
  // The defaults of the family that is asked.
  const ProductSchedule& row() const { return row_; }
  void refuse(std::string why);
  // Why the machine or the format has no dots of codes ("integers: not affine"); bids without codes quote it.
  void no_codes(const std::string& why);

  // Predicted cycles of the best bid so far; infinity if there is none.
  double least() const;
  const std::string& why_no_codes() const { return why_no_codes_; }
  const std::vector<Bid>& all() const { return bids_; }  // by family, the cheapest first
  std::vector<BidNote> notes() const;

 private:
  friend Bids ask_families(const Contraction& c);
  std::string family_, why_no_codes_;
  ProductSchedule row_;
  std::vector<Bid> bids_;
  std::vector<BidNote> refused_;
};

// All bids for a contraction. At least one, except if sums of runs are scaled, zeros are written by copies or results
// are encoded: only the kernels of thread blocks do that.
Bids ask_families(const Contraction& c);

#define LUMEN_FAMILY(name, ...) void bid_##name(const Contraction& c, Bids& bids);
#include "kernel/synth/gemm/bid/families.def"
#undef LUMEN_FAMILY

}  // namespace lumen::synth
