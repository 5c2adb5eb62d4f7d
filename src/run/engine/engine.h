// The engine: graph in, runnable program out. compile.cpp connects all stages: pipeline -> synth -> emit -> cache ->
// device.
//
// May include: base, base/threads, emit, graph/grad, graph/ir, kernel/loop, kernel/synth, kernel/synth/mma,
// number/codec, run/device, run/device/choose, run/device/gpu, run/engine/cache, run/engine/compile, run/engine/panels,
// run/engine/program, run/engine/verify, run/engine/verify/lone_steps, run/engine/verify/trial.
// Offers: format_check.h, random_inputs.h, roofline.h, self_test.h, stages.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "run/device/device.h"
#include "run/device/require.h"
#include "run/engine/cache/user_cache.h"
#include "run/engine/program/program.h"
#include "run/engine/verify/lone_steps/lone_steps.h"

namespace lumen::run {

class Panels;
struct Determinism;  // trial/determinism.h
struct RefusedRow;   // trial/soundness.h
struct Soundness;

// The machine, the device and the cache of compiled kernels. Outlives its tensors and programs.
class Engine {
 public:
  struct Options {
    std::string
        cache_folder;  // "" = $LUMEN_CACHE, else $XDG_CACHE_HOME/lumen, else ~/.cache/lumen; "off" = memory only
    int threads = 0;
    machine::MachineRef machine;  // null = the device's own
    std::string device = "cpu";   // cpu, cuda[:N], hip[:N], auto
    bool tries = true;            // test kernels on first use (self_test_result.h); on CPUs only with a cache
    bool timed = false;           // time single kernels: costs time on GPUs, and disables recording
    bool libraries = false;  // the GPU vendor's libraries may compute products if measured to be faster; different bits
                             // (product_choice.h)
    bool tune = false;       // kernels try other plans while programs run (tune.h); same bits
  };
  explicit Engine(Options options);
  ~Engine();

  Device& device();
  // Error (exit 3) if the device cannot hold the needs; called before allocation (require.h).
  void require_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint = {});
  std::shared_ptr<Program> compile(const graph::Graph& g, const CompileOptions& options);
  // Program::arena_bytes() of the compiled program, without compiling.
  int64_t arena_bytes(const graph::Graph& g, const CompileOptions& options);

  // Quantize and dequantize with compiled kernels; equal to the codec bit for bit. rows x columns, host memory.
  // `importance`: error weight of each column, or of each element, for formats with fit(x, w); others ignore it. Error
  // if it has another size, or a number is negative or not finite.
  std::vector<uint8_t> encode(const FormatRef& f, const float* x, int64_t rows, int64_t columns,
                              std::span<const float> importance = {});
  std::vector<float> decode(const FormatRef& f, const uint8_t* blob, int64_t rows, int64_t columns);
  // Encodes numbers [rows, columns] that are on the device.
  std::vector<uint8_t> encode(const FormatRef& f, const DeviceTensorRef& x, std::span<const float> importance = {});
  // The same for many panels of a large matrix (panels.h). `weighed`: with an importance for each column.
  std::shared_ptr<const Panels> encode_panels(const FormatRef& f, int64_t rows, int64_t columns, bool weighed = false);
  std::shared_ptr<const Panels> decode_panels(const FormatRef& f, int64_t rows, int64_t columns);

  // Loads or compiles kernels outside of programs, after trials (lone_steps.h).
  std::unique_ptr<LoadedSteps> load_steps(const LoneSteps& work);
  std::shared_ptr<std::byte> allocate(int64_t bytes);  // device memory, zeroed

  // Tests kernels against the evaluator, `all`: every kind of plan; the result is stored for the device, and machine
  // instructions that compute wrongly are not used from here on.
  Soundness try_kernels(bool all);
  const std::vector<RefusedRow>& refused() const;  // machine instructions that are not used

  Determinism prove_determinism();

  int threads() const;
  Ceilings measure_ceilings();  // takes about a second
  double measure_memory();      // bytes per second: reads of a CPU, copies of a GPU

  const CompileReport& totals() const;  // of everything compiled by this engine
  void finish_tuning();                 // waits for compilation and writes in the background

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lumen::run
