// Meanings of instruction families as loop IR text: what a row computes, written once for all widths.
// Proved by tests/kernel/machine/machine_rows_test.cpp, which compares each row with its meaning.
#include "kernel/machine/meaning.h"

#include "kernel/machine/machine.h"

namespace lumen::machine {

using loop::VType;

std::string dot_meaning(const std::string& name, const DotRow& d) {
  const VType sums{d.acc, d.lanes};
  const std::string type = loop::print(sums);
  Meaning t({sums, {d.a, d.lanes * d.k}, {d.b, d.lanes * d.k}});
  int sum = 0;
  for (int j = 0; j < d.k; ++j) {
    const int x = t.widened(1, d.a, j, d.k, d.lanes, d.acc);
    const int y = t.widened(2, d.b, j, d.k, d.lanes, d.acc);
    sum = t.line("add {} %{}, %{}", type, sum, t.line("mul {} %{}, %{}", type, x, y));
  }
  return t.function(name, sums, sum);
}

// Each product of a pair is fused into the sum with one rounding, the odd one first. Subnormal operands and sums are
// flushed to zero of the same sign; infinities and NaN follow IEEE.
std::string float_dot_meaning(const std::string& name, int lanes) {
  const VType sums{Scalar::f32, lanes}, factor{Scalar::bf16, 2 * lanes};
  Meaning t({sums, factor, factor});
  int sum = t.normal(0, lanes);
  for (int j = 1; j >= 0; --j) {
    const int x = t.normal(t.widened(1, Scalar::bf16, j, 2, lanes, Scalar::f32), lanes);
    const int y = t.normal(t.widened(2, Scalar::bf16, j, 2, lanes, Scalar::f32), lanes);
    sum = t.normal(t.line("fma f32x{} %{}, %{}, %{}", lanes, x, y, sum), lanes);
  }
  return t.function(name, sums, sum);
}

namespace {

// x + y, rounded to odd: if rounding to nearest was inexact and gave an even number, the neighbour on the side of the
// rounding error. The error is exact (Knuth's two-sum).
int odd_sum(Meaning& t, int x, int y, int lanes) {
  const auto two = [&](const char* op, int a, int b) { return t.line("{} f32x{} %{}, %{}", op, lanes, a, b); };
  const auto bits = [&](const char* op, int a, int b) { return t.line("{} u32x{} %{}, %{}", op, lanes, a, b); };
  const auto word = [&](uint32_t w) { return t.line("constant u32x{} {}", lanes, w); };
  const auto holds = [&](const char* op, int a, int b) { return t.line("{} boolx{} %{}, %{}", op, lanes, a, b); };
  const int sum = two("add", x, y), back = two("sub", sum, x);
  const int lost = two("add", two("sub", x, two("sub", sum, back)), two("sub", y, back));
  const int zero = t.line("constant f32x{} 0", lanes), pattern = t.line("bitcast u32x{} %{}", lanes, sum);
  const int even = holds("eq", bits("and", pattern, word(1)), word(0));
  const int finite = holds("ne", bits("and", pattern, word(0x7f800000)), word(0x7f800000));
  const int larger = holds("eq", holds("lt", zero, lost), holds("lt", zero, sum));
  const int step = t.line("select u32x{} %{}, %{}, %{}", lanes, larger, word(1), word(0xffffffff));
  const int moves = holds("and", holds("and", even, finite), holds("ne", lost, zero));
  const int moved = t.line("select u32x{} %{}, %{}, %{}", lanes, moves, bits("add", pattern, step), pattern);
  return t.normal(t.line("bitcast f32x{} %{}", lanes, moved), lanes);
}

}  // namespace

std::string odd_dot_meaning(const std::string& name, int lanes) {
  const VType sums{Scalar::f32, lanes}, factor{Scalar::bf16, 2 * lanes};
  Meaning t({sums, factor, factor});
  int product[2] = {};
  for (int j = 0; j < 2; ++j) {
    const int x = t.normal(t.widened(1, Scalar::bf16, j, 2, lanes, Scalar::f32), lanes);
    const int y = t.normal(t.widened(2, Scalar::bf16, j, 2, lanes, Scalar::f32), lanes);
    product[j] = t.normal(t.line("mul f32x{} %{}, %{}", lanes, x, y), lanes);  // exact
  }
  const int both = odd_sum(t, product[0], product[1], lanes);
  return t.function(name, sums, odd_sum(t, t.normal(0, lanes), both, lanes));
}

std::string outer_meaning(const TileRow& d) {
  const int lanes = d.rows * d.columns;
  const VType sums{d.acc, lanes};
  Meaning t({sums, {d.a, d.rows * d.k}, {d.b, d.columns * d.k}});
  const auto factor = [&](int value, Scalar from, Scalar to, auto lane) {
    std::vector<int> mask;
    for (int m = 0; m < d.rows; ++m)
      for (int n = 0; n < d.columns; ++n) mask.push_back(lane(m, n));
    return t.line("cast {} %{}", lanes_of(to, lanes), t.shuffled(lanes_of(from, lanes), value, mask));
  };
  const auto left = [&](int j, Scalar s) { return factor(1, d.a, s, [&](int m, int) { return m * d.k + j; }); };
  const auto right = [&](int j, Scalar s) { return factor(2, d.b, s, [&](int, int n) { return n * d.k + j; }); };
  const auto two = [&](const char* op, Scalar s, int x, int y) {
    return t.line("{} {} %{}, %{}", op, lanes_of(s, lanes), x, y);
  };
  int sum = 0;
  if (d.a == Scalar::f32) {
    sum = t.line("fma {} %{}, %{}, %{}", lanes_of(d.acc, lanes), left(0, d.acc), right(0, d.acc), sum);
  } else if (d.a == Scalar::f16) {  // f64 holds the products exactly, and their sum as precisely as f32 needs
    int pair[2] = {};
    for (int j = 0; j < 2; ++j) pair[j] = two("mul", Scalar::f64, left(j, Scalar::f64), right(j, Scalar::f64));
    const int both = two("add", Scalar::f64, pair[0], pair[1]);
    sum = two("add", d.acc, sum, t.line("cast {} %{}", lanes_of(d.acc, lanes), both));
  } else if (d.a == Scalar::bf16) {
    int pair[2] = {};
    for (int j = 0; j < 2; ++j) {
      const int x = t.normal(left(j, d.acc), lanes), y = t.normal(right(j, d.acc), lanes);
      pair[j] = t.normal(two("mul", d.acc, x, y), lanes);  // exact
    }
    sum = odd_sum(t, t.normal(sum, lanes), odd_sum(t, pair[0], pair[1], lanes), lanes);
  } else {
    for (int j = 0; j < d.k; ++j) sum = two("add", d.acc, sum, two("mul", d.acc, left(j, d.acc), right(j, d.acc)));
  }
  return t.function(d.row, sums, sum);
}

std::string square_meaning(const DotRow& d) {
  constexpr int kSums = 4;  // in 128 bits
  const VType sums{d.acc, d.lanes};
  const int numbers = d.lanes / 2 * d.k;
  Meaning t({sums, {d.a, numbers}, {d.b, numbers}});
  const auto factor = [&](int value, Scalar from, int k, auto row_of) {
    std::vector<int> mask;
    for (int lane = 0; lane < d.lanes; ++lane) mask.push_back(row_of(lane) * d.k + k);
    return t.line("cast {} %{}", loop::print(sums), t.shuffled(lanes_of(from, d.lanes), value, mask));
  };
  const auto product = [&](int k) {
    int x = factor(1, d.a, k, [](int lane) { return lane / 2; });
    int y = factor(2, d.b, k, [](int lane) { return lane / kSums * 2 + lane % 2; });
    if (!is_float(d.acc)) return t.line("mul {} %{}, %{}", loop::print(sums), x, y);
    x = t.normal(x, d.lanes);
    y = t.normal(y, d.lanes);
    return t.normal(t.line("mul {} %{}, %{}", loop::print(sums), x, y), d.lanes);  // exact
  };
  int sum = 0;
  for (int k = 0; k < d.k; k += 2) {
    const int even = product(k), odd = product(k + 1);
    if (is_float(d.acc)) {
      sum = odd_sum(t, k == 0 ? t.normal(sum, d.lanes) : sum, odd_sum(t, even, odd, d.lanes), d.lanes);
    } else {
      for (const int one : {even, odd}) sum = t.line("add {} %{}, %{}", loop::print(sums), sum, one);
    }
  }
  return t.function(d.row, sums, sum);
}

std::string round_pair_meaning(const std::string& name, int lanes) {
  Meaning t({{Scalar::f32, lanes}, {Scalar::f32, lanes}});
  const int above = t.line("cast bf16x{} %{}", lanes, t.normal(0, lanes));
  const int below = t.line("cast bf16x{} %{}", lanes, t.normal(1, lanes));
  const int both =
      t.line("shuffle bf16x{} %{}, %{} [{}]", 2 * lanes, below, above, fmt::join(lanes_from(0, 1, 2 * lanes), ", "));
  return t.function(name, {Scalar::bf16, 2 * lanes}, both);
}

// Integers: all products added, wrapping. bf16: the even and the odd products of a row are summed separately from zero,
// with one rounding each, then added, then added to acc; subnormals are flushed to zero, as above.
std::string tile_meaning(const TileRow& d) {
  const int word = 4 / scalar_bytes(d.a), lanes = d.rows * d.columns;
  const VType sum_type{d.acc, lanes};
  const std::string acc = loop::print(sum_type);
  Meaning t({sum_type, {d.a, d.rows * d.k}, {d.b, d.columns * d.k}});
  const auto spread = [&](int value, Scalar from, auto lane) {
    std::vector<int> mask;
    for (int m = 0; m < d.rows; ++m)
      for (int n = 0; n < d.columns; ++n) mask.push_back(lane(m, n));
    return t.line("cast {} %{}", acc, t.shuffled(lanes_of(from, lanes), value, mask));
  };
  const bool floats = is_float(d.acc);
  std::vector<int> sums(word, floats ? t.line("constant {} 0", acc) : 0);
  int total = 0;
  for (int quad = 0; quad < d.k / word; ++quad)
    for (int j = 0; j < word; ++j) {
      int x = spread(1, d.a, [&](int m, int) { return m * d.k + quad * word + j; });
      int y = spread(2, d.b, [&](int, int n) { return (quad * d.columns + n) * word + j; });
      if (floats) {
        x = t.normal(x, lanes);
        y = t.normal(y, lanes);
        sums[j] = t.normal(t.line("fma {} %{}, %{}, %{}", acc, x, y, sums[j]), lanes);
      } else {
        total = t.line("add {} %{}, %{}", acc, total, t.line("mul {} %{}, %{}", acc, x, y));
      }
    }
  if (floats) {
    const int sum = t.normal(t.line("add {} %{}, %{}", acc, sums[0], sums[1]), lanes);
    total = t.normal(t.line("add {} %{}, %{}", acc, t.normal(0, lanes), sum), lanes);
  }
  return t.function(d.row, sum_type, total);
}

namespace {

// Sums of products of adjacent lanes, in i32.
int sum_of_pairs(Meaning& t, Scalar a, Scalar b, int lanes) {
  int products[2];
  for (int j = 0; j < 2; ++j) {
    const int x = t.widened(0, a, j, 2, lanes, Scalar::i32), y = t.widened(1, b, j, 2, lanes, Scalar::i32);
    products[j] = t.line("mul i32x{} %{}, %{}", lanes, x, y);
  }
  return t.line("add i32x{} %{}, %{}", lanes, products[0], products[1]);
}

}  // namespace

std::string product_pairs_meaning(const std::string& name, int lanes) {
  Meaning t({{Scalar::i16, 2 * lanes}, {Scalar::i16, 2 * lanes}});
  return t.function(name, {Scalar::i32, lanes}, sum_of_pairs(t, Scalar::i16, Scalar::i16, lanes));
}

std::string saturating_pairs_meaning(const std::string& name, int lanes) {
  Meaning t({{Scalar::u8, 2 * lanes}, {Scalar::i8, 2 * lanes}});
  int sum = sum_of_pairs(t, Scalar::u8, Scalar::i8, lanes);
  const int low = t.line("constant i32x{} -32768", lanes), high = t.line("constant i32x{} 32767", lanes);
  sum = t.line("max i32x{} %{}, %{}", lanes, sum, low);
  sum = t.line("min i32x{} %{}, %{}", lanes, sum, high);
  return t.function(name, {Scalar::i16, lanes}, t.line("cast i16x{} %{}", lanes, sum));
}

std::string widening_product_meaning(const std::string& name, int lanes) {
  Meaning t({{Scalar::i8, lanes}, {Scalar::i8, lanes}});
  const int x = t.line("cast i16x{} %0", lanes), y = t.line("cast i16x{} %1", lanes);
  return t.function(name, {Scalar::i16, lanes}, t.line("mul i16x{} %{}, %{}", lanes, x, y));
}

std::string sum_pairs_meaning(const std::string& name, int lanes) {
  Meaning t({{Scalar::i16, 2 * lanes}});
  const int even = t.widened(0, Scalar::i16, 0, 2, lanes, Scalar::i32);
  const int odd = t.widened(0, Scalar::i16, 1, 2, lanes, Scalar::i32);
  return t.function(name, {Scalar::i32, lanes}, t.line("add i32x{} %{}, %{}", lanes, even, odd));
}

// Each group of 16 lanes looks up in the 16 table bytes of the same lanes. An index outside 0..15 yields zero; with
// high_bit_only, only a set bit 7 yields zero, else the entry of the low four bits.
std::string lookup_meaning(const std::string& name, int lanes, bool high_bit_only) {
  const VType bytes{Scalar::u8, lanes};
  Meaning t({bytes, bytes});
  const int fifteen = t.line("constant u8x{} 15", lanes), zero = t.line("constant u8x{} 0", lanes);
  const int index = t.line("and u8x{} %1, %{}", lanes, fifteen);
  const int found = t.looked_up(bytes, 0, index, 0, 16, zero, [&](int entry) {
    std::vector<int> beside;
    for (int lane = 0; lane < lanes; ++lane) beside.push_back(lane / 16 * 16 + entry);
    return beside;
  });
  const int limit = t.line("constant u8x{} {}", lanes, high_bit_only ? 128 : 16);
  const int inside = t.line("lt boolx{} %1, %{}", lanes, limit);
  return t.function(name, bytes, t.line("select u8x{} %{}, %{}, %{}", lanes, inside, found, zero));
}

// One table of as many bytes as there are lanes; an index outside it yields zero.
std::string whole_lookup_meaning(const std::string& name, int lanes) {
  const VType bytes{Scalar::u8, lanes};
  Meaning t({bytes, bytes});
  const int zero = t.line("constant u8x{} 0", lanes);
  const auto everywhere = [&](int entry) { return lanes_from(entry, 0, lanes); };
  return t.function(name, bytes, t.looked_up(bytes, 0, 1, 0, lanes, zero, everywhere));
}

// Each lane gets the entry at its index modulo the number of entries. The table is operand 0, or for bytes operands 0
// and 2.
std::string word_lookup_meaning(const std::string& name, int lanes, Scalar word, bool two_registers) {
  const VType type{word, lanes};
  Meaning t(two_registers ? std::vector<VType>{type, type, type} : std::vector<VType>{type, type});
  const int limit = t.line("constant {} {}", loop::print(type), (two_registers ? 2 : 1) * lanes - 1);
  const int index = t.line("and {} %1, %{}", loop::print(type), limit);
  const auto everywhere = [&](int entry) { return lanes_from(entry % lanes, 0, lanes); };
  int found = t.shuffled(loop::print(type), 0, everywhere(0));
  found = t.looked_up(type, 0, index, 1, lanes - 1, found, everywhere);
  if (two_registers) found = t.looked_up(type, 2, index, lanes, lanes, found, everywhere);
  return t.function(name, type, found);
}

// Selects bytes of %0 (entries 0 to 3) and %1 (4 to 7) by the four lower nibbles of %2; if a nibble's high bit is set,
// the byte's sign bit is replicated eight times.
std::string permute_meaning(const std::string& name) {
  constexpr VType kWord{Scalar::u32, 1};
  Meaning t({kWord, kWord, kWord});
  const auto u = [&](int64_t x) { return t.line("constant u32 {}", x); };
  int all = u(0);
  for (int lane = 0; lane < 4; ++lane) {
    const int nibble = t.line("shr u32 %2, %{}", u(int64_t{lane} * 4));
    const int entry = t.line("and u32 %{}, %{}", nibble, u(7));
    const int word = t.line("select u32 %{}, %0, %1", t.line("lt bool %{}, %{}", entry, u(4)));
    const int up = t.line("mul u32 %{}, %{}", t.line("and u32 %{}, %{}", entry, u(3)), u(8));
    const int byte = t.line("and u32 %{}, %{}", t.line("shr u32 %{}, %{}", word, up), u(255));
    const int sign = t.line("select u32 %{}, %{}, %{}", t.line("lt bool %{}, %{}", byte, u(128)), u(0), u(255));
    const int spreads = t.line("ne bool %{}, %{}", t.line("and u32 %{}, %{}", nibble, u(8)), u(0));
    const int chosen = t.line("select u32 %{}, %{}, %{}", spreads, sign, byte);
    all = t.line("or u32 %{}, %{}", all, t.line("shl u32 %{}, %{}", chosen, u(int64_t{lane} * 8)));
  }
  return t.function(name, kWord, all);
}

// The same by the bytes of %2: entries 8 to 11 replicate the high bit of byte 1, 3, 5 or 7, 12 is zero, and larger ones
// are all ones.
std::string byte_permute_meaning(const std::string& name) {
  constexpr VType kWord{Scalar::u32, 1};
  Meaning t({kWord, kWord, kWord});
  const auto u = [&](int64_t x) { return t.line("constant u32 {}", x); };
  const auto below = [&](int x, int64_t limit) { return t.line("lt bool %{}, %{}", x, u(limit)); };
  const auto masked = [&](int x, int64_t mask) { return t.line("and u32 %{}, %{}", x, u(mask)); };
  int all = u(0);
  for (int lane = 0; lane < 4; ++lane) {
    const int entry = masked(t.line("shr u32 %2, %{}", u(int64_t{lane} * 8)), 255);
    const auto byte = [&](int number) {
      const int word = t.line("select u32 %{}, %0, %1", below(number, 4));
      const int up = t.line("mul u32 %{}, %{}", masked(number, 3), u(8));
      return masked(t.line("shr u32 %{}, %{}", word, up), 255);
    };
    const int odd = t.line("or u32 %{}, %{}", t.line("mul u32 %{}, %{}", masked(entry, 3), u(2)), u(1));
    const int sign = t.line("select u32 %{}, %{}, %{}", below(byte(odd), 128), u(0), u(255));
    int chosen = t.line("select u32 %{}, %{}, %{}", below(entry, 13), u(0), u(255));
    chosen = t.line("select u32 %{}, %{}, %{}", below(entry, 12), sign, chosen);
    chosen = t.line("select u32 %{}, %{}, %{}", below(entry, 8), byte(masked(entry, 7)), chosen);
    all = t.line("or u32 %{}, %{}", all, t.line("shl u32 %{}, %{}", chosen, u(int64_t{lane} * 8)));
  }
  return t.function(name, kWord, all);
}

// Each lane gets eight bits from bit %0 (modulo 64, wrapping) of the eight bytes of %1 that contain it.
std::string bits8_meaning(const std::string& name, int lanes) {
  const VType bytes{Scalar::u8, lanes};
  const std::string type = loop::print(bytes);
  Meaning t({bytes, bytes});
  int all = t.line("constant {} 0", type);
  const int limit = t.line("constant {} 63", type), whole = t.line("constant {} 64", type);
  for (int byte = 0; byte < 8; ++byte) {
    std::vector<int> beside;
    for (int lane = 0; lane < lanes; ++lane) beside.push_back(lane / 8 * 8 + byte);
    const int x = t.shuffled(type, 1, beside);
    const int apart = t.line("sub {} %{}, %0", type, t.line("constant {} {}", type, 8 * byte));
    const int up = t.line("and {} %{}, %{}", type, apart, limit);
    const int down = t.line("sub {} %{}, %{}", type, whole, up);
    const int raised = t.line("shl {} %{}, %{}", type, x, up), lowered = t.line("shr {} %{}, %{}", type, x, down);
    all = t.line("or {} %{}, %{}", type, t.line("or {} %{}, %{}", type, raised, lowered), all);
  }
  return t.function(name, bytes, all);
}

}  // namespace lumen::machine
