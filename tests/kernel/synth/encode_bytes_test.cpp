// Needs: none. Numbers to codes of eight bits as machines round them: the codec's bits, for all exponents, around every
// tie, for infinities and NaN of either sign.
#include "kernel/synth/unpack/field.h"
#include "number/facts/facts.h"
#include "tests/kernel/synth/synth_harness.h"

namespace lumen::test {
namespace {

std::vector<uint32_t> numbers() {
  std::vector<uint32_t> out;
  for (uint32_t high = 0; high < 1U << 14; ++high)  // sign, exponent, five bits of the mantissa
    for (const uint32_t low : {0U, 1U, 0x20000U, 0x3ffffU}) out.push_back(high << 18 | low);
  return out;
}

void check(const FieldType& t, const machine::Machine& m, int lanes, bool by_rounding) {
  const std::vector<uint32_t> x = numbers();
  const int64_t count = x.size();
  loop::Builder b("codes");
  const auto from = b.param("x", count * 4, false), to = b.param("codes", count, true);
  b.loop(loop::LoopKind::parallel, b.i64(0), b.i64(count / lanes), 1, [&](loop::Expr task) {
    const auto value = b.load(from, {Scalar::f32, lanes}, task * (lanes * 4), 4 * lanes);
    b.store(to, synth::encode_bytes(b, t, value, m), task * lanes, lanes);
  });
  const loop::Kernel k = b.finish();
  EXPECT_EQ(loop::print(k).find("round.f32") != std::string::npos, by_rounding) << m.name;
  Blob in(count * 4), out(count);
  std::memcpy(in.data(), x.data(), in.size());
  const std::vector<std::span<uint8_t>> buffers{in, out};
  loop_evaluator(m)(k, buffers);
  int wrong = 0;
  for (int64_t i = 0; i < count && wrong < 5; ++i) {
    const auto value = std::bit_cast<float>(x[i]);
    if (out[i] == field_encode(t, value)) continue;
    ++wrong;
    ADD_FAILURE() << m.name << ": " << value << " (" << std::hex << x[i] << ") is " << int{out[i]} << ", not "
                  << field_encode(t, value);
  }
}

TEST(EncodeBytes, GiveTheCodecsBits) {
  for (const char* name : {"fp8_e4m3", "fp8_e5m2"}) {
    const FormatRef f = format_named(name);
    for (const char* machine : {"x86-64-v3", "sm_80", "gfx942"})
      check(*plain_field(*f), *machine::find_machine(machine), 4, false);
    for (const char* machine : {"sm_89", "sm_90a"})
      for (const int lanes : {1, 4}) check(*plain_field(*f), *machine::find_machine(machine), lanes, true);
  }
  for (const char* name : {"fp8_e4m3fnuz", "fp8_e5m2fnuz"})
    check(*plain_field(*format_named(name)), *machine::find_machine("sm_90a"), 4, false);
}

}  // namespace
}  // namespace lumen::test
