// needs: cpu. What folders say of numbers that are held while a model runs: written, read again as the same, computed,
// and refused where the config and the tensors disagree.
#include "model/arch/checkpoint/packed/held.h"

#include <cmath>
#include <cstring>

#include "model/arch/checkpoint/packed/scheme.h"
#include "model/arch/function.h"
#include "model/arch/held_formats.h"
#include "number/codec/codec.h"
#include "tests/model/arch/packed/folder_case.h"

namespace lumen::model::arch {
namespace {

namespace fs = std::filesystem;

// All matrices of layers read what is held in the format.
Model holding(Model m, const std::string& format, std::optional<double> scale) {
  std::vector<graph::EncodedInput> inputs;
  for (const Parameter& p : m.parameters)
    if (!p.is_vector() && graph::layer_of(p.name) >= 0) inputs.push_back({p.name, known_formats().get(format), scale});
  if (scale)
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].scale = *scale * (1 + 0.25 * i);
  set_encoded_inputs(m, inputs);
  return m;
}

std::vector<float> session_logits(const Model& m) {
  const infer::LoadedModel loaded(engine(), m);
  infer::Session s(loaded, {.context = 16, .chunk = 4, .exact = true});
  const std::vector<text::TokenId> text = {1, 5, 9, 2, 7};
  const auto logits = s.feed(text);
  return {logits.begin(), logits.end()};
}

double off(const std::vector<float>& got, const std::vector<float>& want) {
  double most = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max<double>(most, std::abs(got[i] - want[i]));
    size = std::max<double>(size, std::abs(want[i]));
  }
  return most / size;
}

struct Case {
  const char *output, *weights, *inputs;
  bool is_static;
  const char* said;  // input_activations, as compressed-tensors' schema has them, or the method's word
};

// Keys and values are those that QuantizationArgs of compressed-tensors 0.20 has.
const Case kCases[] = {
    {"compressed-tensors", "int8_row", "int8_row", false,
     R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"token","dynamic":true,"group_size":null,"observer":null})"},
    {"compressed-tensors", "int8_row", "int8", true,
     R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"tensor","dynamic":false,"group_size":null,"observer":"minmax"})"},
    {"compressed-tensors", "int8", "int8", false,
     R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"tensor","dynamic":true,"group_size":null,"observer":null})"},
    {"compressed-tensors", "int4_g64", "int8_block", false,
     R"({"num_bits":8,"type":"int","symmetric":true,"strategy":"group","dynamic":true,"group_size":32,"observer":null})"},
    {"compressed-tensors", "fp8_row", "fp8_row", false,
     R"({"num_bits":8,"type":"float","symmetric":true,"strategy":"token","dynamic":true,"group_size":null,"observer":null})"},
    {"compressed-tensors", "fp8_tensor", "fp8_tensor", true,
     R"({"num_bits":8,"type":"float","symmetric":true,"strategy":"tensor","dynamic":false,"group_size":null,"observer":"minmax"})"},
    {"fp8", "fp8_tensor", "fp8_tensor", true, R"("static")"},
};

TEST(Held, WrittenAndReadAgain) {
  for (const Case& c : kCases) {
    const std::string what = fmt::format("{} {} {}", c.output, c.weights, c.inputs);
    const auto scale = c.is_static ? std::optional(0.03125) : std::nullopt;
    const Model m = holding(rounded_to(packable_llama(), c.weights), c.inputs, scale);
    const TestFolder folder;
    write_model(m, {folder / "out", c.output});
    const nlohmann::json quantization = quantization_of(folder / "out");
    const nlohmann::json said = quantization.contains("config_groups")
                                    ? quantization["config_groups"]["group_0"]["input_activations"]
                                    : quantization["activation_scheme"];
    EXPECT_EQ(said, nlohmann::json::parse(c.said)) << what;
    if (std::string(c.weights) == "int8_row") {
      EXPECT_EQ(quantization["format"], "int-quantized") << what;
    }
    const Model back = read_hf(test_library(), folder / "out");
    const auto want = encoded_inputs(m), got = encoded_inputs(back);
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(got[i].weight, want[i].weight) << what;
      EXPECT_EQ(got[i].scale.has_value(), c.is_static) << what;
      if (c.is_static) {
        EXPECT_EQ(*got[i].scale, static_cast<float>(*want[i].scale)) << what;
      }
    }
    // It is computed: not what floats give, and what the same formats give in the model itself.
    Model same = rounded_to(packable_llama(), c.weights);
    const std::vector<float> floats = session_logits(same);
    set_encoded_inputs(same, got);
    const std::vector<float> logits = session_logits(back);
    EXPECT_GT(off(logits, floats), 1e-5) << what;
    EXPECT_LT(off(logits, session_logits(same)), 1e-5) << what;
    // And written again with nothing changed.
    write_model(back, {folder / "again", c.output});
    // One scale of integers is read as one for each row, all the same: the file differs, its numbers do not.
    if (std::string(c.weights) == "int8") {
      EXPECT_EQ(session_logits(read_hf(test_library(), folder / "again")), logits) << what;
      continue;
    }
    EXPECT_EQ(read_file(folder / "again" / "model.safetensors"), read_file(folder / "out" / "model.safetensors"))
        << what;
    EXPECT_EQ(quantization_of(folder / "again"), quantization) << what;
  }
}

// Modules that read floats have a group of their own.
TEST(Held, GroupsNameWhatReadsFloats) {
  Model m = holding(rounded_to(packable_llama(), "int8_row"), "int8_row", {});
  std::vector<graph::EncodedInput> inputs = encoded_inputs(m);
  std::erase_if(inputs, [](const auto& i) { return i.weight == "layers.1.down"; });
  set_encoded_inputs(m, inputs);
  const TestFolder folder;
  write_model(m, {folder / "out", "compressed-tensors"});
  const nlohmann::json groups = quantization_of(folder / "out")["config_groups"];
  EXPECT_EQ(groups["group_0"]["targets"], nlohmann::json({"model.layers.1.mlp.down_proj"}));
  EXPECT_TRUE(groups["group_0"]["input_activations"].is_null());
  EXPECT_EQ(groups["group_1"]["targets"], nlohmann::json({"Linear"}));
  EXPECT_EQ(groups["group_1"]["input_activations"]["strategy"], "token");
  const auto got = encoded_inputs(read_hf(test_library(), folder / "out"));
  ASSERT_EQ(got.size(), inputs.size());
  for (const auto& input : got) EXPECT_NE(input.weight, "layers.1.down");
}

// Formulas of the programs that write such folders: half of the whole range of codes is the largest number.
TEST(Held, ScalesAreFittedAsTheirProgramsDo) {
  const auto format_at = [](const std::string& strategy, bool symmetric) {
    for (const HeldRule& r : activation_rules()) {
      const nlohmann::json config = {{"quant_method", "compressed-tensors"},
                                     {"config_groups",
                                      {{"a",
                                        {{"input_activations",
                                          {{"num_bits", 8},
                                           {"type", "int"},
                                           {"strategy", strategy},
                                           {"dynamic", true},
                                           {"symmetric", symmetric}}}}}}}};
      if (holds_conditions(config, r.when)) return format_of_scheme(known_formats(), "test", r.format);
    }
    return FormatRef();
  };
  const std::vector<float> x = {0.5F, -1.0F, 0.25F, 0.0078F, 0.9F, -0.3F, 0.0F, 0.1F};
  const auto rounded = [&](const FormatRef& f) { return decode(*f, encode(*f, x, 1, 8), 1, 8); };
  const auto symmetric = rounded(format_at("token", true)), asymmetric = rounded(format_at("token", false));
  // In floats, as those programs compute: 127.5 steps of such a scale are just less than 1, so that -1 gets code -127.
  const float s = 1 / 127.5F, t = 1.9F / 255, zero = std::rint(-128 + 1 / t);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(symmetric[i], s * std::clamp(std::rint(x[i] / s), -128.0F, 127.0F), 1e-6) << i;
    EXPECT_NEAR(asymmetric[i], t * (std::clamp(std::rint(x[i] / t) + zero, -128.0F, 127.0F) - zero), 1e-6) << i;
  }
}

Model with_cache(const std::string& format) {
  Model m = rounded_to(packable_llama(), "int4_g64");
  set_encoded_state(m, kCacheKeys, known_formats().get(format), {0.0625, 0.125});
  set_encoded_state(m, kCacheValues, known_formats().get(format), {0.03125, 0.25});
  return m;
}

TEST(Held, KeysAndValuesUnderScales) {
  for (const char* format : {"fp8_tensor", "int8"}) {
    const Model m = with_cache(format);
    const TestFolder folder;
    write_model(m, {folder / "out", "compressed-tensors"});
    const nlohmann::json scheme = quantization_of(folder / "out")["kv_cache_scheme"];
    EXPECT_EQ(scheme["num_bits"], 8) << format;
    EXPECT_EQ(scheme["dynamic"], false) << format;
    const file::SafetensorsFile file(folder / "out" / "model.safetensors", known_formats());
    EXPECT_EQ(file.get("model.layers.1.self_attn.v_scale").shape, std::vector<int64_t>{1});
    const Model back = read_hf(test_library(), folder / "out");
    const auto got = encoded_states(back);
    ASSERT_EQ(got.size(), 2U) << format;
    EXPECT_EQ(got[0].scales, (std::vector<double>{0.0625, 0.125})) << format;
    EXPECT_EQ(got[1].scales, (std::vector<double>{0.03125, 0.25})) << format;
    EXPECT_EQ(held_cache(back, kCacheKeys), nullptr) << "nothing is fitted";
    Model floats = m;
    set_held_cache(floats, kCacheKeys, nullptr);
    set_held_cache(floats, kCacheValues, nullptr);
    const std::vector<float> logits = session_logits(back);
    EXPECT_GT(off(logits, session_logits(floats)), 1e-5) << format;
    EXPECT_LT(off(logits, session_logits(m)), format == std::string("int8") ? 0.02 : 1e-5) << format;
  }
}

TEST(Held, RefusedWhereConfigAndTensorsDisagree) {
  const TestFolder folder;
  write_model(holding(rounded_to(packable_llama(), "int8_row"), "int8", 0.03125), {folder / "s", "compressed-tensors"});
  const auto inputs = [](nlohmann::json& q) -> nlohmann::json& {
    return q["config_groups"]["group_0"]["input_activations"];
  };
  ASSERT_EQ(refusal_of(folder / "s"), "");
  change_quantization(folder / "s", [&](auto& q) { inputs(q)["strategy"] = "block"; });
  EXPECT_NE(refusal_of(folder / "s").find("input_activations"), std::string::npos) << refusal_of(folder / "s");
  change_quantization(folder / "s", [&](auto& q) {
    inputs(q)["strategy"] = "tensor";
    inputs(q)["symmetric"] = false;
  });
  EXPECT_NE(refusal_of(folder / "s").find("input_zero_point' is missing"), std::string::npos)
      << refusal_of(folder / "s");
  // A dynamic one leaves scales in the file aside.
  change_quantization(folder / "s", [&](auto& q) {
    inputs(q)["symmetric"] = true;
    inputs(q)["strategy"] = "token";
    inputs(q)["dynamic"] = true;
  });
  ASSERT_EQ(refusal_of(folder / "s"), "");
  EXPECT_FALSE(encoded_inputs(read_hf(test_library(), folder / "s")).front().scale);
  change_quantization(folder / "s", [&](auto& q) { q["config_groups"]["group_0"]["output_activations"] = inputs(q); });
  EXPECT_NE(refusal_of(folder / "s").find("output_activations"), std::string::npos) << refusal_of(folder / "s");
  // Scales that are none, and none at all.
  write_model(with_cache("fp8_tensor"), {folder / "k", "compressed-tensors"});
  change_quantization(folder / "k", [](auto& q) { q["kv_cache_scheme"]["strategy"] = "attn_head"; });
  EXPECT_NE(refusal_of(folder / "k").find("kv_cache_scheme"), std::string::npos) << refusal_of(folder / "k");
  write_model(rounded_to(packable_llama(), "int4_g64"), {folder / "n", "compressed-tensors"});
  change_quantization(folder / "n", [&](auto& q) {
    q["kv_cache_scheme"] = quantization_of(folder / "k")["kv_cache_scheme"];
    q["kv_cache_scheme"]["strategy"] = "tensor";
  });
  EXPECT_NE(refusal_of(folder / "n").find("self_attn.k_scale' is missing"), std::string::npos)
      << refusal_of(folder / "n");
}

TEST(Held, OnlyWhatAFolderCanSayIsWritten) {
  const auto refused = [](const Model& m, const std::string& output) -> std::string {
    const TestFolder folder;
    try {
      write_model(m, {folder / "out", output});
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(folder / "out"));
      return std::string(e.what()) + " | " + e.hint();
    }
    return "";
  };
  const Model m = rounded_to(packable_llama(), "int8_row");
  const std::string mx = refused(holding(m, "mxfp8_e4m3", {}), "compressed-tensors");
  EXPECT_NE(mx.find("mxfp8_e4m3"), std::string::npos) << mx;
  EXPECT_NE(mx.find("int8 (static)"), std::string::npos) << mx;
  EXPECT_NE(refused(holding(rounded_to(packable_llama(), "int4_g64"), "int8_row", {}), "gptq"), "");
  EXPECT_NE(refused(holding(packable_llama(), "int8_row", {}), "compressed-tensors"), "");
  Model fitted = m;
  set_held_cache(fitted, kCacheKeys, known_formats().get("int8_row"));
  EXPECT_NE(refused(fitted, "compressed-tensors").find("without calibrated scales"), std::string::npos);
  Model some = rounded_to(packable_llama(), "fp8_tensor");
  some = holding(some, "fp8_tensor", 0.25);
  std::vector<graph::EncodedInput> inputs = encoded_inputs(some);
  inputs.pop_back();
  set_encoded_inputs(some, inputs);
  EXPECT_NE(refused(some, "fp8").find("one setting for all"), std::string::npos) << refused(some, "fp8");
}

}  // namespace
}  // namespace lumen::model::arch
