// The trailer after the contents of a sealed file. Proved by tests/base/sealed/sealed_test.cpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "base/file/file.h"
#include "base/sealed/seal.h"

namespace lumen {

inline constexpr const char* kNotOurs = "is damaged, or was not made by this user's Lumen";

struct Trailer {
  static constexpr char kMagic[8] = {'L', 'U', 'M', 'E', 'N', 'S', '0', '1'};
  char magic[8];
  uint64_t size;  // of the contents
  uint8_t salt[16];
  Seal seal;

  bool is_known() const { return std::memcmp(magic, kMagic, sizeof kMagic) == 0; }
  std::string_view salt_text() const { return {reinterpret_cast<const char*>(salt), sizeof salt}; }
};
static_assert(sizeof(Trailer) == 64);

// The identity that a seal covers: a file of another kind or name has another one.
inline std::string sealed_name(const std::string& kind, const std::string& name, std::string_view salt) {
  return kind + "/" + name + "/" + std::string(salt);
}

// Maps an open file, whatever its name refers to by now.
std::shared_ptr<const MappedFile> map_open(int fd);

// ".NAME.PID.N.part", a name that this process has not used before.
std::string unfinished_name(const std::string& name);

}  // namespace lumen
