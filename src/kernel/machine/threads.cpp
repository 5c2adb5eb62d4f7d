// A GPU seen as very many small CPUs: what kernels without a plan for blocks of threads should know.
#include "kernel/machine/machine.h"

namespace lumen::machine {

void as_threads(Machine& m) {
  m.vector_bits = 128;      // one load or store
  m.vector_registers = 24;  // 96 of the lane's registers; more would leave few waves to hide latency with
  m.fma_cycles = 4;         // lanes of a vector one by one
  m.load_cycles = 4;
  m.l1_bytes = 4 << 10;  // a thread's share
  m.l2_bytes = 16 << 10;
  m.task_divisor = 1024;
  m.busy_tasks = 1 << 15;
  m.task_bytes = 4 << 10;
  m.costs = gpu_costs(m.units);
}

}  // namespace lumen::machine
