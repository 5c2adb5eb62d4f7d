// needs: none. Branches of low rank beside weights as files have them: written and read as GGUF and as folders, what
// they compute, and what hostile files say.
#include "model/arch/low_rank_weights.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/arch/held_formats.h"
#include "model/arch/split_weights.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"

namespace lumen::model::arch {
namespace {

// W becomes W - B A, with the branch beside it that gives that back.
void branch_off(Model& m, const std::string& name, int64_t rank) {
  Weight& w = m.weights.at(name);
  const int64_t columns = w.columns(), matrices = w.type.shape.size() == 3 ? w.type.shape[0].number() : 1;
  const int64_t rows = w.rows() / matrices;
  std::vector<float> values(w.f32().begin(), w.f32().end()), a(matrices * rank * columns), b(matrices * rows * rank);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(compress::drawn(3, i) - 0.5);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(compress::drawn(4, i) - 0.5);
  for (int64_t r = 0; r < matrices * rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = 0; i < rank; ++i)
        values[r * columns + c] -= b[r * rank + i] * a[(r / rows * rank + i) * columns + c];
  graph::Shape of_a = w.type.shape, of_b = w.type.shape;
  of_a[of_a.size() - 2] = of_b.back() = graph::Dim(rank);
  w = f32_weight(w.type.shape, values);
  m.weights[branch_a(name)] = f32_weight(of_a, a);
  m.weights[branch_b(name)] = f32_weight(of_b, b);
}

Model branched(const Model& before, const std::vector<LowRankBranch>& branches) {
  Model m = before;
  set_low_rank_branches(m, branches);
  m.parameters = own_parameters(m);
  for (const LowRankBranch& b : branches) branch_off(m, b.weight, b.rank);
  return m;
}

Model branched_case() {
  return branched(tiny_model(), {{"layers.0.wq", 3}, {"layers.1.wo", 2}, {"layers.0.down", 1}});
}

TEST(LowRankWeights, ComputeTheSameFromFilesAndFolders) {
  const Model before = tiny_model(), m = branched_case();
  EXPECT_EQ(m.weights.size(), m.parameters.size());
  EXPECT_EQ(m.weight_count(), before.weight_count());
  const std::vector<double> want = compress::logits_of(before);
  EXPECT_LT(compress::off(compress::logits_of(m), want), 1e-6);
  const TestFolder folder;
  write_gguf(m, folder / "m.gguf");
  write_hf(m, folder / "hf");
  for (const char* name : {"m.gguf", "hf"}) {
    const Model read = read_model(test_library(), folder / name);
    const Parameter* const a = read.find("layers.0.wq.a");
    ASSERT_NE(a, nullptr) << name;
    EXPECT_EQ(a->role, kBranchRole);
    EXPECT_TRUE(a->frozen);
    EXPECT_LT(compress::off(compress::logits_of(read), want), 1e-6) << name;
    EXPECT_EQ(low_rank_branches(read).size(), 3U);
    for (const auto& [parameter, w] : m.weights) EXPECT_TRUE(read.weights.at(parameter).bytes == w.bytes) << parameter;
  }
  const nlohmann::json config = nlohmann::json::parse(read_file(folder / "hf" / "config.json"));
  EXPECT_EQ(config.at("model_type"), kLowRankModelType);
  EXPECT_EQ(config.at(kLowRankMember).size(), 3U);
  write_hf(read_hf(test_library(), folder / "hf"), folder / "again");
  EXPECT_LT(compress::off(compress::logits_of(read_hf(test_library(), folder / "again")), want), 1e-6);
  EXPECT_THROW(require_writable_as(m, "gptq"), Error);
}

// Without the branches something else is computed: others must not take such a folder for a model.
TEST(LowRankWeights, AreNoOrnament) {
  const Model m = branched_case();
  Model without = m;
  set_low_rank_branches(without, {});
  without.parameters = own_parameters(without);
  EXPECT_GT(compress::off(compress::logits_of(without), compress::logits_of(m)), 1e-3);
}

TEST(LowRankWeights, StandBesideStackedMatrices) {
  const Model before = compress::uneven_model("mixtral");
  std::string stacked;
  for (const Parameter& p : before.parameters)
    if (p.shape.size() == 3 && stacked.empty()) stacked = p.name;
  ASSERT_FALSE(stacked.empty());
  const Model m = branched(before, {{stacked, 2}});
  const std::vector<double> want = compress::logits_of(before);
  EXPECT_LT(compress::off(compress::logits_of(m), want), 1e-6);
  const TestFolder folder;
  write_gguf(m, folder / "m.gguf");
  write_hf(m, folder / "hf");
  for (const char* name : {"m.gguf", "hf"})
    EXPECT_LT(compress::off(compress::logits_of(read_model(test_library(), folder / name)), want), 1e-6) << name;
}

// What the weight reads is rounded, what its branch reads is not.
TEST(LowRankWeights, ReadWhatIsNotRounded) {
  Model m = branched(tiny_model(), {{"layers.0.wq", 3}});
  Weight& w = m.weights.at("layers.0.wq");
  w = f32_weight(w.type.shape, std::vector<float>(w.f32().size()));
  const std::vector<double> want = compress::logits_of(m);
  const FormatRef f = test_library()->formats().get("int8");
  set_encoded_inputs(m, std::vector<graph::EncodedInput>{{"layers.0.wq", f, {}}});
  EXPECT_EQ(compress::off(compress::logits_of(m), want), 0);
}

std::string refusal(const std::vector<std::string>& texts) {
  const TestFolder folder;
  write_gguf(branched_case(), folder / "m.gguf");
  // Other words for the same tensors: the model is read by what the file says.
  const file::GgufFile file(folder / "m.gguf", test_library()->formats());
  file::GgufMetadata metadata = file.metadata();
  metadata.set(kLowRankWeights, file::GgufArray(texts));
  std::vector<file::TensorSpec> specs;
  for (const file::StoredTensor& t : file.tensors()) specs.push_back({t.name, t.shape, t.element});
  file::GgufWriter writer(folder / "hostile.gguf", metadata, specs);
  for (const file::StoredTensor& t : file.tensors()) writer.write(t.blob());
  writer.commit();
  try {
    const Model read = read_gguf(test_library(), folder / "hostile.gguf");
    (void)function_of(read, "forward");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(LowRankWeights, OfHostileFiles) {
  const std::string q = "blk.0.attn_q.weight", o = "blk.1.attn_output.weight 2", d = "blk.0.ffn_down.weight 1";
  EXPECT_EQ(refusal({q + " 3", o, d}), "accepted");
  const auto says = [&](const std::vector<std::string>& texts, const std::string& what) {
    const std::string said = refusal(texts);
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  says({q + " 2", o, d}, "attn_q.weight.a' has shape [3, 12], but the config needs [2, 12]");
  for (const char* rank : {" 0", " -1", " 13", " 99999999999999999999", " 3 3", " x", " ", ""})
    says({q + rank, o, d}, "is not a matrix with a rank from 1 to 12");
  says({q + " 3", q + " 3", o, d}, "twice");
  says({q + " 3", o}, "is unknown to the family");
  says({q + " 3", o, d, "blk.0.attn_v.weight 2"}, "blk.0.attn_v.weight.a' is missing");
  for (const char* name : {"blk.0.attn_norm.weight 1", "blk.0.attn_q.weight.a 1", "\x1b[2J 1", "", " ", "nothing 3"})
    says({q + " 3", o, d, name}, "which is not a matrix of the model");
  // An embedding whose rows are picked has no product that a branch could stand beside.
  Model tied = tiny_model(1, true);
  set_low_rank_branches(tied, std::vector<LowRankBranch>{{"embed", 2}});
  tied.parameters = own_parameters(tied);
  branch_off(tied, "embed", 2);
  try {
    (void)function_of(tied, "forward");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("not only read by products"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lumen::model::arch
