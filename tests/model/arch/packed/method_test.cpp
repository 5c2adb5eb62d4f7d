// needs: none. Keys of quantization_config: every method's are used, passed over, or refused by name; groups of modules
// are found by their targets.
#include "model/arch/checkpoint/packed/method.h"

#include "model/arch/checkpoint/packed/pack.h"
#include "model/arch/checkpoint/packed/scheme.h"
#include "tests/model/arch/packed/folder_case.h"

namespace lumen::model::arch {
namespace {

std::string refused(const nlohmann::json& config) {
  try {
    check_keys(method_of(config, "config.json"), config, "config.json");
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

// What is written has no key that is refused, and every scheme is of a method.
TEST(Method, DescribesWhatIsWritten) {
  for (const Scheme& s : schemes()) {
    if (s.config.empty()) continue;
    nlohmann::json config = nlohmann::json::parse(filled(
        filled(filled(filled(filled(s.config, "{bits}", "4"), "{group}", "64"), "{size}", "64"), "{strategy}", "group"),
        "{symmetric}", "true"));
    EXPECT_EQ(refused(config), "") << s.name;
    config["of_tomorrow"] = {{"deep", 3}};
    EXPECT_NE(refused(config).find("\"of_tomorrow.deep\" is 3"), std::string::npos)
        << s.name << ": " << refused(config);
    config["of_tomorrow"] = {{"deep", nullptr}};
    EXPECT_EQ(refused(config), "") << s.name << ": null says nothing";
  }
}

// A key whose value changes what is computed, by method.
TEST(Method, RefusesWhatItDoesNotDescribe) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}})", "+:.*down.*"},
      {R"({"quant_method": "gptq", "bits": 4, "adapter": {"name": "eora"}})", "adapter"},
      {R"({"quant_method": "gptq", "bits": 4, "rotation": "hadamard"})", "rotation"},
      {R"({"quant_method": "awq", "bits": 8, "version": "gemm", "zero_point": true})", "bits"},
      {R"({"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": 1})", "zero_point"},
      {R"({"quant_method": "compressed-tensors", "quantization_status": "frozen"})", "quantization_status"},
      {R"({"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"u": {}, "v": 1}}})",
       "transform_config"},
      {R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"}})",
       "sparsity_config.format"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"actorder": "group"}}}})",
       "actorder"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"dynamic": true}}}})", "dynamic"},
      {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"curve": 2}}}})", "curve"},
      {R"({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}})", "kv_cache_scheme"},
      {R"({"quant_method": "fp8", "expert_dtype": "fp4"})", "expert_dtype"},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_of_tomorrow": 1})", "bnb_4bit_of_tomorrow"},
      {R"({"quant_method": "mxfp4", "of_tomorrow": 1})", "of_tomorrow"},
      {R"({"quant_method": "hqq", "nbits": 4})", "hqq"},
  };
  for (const auto& [text, key] : cases)
    EXPECT_NE(refused(nlohmann::json::parse(text)).find(key), std::string::npos) << text << ": " << refused(text);
}

// What other programs write by themselves is read.
TEST(Method, TakesWhatOtherProgramsWrite) {
  for (
      const char* text : {
          R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "desc_act": true, "damp_percent": 0.05,
               "damp_auto_increment": 0.01, "static_groups": false, "true_sequential": true, "lm_head": false,
               "pack_dtype": "int32", "meta": {"quantizer": ["gptqmodel:7.7.0"], "uri": "x", "mse": 0.0},
               "checkpoint_format": "gptq", "dynamic": {"-:.*router.*": {}}, "adapter": null, "backend": "auto"})",
          R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": true,
               "modules_to_not_convert": null, "do_fuse": false, "modules_to_fuse": null, "backend": "autoawq"})",
          R"({"quant_method": "bitsandbytes", "_load_in_4bit": true, "_load_in_8bit": false, "load_in_4bit": true,
               "load_in_8bit": false, "llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false,
               "llm_int8_skip_modules": ["lm_head"], "llm_int8_threshold": 6.0, "bnb_4bit_quant_type": "nf4",
               "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
               "bnb_4bit_use_double_quant": true})",
          R"({"quant_method": "compressed-tensors", "format": "int-quantized", "global_compression_ratio": 1.5,
               "ignore": ["re:.*lm_head"], "kv_cache_scheme": null, "quantization_status": "compressed",
               "sparsity_config": {"format": "dense", "global_sparsity": 0.1, "sparsity_structure": "unstructured"},
               "transform_config": {}, "version": "0.20.1", "config_groups": {"group_0": {"format": "int-quantized",
               "input_activations": {"actorder": null, "block_structure": null, "dynamic": true, "group_size": null,
               "num_bits": 8, "observer": null, "observer_kwargs": {}, "strategy": "token", "symmetric": true,
               "type": "int"}, "output_activations": null, "targets": ["Linear"], "weights": {"actorder": null,
               "block_structure": null, "dynamic": false, "group_size": null, "num_bits": 8, "observer": "minmax",
               "observer_kwargs": {}, "strategy": "channel", "symmetric": true, "type": "int"}}}})",
          R"({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3",
               "scale_fmt": "ue8m0", "modules_to_not_convert": ["lm_head"]})"})
    EXPECT_EQ(refused(nlohmann::json::parse(text)), "") << text;
}

TEST(Method, TheClosestTargetCounts) {
  const ModuleGroup group{{"Linear", "re:.*q_proj", "model.layers.0.mlp.up_proj"}, {}};
  EXPECT_EQ(target_rank(group, "model.layers.0.mlp.up_proj", "f"), 3);
  EXPECT_EQ(target_rank(group, "model.layers.3.self_attn.q_proj", "f"), 2);
  EXPECT_EQ(target_rank(group, "model.layers.3.self_attn.k_proj", "f"), 1);
  EXPECT_EQ(target_rank({{"re:q_proj"}, {}}, "model.q_proj", "f"), 0) << "from the name's beginning";
  EXPECT_THROW((void)target_rank({{"re:("}, {}}, "model.q_proj", "f"), Error);
}

// Two groups of one folder: layers of 8 bits beside such of 4.
TEST(Method, ModulesOfSeveralGroups) {
  Model four = rounded_to(packable_llama(), "int4_g64"), eight = rounded_to(packable_llama(), "int8_row");
  const TestFolder folder;
  write_model(four, {folder / "four", "compressed-tensors"});
  write_model(eight, {folder / "eight", "compressed-tensors"});
  const FormatLibrary& formats = known_formats();
  const file::SafetensorsFile a(folder / "four" / "model.safetensors", formats),
      b(folder / "eight" / "model.safetensors", formats);
  std::vector<const file::StoredTensor*> all;
  const std::string mlp = "model.layers.1.mlp.";
  for (const file::StoredTensor& t : a.tensors())
    if (!t.name.starts_with(mlp)) all.push_back(&t);
  for (const file::StoredTensor& t : b.tensors())
    if (t.name.starts_with(mlp)) all.push_back(&t);
  std::vector<file::TensorSpec> specs;
  for (const file::StoredTensor* t : all) {
    file::TensorSpec spec;
    spec.name = t->name;
    spec.shape = t->shape;
    spec.element = t->element;
    specs.push_back(spec);
  }
  std::filesystem::create_directory(folder / "mixed");
  file::SafetensorsWriter writer(folder / "mixed" / "model.safetensors", {}, specs);
  for (const file::StoredTensor* t : all) writer.write(t->blob());
  writer.commit();
  nlohmann::json config = parse_json(read_file(folder / "four" / "config.json"), "config.json");
  nlohmann::json& q = config["quantization_config"];
  q["config_groups"]["group_1"] = quantization_of(folder / "eight")["config_groups"]["group_0"];
  q["config_groups"]["group_1"]["targets"] = {"re:.*layers\\.1\\.mlp\\..*"};
  q["format"] = "mixed-precision";
  write_file_atomic(folder / "mixed" / "config.json", config.dump());
  const Model got = read_hf(test_library(), folder / "mixed");
  EXPECT_NEAR(got.weights.at("layers.0.up").bits_per_weight(), 4.25, 0.3);
  EXPECT_NEAR(got.weights.at("layers.1.up").bits_per_weight(), 8.25, 0.3);
  const auto values = [](const Weight& w) { return decode(*w.type.element.format, w.bytes, w.rows(), w.columns()); };
  EXPECT_EQ(values(got.weights.at("layers.1.down")), values(eight.weights.at("layers.1.down")));
  EXPECT_EQ(values(got.weights.at("layers.1.wq")), values(four.weights.at("layers.1.wq")));
  q["config_groups"]["group_1"]["targets"] = nlohmann::json::array();
  write_file_atomic(folder / "mixed" / "config.json", config.dump());
  EXPECT_NE(refusal_of(folder / "mixed").find("group_1.targets"), std::string::npos) << refusal_of(folder / "mixed");
}

}  // namespace
}  // namespace lumen::model::arch
