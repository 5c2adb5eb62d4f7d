#include "tests/amd/execute/access.h"

namespace lumen::amd {

std::vector<NamedAccess> load_accesses(bool generation9, bool lds) {
  if (generation9 && !lds)
    return {{"ubyte", {1}},
            {"sbyte", {1, true}},
            {"ushort", {2}},
            {"sshort", {2, true}},
            {"dword", {4}},
            {"dwordx2", {8}},
            {"dwordx3", {12}},
            {"dwordx4", {16}},
            {"ubyte_d16", {1, false, 1}},
            {"ubyte_d16_hi", {1, false, 2}},
            {"sbyte_d16", {1, true, 1}},
            {"sbyte_d16_hi", {1, true, 2}},
            {"short_d16", {2, false, 1}},
            {"short_d16_hi", {2, false, 2}}};
  std::vector<NamedAccess> all = {{"u8", {1}},  {"i8", {1, true}}, {"u16", {2}},  {"i16", {2, true}},
                                  {"b32", {4}}, {"b64", {8}},      {"b96", {12}}, {"b128", {16}}};
  if (lds) {
    for (const char* n : {"u8_d16", "i8_d16", "u16_d16"}) {
      const Access a{n[1] == '8' ? 1 : 2, n[0] == 'i', 1};
      all.push_back({n, a});
      all.push_back({std::string(n) + "_hi", {a.bytes, a.sign, 2}});
    }
    return all;
  }
  for (const char* n : {"u8", "i8", "b16"}) {
    const Access a{n[1] == '8' ? 1 : 2, n[0] == 'i', 1};
    all.push_back({std::string("d16_") + n, a});
    all.push_back({std::string("d16_hi_") + n, {a.bytes, a.sign, 2}});
  }
  return all;
}

std::vector<NamedAccess> store_accesses(bool generation9, bool lds) {
  if (generation9 && !lds)
    return {{"byte", {1}},     {"byte_d16_hi", {1, false, 2}},
            {"short", {2}},    {"short_d16_hi", {2, false, 2}},
            {"dword", {4}},    {"dwordx2", {8}},
            {"dwordx3", {12}}, {"dwordx4", {16}}};
  std::vector<NamedAccess> all = {{"b8", {1}}, {"b16", {2}}, {"b32", {4}}, {"b64", {8}}, {"b96", {12}}, {"b128", {16}}};
  all.push_back({lds ? "b8_d16_hi" : "d16_hi_b8", {1, false, 2}});
  all.push_back({lds ? "b16_d16_hi" : "d16_hi_b16", {2, false, 2}});
  return all;
}

void put_loaded(Wave& w, const Operand& to, int lane, const Access& a, const uint8_t* from) {
  const auto at = [&](int word) -> uint32_t& {
    return (*w.vector)[static_cast<size_t>(to.first + word)][static_cast<size_t>(lane)];
  };
  if (a.bytes >= 4) {
    for (int word = 0; word < a.bytes / 4; ++word) std::memcpy(&at(word), from + 4 * word, 4);
    return;
  }
  uint32_t x = from[0];
  if (a.bytes == 2) x |= static_cast<uint32_t>(from[1]) << 8;
  if (a.sign)
    x = a.bytes == 1 ? static_cast<uint32_t>(static_cast<int8_t>(x)) : static_cast<uint32_t>(static_cast<int16_t>(x));
  if (a.half == 0) at(0) = x;
  if (a.half == 1) at(0) = (at(0) & 0xffff0000) | (x & 0xffff);
  if (a.half == 2) at(0) = (at(0) & 0xffff) | x << 16;
}

void take_stored(const Wave& w, const Operand& from, int lane, const Access& a, uint8_t* to) {
  const auto at = [&](int word) {
    return (*w.vector)[static_cast<size_t>(from.first + word)][static_cast<size_t>(lane)];
  };
  if (a.bytes >= 4) {
    for (int word = 0; word < a.bytes / 4; ++word) {
      const uint32_t x = at(word);
      std::memcpy(to + 4 * word, &x, 4);
    }
    return;
  }
  const uint32_t x = a.half == 2 || from.half == 2 ? at(0) >> 16 : at(0);
  std::memcpy(to, &x, static_cast<size_t>(a.bytes));
}

namespace {

template <class T, class F>
uint64_t changed(uint64_t old, uint64_t data) {
  return static_cast<uint64_t>(F{}(static_cast<T>(old), static_cast<T>(data)));
}
float as_float(uint64_t x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x));
}
uint64_t add_pair(uint64_t a, uint64_t b, bool bf16) {
  const FloatCode& f = bf16 ? kBf16 : kHalf;
  uint64_t r = 0;
  for (const int s : {0, 16}) {
    const double sum = decode_float(f, a >> s & 0xffff) + decode_float(f, b >> s & 0xffff);
    r |= static_cast<uint64_t>(encode_float(f, sum)) << s;
  }
  return r;
}
template <class U, class S>
void add_integers(std::vector<NamedAtomic>& all, const char* u, const char* s, const char* b) {
  const int bytes = sizeof(U);
  const auto add = [&](std::string name, Atomic f) { all.push_back({std::move(name), bytes, f}); };
  using std::string;
  add(string("add_") + u, [](uint64_t o, uint64_t d, uint64_t) { return o + d; });
  add(string("sub_") + u, [](uint64_t o, uint64_t d, uint64_t) { return o - d; });
  add(string("min_") + u,
      [](uint64_t o, uint64_t d, uint64_t) -> uint64_t { return std::min<U>(static_cast<U>(o), static_cast<U>(d)); });
  add(string("max_") + u,
      [](uint64_t o, uint64_t d, uint64_t) -> uint64_t { return std::max<U>(static_cast<U>(o), static_cast<U>(d)); });
  add(string("min_") + s, [](uint64_t o, uint64_t d, uint64_t) {
    return static_cast<uint64_t>(std::min<S>(static_cast<S>(o), static_cast<S>(d)));
  });
  add(string("max_") + s, [](uint64_t o, uint64_t d, uint64_t) {
    return static_cast<uint64_t>(std::max<S>(static_cast<S>(o), static_cast<S>(d)));
  });
  add(string("and_") + b, [](uint64_t o, uint64_t d, uint64_t) { return o & d; });
  add(string("or_") + b, [](uint64_t o, uint64_t d, uint64_t) { return o | d; });
  add(string("xor_") + b, [](uint64_t o, uint64_t d, uint64_t) { return o ^ d; });
  add(string("swap_") + b, [](uint64_t, uint64_t d, uint64_t) { return d; });
  add(string("inc_") + u,
      [](uint64_t o, uint64_t d, uint64_t) -> uint64_t { return static_cast<U>(o) >= static_cast<U>(d) ? 0 : o + 1; });
  add(string("dec_") + u, [](uint64_t o, uint64_t d, uint64_t) -> uint64_t {
    return static_cast<U>(o) == 0 || static_cast<U>(o) > static_cast<U>(d) ? d : o - 1;
  });
  all.push_back({string("cmpswap_") + b, bytes,
                 [](uint64_t o, uint64_t d, uint64_t c) { return static_cast<U>(o) == static_cast<U>(c) ? d : o; },
                 true});
}

}  // namespace

const std::vector<NamedAtomic>& atomics() {
  static const std::vector<NamedAtomic> all = [] {
    std::vector<NamedAtomic> out;
    add_integers<uint32_t, int32_t>(out, "u32", "i32", "b32");
    add_integers<uint64_t, int64_t>(out, "u64", "i64", "b64");
    out.push_back({"add_f32", 4, [](uint64_t o, uint64_t d, uint64_t) -> uint64_t {
                     return std::bit_cast<uint32_t>(as_float(o) + as_float(d));
                   }});
    out.push_back({"add_f64", 8, [](uint64_t o, uint64_t d, uint64_t) {
                     return std::bit_cast<uint64_t>(std::bit_cast<double>(o) + std::bit_cast<double>(d));
                   }});
    out.push_back({"pk_add_f16", 4, [](uint64_t o, uint64_t d, uint64_t) { return add_pair(o, d, false); }});
    out.push_back({"pk_add_bf16", 4, [](uint64_t o, uint64_t d, uint64_t) { return add_pair(o, d, true); }});
    return out;
  }();
  return all;
}

}  // namespace lumen::amd
