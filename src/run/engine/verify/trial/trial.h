// Trials of kernels: small graphs, compiled as in real work, against the graph's evaluator. A trial reports its plan
// and the machine instructions it used, so that failures can be attributed, and a targeted instruction that was not
// chosen does not count as passed. Proved by tests/run/engine/verify/trial/soundness_test.cpp.
//
// May include: base, graph/grad, graph/ir, graph/pipeline, kernel/loop, kernel/loop/eval, kernel/machine, number/codec,
// number/facts, number/library, run/engine/cache, run/engine/compile, run/engine/program.
// Offers: determinism.h, row_trial.h, soundness.h.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "run/engine/compile/compile.h"
#include "run/engine/program/program.h"

namespace lumen::run {

struct CheckLine {
  std::string what = {};     // "codec: encode is idempotent", "backward dX", "attend"
  std::string machine = {};  // "" for codec checks
  bool ok = false;
  std::string detail = {};             // first difference, or a figure
  bool ran = true;                     // false: could not be compiled or launched; the reason is in `detail`
  std::string plan = {};               // of the tested kernels, the most expensive first
  std::vector<std::string> rows = {};  // machine instructions that they use
  bool chosen = true;                  // false: not run, because no plan uses the targeted row
  double seconds = 0;                  // of one run, without compilation
};

// Distribution of an input; the same numbers every time.
enum class TrialNumbers : uint8_t {
  digits,   // integers, -7 .. 7: exact in every float of three bits of precision, and so are their products' sums in
            // f32
  whole,    // -127 .. 127, each eighth 127 or -127: unchanged by dynamic rounding to 8 bits
  normal,   // a standard normal
  ties,     // normal, but half of them halfway between two numbers of bf16 or of f16
  present,  // 1/4 .. 7/4 in steps of 1/4: positive, to avoid cancellation
  indices,  // of rows of a table, below Trial::table
};

// A graph, its expected result, and the error bound.
struct Trial {
  std::string what;
  graph::Graph graph = {};
  CompileOptions options = {};
  std::map<std::string, TrialNumbers> numbers = {};  // by input; `digits` by default
  int64_t table = 1;
  int64_t runs = 1;  // of the program; states are carried over, as in the evaluator
  // Results may differ by units * (result 0 of `magnitude`), or of the result's own magnitude if that graph has no
  // results. trial.cpp derives the units.
  graph::Graph magnitude = {};
  double units = 0;
  int64_t products = 0;  // per sum: rows with few accumulator digits (MatrixRow::short_sums) get a larger bound
  // Other graphs whose results are also correct: with operands that a kernel rounds before it multiplies.
  std::vector<graph::Graph> others = {};
  std::string wanted = {};             // the targeted machine instruction; empty: none
  std::set<std::string> without = {};  // instructions removed from the table for this trial, so that others are chosen
};

// A tensor's bytes in device layout.
std::vector<uint8_t> device_bytes(const graph::Tensor& t);

// Error units of f32 sums: `additions` operations, each rounded or, in matrix units, truncated.
double units_of_sum(int64_t additions);
// Additional error of sums of products with fewer digits than f32 (MatrixRow::short_sums).
double units_of_short_sum(int64_t products);
bool has_short_sums(const machine::Machine& machine, const std::set<std::string>& rows);
// Error units of one rounding to a type.
double units_of(Scalar s);

// The kernels that a trial compiles to.
struct TrialPlan {
  std::set<std::string> rows;  // of the machine's table
  std::vector<std::string> plans;
  int candidates = 1;  // for the product with most candidates
};
TrialPlan plan_of(const machine::Machine& machine, const Trial& trial);

// Loads or compiles the kernels of many trials at once with all threads, for try_out: a single trial has too few to use
// a machine. Failures are reported by try_out.
void find_kernels(const CompileContext& context, std::span<const Trial* const> trials);

// Compiles and runs; never throws for a device's shortcomings.
CheckLine try_out(const CompileContext& context, const Trial& trial);

// The bytes of all results after its runs; Error for a device's shortcomings.
std::vector<std::vector<uint8_t>> outcome_of(const CompileContext& context, const Trial& trial);

enum class TrialDepth : uint8_t {
  first_use,   // every machine instruction in common use, a second on a CPU
  usual,       // every instruction used by any format or shape below
  everything,  // every kind of plan of these
};
// Products: those plans of typical work that use a new machine instruction, or for `everything` are a new kind of
// kernel.
std::vector<Trial> product_trials(const machine::Machine& machine, TrialDepth depth, int threads);
// Other kernels: maps, reductions, attention, moves, encodings, updates, recorded steps.
std::vector<Trial> family_trials(const machine::Machine& machine, TrialDepth depth);
std::vector<Trial> encode_trials(TrialDepth depth);

}  // namespace lumen::run
