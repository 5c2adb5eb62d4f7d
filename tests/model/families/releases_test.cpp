// needs: none. Released models by the numbers of their config.json: each finds its family, and has as many weights as
// its makers say.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/arch/family/config_file.h"
#include "tests/model/tiny.h"

namespace lumen::model {
namespace {

struct Release {
  const char* name;
  const char* config;
  const char* family;
  double billions;  // as published, to the digits given
  double within;
};

const std::vector<Release> kReleases = {
    {"A.X 3.1",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 64,
         "num_key_value_heads": 8, "intermediate_size": 21824, "vocab_size": 102400, "max_position_embeddings": 32768,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})",
     "llama", 34.67, 0.005},
    {"A.X 3.1 Light",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 10880, "vocab_size": 102400, "max_position_embeddings": 32768,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})",
     "llama", 7.264800768, 0},
    {"A.X 4.0",
     R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
         "num_key_value_heads": 8, "intermediate_size": 29568, "vocab_size": 102400, "max_position_embeddings": 131072,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "use_sliding_window": false,
         "rope_theta": 1000000.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}})",
     "qwen2", 71.89, 0.005},
    {"A.X 4.0 Light",
     R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
         "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 102400, "max_position_embeddings": 16384,
         "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false, "use_sliding_window": false})",
     "qwen2", 7.26, 0.005},
    {"Kanana nano 2.1B",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 1792, "num_hidden_layers": 32, "num_attention_heads": 24,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8064, "vocab_size": 128256,
         "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true,
         "rope_theta": 500000.0})",
     "llama", 2.087, 0.0005},
    {"Kanana 1.5 8B, long",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "rope_theta": 8000000.0,
         "rope_scaling": {"rope_type": "yarn", "factor": 4.4, "original_max_position_embeddings": 32768, "beta_fast": 64,
                          "beta_slow": 2}})",
     "llama", 8.03, 0.005},
    {"SOLAR 10.7B",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "max_position_embeddings": 4096,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})",
     "llama", 10.73, 0.005},
    {"Midm 2.0 Base",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 131392,
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false})",
     "llama", 11.55, 0.005},
    {"Midm 2.0 Mini",
     R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 1792, "num_hidden_layers": 48, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 4608, "vocab_size": 131392,
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": true})",
     "llama", 2.306, 0.0005},
    {"A.X K1",
     R"({"architectures": ["AXK1ForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64,
         "num_key_value_heads": 64, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 163840,
         "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 192, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
         "routed_scaling_factor": 2.5, "norm_topk_prob": true, "first_k_dense_replace": 1, "attention_bias": false})",
     "axk1", 519, 0.6},
    {"DeepSeek V3",
     R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
         "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280,
         "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 8, "topk_group": 4,
         "routed_scaling_factor": 2.5, "norm_topk_prob": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
         "first_k_dense_replace": 3, "attention_bias": false, "rope_theta": 10000,
         "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                          "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}})",
     "deepseek_v3", 671.03, 0.05},
    {"Solar Pro preview",
     R"({"architectures": ["SolarForCausalLM"], "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40,
         "num_key_value_heads": 10, "intermediate_size": 17920, "vocab_size": 32128, "max_position_embeddings": 4096,
         "sliding_window": 2047, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
         "bskcn_1": [12, 20, 32, 44], "bskcn_2": [20, 32], "bskcn_3": [16, 24, 36, 48], "bskcn_4": [28, 40],
         "bskcn_tv": [0.9, 0.8]})",
     "solar", 22.14, 0.005},
    {"Solar Open 100B",
     R"({"architectures": ["SolarOpenForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64,
         "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 1280, "n_shared_experts": 1, "vocab_size": 196608, "max_position_embeddings": 131072,
         "rms_norm_eps": 1e-5, "rope_theta": 1000000, "partial_rotary_factor": 1.0, "routed_scaling_factor": 1.0,
         "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "hidden_act": "silu", "tie_word_embeddings": false})",
     "solar_open", 102.65, 0.005},
    {"K-EXAONE",
     R"({"architectures": ["ExaoneMoEForCausalLM"], "hidden_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 64,
         "num_key_value_heads": 8, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 2048, "intermediate_size": 18432, "num_shared_experts": 1, "vocab_size": 153600,
         "max_position_embeddings": 262144, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "sliding_window": 128,
         "sliding_window_pattern": "LLLG", "first_last_k_dense_replace": 1, "scoring_func": "sigmoid",
         "topk_method": "noaux_tc", "routed_scaling_factor": 2.5, "norm_topk_prob": true, "n_group": 1, "topk_group": 1,
         "num_nextn_predict_layers": 1, "hidden_act": "silu", "tie_word_embeddings": false})",
     "exaone_moe", 236.6, 0.05},
    {"SmolLM3 3B",
     R"({"architectures": ["SmolLM3ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
         "num_key_value_heads": 4, "intermediate_size": 11008, "vocab_size": 128256, "max_position_embeddings": 65536,
         "rms_norm_eps": 1e-6, "rope_theta": 5000000.0, "rope_scaling": null, "tie_word_embeddings": true,
         "no_rope_layer_interval": 4, "use_sliding_window": false, "sliding_window": null, "attention_bias": false,
         "mlp_bias": false, "hidden_act": "silu"})",
     "smollm3", 3.075, 0.0005},
    {"OLMo 2 7B",
     R"({"architectures": ["Olmo2ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 100352, "max_position_embeddings": 4096,
         "rms_norm_eps": 1e-6, "rope_theta": 500000, "rope_scaling": null, "tie_word_embeddings": false,
         "attention_bias": false, "hidden_act": "silu"})",
     "olmo2", 7.299, 0.0005},
    {"Granite 3.3 2B",
     R"({"architectures": ["GraniteForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 49159, "max_position_embeddings": 131072,
         "rms_norm_eps": 1e-5, "rope_theta": 10000000.0, "rope_scaling": null, "tie_word_embeddings": true,
         "attention_bias": false, "mlp_bias": false, "hidden_act": "silu", "attention_multiplier": 0.015625,
         "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0})",
     "granite", 2.53, 0.005},
    {"Phi-3 mini, 4k",
     R"({"architectures": ["Phi3ForCausalLM"], "hidden_size": 3072, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32064, "max_position_embeddings": 4096,
         "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null,
         "sliding_window": 2047, "tie_word_embeddings": false, "hidden_act": "silu", "embd_pdrop": 0.0, "resid_pdrop": 0.0})",
     "phi3", 3.82, 0.005},
    {"GLM-4.5 Air",
     R"({"architectures": ["Glm4MoeForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 46, "num_attention_heads": 96,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 10944, "moe_intermediate_size": 1408,
         "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "attention_bias": true,
         "use_qk_norm": false, "partial_rotary_factor": 0.5, "rope_theta": 1000000, "rope_scaling": null,
         "vocab_size": 151552, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "num_nextn_predict_layers": 1,
         "tie_word_embeddings": false, "hidden_act": "silu"})",
     "glm4_moe", 106.85, 0.05},
    {"GPT-OSS 20B",
     R"({"architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
         "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32,
         "num_experts_per_tok": 4, "experts_per_token": 4, "vocab_size": 201088, "max_position_embeddings": 131072,
         "initial_context_length": 4096, "rms_norm_eps": 1e-5, "rope_theta": 150000, "sliding_window": 128,
         "attention_bias": true, "swiglu_limit": 7.0, "tie_word_embeddings": false, "hidden_act": "silu",
         "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                          "original_max_position_embeddings": 4096}})",
     "gpt_oss", 20.91, 0.005},
    {"DeepSeek V2 Lite",
     R"({"architectures": ["DeepseekV2ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
         "num_key_value_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "vocab_size": 102400,
         "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": false,
         "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2, "n_group": 1, "topk_group": 1,
         "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false, "routed_scaling_factor": 1.0,
         "first_k_dense_replace": 1, "attention_bias": false, "rope_theta": 10000,
         "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
                          "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707}})",
     "deepseek_v2", 15.706, 0.0005},
    {"Command R7B",
     R"({"architectures": ["Cohere2ForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 256000,
         "max_position_embeddings": 8192, "layer_norm_eps": 1e-5, "rope_theta": 50000, "sliding_window": 4096,
         "sliding_window_pattern": 4, "logit_scale": 0.25, "attention_bias": false, "hidden_act": "silu"})",
     "cohere2", 8.03, 0.005},
};

TEST(Releases, FindTheirFamilyAndTheirWeights) {
  for (const Release& r : kReleases) {
    const nlohmann::json json = nlohmann::json::parse(r.config);
    const arch::FamilyRef family = family_of_config(*test_library(), json);
    EXPECT_EQ(family->name(), r.family) << r.name;
    const graph::Config config = family->config("", read_hf_config(*family, json, r.name));
    double count = 0;
    for (const arch::Parameter& p : family->parameters(config))
      if (!p.frozen) count += static_cast<double>(p.count());
    EXPECT_NEAR(count / 1e9, r.billions, r.within) << r.name;
    // What is computed from the config can be said of all of it.
    EXPECT_FALSE(family->function("hidden", config).nodes.empty()) << r.name;
  }
}

}  // namespace
}  // namespace lumen::model
