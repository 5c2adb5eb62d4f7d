#include "base/fetch/public_address.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace lumen {
namespace {

struct Block {
  std::array<uint8_t, 16> begin;
  int bits;
};

constexpr Block kSpecial4[] = {
    {{0}, 8},              // this network
    {{10}, 8},             // private
    {{100, 64}, 10},       // shared by customers of a provider
    {{127}, 8},            // loopback
    {{169, 254}, 16},      // link-local; services of clouds describe machines there
    {{172, 16}, 12},       // private
    {{192, 0, 0}, 24},     // protocols
    {{192, 0, 2}, 24},     // documentation
    {{192, 31, 196}, 24},  // name servers
    {{192, 52, 193}, 24},  // tunnels
    {{192, 88, 99}, 24},   // relays to IPv6
    {{192, 168}, 16},      // private
    {{192, 175, 48}, 24},  // name servers
    {{198, 18}, 15},       // benchmarks
    {{198, 51, 100}, 24},  // documentation
    {{203, 0, 113}, 24},   // documentation
    {{224}, 3},            // multicast, reserved, broadcast
};

// Only 2000::/3 is given to the public internet; these parts of it are not.
constexpr Block kSpecial6[] = {
    {{0x20, 0x01, 0x00}, 23},              // protocols: Teredo, benchmarks, ORCHID
    {{0x20, 0x01, 0x0d, 0xb8}, 32},        // documentation
    {{0x26, 0x20, 0x00, 0x4f, 0x80}, 48},  // name servers
    {{0x3f, 0xff}, 20},                    // documentation
};

bool is_in(std::span<const uint8_t> address, const Block& block) {
  for (int bit = 0; bit < block.bits; bit += 8) {
    const int left = std::min(8, block.bits - bit);
    const auto mask = uint8_t(0xff << (8 - left));
    if ((address[bit / 8] & mask) != block.begin[bit / 8]) return false;
  }
  return true;
}

bool is_public4(std::span<const uint8_t> address) {
  return std::ranges::none_of(kSpecial4, [&](const Block& block) { return is_in(address, block); });
}

bool is_public6(std::span<const uint8_t> address) {
  const auto begins = [&](std::initializer_list<uint8_t> with) {
    return std::equal(with.begin(), with.end(), address.begin());
  };
  // IPv4 addresses in other forms: mapped, translated (NAT64), 6to4.
  if (begins({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})) return is_public4(address.subspan(12, 4));
  if (begins({0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0})) return is_public4(address.subspan(12, 4));
  if (begins({0x20, 0x02})) return is_public4(address.subspan(2, 4));
  if ((address[0] & 0xe0) != 0x20) return false;
  return std::ranges::none_of(kSpecial6, [&](const Block& block) { return is_in(address, block); });
}

}  // namespace

bool is_public_address(const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    std::array<uint8_t, 4> bytes{};
    std::memcpy(bytes.data(), &in.sin_addr, bytes.size());
    return is_public4(bytes);
  }
  if (address->sa_family == AF_INET6 && size >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    std::array<uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
    return is_public6(bytes);
  }
  return false;
}

}  // namespace lumen
