// Kernels on trial: small graphs, compiled as real work compiles them, against the graph's evaluator. A trial says
// which plan and which rows of the machine's table it went through, so that what fails has a name, and what was to be
// tried and was not chosen is no pass. Proved by tests/run/engine/trial/soundness_test.cpp.
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
  std::string machine = {};  // "" for the codec alone
  bool ok = false;
  std::string detail = {};             // first difference, or a figure
  bool ran = true;                     // no: it could not be compiled or launched, and `detail` says why
  std::string plan = {};               // of the kernels that were tried, the most expensive first
  std::vector<std::string> rows = {};  // of the machine's table that they use
  bool chosen = true;                  // no: nothing ran, as no plan has the row that was to be tried
  double seconds = 0;                  // of one run, the compiler's time not counted
};

// The numbers an input has; the same each time.
enum class TrialNumbers : uint8_t {
  digits,   // whole, -7 .. 7: exact in every float of three bits of precision, and so are their products' sums in f32
  whole,    // -127 .. 127, each eighth 127 or -127: what dynamic rounding to 8 bits leaves as it is
  normal,   // a standard normal
  ties,     // normal, but half of them lie in the middle between two numbers of bf16 or of f16
  present,  // 1/4 .. 7/4 in steps of 1/4: factors of what is not to cancel
  indices,  // of rows of a table, below Trial::table
};

// A graph, what its result must be, and how near.
struct Trial {
  std::string what;
  graph::Graph graph = {};
  CompileOptions options = {};
  std::map<std::string, TrialNumbers> numbers = {};  // by input; `digits` where none is named
  int64_t table = 1;
  int64_t runs = 1;  // of the program; states go on, as with the evaluator
  // Results may differ by units * (result 0 of `magnitude`), or of the result's own magnitude where that has no
  // results. See trial.cpp for where units come from.
  graph::Graph magnitude = {};
  double units = 0;
  int64_t products = 0;  // that a sum has: where rows add few digits (MatrixRow::short_sums) it may lose more
  // Other graphs that are right as well, whole: operands rounded by a kernel before it multiplies.
  std::vector<graph::Graph> others = {};
  std::string wanted = {};             // a row of the machine's table that it is there for; empty: none
  std::set<std::string> without = {};  // rows that the table has not for this one, so that others are chosen
};

// A tensor as its bytes lie on a device.
std::vector<uint8_t> device_bytes(const graph::Tensor& t);

// What f32 sums may lose: so many additions, each rounded or, in matrix units, cut.
double units_of_sum(int64_t additions);
// What sums of products lose besides in rows that keep fewer digits than f32 (MatrixRow::short_sums).
double units_of_short_sum(int64_t products);
bool has_short_sums(const machine::Machine& machine, const std::set<std::string>& rows);
// What numbers lose that are rounded to a type once.
double units_of(Scalar s);

// What a trial would be compiled to.
struct TrialPlan {
  std::set<std::string> rows;  // of the machine's table
  std::vector<std::string> plans;
  int candidates = 1;  // of the product with most
};
TrialPlan plan_of(const machine::Machine& machine, const Trial& trial);

// The kernels of many trials, found or compiled at one time by all threads, so that try_out finds them loaded: one
// trial alone has too few to keep a machine busy. What cannot be made is left for try_out to say.
void find_kernels(const CompileContext& context, std::span<const Trial* const> trials);

// Compiles and runs; never throws for what a device lacks.
CheckLine try_out(const CompileContext& context, const Trial& trial);

// The bytes of all its results after its runs; Error for what a device lacks.
std::vector<std::vector<uint8_t>> outcome_of(const CompileContext& context, const Trial& trial);

enum class TrialDepth : uint8_t {
  first_use,   // every row of the machine's table that usual work has, a second on a processor
  usual,       // every row that any format or shape below has
  everything,  // every kind of plan of these
};
// Products: of all plans of real work those that have a row of the machine's table, or for `everything` a kind of
// kernel, which no plan before had.
std::vector<Trial> product_trials(const machine::Machine& machine, TrialDepth depth, int threads);
// Everything else: maps, reductions, attention, moves, encodings, updates, steps that are recorded.
std::vector<Trial> family_trials(const machine::Machine& machine, TrialDepth depth);
std::vector<Trial> encode_trials(TrialDepth depth);

}  // namespace lumen::run
