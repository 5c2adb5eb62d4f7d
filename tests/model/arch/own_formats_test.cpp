// needs: none. Formats that files define themselves, beside those of the library and of the user.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "lang/parser.h"
#include "model/file/gguf.h"
#include "model/file/safetensors.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

FormatLibrary library_with(const std::string& text, bool builtin = true) {
  FormatLibrary out = builtin ? FormatLibrary::builtin() : FormatLibrary();
  if (!text.empty()) out.add(lang::parse_file(std::make_shared<Source>(Source{"user/mine.lum", text})));
  return out;
}

std::string mine(const std::string& decode, const std::string& attributes = "", const std::string& name = "mine") {
  return "format " + name + " : block 4" + attributes + " {\n  q : i8[4]\n  decode(i) = " + decode +
         "\n  code(v) = rint(v)\n}\n";
}

// A file of one tensor in the only format of a text; returns it read with another library.
template <typename File, typename Writer, typename Metadata>
FormatRef through(const std::string& text, const FormatLibrary& reader, const std::string& name = "mine") {
  const FormatLibrary writer = library_with(text, false);
  const fs::path path = fs::temp_directory_path() / fmt::format("lumen-own-{}", ::getpid());
  const std::vector<uint8_t> blob(64, 3);
  Writer out(path, Metadata(), {{"w", {2, 4}, {Scalar::f32, writer.get(name)}}});
  out.write(blob);
  out.commit();
  const auto read = [&] { return File(path, reader).get("w").element.format; };
  try {
    FormatRef f = read();
    fs::remove(path);
    return f;
  } catch (...) {
    fs::remove(path);
    throw;
  }
}

FormatRef by_gguf(const std::string& text, const FormatLibrary& reader, const std::string& name = "mine") {
  return through<file::GgufFile, file::GgufWriter, file::GgufMetadata>(text, reader, name);
}
FormatRef by_safetensors(const std::string& text, const FormatLibrary& reader, const std::string& name = "mine") {
  return through<file::SafetensorsFile, file::SafetensorsWriter, file::SafetensorsMetadata>(text, reader, name);
}

std::string refused(const std::function<FormatRef()>& read) {
  try {
    (void)read();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::user);
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

TEST(OwnFormats, AFileReadsByItsOwnText) {
  const FormatLibrary plain = library_with("");
  for (const auto& read : {by_gguf, by_safetensors}) {
    EXPECT_EQ(read(mine("q[i] * 2"), plain, "mine")->name, "mine");
    const FormatLibrary same = library_with(mine("q[i] * 2"));
    EXPECT_EQ(read(mine("q[i] * 2"), same, "mine"), same.get("mine"));
  }
}

TEST(OwnFormats, AUsersTextThatDiffersIsRefused) {
  const FormatLibrary other = library_with(mine("q[i] * 3"));
  for (const auto& read : {by_gguf, by_safetensors}) {
    const std::string text = refused([&] { return read(mine("q[i] * 2"), other, "mine"); });
    EXPECT_NE(text.find("defines format 'mine' in another way than user/mine.lum:1"), std::string::npos) << text;
    EXPECT_NE(text.find("lumen-own-"), std::string::npos) << text;
    EXPECT_NE(text.find("leave that definition out"), std::string::npos) << text;
  }
}

// What differs in how numbers are rounded alone does not change what a file says.
TEST(OwnFormats, ShippedFormatsReadFilesWithAnotherEncoder) {
  const FormatLibrary plain = library_with("");
  const FormatRef known = plain.get("int8_block");
  std::string text = known->source_text;
  const size_t fit = text.find("fit(x)");
  ASSERT_NE(fit, std::string::npos);
  text.insert(text.find('{', fit) + 1, "\n    let unused_here = x[0]\n    let s2 = unused_here * 2.0\n");
  const FormatLibrary writer = library_with(text, false);
  ASSERT_NE(writer.get("int8_block")->source_text, known->source_text);
  const fs::path path = fs::temp_directory_path() / fmt::format("lumen-own-{}", ::getpid());
  file::SafetensorsWriter out(path, {}, {{"w", {1, 32}, {Scalar::f32, writer.get("int8_block")}}});
  out.write(std::vector<uint8_t>(64, 0));
  out.commit();
  EXPECT_EQ(file::SafetensorsFile(path, plain).get("w").element.format, known);
  fs::remove(path);
}

TEST(OwnFormats, ATextMayNotClaimAnothersId) {
  const FormatLibrary plain = library_with("");
  const std::string text = refused([&] { return by_safetensors(mine("q[i]", ", gguf 12"), plain, "mine"); });
  EXPECT_NE(text.find("'mine' claims gguf 12, which is format 'q4_k'"), std::string::npos) << text;
}

TEST(OwnFormats, DecodeInAFileHasAStricterBudget) {
  const std::string slow =
      "format mine : block 4 {\n  q : i8[4]\n  decode(i) {\n    var s = 0.0\n    for k in 0..500 { s = s * 0.5 + q[i] "
      "}\n"
      "    return s\n  }\n}\n";
  const FormatLibrary plain = library_with("");
  const std::string text = refused([&] { return by_gguf(slow, plain, "mine"); });
  EXPECT_NE(text.find("operations to decode an element; a definition inside a file may take 1024"), std::string::npos)
      << text;
  EXPECT_NE(text.find("--formats DIR"), std::string::npos) << text;
  // The user's own may.
  const FormatLibrary trusted = library_with(slow);
  EXPECT_EQ(by_gguf(slow, trusted, "mine"), trusted.get("mine"));
}

TEST(OwnFormats, OneFileHoldsOneDefinitionOfAName) {
  const FormatLibrary a = library_with(mine("q[i] * 2"), false), b = library_with(mine("q[i] * 3"), false);
  const std::vector<file::TensorSpec> specs = {{"v", {1, 4}, {Scalar::f32, a.get("mine")}},
                                               {"w", {1, 4}, {Scalar::f32, b.get("mine")}}};
  const fs::path path = fs::temp_directory_path() / fmt::format("lumen-own-{}", ::getpid());
  EXPECT_THROW(file::GgufWriter(path, file::GgufMetadata(), specs), Error);
  EXPECT_THROW(file::SafetensorsWriter(path, {}, specs), Error);
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace lumen::model::arch
