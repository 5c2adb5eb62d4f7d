// Execution devices. A device owns memory, loads machine code and launches kernels; it never sees graphs or formats.
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

// First failed guard of a launch: {GuardCode, detail}; code 0 on success.
struct LaunchStatus {
  int64_t code = 0;
  int64_t detail = 0;
};

// Launch parameters of a kernel: its tasks for the threads of a CPU, or its blocks for a grid.
struct LaunchConfig {
  int64_t tasks = 0;
  bool small = false;  // CPUs: too little work to wake other threads
  int64_t blocks = 0;  // grids
  int threads = 1;     // per block
  int64_t shared_bytes = 0;
  bool in_whole = false;  // starts after all previous launches have ended (kernel/loop/verify.h)
};

// Machine code loaded by a device. Kernels found in it are opaque handles, valid while the module exists.
class Module {
 public:
  virtual ~Module() = default;
  virtual void* find(const std::string& symbol, int64_t shared_bytes) = 0;  // Error (exit 3) when missing
};

// Loads object bytes into this process. The engine supplies it to CPUs: devices do not parse object files.
using Loader = std::function<std::unique_ptr<Module>(std::span<const uint8_t> object)>;

struct DeviceMemory {
  int64_t total = 0, free = 0;  // bytes
  int64_t held = 0, peak = 0;   // bytes allocated and not released; their maximum
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const machine::Machine& machine() const = 0;
  virtual std::string describe() const = 0;    // one line for the user
  virtual bool reads_host_memory() const = 0;  // kernels accept addresses of this process

  // 64-byte aligned, zeroed; Error (exit 3) if it does not fit. `pages` applies to the process's own memory only.
  virtual void* allocate(int64_t bytes, Pages pages) = 0;
  void* allocate(int64_t bytes) { return allocate(bytes, Pages::huge); }
  virtual void release(void* memory) = 0;
  virtual void copy_in(void* to, const void* from, int64_t bytes) = 0;  // `from` may change after the return
  virtual void copy_out(void* to, const void* from, int64_t bytes) = 0;
  virtual DeviceMemory memory() const = 0;

  // Host memory for lane transfers; page-locked if the system allows it. Error (exit 3) if it does not fit. Null on
  // devices without lanes.
  virtual std::shared_ptr<std::byte> allocate_locked(int64_t) { return nullptr; }
  // Copies concurrent with launches and other copies, in an order of their own. A lane belongs to one thread at a time;
  // the memory on both sides must stay valid until wait().
  class Lane {
   public:
    virtual ~Lane() = default;
    virtual void in(void* to, const void* from, int64_t bytes) = 0;   // `from`: from allocate_locked
    virtual void out(void* to, const void* from, int64_t bytes) = 0;  // `to`: from allocate_locked
    virtual void wait() = 0;
  };
  // Null on devices whose memory is this process's.
  virtual std::unique_ptr<Lane> make_lane() { return nullptr; }

  // A second stream of work on the device, synchronized with launches by events without blocking the host. Work
  // submitted while launches are recorded is recorded with them, if it follows them and launches wait for it before the
  // recording ends.
  class Stream {
   public:
    virtual ~Stream() = default;
    virtual void* native() = 0;  // the vendor's stream handle; binds the calling thread to the device
    virtual void copy(void* to, const void* from, int64_t bytes) = 0;
    virtual void follow_launches() = 0;            // later work starts after all launches so far have ended
    virtual void mark(size_t point) = 0;           // an event after all work submitted so far
    virtual void hold_launches(size_t point) = 0;  // later launches start after the stream has passed the point
    // Whether a recording can wait for points that are marked before each replay.
    virtual bool holds_replays() const = 0;
    // Called every 100 ms while the host waits for this device; may throw. Null: no calls.
    virtual void watch(std::function<void()> watcher) = 0;
  };
  virtual std::unique_ptr<Stream> make_stream() { return nullptr; }
  // Later launches go to that stream; null: to their own.
  virtual void launch_on(Stream*) {}
  // The stream writes these bytes until it passes the point: copies of them wait for it, and so do launches, unless
  // launches_wait_themselves is set.
  virtual void await_before_use(Stream&, size_t /*point*/, std::vector<std::span<const std::byte>>) {}
  virtual void launches_wait_themselves(bool) {}
  virtual void hold_awaited() {}  // later launches wait for all of these writes

  // Besides the machine, the properties that prepared code depends on, such as a driver version. Part of cache keys.
  virtual std::string identity() const { return {}; }
  // Compiles the code generator's output further, to the form that is cached for later runs.
  virtual std::string prepare(std::string object) { return object; }
  virtual std::unique_ptr<Module> load(std::string_view object) = 0;  // of prepare()

  // Whether later kernels flush subnormal numbers to zero: when products are rounded to 16-bit floats anyway, a CPU's
  // hundredfold time for them is wasted. GPUs compute them at full speed.
  virtual void flush_subnormals(bool) {}
  // True: launches return before completion, failures are stored in device memory, and only synchronize() or copy_out()
  // wait.
  virtual bool is_asynchronous() const { return false; }
  // Same bits for any launch_config. `status` is host memory, or device memory for asynchronous launches.
  virtual void launch(void* kernel, std::span<void* const> buffers, const LaunchConfig& launch_config,
                      LaunchStatus* status) = 0;
  virtual void synchronize() = 0;

  // Launches between begin and end are not executed but recorded, to be replayed as one graph.
  class Recording {
   public:
    virtual ~Recording() = default;
  };
  virtual bool records() const { return false; }
  virtual void begin_recording() {}
  // Null if recording failed; then records() is false from now on, and the user has been warned.
  virtual std::unique_ptr<Recording> end_recording() { return nullptr; }
  virtual void replay(Recording&) {}

  // Events in the order of launches, to time asynchronous ones.
  class Marks {
   public:
    virtual ~Marks() = default;
    virtual void set(size_t i) = 0;
    virtual double seconds(size_t from, size_t to) = 0;  // waits for `to`
  };
  virtual std::unique_ptr<Marks> make_marks(size_t) { return nullptr; }

  // Opens the vendor's matrix product library, and returns its name and version. Error if the device has none, or it is
  // not installed.
  virtual std::string open_products();
  // Null: the library does not support the product. Call open_products() first.
  virtual std::unique_ptr<Product> find_product(const machine::DenseProduct&) { return nullptr; }

  // Bytes read and written per second by copies within the device's memory; nullopt: measure with the engine's kernels.
  virtual std::optional<double> measure_copies() { return std::nullopt; }
};

std::unique_ptr<Device> open_cpu(machine::MachineRef machine, int threads, Loader loader = {});  // threads 0: all cores
std::unique_ptr<Device> open_null();  // accepts everything, computes nothing

}  // namespace lumen::run
