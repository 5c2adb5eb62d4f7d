// needs: none. Wrong programs (tests/refuse/NAME.lum) and what is said about each, word for word (NAME.expected).
// LUMEN_BLESS=1 rewrites the expectations; the difference is to be reviewed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

const std::filesystem::path kRoot(LUMEN_SOURCE_DIR);

lang::File parse(const std::filesystem::path& path) {
  return lang::parse_file(std::make_shared<Source>(Source{path.filename(), read_file(path)}));
}

std::string verdict(const lang::File& library, const std::filesystem::path& path) {
  try {
    const lang::File file = parse(path);
    Scope scope;
    scope.files = {&library, &file};
    check_file(scope, file);
  } catch (const Error& e) {
    return std::string(e.what()) + (e.hint().empty() ? "" : "\n  hint: " + e.hint()) + "\n";
  }
  return "accepted\n";
}

TEST(Refuse, EveryWrongProgramWithItsMessage) {
  const bool bless = std::getenv("LUMEN_BLESS") != nullptr;
  const lang::File library = parse(kRoot / "models" / "functions.lum");
  int programs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "tests" / "refuse")) {
    if (entry.path().extension() != ".lum") continue;
    SCOPED_TRACE(entry.path().filename().string());
    std::filesystem::path beside = entry.path();
    beside.replace_extension(".expected");
    const std::string got = verdict(library, entry.path());
    EXPECT_NE(got, "accepted\n");
    if (bless) {
      write_file_atomic(beside, got);
    } else {
      EXPECT_EQ(got, read_file(beside));
    }
    ++programs;
  }
  EXPECT_GE(programs, 30);
}

}  // namespace
}  // namespace lumen::graph
