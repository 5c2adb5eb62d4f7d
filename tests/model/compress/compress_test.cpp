// needs: none. Which tensor gets which format, what is refused, and that weights are what the codec says.
#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "number/codec/codec.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

arch::Model small_model(int64_t hidden = 64, int64_t ffn = 96) {
  const arch::FamilyRef family = test_library()->family("llama");
  return initialise(family,
                    family->config("", {{"vocab", 40},
                                        {"hidden", static_cast<double>(hidden)},
                                        {"layers", 1},
                                        {"heads", 2},
                                        {"ffn", static_cast<double>(ffn)},
                                        {"context", 16}}),
                    1);
}

run::Engine& engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

QuantizeOptions to(const std::string& target) {
  QuantizeOptions o;
  o.target = target;
  return o;
}

TEST(ChooseFormats, MatricesOnly) {
  const arch::Model m = small_model();
  QuantizeOptions o = to("Q4_0");
  o.pure = true;
  const auto chosen = choose_formats(m, o, nullptr);
  EXPECT_EQ(chosen.size(), 9);  // 7 of the layer, embedding, output
  for (const auto& [name, format] : chosen) {
    EXPECT_EQ(format->name, "q4_0");
    EXPECT_EQ(m.find(name)->shape.size(), 2);
  }
}

TEST(ChooseFormats, RolesAndExpressionsOverride) {
  const arch::Model m = small_model();
  QuantizeOptions o = to("q4_0");
  o.output_type = "q8_0";
  o.embedding_type = "Q8_0";
  o.tensor_types = {{"ffn_(up|down)", "q5_0"}};
  const auto chosen = choose_formats(m, o, nullptr);
  EXPECT_EQ(chosen.at("output")->name, "q8_0");
  EXPECT_EQ(chosen.at("embed")->name, "q8_0");
  EXPECT_EQ(chosen.at("layers.0.up")->name, "q5_0");
  EXPECT_EQ(chosen.at("layers.0.gate")->name, "q4_0");
  o.pure = true;
  o.tensor_types.clear();
  EXPECT_EQ(choose_formats(m, o, nullptr).at("output")->name, "q4_0");
  o.leave_output = true;
  EXPECT_FALSE(choose_formats(m, o, nullptr).contains("output"));
}

TEST(ChooseFormats, MistakesAreNamed) {
  const arch::Model m = small_model();
  QuantizeOptions o = to("q4_0");
  o.tensor_types = {{"no_such_tensor", "q5_0"}};
  EXPECT_THROW((void)choose_formats(m, o, nullptr), Error);
  o.tensor_types = {{"(", "q5_0"}};
  EXPECT_THROW((void)choose_formats(m, o, nullptr), Error);
  EXPECT_THROW((void)choose_formats(m, to("q4_9"), nullptr), Error);
}

TEST(ChooseFormats, RowsThatDoNotDivideAreRefusedOrReported) {
  const arch::Model m = small_model(64, 100);  // ffn_down has rows of 100
  try {
    (void)choose_formats(m, to("mxfp4"), nullptr);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("blk.0.ffn_down.weight"), std::string::npos) << e.what();
    EXPECT_NE(e.hint().find("--fallback"), std::string::npos);
  }
  QuantizeOptions o = to("mxfp4");
  o.fallbacks = {"q8_0", "f16"};  // the first does not divide either
  QuantizeReport report;
  const auto chosen = choose_formats(m, o, &report);
  EXPECT_EQ(chosen.at("layers.0.down")->name, "f16");
  ASSERT_EQ(report.tensors.size(), 1);
  EXPECT_NE(report.tensors[0].remark.find("100"), std::string::npos);
}

TEST(Quantize, WeightsAreTheCodecsAndTheFileSaysSo) {
  const arch::Model m = small_model();
  QuantizeReport report;
  QuantizeOptions all = to("q4_0");
  all.pure = true;
  const arch::Model q = quantize(engine(), m, all, &report);
  const arch::Weight& w = q.weights.at("layers.0.wq");
  EXPECT_EQ(w.bytes, encode(*w.type.element.format, m.weights.at("layers.0.wq").f32(), w.rows(), w.columns()));
  EXPECT_TRUE(q.weights.at("norm").is_f32());
  EXPECT_EQ(report.file_type, 2);
  EXPECT_GT(report.bits, 4.5);
  EXPECT_LT(report.bits, 5.0);
  for (const QuantizedTensor& t : report.tensors) {
    EXPECT_EQ(t.error > 0.01, t.to != "f32") << t.name;
  }
  EXPECT_NE(report.text().find("blk.0.attn_q.weight"), std::string::npos);

  const TestFolder folder;
  write_gguf(q, folder / "q.gguf", report.file_type);
  const arch::Model back = read_model(test_library(), folder / "q.gguf");
  for (const auto& [name, weight] : q.weights) EXPECT_EQ(back.weights.at(name).bytes, weight.bytes) << name;

  EXPECT_THROW((void)quantize(engine(), q, to("q8_0"), nullptr), Error);  // lossy twice
  QuantizeOptions again = to("q8_0");
  again.allow_requantize = true;
  EXPECT_NO_THROW((void)quantize(engine(), q, again, nullptr));
}

TEST(Quantize, RefusesWhatIsNotFiniteByNameAndPlace) {
  arch::Model m = small_model();
  std::vector<float> values(m.weights.at("layers.0.up").f32().begin(), m.weights.at("layers.0.up").f32().end());
  values[2 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  m.weights.at("layers.0.up") = arch::f32_weight(m.weights.at("layers.0.up").type.shape, values);
  try {
    (void)quantize(engine(), m, to("q8_0"), nullptr);
    FAIL() << "a NaN was rounded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    EXPECT_NE(std::string(e.what()).find("'blk.0.ffn_up.weight' holds nan in row 2, column 5"), std::string::npos)
        << e.what();
  }
}

TEST(Quantize, MixturesComeFromRecipes) {
  const arch::Model m = small_model(256, 512);
  QuantizeReport report;
  const auto chosen = choose_formats(m, to("Q5_K_S"), &report);
  EXPECT_EQ(chosen.at("output")->name, "q6_k");
  EXPECT_EQ(chosen.at("layers.0.wq")->name, "q5_k");
  EXPECT_EQ(report.file_type, 16);
}

// A warning, and no refusal: without importance the weights are rounded as well as they can be.
TEST(Quantize, FewBitsWantAnImportanceMatrix) {
  const arch::Model m = small_model(256, 256);
  QuantizeReport few, more;
  QuantizeOptions o = to("iq2_s");
  o.tensor_types = {{"ffn", "iq2_xxs"}, {"attn", "q2_k"}};
  (void)quantize(engine(), m, o, &few);
  EXPECT_EQ(few.blind, std::vector<std::string>{"iq2_xxs"});
  ASSERT_EQ(few.warnings().size(), 1u);
  EXPECT_NE(few.warnings()[0].find("--imatrix"), std::string::npos);
  (void)quantize(engine(), m, to("q2_k"), &more);
  EXPECT_TRUE(more.warnings().empty());
}

// Files of the older form have the columns of all experts one behind the other.
TEST(Quantize, ImportanceOfExpertsIsTheSameInBothForms) {
  const arch::FamilyRef family = test_library()->family("mixtral");
  const arch::Model m = initialise(
      family, family->config("", {{"vocab", 32}, {"layers", 1}, {"hidden", 64}, {"heads", 2}, {"ffn", 64}}), 1);
  const auto apart = std::make_shared<calibrate::Importance>(), joined = std::make_shared<calibrate::Importance>();
  for (const arch::Parameter& p : m.parameters) {
    if (p.shape.size() != 3) continue;
    calibrate::ImportanceEntry e;
    e.columns = p.shape[2].number();
    e.counts.assign(p.shape[0].number(), 4);
    for (int64_t i = 0; i < e.columns * e.matrices(); ++i)
      e.sums.push_back((i * i + 3 * i) % 29 + (i % 7 == 0 ? 400 : 1));
    apart->entries[p.gguf] = e;
    joined->entries[p.gguf] = {e.columns * e.matrices(), e.sums, {4}};
  }
  ASSERT_FALSE(apart->entries.empty());
  QuantizeOptions plain = to("q4_0"), a = plain, b = plain;
  a.importance = apart;
  b.importance = joined;
  const arch::Model unweighed = quantize(engine(), m, plain, nullptr), one = quantize(engine(), m, a, nullptr),
                    other = quantize(engine(), m, b, nullptr);
  bool counted = false;
  for (const auto& [name, w] : one.weights) {
    EXPECT_TRUE(other.weights.at(name).bytes == w.bytes) << name;
    counted = counted || !(unweighed.weights.at(name).bytes == w.bytes);
  }
  EXPECT_TRUE(counted);
  joined->entries.begin()->second.sums.pop_back();
  joined->entries.begin()->second.columns -= 1;
  EXPECT_THROW((void)quantize(engine(), m, b, nullptr), Error);
}

}  // namespace
}  // namespace lumen::model::compress
