// Peak rates of this machine, measured by kernels in loop IR through our own compiler, and single matrix products. Used
// by `lumen bench kernels` and `--explain`. Proved by tests/run/engine/explain_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/engine/compile/compile.h"
#include "run/engine/engine.h"

namespace lumen::run {

// A kernel that measures one ceiling, with its amount of work: bytes or operations.
struct CeilingKernel {
  std::string row;   // instruction; "" for reading and for f32
  const char* kind;  // "read", "f32", "int8", ...
  loop::Kernel kernel;
  double work = 0;
};
std::vector<CeilingKernel> ceiling_kernels(const machine::Machine& m, int64_t tasks);

// Reading memory (GPUs: copying it), f32 multiply-adds, and every dot and matrix instruction of the machine (GPUs: the
// largest instruction for each pair of types), by all threads. About a second.
Ceilings measure_ceilings(const CompileContext& context);
double measure_memory(const CompileContext& context);  // of these, memory only

// Multiplications and additions per second for operands of a kind ("f32", "bf16"), or for f32 if the machine has no
// faster instruction for it: the reference for a training run's speed. Measured once, then stored in the folder of
// compiled kernels given by `cache` (cache_folder).
double product_ceiling(Engine& engine, const std::string& kind, const std::string& cache);
// Measures it once more and stores the higher one: a machine that had other work was measured too low.
double higher_product_ceiling(Engine& engine, const std::string& kind, const std::string& cache);

// y[m, n] = x[m, k] w[n, k], with w in a format (null: f32).
struct ProductShape {
  int64_t m = 1, n = 0, k = 0;
};
struct ProductTime {
  double seconds = 0;           // median of one product, with weights from memory
  double flops = 0, bytes = 0;  // work, and the bytes of weights
  double bound_seconds = 0;     // minimum by the limiting ceiling
  std::string ceiling;          // that ceiling
  std::string plan;             // kernels, in order
};
// Iterates over several copies of the weights, so that none is in a cache.
ProductTime time_product(Engine& engine, const FormatRef& format, const ProductShape& shape, bool exact,
                         const Ceilings& ceilings);

}  // namespace lumen::run
