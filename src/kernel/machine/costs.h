// What work costs a machine: a table of coefficients (costs.def), by which families of kernels predict their time
// (kernel/synth/gemm/bid). They decide about speed alone, never about results.
#pragma once

#include <string_view>

namespace lumen::machine {

struct TaskCosts {
#define LUMEN_TASK_COST(name, value, text) double name = value;
#include "kernel/machine/costs.def"
};
struct PanelCosts {
#define LUMEN_PANEL_COST(name, value, text) double name = value;
#include "kernel/machine/costs.def"
};
struct CodeCosts {
#define LUMEN_CODE_COST(name, value, text) double name = value;
#include "kernel/machine/costs.def"
};
struct BlockCosts {
#define LUMEN_BLOCK_COST(name, value, text) double name = value;
#include "kernel/machine/costs.def"
};
struct StreamCosts {
#define LUMEN_STREAM_COST(name, value, text) double name = value;
#include "kernel/machine/costs.def"
};

struct CostTable {
  double hertz = 0;       // cycles a second, where nothing measures them: of GPUs
  double cores = 1;       // as which a GPU does tasks: lanes at work
  double task_bytes = 0;  // that tasks read in a cycle of a multiprocessor; 0: of a processor, whose memory all
                          // families wait for alike
  TaskCosts tasks;
  PanelCosts panels;
  CodeCosts codes;
  BlockCosts blocks;
  StreamCosts streams;

  // The coefficient called "tasks.launch"; null: there is none.
  double* find(std::string_view name);
};

}  // namespace lumen::machine
