// Mutations that keep a JSON text one. libFuzzer's own, of bytes, take every other turn, so that broken texts are met
// as well. Included by one target's source.
#pragma once

#include <cstring>

#include "json_changes.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::mt19937 chance(seed);
  if (chance() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const char* text = reinterpret_cast<const char*>(data);
  nlohmann::ordered_json root = nlohmann::ordered_json::parse(text, text + size, nullptr, false);
  if (root.is_discarded() || !root.is_structured()) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned n = 1 + chance() % 3; n > 0; --n) json_changes::mutate(root, chance);
  const std::string out = root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
