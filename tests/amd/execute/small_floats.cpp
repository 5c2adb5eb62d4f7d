// Conversions from and to 8-bit floats, in the codes of the chip: without negative zero on gfx942, those of the Open
// Compute Project elsewhere.
#include "tests/amd/execute/table.h"

namespace lumen::amd {
namespace {

const FloatCode& code_of(uint32_t number) {
  const bool five = number & 1, fnuz = number & 2;
  return five ? (fnuz ? kBf8Fnuz : kBf8) : (fnuz ? kFp8Fnuz : kFp8);
}
bool takes_high(const Instruction& i, const Operand& o) {
  return o.half == 2 || i.op_sel & 1 || (i.sdwa.on && i.sdwa.from[0] == Part::word1);
}

// One byte: which one is said by SDWA, or on RDNA by op_sel.
void from_byte(Wave& w, const Instruction& i) {
  Column<uint32_t> words;
  Column<float> out;
  raw_words(w, i, i.at[1], 0, 0, &words);
  int byte = i.op_sel & 3;
  if (i.sdwa.on && i.sdwa.from[0] <= Part::byte3) byte = static_cast<int>(i.sdwa.from[0]);
  for (int l = 0; l < w.lanes; ++l)
    out[l] = static_cast<float>(decode_float(code_of(i.number), words[l] >> (8 * byte) & 0xff));
  store(w, i, i.at[0], out);
}

void from_pair(Wave& w, const Instruction& i) {
  Column<uint32_t> words, low, high;
  raw_words(w, i, i.at[1], 0, 0, &words);
  const int shift = takes_high(i, i.at[1]) ? 16 : 0;
  for (int l = 0; l < w.lanes; ++l) {
    const auto value = [&](uint32_t code) {
      return std::bit_cast<uint32_t>(static_cast<float>(decode_float(code_of(i.number), code & 0xff)));
    };
    low[l] = value(words[l] >> shift), high[l] = value(words[l] >> (shift + 8));
  }
  store_words(w, i, i.at[0], 0, low);
  store_words(w, i, i.at[0], 1, high);
}

void to_pair(Wave& w, const Instruction& i) {
  Column<float> a, b;
  fetch(w, i, i.at[1], 0, a), fetch(w, i, i.at[2], 1, b);
  Column<uint16_t> out;
  // MODE.FP16_OVFL is not set: what is too large is no number.
  for (int l = 0; l < w.lanes; ++l)
    out[l] = static_cast<uint16_t>(encode_float(code_of(i.number), static_cast<double>(a[l])) |
                                   encode_float(code_of(i.number), static_cast<double>(b[l])) << 8);
  store_halves(w, i, i.at[0], out);
}

// Random bits are added to the mantissa of f32 below the last place, then cut off.
uint32_t stochastic(const FloatCode& code, float x, uint32_t random) {
  return encode_float(code, static_cast<double>(x), false, &random);
}
void to_byte_at_random(Wave& w, const Instruction& i) {
  Column<float> a;
  Column<uint32_t> random, old;
  fetch(w, i, i.at[1], 0, a), fetch(w, i, i.at[2], 1, random);
  raw_words(w, i, i.at[0], -1, 0, &old);
  const int shift = 8 * (i.op_sel >> 2 & 3);
  for (int l = 0; l < w.lanes; ++l)
    old[l] = (old[l] & ~(0xffU << shift)) | stochastic(code_of(i.number), a[l], random[l]) << shift;
  store_words(w, i, i.at[0], 0, old);
}

}  // namespace

void add_small_float_conversions(const Chip& chip, Operations& t) {
  for (const bool five : {false, true}) {
    const std::string f = five ? "bf8" : "fp8";
    const uint32_t number = (five ? 1 : 0) | (chip.fnuz ? 2 : 0);
    t["v_cvt_f32_" + f] = {.run = from_byte, .types = {Type::f32, Type::b32}, .number = number};
    t["v_cvt_pk_f32_" + f] = {.run = from_pair, .types = {Type::f32, Type::b32}, .number = number};
    t["v_cvt_pk_" + f + "_f32"] = {.run = to_pair, .types = {Type::b16, Type::f32}, .number = number};
    t["v_cvt_sr_" + f + "_f32"] = {
        .run = to_byte_at_random, .types = {Type::b32, Type::f32, Type::b32}, .accumulates = true, .number = number};
  }
}

}  // namespace lumen::amd
