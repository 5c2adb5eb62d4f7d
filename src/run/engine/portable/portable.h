// A program for another processor, without an engine: an object of its kernels, and C code that calls them in order
// over one block of memory, with all parameters as constants; a scan is a loop in that C code. Needs no library. Proved
// by tests/run/engine/portable/portable_test.cpp, and tests/apps/classify/classify_test.cpp under an emulator.
//
// May include: base, emit, graph/fuse, graph/ir, kernel/loop, kernel/synth, run/engine/compile, run/engine/program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "run/engine/program/program.h"

namespace lumen::run {

struct PortableProgram {
  std::string object;                 // a relocatable file
  std::string source;                 // C: int lumen_run(const void* const* inputs, void* const* results); 0 on success
  int64_t arena_bytes = 0;            // writable memory besides a stack; loops: values of a step, for all steps
  int64_t constant_bytes = 0;         // parameters and constants
  int64_t kernels = 0, launches = 0;  // launches in loops count once
};

// `machine` in the user's spelling: a CPU, or cortex-m4 or cortex-m7, for which only portable programs exist. `bytes`
// returns a parameter's content. Data inputs are in the order of the graph's inputs, results in that of its results.
// Error for machines that are not CPUs, and for graphs with states.
PortableProgram portable_program(const graph::Graph& g, const CompileOptions& options, const std::string& machine,
                                 const std::function<std::vector<uint8_t>(const std::string& parameter)>& bytes);

}  // namespace lumen::run
