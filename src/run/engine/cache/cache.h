// Compiled kernels, kept in memory for the life of the cache and on disk for the next start. A kernel's key is the
// fingerprint of its text, of the machine, of the code generator's version and of the device's own (a driver's, say);
// one file per kernel, whose seal is verified before a linker sees it (base/sealed).
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

// Loads what the code generator made for processors into this process.
std::unique_ptr<Module> load_here(std::span<const uint8_t> object);

// How a device spreads a kernel.
LaunchConfig launch_config_of(const loop::Kernel& kernel, const machine::Machine& machine, bool small);

class KernelCache {
 public:
  KernelCache(std::shared_ptr<Device> device, std::shared_ptr<SealedFolder> kept);

  // One loaded kernel per kernel, equal ones sharing one. What is on disk is loaded, the rest compiled by `threads`
  // threads. Adds to the report.
  std::vector<void*> get(std::span<const loop::Kernel* const> kernels, int threads, CompileReport* report);
  std::string key_of(const std::string& text) const;  // of what belongs to this machine and code generator
  SealedFolder& kept() { return *kept_; }             // where other small results may be kept, too

 private:
  struct Entry;
  void compile(Entry& entry);
  std::unique_ptr<Module> load(Entry& entry);
  static void say_what_took(std::span<const Entry> kernels, double seconds, double loading);

  std::shared_ptr<Device> device_;
  std::shared_ptr<SealedFolder> kept_;
  std::string identity_;  // machine, device and versions, part of every key
  std::mutex mutex_;      // guards what follows
  std::vector<std::unique_ptr<Module>> modules_;
  std::unordered_map<std::string, void*> loaded_;  // by key
};

}  // namespace lumen::run
