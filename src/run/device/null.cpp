// A device that accepts everything and computes nothing: measures host overhead, and is a minimal example of a device.
#include <cstring>

#include "run/device/device.h"
#include "run/device/memory.h"

namespace lumen::run {
namespace {

class NoCode : public Module {
 public:
  void* find(const std::string&, int64_t) override { return nullptr; }
};

class NullDevice : public Device {
 public:
  const machine::Machine& machine() const override { return *machine_; }
  std::string describe() const override { return "null: accepts everything, computes nothing"; }
  bool reads_host_memory() const override { return true; }
  using Device::allocate;
  void* allocate(int64_t bytes, Pages pages) override { return memory_.allocate(bytes, pages); }
  void release(void* memory) override { memory_.release(memory); }
  void copy_in(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_out(void* to, const void* from, int64_t bytes) override { copy_in(to, from, bytes); }
  DeviceMemory memory() const override { return {total_memory(), available_memory(), memory_.held(), memory_.peak()}; }
  std::unique_ptr<Module> load(std::string_view) override { return std::make_unique<NoCode>(); }
  void launch(void*, std::span<void* const>, const LaunchConfig&, LaunchStatus*) override {}
  void synchronize() override {}

 private:
  machine::MachineRef machine_ = machine::native_machine();
  HostMemory memory_;
};

}  // namespace

std::unique_ptr<Device> open_null() {
  return std::make_unique<NullDevice>();
}

}  // namespace lumen::run
