#include "kernel/machine/machine.h"

namespace lumen::machine {

Machine threads(const std::string& name, const std::string& triple, int wave, int64_t shared_bytes, int units) {
  Machine m;
  m.name = m.cpu = name;
  m.kind = Kind::gpu;
  m.triple = triple;
  m.wave = wave;
  m.shared_bytes = shared_bytes;
  m.units = units;
  m.vector_bits = 128;      // one load or store
  m.vector_registers = 24;  // 96 of the lane's registers; more would lower occupancy, which hides latency
  m.fma_cycles = 4;         // for the lanes of a vector, one by one
  m.load_cycles = 4;
  m.l1_bytes = 4 << 10;  // a thread's share
  m.l2_bytes = 16 << 10;
  m.task_divisor = 1024;
  m.busy_tasks = 1 << 15;
  m.task_bytes = 4 << 10;
  m.costs.hertz = 1.7e9;
  // Lanes with separate tasks read separate cache lines, use a part of each, and wait for them.
  m.costs.cores = units * m.costs.streams.lanes / 64;
  m.costs.task_bytes = 16.5;
  return m;
}

}  // namespace lumen::machine
