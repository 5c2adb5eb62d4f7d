// Needs none. The library: quick to load, self-contained texts, user folders, clashes, nearest names.
#include "number/library/library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "formats_of_tests.h"
#include "number/codec/codec.h"

namespace lumen {
namespace {

TEST(Library, HasTheFormatsOfItsFolder) {
  EXPECT_GE(FormatLibrary::builtin().all().size(), 60u);
}

TEST(Library, FindsByNameAndByFileType) {
  const FormatLibrary& library = builtin_formats();
  EXPECT_EQ(library.by_gguf_type(12)->name, "q4_k");
  EXPECT_EQ(library.by_gguf_type(777), nullptr);
  EXPECT_EQ(library.find("q9_9"), nullptr);
  try {
    library.get("q4_kk");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.hint().find("'q4_k'"), std::string::npos) << e.hint();
  }
  std::string before;
  for (const FormatRef& f : library.all()) {
    EXPECT_LT(before, f->name);
    before = f->name;
    EXPECT_FALSE(f->doc.empty()) << f->name;
  }
}

// The text that identifies a format defines it wholly: read alone it gives the same bytes and values.
TEST(Library, TextsStandAlone) {
  for (const FormatRef& f : builtin_formats().all()) {
    const FormatLibrary alone = library_of(f->source_text);
    const FormatRef again = alone.find(f->name);
    ASSERT_TRUE(again) << f->name;
    EXPECT_EQ(again->hash, f->hash) << f->name << "\n" << f->source_text << "\n" << again->source_text;
    if (!f->encodes()) continue;
    const std::vector<float> x = gaussian(256, 2);
    EXPECT_EQ(encode(*again, x, 1, 256), encode(*f, x, 1, 256)) << f->name;
  }
}

TEST(Library, TakesFoldersInOrderAndRefusesClashes) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("lumen_formats_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "b.lum") << "format mine : block 2 { q : fp8_e4m3[2]\n decode(i) = half(q[i]) }\n";
  std::ofstream(folder / "a.lum") << "fn half(v) = 0.5 * v\n";
  std::ofstream(folder / "ignored.txt") << "format { nonsense";
  FormatLibrary library = FormatLibrary::builtin();
  library.add_folder(folder);
  EXPECT_TRUE(library.find("mine"));
  EXPECT_THROW(library.add_folder(folder), Error);
  EXPECT_TRUE(library.find("mine"));
  EXPECT_TRUE(library.find("q4_0"));
  std::filesystem::remove_all(folder);
  EXPECT_THROW(library.add_folder(folder), Error);
  EXPECT_THROW(library.add(lang::parse_file(
                   std::make_shared<Source>(Source{"x", "format q4_0 : block 1 { v : f32\n decode(i) = v }"}))),
               Error);
}

}  // namespace
}  // namespace lumen
