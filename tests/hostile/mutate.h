// Files changed as an enemy or a bad disk would: bits, numbers at any place, cut and doubled parts, and texts that stay
// well formed (JSON members moved, lines exchanged). The same generator gives the same changes.
#pragma once

#include <random>
#include <string>

namespace lumen::hostile {

// How a file is built, which says what changes keep it readable for longer.
enum class Make { bytes, json, safetensors, text };

// By the name's ending.
Make make_of(const std::string& name);

// One to a few changes of a file's bytes.
std::string mutated(std::string bytes, Make make, std::mt19937_64& chance);

}  // namespace lumen::hostile
