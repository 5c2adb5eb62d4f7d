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

TEST_F(ActivationsTest, ScalesOfCachesAreCalibrated) {
  const Outcome o = quantize("k.gguf", {"int8_row", "--cache-type-k", "fp8_tensor", "--cache-type-v", "fp8_tensor",
                                        "--cache-scales", "static", "--json", path("k.json")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "keys in fp8_tensor, the largest of each layer")) << o.out;
  EXPECT_TRUE(contains(read("k.json"), "values of 2 layers are held in fp8_tensor, static scales")) << read("k.json");
  EXPECT_TRUE(contains(lumen({"inspect", path("k.gguf")}).out, "lumen.cache.key_scales"));
  EXPECT_EQ(lumen({"run", "-m", path("k.gguf"), "-p", "A", "-n", "3", "-q"}).code, 0);
  // Eight bits under calibrated scales stay near floats; a model that ignored its scales would be far.
  ASSERT_EQ(quantize("f.gguf", {"int8_row"}).code, 0);
  const Outcome far = lumen({"compare", path("f.gguf"), path("k.gguf"), "-c", "16", "--chunks", "4", "--no-speed",
                             "--json", path("kc.json")});
  ASSERT_EQ(far.code, 0) << far.error;
  const double kl = nlohmann::json::parse(read("kc.json"))["points"][0]["kl"].get<double>();
  EXPECT_GT(kl, 0) << "keys and values are rounded where a text is read at once, too";
  EXPECT_LT(kl, 0.01);
  // Weights stay as they are: one format for the values alone.
  ASSERT_EQ(quantize("v.gguf", {"--cache-type-v", "int8", "--cache-scales", "static"}).code, 0);
  const Outcome told = lumen({"inspect", path("v.gguf")});
  EXPECT_TRUE(contains(told.out, "lumen.cache.value_scales")) << told.out;
  EXPECT_FALSE(contains(told.out, "lumen.cache.key_scales")) << told.out;
}

TEST_F(ActivationsTest, FoldersSayInWhatCachesAreHeld) {
  const std::vector<std::string> to_folder = {"fp8_row", "--output-format", "compressed-tensors"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), to_folder.begin(), to_folder.end());
    return more;
  };
  const Outcome o = quantize(
      "fk", with({"--cache-type-k", "fp8_tensor", "--cache-type-v", "fp8_tensor", "--cache-scales", "static"}));
  ASSERT_EQ(o.code, 0) << o.error;
  const auto config = nlohmann::json::parse(read("fk/config.json"));
  EXPECT_EQ(config["quantization_config"]["kv_cache_scheme"]["type"], "float") << config;
  EXPECT_TRUE(contains(read("fk/model.safetensors"), "layers.1.self_attn.k_scale"));
  const Outcome run = lumen({"run", "-m", path("fk"), "-p", "A", "-n", "3", "-q"});
  EXPECT_EQ(run.code, 0) << run.error;
  const auto refused = [&](std::vector<std::string> words, const char* what) {
    const Outcome no = quantize("fx", with(std::move(words)));
    EXPECT_NE(no.code, 0);
    EXPECT_TRUE(contains(no.error, what)) << no.error;
    EXPECT_FALSE(std::filesystem::exists(path("fx")));
  };
  refused({"--cache-type-k", "fp8_tensor", "--cache-type-v", "fp8_tensor"}, "add --cache-scales static");
  refused({"--cache-type-k", "fp8_tensor", "--cache-scales", "static"}, "one format for");
  refused({"--cache-type-k", "int8_row", "--cache-type-v", "int8_row", "--cache-scales", "static"}, "has no scale");
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
  refused({"q8_0", "--cache-scales", "static"}, "needs --cache-type-k");
  refused({"--cache-type-k", "int8_row", "--cache-scales", "static"}, "has no scale to calibrate");
  refused({"--activations", "int8", "--keep-spikes", "bf16"}, "needs TYPE");
  refused({"q8_0", "--activations", "int8", "--keep-random", "1"}, "goes with --keep-spikes");
  refused({"q8_0", "--activations", "int8", "--dry-run"}, "--dry-run");
  refused({"--budget", "6bpw", "--activations", "int8"}, "without TYPE");
  refused({"q8_0", "--activations", "int8", "--output-format", "hf"}, "GGUF files and folders of packed weights alone");
}

}  // namespace
}  // namespace lumen::cli
