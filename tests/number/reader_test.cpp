// Needs none. Reading formats: what the language can say, and how mistakes are told.
#include <gtest/gtest.h>

#include <chrono>

#include "formats_of_tests.h"
#include "number/codec/codec.h"

namespace lumen {
namespace {

std::string with(const std::string& fields, const std::string& routines, const std::string& attributes = "block 4") {
  return "format t : " + attributes + " {\n" + fields + "\n" + routines + "\n}\n";
}
std::string decoding(const std::string& expression) {
  return with("s : f32\nq : u8[4]", "decode(i) = " + expression);
}

TEST(Reader, FieldsFollowEachOtherAtBytes) {
  const FormatRef f =
      format_of(with("a : u3[4]\nb : f16\nrow r : f32\nrow k : i8\ntensor t : f32\nc : u1", "decode(i) = a[i] * b"));
  EXPECT_EQ(f->fields[1].layout.pieces[0].base, 16);
  EXPECT_EQ(f->block_bytes, 5);
  EXPECT_EQ(f->row_bytes, 5);
  EXPECT_EQ(f->tensor_bytes, 4);
  EXPECT_EQ(f->fields[3].layout.pieces[0].base, 32);
}

TEST(Reader, ParametersAliasesAndConstantChoices) {
  const FormatLibrary library = library_of(R"(
format grouped(bits, group = 8, signed = 0) : block group, doc "base" {
  q : u<bits>[group]
  decode(i) {
    if signed == 1 { return q[i] - 2 ** (bits - 1) }
    return q[i] / 2 ** bits * 1.0
  }
}
format small : gguf 99, doc "three bits" = grouped(3, signed = 1)
format large = grouped(bits = 6, group = 16)
)");
  EXPECT_EQ(library.all().size(), 2u);
  const FormatRef small = library.get("small");
  EXPECT_EQ(small->block, 8);
  EXPECT_EQ(small->gguf_type, 99);
  EXPECT_EQ(small->doc, "three bits");
  EXPECT_EQ(small->decode.body.size(), 0u);  // the choice was made when it was read
  EXPECT_EQ(library.get("large")->block_bytes, 12);
}

TEST(Reader, FunctionsWithSeveralResultsArraysAndEarlyReturns) {
  const FormatRef f = format_of(R"(
fn ends(x, o, n) {
  var low = x[o]
  var high = x[o]
  for j in 0..n { low = min(low, x[o + j]);  high = max(high, x[o + j]) }
  return low, high
}
fn double_all(a, n) {
  for j in 0..n { a[j] = 2 * a[j] }
  return n
}
fn sign_of(v) {
  if v < 0 { return -1 }
  if v > 0 { return 1 }
  return 0
}
format t : block 4 {
  low : f32
  high : f32
  sum : i16
  q : i8[4]
  decode(i) = q[i] + 0.0
  fit(x) {
    let (a, b) = ends(x, 0, 4)
    low, high = ends(x, 2, 2)
    var signs[4]
    for j in 0..4 { signs[j] = sign_of(x[j]) }
    let count = double_all(signs, 4)
    for j in 0..count { q[j] = signs[j] }
    sum = a + b
  }
}
)");
  const std::vector<float> x = {-5, 0, 2, 9};
  const auto blob = encode(*f, x, 1, 4);
  const std::vector<float> y = decode(*f, blob, 1, 4);
  EXPECT_EQ(y, (std::vector<float>{-2, 0, 2, 2}));
  auto field = [&](int k) {
    return field_decode(f->fields[static_cast<size_t>(k)].type,
                        f->fields[static_cast<size_t>(k)].layout.read(blob.data(), 0));
  };
  EXPECT_EQ(field(0), 2);
  EXPECT_EQ(field(1), 9);
  EXPECT_EQ(field(2), 4);
}

TEST(Reader, ReductionsAndBuiltins) {
  const FormatRef f = format_of(R"(
table steps : f32 = [-4.0, -1.0, 0.0, 2.0, 7.0]
format t : block 4 {
  r : f32[16]
  decode(i) = r[i]
  fit(x) {
    r[0] = sum(j) x[j]
    r[1] = mean(j) x[j]
    r[2] = max(j) abs(x[j])
    r[3] = min(j) x[j]
    r[4] = argmin(j) x[j]
    r[5] = int(any(j) (x[j] > 3)) + 2 * int(all(j) (x[j] > -9))
    r[6] = sum(j in 0..2, k in 0..2) x[2 * j + k] * k
    r[7] = nearest(steps, x[3])
    r[8] = exponent(x[0])
    r[9] = ldexp(1.0, 5) + recip(0.0)
    r[10] = popcount(255) + sign(x[0])
    r[11] = from_bits(bits(x[1]))
    r[12] = f16(0.1)
    r[13] = -7 / 2 + -7 % 3
    r[14] = float(0x10 | 0b11) ** 2
    r[15] = if x[0] < 0 then len(x) else len(steps)
  }
}
)");
  const std::vector<float> x = {-6, 1.5F, 4, 3.5F};
  const auto blob = encode(*f, x, 1, 4);
  auto r = [&](int k) { return field_decode(f->fields[0].type, f->fields[0].layout.read(blob.data(), k)); };
  const double expected[16] = {3, 0.75, 6, -6, 0, 3, 5, 3, 2, 32, 7, 1.5, f16_to_f32(f32_to_f16(0.1F)), -4 + 2, 361, 4};
  for (int k = 0; k < 16; ++k) EXPECT_EQ(r(k), expected[k]) << k;
}

// A tie between neighbours goes up; long tables halve, short ones count; unsorted ones answer with the place in the
// table.
TEST(Reader, NearestFindsTheNearest) {
  std::string longer;
  for (int k = 0; k < 37; ++k) longer += fmt::format("{}{}", k ? ", " : "", (k * k * (k % 2 ? 1 : -1)) * 0.5);
  const FormatRef f = format_of("table a : f32 = [3.0, -2.0, 0.5, 0.5, 9.0]\ntable b : f32 = [" + longer + "]\n" + R"(
format t : block 8 {
  p : u8[8]
  q : u8[8]
  decode(i) = p[i]
  fit(x) { for j in 0..8 { p[j] = nearest(a, x[j]);  q[j] = nearest(b, x[j]) } }
}
)");
  const std::vector<float> x = {1.75F, -0.75F, 100, -1000, 0.5F, 6.0F, 199, -3.3F};
  const auto blob = encode(*f, x, 1, 8);
  const uint8_t expected[8] = {0, 2, 4, 1, 2, 4, 4, 1};
  for (int k = 0; k < 8; ++k) EXPECT_EQ(blob[static_cast<size_t>(k)], expected[k]) << k;
  for (size_t k = 0; k < 8; ++k) {
    double best = 1e9;
    for (int e = 0; e < 37; ++e) best = std::min(best, std::fabs(x[k] - (e * e * (e % 2 ? 1 : -1)) * 0.5));
    const int e = blob[8 + k];
    EXPECT_EQ(std::fabs(x[k] - (e * e * (e % 2 ? 1 : -1)) * 0.5), best) << k;
  }
}

struct Refused {
  const char* what;
  std::string text;
  const char* message;
};

TEST(Reader, TellsMistakesWithPlaceAndHint) {
  const Refused cases[] = {
      {"unknown name", decoding("z * q[i]"), "'z' is not known here"},
      {"near name", with("scale : f32\nq : u8[4]", "decode(i) = scael * q[i]"), "did you mean 'scale'?"},
      {"unknown function", decoding("sqroot(s)"), "there is no function 'sqroot'"},
      {"arity", decoding("clamp(s, 1)"), "'clamp' takes 3 arguments, not 2"},
      {"index outside", decoding("s * q[i + 1]"), "this index may be 1..4, but there are 4 entries"},
      {"constant index outside", decoding("s * q[4]"), "index 4 is outside of 4 entries"},
      {"float index", decoding("q[s]"), "an index must be a whole number"},
      {"array as number", decoding("q * s"), "field 'q' has 4 entries"},
      {"mixing", decoding("s + (q[i] > 3)"), "'+' of truth values"},
      {"condition", decoding("if q[i] then s else 0.0"), "a number is used where a truth value is needed"},
      {"no decode", with("q : u8[4]", "code(v) = v"), "format 't' has no decode"},
      {"wrong routine", with("q : u8[4]", "decode(i) = q[i]\nencode(x) = 1"), "'encode' is no routine of a format"},
      {"fit result", with("q : u8[4]", "decode(i) = q[i]\nfit(x) { x[0] }"), "gives no value"},
      {"assign in decode", with("q : u8[4]", "decode(i) { q[0] = 1\n return 1.0 }"),
       "field 'q' cannot be assigned here"},
      {"assign other level", with("row s : f32\nq : u8[4]", "decode(i) = s\nfit(x) { s = 1 }"),
       "field 's' cannot be assigned here"},
      {"let is constant", with("q : u8[4]", "decode(i) { let a = q[i]\n a = 3\n return a }"), "'a' cannot be changed"},
      {"float into int", with("s : f32\nq : u8[4]", "decode(i) { var a = 0\n a = s\n return a }"),
       "'a' is i32 and cannot take an f32"},
      {"twice", with("q : u8[4]\nq : u8", "decode(i) = q[i]"), "field 'q' is declared twice"},
      {"overlap", with("q : u8[4]\nr : u8 at byte 2", "decode(i) = q[i]"), "bit 0 of byte 2 is used twice"},
      {"cover", with("q : u6[4] at bits 0..3 byte 0", "decode(i) = q[i]"), "do not cover each bit"},
      {"modes", with("q : u4[4] at (3:4, 2:8)", "decode(i) = q[i]"), "the modes hold 3 x 2 entries, the piece has 4"},
      {"width", with("q : u65[4]", "decode(i) = q[i]"), "an integer of 65 bits"},
      {"unknown type", with("q : ff16[4]", "decode(i) = q[i]"), "there is no type 'ff16'"},
      {"float range", with("q : float<8, 3, 300, finite>[4]", "decode(i) = q[i]"), "do not fit f32"},
      {"scale sign", with("q : float<8, 0, 127, scale>[4]", "decode(i) = q[i]"),
       "a scale is a power of two without a sign"},
      {"block", with("q : u8[4]", "decode(i) = q[i]", "block 0"), "block is 0, but must be in 1..65536"},
      {"huge block", with("q : u8[4]", "decode(i) = q[i % 4]", "block 99999999"), "must be in 1..65536"},
      {"tile without", with("tile s : f32\nq : u8[4]", "decode(i) = s"), "the format has none"},
      {"tile cuts", with("tile s : f32\nq : u8[4]", "decode(i) = s", "block 4, tile 2 6"),
       "tiles of 6 columns cut blocks of 4"},
      {"two codes", with("p : u8[4]\nq : u8[4]", "decode(i) = q[i]\ncode(v) = 1"),
       "2 fields have one entry per element"},
      {"two writers", with("q : u8[4]", "decode(i) = q[i]\nfit(x) { q[0] = 1 }\ncode(v) = v"),
       "'fit' and 'code' both write 'q'"},
      {"loop bound", with("q : u8[4]", "decode(i) { var a = 0.0\n for j in 0..q[0] { a = a + 1 }\n return a }"),
       "a loop ends at a number known"},
      {"builtin's name", "fn f16(a) = a\n" + decoding("f16(s)"), "'f16' is a function of the language"},
      {"recursion", "fn f(a) = f(a)\n" + decoding("f(s)"), "'f' calls itself"},
      {"division", decoding("q[i] / 0"), "division by zero"},
      {"missing parameter", "fn f(a, b) = a\n" + decoding("f(s)"), "'f' needs 'b'"},
      {"pattern", "format p(n) : block n { q : u8[n]\n decode(i) = q[i] }\nformat t = p()",
       "format 'p' needs its parameter 'n'"},
      {"alias of nothing", "format t = missing(3)", "there is no format 'missing'"},
      {"clash", with("q : u8[4]", "decode(i) = q[i]") + with("q : u8[4]", "decode(i) = q[i]"),
       "format 't' is defined twice"},
      {"after result", with("q : u8[4]", "decode(i) { return 1.0\n let a = 3 }"), "nothing can follow a result"},
      {"paths", with("q : u8[4]", "decode(i) { if q[i] > 1 { return 1.0 } }"), "does not give a value on every path"},
      {"mixed widths", with("w : u32\nq : u8[4]", "decode(i) = w - 16"), ""},
      {"u32 with i32", with("w : u32\nq : u8[4]", "decode(i) = w - q[i]"), "u32 and i32 cannot be mixed here"},
      {"values of names", with("s : f32\nq : u8[4]", "decode(i) { let (a, b) = s\n return a }"),
       "2 names need 2 values"},
      {"range unknown", with("q : u8[4]", "decode(i) = sum(j) 2 * j"), "the range of 'j' does not follow from its use"},
  };
  for (const Refused& c : cases) {
    const std::string got = refusal_of(c.text);
    if (c.message[0] == '\0') {
      EXPECT_EQ(got, "") << c.what;
      continue;
    }
    EXPECT_NE(got.find(c.message), std::string::npos) << c.what << ":\n" << got;
    EXPECT_NE(got.find("test.lum:"), std::string::npos) << c.what << " has no place:\n" << got;
  }
}

// Texts made to take forever or fill the memory end in an Error at once.
TEST(Reader, HostileTextsEndQuickly) {
  std::string doubling = "fn g0(a) = a + a\n";
  for (int k = 1; k < 30; ++k) doubling += fmt::format("fn g{}(a) = g{}(a) + g{}(a)\n", k, k - 1, k - 1);
  std::string loops = "var a = 0.0\n", ends;
  for (int k = 0; k < 8; ++k) {
    loops += fmt::format("for k{} in 0..1000 {{\n", k);
    ends += "}\n";
  }
  const std::string cases[] = {
      doubling + decoding("g29(s)"),
      with("q : u8[4]", "decode(i) {\n" + loops + "a = a + 1\n" + ends + "return a }"),
      with("q : u64[131072]\nr : u64[131072]\np : u64[131072]", "decode(i) = q[i]"),
      with("q : u8[4]", "decode(i) { var a[99999999]\n return 1.0 }"),
      with("q : u8[4] at byte 99999999999", "decode(i) = q[i]"),
      with("q : u8[4] at (4:9223372036854775807)", "decode(i) = q[i]"),
      decoding("s ** 99999"),
      decoding("sum(a in 0..16777216, b in 0..16777216) s"),
      with("row r : f32\nq : u8[4]",
           "decode(i) = q[i]\nfit row(x) { r = sum(j in 0..len(x)) sum(k in 0..len(x)) x[j] * x[k] }"),
      with("row r : f32\nq : u8[4]", "decode(i) = q[i]\nfit row(x) { r = x[3] }"),
      with("row r : f32\nq : u8[4]", "decode(i) = q[i]\nfit row(x) { for j in 0..len(x) { r = x[j + j] } }"),
  };
  for (const std::string& text : cases) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_NE(refusal_of(text), "") << text.substr(0, 300);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 2.0) << text.substr(0, 300);
  }
}

// Library texts with random damage are read or refused; what is read encodes and decodes without harm.
TEST(Reader, DamagedTextsAreReadOrRefused) {
  std::mt19937_64 random(17);
  const std::vector<FormatRef> formats = builtin_formats().all();
  const std::vector<std::string> words = {"i",
                                          "x",
                                          "j",
                                          "0",
                                          "1",
                                          "-1",
                                          "32",
                                          "999999999",
                                          "q",
                                          "d",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          "{",
                                          "}",
                                          "/",
                                          "%",
                                          "<<",
                                          "halves",
                                          "row",
                                          "tensor",
                                          "element",
                                          "u1",
                                          "u64",
                                          "f32",
                                          "int(",
                                          "clamp(",
                                          "for j in 0..9 {",
                                          "if x[0] > 1 {",
                                          "\n",
                                          ","};
  int read = 0, refused = 0;
  for (int k = 0; k < 600; ++k) {
    std::string text = formats[random() % formats.size()]->source_text;
    for (uint64_t damage = 1 + random() % 2; damage > 0; --damage) {
      const size_t at = random() % text.size(), length = random() % 6;
      text.replace(at, std::min(length, text.size() - at), random() % 3 == 0 ? "" : words[random() % words.size()]);
    }
    try {
      for (const FormatRef& f : library_of(text).all()) {
        ++read;
        const int64_t columns = f->block * (f->block < 64 ? 3 : 1);
        const auto blob = random_blob(*f, 1, columns, random());
        decode(*f, blob, 1, columns);
        if (f->encodes()) encode(*f, gaussian(static_cast<size_t>(columns), random()), 1, columns);
      }
    } catch (const Error& e) {
      ++refused;
      EXPECT_STRNE(e.what(), "");
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace lumen
