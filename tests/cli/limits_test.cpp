// needs: none. Numbers without measure: every command says that it cannot, at once, and takes nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "outcome.h"

namespace lumen::cli {
namespace {

class Limits : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("LUMEN_CACHE", (std::filesystem::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::string name = (std::filesystem::temp_directory_path() / "lumen-limits-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    ASSERT_EQ(lumen({"train", "--shape", "tiny", "--steps", "1", "--eval-every", "0", "-o", path("m"), "-q"}).code, 0);
    ASSERT_EQ(setenv("LUMEN_MEMORY", "2G", 1), 0);
  }
  static void TearDownTestSuite() {
    unsetenv("LUMEN_MEMORY");
    std::filesystem::remove_all(folder_);
  }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static std::string model() { return path("m/model.gguf"); }
  static inline std::filesystem::path folder_;

  // Refused as usage or for memory, with words; far from the minutes that a search or an allocation would take.
  static Outcome refused(const std::vector<std::string>& arguments) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome o = lumen(arguments);
    std::string all;
    for (const std::string& a : arguments) all += a + " ";
    EXPECT_TRUE(o.code == 2 || o.code == 3) << all << "ended with " << o.code << ": " << o.error;
    EXPECT_TRUE(contains(o.error, "error")) << all << o.error;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40)) << all;
    return o;
  }
};

const std::vector<std::string> kHuge = {"2147483649", "1099511627776", "4611686018427387904", "9223372036854775807"};

TEST_F(Limits, Training) {
  for (const std::string& n : kHuge) {
    for (const char* flag : {"--batch", "--length", "--accumulate"})
      refused({"train", "--shape", "tiny", flag, n, "-o", path("t")});
    refused({"train", "-m", model(), "--batch", n, "-o", path("t")});
  }
  refused({"train", "--shape", "tiny", "--batch", "1000000000", "--length", "1000000000", "-o", path("t")});
  // The table names what is needed, before any of it is made.
  const Outcome o = refused({"train", "--shape", "llama-8b", "-o", path("t")});
  EXPECT_EQ(o.code, 3);
  for (const char* part : {"weights", "states of the optimizer", "LUMEN_MEMORY", "hint"})
    EXPECT_TRUE(contains(o.error, part)) << o.error;
  EXPECT_FALSE(std::filesystem::exists(path("t"))) << "nothing is left behind";
}

TEST_F(Limits, Benchmarks) {
  for (const std::string& n : kHuge)
    for (const char* flag : {"-p", "-n", "-d"}) refused({"bench", "-m", model(), flag, n});
  for (const std::string& n : kHuge) {
    refused({"bench", "kernels", "--format", "q4_0", "--shape", n + "x4096"});
    refused({"bench", "kernels", "--format", "q4_0", "--shape", "4096x" + n});
  }
  const Outcome o = refused({"bench", "--shape", "llama-8b", "--type", "f32"});
  EXPECT_EQ(o.code, 3);
  EXPECT_TRUE(contains(o.error, "weights")) << o.error;
  EXPECT_EQ(refused({"bench", "--shape", "llama-8b", "--type", "f32", "--write", path("large.gguf")}).code, 3);
}

TEST_F(Limits, Texts) {
  for (const std::string& n : kHuge) {
    refused({"run", model(), "-p", "A", "-n", "1", "-c", n});
    refused({"run", model(), "-p", "A", "-n", "1", "-c", n, "-b", n});
    refused({"run", model(), "-p", "A", "-n", "1", "-np", "2", "-c", n});
    refused({"run", model(), "-p", "A", "-np", n});
    refused({"perplexity", model(), "-b", n});
    refused({"perplexity", model(), "-c", n});
  }
  // As many tokens as the context holds is no mistake.
  EXPECT_EQ(lumen({"run", model(), "-p", "A", "-n", "2147483647", "-np", "2", "-q"}).code, 0);
}

TEST_F(Limits, Compiling) {
  std::ofstream(path("f.lum")) << "fn f(x: f32[T, 64]) -> f32[T, 64] = x * 2.0\n";
  for (const std::string& n : kHuge)
    refused({"compile", path("f.lum"), "--function", "f", "--symbols", "T=" + n, "--explain"});
}

TEST_F(Limits, ModelsLargerThanWhatIsAllowed) {
  ASSERT_EQ(lumen({"bench", "--shape", "tiny", "--type", "f32", "-p", "8", "-n", "0", "-r", "1"}).code, 0);
  ASSERT_EQ(setenv("LUMEN_MEMORY", "1M", 1), 0);
  for (const std::string what : {"quantize", "run"}) {
    const Outcome o = what == "run" ? lumen({"run", model(), "-p", "A", "-n", "1", "-c", "4000000"})
                                    : lumen({"train", "--shape", "char", "--batch", "64", "-o", path("t")});
    EXPECT_EQ(o.code, 3) << o.error;
  }
  ASSERT_EQ(setenv("LUMEN_MEMORY", "plenty", 1), 0);
  EXPECT_EQ(lumen({"train", "--shape", "char", "--batch", "64", "-o", path("t")}).code, 2);
  ASSERT_EQ(setenv("LUMEN_MEMORY", "2G", 1), 0);
}

}  // namespace
}  // namespace lumen::cli
