// The interface of compiled graphs: compile options, the program, its tensors, statistics of its kernels, autotuning.
//
// May include: base, base/file, base/threads, graph/ir, graph/keep, graph/pass, kernel/loop, kernel/synth/step,
// run/device, run/engine/cache.
// Offers: execute.h, explain.h, parameter_uploads.h, small_numbers.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/ir/eval.h"
#include "graph/keep/keep.h"
#include "graph/pass/pass.h"
#include "run/engine/cache/compile_report.h"
#include "run/engine/program/tensor.h"

namespace lumen::run {

class Program;

// The implementation of a graph's exchanges between ranks: `bytes` for each rank from `from` to `to`; with `gather` the
// same piece of `from` for all of them.
struct Exchange {
  // Called between launches. Without `await`, all earlier launches have ended, and the exchange has ended on return;
  // with it the exchange is enqueued, to start after those launches.
  std::function<void(graph::Moves moves, const void* from, void* to, int64_t bytes, size_t ticket)> begin = {};
  // Makes later launches wait for the exchange that last had the ticket.
  std::function<void(size_t ticket)> await = {};

  explicit operator bool() const { return begin != nullptr; }
};

struct CompileOptions {
  std::vector<graph::FormatAssignment> assignments;
  graph::Bindings symbols;
  bool exact = false;
  bool invariant = false;                // a row's results do not depend on the other rows of a step (synth::Options)
  graph::ProductType products = {};      // rounding of operands of products with parameters and of attention
  bool is_rounded = false;               // .. already applied (graph::with_rounded_products)
  std::shared_ptr<Program> lender = {};  // a program whose value memory is reused if it is large enough: the two never
                                         // run concurrently, and neither's results are read after the other ran
  graph::Recompute recompute = {};       // activation recomputation in training steps
  Exchange exchange = {};                // null: the graph has none, or is not run
  int candidate = 0;                     // plan number for kernels with that many plans (synth::Options); 0: see Engine
};

// Peak rates of the machine with all threads, measured on request (roofline.h).
struct Ceilings {
  struct Row {
    std::string name;  // of the machine instruction
    const char* kind;  // "int8", "bf16"
    double flops = 0;  // multiplications and additions per second
  };
  double read_bytes = 0;  // per second, from memory
  double f32_flops = 0;   // per second
  double cycles = 0;      // per second, of all cores together
  std::vector<Row> rows;  // best first
};

// Statistics of one kernel over all its launches.
struct KernelTime {
  std::string plan;
  int64_t launches = 0;         // in one run of the program
  double seconds = 0;           // over all runs
  double flops = 0, bytes = 0;  // of one run
  double cycles = 0;            // the cost model's estimate for one run, of one core; 0: none
};

// Work concurrent with a program's launches on an asynchronous device: these hooks are called while launches are
// submitted, and their work on the device's streams is recorded with the launches.
struct LaunchHooks {
  std::vector<std::string> written, read;            // results or updated inputs; inputs
  std::function<void(size_t)> when_written = {};     // after the last launch that uses written[i]
  std::function<void(size_t)> before_read = {};      // before the first launch that uses read[i]
  std::function<void()> at_begin = {}, at_end = {};  // before and after all launches
  // Not recorded: called before and after submission, for launches and replays alike.
  std::function<void()> begin = {}, launched = {};
};

// A compiled graph: a launch list over a fixed memory plan. Not thread-safe; allocation-free while running.
class Program {
 public:
  virtual ~Program() = default;
  // Binds an input (data, parameter or state) by name; type and size must match. All inputs must be bound before run().
  virtual void bind(const std::string& input, DeviceTensorRef tensor) = 0;
  virtual void unbind() = 0;  // releases all inputs, which must be bound again before the next run
  virtual void run() = 0;     // Error on a failed guard, with the input's name and the position
  // run() in two halves, for use between other launches: enqueue() does not wait and records nothing separately;
  // check() throws the Error of a failed guard after completion.
  virtual void enqueue() = 0;
  virtual void check() = 0;
  // Hooks of later runs; null: none. Recordings with other hooks are kept.
  virtual void set_hooks(std::shared_ptr<const LaunchHooks> hooks) = 0;
  // Launch numbers: the first that uses an input, the last that uses a result or an updated input; -1: none.
  virtual int64_t first_use(const std::string& input) const = 0;
  virtual int64_t last_use(const std::string& written) const = 0;
  virtual DeviceTensorRef result(const std::string& name) = 0;  // valid until the next run; updated states: the state's
                                                                // tensor
  virtual std::vector<std::string> input_names() const = 0;
  virtual graph::Type input_type(const std::string& name) const = 0;
  virtual const CompileReport& report() const = 0;
  // One line per distinct kernel: calls, time, share, rates; with ceilings, the fraction of the limiting one.
  virtual std::string explain(const Ceilings* ceilings = nullptr) const = 0;
  virtual std::vector<KernelTime> times() const = 0;  // by launch, in order; GPUs: zeros unless Options::timed
  virtual void forget_times() = 0;                    // resets the times of explain()
  virtual double measure(int runs) = 0;               // seconds of one run: median of `runs` without timing of kernels
  virtual int64_t arena_bytes() const = 0;
  virtual int64_t own_bytes() const = 0;  // the same, or 0 for another program's memory (CompileOptions::lender)
  virtual std::shared_ptr<void> lend(int64_t bytes) const = 0;  // memory for `bytes` of values, or null
};

}  // namespace lumen::run
