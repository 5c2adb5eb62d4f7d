// needs: none. Every row of every machine parses, verifies, and means what plain arithmetic says.
// That the machines agree with the meanings is shown by tests/ladder/machine_code_test.cpp.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/machine/machine.h"

namespace lumen {
namespace {

using machine::Machine;

std::vector<ScalarValue> random_lanes(Scalar s, int lanes, std::mt19937& random) {
  std::vector<ScalarValue> out(static_cast<size_t>(lanes));
  const int bits = scalar_bits(s);
  const int64_t low = is_signed(s) ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high = is_signed(s) ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  std::uniform_int_distribution<int64_t> number(low, high);
  for (ScalarValue& v : out) v.integer = bits == 32 ? number(random) / 16 : number(random);
  return out;
}

TEST(MachineRows, ParseAndAreUnique) {
  for (const auto& m : machine::all_machines()) {
    std::set<std::string> names;
    for (const machine::Row& row : m->rows) {
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
      const loop::Function* f = m->meaning(row.name);
      ASSERT_NE(f, nullptr);
      EXPECT_EQ(f->name, row.name);
      EXPECT_NE(m->features.find(row.needs == "neon" ? "neon" : "+" + row.needs), std::string::npos) << row.name;
    }
    for (const machine::DotRow& d : m->dots) {
      EXPECT_NE(m->find_row(d.row), nullptr) << d.row;
      EXPECT_TRUE(d.pairs.empty() || m->find_row(d.pairs)) << d.pairs;
    }
  }
}

// A dot, chained or not, adds the exact sum of products while operands stay within what the table promises.
TEST(MachineRows, DotsAddExactProducts) {
  std::mt19937 random(1);
  for (const auto& m : machine::all_machines())
    for (const machine::DotRow& d : m->dots)
      for (int round = 0; round < 20 && !is_float(d.acc); ++round) {
        const int n = d.lanes * d.k;
        std::vector<ScalarValue> acc = random_lanes(d.acc, d.lanes, random), a(n), b(n);
        std::uniform_int_distribution<int64_t> left(d.a == Scalar::u8 ? 0 : -d.a_max, d.a_max == 128 ? 127 : d.a_max);
        std::uniform_int_distribution<int64_t> right(-127, 127);
        for (int i = 0; i < n; ++i) {  // extremes first
          a[i].integer = round == 0 ? left.max() : round == 1 ? left.min() : left(random);
          b[i].integer = round == 0 ? 127 : round == 1 ? -127 : right(random);
        }
        std::vector<ScalarValue> got;
        if (d.accumulates) {
          got = loop::eval(*m->meaning(d.row), {acc, a, b});
        } else {
          got = loop::eval(*m->meaning(d.row), {a, b});
          if (!d.pairs.empty()) {
            std::vector<ScalarValue> ones(got.size());
            for (ScalarValue& v : ones) v.integer = 1;
            got =
                d.pairs_ones ? loop::eval(*m->meaning(d.pairs), {got, ones}) : loop::eval(*m->meaning(d.pairs), {got});
          }
          for (int i = 0; i < d.lanes; ++i) got[i].integer += acc[i].integer;
        }
        ASSERT_EQ(got.size(), static_cast<size_t>(d.lanes));
        for (int i = 0; i < d.lanes; ++i) {
          int64_t want = acc[i].integer;
          for (int j = 0; j < d.k; ++j) want += a[i * d.k + j].integer * b[i * d.k + j].integer;
          ASSERT_EQ(got[i].integer, want) << m->name << " " << d.row << " lane " << i;
        }
      }
}

// In every 128 bits two rows meet two, exactly, at the extremes of bytes, too.
TEST(MachineRows, SquaresAddProductsOfTwoRows) {
  std::mt19937 random(7);
  int squares = 0;
  std::vector<machine::MachineRef> all = machine::all_machines();
  for (const char* name : {"sve-i8mm-256", "sve-bf16-256", "sve2-2048"}) all.push_back(machine::find_machine(name));
  for (const auto& m : all)
    for (const machine::DotRow& d : m->squares) {
      ++squares;
      EXPECT_EQ(d.lanes, m->f32_lanes()) << m->name << " " << d.row;
      ASSERT_NE(m->meaning(d.row), nullptr) << m->name << " " << d.row;
      const int n = d.lanes / 2 * d.k;
      std::vector<ScalarValue> acc(d.lanes), a(n), b(n);
      const auto fill = [&](std::vector<ScalarValue>& values, Scalar s) {
        const int high = s == Scalar::u8 ? 255 : s == Scalar::i8 ? 127 : 100;
        std::uniform_int_distribution<int> number(s == Scalar::u8 ? 0 : -high - (s == Scalar::i8), high);
        for (ScalarValue& v : values) {
          v.integer = number(random);
          v.real = double(v.integer);  // floats hold the sums exactly
        }
      };
      fill(acc, d.acc);
      fill(a, d.a);
      fill(b, d.b);
      const auto got = loop::eval(*m->meaning(d.row), {acc, a, b});
      for (int at = 0; at < d.lanes; at += 4)
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 2; ++j) {
            int64_t want = acc[at + 2 * i + j].integer;
            for (int k = 0; k < d.k; ++k) want += a[(at / 2 + i) * d.k + k].integer * b[(at / 2 + j) * d.k + k].integer;
            const ScalarValue& v = got[at + 2 * i + j];
            ASSERT_EQ(is_float(d.acc) ? int64_t(v.real) : v.integer, want) << m->name << " " << d.row;
          }
    }
  EXPECT_GE(squares, 12);
}

// bfmmla adds one pair of products after the other, each sum rounded to odd.
TEST(MachineRows, SquaresOfShortFloatsRoundToOdd) {
  const auto m = machine::find_machine("neon-bf16");
  const loop::Function *square = m->meaning("square4.bf16bf16.f32x4"), *dot = m->meaning("dot2.bf16bf16.f32x4");
  ASSERT_TRUE(square && dot);
  std::mt19937 random(8);
  std::uniform_int_distribution<int> digits(128, 255), powers(-30, 30);
  const auto number = [&] { return std::ldexp(digits(random), powers(random)) * (random() % 2 ? 1 : -1); };
  for (int round = 0; round < 50; ++round) {
    std::vector<ScalarValue> acc(4), a(8), b(8);
    for (auto* side : {&acc, &a, &b})
      for (ScalarValue& v : *side) v.real = number();
    if (round == 0) a[0].real = 0x1p-130, b[0].real = 0x1p100;  // not normal: zero
    const auto got = loop::eval(*square, {acc, a, b});
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) {
        std::vector<ScalarValue> sum(4), x(8), y(8);
        sum[0] = acc[2 * i + j];
        for (int k = 0; k < 4; k += 2) {
          for (int at = 0; at < 2; ++at) {
            x[at] = a[4 * i + k + at];
            y[at] = b[4 * j + k + at];
          }
          sum[0] = loop::eval(*dot, {sum, x, y})[0];
        }
        EXPECT_EQ(got[2 * i + j].real, sum[0].real);
      }
  }
}

// A tile row is a product of matrices, the second with words of neighbours along k.
TEST(MachineRows, TilesAddProductsOfMatrices) {
  std::mt19937 random(4);
  int tiles = 0;
  std::vector<machine::MachineRef> machines = machine::all_machines();
  machines.push_back(machine::find_machine("sme-256"));
  for (const auto& m : machines)
    for (const machine::TileRow& t : m->tiles) {
      ++tiles;
      const int word = 4 / static_cast<int>(scalar_bytes(t.a));
      std::vector<ScalarValue> acc(static_cast<size_t>(t.rows * t.columns)), a(static_cast<size_t>(t.rows * t.k)),
          b(static_cast<size_t>(t.columns * t.k));
      std::uniform_int_distribution<int> number(-100, 100);  // floats hold the sums exactly
      for (auto* side : {&acc, &a, &b})
        for (ScalarValue& v : *side) {
          v.integer = side == &b && t.b == Scalar::u8 ? std::abs(number(random)) : number(random);
          v.real = static_cast<double>(v.integer);
        }
      const auto got = loop::eval(*m->meaning(t.row), {acc, a, b});
      for (int i = 0; i < t.rows; ++i)
        for (int j = 0; j < t.columns; ++j) {
          int64_t want = acc[static_cast<size_t>(i * t.columns + j)].integer;
          for (int k = 0; k < t.k; ++k)
            want += a[static_cast<size_t>(i * t.k + k)].integer *
                    b[static_cast<size_t>((k / word * t.columns + j) * word + k % word)].integer;
          const ScalarValue& v = got[static_cast<size_t>(i * t.columns + j)];
          ASSERT_EQ(is_float(t.acc) ? static_cast<int64_t>(v.real) : v.integer, want) << t.row << " " << i << "," << j;
        }
    }
  EXPECT_GE(tiles, 7);
}

// The pair's odd product joins the sum first; what is not normal counts as zero.
TEST(MachineRows, ShortFloatDotsRoundInOrder) {
  const auto m = machine::find_machine("avx512-bf16");
  const loop::Function* f = m->meaning("dot2.bf16bf16.f32x16");
  ASSERT_NE(f, nullptr);
  std::vector<ScalarValue> acc(16), a(32), b(32);
  for (ScalarValue& v : b) v.real = 1;
  acc[0].real = 1;
  a[0].real = 0x1p-24;    // the even one: half a unit in the last place of 1 + 2^-23
  a[1].real = 0x1.8p-24;  // the odd one: rounds up to 1 + 2^-23
  acc[1].real = 0x1p-130;
  a[4].real = 0x1p-130;
  b[4].real = 0x1p100;
  const auto got = loop::eval(*f, {acc, a, b});
  EXPECT_EQ(got[0].real, 1 + 0x1p-22);  // ties to even; even first would have stayed at 1 + 2^-23
  EXPECT_EQ(got[1].real, 0);
  EXPECT_EQ(got[2].real, 0);
}

TEST(MachineRows, SaturationIsPartOfTheMeaning) {
  const auto m = machine::find_machine("x86-64-v3");
  const loop::Function* f = m->meaning("mulpairs.u8i8.i16x16");
  ASSERT_NE(f, nullptr);
  std::vector<ScalarValue> a(32), b(32);
  for (ScalarValue& v : a) v.integer = 255;
  for (ScalarValue& v : b) v.integer = -128;
  EXPECT_EQ(loop::eval(*f, {a, b})[0].integer, -32768);
}

TEST(MachineRows, LookupsFindTheEntry) {
  std::mt19937 random(2);
  for (const auto& m : machine::all_machines())
    for (const machine::Row& row : m->rows) {
      if (row.name.rfind("lookup16.", 0) != 0) continue;
      const int lanes = std::stoi(row.name.substr(row.name.find('x') + 1));
      auto table = random_lanes(Scalar::u8, lanes, random);
      for (int i = 16; i < lanes; ++i)
        table[i] = table[i % 16];  // as kernels hand it in: rows differ in which sixteen they read
      auto index = random_lanes(Scalar::u8, lanes, random);
      for (ScalarValue& v : index) v.integer %= 16;
      const auto got = loop::eval(*m->meaning(row.name), {table, index});
      for (int i = 0; i < lanes; ++i) EXPECT_EQ(got[i].integer, table[i / 16 * 16 + index[i].integer].integer);
    }
}

TEST(MachineRows, WordsAreFoundByTheirLane) {
  std::mt19937 random(4);
  for (const auto& [name, lanes] : {std::pair{"lookup8.u32x8", 8}, {"lookup16.u32x16", 16}, {"lookup32.u16x32", 32}}) {
    const Scalar word = lanes == 32 ? Scalar::u16 : Scalar::u32;
    const auto table = random_lanes(word, lanes, random), index = random_lanes(word, lanes, random);
    const auto got = loop::eval(*machine::find_machine("avx512")->meaning(name), {table, index});
    for (int i = 0; i < lanes; ++i) EXPECT_EQ(got[i].integer, table[index[i].integer % lanes].integer);
  }
}

TEST(MachineRows, EightBitsOfEightBytes) {
  std::mt19937 random(3);
  const auto m = machine::find_machine("avx512-vbmi");
  const auto at = random_lanes(Scalar::u8, 64, random), bytes = random_lanes(Scalar::u8, 64, random);
  const auto got = loop::eval(*m->meaning("bits8.u8x64"), {at, bytes});
  const auto found = loop::eval(*m->meaning("lookup64.u8x64"), {bytes, at});
  for (int i = 0; i < 64; ++i) {
    int64_t want = 0;
    for (int bit = 0; bit < 8; ++bit) {
      const int64_t from = (at[i].integer + bit) % 64;
      want |= (bytes[i / 8 * 8 + from / 8].integer >> (from % 8) & 1) << bit;
    }
    EXPECT_EQ(got[i].integer, want);
    EXPECT_EQ(found[i].integer, bytes[at[i].integer % 64].integer);
  }
  const auto upper = random_lanes(Scalar::u8, 64, random);
  const auto wide = loop::eval(*m->meaning("lookup128.u8x64"), {bytes, at, upper});
  for (int i = 0; i < 64; ++i) {
    const int64_t entry = at[i].integer % 128;
    EXPECT_EQ(wide[i].integer, (entry < 64 ? bytes[entry] : upper[entry - 64]).integer);
  }
}

TEST(Machines, AreFoundByName) {
  EXPECT_EQ(machine::find_machine("avx512-vnni")->vector_bits, 512);
  EXPECT_TRUE(machine::runs_here(*machine::find_machine("native")));
  try {
    machine::find_machine("pentium");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("neon-dotprod"), std::string::npos);
  }
}

}  // namespace
}  // namespace lumen
