// Binary forms with lengths and counts: numbers of 1, 2, 4 and 8 bytes (the lowest first, or the highest), numbers of
// seven bits a byte, and pieces behind their lengths. A length grows and shrinks with what it counts.
#pragma once

#include <algorithm>

#include "tests/fuzz/mutators/mutator.h"

namespace mutators {

struct Field {
  size_t at = 0, width = 0;
  bool highest_first = false;
};

inline uint64_t read_field(const std::string& text, const Field& f) {
  uint64_t out = 0;
  for (size_t i = 0; i < f.width; ++i) {
    const uint64_t byte = static_cast<unsigned char>(text[f.at + i]);
    out |= byte << (8 * (f.highest_first ? f.width - 1 - i : i));
  }
  return out;
}
inline void write_field(std::string& text, const Field& f, uint64_t value) {
  for (size_t i = 0; i < f.width; ++i)
    text[f.at + i] = static_cast<char>(value >> (8 * (f.highest_first ? f.width - 1 - i : i)));
}

inline Field any_field(const std::string& text, Chance& chance) {
  const size_t width = size_t{1} << (chance() % 4);
  // Most of what matters stands near the beginning.
  const size_t reach = chance() % 2 == 0 ? text.size() : std::min<size_t>(text.size(), 256);
  return {text.size() < width ? 0 : below(chance, std::max<size_t>(reach, width) - width + 1), width,
          chance() % 4 == 0};
}

inline void change_binary(std::string& text, Chance& chance) {
  constexpr uint64_t kNumbers[] = {0,          1,          2,          31,        32,         0x7f,       0x80,
                                   0xff,       0x100,      0x7fff,     0xffff,    0x10000,    0x7fffffff, 0x80000000,
                                   0xffffffff, 1ULL << 32, 1ULL << 40, INT64_MAX, 1ULL << 63, UINT64_MAX};
  const Field f = any_field(text, chance);
  if (text.size() < f.at + f.width) {
    text += '\0';
    return;
  }
  const uint64_t value = read_field(text, f);
  const size_t behind = f.at + f.width;
  switch (chance() % 8) {
    case 0:
      write_field(text, f, kNumbers[below(chance, std::size(kNumbers))]);
      break;
    case 1:
      write_field(text, f, value + chance() % 5 - 2);
      break;
    case 2:
    case 3: {  // it counts the bytes behind it, which become more or fewer with it
      if (value > text.size() - behind) break;
      const size_t more = 1 + below(chance, 16);
      if (chance() % 2 == 0) {
        text.insert(behind + below(chance, value + 1), text.substr(behind, std::min<size_t>(more, value)));
        write_field(text, f, value + std::min<size_t>(more, value));
      } else if (value > 0) {
        const size_t less = std::min<size_t>(more, value);
        text.erase(behind, less);
        write_field(text, f, value - less);
      }
      break;
    }
    case 4: {  // a piece with its length, once more or somewhere else
      if (value > text.size() - behind || value > 4096) break;
      const std::string piece = text.substr(f.at, f.width + value);
      if (chance() % 2 == 0) text.erase(f.at, piece.size());
      text.insert(below(chance, text.size() + 1), piece);
      break;
    }
    case 5: {  // a number of seven bits a byte
      uint64_t number = kNumbers[below(chance, std::size(kNumbers))] >> (chance() % 40);
      std::string out;
      do {
        out += static_cast<char>((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        number >>= 7;
      } while (number > 0);
      size_t end = f.at;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0x80) != 0) ++end;
      text.replace(f.at, std::min(end + 1, text.size()) - f.at, out);
      break;
    }
    case 6:  // two fields exchanged
      if (const size_t other = below(chance, text.size() - f.width + 1); other + f.width <= f.at || behind <= other)
        std::swap_ranges(text.begin() + f.at, text.begin() + behind, text.begin() + other);
      break;
    default:
      text[f.at] = static_cast<char>(text[f.at] ^ (1 << (chance() % 8)));
  }
}

}  // namespace mutators
