// Meanings of instruction families as loop IR text: what a row computes, said once for every width.
// Proved by tests/kernel/machine/machine_rows_test.cpp, which runs each row beside its meaning.
#include <fmt/ranges.h>

#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

// first, first + step, ... : `count` lanes.
std::string lanes_from(int first, int step, int count) {
  std::vector<int> lanes;
  for (int i = 0; i < count; ++i) lanes.push_back(first + step * i);
  return fmt::format("[{}]", fmt::join(lanes, ", "));
}

// "i32x4"; of one lane "i32".
std::string lanes_of(const std::string& scalar, int lanes) {
  return lanes == 1 ? scalar : fmt::format("{}x{}", scalar, lanes);
}

// Lines of a function, numbering values as they come.
class Text {
 public:
  explicit Text(int params) : next_(params) {}

  template <typename... Args>
  int line(fmt::format_string<Args...> text, Args&&... args) {
    body_ += fmt::format("  %{} = {}\n", next_, fmt::format(text, std::forward<Args>(args)...));
    return next_++;
  }
  // Lanes first, first + step, ... of a value, widened.
  int widened(int value, const std::string& from, int first, int step, int count, const std::string& to) {
    const int lanes = line("shuffle {} %{} {}", lanes_of(from, count), value, lanes_from(first, step, count));
    return line("cast {} %{}", lanes_of(to, count), lanes);
  }
  // f32 lanes; those that are not normal become zero of their sign.
  int normal(int value, int lanes) {
    const int bits = line("bitcast u32x{} %{}", lanes, value);
    const int exponent = line("and u32x{} %{}, %{}", lanes, bits, line("constant u32x{} 2139095040", lanes));
    const int sign = line("and u32x{} %{}, %{}", lanes, bits, line("constant u32x{} 2147483648", lanes));
    const int none = line("eq boolx{} %{}, %{}", lanes, exponent, line("constant u32x{} 0", lanes));
    return line("bitcast f32x{} %{}", lanes, line("select u32x{} %{}, %{}, %{}", lanes, none, sign, bits));
  }
  std::string function(const std::string& name, const std::string& params, const std::string& result, int value) const {
    return fmt::format("func {}({}) -> {} {{\n{}  return %{}\n}}\n", name, params, result, body_, value);
  }

 private:
  int next_;
  std::string body_;
};

}  // namespace

std::string dot_meaning(const std::string& name, const DotRow& d) {
  const std::string a(scalar_name(d.a)), b(scalar_name(d.b)), acc(scalar_name(d.acc)), sums = lanes_of(acc, d.lanes);
  Text t(3);
  int sum = 0;
  for (int j = 0; j < d.k; ++j) {
    const int x = t.widened(1, a, j, d.k, d.lanes, acc);
    const int y = t.widened(2, b, j, d.k, d.lanes, acc);
    const int product = t.line("mul {} %{}, %{}", sums, x, y);
    sum = t.line("add {} %{}, %{}", sums, sum, product);
  }
  const int n = d.lanes * d.k;
  return t.function(name, fmt::format("%0: {}, %1: {}x{}, %2: {}x{}", sums, a, n, b, n), sums, sum);
}

// Every product of a pair joins the sum in one rounding, the odd one first. Operands that are not normal count as zero
// of their sign, and so does a sum that is not normal; numbers that are not finite follow IEEE.
std::string float_dot_meaning(const std::string& name, int lanes) {
  Text t(3);
  int sum = t.normal(0, lanes);
  for (int j = 1; j >= 0; --j) {
    const int x = t.normal(t.widened(1, "bf16", j, 2, lanes, "f32"), lanes);
    const int y = t.normal(t.widened(2, "bf16", j, 2, lanes, "f32"), lanes);
    sum = t.normal(t.line("fma f32x{} %{}, %{}, %{}", lanes, x, y, sum), lanes);
  }
  return t.function(name, fmt::format("%0: f32x{}, %1: bf16x{}, %2: bf16x{}", lanes, 2 * lanes, 2 * lanes),
                    fmt::format("f32x{}", lanes), sum);
}

std::string round_pair_meaning(const std::string& name, int lanes) {
  Text t(2);
  const int above = t.line("cast bf16x{} %{}", lanes, t.normal(0, lanes));
  const int below = t.line("cast bf16x{} %{}", lanes, t.normal(1, lanes));
  const int both = t.line("shuffle bf16x{} %{}, %{} {}", 2 * lanes, below, above, lanes_from(0, 1, 2 * lanes));
  return t.function(name, fmt::format("%0: f32x{}, %1: f32x{}", lanes, lanes), fmt::format("bf16x{}", 2 * lanes), both);
}

// Integers: all products added, wrapping. 8-bit floats: the even and the odd products of a row are summed apart from
// zero, one rounding each, then added, then added to acc; what is not normal counts as zero, as above.
std::string tile_meaning(const TileRow& d) {
  const std::string a(scalar_name(d.a)), b(scalar_name(d.b)), acc(scalar_name(d.acc));
  const int word = 4 / scalar_bytes(d.a), lanes = d.rows * d.columns;
  Text t(3);
  auto spread = [&](int value, const std::string& from, auto lane) {
    std::vector<int> mask;
    for (int m = 0; m < d.rows; ++m)
      for (int n = 0; n < d.columns; ++n) mask.push_back(lane(m, n));
    const int shuffled = t.line("shuffle {}x{} %{} [{}]", from, lanes, value, fmt::join(mask, ", "));
    return t.line("cast {}x{} %{}", acc, lanes, shuffled);
  };
  const bool floats = is_float(d.acc);
  std::vector<int> sums(word, 0);
  if (floats) sums.assign(sums.size(), t.line("constant {}x{} 0", acc, lanes));
  int total = 0;
  for (int quad = 0; quad < d.k / word; ++quad)
    for (int j = 0; j < word; ++j) {
      int x = spread(1, a, [&](int m, int) { return m * d.k + quad * word + j; });
      int y = spread(2, b, [&](int, int n) { return (quad * d.columns + n) * word + j; });
      if (floats) {
        int& sum = sums[j];
        x = t.normal(x, lanes);
        y = t.normal(y, lanes);
        sum = t.normal(t.line("fma f32x{} %{}, %{}, %{}", lanes, x, y, sum), lanes);
      } else {
        const int product = t.line("mul {}x{} %{}, %{}", acc, lanes, x, y);
        total = t.line("add {}x{} %{}, %{}", acc, lanes, total, product);
      }
    }
  if (floats) {
    const int sum = t.normal(t.line("add f32x{} %{}, %{}", lanes, sums[0], sums[1]), lanes);
    const int before = t.normal(0, lanes);
    total = t.normal(t.line("add f32x{} %{}, %{}", lanes, before, sum), lanes);
  }
  return t.function(d.row,
                    fmt::format("%0: {}x{}, %1: {}x{}, %2: {}x{}", acc, lanes, a, d.rows * d.k, b, d.columns * d.k),
                    fmt::format("{}x{}", acc, lanes), total);
}

std::string product_pairs_meaning(const std::string& name, int lanes) {
  Text t(2);
  int products[2];
  for (int j = 0; j < 2; ++j) {
    const int x = t.widened(0, "i16", j, 2, lanes, "i32"), y = t.widened(1, "i16", j, 2, lanes, "i32");
    products[j] = t.line("mul i32x{} %{}, %{}", lanes, x, y);
  }
  const int sum = t.line("add i32x{} %{}, %{}", lanes, products[0], products[1]);
  return t.function(name, fmt::format("%0: i16x{}, %1: i16x{}", 2 * lanes, 2 * lanes), fmt::format("i32x{}", lanes),
                    sum);
}

std::string saturating_pairs_meaning(const std::string& name, int lanes) {
  Text t(2);
  int products[2];
  for (int j = 0; j < 2; ++j) {
    const int x = t.widened(0, "u8", j, 2, lanes, "i32"), y = t.widened(1, "i8", j, 2, lanes, "i32");
    products[j] = t.line("mul i32x{} %{}, %{}", lanes, x, y);
  }
  int sum = t.line("add i32x{} %{}, %{}", lanes, products[0], products[1]);
  const int low = t.line("constant i32x{} -32768", lanes), high = t.line("constant i32x{} 32767", lanes);
  sum = t.line("max i32x{} %{}, %{}", lanes, sum, low);
  sum = t.line("min i32x{} %{}, %{}", lanes, sum, high);
  sum = t.line("cast i16x{} %{}", lanes, sum);
  return t.function(name, fmt::format("%0: u8x{}, %1: i8x{}", 2 * lanes, 2 * lanes), fmt::format("i16x{}", lanes), sum);
}

std::string widening_product_meaning(const std::string& name, int lanes) {
  Text t(2);
  const int x = t.line("cast i16x{} %0", lanes), y = t.line("cast i16x{} %1", lanes);
  const int product = t.line("mul i16x{} %{}, %{}", lanes, x, y);
  return t.function(name, fmt::format("%0: i8x{}, %1: i8x{}", lanes, lanes), fmt::format("i16x{}", lanes), product);
}

std::string sum_pairs_meaning(const std::string& name, int lanes) {
  Text t(1);
  const int even = t.widened(0, "i16", 0, 2, lanes, "i32"), odd = t.widened(0, "i16", 1, 2, lanes, "i32");
  const int sum = t.line("add i32x{} %{}, %{}", lanes, even, odd);
  return t.function(name, fmt::format("%0: i16x{}", 2 * lanes), fmt::format("i32x{}", lanes), sum);
}

// Each sixteen lanes look up in the sixteen table bytes beside them. An index outside 0..15 yields zero (every such
// index), or with high_bit_only: zero when bit 7 is set, else the entry of the low four bits.
std::string lookup_meaning(const std::string& name, int lanes, bool high_bit_only) {
  Text t(2);
  const int fifteen = t.line("constant u8x{} 15", lanes), zero = t.line("constant u8x{} 0", lanes);
  const int index = t.line("and u8x{} %1, %{}", lanes, fifteen);
  int found = zero;
  for (int entry = 0; entry < 16; ++entry) {
    std::vector<int> beside;
    for (int lane = 0; lane < lanes; ++lane) beside.push_back(lane / 16 * 16 + entry);
    const int value = t.line("shuffle u8x{} %0 [{}]", lanes, fmt::join(beside, ", "));
    const int number = t.line("constant u8x{} {}", lanes, entry);
    const int hit = t.line("eq boolx{} %{}, %{}", lanes, index, number);
    found = t.line("select u8x{} %{}, %{}, %{}", lanes, hit, value, found);
  }
  const int limit = high_bit_only ? t.line("constant u8x{} 128", lanes) : t.line("constant u8x{} 16", lanes);
  const int inside = t.line("lt boolx{} %1, %{}", lanes, limit);
  found = t.line("select u8x{} %{}, %{}, %{}", lanes, inside, found, zero);
  return t.function(name, fmt::format("%0: u8x{}, %1: u8x{}", lanes, lanes), fmt::format("u8x{}", lanes), found);
}

// One table of as many bytes as there are lanes; an index outside it yields zero.
std::string whole_lookup_meaning(const std::string& name, int lanes) {
  Text t(2);
  int found = t.line("constant u8x{} 0", lanes);
  for (int entry = 0; entry < lanes; ++entry) {
    const int value = t.line("shuffle u8x{} %0 [{}]", lanes, fmt::join(std::vector<int>(lanes, entry), ", "));
    const int number = t.line("constant u8x{} {}", lanes, entry);
    const int hit = t.line("eq boolx{} %1, %{}", lanes, number);
    found = t.line("select u8x{} %{}, %{}, %{}", lanes, hit, value, found);
  }
  return t.function(name, fmt::format("%0: u8x{}, %1: u8x{}", lanes, lanes), fmt::format("u8x{}", lanes), found);
}

// Each lane the entry of the low six bits of its index.
std::string lookup64_meaning(const std::string& name) {
  Text t(2);
  const int limit = t.line("constant u8x64 63");
  const int index = t.line("and u8x64 %1, %{}", limit);
  int found = t.line("constant u8x64 0");
  for (int entry = 0; entry < 64; ++entry) {
    const int value = t.line("shuffle u8x64 %0 {}", lanes_from(entry, 0, 64));
    const int number = t.line("constant u8x64 {}", entry);
    const int hit = t.line("eq boolx64 %{}, %{}", index, number);
    found = t.line("select u8x64 %{}, %{}, %{}", hit, value, found);
  }
  return t.function(name, "%0: u8x64, %1: u8x64", "u8x64", found);
}

// Each lane the entry of the low seven bits of its index, out of two registers.
std::string lookup128_meaning(const std::string& name) {
  Text t(3);
  const int limit = t.line("constant u8x64 127");
  const int index = t.line("and u8x64 %1, %{}", limit);
  int found = t.line("constant u8x64 0");
  for (int entry = 0; entry < 128; ++entry) {
    const int value = t.line("shuffle u8x64 %{} {}", entry < 64 ? 0 : 2, lanes_from(entry % 64, 0, 64));
    const int number = t.line("constant u8x64 {}", entry);
    const int hit = t.line("eq boolx64 %{}, %{}", index, number);
    found = t.line("select u8x64 %{}, %{}, %{}", hit, value, found);
  }
  return t.function(name, "%0: u8x64, %1: u8x64, %2: u8x64", "u8x64", found);
}

// Each lane the entry of its index modulo the number of lanes.
std::string word_lookup_meaning(const std::string& name, int lanes, const std::string& word) {
  Text t(2);
  const std::string type = fmt::format("{}x{}", word, lanes);
  const int limit = t.line("constant {} {}", type, lanes - 1);
  const int index = t.line("and {} %1, %{}", type, limit);
  int found = t.line("shuffle {} %0 {}", type, lanes_from(0, 0, lanes));
  for (int entry = 1; entry < lanes; ++entry) {
    const int value = t.line("shuffle {} %0 {}", type, lanes_from(entry, 0, lanes));
    const int number = t.line("constant {} {}", type, entry);
    const int hit = t.line("eq boolx{} %{}, %{}", lanes, index, number);
    found = t.line("select {} %{}, %{}, %{}", type, hit, value, found);
  }
  return t.function(name, fmt::format("%0: {}, %1: {}", type, type), type, found);
}

// Bytes of %0 (entries 0 to 3) and %1 (4 to 7) that the four lower nibbles of %2 choose; where a nibble's highest bit
// is set, eight times the byte's.
std::string permute_meaning(const std::string& name) {
  Text t(3);
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
  return t.function(name, "%0: u32, %1: u32, %2: u32", "u32", all);
}

// Eight bits from bit %0 (modulo 64, going round) of the eight bytes of %1 a lane lies in.
std::string bits8_meaning(const std::string& name, int lanes) {
  Text t(2);
  int all = t.line("constant u8x{} 0", lanes);
  const int limit = t.line("constant u8x{} 63", lanes), whole = t.line("constant u8x{} 64", lanes);
  for (int byte = 0; byte < 8; ++byte) {
    std::vector<int> beside;
    for (int lane = 0; lane < lanes; ++lane) beside.push_back(lane / 8 * 8 + byte);
    const int x = t.line("shuffle u8x{} %1 [{}]", lanes, fmt::join(beside, ", "));
    const int at = t.line("constant u8x{} {}", lanes, 8 * byte);
    const int apart = t.line("sub u8x{} %{}, %0", lanes, at);
    const int up = t.line("and u8x{} %{}, %{}", lanes, apart, limit);
    const int down = t.line("sub u8x{} %{}, %{}", lanes, whole, up);
    const int raised = t.line("shl u8x{} %{}, %{}", lanes, x, up),
              lowered = t.line("shr u8x{} %{}, %{}", lanes, x, down);
    all = t.line("or u8x{} %{}, %{}", lanes, t.line("or u8x{} %{}, %{}", lanes, raised, lowered), all);
  }
  return t.function(name, fmt::format("%0: u8x{}, %1: u8x{}", lanes, lanes), fmt::format("u8x{}", lanes), all);
}

}  // namespace lumen::machine
