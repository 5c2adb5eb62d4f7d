// A launch list and the program that runs it. Knows devices and addresses; of graphs only names, types and labels.
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

// Where a buffer of a launch is.
struct BufferAddress {
  enum class In : uint8_t { input, constant, arena } in = In::arena;
  int64_t at = 0;      // number of the input or constant; bytes into the arena
  int64_t offset = 0;  // bytes into the input or constant
  // In loops, the outermost first: how far it moves with the index of the step, or with every other one.
  struct Turn {
    int64_t bytes = 0;
    bool alternates = false;
    friend bool operator==(const Turn&, const Turn&) = default;
  };
  std::vector<Turn> turns = {};
  friend bool operator==(const BufferAddress&, const BufferAddress&) = default;
};

// Launches begin <= i < end run for one step after another.
struct Loop {
  size_t begin = 0, end = 0;
  int64_t steps = 0;
  bool reverse = false;
  std::vector<Loop> inside = {};  // in order
};

struct Launch {
  void* kernel = nullptr;                // as the device has loaded it
  std::shared_ptr<Product> product;      // in its place: a library's product
  std::optional<graph::Moves> exchange;  // in its place: with other ranks
  int64_t piece_bytes = 0;               // of an exchange, for each rank
  size_t ticket = 0;                     // of an exchange
  std::vector<size_t> awaited;           // tickets of exchanges that have to end before it begins
  LaunchConfig launch_config;
  std::vector<BufferAddress> addresses;         // one per buffer
  std::string name, plan, label;                // kernel, synthesizer's plan, what it computes
  double flops = 0, bytes = 0, cycles = 0;      // cycles: estimate, of one core
  std::vector<graph::ValueId> blamed;           // by instance: the node whose guard this is
  bool is_last = true;                          // step of its group
  std::shared_ptr<const graph::Graph> of = {};  // the graph that has the node; null: the program's own
  int64_t times = 1;                            // steps it runs for; flops, bytes and cycles are those of all
  std::shared_ptr<Autotuner> autotuner;         // other plans of this kernel; null: there are none, or none are tried
  std::vector<synth::BidNote> bids;             // of a product's last kernel: what families of kernels offered
};

struct ProgramInput {
  std::string name;
  graph::Type type;
  bool written = false;  // a state some launch updates
  bool used = true;      // no: passes found that nothing depends on it
};

struct ProgramResult {
  std::string name;
  graph::Type type;
  BufferAddress place;
};

// What the compiler hands over.
struct LaunchList {
  std::vector<Launch> launches;
  std::vector<Loop> loops;  // in order
  std::vector<ProgramInput> inputs;
  std::vector<ProgramResult> results;
  std::vector<DeviceTensorRef> constants;
  int64_t arena_bytes = 0;           // values and scratch
  Exchange exchange;                 // null: there are none
  std::vector<size_t> awaited = {};  // tickets of exchanges that end behind all launches
  graph::Graph graph;                // for messages
  CompileReport report;
};

// The Error a failed guard means.
Error guard_error(const graph::Graph& g, graph::ValueId node, const LaunchStatus& status);

// The cache keeps the machine code alive. `lent`: memory for its values; without it, it takes its own. `timed`:
// launches of asynchronous devices are timed one by one, which costs.
std::shared_ptr<Program> make_program(std::shared_ptr<Device> device, std::shared_ptr<KernelCache> cache,
                                      LaunchList list, bool timed, std::shared_ptr<void> lent = {});

// Device memory with shared ownership.
std::shared_ptr<void> allocate_shared(const std::shared_ptr<Device>& device, int64_t bytes);

}  // namespace lumen::run
