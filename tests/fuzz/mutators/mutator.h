// Mutators that know a family of formats: a target names the change of its family, and gets a mutator that makes a few
// of them at a time. libFuzzer's own, of bytes, take every fourth turn, so that broken texts are met as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace mutators {

using Chance = std::mt19937;
// One change of a text; it may leave it as it is.
using Change = void (*)(std::string& text, Chance& chance);

inline size_t below(Chance& chance, size_t n) {
  return n == 0 ? 0 : chance() % n;
}
template <typename T>
const T& any(const std::vector<T>& list, Chance& chance) {
  return list[below(chance, list.size())];
}
template <size_t n>
std::string_view any(const std::string_view (&list)[n], Chance& chance) {
  return list[below(chance, n)];
}

// Bytes of the text as they may stand behind `kept` bytes in front, which stay.
inline size_t mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed, Change change, size_t kept = 0) {
  Chance chance(seed);
  if (chance() % 4 == 0 || size <= kept) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data) + kept, size - kept);
  for (unsigned n = 1 + chance() % 4; n > 0; --n) change(text, chance);
  if (text.size() + kept > max_size) text.resize(max_size - kept);
  std::memcpy(data + kept, text.data(), text.size());
  return kept + text.size();
}

}  // namespace mutators

// In a target's source: how its inputs are changed.
#define FUZZ_MUTATOR(change, kept)                                                                        \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) { \
    return mutators::mutate(data, size, max_size, seed, change, kept);                                    \
  }
