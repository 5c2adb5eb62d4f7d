// Needs none. Ids in files have one meaning: two formats never share one, and none takes a plain scalar's.
#include "number/facts/type_ids.h"

#include "tests/number/formats_of_tests.h"

namespace lumen {
namespace {

std::string with_builtin(const std::string& text) {
  FormatLibrary library = FormatLibrary::builtin();
  try {
    library.add(lang::parse_file(std::make_shared<Source>(Source{"mine.lum", text})));
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    EXPECT_EQ(library.find("mine"), nullptr);
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

std::string mine(const std::string& attribute, const std::string& field = "u4[32]") {
  return "format mine : block 32, " + attribute + " {\n  d : f16\n  q : " + field +
         "\n  decode(i) = d * (q[i] - 7)\n}\n";
}

TEST(TypeIds, AnIdOfAShippedFormatIsRefused) {
  const std::string gguf = with_builtin(mine("gguf 2"));
  EXPECT_NE(gguf.find("'mine' claims gguf 2, which is format 'q4_0'"), std::string::npos) << gguf;
  EXPECT_NE(gguf.find("mine.lum:1"), std::string::npos) << gguf;
  EXPECT_NE(gguf.find("q4_0.lum"), std::string::npos) << gguf;
  EXPECT_NE(with_builtin(mine("gguf_file 15")).find("'q4_k'"), std::string::npos);
  EXPECT_NE(with_builtin(mine("safetensors \"F8_E4M3\"")).find("'fp8_e4m3'"), std::string::npos);
  EXPECT_EQ(with_builtin(mine("gguf 99, gguf_file 77, safetensors \"MINE\"")), "");
}

TEST(TypeIds, AnIdOfAnotherUsersFormatIsRefused) {
  const std::string both = mine("gguf 99") + "format other : gguf 99 {\n  v : i8\n  decode(i) = v\n}\n";
  const std::string refused = refusal_of(both);
  EXPECT_NE(refused.find("'other' claims gguf 99, which is format 'mine' (test.lum:1)"), std::string::npos) << refused;
  const std::string instances =
      "format a(bits) : block 8 {\n  q : u<bits>[8]\n  decode(i) = q[i]\n}\n"
      "format two : gguf 98 = a(bits = 2)\nformat three : gguf 98 = a(bits = 3)\n";
  EXPECT_NE(refusal_of(instances).find("gguf 98"), std::string::npos);
}

TEST(TypeIds, PlainScalarsKeepTheirs) {
  for (const ScalarIds& row : scalar_ids()) {
    if (row.gguf >= 0) {
      EXPECT_NE(refusal_of(mine(fmt::format("gguf {}", row.gguf))).find("plain"), std::string::npos) << row.gguf;
    }
    EXPECT_NE(refusal_of(mine(fmt::format("safetensors \"{}\"", row.safetensors))).find("plain"), std::string::npos);
  }
  EXPECT_NE(refusal_of(mine("safetensors \"F4\"")).find("another layout"), std::string::npos);
  // What means the same may be called so.
  EXPECT_EQ(refusal_of("format f : gguf 0, safetensors \"F32\" {\n  v : f32\n  decode(i) = v\n}\n"), "");
  EXPECT_NE(refusal_of("format f : safetensors \"I16\" {\n  v : i16\n  decode(i) = v\n}\n"), "");
  EXPECT_NE(refusal_of("format f : safetensors \"F32\" {\n  v : f32\n  decode(i) = 2 * v\n}\n"), "");
}

TEST(TypeIds, ShippedOnesAgree) {
  for (const FormatRef& f : builtin_formats().all()) {
    EXPECT_FALSE(builtin_formats().taken_id(*f)) << f->name;
    EXPECT_TRUE(builtin_formats().is_embedded(f->name));
    EXPECT_NE(builtin_formats().place_of(f->name).find(".lum"), std::string::npos);
  }
  EXPECT_EQ(builtin_formats().place_of("none"), "");
}

}  // namespace
}  // namespace lumen
