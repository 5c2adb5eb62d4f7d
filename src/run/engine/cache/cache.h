// Compiled kernels, kept in memory for the lifetime of the cache and on disk for later runs. A kernel's key is the
// fingerprint of its text, the machine, the code generator's version and the device's identity (a driver version, for
// example); each kernel has its own file, whose seal is verified before a linker sees it (base/sealed).
//
// May include: base, base/sealed, base/threads, emit, kernel/loop, run/device.
// Offers: in_parallel.h, user_cache.h.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/sealed/sealed.h"
#include "kernel/loop/loop.h"
#include "run/device/device.h"
#include "run/engine/cache/compile_report.h"

namespace lumen::run {

// Loads object code for this processor into this process.
std::unique_ptr<Module> load_here(std::span<const uint8_t> object);

// The launch configuration of a kernel on a device.
LaunchConfig launch_config_of(const loop::Kernel& kernel, const machine::Machine& machine, bool small);

class KernelCache {
 public:
  KernelCache(std::shared_ptr<Device> device, std::shared_ptr<SealedFolder> kept);

  // The loaded kernels; equal ones share one. Kernels on disk are loaded, the others compiled by `threads` threads.
  // Adds to the report. `texts`: of the kernels; those that are empty, or all
  // without it, are printed here.
  std::vector<void*> get(std::span<const loop::Kernel* const> kernels, int threads, CompileReport* report,
                         std::span<const std::string> texts = {});
  std::string key_of(const std::string& text) const;  // for data that depend on this machine and code generator
  SealedFolder& kept() { return *kept_; }             // the folder, for other small results

 private:
  struct Entry;
  void compile(Entry& entry);
  std::unique_ptr<Module> load(Entry& entry);
  static void say_what_took(std::span<const Entry> kernels, double seconds, double loading);

  std::shared_ptr<Device> device_;
  std::shared_ptr<SealedFolder> kept_;
  std::string identity_;  // machine, device and versions, part of every key
  std::mutex mutex_;      // guards the following members
  std::vector<std::unique_ptr<Module>> modules_;
  std::unordered_map<std::string, void*> loaded_;  // by key
};

}  // namespace lumen::run
