// A stand-in for a GPU driver's library: the functions Lumen calls (gpu_symbols.def), over memory of this process, with
// a record of every call. What it is strict about is what real drivers are strict about:
//   - device addresses cannot be read by the host: they lie in a range of their own without any access;
//   - work on a stream is done when somebody waits, so buffers that change too early show;
//   - memory is never zero to begin with; every call needs a started driver and a context on its thread;
//   - streams that no event ties do not wait for each other;
//   - nothing but launches and copies within the device may happen while a stream is captured; what is captured ends
//     where it began, and waits for events outside of it only where it says so.
// Tests reach its state through fake_gpu(), exported by each library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lumen::fake {

struct Launch {
  std::string symbol;
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
  size_t argument_bytes = 0;
};

struct Gpu {
  // What it pretends to be.
  int devices = 1, version = 0, units = 4;
  int wave = 0;                      // lanes that step together
  bool integrated = false;           // its memory is the processor's
  int major = 9, minor = 0;          // of the CUDA one
  std::string architecture;          // of the HIP one
  int64_t bytes = int64_t{1} << 30;  // at most this much memory
  bool pools = true, page_locks = true, captures = true, links = true;
  std::string log;  // what its compiler says
  // Failures: `fail_symbol` fails with `fail_code` after `fail_after` successes; or the n-th call of all does.
  std::string fail_symbol;
  int fail_code = 999;
  int64_t fail_after = 0, fail_at = 0;
  bool multiplies = true;              // its library of products knows how
  double product_milliseconds = 0.25;  // of each; other work takes 0.25
  double product_error = 0;            // that each number of a product is off by
  // 0: work of a stream is done when somebody waits for it; else streams also go on by themselves now and then, in some
  // order that events allow: what is not ordered by an event then happens in any.
  uint32_t order = 0;
  bool corrupts = false;  // every buffer of a kernel ends up with a wrong bit

  // Kernels are functions of the host: `find` gives one for a symbol of an image, null when there is none; `execute`
  // runs it with host addresses of the arguments, the status last.
  std::function<void*(const std::string& image, const std::string& symbol)> find;
  std::function<void(void* function, std::span<void* const> arguments, unsigned blocks, unsigned threads)> execute;

  // Or they are code of the device, and somebody executes it: where `run` is set, it gets a launch as the driver was
  // given it, `accept` looks at images when they are loaded, `taken` and `given_back` hear of memory. What is false
  // fails the call, and `said` is its description.
  std::function<bool(const std::string& image)> accept;
  std::function<void(void* address, size_t bytes, void* host)> taken;
  std::function<void(void* address)> given_back;
  std::function<bool(void* function, std::span<const std::byte> arguments, unsigned blocks, unsigned threads,
                     unsigned shared_bytes)>
      run;
  std::string said;

  // What happened.
  std::vector<std::string> calls;
  std::vector<Launch> launches;  // as executed
  int64_t contexts = 0, streams = 0, events = 0, modules = 0, graphs = 0, executables = 0, links_open = 0;
  int64_t descriptors = 0;  // of its library of products
  int64_t bytes_out = 0;    // copied from the device to the host
  int64_t bytes_in = 0;     // copied the other way
  int64_t bytes_within = 0;
  int64_t host_blocks = 0, device_blocks = 0, device_bytes = 0, most_bytes = 0;

  int64_t count(const std::string& symbol) const {
    int64_t n = 0;
    for (const std::string& call : calls) n += call == symbol ? 1 : 0;
    return n;
  }
  // Things taken and not given back.
  int64_t held() const {
    return contexts + streams + events + modules + graphs + executables + links_open + descriptors + host_blocks +
           device_blocks;
  }
};

}  // namespace lumen::fake
