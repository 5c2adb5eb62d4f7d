// Needs: cpu. Quantized networks in files: what is read back draws the same bits; texts that lie are refused.
#include "apps/diffuse/stored.h"

#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/structured/json.h"
#include "model/file/checkpoint.h"
#include "tests/apps/diffuse/quantize_case.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

namespace {

const Sampling kFewSteps{.steps = 4, .guidance = 2, .seed = 3, .batch = 4};

TEST(StoredQuantized, DrawsTheSameBits) {
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  const FormatRef f = test_library()->formats().get("int8");
  const QuantizedWeights weights =
      quantize_network(engine(), *network, reads, quantize_method("segquant-g"), {f, f}, 2);
  use_quantized(*network, weights, "few");
  Sampling how = kFewSteps;
  how.change = "few";
  const std::vector<float> drawn = sampled(*network, {0, 1, 2, 3}, how);
  const model::TestFolder folder;
  save_quantized(folder.path(), *network, weights, "segquant-g");
  const DrawingNetwork again = load_drawing(engine(), *test_library(), folder.path());
  EXPECT_EQ(again.method, "segquant-g");
  how.change = again.change;
  EXPECT_EQ(sampled(*again.network, {0, 1, 2, 3}, how), drawn);
  // A run of training is read as well.
  const model::TestFolder plain;
  network->save(plain.path());
  const DrawingNetwork floats = load_drawing(engine(), *test_library(), plain.path());
  EXPECT_EQ(floats.change, "");
  EXPECT_EQ(sampled(*floats.network, {1}, kFewSteps), sampled(*network, {1}, kFewSteps));
  EXPECT_THROW((void)load_drawing(engine(), *test_library(), folder.path() / "nowhere"), Error);
}

TEST(StoredQuantized, TextsThatLieAreRefused) {
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  const FormatRef f = test_library()->formats().get("int8");
  const QuantizedWeights weights = quantize_network(engine(), *network, reads, quantize_method("both"), {f, f}, 0);
  const model::TestFolder folder;
  const std::filesystem::path at = save_quantized(folder.path(), *network, weights, "both");
  const model::file::Checkpoint written = model::file::load_checkpoint(at, test_library()->formats());
  const nlohmann::json good = parse_json(written.state.config, "test");
  const auto refused = [&](const std::function<void(nlohmann::json & product)>& spoil) {
    nlohmann::json bad = good;
    spoil(bad["quantized"]["products"][3]);
    model::file::CheckpointContent content;
    content.state = written.state;
    content.state.config = bad.dump();
    for (const model::file::StoredTensor& t : written.weights->tensors()) content.weights.push_back(t);
    std::vector<uint8_t> bytes;
    content.fetch = [&](const model::file::TensorSpec& spec) {
      bytes = written.weights->get(spec.name).blob();
      return std::span<const uint8_t>(bytes);
    };
    const model::TestFolder other;
    model::file::save_checkpoint(other.path(), content);
    try {
      const DrawingNetwork read = load_drawing(engine(), *test_library(), other.path());
      Sampling how = kFewSteps;
      how.change = read.change;
      (void)sampled(*read.network, {0}, how);
    } catch (const Error& e) {
      return e.code() == Exit::user;
    }
    return false;
  };
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["weight"] = "layers.9.qkv"; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["weights"] = "no such"; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["weights"] = "int8_row"; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["parts"] = nlohmann::json::array(); }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["parts"][0]["rows"] = -1; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["parts"][0]["rows"] = int64_t{1} << 60; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["parts"][0]["rank"] = 1 << 30; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["parts"][0]["column"] = 4; }));
  for (const int64_t places : {0, 2, 3}) EXPECT_TRUE(refused([&](nlohmann::json& p) { p["places"] = places; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p["places"] = "one"; }));
  EXPECT_TRUE(refused([](nlohmann::json& p) { p.erase("parts"); }));
}

}  // namespace
}  // namespace lumen::diffuse
