// needs: none. `lumen quantize --activations`: files that say in what activations and caches are held, what is told of
// projections, and flags that go together.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class ActivationsTest : public TinyModelTest {
 protected:
  static Outcome quantize(const std::string& out, std::vector<std::string> more) {
    return lumen({"quantize", path("m/model.gguf"), path(out), "-c", "16", "--chunks", "6", "-b", "4"}, more);
  }
};

TEST_F(ActivationsTest, StaticScalesAreKeptInTheFile) {
  const Outcome o = quantize("s.gguf", {"int8_row", "--activations", "int8", "--activation-scales", "static", "--json",
                                        path("s.json"), "--html", path("s.html"), "--cache-type-k", "int8_row"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "held in")) << o.out;
  const auto all = nlohmann::json::parse(read("s.json"));
  EXPECT_EQ(all["spikes"].size(), 14U);  // seven projections of two layers
  EXPECT_EQ(all["tensors"].size(), 16U);
  EXPECT_GE(all["spikes"][0]["ratio"].get<double>(), 1);
  EXPECT_TRUE(contains(read("s.html"), "blk.1.ffn_down.weight"));
  const Outcome told = lumen({"inspect", path("s.gguf")});
  EXPECT_TRUE(contains(told.out, "lumen.activations.scales")) << told.out;
  EXPECT_TRUE(contains(told.out, "lumen.cache.keys")) << told.out;
  EXPECT_EQ(lumen({"run", "-m", path("s.gguf"), "-p", "A", "-n", "3", "-q"}).code, 0);
  const Outcome compared = lumen({"compare", path("m/model.gguf"), path("s.gguf"), "-c", "16", "--chunks", "4",
                                  "--no-speed", "--json", path("c.json")});
  ASSERT_EQ(compared.code, 0) << compared.error;
  EXPECT_GT(nlohmann::json::parse(read("c.json"))["points"][0]["kl"].get<double>(), 0);
  const Outcome wide = quantize("w.gguf", {"--cache-type-k", "q8_0"});
  EXPECT_EQ(wide.code, 1) << "heads of 8";
  EXPECT_TRUE(contains(wide.error, "do not divide into its blocks")) << wide.error;
  EXPECT_EQ(lumen({"export", path("s.gguf"), path("hf"), "--to", "hf"}).code, 1) << "a folder cannot say it";
}

TEST_F(ActivationsTest, AloneAndOfWhatIsRounded) {
  ASSERT_EQ(quantize("a.gguf", {"--activations", "int8_row"}).code, 0);
  ASSERT_EQ(quantize("b.gguf", {"--cache-type-k", "bf16", "--cache-type-v", "bf16"}).code, 0);
  EXPECT_FALSE(contains(lumen({"inspect", path("b.gguf")}).out, "lumen.activations"));
  ASSERT_EQ(quantize("q.gguf", {"q8_0"}).code, 0);
  ASSERT_EQ(
      lumen({"quantize", path("q.gguf"), path("qa.gguf"), "--activations", "mxfp8_e4m3", "-c", "16", "--chunks", "4"})
          .code,
      0);
  EXPECT_EQ(lumen({"run", "-m", path("qa.gguf"), "-p", "A", "-n", "3", "-q"}).code, 0);
}

TEST_F(ActivationsTest, SpikesAreKeptAndRandomOnesForComparison) {
  const std::vector<std::string> all = {"int8_row", "--activations", "int8",        "--activation-scales",
                                        "static",   "--keep-spikes", "fp8_tensor",  "--spike-ratio",
                                        "1.5",      "--json",        path("k.json")};
  ASSERT_EQ(quantize("k.gguf", all).code, 0);
  const auto kept = [&] {
    std::vector<std::string> out;
    const auto report = nlohmann::json::parse(read("k.json"));
    for (const auto& s : report["spikes"])
      if (s.value("kept", false)) out.push_back(s["name"]);
    return out;
  };
  const auto spiky = kept();
  ASSERT_GT(spiky.size(), 0U);
  ASSERT_LT(spiky.size(), 14U);
  std::vector<std::string> random = all;
  random.insert(random.end(), {"--keep-random", "7"});
  ASSERT_EQ(quantize("r.gguf", random).code, 0);
  const auto others = kept();
  EXPECT_LE(others.size(), spiky.size());
  for (const std::string& name : others)
    EXPECT_EQ(std::count(spiky.begin(), spiky.end(), name), 0) << name << " has spikes";
}

TEST_F(ActivationsTest, FlagsThatDoNotGoTogether) {
  const auto refused = [&](std::vector<std::string> words, const char* what) {
    const Outcome o = quantize("x.gguf", std::move(words));
    EXPECT_EQ(o.code, 2) << o.error;
    EXPECT_TRUE(contains(o.error, what)) << o.error;
  };
  refused({"--activations", "nobody"}, "nobody");
  refused({"--activations", "int8_row", "--activation-scales", "static"}, "has no scale to calibrate");
  refused({"q8_0", "--activation-scales", "static"}, "needs --activations");
  refused({"q8_0", "--keep-spikes", "bf16"}, "needs --activations");
  refused({"--activations", "int8", "--keep-spikes", "bf16"}, "needs TYPE");
  refused({"q8_0", "--activations", "int8", "--keep-random", "1"}, "goes with --keep-spikes");
  refused({"q8_0", "--activations", "int8", "--dry-run"}, "--dry-run");
  refused({"--budget", "6bpw", "--activations", "int8"}, "without TYPE");
  refused({"q8_0", "--activations", "int8", "--output-format", "hf"}, "GGUF files and folders of packed weights alone");
}

}  // namespace
}  // namespace lumen::cli
