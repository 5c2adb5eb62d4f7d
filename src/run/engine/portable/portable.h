// A program for another processor, without an engine: an object of its kernels, and C that calls them one after another
// over one block of memory, with all parameters as constants; a scan is a loop in that C. Needs no library. Proved by
// tests/run/engine/portable/portable_test.cpp, and tests/model/classify/classify_test.cpp under an emulator.
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
  std::string object;          // a relocatable file
  std::string source;          // C: int lumen_run(const void* const* inputs, void* const* results); 0: all is well
  int64_t arena_bytes = 0;     // of memory that is written, beside a stack; of a step in loops, for all steps
  int64_t constant_bytes = 0;  // parameters and constants
  int64_t kernels = 0, launches = 0;  // launches of loops once
};

// `machine` as users type it: a processor, or cortex-m4 or cortex-m7, of which only programs are written. `bytes` gives
// what a parameter holds. Inputs that are data come in the order of the graph's, results in that of its results. Error
// for machines that are no processors, and for graphs with states.
PortableProgram portable_program(const graph::Graph& g, const CompileOptions& options, const std::string& machine,
                                 const std::function<std::vector<uint8_t>(const std::string& parameter)>& bytes);

}  // namespace lumen::run
