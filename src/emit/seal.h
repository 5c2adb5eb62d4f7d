// Keyed checksums for what is kept on disk and executed later (BLAKE3 with a key, as LLVM has it): who does not know
// the key cannot make one, whatever else they can write. Proved by tests/emit/seal_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace lumen::emit {

using SealKey = std::array<uint8_t, 32>;
using Seal = std::array<uint8_t, 32>;

// The seal of several parts one behind the other; where one ends and the next begins counts, too.
Seal seal(const SealKey& key, std::initializer_list<std::string_view> parts);

// Compared without a hint in how long it takes.
bool same_seal(const Seal& a, const Seal& b);

// 32 lower-case digits, without a key: nobody can find two texts with the same.
std::string fingerprint(std::string_view text);

}  // namespace lumen::emit
