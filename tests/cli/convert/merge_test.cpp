// needs: none. `lumen merge` and `lumen verify` from the outside, and adapters that `lumen train` leaves.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class MergeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-merge-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 400; ++i) text << (i % 3 == 0 ? "the cat sat on the mat. " : "a dog ran to the cat. ");
    text.close();
    ASSERT_EQ(
        lumen({"train",      "--shape", "tiny",     "--data", path("text.txt"), "-c",   "32",           "-b", "4",
               "--steps",    "30",      "--warmup", "2",      "--lr",           "1e-2", "--eval-every", "0",  "-o",
               path("base"), "-q"})
            .code,
        0);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome adapt(const std::string& base, const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "train", "-m",      base,       "--data", path("text.txt"), "--lora", "--lora-rank", "2",
        "-c",    "32",      "-b",       "4",      "--steps",        "6",      "--lr",        "0.1",
        "-o",    path(out), "--warmup", "1",      "--eval-every",   "0",      "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  }
  fs::path folder_;
};

TEST_F(MergeTest, FoldsAndVerifies) {
  const std::string base = path("base/model.gguf");
  ASSERT_EQ(adapt(base, "tuned", {}).code, 0);
  for (const char* name : {"tuned/adapter/adapter_model.safetensors", "tuned/adapter.gguf", "tuned/run.json"})
    EXPECT_TRUE(fs::exists(path(name))) << name;
  for (const char* adapter : {"tuned/adapter", "tuned/adapter.gguf"}) {
    const Outcome o = lumen({"merge", "-m", base, "--lora", path(adapter), "-o", path("merged.gguf"), "--overwrite",
                             "--check", path("text.txt"), "--max-kl", "1e-6", "-c", "32"});
    EXPECT_EQ(o.code, 0) << adapter << o.error << o.out;
  }
  // What a coarse format loses of the change is measured; beyond the bound nothing is written.
  const Outcome coarse = lumen({"merge", base, path("tuned/adapter"), "-o", path("coarse.gguf"), "--type", "q4_0",
                                "--check", path("text.txt"), "--max-kl", "1e-9", "-c", "32"});
  EXPECT_EQ(coarse.code, 5) << coarse.error;
  EXPECT_TRUE(contains(coarse.error, "hint")) << coarse.error;
  EXPECT_FALSE(fs::exists(path("coarse.gguf")));
  // Inputs stay.
  EXPECT_NE(lumen({"merge", base, path("tuned/adapter"), "-o", base, "--no-check"}).code, 0);

  const Outcome same = lumen({"verify", path("tuned")});
  EXPECT_EQ(same.code, 0) << same.error << same.out;
  std::ofstream(path("text.txt"), std::ios::app) << "x";
  const Outcome changed = lumen({"verify", path("tuned")});
  EXPECT_EQ(changed.code, 5) << changed.out;
  EXPECT_TRUE(contains(changed.error, "text.txt")) << changed.error;
  EXPECT_NE(lumen({"verify", path("absent")}).code, 0);
}

// The shipped file is what was trained, to the last bit of its weights, whatever it is packed in.
TEST_F(MergeTest, TrainsWhatShips) {
  ASSERT_EQ(lumen({"quantize", path("base/model.gguf"), path("q4.gguf"), "q4_0", "-q"}).code, 0);
  const Outcome o = adapt(path("q4.gguf"), "shipped", {"--ship", "base", "--max-kl", "1e-6"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(fs::exists(path("shipped/model.gguf")));
  EXPECT_EQ(lumen({"verify", path("shipped")}).code, 0);
  // What is further away than allowed is no success: the adapter stays, no model is left.
  const Outcome far = adapt(path("q4.gguf"), "far", {"--ship", "q8_0", "--max-kl", "0"});
  if (far.code == 0) {
    // Where the shipped file is computed as it was trained but for the rounding of sums, it may be within a bound of 0.
    const std::string words = "KL divergence ", all = far.out + far.error;
    ASSERT_TRUE(contains(all, words)) << all;
    const double nats = std::strtod(all.c_str() + all.find(words) + words.size(), nullptr);
    EXPECT_LE(nats, 0) << all;
    EXPECT_GT(nats, -1e-6) << all;
    EXPECT_TRUE(fs::exists(path("far/model.gguf")));
    EXPECT_EQ(lumen({"verify", path("far")}).code, 0);
    return;
  }
  EXPECT_EQ(far.code, 5) << far.error;
  EXPECT_TRUE(contains(far.error, "ship.max_kl is 0") && contains(far.error, "--resume")) << far.error;
  for (const auto& entry : fs::directory_iterator(path("far"))) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name != "model.gguf" && name != "run.json" && name[0] != '.') << name;
  }
  EXPECT_TRUE(fs::exists(path("far/adapter/adapter_config.json")));
}

}  // namespace
}  // namespace lumen::cli
