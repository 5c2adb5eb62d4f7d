// Executes kernels as machine code on this processor, tasks split unevenly so that a kernel that depends on the split
// is found.
#pragma once

#include "emit/emit.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {

inline emit::LoadedModule load(const std::vector<loop::Kernel>& kernels, const machine::Machine& m) {
  const std::string object = emit::emit(kernels, m, emit::Output::object);
  return emit::LoadedModule({reinterpret_cast<const uint8_t*>(object.data()), object.size()});
}

inline loop::Status call(const emit::LoadedModule& module, const loop::Kernel& k,
                         std::span<const std::span<uint8_t>> buffers, int64_t piece = 3) {
  const emit::CpuKernel f = module.find(emit::symbol_name(k));
  std::vector<void*> pointers;
  for (const auto& b : buffers) pointers.push_back(b.data());
  int64_t status[2] = {0, 0};
  for (int64_t at = 0; at < k.tasks; at += piece) f(pointers.data(), at, std::min(at + piece, k.tasks), status);
  return {static_cast<int>(status[0]), status[1]};
}

// Buffers on 64-byte boundaries with no slack behind them.
class Aligned {
 public:
  explicit Aligned(const Blob& from)
      : size_(from.size()), data_(static_cast<uint8_t*>(std::aligned_alloc(64, (from.size() + 63) / 64 * 64 + 64))) {
    std::memcpy(data_, from.data(), size_);
  }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  ~Aligned() { std::free(data_); }
  std::span<uint8_t> span() { return {data_, size_}; }
  Blob blob() const { return {data_, data_ + size_}; }

 private:
  size_t size_;
  uint8_t* data_;
};

inline Execute machine_code(const machine::Machine& m) {
  return [&m](const loop::Kernel& k, std::span<const std::span<uint8_t>> buffers) {
    const emit::LoadedModule module = load({k}, m);
    std::vector<std::unique_ptr<Aligned>> aligned;
    std::vector<std::span<uint8_t>> spans;
    for (const auto& b : buffers) {
      aligned.push_back(std::make_unique<Aligned>(Blob(b.begin(), b.end())));
      spans.push_back(aligned.back()->span());
    }
    const loop::Status status = call(module, k, spans);
    for (size_t i = 0; i < buffers.size(); ++i)
      if (k.params[i].written) std::memcpy(buffers[i].data(), spans[i].data(), buffers[i].size());
    return status;
  };
}

}  // namespace lumen::test
