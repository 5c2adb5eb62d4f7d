// See cache.h. Proved by tests/run/engine/cache_test.cpp.
#include "run/engine/cache/cache.h"

#include <chrono>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "emit/emit.h"
#include "kernel/loop/text.h"
#include "kernel/loop/verify.h"
#include "run/engine/cache/in_parallel.h"

namespace lumen::run {
namespace {

constexpr const char* kKind = "kernels";

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class CodeHere : public Module {
 public:
  explicit CodeHere(std::span<const uint8_t> object) : module_(object) {}
  void* find(const std::string& symbol, int64_t) override { return reinterpret_cast<void*>(module_.find(symbol)); }

 private:
  emit::LoadedModule module_;
};

}  // namespace

std::unique_ptr<Module> load_here(std::span<const uint8_t> object) {
  return std::make_unique<CodeHere>(object);
}

LaunchConfig launch_config_of(const loop::Kernel& kernel, const machine::Machine& machine, bool small) {
  // CPU code on a device with a grid, as in tests: one task per block.
  const int64_t tasks = kernel.tasks * kernel.instances;
  if (machine.kind == machine::Kind::cpu) return {tasks, small, tasks, 1, 0};
  const emit::LaunchShape shape = emit::launch_shape(kernel, machine);
  return {tasks, small, shape.blocks, shape.threads, shape.shared_bytes, loop::begins_in_whole(kernel)};
}

KernelCache::KernelCache(std::shared_ptr<Device> device, std::shared_ptr<SealedFolder> kept)
    : device_(std::move(device)), kept_(std::move(kept)) {
  const machine::Machine& m = device_->machine();
  identity_ =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", m.name, m.triple, m.cpu, m.features, emit::version(), device_->identity());
  for (const machine::Row& row : m.rows) identity_ += fmt::format("{} {} {}\n", row.name, row.llvm, row.arguments);
}

std::string KernelCache::key_of(const std::string& text) const {
  return fingerprint(identity_ + text);
}

struct KernelCache::Entry {
  const loop::Kernel* kernel;
  std::string key;
  std::string object;
  bool on_disk = false;
  double emitted = 0, prepared = 0;  // seconds in the code generator and in the device's own compiler
};

void KernelCache::compile(Entry& entry) {
  const double begin = seconds_now();
  std::string object = emit::emit({entry.kernel, 1}, device_->machine(), emit::Output::object);
  const double emitted = seconds_now();
  entry.object = device_->prepare(std::move(object));
  entry.on_disk = false;
  entry.emitted = emitted - begin;
  entry.prepared = seconds_now() - emitted;
  kept_->write(kKind, entry.key, entry.object);
}

void KernelCache::say_what_took(std::span<const Entry> kernels, double seconds, double loading) {
  double emitted = 0, prepared = 0, longest = 0;
  int compiled = 0;
  const Entry* slowest = nullptr;
  for (const Entry& entry : kernels) {
    compiled += entry.emitted > 0 ? 1 : 0;
    emitted += entry.emitted;
    prepared += entry.prepared;
    if (entry.emitted + entry.prepared <= longest) continue;
    longest = entry.emitted + entry.prepared;
    slowest = &entry;
  }
  std::string text = fmt::format("{} kernels in {:.2f} s, loaded in {:.2f} s", kernels.size(), seconds, loading);
  if (slowest != nullptr)
    text += fmt::format("; {} compiled: code generator {:.2f} s, device's compiler {:.2f} s, the longest {:.2f} s ({})",
                        compiled, emitted, prepared, longest, slowest->kernel->name);
  verbose(text);
}

// The cached code is intact and authentic; if this system cannot load it any more, it is recompiled.
std::unique_ptr<Module> KernelCache::load(Entry& entry) {
  if (!entry.on_disk) return device_->load(entry.object);
  try {
    return device_->load(entry.object);
  } catch (const Error& error) {
    verbose(fmt::format("a kept kernel cannot be loaded ({}); it is compiled again", error.what()));
  }
  compile(entry);
  return device_->load(entry.object);
}

std::vector<void*> KernelCache::get(std::span<const loop::Kernel* const> kernels, int threads, CompileReport* report,
                                    std::span<const std::string> texts) {
  std::vector<std::string> keys(kernels.size());
  in_parallel(kernels.size(), threads, [&](size_t i) {
    keys[i] = key_of(texts.empty() || texts[i].empty() ? loop::print(*kernels[i]) : texts[i]);
  });
  std::vector<Entry> missing;
  {
    const std::scoped_lock lock(mutex_);
    std::unordered_set<std::string> seen;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!seen.insert(keys[i]).second) continue;
      ++report->kernels;
      if (loaded_.contains(keys[i])) {
        ++report->cached;
      } else {
        missing.push_back({kernels[i], keys[i], {}});
      }
    }
  }
  // Disk first, compiler second; every kernel has its own file, so the work needs no synchronization between threads.
  const double begin = seconds_now();
  in_parallel(missing.size(), threads, [&](size_t i) {
    Entry& entry = missing[i];
    entry.object = kept_->read(kKind, entry.key);
    entry.on_disk = !entry.object.empty();
    if (!entry.on_disk) compile(entry);
  });

  const double found = seconds_now();
  const std::scoped_lock lock(mutex_);
  for (Entry& entry : missing) {
    modules_.push_back(load(entry));
    ++(entry.on_disk ? report->cached : report->compiled);
    const int64_t shared_bytes = launch_config_of(*entry.kernel, device_->machine(), false).shared_bytes;
    loaded_[entry.key] = modules_.back()->find(emit::symbol_name(*entry.kernel), shared_bytes);
  }
  if (!missing.empty()) say_what_took(missing, found - begin, seconds_now() - found);
  std::vector<void*> functions;
  for (const std::string& key : keys) functions.push_back(loaded_.at(key));
  return functions;
}

}  // namespace lumen::run
