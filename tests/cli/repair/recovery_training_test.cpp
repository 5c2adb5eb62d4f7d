// needs: none. `lumen recover`: a rounded model comes back nearer to what it was, in the same formats; what cannot be
// done is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class RecoverTest : public TinyModelTest {
 protected:
  static void SetUpTestSuite() {
    TinyModelTest::SetUpTestSuite();
    ASSERT_EQ(lumen({"quantize", path("m/model.gguf"), path("q.gguf"), "int3_g32", "-q"}).code, 0);
  }
  static Outcome recover(std::vector<std::string> more) {
    return lumen({"recover", path("m/model.gguf"), path("q.gguf"), "-o", path("out.gguf"), "-c", "16", "--chunks", "8",
                  "--steps", "4", "--check-chunks", "2", "--rate", "0.003"},
                 more);
  }
};

TEST_F(RecoverTest, WritesTheSameFormats) {
  for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
           {}, {"--loss", "tokens", "--overwrite"}, {"--train", "scales", "--overwrite"}}) {
    const Outcome o = recover(how);
    ASSERT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(contains(o.out, "KL divergence")) << o.out;
    EXPECT_FALSE(fs::exists(path("out.gguf.work")));
    EXPECT_EQ(fs::file_size(path("out.gguf")), fs::file_size(path("q.gguf")));
    EXPECT_EQ(lumen({"run", "-m", path("out.gguf"), "-p", "A", "-n", "2", "-q"}).code, 0);
  }
}

TEST_F(RecoverTest, Mistakes) {
  EXPECT_EQ(recover({"--overwrite", "--train", "codes"}).code, 2);
  EXPECT_EQ(recover({"--overwrite", "--loss", "guess"}).code, 2);
  EXPECT_EQ(lumen({"recover", path("m/model.gguf"), path("q.gguf"), "-o", path("q.gguf"), "--overwrite"}).code, 2);
  EXPECT_EQ(lumen({"recover", path("m/model.gguf"), path("q.gguf"), "-o", path("m/model.gguf"), "--overwrite"}).code,
            2);
}

}  // namespace
}  // namespace lumen::cli
