// Cost model of a machine: a table of coefficients (costs.def), from which kernel families predict their time
// (kernel/synth/gemm/bid). They affect speed only, never results.
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
  double hertz = 0;       // cycles per second of GPUs, where they are not measured
  double cores = 1;       // effective cores of a GPU that runs tasks: busy lanes
  double task_bytes = 0;  // bytes that tasks read per cycle of a multiprocessor; 0: a CPU, whose memory costs
                          // all families the same
  TaskCosts tasks;
  PanelCosts panels;
  CodeCosts codes;
  BlockCosts blocks;
  StreamCosts streams;

  // The coefficient of a name like "tasks.launch"; null if there is none.
  double* find(std::string_view name);
};

}  // namespace lumen::machine
