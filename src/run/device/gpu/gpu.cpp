#include "run/device/gpu/gpu.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "run/device/gpu/gpu_code.h"
#include "run/device/gpu/gpu_copies.h"
#include "run/device/gpu/gpu_memory.h"
#include "run/device/gpu/gpu_product.h"

namespace lumen::run {
namespace {

constexpr size_t kMostBuffers = 500;  // a launch's arguments have at most 4 KiB
constexpr int kThisThreadOnly = 1;    // thread-local stream capture mode; both interfaces
constexpr int64_t kLargestGrid = 0x7fffffff;
constexpr int64_t kLargestGridInThreads = 0xffffffff;  // HIP counts threads

constexpr int kKnowsFollowers = 12030;  // CUDA 12.3: programmatic dependent launch

// Arguments of cuLaunchKernelEx (CUDA driver API, CUlaunchConfig and CUlaunchAttribute).
struct LaunchAttribute {
  static constexpr int kFollows = 6;  // programmatic stream serialization
  int name;
  int unused;
  int value[16];
};
struct FollowerLaunch {
  unsigned blocks[3], threads[3], shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(FollowerLaunch) == 56);

std::string version_text(GpuVendor vendor, int v) {
  return vendor == GpuVendor::cuda ? fmt::format("{}.{}", v / 1000, v % 1000 / 10)
                                   : fmt::format("{}.{}.{}", v / 10000000, v / 100000 % 100, v % 100000);
}

// HIP's device properties, of which two are read: the name, and the architecture's name at a fixed offset (of the
// layout named by the symbol's suffix).
struct HipProperties {
  char name[256];
  char unread[904];
  char architecture[256];
  char rest[4096 - 1416];
};
static_assert(offsetof(HipProperties, architecture) == 1160 && sizeof(HipProperties) == 4096);

// The device must exist.
std::string architecture_of(const GpuSymbols& gpu, int device, const std::string& where) {
  constexpr int kMajor = 75, kMinor = 76;  // attributes of CUDA
  if (!gpu.device_properties) {
    int major = 0, minor = 0;
    int error = gpu.device_attribute(&major, kMajor, device);
    if (error == 0) error = gpu.device_attribute(&minor, kMinor, device);
    if (error != 0) throw gpu_error(gpu, error, "device_attribute", where);
    return fmt::format("sm_{}{}", major, minor);
  }
  HipProperties properties{};
  if (const int error = gpu.device_properties(&properties, device); error != 0)
    throw gpu_error(gpu, error, "device_properties", where);
  properties.architecture[sizeof(properties.architecture) - 1] = 0;
  return properties.architecture;
}

// Memory managed by the kernel; memory that firmware reserves for a GPU is not included.
int64_t system_bytes() {
  return int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
}

// Kernels depend on the wave size: with another one they would run and compute wrong results.
void check_wave(const GpuFound& found, const machine::Machine& m, const std::string& title) {
  if (m.kind != machine::Kind::gpu || m.wave == found.wave) return;
  throw Error(
      Exit::hardware,
      fmt::format("{}: {} lanes step together, and code for {} is made for {}", title, found.wave, m.name, m.wave),
      "leave --machine and HSA_OVERRIDE_GFX_VERSION out: the GPU's own row is taken then; or use --device cpu");
}

// A library with its driver initialized, and the number of its GPUs.
struct Driver {
  std::shared_ptr<const GpuSymbols> symbols;
  int version = 0, count = 0;

  explicit Driver(GpuVendor vendor) : symbols(open_gpu_library(vendor)) {
    const GpuSymbols& gpu = *symbols;
    const auto check = [&](int error, const char* name) {
      if (error != 0) throw gpu_error(gpu, error, name, vendor_name(vendor));
    };
    check(gpu.init(0), "init");
    check(gpu.driver_version(&version), "driver_version");
    if (version < gpu.numbers.oldest_driver)
      throw Error(Exit::hardware,
                  fmt::format("the {} driver is too old: its version is {}", vendor_name(vendor),
                              version_text(vendor, version)),
                  fmt::format("Lumen needs {} or newer", gpu.numbers.oldest_driver_text));
    check(gpu.device_count(&count), "device_count");
    if (count < 1) throw gpu_error(gpu, kGpuNoDevice, "device_count", vendor_name(vendor));
  }

  GpuFound look_at(int ordinal) const {
    const GpuSymbols& gpu = *symbols;
    GpuFound found;
    found.ordinal = ordinal;
    const std::string where = fmt::format("{}:{}", vendor_name(gpu.vendor), ordinal);
    const auto check = [&](int error, const char* name) {
      if (error != 0) throw gpu_error(gpu, error, name, where);
    };
    int& device = found.device;
    check(gpu.device_get(&device, ordinal), "device_get");
    std::array<char, 256> name{};
    check(gpu.device_name(name.data(), static_cast<int>(name.size()) - 1, device), "device_name");
    found.name = name.data();
    size_t bytes = 0;
    check(gpu.device_memory(&bytes, device), "device_memory");
    found.bytes = bytes;
    int integrated = 0;
    check(gpu.device_attribute(&found.units, gpu.numbers.attribute_units, device), "device_attribute");
    check(gpu.device_attribute(&integrated, gpu.numbers.attribute_integrated, device), "device_attribute");
    check(gpu.device_attribute(&found.wave, gpu.numbers.attribute_wave, device), "device_attribute");
    found.integrated = integrated != 0;
    found.in_host_memory = found.integrated && found.bytes <= system_bytes();
    found.architecture = architecture_of(gpu, device, where);
    found.match = match_gpu(found.architecture, all_rows());
    return found;
  }
};

class GpuRecording : public Device::Recording {
 public:
  GpuRecording(GpuContextRef context, void* executable) : context_(std::move(context)), executable_(executable) {}
  ~GpuRecording() override {
    try {
      context_->synchronize();  // it may still run
    } catch (const Error&) {
    }
    context_->symbols().executable_destroy(executable_);
  }
  void* executable() const { return executable_; }

 private:
  GpuContextRef context_;
  void* executable_;
};

class GpuMarks : public Device::Marks {
 public:
  GpuMarks(GpuContextRef context, size_t count) : context_(std::move(context)), events_(count) {
    context_->use();
    try {
      for (void*& event : events_) context_->check(context_->symbols().event_create(&event, 0), "event_create");
    } catch (...) {
      free_all();
      throw;
    }
  }
  ~GpuMarks() override { free_all(); }

  void set(size_t i) override {
    context_->use();
    context_->check(context_->symbols().event_record(events_[i], context_->stream()), "event_record");
  }
  double seconds(size_t from, size_t to) override {
    const GpuSymbols& gpu = context_->symbols();
    context_->use();
    context_->await(events_[to]);
    float milliseconds = 0;
    context_->check(gpu.event_elapsed(&milliseconds, events_[from], events_[to]), "event_elapsed");
    return milliseconds * 1e-3;
  }

 private:
  void free_all() {
    for (void* event : events_)
      if (event) context_->symbols().event_destroy(event);
  }
  GpuContextRef context_;
  std::vector<void*> events_;
};

class GpuDevice : public Device {
 public:
  GpuDevice(const Driver& driver, GpuFound found, machine::MachineRef machine)
      : found_(std::move(found)),
        machine_(std::move(machine)),
        driver_(version_text(driver.symbols->vendor, driver.version)),
        context_(std::make_shared<GpuContext>(
            driver.symbols, found_.device,
            fmt::format("{}:{} {}", vendor_name(driver.symbols->vendor), found_.ordinal, found_.name))),
        memory_(context_, found_.in_host_memory),
        copies_(context_) {
    const GpuSymbols& gpu = context_->symbols();
    follows_ = machine_->follows && gpu.launch_follower && driver.version >= kKnowsFollowers;
    records_ = gpu.capture_begin && gpu.capture_end && gpu.graph_instantiate && gpu.graph_launch && gpu.graph_destroy &&
               gpu.executable_destroy;
  }

  const machine::Machine& machine() const override { return *machine_; }
  std::string describe() const override {
    std::string text = fmt::format("{} ({}, code for {}), {}, driver {}", context_->title(), found_.architecture,
                                   machine_->name, size_text(found_.bytes), driver_);
    if (found_.in_host_memory)
      text += ", memory shared with the processor";
    else if (found_.integrated)
      text += ", memory set apart from the processor's";
    if (!memory_.pooled()) text += ", no memory pool";
    if (!copies_.page_locked()) text += ", no page-locked memory";
    if (!records_) text += ", launches are not recorded";
    return text;
  }
  bool reads_host_memory() const override { return false; }
  std::shared_ptr<SharedGpu> shared() const { return std::make_shared<SharedGpu>(context_, found_.ordinal); }

  std::shared_ptr<std::byte> allocate_locked(int64_t bytes) override { return allocate_page_locked(context_, bytes); }
  std::unique_ptr<Lane> make_lane() override { return std::make_unique<GpuLane>(context_); }
  using Device::allocate;
  void* allocate(int64_t bytes, Pages) override { return memory_.allocate(bytes); }
  void release(void* memory) override {
    try {
      if (memory) awaited_.before_use(memory, 1);
    } catch (const Error&) {
      // after a failure every call fails, and the context frees its memory
    }
    memory_.release(memory);
  }

  std::unique_ptr<Stream> make_stream() override { return std::make_unique<GpuStream>(context_); }
  void launch_on(Stream* stream) override {
    between_programs();
    target_ = stream ? stream->native() : nullptr;
  }
  void await_before_use(Stream& stream, size_t point, std::vector<std::span<const std::byte>> places) override {
    awaited_.add(stream, point, std::move(places));
  }
  void hold_awaited() override { awaited_.hold_all(); }
  void launches_wait_themselves(bool they_do) override {
    if (!they_do) awaited_.forget();
    awaited_.launches_wait_themselves = they_do;
  }

  void copy_in(void* to, const void* from, int64_t bytes) override {
    between_programs();
    awaited_.before_use(to, bytes);
    copies_.in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, int64_t bytes) override {
    between_programs();
    awaited_.before_use(from, bytes);
    copies_.out(to, from, bytes);
  }
  DeviceMemory memory() const override { return memory_.state(); }

  std::string identity() const override {
    return fmt::format("{} {} driver {}\n", vendor_name(context_->vendor()), found_.architecture, driver_);
  }
  std::string prepare(std::string object) override { return prepare_gpu_code(*context_, std::move(object)); }
  std::unique_ptr<Module> load(std::string_view object) override { return load_gpu_code(context_, object); }

  bool is_asynchronous() const override { return true; }
  void launch(void* kernel, std::span<void* const> buffers, const LaunchConfig& launch_config,
              LaunchStatus* status) override {
    if (launch_config.blocks == 0) return;
    if (!target_) awaited_.before_launch();
    LUMEN_CHECK(buffers.size() < kMostBuffers, "a kernel with {} buffers", buffers.size());
    const bool fits =
        launch_config.blocks <= kLargestGrid &&
        (context_->vendor() != GpuVendor::hip || launch_config.blocks * launch_config.threads <= kLargestGridInThreads);
    if (!fits)
      throw Error(Exit::hardware,
                  fmt::format("{}: a kernel needs {} blocks of {} threads, more than a launch can have",
                              context_->title(), launch_config.blocks, launch_config.threads),
                  "choose a smaller batch or context");
    // One address after the other, as the kernel's signature; the driver derives their number from the size.
    std::array<void*, kMostBuffers> arguments;
    std::copy(buffers.begin(), buffers.end(), arguments.begin());
    arguments[buffers.size()] = status;
    size_t bytes = (buffers.size() + 1) * sizeof(void*);
    const GpuSymbols& gpu = context_->symbols();
    void* const pointer_follows = reinterpret_cast<void*>(1);
    void* const size_follows = reinterpret_cast<void*>(2);
    void* extra[] = {pointer_follows, arguments.data(), size_follows, &bytes, gpu.numbers.launch_end};
    context_->use();
    void* const stream = target_ ? target_ : context_->stream();
    const bool is_within = context_->set_within_program(true);
    if (follows_ && is_within && !launch_config.in_whole) {
      const LaunchAttribute follows{LaunchAttribute::kFollows, {}, {1}};
      const FollowerLaunch launch{{static_cast<unsigned>(launch_config.blocks), 1, 1},
                                  {static_cast<unsigned>(launch_config.threads), 1, 1},
                                  static_cast<unsigned>(launch_config.shared_bytes),
                                  stream,
                                  &follows,
                                  1};
      context_->check(gpu.launch_follower(&launch, kernel, nullptr, extra), "launch_follower");
      return;
    }
    context_->check(gpu.launch(kernel, static_cast<unsigned>(launch_config.blocks), 1, 1,
                               static_cast<unsigned>(launch_config.threads), 1, 1,
                               static_cast<unsigned>(launch_config.shared_bytes), stream, nullptr, extra),
                    "launch");
  }
  void synchronize() override {
    between_programs();
    awaited_.hold_all();
    context_->synchronize();
  }

  bool records() const override { return records_; }
  void begin_recording() override {
    between_programs();
    awaited_.before_launch();
    context_->use();
    context_->check(context_->symbols().capture_begin(context_->stream(), kThisThreadOnly), "capture_begin");
    context_->set_recording(true);
  }
  std::unique_ptr<Recording> end_recording() override {
    const GpuSymbols& gpu = context_->symbols();
    void *graph = nullptr, *executable = nullptr;
    const char* doing = "capture_end";
    between_programs();
    context_->set_recording(false);
    int error = gpu.capture_end(context_->stream(), &graph);
    if (error == 0) error = gpu.graph_instantiate(&executable, graph, 0), doing = "graph_instantiate";
    if (graph) gpu.graph_destroy(graph);
    if (error == 0) return std::make_unique<GpuRecording>(context_, executable);
    records_ = false;
    note(fmt::format("kernels are launched one by one: {}", context_->failure(error, doing).what()));
    return nullptr;
  }
  void replay(Recording& recording) override {
    between_programs();
    awaited_.before_launch();
    context_->use();
    context_->check(
        context_->symbols().graph_launch(static_cast<GpuRecording&>(recording).executable(), context_->stream()),
        "graph_launch");
  }

  std::unique_ptr<Marks> make_marks(size_t count) override { return std::make_unique<GpuMarks>(context_, count); }

  std::string open_products() override {
    if (!products_) products_ = std::make_unique<GpuProducts>(context_, memory_);
    return products_->title();
  }
  std::unique_ptr<Product> find_product(const machine::DenseProduct& what) override { return products_->find(what); }

  std::optional<double> measure_copies() override {
    constexpr int64_t kMost = int64_t{256} << 20;
    constexpr int kTimes = 8;
    const int64_t bytes = std::min(kMost, memory().free / 4) / 256 * 256;
    if (bytes == 0) return std::nullopt;
    const auto give_back = [this](void* p) { release(p); };
    const std::unique_ptr<void, decltype(give_back)> from(allocate(bytes), give_back), to(allocate(bytes), give_back);
    GpuMarks marks(context_, 2);
    const GpuSymbols& gpu = context_->symbols();
    for (int i = 0; i <= kTimes; ++i) {
      if (i == 1) marks.set(0);  // the first copy warms up the memory
      context_->check(gpu.copy_within(to.get(), from.get(), static_cast<size_t>(bytes), context_->stream()),
                      "copy_within");
    }
    marks.set(1);
    return 2.0 * kTimes * bytes / std::max(marks.seconds(0, 1), 1e-9);
  }

 private:
  // Programs end with a copy or a synchronization. The first kernel after either is launched without overlap, so that
  // kernels may read memory that their own program does not write before the previous kernels have ended
  // (kernel/loop/verify.h).
  void between_programs() { context_->set_within_program(false); }

  GpuFound found_;
  machine::MachineRef machine_;
  bool follows_ = false;  // programmatic dependent launch: kernels start while the previous one ends
  std::string driver_;
  GpuContextRef context_;  // constructed first, destroyed last
  GpuMemory memory_;
  GpuCopies copies_;
  AwaitedPlaces awaited_;
  void* target_ = nullptr;  // stream of launches, if it is not their own
  std::unique_ptr<GpuProducts> products_;
  bool records_ = false;
};

}  // namespace

GpuSurvey survey_gpus(GpuVendor vendor) {
  GpuSurvey survey;
  survey.vendor = vendor;
  try {
    survey.library = open_gpu_library(vendor)->library;
    const Driver driver(vendor);
    survey.driver = version_text(vendor, driver.version);
    for (int i = 0; i < driver.count; ++i) survey.gpus.push_back(driver.look_at(i));
  } catch (const Error& error) {
    survey.refusal = error.what();
    survey.advice = error.hint();
  }
  return survey;
}

std::unique_ptr<Device> open_gpu(GpuVendor vendor, int ordinal, machine::MachineRef machine) {
  const Driver driver(vendor);
  if (ordinal < 0 || ordinal >= driver.count)
    throw Error(Exit::hardware,
                fmt::format("there is no {}:{}: the driver has {} GPU{}", vendor_name(vendor), ordinal, driver.count,
                            driver.count == 1 ? "" : "s"),
                "`lumen doctor` lists them; CUDA_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES limit them");
  GpuFound found = driver.look_at(ordinal);
  if (!machine) machine = found.match.machine;
  if (!machine)
    throw Error(Exit::hardware,
                fmt::format("{}:{} {}: {}", vendor_name(vendor), ordinal, found.name, found.match.remark),
                found.match.advice);
  check_wave(found, *machine, fmt::format("{}:{} {}", vendor_name(vendor), ordinal, found.name));
  if (!found.match.remark.empty() && machine == found.match.machine) note(found.match.remark);
  return std::make_unique<GpuDevice>(driver, std::move(found), std::move(machine));
}

std::shared_ptr<SharedGpu> shared_gpu(const Device& device) {
  const auto* gpu = dynamic_cast<const GpuDevice*>(&device);
  return gpu ? gpu->shared() : nullptr;
}

}  // namespace lumen::run
