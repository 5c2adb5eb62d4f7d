// The engine's own things: its device, its cache, tensors on the device, and conversion of host memory into and out of
// formats. Compiling is compile.cpp, running execute.cpp.
#include "run/engine/engine.h"

#include <omp.h>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "run/device/choose.h"
#include "run/engine/compile.h"
#include "run/engine/repeat.h"
#include "run/engine/roofline.h"
#include "run/engine/verdict.h"

namespace lumen::run {

DeviceTensor::DeviceTensor(Device& device, graph::Type type)
    : device_(device), type_(std::move(type)), bytes_(graph::byte_size(type_)), data_(device.allocate(bytes_)) {}

DeviceTensor::DeviceTensor(Device& device, graph::Type type, std::shared_ptr<void> memory, void* data)
    : device_(device),
      type_(std::move(type)),
      bytes_(graph::byte_size(type_)),
      memory_(std::move(memory)),
      data_(data) {}

DeviceTensorRef DeviceTensor::parameter(Device& device, graph::Type type, const void* bytes,
                                        std::shared_ptr<const void> keeper) {
  const bool readable = device.reads_host_memory() &&
                        reinterpret_cast<uintptr_t>(bytes) % static_cast<uintptr_t>(kParameterAlignment) == 0;
  if (!readable || !keeper) {
    auto copy = std::make_shared<DeviceTensor>(device, std::move(type));
    copy->upload(bytes, copy->bytes());
    return copy;
  }
  // Programs write states alone, and refuse to write what is bound twice.
  return std::make_shared<DeviceTensor>(device, std::move(type), std::const_pointer_cast<void>(keeper),
                                        const_cast<void*>(bytes));
}

DeviceTensor::~DeviceTensor() {
  if (!memory_) device_.release(data_);
}

void DeviceTensor::upload(const void* from, int64_t bytes) {
  LUMEN_CHECK(bytes == bytes_, "{} bytes for {} of {}", bytes, graph::print(type_), bytes_);
  device_.copy_in(data_, from, bytes);
}

void DeviceTensor::download(void* to, int64_t bytes) const {
  LUMEN_CHECK(bytes == bytes_, "{} bytes for {} of {}", bytes, graph::print(type_), bytes_);
  device_.copy_out(to, data_, bytes);
}

void DeviceTensor::copy_rows(int64_t from, int64_t to, int64_t count) {
  const int64_t columns = type_.shape.empty() ? 1 : type_.shape.back().number();
  const int64_t rows = graph::elements(type_.shape).number() / columns;
  LUMEN_CHECK(from >= 0 && to >= 0 && count >= 0 && from + count <= rows && to + count <= rows);
  std::vector<uint8_t> bytes;
  const auto copy = [&](int64_t section, int64_t stride) {
    if (stride == 0) return;
    auto* const base = static_cast<uint8_t*>(data_) + section;
    bytes.resize(static_cast<size_t>(count * stride));
    device_.copy_out(bytes.data(), base + from * stride, count * stride);
    device_.copy_in(base + to * stride, bytes.data(), count * stride);
  };
  if (!type_.element.format) {
    copy(0, bytes_ / rows);
    return;
  }
  const Format& f = *type_.element.format;
  LUMEN_CHECK(f.tile_bytes == 0 && f.tensor_bytes == 0, "rows of {} do not stand alone", f.name);
  const BlobLayout layout = blob_layout(f, rows, columns);
  copy(0, layout.row_stride);
  copy(layout.section[static_cast<size_t>(Level::row)], f.row_bytes);
}

struct Engine::State {
  Workshop shop;
  CompileReport totals;
  bool timed = false;

  void add(const CompileReport& r) {
    totals.kernels += r.kernels;
    totals.compiled += r.compiled;
    totals.cached += r.cached;
    totals.seconds += r.seconds;
  }

  // Runs the steps of a conversion: value 0 is read, value 1 is written.
  void convert(const synth::Synthesis& steps, const void* from, int64_t from_bytes, void* to, int64_t to_bytes) {
    const int64_t to_at = aligned(from_bytes), scratch_at = to_at + aligned(to_bytes);
    int64_t end = scratch_at;
    for (const int64_t bytes : steps.scratch) end += aligned(bytes);
    const int64_t status_at = end;
    end += aligned(sizeof(LaunchStatus));
    CompileReport report;
    const std::vector<Launch> launches =
        compile_steps(shop, steps, {{Place::In::arena, 0}, {Place::In::arena, to_at}}, scratch_at, &report);
    add(report);

    const std::shared_ptr<void> memory = allocate_shared(shop.device, end);
    auto* base = static_cast<std::byte*>(memory.get());
    shop.device->copy_in(base, from, from_bytes);
    LaunchStatus status;
    const bool waits = shop.device->is_asynchronous();
    LaunchStatus* const shared = waits ? reinterpret_cast<LaunchStatus*>(base + status_at) : &status;
    for (const Launch& launch : launches) {
      std::vector<void*> buffers;
      for (const Place& place : launch.places) buffers.push_back(base + place.at);
      shop.device->launch(launch.kernel, buffers, launch.spread, shared);
    }
    shop.device->synchronize();
    if (waits) shop.device->copy_out(&status, shared, sizeof status);
    if (status.code != 0) throw guard_error({}, -1, status);
    shop.device->copy_out(to, base + to_at, to_bytes);
  }
};

Engine::Engine(Options options) : state_(new State) {
  const std::filesystem::path folder = cache_folder(options.cache_folder);
  if (folder.empty() && !is_cache_off(options.cache_folder))
    warn("compiled kernels are not kept, every start compiles them again: neither HOME nor XDG_CACHE_HOME says where");
  const auto open = [&](const DeviceChoice& choice) {
    state_->shop.device = open_device(choice, options.machine, options.threads, load_here);
    state_->shop.cache = std::make_shared<KernelCache>(state_->shop.device, folder);
  };
  state_->shop.threads = options.threads == 0 ? omp_get_max_threads() : options.threads;
  state_->timed = options.timed;
  const DeviceChoice choice = parse_device(options.device);
  open(choice);
  if (options.tries && state_->shop.device->is_asynchronous()) {
    try {
      require_sound(*this, state_->shop.cache->kept());
    } catch (const Error& refusal) {
      if (choice.kind != DeviceChoice::Kind::automatic || options.machine) throw;
      warn(refusal.what());
      open({});
      note(fmt::format("device: {}", state_->shop.device->describe()));
    }
  }
  if (options.libraries) {
    verbose(state_->shop.device->open_products());
    state_->shop.products = std::make_shared<Tuner>(state_->shop.cache, state_->shop.threads);
  }
  // Trials are timed by the host's clock, launch by launch.
  if (options.tune && !state_->shop.device->is_asynchronous())
    state_->shop.tuner = std::make_shared<Tuner>(state_->shop.cache, state_->shop.threads);
}

Engine::~Engine() = default;

Device& Engine::device() {
  return *state_->shop.device;
}

void Engine::require_memory(const std::string& who, const MemoryNeeds& needs, const std::string& hint) {
  run::require_memory(device(), who, needs, hint);
}

std::shared_ptr<Program> Engine::compile(const graph::Graph& g, const CompileOptions& options) {
  LaunchList list = run::compile(state_->shop, g, options);
  state_->add(list.report);
  std::shared_ptr<void> lent = options.lender ? options.lender->lend(list.arena_bytes) : nullptr;
  return make_program(state_->shop.device, state_->shop.cache, std::move(list), state_->timed, std::move(lent));
}

int64_t Engine::arena_bytes(const graph::Graph& g, const CompileOptions& options) {
  return run::arena_bytes(state_->shop, g, options);
}

std::vector<uint8_t> Engine::encode(const FormatRef& f, const float* x, int64_t rows, int64_t columns) {
  std::vector<uint8_t> blob(static_cast<size_t>(blob_layout(*f, rows, columns).total));
  if (rows == 0 || columns == 0) return blob;
  state_->convert(synth::synthesize_encode(*f, rows, columns, device().machine()), x, rows * columns * 4, blob.data(),
                  static_cast<int64_t>(blob.size()));
  return blob;
}

std::vector<float> Engine::decode(const FormatRef& f, const uint8_t* blob, int64_t rows, int64_t columns) {
  std::vector<float> x(static_cast<size_t>(rows * columns));
  if (x.empty()) return x;
  state_->convert(synth::synthesize_decode(*f, rows, columns, device().machine()), blob,
                  blob_layout(*f, rows, columns).total, x.data(), rows * columns * 4);
  return x;
}

int Engine::threads() const {
  return state_->shop.threads;
}

Ceilings Engine::measure_ceilings() {
  return run::measure_ceilings(state_->shop);
}

double Engine::measure_memory() {
  return run::measure_memory(state_->shop);
}

void Engine::finish_tuning() {
  if (state_->shop.tuner) state_->shop.tuner->wait();
}

const CompileReport& Engine::totals() const {
  return state_->totals;
}

}  // namespace lumen::run
