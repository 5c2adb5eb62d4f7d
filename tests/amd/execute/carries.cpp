// Sums with a bit of carry for each lane, and what selects by such bits.
#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

enum : uint32_t { kSubtract = 1, kReverse = 2, kCarryIn = 4 };

// Result, carry out, two numbers, carry in.
void sum(Wave& w, const Instruction& i) {
  Column<uint32_t> a, b, out;
  fetch(w, i, i.at[2], 0, a), fetch(w, i, i.at[3], 1, b);
  const uint64_t in = i.number & kCarryIn ? w.mask(i.at[4].first) : 0, exec = write_mask(w, i);
  uint64_t carry = 0;
  for (int l = 0; l < w.lanes; ++l) {
    const uint64_t bit = in >> l & 1;
    const uint64_t x = i.number & kReverse ? b[l] : a[l], y = i.number & kReverse ? a[l] : b[l];
    const uint64_t r = i.number & kSubtract ? x - y - bit : x + y + bit;
    out[l] = static_cast<uint32_t>(r);
    if ((r >> 32) != 0 && exec >> l & 1) carry |= uint64_t{1} << l;
  }
  store(w, i, i.at[0], out);
  w.set_mask(i.at[1].first, carry);
}

template <class Wide, class Narrow>
void multiply_add(Wave& w, const Instruction& i) {
  Column<Narrow> a, b;
  Column<Wide> c, out;
  fetch(w, i, i.at[2], 0, a), fetch(w, i, i.at[3], 1, b), fetch(w, i, i.at[4], 2, c);
  const uint64_t exec = w.exec();
  uint64_t carry = 0;
  for (int l = 0; l < w.lanes; ++l) {
    const auto product = static_cast<uint64_t>(static_cast<Wide>(a[l]) * static_cast<Wide>(b[l]));
    const uint64_t r = product + static_cast<uint64_t>(c[l]);
    out[l] = static_cast<Wide>(r);
    // Bit 64 of the sum: the carry, or the sign of a sum of 65 bits.
    bool bit = r < product;
    if constexpr (std::is_signed_v<Wide>) bit = bit != ((product >> 63) != (static_cast<uint64_t>(c[l]) >> 63));
    if (bit && exec >> l & 1) carry |= uint64_t{1} << l;
  }
  store(w, i, i.at[0], out);
  w.set_mask(i.at[1].first, carry);
}

template <class T>
void select(Wave& w, const Instruction& i) {
  Column<T> a, b;
  fetch(w, i, i.at[1], 0, a), fetch(w, i, i.at[2], 1, b);
  const uint64_t bits = w.mask(i.operands > 3 ? i.at[3].first : uint16_t{kVcc});
  for (int l = 0; l < w.lanes; ++l)
    if (bits >> l & 1) a[l] = b[l];
  store(w, i, i.at[0], a);
}

}  // namespace

void add_carries(Operations& t) {
  const std::vector<Type> types{Type::b32, Type::b64, Type::b32, Type::b32, Type::b64};
  const auto add = [&](const char* name, uint32_t number) {
    t[name] = {.run = sum, .types = types, .results = 2, .number = number};
  };
  add("v_add_co_u32", 0);
  add("v_sub_co_u32", kSubtract);
  add("v_subrev_co_u32", kSubtract | kReverse);
  for (const char* name : {"v_addc_co_u32", "v_add_co_ci_u32"}) add(name, kCarryIn);
  for (const char* name : {"v_subb_co_u32", "v_sub_co_ci_u32"}) add(name, kSubtract | kCarryIn);
  for (const char* name : {"v_subbrev_co_u32", "v_subrev_co_ci_u32"}) add(name, kSubtract | kReverse | kCarryIn);
  for (const char* name : {"v_mad_u64_u32", "v_mad_co_u64_u32"})
    t[name] = {.run = multiply_add<uint64_t, uint32_t>,
               .types = {Type::b64, Type::b64, Type::b32, Type::b32, Type::b64},
               .results = 2};
  for (const char* name : {"v_mad_i64_i32", "v_mad_co_i64_i32"})
    t[name] = {.run = multiply_add<int64_t, int32_t>,
               .types = {Type::b64, Type::b64, Type::b32, Type::b32, Type::i64},
               .results = 2};
  t["v_cndmask_b32"] = {.run = select<uint32_t>, .types = {Type::b32, Type::b32, Type::b32, Type::b64}};
  t["v_cndmask_b16"] = {.run = select<uint16_t>, .types = {Type::b16, Type::b16, Type::b16, Type::b64}};
}

}  // namespace lumen::amd
