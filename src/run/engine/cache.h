// Compiled kernels, kept in memory for the life of the cache and on disk for the next start. A kernel's key is the hash
// of its text, of the machine and of the code generator's version; one file per kernel, verified before it is executed.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "emit/emit.h"
#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"
#include "run/engine/engine.h"

namespace lumen::run {

// Where engine.h says kernels are kept; empty for memory only.
std::filesystem::path cache_folder(const std::string& option);

class KernelCache {
 public:
  KernelCache(machine::MachineRef machine, std::filesystem::path folder);

  // One function per kernel, equal kernels sharing one. What is on disk is loaded, the rest compiled by `threads`
  // threads. Adds to the report.
  std::vector<emit::CpuKernel> get(std::span<const loop::Kernel* const> kernels, int threads, CompileReport* report);
  std::string key_of(const std::string& text) const;  // of what belongs to this machine and code generator

 private:
  struct Entry;
  std::string find_on_disk(const std::string& key) const;  // object bytes, or empty
  void keep_on_disk(const std::string& key, const std::string& object);
  void give_up_disk(const std::string& why);

  machine::MachineRef machine_;
  std::filesystem::path folder_;
  std::atomic<bool> disk_ = false;  // the folder can be used
  std::string identity_;            // machine and versions, part of every key
  std::mutex mutex_;                // guards what follows
  std::vector<emit::LoadedModule> modules_;
  std::unordered_map<std::string, emit::CpuKernel> loaded_;  // by key
};

}  // namespace lumen::run
