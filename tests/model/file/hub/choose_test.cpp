// needs: none. Which files of a repository make a model.
#include "model/file/hub/choose.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lumen::model::file {
namespace {

std::string label_of_file(const std::string& file) {
  const std::vector<GgufSet> sets = gguf_sets({file});
  return sets.size() == 1 ? sets[0].label : "none";
}

TEST(HubChoice, Labels) {
  EXPECT_EQ(label_of_file("Llama-3.2-1B-Instruct-Q4_K_M.gguf"), "Q4_K_M");
  EXPECT_EQ(label_of_file("qwen2.5-0.5b-instruct-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(label_of_file("gemma-2b.IQ3_XS.gguf"), "IQ3_XS");
  EXPECT_EQ(label_of_file("m-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(label_of_file("BF16/m-BF16.gguf"), "BF16");
  EXPECT_EQ(label_of_file("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(label_of_file("Qwen-7B.gguf"), "Qwen-7B");
  EXPECT_EQ(gguf_sets({"Qwen-7B.gguf"})[0].type(), "GGUF");
  EXPECT_EQ(gguf_sets({"m-UD-Q4_K_XL.gguf"})[0].type(), "UD-Q4_K_XL");
  EXPECT_EQ(label_of_file("mmproj-m-f16.gguf"), "none");
  EXPECT_EQ(label_of_file("m.imatrix.gguf"), "none");
  EXPECT_EQ(label_of_file("m.safetensors"), "none");
}

TEST(HubChoice, ByPartByFileAndByDefault) {
  const std::vector<GgufSet> sets =
      gguf_sets({"README.md", "m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "mmproj-m-F16.gguf",
                 "big/m-BF16-00002-of-00002.gguf", "big/m-BF16-00001-of-00002.gguf"});
  ASSERT_EQ(sets.size(), 4U);
  const auto files = [&](const char* name) { return choose_gguf(sets, parse_hub_name(name)).files; };
  EXPECT_EQ(files("u/r"), FileNames{"m-Q4_K_M.gguf"});
  EXPECT_EQ(files("u/r:q8_0"), FileNames{"m-Q8_0.gguf"});
  EXPECT_EQ(files("u/r:K_S"), FileNames{"m-Q4_K_S.gguf"});
  EXPECT_EQ(files("u/r:bf16"), (FileNames{"big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf"}));
  EXPECT_EQ(files("u/r/big/m-BF16-00002-of-00002.gguf").size(), 2U);
  EXPECT_THROW((void)files("u/r:Q4"), Error);  // two
  EXPECT_THROW((void)files("u/r:Q6_K"), Error);
  EXPECT_THROW((void)files("u/r/absent.gguf"), Error);
}

TEST(HubChoice, TheUsualOne) {
  const auto usual = [](const FileNames& labels) {
    FileNames files;
    for (const std::string& label : labels) files.push_back("m-" + label + ".gguf");
    return choose_gguf(gguf_sets(files), parse_hub_name("u/r")).label;
  };
  EXPECT_EQ(usual({"Q8_0", "Q4_0", "Q4_K_S", "Q4_K_M"}), "Q4_K_M");
  EXPECT_EQ(usual({"BF16", "Q8_0", "Q5_K_M"}), "Q5_K_M");
  EXPECT_EQ(usual({"F16", "Q2_K"}), "F16");
  EXPECT_EQ(usual({"F32", "MXFP4"}), "MXFP4");
}

TEST(HubChoice, WithoutAUsualOne) {
  EXPECT_EQ(choose_gguf(gguf_sets({"only.gguf"}), parse_hub_name("u/r")).files[0], "only.gguf");
  EXPECT_THROW((void)choose_gguf(gguf_sets({"a.gguf", "b.gguf"}), parse_hub_name("u/r")), Error);
  EXPECT_THROW((void)choose_gguf({}, parse_hub_name("u/r")), Error);
}

TEST(HubChoice, MissingParts) {
  const std::vector<GgufSet> sets = gguf_sets({"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"});
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_FALSE(sets[0].is_whole());
  EXPECT_THROW((void)choose_gguf(sets, parse_hub_name("u/r")), Error);
}

TEST(HubChoice, Safetensors) {
  EXPECT_EQ(safetensors_files({"README.md", "config.json", "model.safetensors", "pytorch_model.bin", "tokenizer.json",
                               "onnx/model.safetensors"}),
            (FileNames{"config.json", "tokenizer.json", "model.safetensors"}));
  EXPECT_EQ(
      safetensors_files({"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
                         "model-00002-of-00002.safetensors", "model.safetensors", "model.safetensors.index.json"}),
      (FileNames{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                 "model-00002-of-00002.safetensors"}));
  EXPECT_EQ(safetensors_files({"adapter_config.json", "adapter_model.safetensors"}),
            (FileNames{"adapter_config.json", "adapter_model.safetensors"}));
  EXPECT_TRUE(safetensors_files({"config.json", "pytorch_model.bin"}).empty());
}

}  // namespace
}  // namespace lumen::model::file
