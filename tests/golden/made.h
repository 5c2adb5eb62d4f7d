// What synthesis makes of a graph for a machine: the kernels of a compilation, without tuning, caches or this
// processor.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "kernel/synth/synth.h"
#include "run/engine/engine.h"

namespace lumen::golden {

// A graph and how it is compiled.
struct Case {
  std::string name;
  graph::Graph graph;
  run::CompileOptions options;
};

// Kernels of one group; `others`: the same group by the other plans that the tuner would measure.
struct Made {
  synth::Synthesis chosen;
  std::vector<synth::Synthesis> others;
};

// Every distinct group of the case, in the order of its execution.
std::vector<Made> make(const Case& c, const machine::Machine& m, bool with_others);

// Of a kernel's text without its name and those of its parameters: renamed plans keep it. Eight digits.
std::string digest(const loop::Kernel& k);
std::string digest(const std::vector<synth::Synthesis>& s);

// What a kernel has, so that a change of its digest says something: loops, accesses of memory, instructions by row, and
// bytes of private memory (of registers, too) and of shared memory.
std::string summary_of(const loop::Kernel& k);
// How each product of the case is computed (gemm/product_schedule.h).
std::vector<std::string> schedules(const Case& c, const machine::Machine& m);

// "PLAN DIGEST" for each step, "others" behind; one line without its end.
std::string line_of(const Made& made);

// Plans and texts of all kernels whose plan contains `only`. Of kernels of more than `whole` lines the first
// `beginning`, and of the others their number and a digest.
std::string text_of(const std::vector<Made>& made, const std::string& only = "",
                    size_t whole = std::numeric_limits<size_t>::max(), size_t beginning = 0);

}  // namespace lumen::golden
