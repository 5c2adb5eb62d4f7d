// needs: none. Folders of packed weights as they are written: read again they are the same numbers, for every scheme
// and every format it takes.
#include "model/arch/checkpoint/packed/pack.h"

#include <cstring>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/packed/same_numbers.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/checkpoint/write.h"
#include "model/compress/quantize.h"
#include "number/codec/codec.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

const FormatLibrary& formats() {
  return test_library()->formats();
}

// Rotated projections, and rows that are no multiple of a tile.
Model small_llama(double extra = 0) {
  const FamilyRef family = test_library()->family("llama");
  return initialise(family,
                    family->config("", {{"vocab", 32},
                                        {"hidden", 256},
                                        {"layers", 1},
                                        {"heads", 2},
                                        {"kv_heads", 1},
                                        {"head_dim", 128},
                                        {"ffn", 320 + extra},
                                        {"context", 16}}),
                    1);
}

Model rounded(const Model& m, const std::string& type, bool stacked = false) {
  compress::QuantizeOptions o;
  o.target = type;
  o.pure = true;
  o.linear_layers = true;
  o.stacked = stacked;
  o.fallbacks = {"bf16"};
  return quantize(engine(), m, o, nullptr);
}

std::vector<float> values(const Weight& w) {
  if (w.is_f32()) return {w.f32().begin(), w.f32().end()};
  return decode(*w.type.element.format, w.bytes, w.rows(), w.columns());
}

void expect_same(const Model& got, const Model& want, const std::string& what) {
  for (const auto& [name, w] : want.weights) {
    const std::vector<float> a = values(got.weights.at(name)), b = values(w);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << what << ": " << name << " " << i;
    EXPECT_LE(got.weights.at(name).bits_per_weight(), w.bits_per_weight() + 1)
        << what << ": " << name << " is expanded";
  }
}

std::string layout_of(const fs::path& folder) {
  return parse_json(read_file(folder / "config.json"), "config")["quantization_config"].value("checkpoint_format", "");
}

class Outputs : public testing::TestWithParam<std::string> {};

TEST_P(Outputs, EveryFormatComesBackAsItWas) {
  int taken = 0;
  const bool stacked = Packing::is_stacked(GetParam());
  const Model m = stacked ? read_hf(test_library(), kFamilies / "gpt_oss") : small_llama();
  for (const FormatRef& f : formats().all()) {
    if (!f->encodes() || f->block > 64 || !Packing::takes(GetParam(), formats(), f)) continue;
    const Model q = rounded(m, f->name, stacked);
    const TestFolder folder;
    write_model(q, {folder / "out", GetParam()});
    expect_same(read_hf(test_library(), folder / "out"), q, GetParam() + " " + f->name);
    // And once more, of what was read, which has scales for rows where there was one for all.
    const Model again = read_hf(test_library(), folder / "out");
    write_model(again, {folder / "again", GetParam()});
    expect_same(read_hf(test_library(), folder / "again"), q, GetParam() + " again " + f->name);
    // A zero point that was constant is one for each group when it was read, which another layout may have to say.
    const bool is_one_layout = layout_of(folder / "again") == layout_of(folder / "out");
    EXPECT_TRUE(is_one_layout || GetParam() == "gptq") << f->name;
    EXPECT_TRUE(f->tensor_bytes > 0 || !is_one_layout ||
                read_file(folder / "again" / "model.safetensors") == read_file(folder / "out" / "model.safetensors"))
        << f->name;
    ++taken;
  }
  EXPECT_GT(taken, GetParam() == "mxfp4" ? 0 : 1);
}

INSTANTIATE_TEST_SUITE_P(Pack, Outputs, testing::ValuesIn(Packing::outputs()),
                         [](const auto& i) { return filled(i.param, "-", "_"); });

TEST(Pack, WhatEachTakesIsDecidedByNumbers) {
  const auto takes = [](const std::string& output, const std::string& format) {
    return Packing::takes(output, formats(), formats().get(format));
  };
  EXPECT_TRUE(takes("gptq", "int4_g128"));
  EXPECT_TRUE(takes("gptq", "q4_0"));  // other bits of the same numbers, in groups of 32
  EXPECT_TRUE(takes("gptq", "int4_g128_asym"));
  EXPECT_FALSE(takes("gptq", "int4_g128_affine"));
  EXPECT_FALSE(takes("gptq", "q4_k"));
  EXPECT_TRUE(takes("awq", "int4_g64_asym"));
  EXPECT_FALSE(takes("awq", "q8_0"));
  EXPECT_TRUE(takes("compressed-tensors", "int8_row"));
  EXPECT_TRUE(takes("compressed-tensors", "nvfp4"));
  EXPECT_TRUE(takes("compressed-tensors", "nvfp4_divided"));
  EXPECT_FALSE(takes("compressed-tensors", "nvfp4_tensor"));  // whose factor is the reciprocal of the file's
  EXPECT_TRUE(takes("fp8", "fp8_tile"));
  EXPECT_TRUE(takes("mxfp4", "mxfp4"));
  EXPECT_TRUE(takes("bnb", "nf4"));
  EXPECT_FALSE(takes("bnb", "iq4_nl"));
  EXPECT_FALSE(takes("bnb", "bf16"));
}

// One less than a zero point of 0 wraps round, and readers of the first layout differ on what that says.
TEST(Pack, ZeroPointsThatVaryAreWrittenAsTheyAre) {
  const TestFolder folder;
  write_model(rounded(small_llama(), "int2_g64"), {folder / "fixed", "gptq"});
  write_model(rounded(small_llama(), "int2_g64_asym"), {folder / "varied", "gptq"});
  EXPECT_EQ(layout_of(folder / "fixed"), "gptq");
  EXPECT_EQ(layout_of(folder / "varied"), "gptq_v2");
}

TEST(Pack, RefusesByNameAndSaysWhatFits) {
  const Model q = rounded(small_llama(), "q4_k");
  const TestFolder folder;
  try {
    write_model(q, {folder / "out", "gptq"});
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("model.layers.0."), std::string::npos) << text;
    EXPECT_NE(text.find("q4_k"), std::string::npos) << text;
    EXPECT_NE(e.hint().find("int4_g128"), std::string::npos) << e.hint();
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
  // Two that the scheme can say, but not together.
  Model mixed = rounded(small_llama(), "int4_g64");
  mixed.weights["layers.0.wq"] = rounded(small_llama(), "int4_g32").weights.at("layers.0.wq");
  try {
    write_model(mixed, {folder / "out", "gptq"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("cannot hold both"), std::string::npos) << e.what();
  }
}

TEST(Pack, FloatsAreListedAndShardsIndexed) {
  Model q = rounded(small_llama(), "int4_g32");
  q.weights["layers.0.wo"] = small_llama().weights.at("layers.0.wo");
  const TestFolder folder;
  write_hf(small_llama(), folder / "out");  // what was there before does not stay beside the new
  write_model(q, {folder / "out", "compressed-tensors", 100'000});
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "out" / "model-00001-of-00001.safetensors"));
  const auto index = parse_json(read_file(folder / "out" / "model.safetensors.index.json"), "index");
  EXPECT_GT(index["metadata"]["total_size"].get<int64_t>(), 200'000);
  const auto config = parse_json(read_file(folder / "out" / "config.json"), "config");
  const std::vector<std::string> ignore = config["quantization_config"]["ignore"];
  EXPECT_EQ(ignore, (std::vector<std::string>{"lm_head", "model.layers.0.self_attn.o_proj"}));
  expect_same(read_hf(test_library(), folder / "out"), q, "shards");
  write_hf(small_llama(), folder / "out");
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors.index.json"));
  expect_same(read_hf(test_library(), folder / "out"), small_llama(), "one file");
}

TEST(SameNumbers, ScalesCannotBeExchanged) {
  const auto same = [](const std::string& a, const std::string& b) {
    return same_numbers(*formats().get(a), *formats().get(b)).has_value();
  };
  EXPECT_TRUE(same("q4_0", "int4_g32"));
  EXPECT_FALSE(same("int4_g32", "int4_g64"));  // one scale for twice as many
  EXPECT_FALSE(same("int4_g32_asym", "int4_g32"));
  EXPECT_TRUE(same("int4_g64", "int4_g64_asym"));
  EXPECT_FALSE(same("int8_row", "int8"));
  EXPECT_TRUE(same("int8", "int8_row"));
  EXPECT_FALSE(same("nf4", "nf4_f16"));
}

// Hands a weight over as a scheme's own tensors, for other programs to unpack (pack_reference.py).
TEST(PackExchange, Write) {
  const char* out = std::getenv("LUMEN_EXCHANGE_DIR");
  if (!out) GTEST_SKIP() << "without LUMEN_EXCHANGE_DIR";
  const Model m = small_llama(64);
  for (const auto& [output, type] :
       std::vector<std::pair<std::string, std::string>>{{"gptq", "int4_g128"},
                                                        {"gptq", "int3_g32_asym"},
                                                        {"gptq_v2", "int4_g64_asym"},
                                                        {"awq", "int4_g128_asym"},
                                                        {"compressed-tensors", "int4_g64"},
                                                        {"compressed-tensors", "int4_g64_asym"},
                                                        {"compressed-tensors", "int3_g64"},
                                                        {"compressed-tensors", "int8_row"},
                                                        {"compressed-tensors", "fp8_row"},
                                                        {"compressed-tensors", "fp8_tensor"},
                                                        {"compressed-tensors", "fp8_tile"},
                                                        {"compressed-tensors", "nvfp4_divided"},
                                                        {"compressed-tensors", "mxfp4"},
                                                        {"fp8", "fp8_tile"},
                                                        {"fp8", "fp8_tensor"},
                                                        {"bnb", "nf4"},
                                                        {"bnb", "int8_row"}}) {
    const Model q = rounded(m, type);
    write_model(q, {fs::path(out) / (output + "." + type), output});
    Model plain = q;
    for (auto& [name, w] : plain.weights) w = f32_weight(w.type.shape, values(w));
    write_hf(plain, fs::path(out) / (output + "." + type + ".plain"));
  }
}

}  // namespace
}  // namespace lumen::model::arch
