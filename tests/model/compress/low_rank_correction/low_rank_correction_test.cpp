// needs: cpu. A rounded model with a low-rank correction beside it is nearer to the original, by what it computes; and
// what is no quantized form of a model is refused.
#include "model/compress/low_rank_correction/low_rank_correction.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/arch/adapter/adapter_write.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/perplexity_divergence.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

arch::Model wide(const std::string& family, graph::Config more, uint32_t seed = 1) {
  graph::Config config = {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 2}, {"ffn", 96}, {"context", 32}};
  for (const auto& [key, value] : more) config[key] = value;
  const arch::FamilyRef f = test_library()->family(family);
  arch::Model m = initialise(f, f->config("", config), seed);
  // Larger weights than a real start, so that errors of weights are errors of logits.
  for (auto& [name, w] : m.weights) {
    if (m.find(name)->frozen || m.find(name)->init == "ones") continue;
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v *= 4;
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

arch::Model rounded_to(const arch::Model& m, const std::string& target, const std::string& embedding = "") {
  QuantizeOptions o;
  o.target = target;
  o.embedding_type = embedding;
  return quantize(engine(), m, o, nullptr);
}

std::vector<text::TokenId> some_text(int64_t count, int64_t seed) {
  std::vector<text::TokenId> out;
  uint32_t state = seed;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    out.push_back((state >> 16) % 40);
  }
  return out;
}

LowRankCorrectionOptions options_of(int64_t rank, bool weighted) {
  LowRankCorrectionOptions o;
  o.factors.rank = rank;
  o.weighted = weighted;
  o.run = {.length = 16, .batch = 2};
  return o;
}

arch::Adapter corrected(const arch::Model& m, const arch::Model& rounded, int64_t rank, bool weighted,
                        LowRankCorrection* all = nullptr) {
  std::optional<LowRankCorrection> found =
      correct_low_rank(engine(), m, rounded, some_text(40 * 16, 1), options_of(rank, weighted));
  EXPECT_TRUE(found);
  if (all) *all = *found;
  return found->adapter;
}

// Of what the rounded model predicts from what the original does, over another text.
double distance(const arch::Model& m, const arch::Model& rounded, const arch::Adapter* adapter) {
  infer::PerplexityOptions o;
  o.length = 16;
  o.exact = true;
  o.full = true;
  const TestFolder folder;
  const std::vector<text::TokenId> text = some_text(20 * 16, 2);
  record_logits(infer::LoadedModel(engine(), m), text, o, folder / "logits");
  std::vector<arch::ScaledAdapter> adapters;
  if (adapter) adapters.push_back({*adapter});
  return divergence(infer::LoadedModel(engine(), rounded, adapters), text, o, folder / "logits").mean;
}

TEST(LowRankCorrection, BringsTheModelNearer) {
  const arch::Model m = wide("llama", {});
  const arch::Model rounded = rounded_to(m, "q4_0", "f32");
  const double plain = distance(m, rounded, nullptr);
  for (const bool weighted : {false, true}) {
    double before = plain;
    for (const int64_t rank : {8, 32, 64}) {
      const arch::Adapter a = corrected(m, rounded, rank, weighted);
      const double now = distance(m, rounded, &a);
      EXPECT_LT(now, 0.9 * before) << rank << " " << weighted;
      before = now;
    }
    EXPECT_LT(before, 0.01 * plain) << weighted;  // all of it is given back
  }
}

TEST(LowRankCorrection, TellsWhatItDid) {
  const arch::Model m = wide("llama", {});
  const arch::Model rounded = rounded_to(m, "q4_0");
  LowRankCorrection all;
  const arch::Adapter a = corrected(m, rounded, 8, true, &all);
  EXPECT_EQ(a.parts.size(), 15u);  // seven of each layer, and the output
  EXPECT_EQ(all.tensors.size(), 16u);
  int left = 0;
  for (const CorrectedTensor& t : all.tensors) {
    if (t.rank == 0) {
      ++left;
      EXPECT_EQ(t.name, "token_embd.weight");
      EXPECT_EQ(t.before.weights, t.after.weights);
      EXPECT_FALSE(t.remark.empty());
      continue;
    }
    EXPECT_EQ(t.rank, 8);
    EXPECT_EQ(t.remark, "");
    EXPECT_LT(t.after.outputs, t.before.outputs) << t.name;
    EXPECT_LT(t.after.weights, t.before.weights) << t.name;
  }
  EXPECT_EQ(left, 1);
  EXPECT_NE(all.text().find("blk.1.ffn_down.weight"), std::string::npos);
}

// The files hold what was found, and carried values in files are those in memory.
TEST(LowRankCorrection, FilesHoldIt) {
  const arch::Model m = wide("llama", {});
  const arch::Model rounded = rounded_to(m, "q4_0");
  const arch::Adapter a = corrected(m, rounded, 8, true);
  const TestFolder folder;
  write_adapter_gguf(rounded, a, folder / "a.gguf");
  const arch::Adapter read = read_adapter(rounded, folder / "a.gguf");
  ASSERT_EQ(read.parts.size(), a.parts.size());
  for (const auto& [name, part] : a.parts) {
    EXPECT_TRUE(read.parts.at(name).a.bytes == part.a.bytes) << name;
    EXPECT_TRUE(read.parts.at(name).b.bytes == part.b.bytes) << name;
    EXPECT_EQ(read.parts.at(name).scale, 1) << name;
  }
  LowRankCorrectionOptions o = options_of(8, true);
  o.folder = folder.path();
  const std::optional<LowRankCorrection> again = correct_low_rank(engine(), m, rounded, some_text(40 * 16, 1), o);
  for (const auto& [name, part] : a.parts) EXPECT_TRUE(again->adapter.parts.at(name).a.bytes == part.a.bytes) << name;
}

TEST(LowRankCorrection, MatricesOfAMixture) {
  const arch::Model m = wide("mixtral", {{"experts", 4}, {"picked", 2}});
  const arch::Model rounded = rounded_to(m, "q4_0");
  LowRankCorrection all;
  const arch::Adapter a = corrected(m, rounded, 16, true, &all);
  EXPECT_EQ(a.parts.at("layers.0.ups").a.type.shape.size(), 3u);
  EXPECT_LT(distance(m, rounded, &a), 0.8 * distance(m, rounded, nullptr));
  // A text of one token reaches two matrices of each layer, and the others are corrected by themselves.
  LowRankCorrectionOptions o = options_of(16, true);
  const std::optional<LowRankCorrection> poor =
      correct_low_rank(engine(), m, rounded, std::vector<text::TokenId>(16, 7), o);
  bool told = false;
  for (const CorrectedTensor& t : poor->tensors) told |= t.remark.find("reached") != std::string::npos;
  EXPECT_TRUE(told);
}

TEST(LowRankCorrection, RefusesOtherModels) {
  const arch::Model m = wide("llama", {}), other = wide("llama", {}, 2), small = wide("llama", {{"layers", 1}});
  const arch::Model rounded = rounded_to(m, "q4_0");
  const auto refused = [&](const arch::Model& original, const arch::Model& of) {
    try {
      correct_low_rank(engine(), original, of, some_text(64, 1), options_of(4, true));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refused(m, m).find("nothing to correct"), std::string::npos);
  EXPECT_NE(refused(small, rounded).find("no quantized form"), std::string::npos);
  EXPECT_NE(refused(rounded, small).find("no quantized form"), std::string::npos);
  arch::Model changed = rounded;
  for (auto& [name, w] : changed.weights) {
    if (!m.find(name)->is_vector() || m.find(name)->frozen) continue;
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v *= 1.1F;
    w = arch::f32_weight(w.type.shape, values);
    break;
  }
  EXPECT_NE(refused(m, changed).find("differs by"), std::string::npos);
  EXPECT_NE(refused(other, rounded).find("differs by"), std::string::npos);
}

TEST(LowRankCorrection, StopsBetweenMatrices) {
  const arch::Model m = wide("llama", {});
  const arch::Model rounded = rounded_to(m, "q4_0");
  for (const bool weighted : {false, true}) {
    int asked = 0;
    EXPECT_FALSE(correct_low_rank(engine(), m, rounded, some_text(64, 1), options_of(4, weighted), {},
                                  [&] { return ++asked > 3; }));
    EXPECT_EQ(asked, 4);
  }
}

}  // namespace
}  // namespace lumen::model::compress
