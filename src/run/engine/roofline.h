// What this machine can do at best, measured by kernels in loop IR through our own compiler, and single matrix products
// beside it. What `lumen bench kernels` and `--explain` show. Proved by tests/run/engine/explain_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "run/engine/compile/compile.h"
#include "run/engine/engine.h"

namespace lumen::run {

// A kernel that does nothing but what one ceiling is about, and how much of it: bytes or operations.
struct CeilingKernel {
  std::string row;   // instruction; "" for reading and for f32
  const char* kind;  // "read", "f32", "int8", ...
  loop::Kernel kernel;
  double work = 0;
};
std::vector<CeilingKernel> ceiling_kernels(const machine::Machine& m, int64_t tasks);

// Reading memory (GPUs: copying it), f32 multiply-adds, and every dot and matrix row of the machine (GPUs: the largest
// instruction for each pair of types), by all threads at once. About a second.
Ceilings measure_ceilings(const CompileContext& context);
double measure_memory(const CompileContext& context);  // of them, reading alone

// Multiplications and additions a second of operands of a kind ("f32", "bf16"), or of f32 where the machine has no
// faster instruction for it: what a training run's speed is held against. Measured the first time, and then kept in the
// folder of compiled kernels that `cache` names (cache_folder).
double product_ceiling(Engine& engine, const std::string& kind, const std::string& cache);

// y[m, n] = x[m, k] w[n, k], with w in a format (null: f32).
struct ProductShape {
  int64_t m = 1, n = 0, k = 0;
};
struct ProductTime {
  double seconds = 0;           // median of one product, weights coming from memory
  double flops = 0, bytes = 0;  // work, and the bytes of weights
  double bound_seconds = 0;     // what the ceiling that binds allows
  std::string ceiling;          // that ceiling
  std::string plan;             // kernels, in order
};
// Several copies of the weights take turns, so that none is found in a cache.
ProductTime time_product(Engine& engine, const FormatRef& format, const ProductShape& shape, bool exact,
                         const Ceilings& ceilings);

}  // namespace lumen::run
