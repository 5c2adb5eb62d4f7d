// Operands of vector instructions as numbers of all lanes, and results back under EXEC: modifiers, halves of registers,
// parts (SDWA) and other lanes (DPP) are seen to here, so that operations are plain functions of numbers.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/amd/fault.h"
#include "tests/amd/number/float_code.h"
#include "tests/amd/wave/wave.h"

namespace lumen::amd {

// 16 bits that are a float.
struct Half {
  uint16_t bits = 0;
  float value() const { return half_value(bits); }
};
// Two of 16 bits, two of 32.
struct Pair16 {
  uint16_t low = 0, high = 0;
};
struct Pair32 {
  uint32_t low = 0, high = 0;
};

template <class T>
using Column = std::array<T, kMostLanes>;

template <class T>
constexpr Type type_of() {
  if constexpr (std::is_same_v<T, float>) return Type::f32;
  if constexpr (std::is_same_v<T, double>) return Type::f64;
  if constexpr (std::is_same_v<T, Half>) return Type::f16;
  if constexpr (std::is_same_v<T, uint16_t> || std::is_same_v<T, int16_t>) return Type::b16;
  if constexpr (std::is_same_v<T, uint32_t> || std::is_same_v<T, int32_t>) return Type::b32;
  if constexpr (std::is_same_v<T, uint64_t>) return Type::b64;
  if constexpr (std::is_same_v<T, int64_t>) return Type::i64;
  if constexpr (std::is_same_v<T, Pair16>) return Type::pk16;
  if constexpr (std::is_same_v<T, Pair32>) return Type::pk32;
  return Type::none;
}

// Which lane each lane reads from; -1: none.
void dpp_sources(const Wave& w, const Dpp& dpp, std::array<int8_t, kMostLanes>* from);
// Lanes that write: EXEC, less those that DPP leaves out.
uint64_t write_mask(const Wave& w, const Instruction& i);
// 32 bits of every lane, before modifiers.
void raw_words(const Wave& w, const Instruction& i, const Operand& o, int source, int word, Column<uint32_t>* out);
// What SDWA takes of a word.
uint32_t part_of(uint32_t word, Part part, bool extend);
void store_words(Wave& w, const Instruction& i, const Operand& o, int word, const Column<uint32_t>& value);
void store_halves(Wave& w, const Instruction& i, const Operand& o, const Column<uint16_t>& value);
// The word at its place in a register's old bits.
uint32_t placed(uint32_t old, uint32_t value, const Sdwa& sdwa);

// `source`: number of the operand among the sources, for op_sel, SDWA and DPP; -1: the old result.
template <class T>
void fetch(const Wave& w, const Instruction& i, const Operand& o, int source, Column<T>& out) {
  if constexpr (sizeof(T) == 8) {
    Column<uint32_t> low, high;
    raw_words(w, i, o, source, 0, &low);
    raw_words(w, i, o, source, 1, &high);
    for (int l = 0; l < w.lanes; ++l) {
      uint64_t x = low[l] | static_cast<uint64_t>(high[l]) << 32;
      if (o.absolute) x &= ~(uint64_t{1} << 63);
      if (o.negative) x ^= uint64_t{1} << 63;
      out[l] = std::bit_cast<T>(x);
    }
  } else if constexpr (sizeof(T) == 4) {
    Column<uint32_t> words;
    raw_words(w, i, o, source, 0, &words);
    if (i.sdwa.on && source >= 0 && source < 2 && o.kind != Operand::Kind::constant)
      for (int l = 0; l < w.lanes; ++l) words[l] = part_of(words[l], i.sdwa.from[source], o.extend);
    if (o.absolute)
      for (int l = 0; l < w.lanes; ++l) words[l] &= 0x7fffffff;
    if (o.negative)
      for (int l = 0; l < w.lanes; ++l) words[l] ^= 0x80000000;
    std::memcpy(out.data(), words.data(), sizeof(words));
  } else {
    Column<uint32_t> words;
    raw_words(w, i, o, source, 0, &words);
    const bool high = o.half == 2 || (o.half == 0 && source >= 0 && i.op_sel >> source & 1);
    for (int l = 0; l < w.lanes; ++l) {
      uint32_t x = words[l];
      if (i.sdwa.on && source >= 0 && source < 2 && o.kind != Operand::Kind::constant)
        x = part_of(x, i.sdwa.from[source], o.extend);
      auto bits = static_cast<uint16_t>(high && o.kind != Operand::Kind::constant ? x >> 16 : x);
      if (o.absolute) bits &= 0x7fff;
      if (o.negative) bits ^= 0x8000;
      out[l] = std::bit_cast<T>(bits);
    }
  }
}

// Where the numbers of all lanes lie: in the register itself where nothing is done to them, else in `room`.
template <class T>
const T* column(const Wave& w, const Instruction& i, const Operand& o, int source, Column<T>& room) {
  if constexpr (sizeof(T) == 4) {
    const bool plain = o.kind == Operand::Kind::vector && !o.absolute && !o.negative && !i.sdwa.on &&
                       (source != 0 || i.dpp.kind == Dpp::Kind::none);
    if (plain) return reinterpret_cast<const T*>((*w.vector)[o.first].data());
  }
  fetch(w, i, o, source, room);
  return room.data();
}

// Output modifiers: times 2, times 4, half; then to 0 .. 1.
template <class F>
F modified(F x, const Instruction& i) {
  if (i.output_modifier == 1) x *= 2;
  if (i.output_modifier == 2) x *= 4;
  if (i.output_modifier == 3) x /= 2;
  if (i.clamp) x = x > 1 ? F{1} : x > 0 ? x : F{0};
  return x;
}

template <class T>
void store(Wave& w, const Instruction& i, const Operand& o, Column<T>& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (i.output_modifier != 0 || i.clamp)
      for (int l = 0; l < w.lanes; ++l) value[l] = modified(value[l], i);
  } else if constexpr (std::is_same_v<T, Half>) {
    if (i.output_modifier != 0 || i.clamp)
      for (int l = 0; l < w.lanes; ++l) value[l].bits = half_bits(modified(value[l].value(), i));
  }
  if constexpr (sizeof(T) == 8) {
    Column<uint32_t> low, high;
    for (int l = 0; l < w.lanes; ++l) {
      const auto x = std::bit_cast<uint64_t>(value[l]);
      low[l] = static_cast<uint32_t>(x), high[l] = static_cast<uint32_t>(x >> 32);
    }
    store_words(w, i, o, 0, low);
    store_words(w, i, o, 1, high);
  } else if constexpr (sizeof(T) == 4) {
    store_words(w, i, o, 0, reinterpret_cast<const Column<uint32_t>&>(value));
  } else {
    Column<uint16_t> halves;
    std::memcpy(halves.data(), value.data(), sizeof(halves));
    store_halves(w, i, o, halves);
  }
}

// A NaN that no operand brought is the positive quiet one.
template <class F, class... S>
F made(F x, S... sources) {
  if constexpr (std::is_floating_point_v<F>) {
    if (x != x && !(... || (sources != sources))) return std::numeric_limits<F>::quiet_NaN();
  }
  return x;
}

// One column for each source; nothing is written to them before they are used.
template <class... S>
struct Rooms {};
template <class T, class... S>
struct Rooms<T, S...> {
  Column<T> first;
  Rooms<S...> others;
};
template <size_t N, class... S>
auto& room(Rooms<S...>& r) {
  if constexpr (N == 0) {
    return r.first;
  } else {
    return room<N - 1>(r.others);
  }
}

// ---- one function of numbers as an operation of all lanes: results first, sources behind.
template <class F>
struct Called;
template <class C, class R, class... S>
struct Called<R (C::*)(S...) const> {
  using Result = R;
  static std::vector<Type> types() { return {type_of<R>(), type_of<S>()...}; }

  template <class F, bool kOld, size_t... N>
  static void run(Wave& w, const Instruction& i, std::index_sequence<N...>) {
    Rooms<S...> rooms;
    // With kOld the last source is the old result.
    compute<F>(w, i,
               column(w, i, i.at[kOld && N + 1 == sizeof...(S) ? 0 : N + 1],
                      kOld && N + 1 == sizeof...(S) ? -1 : static_cast<int>(N), room<N>(rooms))...);
  }
  template <class F>
  static void compute(Wave& w, const Instruction& i, const S*... in) {
    Column<R> out;
    const F f{};
    const int lanes = w.lanes;
    for (int l = 0; l < lanes; ++l) out[l] = f(in[l]...);
    store(w, i, i.at[0], out);
  }
  template <class F, bool kOld>
  static void run(Wave& w, const Instruction& i) {
    run<F, kOld>(w, i, std::index_sequence_for<S...>());
  }
};

}  // namespace lumen::amd
