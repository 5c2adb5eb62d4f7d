// Compiled graphs as those who run them see them: what is asked for when a graph is compiled, the program, its tensors,
// and what its kernels did.
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

// What a graph's exchanges with other ranks go through: a piece of so many bytes for each rank from `from` to `to`;
// with `gather` the one piece of `from` for all of them.
struct Exchange {
  // Between launches. Without `await` all launches before are done, and so is the exchange when this returns; with it
  // the exchange is asked for, to begin when those are done.
  std::function<void(graph::Moves moves, const void* from, void* to, int64_t bytes, size_t ticket)> begin = {};
  // Launches that come begin when the exchange that last had the ticket has ended.
  std::function<void(size_t ticket)> await = {};

  explicit operator bool() const { return begin != nullptr; }
};

struct CompileOptions {
  std::vector<graph::FormatAssignment> assignments;
  graph::Bindings symbols;
  bool exact = false;
  graph::ProductType products = {};      // what operands of products with parameters and of attention are rounded to
  bool is_rounded = false;               // .. which they are already (graph::with_rounded_products)
  std::shared_ptr<Program> lender = {};  // whose memory for values serves this program too, if it is large enough: the
                                         // two never run at once, and neither's results are read after the other ran
  graph::Recompute recompute = {};       // of training steps: what is computed again rather than kept
  Exchange exchange = {};                // null: the graph has none, or is not run
  int candidate = 0;                     // the plan of every kernel that has so many (synth::Options); 0: see Engine
};

// What the machine can do at best, all threads together, measured when asked for (roofline.h).
struct Ceilings {
  struct Row {
    std::string name;  // of the machine's instruction
    const char* kind;  // "int8", "bf16"
    double flops = 0;  // multiplications and additions a second
  };
  double read_bytes = 0;  // a second, from memory
  double f32_flops = 0;   // a second
  double cycles = 0;      // a second, of all cores together
  std::vector<Row> rows;  // best first
};

// What one kernel did, all its launches together.
struct KernelTime {
  std::string plan;
  int64_t launches = 0;         // in one run of the program
  double seconds = 0;           // over all runs
  double flops = 0, bytes = 0;  // of one run
  double cycles = 0;            // the cost model's estimate for one run, of one core; 0: none
};

// What goes on beside a program's launches on a device that is asynchronous: these are called while launches are asked
// for, and what they ask of the device's streams is recorded with the launches.
struct LaunchHooks {
  std::vector<std::string> written, read;            // results or inputs that are updated; inputs
  std::function<void(size_t)> when_written = {};     // behind the last launch that has to do with written[i]
  std::function<void(size_t)> before_read = {};      // before the first that has to do with read[i]
  std::function<void()> at_begin = {}, at_end = {};  // before and behind all launches
  // Not recorded: before anything, and when all has been asked for, whether it was launched or replayed.
  std::function<void()> begin = {}, launched = {};
};

// A compiled graph: a launch list over a fixed memory plan. Not thread-safe; allocation-free while running.
class Program {
 public:
  virtual ~Program() = default;
  // Binds an input (data, parameter or state) by name; type and size must match. All inputs must be bound before run().
  virtual void bind(const std::string& input, DeviceTensorRef tensor) = 0;
  virtual void unbind() = 0;  // lets go of all inputs, which have to be bound again before the next run
  virtual void run() = 0;     // Error on a failed guard, with the input's name and the place
  // run() in two halves, for what comes between others' launches: nothing is waited for, nor recorded apart; and the
  // Error of a failed guard, when it has been done.
  virtual void enqueue() = 0;
  virtual void check() = 0;
  // Hooks of the runs that come; null: none. Recordings with other hooks are kept.
  virtual void set_hooks(std::shared_ptr<const LaunchHooks> hooks) = 0;
  // Numbers of launches: the first that has to do with an input, the last that has to do with a result or an input that
  // is updated; -1: none.
  virtual int64_t first_use(const std::string& input) const = 0;
  virtual int64_t last_use(const std::string& written) const = 0;
  virtual DeviceTensorRef result(const std::string& name) = 0;  // valid until the next run; a result that is an updated
                                                                // state is that state's tensor
  virtual std::vector<std::string> input_names() const = 0;
  virtual graph::Type input_type(const std::string& name) const = 0;
  virtual const CompileReport& report() const = 0;
  // One line per distinct kernel: calls, time, share, rates; the fraction of what binds it when ceilings are given.
  virtual std::string explain(const Ceilings* ceilings = nullptr) const = 0;
  virtual std::vector<KernelTime> times() const = 0;  // by launch, in order; GPUs: zeros unless Options::timed
  virtual void forget_times() = 0;                    // explain() counts from here
  virtual double measure(int runs) = 0;  // seconds of one, the median of so many in which no kernel is timed apart
  virtual int64_t arena_bytes() const = 0;
  virtual int64_t own_bytes() const = 0;  // the same, or 0 where it is another's memory (CompileOptions::lender)
  virtual std::shared_ptr<void> lend(int64_t bytes) const = 0;  // memory for so many bytes of values, or nothing
};

}  // namespace lumen::run
