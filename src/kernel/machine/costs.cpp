// See costs.h.
#include "kernel/machine/costs.h"

#include <string>

namespace lumen::machine {

CostTable processor_costs() {
  CostTable t;
#define LUMEN_TASK_COST(name, value, text) t.tasks.name = value;
#define LUMEN_PANEL_COST(name, value, text) t.panels.name = value;
#define LUMEN_CODE_COST(name, value, text) t.codes.name = value;
#define LUMEN_BLOCK_COST(name, value, text) t.blocks.name = value;
#define LUMEN_STREAM_COST(name, value, text) t.streams.name = value;
#include "kernel/machine/costs.def"
  return t;
}

CostTable gpu_costs(int multiprocessors) {
  CostTable t = processor_costs();
  t.hertz = 1.7e9;
  // Lanes that have tasks of their own read lines of their own, of which they use a part, and wait for them.
  t.cores = multiprocessors * t.streams.lanes / 64;
  t.task_bytes = 16.5;
  return t;
}

double* CostTable::find(std::string_view name) {
#define LUMEN_TASK_COST(name_of, value, text) \
  if (name == "tasks." #name_of) return &tasks.name_of;
#define LUMEN_PANEL_COST(name_of, value, text) \
  if (name == "panels." #name_of) return &panels.name_of;
#define LUMEN_CODE_COST(name_of, value, text) \
  if (name == "codes." #name_of) return &codes.name_of;
#define LUMEN_BLOCK_COST(name_of, value, text) \
  if (name == "blocks." #name_of) return &blocks.name_of;
#define LUMEN_STREAM_COST(name_of, value, text) \
  if (name == "streams." #name_of) return &streams.name_of;
#include "kernel/machine/costs.def"
  return nullptr;
}

}  // namespace lumen::machine
