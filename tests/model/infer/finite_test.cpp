// needs: none. Weights that are no numbers are found where they matter, and named.
#include "model/infer/session/finite.h"

#include "base/error.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/perplexity.h"
#include "model/infer/session/session_many.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

arch::Model with_value(float value, const std::string& name = "layers.0.up", size_t at = 2 * 12 + 5) {
  arch::Model m = tiny_model();
  std::vector<float> values(m.weights.at(name).f32().begin(), m.weights.at(name).f32().end());
  values[at] = value;
  m.weights.at(name) = arch::f32_weight(m.weights.at(name).type.shape, values);
  return m;
}

template <typename Run>
std::string complaint(const Run& run) {
  try {
    run();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric) << e.what();
    return e.what();
  }
  return "nothing";
}

TEST(Finite, SeesEveryValueThatIsNone) {
  std::vector<float> x(1000, 3e38F);
  EXPECT_TRUE(all_finite(x));
  for (const float bad : {kNan, -kNan, INFINITY, -INFINITY}) {
    x[999] = bad;
    EXPECT_FALSE(all_finite(x));
  }
}

// A matrix that is not small: 520 x 520 numbers.
arch::Model wide_with(float value) {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(
      family,
      family->config("", {{"vocab", 8}, {"hidden", 520}, {"layers", 1}, {"heads", 4}, {"ffn", 520}, {"context", 32}}),
      1);
  std::vector<float> values(m.weights.at("layers.0.up").f32().begin(), m.weights.at("layers.0.up").f32().end());
  values[2 * 520 + 5] = value;
  m.weights.at("layers.0.up") = arch::f32_weight(m.weights.at("layers.0.up").type.shape, values);
  return m;
}

TEST(Finite, SessionsNameTheWeight) {
  const std::vector<text::TokenId> tokens = {1, 2, 3};
  for (const float bad : {kNan, INFINITY}) {
    const arch::Model m = wide_with(bad);
    const LoadedModel loaded(engine(), m);
    const std::string place = fmt::format("'blk.0.ffn_up.weight' holds {} in row 2, column 5", bad);
    EXPECT_NE(complaint([&] { (void)Session(loaded, {}).feed(tokens); }).find(place), std::string::npos);
    EXPECT_NE(complaint([&] { (void)Session(loaded, {}).feed_all(tokens); }).find(place), std::string::npos);
    for (const bool last : {false, true})
      EXPECT_NE(complaint([&] {
                  Session(loaded, {}).feed_on_device(tokens, last, [](const void*, int64_t) { FAIL(); });
                }).find(place),
                std::string::npos);
    EXPECT_NE(complaint([&] {
                SessionOptions room;
                room.context = 64;
                ManySession many(loaded, room);
                const ManySession::Part part{many.open(), tokens};
                (void)many.feed({&part, 1});
              }).find(place),
              std::string::npos);
    EXPECT_NE(complaint([&] {
                PerplexityOptions options;
                options.length = 8;
                (void)perplexity(loaded, std::vector<text::TokenId>(16, 1), options);
              }).find(place),
              std::string::npos);
  }
}

// Rounding what a product is multiplied with would make some number of it: norms are looked at before.
TEST(Finite, NormsAreLookedAtBefore) {
  for (const std::string name : {"layers.0.attn_norm", "layers.1.ffn_norm", "norm"}) {
    const arch::Model broken = with_value(kNan, name, 5);
    const std::string wanted = "'" + broken.find(name)->gguf + "' holds nan in row 0, column 5";
    EXPECT_NE(complaint([&] { const LoadedModel loaded(engine(), broken); }).find(wanted), std::string::npos) << name;
  }
}

TEST(Finite, ScalesThatAreNoneAreFound) {
  const arch::FamilyRef family = test_library()->family("llama");
  const arch::Model m = initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
      1);
  compress::QuantizeOptions options;
  options.target = "q8_0";
  arch::Model broken = quantize(engine(), m, options, nullptr);
  arch::Weight& w = broken.weights.at("layers.1.down");
  std::vector<uint8_t> bytes(w.bytes.begin(), w.bytes.end());
  bytes[0] = 0x00;
  bytes[1] = 0x7e;
  w.bytes = std::move(bytes);
  const std::vector<text::TokenId> tokens = {1, 2, 3};
  const LoadedModel loaded(engine(), broken);
  EXPECT_NE(complaint([&] {
              (void)Session(loaded, {}).feed(tokens);
            }).find("'blk.1.ffn_down.weight' holds nan in row 0, column 0"),
            std::string::npos);
}

TEST(Finite, SaysWhenNoWeightIsAtFault) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  const std::vector<float> values = {0, INFINITY};
  EXPECT_EQ(broken_weight(loaded), "");
  EXPECT_NE(complaint([&] { require_finite(loaded, values, "logits"); }).find("although every weight is"),
            std::string::npos);
}

}  // namespace
}  // namespace lumen::model::infer
