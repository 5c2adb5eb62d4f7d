// MessagePack as code objects' notes use it: maps with text keys, lists, texts, integers, truth values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lumen::amd {

struct Packed {
  enum class Kind : uint8_t { nothing, truth, integer, text, list, map } kind = Kind::nothing;
  uint64_t integer = 0;  // truth values too
  std::string text;
  std::vector<Packed> items;
  std::vector<std::pair<std::string, Packed>> members;

  const Packed* find(const std::string& key) const;  // null: none
  // Faults where the key is missing or no integer.
  uint64_t number(const std::string& key) const;
  std::string word(const std::string& key) const;
};

// Faults on what is cut off, too deep, or of another kind.
Packed read_msgpack(std::span<const uint8_t> bytes);

}  // namespace lumen::amd
