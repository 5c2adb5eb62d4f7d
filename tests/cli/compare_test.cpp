// needs: none. `lumen compare`: figures on the terminal, as a document and as a page; both ways to compute them agree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class CompareTest : public TinyModelTest {
 protected:
  static void SetUpTestSuite() {
    TinyModelTest::SetUpTestSuite();
    ASSERT_EQ(lumen({"quantize", path("m/model.gguf"), path("q8.gguf"), "q8_0", "-q"}).code, 0);
    ASSERT_EQ(lumen({"quantize", path("m/model.gguf"), path("q4.gguf"), "q4_0", "-q"}).code, 0);
    ASSERT_EQ(lumen({"train", "--shape", "tiny", "--steps", "1", "--eval-every", "0", "--tokenizer", "bytes:300", "-o",
                     path("other"), "-q"})
                  .code,
              0);
  }
  static Outcome compare(std::vector<std::string> more) {
    return lumen({"compare", path("m/model.gguf"), path("q8.gguf"), path("q4.gguf"), "-c", "16", "--chunks", "6"},
                 more);
  }
};

TEST_F(CompareTest, TogetherAndOneByOne) {
  const Outcome all = compare({"--json", path("c.json"), "--html", path("c.html")});
  ASSERT_EQ(all.code, 0) << all.error;
  for (const char* part : {"KL divergence", "perplexity", "cosine", "q8.gguf", "q4.gguf", "t/s"})
    EXPECT_TRUE(contains(all.out, part)) << part << all.out;
  const auto together = nlohmann::json::parse(read("c.json"));
  EXPECT_EQ(together["points"].size(), 2U);
  const double near = together["points"][0]["kl"], far = together["points"][1]["kl"];
  EXPECT_GT(far, near);
  EXPECT_GT(near, 0);
  EXPECT_GT(together["points"][0]["cosine"].get<double>(), 0.99);
  EXPECT_GT(together["base"]["tokens_per_s"].get<double>(), 0);
  EXPECT_TRUE(contains(read("c.html"), "Size against quality"));
  // The page is that of the document.
  ASSERT_EQ(lumen({"report", path("c.json"), "-o", path("again.html")}).code, 0);
  EXPECT_EQ(read("again.html"), read("c.html"));
  const Outcome one = compare({"--one-by-one", "--scratch", folder_.string(), "--no-speed", "--json", path("d.json")});
  ASSERT_EQ(one.code, 0) << one.error;
  const auto apart = nlohmann::json::parse(read("d.json"));
  EXPECT_NEAR(apart["points"][1]["kl"].get<double>(), far, 1e-5 + 1e-2 * far);
  EXPECT_NEAR(apart["points"][1]["ppl"].get<double>(), together["points"][1]["ppl"].get<double>(), 1e-3);
  EXPECT_FALSE(apart["base"].contains("tokens_per_s"));
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(contains(entry.path().filename().string(), ".lumen-compare")) << "the record is gone";
  // What perplexity says.
  const Outcome p = lumen({"perplexity", path("q4.gguf"), "-c", "16", "--chunks", "6", "-q"});
  EXPECT_TRUE(contains(p.out, fmt::format("perplexity {:.4f}", together["points"][1]["ppl"].get<double>())))
      << p.out << together["points"][1]["ppl"];
}

TEST_F(CompareTest, Mistakes) {
  EXPECT_EQ(lumen({"compare"}).code, 2);
  EXPECT_EQ(lumen({"compare", path("m/model.gguf")}).code, 2);
  EXPECT_EQ(lumen({"compare", path("m/model.gguf"), path("absent.gguf")}).code, 1);
  const Outcome other = lumen({"compare", path("m/model.gguf"), path("other/model.gguf")});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(contains(other.error, "cannot be compared")) << other.error;
  const Outcome own = compare({"--json", path("q8.gguf")});
  EXPECT_EQ(own.code, 2) << own.error;
  EXPECT_EQ(compare({"--tasks", "none_such"}).code, 2);
  EXPECT_EQ(compare({"--html", path("no/out.html")}).code, 1);
  EXPECT_EQ(lumen({"compare", path("m/model.gguf"), path("q8.gguf"), "-c", "1000000", "--no-speed"}).code, 1)
      << "the text is shorter than a window";
}

}  // namespace
}  // namespace lumen::cli
