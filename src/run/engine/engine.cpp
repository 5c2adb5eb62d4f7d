// The engine's own things: its device, its cache, and conversion of host memory into and out of formats. Compiling is
// compile.cpp, running execute.cpp.
#include "run/engine/engine.h"

#include <omp.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "run/device/choose/choose.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/panels.h"
#include "run/engine/roofline.h"
#include "run/engine/self_test_result.h"

namespace lumen::run {

struct Engine::State {
  CompileContext shop;
  CompileReport totals;
  bool timed = false;

  void add(const CompileReport& r) {
    totals.kernels += r.kernels;
    totals.compiled += r.compiled;
    totals.cached += r.cached;
    totals.seconds += r.seconds;
  }

  // Runs the steps of a conversion: value 0 is read, value 1 is written, value 2 (if any) is read, too.
  void convert(const synth::Synthesis& steps, const void* from, int64_t from_bytes, void* to, int64_t to_bytes,
               std::span<const float> beside = {}) {
    const int64_t to_at = aligned(from_bytes), beside_at = to_at + aligned(to_bytes),
                  scratch_at = beside_at + aligned(beside.size_bytes());
    int64_t end = scratch_at;
    for (const int64_t bytes : steps.scratch) end += aligned(bytes);
    const int64_t status_at = end;
    end += aligned(sizeof(LaunchStatus));
    CompileReport report;
    const std::vector<Launch> launches = compile_steps(
        shop, steps,
        {{BufferAddress::In::arena, 0}, {BufferAddress::In::arena, to_at}, {BufferAddress::In::arena, beside_at}},
        scratch_at, &report);
    add(report);

    const std::shared_ptr<void> memory = allocate_shared(shop.device, end);
    auto* base = static_cast<std::byte*>(memory.get());
    shop.device->copy_in(base, from, from_bytes);
    if (!beside.empty()) shop.device->copy_in(base + beside_at, beside.data(), beside.size_bytes());
    LaunchStatus status;
    const bool waits = shop.device->is_asynchronous();
    LaunchStatus* const shared = waits ? reinterpret_cast<LaunchStatus*>(base + status_at) : &status;
    for (const Launch& launch : launches) {
      std::vector<void*> buffers;
      for (const BufferAddress& at : launch.addresses) buffers.push_back(base + at.at);
      shop.device->launch(launch.kernel, buffers, launch.launch_config, shared);
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
  if (options.tune) state_->shop.tuner = std::make_shared<Tuner>(state_->shop.cache, state_->shop.threads);
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

std::vector<uint8_t> Engine::encode(const FormatRef& f, const float* x, int64_t rows, int64_t columns,
                                    std::span<const float> importance) {
  std::vector<uint8_t> blob(blob_layout(*f, rows, columns).total);
  if (rows == 0 || columns == 0) return blob;
  const auto given = std::ssize(importance);
  if (given != 0 && given != columns && given != rows * columns)
    throw user_error("{} importances for {} columns", given, columns);
  for (const float w : importance)
    if (!(w >= 0) || std::isinf(w)) throw user_error("an importance is {}: it has to be finite, and not negative", w);
  const synth::Importance kind = given == 0         ? synth::Importance::none
                                 : given == columns ? synth::Importance::columns
                                                    : synth::Importance::elements;
  if (!f->weighs()) importance = {};
  state_->convert(synth::synthesize_encode(*f, rows, columns, device().machine(), kind), x, rows * columns * 4,
                  blob.data(), blob.size(), importance);
  return blob;
}

std::vector<float> Engine::decode(const FormatRef& f, const uint8_t* blob, int64_t rows, int64_t columns) {
  std::vector<float> x(rows * columns);
  if (x.empty()) return x;
  state_->convert(synth::synthesize_decode(*f, rows, columns, device().machine()), blob,
                  blob_layout(*f, rows, columns).total, x.data(), rows * columns * 4);
  return x;
}

std::shared_ptr<const Panels> Engine::encode_panels(const FormatRef& f, int64_t rows, int64_t columns, bool weighed) {
  CompileReport report;
  const auto importance = weighed ? synth::Importance::columns : synth::Importance::none;
  auto made = std::make_shared<const Panels>(state_->shop, f, rows, columns, Panels::Way::encode, importance, &report);
  state_->add(report);
  return made;
}

std::shared_ptr<const Panels> Engine::decode_panels(const FormatRef& f, int64_t rows, int64_t columns) {
  CompileReport report;
  auto made = std::make_shared<const Panels>(state_->shop, f, rows, columns, Panels::Way::decode,
                                             synth::Importance::none, &report);
  state_->add(report);
  return made;
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
