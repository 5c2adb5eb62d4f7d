// The ladder's GPU rung on a chip that nobody has here: kernels compiled for it run in the interpreter, in this
// process. The same name and calls as tests/ladder/gpu_code.h.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "emit/emit.h"
#include "run/device/gpu/gpu_match.h"
#include "tests/amd/machine.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

class GpuCode {
 public:
  // The chip that LUMEN_STAND_IN_AMD names; null: none.
  static GpuCode* open() {
    static std::unique_ptr<GpuCode> one = [] {
      const char* name = std::getenv("LUMEN_STAND_IN_AMD");
      const amd::Chip* chip = amd::find_chip(name ? name : "");
      return chip ? std::unique_ptr<GpuCode>(new GpuCode(*chip)) : nullptr;
    }();
    return one.get();
  }
  explicit GpuCode(const amd::Chip& chip) : machine_(run::match_gpu(chip.name, run::all_rows()).machine), gpu_(chip) {}

  const machine::Machine& machine() const { return *machine_; }
  amd::Machine& chip() { return gpu_; }

  void prepare(const std::vector<loop::Kernel>& kernels) {
    prepare(kernels, emit::emit(kernels, *machine_, emit::Output::object));
  }
  // Of an object that was made of them before.
  void prepare(const std::vector<loop::Kernel>& kernels, const std::string& object) {
    load(object);
    for (const loop::Kernel& k : kernels) {
      const std::string symbol = emit::symbol_name(k);
      LUMEN_CHECK(objects_.back()->kernels.contains(symbol), "no kernel {}", symbol);
      kernels_[symbol] = {objects_.back().get(), &objects_.back()->kernels.at(symbol)};
    }
  }
  void load(const std::string& object) {
    objects_.push_back(gpu_.load(std::span(reinterpret_cast<const uint8_t*>(object.data()), object.size())));
  }
  amd::LoadedKernel& kernel(const loop::Kernel& k) { return *kernels_.at(emit::symbol_name(k)).kernel; }

  // Every buffer is an allocation of its own; what lies beside it is nobody's.
  loop::Status run(const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) {
    const std::string symbol = emit::symbol_name(k);
    if (!kernels_.contains(symbol)) prepare({k});
    int64_t status[2] = {0, 0};
    std::vector<uint64_t> places;
    uint64_t next = uint64_t{1} << 40;
    const auto put = [&](void* data, size_t bytes) {
      places.push_back(next);
      gpu_.memory().add(next, bytes, data, true);
      next += (bytes + 0xfffff) / 0x100000 * 0x100000 + 0x100000;
    };
    for (const auto& b : buffers) put(b.data(), b.size());
    put(status, sizeof status);
    const emit::LaunchShape shape = emit::launch_shape(k, *machine_);
    const Found& found = kernels_.at(symbol);
    const auto give_back = [&] {
      for (const uint64_t place : places) gpu_.memory().remove(place);
    };
    try {
      gpu_.launch(*found.object, *found.kernel,
                  {static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.threads),
                   static_cast<unsigned>(shape.shared_bytes), std::as_bytes(std::span(places))});
    } catch (...) {
      give_back();
      throw;
    }
    give_back();
    return {static_cast<int>(status[0]), status[1]};
  }

  Execute execute() {
    return [this](const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) { return run(k, buffers); };
  }

 private:
  struct Found {
    amd::LoadedObject* object = nullptr;
    amd::LoadedKernel* kernel = nullptr;
  };
  machine::MachineRef machine_;
  amd::Machine gpu_;
  std::vector<std::unique_ptr<amd::LoadedObject>> objects_;
  std::map<std::string, Found> kernels_;
};

}  // namespace lumen::test
