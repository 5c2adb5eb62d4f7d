// needs: none. Every ```lumen block of docs/reference/language.md parses, comes back from the printer, and checks.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

const std::filesystem::path kRoot(LUMEN_SOURCE_DIR);

lang::File parse(const std::string& name, const std::string& text) {
  return lang::parse_file(std::make_shared<Source>(Source{name, text}));
}

TEST(LanguageDoc, EveryBlockCompiles) {
  const std::string doc = read_file(kRoot / "docs" / "reference" / "language.md");
  const lang::File library = parse("functions.lum", read_file(kRoot / "models" / "functions.lum"));
  const std::string open = "```lumen\n";
  int blocks = 0;
  for (size_t at = doc.find(open); at != std::string::npos; at = doc.find(open, at + 1)) {
    const size_t begin = at + open.size(), end = doc.find("```", begin);
    ASSERT_NE(end, std::string::npos);
    const std::string text = doc.substr(begin, end - begin);
    SCOPED_TRACE(text);
    try {
      const lang::File file = parse("language.md", text);
      const std::string printed = lang::print_file(file);
      EXPECT_EQ(lang::print_file(parse("printed", printed)), printed);
      Scope scope;
      scope.files = {&library, &file};
      check_file(scope, file);
      FormatLibrary formats;
      if (!file.formats.empty()) formats.add(file);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
    ++blocks;
  }
  EXPECT_GE(blocks, 9);
}

}  // namespace
}  // namespace lumen::graph
