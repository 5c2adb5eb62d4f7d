// The fuzz targets (*_fuzz.cpp) under libFuzzer, in one program: what they read is compiled and linked once. An input
// that takes more than 100 ms of the processor for each kilobyte that it is long is a finding, as a crash is.
//   usage: fuzz TARGET [ARGUMENTS OF LIBFUZZER]..., or fuzz --list
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

using Reader = int (*)(const uint8_t*, size_t);
using Mutator = size_t (*)(uint8_t*, size_t, size_t, unsigned);

extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, Reader read);
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// A target may bring a mutator of its own.
#define FUZZ_TARGET(name)                             \
  extern "C" int fuzz_##name(const uint8_t*, size_t); \
  extern "C" [[gnu::weak]] size_t mutate_##name(uint8_t*, size_t, size_t, unsigned);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

struct Target {
  const char* name;
  Reader read;
  Mutator mutate;
};
constexpr Target kTargets[] = {
#define FUZZ_TARGET(name) {#name, fuzz_##name, mutate_##name},
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
};

constexpr double kSecondsPerKilobyte = 0.1;

Mutator chosen = nullptr;
Reader reader = nullptr;

double seconds_of_reading(const uint8_t* data, size_t size) {
  timespec begin{}, end{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  reader(data, size);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
}

int read_in_time(const uint8_t* data, size_t size) {
  const double most = kSecondsPerKilobyte * (size < 1024 ? 1 : static_cast<double>(size) / 1024);
  double took = seconds_of_reading(data, size);
  // The first input pays for what is made once, and any for a machine that was busy: it counts what comes again.
  for (int again = 0; again < 2 && took > most; ++again) took = std::min(took, seconds_of_reading(data, size));
  if (took <= most) return 0;
  std::fprintf(stderr, "ERROR: an input of %zu bytes takes %.3f s, more than %.3f s\n", size, took, most);
  std::abort();
}

}  // namespace

// Most of an execution went into keeping freed memory and the frames that asked for it: 8 MB of freed memory and six
// frames still show where a find comes from.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier): the sanitizer's own name
  return "quarantine_size_mb=8:thread_local_quarantine_size_kb=64:malloc_context_size=6:detect_stack_use_after_return="
         "0";
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return chosen ? chosen(data, size, max_size, seed) : LLVMFuzzerMutate(data, size, max_size);
}

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--list") {
    for (const Target& target : kTargets) std::printf("%s\n", target.name);
    return 0;
  }
  for (const Target& target : kTargets) {
    if (target.name != name) continue;
    chosen = target.mutate;
    reader = target.read;
    // libFuzzer starts itself again with its own arguments where it works in several processes; here it never does.
    argv[1] = argv[0];
    argc -= 1;
    argv += 1;
    return LLVMFuzzerRunDriver(&argc, &argv, read_in_time);
  }
  std::fprintf(stderr, "usage: fuzz TARGET [ARGUMENTS OF LIBFUZZER]...; targets:");
  for (const Target& target : kTargets) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  return 2;
}
