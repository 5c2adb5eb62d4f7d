// Executes the instructions of the x86 matrix unit on a processor without one: they are illegal there, and a handler of
// that signal does what Intel's Software Developer's Manual (volume 2, AMX instructions) says of each. All else of a
// kernel runs as it is. One thread at a time, while an object of this class lives.
#pragma once

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace lumen::emit {

class TileEmulator {
 public:
  TileEmulator() {
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGILL, &action, &before());
  }
  ~TileEmulator() { ::sigaction(SIGILL, &before(), nullptr); }
  TileEmulator(const TileEmulator&) = delete;
  TileEmulator& operator=(const TileEmulator&) = delete;

  static int64_t executed() { return unit().executed; }

 private:
  using Row = std::array<uint8_t, 64>;
  struct Unit {
    std::array<std::array<Row, 16>, 8> tiles = {};
    std::array<int, 8> rows = {}, row_bytes = {};
    int64_t executed = 0;
  };
  static Unit& unit() {
    static Unit u;
    return u;
  }
  static struct sigaction& before() {
    static struct sigaction s;
    return s;
  }

  // An instruction of VEX map 0F38, as far as it is read.
  struct Decoded {
    int prefix = 0, opcode = 0, reg = 0, rm = 0, vvvv = 0;
    bool in_memory = false;
    uint64_t address = 0, stride = 0;  // of a row; of memory without rows they are added up
    int64_t length = 0;
  };

  static void handle(int, siginfo_t*, void* context) {
    auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    Decoded d;
    if (!decode(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers, &d) || !execute(d)) {
      ::sigaction(SIGILL, &before(), nullptr);  // not one of the unit's: it is met again
      return;
    }
    ++unit().executed;
    registers[REG_RIP] += d.length;
  }

  static bool decode(const uint8_t* at, const greg_t* registers, Decoded* d) {
    constexpr std::array<int, 16> kNumbers = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    const auto value = [&](int number) { return static_cast<uint64_t>(registers[kNumbers[number]]); };
    if (at[0] != 0xC4 || (at[1] & 0x1F) != 2) return false;
    const int x = at[1] & 0x40 ? 0 : 8, b = at[1] & 0x20 ? 0 : 8;
    d->vvvv = ~(at[2] >> 3) & 15;
    d->prefix = at[2] & 3;
    d->opcode = at[3];
    const int mod = at[4] >> 6, low = at[4] & 7;
    d->reg = at[4] >> 3 & 7;
    d->rm = low;
    d->in_memory = mod != 3;
    d->length = 5;
    if (!d->in_memory) return true;
    const uint8_t* next = at + 5;
    bool has_base = true;
    int base = low + b;
    if (low == 4) {
      const int index = (*next >> 3 & 7) + x;
      if (index != 4) d->stride = value(index) << (*next >> 6);
      base = (*next & 7) + b;
      has_base = mod != 0 || (*next & 7) != 5;
      ++next;
    } else if (mod == 0 && low == 5) {
      return false;  // behind the instruction itself: no kernel has its tiles there
    }
    int64_t displacement = 0;
    if (mod == 1) {
      displacement = static_cast<int8_t>(*next++);
    } else if (mod == 2 || !has_base) {
      int32_t wide = 0;
      std::memcpy(&wide, next, 4);
      displacement = wide;
      next += 4;
    }
    d->address = (has_base ? value(base) : 0) + static_cast<uint64_t>(displacement);
    d->length = next - at;
    return true;
  }

  static bool execute(const Decoded& d) {
    Unit& u = unit();
    enum { none, of_66, of_f3, of_f2 };
    if (d.opcode == 0x49) {
      if (d.prefix == none && !d.in_memory) return release();
      if (d.prefix == none) return configure(reinterpret_cast<const uint8_t*>(d.address + d.stride));
      if (d.prefix != of_f2) return false;
      u.tiles[d.reg] = {};
      return true;
    }
    if (d.opcode == 0x4B) {
      for (int row = 0; row < u.rows[d.reg]; ++row) {
        auto* place = reinterpret_cast<uint8_t*>(d.address + row * d.stride);
        Row& own = u.tiles[d.reg][row];
        if (d.prefix == of_f3) {
          std::memcpy(place, own.data(), u.row_bytes[d.reg]);
        } else {
          own = {};
          std::memcpy(own.data(), place, u.row_bytes[d.reg]);
        }
      }
      return d.prefix != none;
    }
    if (d.opcode == 0x5C && d.prefix == of_f3) return multiply_halves(d);
    if (d.opcode == 0x5E && d.prefix == of_f2) return multiply_bytes(d);
    return false;
  }

  static bool release() {
    unit().tiles = {};
    return true;
  }
  static bool configure(const uint8_t* from) {
    Unit& u = unit();
    u.tiles = {};
    for (int i = 0; i < 8; ++i) {
      uint16_t bytes = 0;
      std::memcpy(&bytes, from + 16 + 2 * i, 2);
      u.row_bytes[i] = bytes;
      u.rows[i] = from[48 + i];
    }
    return from[0] == 1;
  }

  template <class T>
  static T number(const Row& row, int i) {
    T x;
    std::memcpy(&x, row.data() + i * sizeof(T), sizeof(T));
    return x;
  }

  // Numbers that are not normal are zeros, as factors and as results.
  static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x; }
  static float half(const Row& row, int i) {
    const uint32_t bits = uint32_t{number<uint16_t>(row, i)} << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return flushed(x);
  }

  static bool multiply_halves(const Decoded& d) {
    Unit& u = unit();
    for (int m = 0; m < u.rows[d.reg]; ++m)
      for (int n = 0; n < u.row_bytes[d.reg] / 4; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < u.row_bytes[d.rm] / 4; ++k) {
          const Row &a = u.tiles[d.rm][m], &b = u.tiles[d.vvvv][k];
          even = flushed(std::fma(half(a, 2 * k), half(b, 2 * n), even));
          odd = flushed(std::fma(half(a, 2 * k + 1), half(b, 2 * n + 1), odd));
        }
        const float sum = flushed(flushed(number<float>(u.tiles[d.reg][m], n)) + flushed(even + odd));
        std::memcpy(u.tiles[d.reg][m].data() + 4 * n, &sum, 4);
      }
    return true;
  }

  static bool multiply_bytes(const Decoded& d) {
    Unit& u = unit();
    for (int m = 0; m < u.rows[d.reg]; ++m)
      for (int n = 0; n < u.row_bytes[d.reg] / 4; ++n) {
        auto sum = number<uint32_t>(u.tiles[d.reg][m], n);
        for (int k = 0; k < u.row_bytes[d.rm]; ++k)
          sum += static_cast<uint32_t>(int{number<int8_t>(u.tiles[d.rm][m], k)} *
                                       int{number<int8_t>(u.tiles[d.vvvv][k / 4], 4 * n + k % 4)});
        std::memcpy(u.tiles[d.reg][m].data() + 4 * n, &sum, 4);
      }
    return true;
  }
};

}  // namespace lumen::emit

#endif
