// The engine: graph in, runnable program out. compile.cpp is the joint of the house: pipeline -> synth -> emit -> cache
// -> device.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/ir/eval.h"
#include "graph/pass/pipeline.h"
#include "graph/pass/recompute.h"
#include "kernel/synth/synth.h"
#include "run/device/device.h"
#include "run/device/require.h"

namespace lumen::run {

class Program;

struct CompileOptions {
  std::vector<graph::FormatAssignment> assignments;
  graph::Bindings symbols;
  bool exact = false;
  graph::ProductType products = {};      // what operands of products with parameters and of attention are rounded to
  std::shared_ptr<Program> lender = {};  // whose memory for values serves this program too, if it is large enough: the
                                         // two never run at once, and neither's results are read after the other ran
  graph::Recompute recompute = {};       // of training steps: what is computed again rather than kept
  int candidate = 0;                     // the plan of every kernel that has so many (synth::Options); 0: see Engine
};

struct CompileReport {
  int kernels = 0, compiled = 0,
      cached = 0;  // distinct kernels; how many LLVM had to make; how many the cache answered
  double seconds = 0;
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

// Memory on a device with a type. Shared ownership: programs and sessions keep what they use.
class DeviceTensor {
 public:
  DeviceTensor(Device& device, graph::Type type);
  // Part of memory somebody else allocated; `memory` keeps it alive.
  DeviceTensor(Device& device, graph::Type type, std::shared_ptr<void> memory, void* data);
  // A parameter's bytes: where they lie when the device can read them there, a copy otherwise. Never written.
  static std::shared_ptr<DeviceTensor> parameter(Device& device, graph::Type type, const void* bytes,
                                                 std::shared_ptr<const void> keeper);
  ~DeviceTensor();
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  const graph::Type& type() const { return type_; }
  int64_t bytes() const { return bytes_; }
  void* data() { return data_; }
  void upload(const void* from, int64_t bytes);  // whole tensor, in its element's own bytes
  void download(void* to, int64_t bytes) const;
  void copy_rows(int64_t from, int64_t to,
                 int64_t count);  // of the last axis, counted over the whole tensor; not of formats with tiles

 private:
  Device& device_;
  graph::Type type_;
  int64_t bytes_;
  std::shared_ptr<void> memory_;  // null: this tensor's own
  void* data_;
};
using DeviceTensorRef = std::shared_ptr<DeviceTensor>;

// A compiled graph: a launch list over a fixed memory plan. Not thread-safe; allocation-free while running.
class Program {
 public:
  virtual ~Program() = default;
  // Binds an input (data, parameter or state) by name; type and size must match. All inputs must be bound before run().
  virtual void bind(const std::string& input, DeviceTensorRef tensor) = 0;
  virtual void run() = 0;  // Error on a failed guard, with the input's name and the place
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

// Where Engine::Options::cache_folder says kernels are kept; empty for memory only.
std::filesystem::path cache_folder(const std::string& option);

// The machine, the device and the cache of compiled kernels. Outlives its tensors and programs.
class Engine {
 public:
  struct Options {
    std::string
        cache_folder;  // "" = $LUMEN_CACHE, else $XDG_CACHE_HOME/lumen, else ~/.cache/lumen; "off" = memory only
    int threads = 0;
    machine::MachineRef machine;  // null = the device's own
    std::string device = "cpu";   // cpu, cuda[:N], hip[:N], auto
    bool tries = true;            // a GPU's kernels are tested on first use (verdict.h)
    bool timed = false;           // times of single kernels are wanted: on GPUs they cost, and nothing is recorded
    bool libraries = false;  // of a GPU's vendor may multiply matrices where they are measured to be faster; other bits
                             // (product_choice.h)
    bool tune = false;       // kernels try other plans while programs run (tune.h), on processors; same bits
  };
  explicit Engine(Options options);
  ~Engine();

  Device& device();
  // Refuses (exit 3) what the device cannot hold, before any of it is made (require.h).
  void require_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint = {});
  std::shared_ptr<Program> compile(const graph::Graph& g, const CompileOptions& options);
  // Program::arena_bytes() of that; nothing is compiled.
  int64_t arena_bytes(const graph::Graph& g, const CompileOptions& options);

  // Quantize and dequantize with compiled kernels; equal to the codec bit for bit. rows x columns, host memory.
  std::vector<uint8_t> encode(const FormatRef& f, const float* x, int64_t rows, int64_t columns);
  std::vector<float> decode(const FormatRef& f, const uint8_t* blob, int64_t rows, int64_t columns);

  int threads() const;
  Ceilings measure_ceilings();  // takes about a second
  double measure_memory();      // bytes a second: a processor reading, a GPU copying

  const CompileReport& totals() const;  // of everything compiled by this engine
  void finish_tuning();                 // waits until what programs asked for is compiled or written

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lumen::run
