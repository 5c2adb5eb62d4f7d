// A launch list and the program that runs it. Depends on devices and addresses; uses only names, types and labels of
// graphs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/synth/step/step.h"
#include "run/engine/cache/cache.h"
#include "run/engine/program/program.h"
#include "run/engine/program/tune.h"

namespace lumen::run {

// The location of a launch's buffer.
struct BufferAddress {
  enum class In : uint8_t { input, constant, arena } in = In::arena;
  int64_t at = 0;      // number of the input or constant; bytes into the arena
  int64_t offset = 0;  // bytes into the input or constant
  // In loops, the outermost first: its offset per step, or for alternate steps.
  struct Turn {
    int64_t bytes = 0;
    bool alternates = false;
    friend bool operator==(const Turn&, const Turn&) = default;
  };
  std::vector<Turn> turns = {};
  friend bool operator==(const BufferAddress&, const BufferAddress&) = default;
};

// Launches begin <= i < end run once per step.
struct Loop {
  size_t begin = 0, end = 0;
  int64_t steps = 0;
  bool reverse = false;
  std::vector<Loop> inside = {};  // in order
};

struct Launch {
  void* kernel = nullptr;                // the device's loaded kernel
  std::shared_ptr<Product> product;      // instead of a kernel: a library's product
  std::optional<graph::Moves> exchange;  // instead of a kernel: an exchange with other ranks
  int64_t piece_bytes = 0;               // of an exchange, for each rank
  size_t ticket = 0;                     // of an exchange
  std::vector<size_t> awaited;           // tickets of exchanges that must end before it starts
  LaunchConfig launch_config;
  std::vector<BufferAddress> addresses;         // one per buffer
  std::string name, plan, label;                // kernel, synthesizer's plan, computed node
  double flops = 0, bytes = 0, cycles = 0;      // cycles: estimate, of one core
  std::vector<graph::ValueId> blamed;           // by instance: the node of its guard
  bool is_last = true;                          // last step of its group
  std::shared_ptr<const graph::Graph> of = {};  // the graph that has the node; null: the program's own
  int64_t times = 1;                            // number of steps it runs in; flops, bytes and cycles are totals
  std::shared_ptr<Autotuner> autotuner;         // other plans of this kernel; null: none exist, or none are tried
  std::vector<synth::BidNote> bids;             // for a product's last kernel: bids of kernel families
};

struct ProgramInput {
  std::string name;
  graph::Type type;
  bool written = false;  // a state updated by a launch
  bool used = true;      // false: passes found no use of it
};

struct ProgramResult {
  std::string name;
  graph::Type type;
  BufferAddress place;
};

// The compiler's result.
struct LaunchList {
  std::vector<Launch> launches;
  std::vector<Loop> loops;  // in order
  std::vector<ProgramInput> inputs;
  std::vector<ProgramResult> results;
  std::vector<DeviceTensorRef> constants;
  int64_t arena_bytes = 0;           // values and scratch
  Exchange exchange;                 // null: no exchanges
  std::vector<size_t> awaited = {};  // tickets of exchanges that end after all launches
  graph::Graph graph;                // for messages
  CompileReport report;
};

// The Error for a failed guard.
Error guard_error(const graph::Graph& g, graph::ValueId node, const LaunchStatus& status);

// The cache keeps the machine code alive. `lent`: memory for its values; null: it allocates its own. `timed`: launches
// of asynchronous devices are timed one by one, at a cost.
std::shared_ptr<Program> make_program(std::shared_ptr<Device> device, std::shared_ptr<KernelCache> cache,
                                      LaunchList list, bool timed, std::shared_ptr<void> lent = {});

// Device memory with shared ownership.
std::shared_ptr<void> allocate_shared(const std::shared_ptr<Device>& device, int64_t bytes);

}  // namespace lumen::run
