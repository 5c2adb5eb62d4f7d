// needs: none. `lumen rewrite`: what comes out computes the same, says so, and rounds on; what cannot be done is
// refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file/file.h"
#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class RewriteTest : public TinyModelTest {
 protected:
  static Outcome rewrite(std::vector<std::string> more) {
    return lumen(
        {"rewrite", path("m/model.gguf"), path("out.gguf"), "-c", "16", "--chunks", "2", "--check-chunks", "2"}, more);
  }
};

TEST_F(RewriteTest, ComputesTheSame) {
  for (const std::vector<std::string>& how : std::vector<std::vector<std::string>>{
           {"--rotate", "stream,values"},
           {"--rotate", "stream", "--rotation", "random", "--seed", "7"},
           {"--fold-norms"},
           {"--outliers", "2:30"},
           {"--rotate", "stream,values", "--online", "ffn_down", "--outliers", "1:12"}}) {
    const Outcome o = rewrite(how);
    ASSERT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(contains(o.out, "KL divergence")) << o.out;
    const Outcome same =
        lumen({"compare", path("m/model.gguf"), path("out.gguf"), "-c", "16", "--chunks", "4", "--no-speed"});
    ASSERT_EQ(same.code, 0) << same.error;
    EXPECT_TRUE(contains(same.out, "0.00000")) << same.out;
    const Outcome rounded = lumen({"quantize", path("out.gguf"), path("q.gguf"), "int4_g32", "--strategy", "gptq", "-c",
                                   "16", "--chunks", "6", "-q"});
    EXPECT_EQ(rounded.code, 0) << rounded.error;
    EXPECT_EQ(lumen({"run", "-m", path("q.gguf"), "-p", "A", "-n", "2", "-q"}).code, 0);
  }
}

TEST_F(RewriteTest, LearnsRotations) {
  for (const std::string loss : {"error", "tokens"}) {
    const std::vector<std::string> how = {
        "--rotate", "stream,values", "--learn-rotation", "int3_g32", "--loss", loss, "--steps",
        "4",        "--online",      "ffn_down"};
    const Outcome o = rewrite(how);
    ASSERT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(contains(o.out, "rotations for int3_g32: ")) << o.out;
    EXPECT_TRUE(contains(o.out, "KL divergence")) << o.out;
    const std::string first = read_file(path("out.gguf"));
    ASSERT_EQ(rewrite(how).code, 0);
    EXPECT_EQ(read_file(path("out.gguf")), first) << "the same seed, the same bytes";
  }
  const Outcome coded =
      rewrite({"--rotate", "stream", "--learn-rotation", "int4_g32", "--activations", "int8_row", "--steps", "2"});
  ASSERT_EQ(coded.code, 0) << coded.error;
  EXPECT_TRUE(contains(coded.out, "rotations for int4_g32 with activations in int8_row: ")) << coded.out;
  EXPECT_FALSE(contains(lumen({"inspect", path("out.gguf")}).out, "lumen.activations"));
  const std::vector<std::string> learns = {"--rotate", "stream", "--learn-rotation", "int3_g32"};
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), learns.begin(), learns.end());
    return rewrite(more).code;
  };
  EXPECT_EQ(refused({"--activations", "int8_row", "--loss", "error"}), 2);
  EXPECT_EQ(refused({"--activations", "int9_row"}), 2);
  EXPECT_EQ(rewrite({"--fold-norms", "--learn-rotation", "int3_g32"}).code, 2);
  EXPECT_EQ(rewrite({"--rotate", "stream", "--learn-rotation", "no_format"}).code, 2);
  EXPECT_EQ(rewrite({"--rotate", "stream", "--learn-rotation", "int3_g32", "--online", "attn_q"}).code, 2);
}

TEST_F(RewriteTest, Mistakes) {
  fs::remove(path("out.gguf"));
  EXPECT_EQ(rewrite({}).code, 2);
  EXPECT_EQ(rewrite({"--rotate", "keys"}).code, 2);
  EXPECT_EQ(rewrite({"--online", "("}).code, 2);
  EXPECT_EQ(rewrite({"--online", "nothing_like_it"}).code, 2);
  for (const char* wrong : {"4", "0:3", "2:", "2:nan", "2:30x", "x:3"})
    EXPECT_EQ(rewrite({"--outliers", wrong}).code, 2) << wrong;
  EXPECT_EQ(lumen({"rewrite", path("m/model.gguf"), path("m/model.gguf"), "--fold-norms"}).code, 2);
  EXPECT_FALSE(fs::exists(path("out.gguf")));
}

}  // namespace
}  // namespace lumen::cli
