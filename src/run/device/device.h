// Where code runs. A device owns memory, loads machine code and launches kernels; it never sees graphs or formats.
//
// May include: base, kernel/machine.
// Offers: available.h, memory.h, require.h, shared_library.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/machine/machine.h"
#include "run/device/pages.h"
#include "run/device/product.h"

namespace lumen::run {

// First failed guard of a launch: {GuardCode, detail}; code 0 when all is well.
struct LaunchStatus {
  int64_t code = 0;
  int64_t detail = 0;
};

// How a kernel's tasks are launched: over the threads of a processor, or over the blocks of a grid.
struct LaunchConfig {
  int64_t tasks = 0;
  bool small = false;  // processors: too little work to wake other threads for
  int64_t blocks = 0;  // grids
  int threads = 1;     // of a block
  int64_t shared_bytes = 0;
  bool in_whole = false;  // begins when what was launched before has ended (kernel/loop/verify.h)
};

// Machine code a device has loaded. A kernel found in it is opaque to everybody else and lives as long as the module.
class Module {
 public:
  virtual ~Module() = default;
  virtual void* find(const std::string& symbol, int64_t shared_bytes) = 0;  // Error (exit 3) when missing
};

// Loads object bytes into this process. Processors get one from the engine: devices know no object files.
using Loader = std::function<std::unique_ptr<Module>(std::span<const uint8_t> object)>;

struct DeviceMemory {
  int64_t total = 0, free = 0;  // bytes
  int64_t held = 0, peak = 0;   // bytes allocated here and not released; the most that ever were
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const machine::Machine& machine() const = 0;
  virtual std::string describe() const = 0;    // one line for people
  virtual bool reads_host_memory() const = 0;  // kernels can be handed addresses of this process

  // 64-byte aligned, zeroed; Error (exit 3) when it does not fit. `pages` matters where the memory is the process's.
  virtual void* allocate(int64_t bytes, Pages pages) = 0;
  void* allocate(int64_t bytes) { return allocate(bytes, Pages::huge); }
  virtual void release(void* memory) = 0;
  virtual void copy_in(void* to, const void* from, int64_t bytes) = 0;  // `from` may change as soon as this returns
  virtual void copy_out(void* to, const void* from, int64_t bytes) = 0;
  virtual DeviceMemory memory() const = 0;

  // Memory of this process that lanes carry from and to; page-locked where the system allows it. Error (exit 3) when it
  // does not fit. Null on devices that have no lanes.
  virtual std::shared_ptr<std::byte> allocate_locked(int64_t) { return nullptr; }
  // Copies beside launches and other copies, in an order of their own. A lane belongs to one thread at a time; memory
  // on both sides stays until wait().
  class Lane {
   public:
    virtual ~Lane() = default;
    virtual void in(void* to, const void* from, int64_t bytes) = 0;   // `from`: of allocate_locked
    virtual void out(void* to, const void* from, int64_t bytes) = 0;  // `to`: likewise
    virtual void wait() = 0;
  };
  // Null on devices whose memory is this process's.
  virtual std::unique_ptr<Lane> make_lane() { return nullptr; }

  // A stream of work within the device beside that of launches; events tie the two, and nobody waits on the host. What
  // is asked of it while launches are recorded is recorded with them, if it follows them and they are held before the
  // recording ends.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual void* native() = 0;  // as libraries of the vendor take it; the calling thread is bound to the device
    virtual void copy(void* to, const void* from, int64_t bytes) = 0;
    virtual void follow_launches() = 0;            // what comes begins when all launches until now have ended
    virtual void mark(size_t point) = 0;           // behind what it was asked until now
    virtual void hold_launches(size_t point) = 0;  // launches that come begin when it has passed the point
    // Whether a recording holds launches for points that were marked before it is replayed.
    virtual bool holds_replays() const = 0;
    // Called every 100 ms while somebody waits for this device; may throw. Null: nobody is asked.
    virtual void watch(std::function<void()> watcher) = 0;
  };
  virtual std::unique_ptr<Stream> make_stream() { return nullptr; }
  // Launches from here on go to that stream; null: to their own.
  virtual void launch_on(Stream*) {}
  // A stream still writes there, until it passes the point: copies of these bytes wait for it, and so does what is
  // launched, unless it holds itself back where it has to.
  virtual void await_before_use(Stream&, size_t /*point*/, std::vector<std::span<const std::byte>>) {}
  virtual void launches_wait_themselves(bool) {}
  virtual void hold_awaited() {}  // launches from here on wait for all of it

  // What decides, beside the machine, whether prepared code fits: a driver's version, say. Part of the cache's keys.
  virtual std::string identity() const { return {}; }
  // What the code generator made, brought as near to execution as can be kept for another start.
  virtual std::string prepare(std::string object) { return object; }
  virtual std::unique_ptr<Module> load(std::string_view object) = 0;  // of prepare()

  // Whether kernels from now on take subnormal numbers for zeros: where products are rounded to 16-bit floats anyway, a
  // processor's hundredfold time for them buys nothing. GPUs compute them at full speed.
  virtual void flush_subnormals(bool) {}
  // True: launches return before they are done, failures land in device memory, and only synchronize() or copy_out()
  // wait.
  virtual bool is_asynchronous() const { return false; }
  // Same bits for any launch_config. `status` is host memory, or device memory where launches are asynchronous.
  virtual void launch(void* kernel, std::span<void* const> buffers, const LaunchConfig& launch_config,
                      LaunchStatus* status) = 0;
  virtual void synchronize() = 0;

  // Launches between begin and end are not executed but kept, to be replayed as one.
  class Recording {
   public:
    virtual ~Recording() = default;
  };
  virtual bool records() const { return false; }
  virtual void begin_recording() {}
  // Null when it could not be recorded; then records() is false from now on, and people have been told.
  virtual std::unique_ptr<Recording> end_recording() { return nullptr; }
  virtual void replay(Recording&) {}

  // Points in the order of launches, for timing asynchronous ones.
  class Marks {
   public:
    virtual ~Marks() = default;
    virtual void set(size_t i) = 0;
    virtual double seconds(size_t from, size_t to) = 0;  // waits for `to`
  };
  virtual std::unique_ptr<Marks> make_marks(size_t) { return nullptr; }

  // Opens the library of the device's vendor that multiplies matrices, and says its name and version. Error when this
  // device has none, or it is not here.
  virtual std::string open_products();
  // Null: that library does not know how. After open_products().
  virtual std::unique_ptr<Product> find_product(const machine::DenseProduct&) { return nullptr; }

  // Bytes read and written a second by copies within the device's memory; nothing where the engine's kernels measure.
  virtual std::optional<double> measure_copies() { return std::nullopt; }
};

std::unique_ptr<Device> open_cpu(machine::MachineRef machine, int threads, Loader loader = {});  // threads 0: all cores
std::unique_ptr<Device> open_null();  // accepts everything, computes nothing

}  // namespace lumen::run
