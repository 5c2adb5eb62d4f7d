// needs: none. Weights in parts as files have them: written and read as GGUF and as folders, and what hostile files
// say.
#include "model/arch/split_weights.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/file/file.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/split/expert_parts.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"

namespace lumen::model::arch {
namespace {

// The columns of a weight in an order, cut.
void cut(Model& m, const std::string& name, const std::vector<int64_t>& columns, const std::vector<int64_t>& order) {
  const Weight whole = m.weights.at(name);
  m.weights.erase(name);
  int64_t begin = 0;
  for (size_t i = 0; i < columns.size(); begin += columns[i++]) {
    std::vector<float> values;
    for (int64_t r = 0; r < whole.rows(); ++r)
      for (int64_t c = begin; c < begin + columns[i]; ++c)
        values.push_back(whole.f32()[r * whole.columns() + order[c]]);
    graph::Shape shape = whole.type.shape;
    shape.back() = graph::Dim(columns[i]);
    m.weights[graph::column_part(name, i)] = f32_weight(shape, values);
  }
}

// Queries, keys and the output of a layer in parts, in one order and in none; hidden 12, 16 columns of wo.
Model split_case(const Model& before) {
  Model m = before;
  std::vector<int64_t> order{7, 1, 0, 11, 3, 2, 10, 9, 4, 5, 6, 8}, plain(16);
  std::iota(plain.begin(), plain.end(), 0);
  cut(m, "layers.0.wq", {4, 8}, order);
  cut(m, "layers.0.wk", {2, 3, 7}, order);
  cut(m, "layers.1.wo", {4, 12}, plain);
  const std::vector<float> numbers(order.begin(), order.end());
  m.weights[order_parameter("layers.0.wq")] = f32_weight({graph::Dim(12)}, numbers);
  const std::string of = order_parameter("layers.0.wq");
  set_column_splits(m, std::vector<graph::ColumnSplit>{
                           {"layers.0.wq", {4, 8}, of}, {"layers.0.wk", {2, 3, 7}, of}, {"layers.1.wo", {4, 12}, ""}});
  m.parameters = own_parameters(m);
  return m;
}

TEST(SplitWeights, ComputeTheSameFromFilesAndFolders) {
  const Model before = tiny_model();
  const Model m = split_case(before);
  EXPECT_EQ(m.weights.size(), m.parameters.size());
  const std::vector<double> want = compress::logits_of(before);
  EXPECT_LT(compress::off(compress::logits_of(m), want), 1e-9);
  const TestFolder folder;
  write_gguf(m, folder / "m.gguf");
  write_hf(m, folder / "hf");
  for (const char* name : {"m.gguf", "hf"}) {
    const Model read = read_model(test_library(), folder / name);
    EXPECT_EQ(read.find("layers.0.wq"), nullptr);
    ASSERT_NE(read.find("layers.0.wk.2"), nullptr);
    EXPECT_EQ(read.find("layers.0.wk.2")->role, "attention_k");
    EXPECT_TRUE(read.find("layers.0.wq.order")->frozen);
    EXPECT_LT(compress::off(compress::logits_of(read), want), 1e-9) << name;
    for (const auto& [parameter, w] : m.weights) EXPECT_TRUE(read.weights.at(parameter).bytes == w.bytes) << parameter;
    StreamedModel streamed = stream_model(test_library(), folder / name);
    for (const Parameter& p : streamed.model.parameters)
      EXPECT_TRUE(fetched(streamed.model, p, streamed.source).bytes == m.weights.at(p.name).bytes) << p.name;
  }
  const nlohmann::json config = nlohmann::json::parse(read_file(folder / "hf" / "config.json"));
  EXPECT_EQ(config.at("model_type"), kSplitModelType);
  EXPECT_EQ(config.at(kSplitMember).size(), 3U);
  // A folder of a folder.
  write_hf(read_hf(test_library(), folder / "hf"), folder / "again");
  EXPECT_LT(compress::off(compress::logits_of(read_hf(test_library(), folder / "again")), want), 1e-9);
}

TEST(SplitWeights, ArePartsOfOwnFormats) {
  Model m = split_case(tiny_model());
  const FormatRef f16 = test_library()->formats().get("f16"), bf16 = test_library()->formats().get("bf16");
  for (const auto& [name, format] : {std::pair("layers.0.wq.0", f16), std::pair("layers.0.wq.1", bf16)}) {
    Weight& w = m.weights.at(name);
    w.bytes = engine().encode(format, w.f32().data(), w.rows(), w.columns());
    w.type.element.format = format;
  }
  const TestFolder folder;
  write_gguf(m, folder / "m.gguf");
  write_hf(m, folder / "hf");
  for (const char* name : {"m.gguf", "hf"}) {
    const Model read = read_model(test_library(), folder / name);
    EXPECT_EQ(read.weights.at("layers.0.wq.0").type.element.format->name, "f16") << name;
    EXPECT_EQ(read.weights.at("layers.0.wq.1").type.element.format->name, "bf16") << name;
  }
}

// Without the key a weight is missing: nobody computes anything.
TEST(SplitWeights, AreRefusedByThoseWhoDoNotKnowTheKey) {
  Model m = split_case(tiny_model());
  const TestFolder folder;
  write_hf(m, folder / "hf");
  nlohmann::json config = nlohmann::json::parse(read_file(folder / "hf" / "config.json"));
  config.erase(kSplitMember);
  write_file_atomic(folder / "hf" / "config.json", config.dump());
  try {
    (void)read_hf(test_library(), folder / "hf");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("q_proj.weight' is missing"), std::string::npos) << e.what();
  }
}

std::string refusal(const Model& m, const std::vector<std::string>& texts, const char* key = kSplitColumns) {
  const TestFolder folder;
  Model hostile = m;
  write_gguf(hostile, folder / "m.gguf");
  // Other words for the same tensors: the model is read by what the file says.
  const file::GgufFile file(folder / "m.gguf", test_library()->formats());
  file::GgufMetadata metadata = file.metadata();
  metadata.set(key, file::GgufArray(texts));
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

TEST(SplitWeights, OfHostileFiles) {
  const Model m = split_case(tiny_model());
  const std::string q = "blk.0.attn_q.weight", k = "blk.0.attn_k.weight 2 3 7 " + q,
                    o = "blk.1.attn_output.weight 4 12";
  EXPECT_EQ(refusal(m, {q + " 4 8 " + q, k, o}), "accepted");
  const auto says = [&](const std::vector<std::string>& texts, const std::string& what) {
    const std::string said = refusal(m, texts);
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  says({q + " 4 7 " + q, k, o}, "have 11 columns, but it has 12");
  says({q + " 4 9 " + q, k, o}, "cannot be");
  says({q + " 4 99999999999999999999 " + q, k, o}, "neither a number of columns nor a weight");
  says({q + " 4 -8 " + q, k, o}, "cannot be");
  says({q + " 12", k, o}, "have 12 columns, but it has 12");
  says({q, k, o}, "have 0 columns");
  says({q + " 4 4 4 " + q, k, o}, "attn_q.weight.1' has shape [16, 8], but the config needs [16, 4]");
  says({q + " 4 8 " + q, q + " 4 8 " + q, k, o}, "twice");
  says({q + " 4 8 " + q, k}, "blk.1.attn_output.weight' is missing");
  says({q + " 4 8 " + q, k, o, "blk.0.attn_v.weight 4 8"}, "blk.0.attn_v.weight.0' is missing");
  says({q + " 4 8 blk.0.attn_v.weight", k, o}, "blk.0.attn_v.weight.order' is missing");
  says({q + " 4 8 blk.0.attn_output.weight", k, o}, "nor a weight that has as many");
  says({q + " 4 8 " + q + " " + q, k, o}, "nor a weight that has as many");
  says({q + " 4 8", "blk.0.attn_k.weight 2 3 7", o}, "blk.0.attn_q.weight.order' is unknown to the family");
  says({q + " 4 8 " + q, k, o, "blk.0.attn_norm.weight 6 6"}, "which is not a weight of the family");
  says({q + " 4 8 " + q, k, o, "\x1b[2J 6 6"}, "which is not a weight of the family");
  says({"", q + " 4 8 " + q, k, o}, "which is not a weight of the family");
  Model tied = tiny_model(1, true);
  cut(tied, "embed", {4, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  set_column_splits(tied, std::vector<graph::ColumnSplit>{{"embed", {4, 8}, ""}});
  tied.parameters = own_parameters(tied);
  EXPECT_NE(refusal(tied, {"token_embd.weight 4 8"}).find("read by more than products"), std::string::npos);
}

// Experts of a mixture: five, whose places in files are by class.
TEST(SplitWeights, ExpertsOfHostileFiles) {
  Model m = compress::uneven_model("mixtral");
  m = with_expert_parts(m, std::vector<compress::ExpertParts>{{{"layers.0.gates"}, {0, 0, 1, 1, 1}}});
  const std::string gates = "blk.0.ffn_gate_exps.weight";
  const auto says = [&](const std::vector<std::string>& texts, const std::string& what) {
    const std::string said = refusal(m, texts, kSplitExperts);
    EXPECT_NE(said.find(what), std::string::npos) << said;
  };
  says({gates + " 2 3"}, "accepted");
  says({gates + " 2 2"}, "have 4 experts, but it has 5");
  says({gates + " 2 4"}, "cannot be");
  says({gates + " 2 -3"}, "cannot be");
  says({gates + " 3 2"}, "but the config needs [3,");
  says({gates + " 99999999999999999999"}, "neither a number of experts nor a weight");
  says({gates + " 5"}, "have 5 experts");
  says({gates}, "have 0 experts");
  says({gates + " 2 3", gates + " 2 3"}, "twice");
  says({gates + " 2 3 blk.0.ffn_up_exps.weight"}, "blk.0.ffn_up_exps.weight.order' is missing");
  says({gates + " 2 3 blk.0.attn_q.weight"}, "nor a weight that has as many");
  says({gates + " 2 3", "blk.0.attn_q.weight 2 3"}, "which is not a stacked weight of the family");
  says({"\x1b[2J 2 3"}, "which is not a stacked weight of the family");
}

TEST(SplitWeights, OrdersThatAreNoPermutations) {
  for (const std::vector<float>& order : {std::vector<float>{7, 1, 0, 11, 3, 2, 10, 9, 4, 5, 6, 6},
                                          {7, 1, 0, 12, 3, 2, 10, 9, 4, 5, 6, 8},
                                          {7, 1, 0, -1, 3, 2, 10, 9, 4, 5, 6, 8},
                                          {7, 1, 0.5, 11, 3, 2, 10, 9, 4, 5, 6, 8},
                                          {7, 1, NAN, 11, 3, 2, 10, 9, 4, 5, 6, 8},
                                          {7, 1, INFINITY, 11, 3, 2, 10, 9, 4, 5, 6, 8}}) {
    Model m = split_case(tiny_model());
    m.weights.at("layers.0.wq.order") = f32_weight({graph::Dim(12)}, order);
    const TestFolder folder;
    write_gguf(m, folder / "m.gguf");
    EXPECT_THROW((void)read_gguf(test_library(), folder / "m.gguf"), Error);
  }
}

}  // namespace
}  // namespace lumen::model::arch
