// The fuzz targets (*_fuzz.cpp) under libFuzzer, in one program: what they read is compiled and linked once.
//   usage: fuzz TARGET [ARGUMENTS OF LIBFUZZER]...
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
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

Mutator chosen = nullptr;

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return chosen ? chosen(data, size, max_size, seed) : LLVMFuzzerMutate(data, size, max_size);
}

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Target& target : kTargets) {
    if (target.name != name) continue;
    chosen = target.mutate;
    // libFuzzer starts itself again with its own arguments where it works in several processes; here it never does.
    argv[1] = argv[0];
    argc -= 1;
    argv += 1;
    return LLVMFuzzerRunDriver(&argc, &argv, target.read);
  }
  std::fprintf(stderr, "usage: fuzz TARGET [ARGUMENTS OF LIBFUZZER]...; targets:");
  for (const Target& target : kTargets) std::fprintf(stderr, " %s", target.name);
  std::fprintf(stderr, "\n");
  return 2;
}
