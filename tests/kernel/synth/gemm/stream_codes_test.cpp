// needs: none. Codes of streamed weights as bytes for dots: of every format the masked bytes, and the digits of tables,
// are its numbers; every element has one place.
#include "kernel/synth/order/stream_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "number/library/library.h"

namespace lumen {
namespace {

using synth::StreamCodes;

std::vector<uint8_t> random_bytes(int64_t count) {
  std::mt19937 random(3);
  std::vector<uint8_t> out(static_cast<size_t>(count));
  for (uint8_t& x : out) x = static_cast<uint8_t>(random());
  return out;
}

uint64_t code_of(const Format& f, const std::vector<uint8_t>& bytes, int field, int64_t element) {
  const uint8_t* record = &bytes[static_cast<size_t>(element / f.block * f.block_bytes)];
  return f.fields[static_cast<size_t>(field)].layout.read(record, element % f.block);
}

void expect_all_once(const StreamCodes& codes, int64_t unit, int64_t fine) {
  std::set<int64_t> seen;
  for (const StreamCodes::Run& run : codes.runs)
    for (const int64_t e : run.elements) {
      EXPECT_TRUE(seen.insert(e).second) << e;
      EXPECT_EQ(e / fine, run.elements[0] / fine);
    }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), unit);
}

// Where dots take signed bytes, no part has the highest bit of one.
void expect_masked_bytes_count(const char* machine) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine(machine);
  std::string why;
  int formats = 0;
  for (const FormatRef& f : library.all()) {
    const auto d = synth::factor_integer(*f, 8192, *m, &why);
    if (!d || !d->form_has_q || !d->table.empty()) continue;
    const int64_t unit = std::lcm<int64_t>(f->block, 32);
    const auto codes = synth::stream_codes(*f, *d, unit, *m);
    if (!codes) continue;
    SCOPED_TRACE(f->name);
    ++formats;
    expect_all_once(*codes, unit, d->fine);
    const auto numbers = synth::values_by_code(*f, d->form.q);
    const std::vector<uint8_t> bytes = random_bytes(unit / f->block * f->block_bytes);
    for (const StreamCodes::Run& run : codes->runs)
      for (size_t i = 0; i < 4; ++i) {
        double sum = codes->bias;
        for (const StreamCodes::Part& part : run.parts) {
          EXPECT_GE(part.exponent, codes->least);
          const int byte = bytes[static_cast<size_t>(part.bytes[i])];
          const int taken = ((byte & part.mask) ^ part.flip) >> part.down;
          EXPECT_LT(taken, d->row.a == Scalar::i8 ? 128 : 256);
          sum += std::ldexp(taken, part.exponent);
        }
        const uint64_t code = code_of(*f, bytes, numbers->field, run.elements[i]);
        ASSERT_EQ(sum, numbers->values[code]) << run.elements[i];
      }
  }
  EXPECT_GE(formats, 20);
}

TEST(StreamCodes, MaskedBytesCount) {
  expect_masked_bytes_count("sm_90a");
}

TEST(StreamCodes, MaskedBytesOfSignedDotsCount) {
  expect_masked_bytes_count("gfx950");
}

// Numbers of a table, where the machine selects bytes by bytes: each code is half of its byte.
TEST(StreamCodes, HalvesOfBytesSelectOfTables) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine("gfx950");
  std::string why;
  for (const char* name : {"mxfp4", "iq4_nl"}) {
    SCOPED_TRACE(name);
    const FormatRef f = library.find(name);
    const auto d = synth::factor_integer(*f, 8192, *m, &why);
    ASSERT_TRUE(d && d->table.size() == 16) << why;
    const int64_t unit = std::lcm<int64_t>(f->block, 32);
    const auto codes = synth::stream_codes(*f, *d, unit, *m);
    ASSERT_TRUE(codes);
    EXPECT_EQ(codes->table, d->table);
    expect_all_once(*codes, unit, d->fine);
    const std::vector<uint8_t> bytes = random_bytes(unit / f->block * f->block_bytes);
    for (const StreamCodes::Run& run : codes->runs)
      for (size_t i = 0; i < 4; ++i) {
        const int byte = bytes[static_cast<size_t>(run.parts[0].bytes[i])];
        EXPECT_EQ(static_cast<uint64_t>(byte >> run.parts[0].down & 15),
                  code_of(*f, bytes, d->code_field, run.elements[i]));
      }
    EXPECT_FALSE(synth::stream_codes(*f, *d, unit, *machine::find_machine("sm_90a")));
  }
}

// Integers and small floats exactly, others to the last digit; of the machine that has no selection: none.
TEST(StreamCodes, DigitsOfTables) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto m = machine::find_machine("sm_90a");
  for (const char* name : {"mxfp4", "iq4_nl", "nf4", "iq4_xs"}) {
    const FormatRef f = library.find(name);
    if (!f) continue;
    SCOPED_TRACE(name);
    EXPECT_FALSE(synth::stream_table(*f, *machine::find_machine("gfx942"), 4096));
    auto table = synth::stream_table(*f, *m, 4096);
    ASSERT_TRUE(table);
    StreamCodes& codes = table->codes;
    const auto numbers = synth::values_by_code(*f, facts_of(*f).scaled->value);
    EXPECT_EQ(codes.rounds, std::string(name) == "nf4");
    for (size_t code = 0; code < 16; ++code) {
      double digits = 0;
      for (const auto& digit : codes.digits) {
        ASSERT_LT(digit[code], 128);
        digits = digits * 128 + digit[code];
      }
      EXPECT_NEAR(codes.step * (digits + codes.bias), numbers->values[code], codes.rounds ? 0.51 * codes.step : 0);
    }
    const int64_t unit = std::lcm<int64_t>(f->block, 32);
    ASSERT_TRUE(synth::find_table_runs(*f, table->dot, unit, table->dot.code_field, codes));
    expect_all_once(codes, unit, table->dot.fine);
    const std::vector<uint8_t> bytes = random_bytes(unit / f->block * f->block_bytes);
    for (const StreamCodes::Run& run : codes.runs)
      for (size_t i = 0; i < 4; ++i) {
        const int byte = bytes[static_cast<size_t>(run.parts[0].bytes[i / 2])];
        EXPECT_EQ(static_cast<uint64_t>(i % 2 == 0 ? byte & 15 : byte >> 4),
                  code_of(*f, bytes, table->dot.code_field, run.elements[i]));
      }
  }
}

}  // namespace
}  // namespace lumen
