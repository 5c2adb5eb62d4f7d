// See costs.h.
#include "kernel/machine/costs.h"

namespace lumen::machine {

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
