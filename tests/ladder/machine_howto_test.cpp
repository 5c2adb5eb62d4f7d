// needs: cpu with AVX-512 VNNI for the last step. The worked example of docs/howto/add-a-machine.md does what the page
// says.
#include <gtest/gtest.h>

#include "base/file/file.h"
#include "row_kernel.h"

namespace lumen {
namespace {

// The first fenced block of a kind.
std::string block(const std::string& page, const std::string& kind) {
  const std::string fence = "```" + kind + "\n";
  const size_t begin = page.find(fence);
  LUMEN_CHECK(begin != std::string::npos, "no block {}", kind);
  const size_t from = begin + fence.size();
  return page.substr(from, page.find("```", from) - from);
}

TEST(MachineHowto, TheRowOfThePageWorks) {
  const std::string page = read_file(std::string(LUMEN_SOURCE_DIR) + "/docs/howto/add-a-machine.md");
  const std::string meaning = block(page, "loop");
  std::vector<std::string> words;
  for (std::string rest = block(page, "row"); !rest.empty();) {
    const size_t bar = std::min(rest.find(" | "), rest.size() - 1);
    words.push_back(rest.substr(0, bar));
    rest = bar + 3 < rest.size() ? rest.substr(bar + 3) : "";
  }
  ASSERT_EQ(words.size(), 4U);
  machine::Machine m = *machine::find_machine("avx512-vnni");
  m.rows.push_back({words[0], meaning, words[1], words[2], std::stod(words[3])});
  const machine::DotRow d{words[0], Scalar::i16, Scalar::i16, Scalar::i32, 2, 4, true, "", false, 32767};
  EXPECT_EQ(meaning, machine::dot_meaning(d.row, d));
  const dot_test::Case c = dot_test::row_case(m, m.rows.back());
  if (!machine::runs_here(m)) GTEST_SKIP() << "this processor has no AVX-512 VNNI";
  EXPECT_EQ(dot_test::run_native(c, m, 1), c.after);
}

}  // namespace
}  // namespace lumen
