"""More cases of families_reference.py: the families that came last."""
import torch
import transformers as t

EXPERTS = dict(gates="mlp.experts.{e}.gate_proj.weight", ups="mlp.experts.{e}.up_proj.weight", downs="mlp.experts.{e}.down_proj.weight")


def whole_convolutions(sizes):
    """transformers writes three equal parts of a convolution, whatever sizes queries, keys and values have: as checkpoints have them."""
    def mend(weights):
        for q in [k for k in weights if k.endswith(".q_conv1d.weight")]:
            names = [q.replace(".q_conv1d.", f".{x}_conv1d.") for x in "qkv"]
            whole = torch.cat([weights[n] for n in names])
            weights.update(zip(names, (p.contiguous() for p in whole.split(sizes))))
        return weights
    return mend


def add(case, small, rope, experts):
    latent = dict(**{**small, "num_hidden_layers": 3, "num_key_value_heads": 4}, kv_lora_rank=12, qk_rope_head_dim=8, qk_nope_head_dim=6, v_head_dim=10, moe_intermediate_size=12)
    attention = "model.layers.1.self_attn."
    case("mistral4", (attention + "q_b_proj.weight", "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.shared_experts.up_proj.weight", "model.layers.0.mlp.up_proj.weight"))(
        lambda: t.Mistral4ForCausalLM(t.Mistral4Config(
            **latent, q_lora_rank=14, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=1, routed_scaling_factor=1.3,
            rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))))
    moe = "block_sparse_moe."
    case("phimoe", (attention + "q_proj.bias", "model.layers.0.input_layernorm.bias", "lm_head.bias", "model.norm.bias"),
         stacked={f"model.layers.1.{moe}gate.weight": ("model.layers.1.mlp.router.weight", 0, 1), **experts(moe + "experts.{e}.w1.weight", moe + "experts.{e}.w3.weight", moe + "experts.{e}.w2.weight")})(
        lambda: t.PhimoeForCausalLM(t.PhimoeConfig(**small, num_local_experts=5, attention_bias=True, lm_head_bias=True, router_jitter_noise=0.2, sliding_window=7)))
    case("phimoe_longrope")(lambda: t.PhimoeForCausalLM(t.PhimoeConfig(**small, num_local_experts=4, rope_parameters=rope(
        "longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.5], original_max_position_embeddings=32, short_mscale=1.2, long_mscale=1.4))))

    delta = {**small, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
    linear = "model.layers.0.linear_attn."
    case("olmo_hybrid", (linear + "q_proj.weight", linear + "a_proj.weight", linear + "A_log", linear + "o_norm.weight", "model.layers.1.self_attn.k_norm.weight"), weights=whole_convolutions([12, 12, 20]))(
        lambda: t.OlmoHybridForCausalLM(t.OlmoHybridConfig(**delta, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=6, linear_value_head_dim=10, rope_parameters=rope("default"))))
    case("olmo_hybrid_still", weights=whole_convolutions([24, 24, 48]))(lambda: t.OlmoHybridForCausalLM(t.OlmoHybridConfig(
        **{**delta, "layer_types": None}, linear_allow_neg_eigval=False, linear_key_head_dim=6, rope_parameters=dict(rope_type="default", rope_theta=None))))
    forget = {"self_attn.forget_gate.": "self_attn."}
    kimi = {k: v for k, v in latent.items() if k != "max_position_embeddings"}
    case("kimi_linear", ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.f_b_proj.weight", "model.layers.0.self_attn.dt_bias", "model.layers.0.self_attn.A_log",
                         "model.layers.0.self_attn.g_a_proj.weight", "model.layers.0.self_attn.o_norm.weight", "model.layers.1.self_attn.kv_a_proj_with_mqa.weight"), named=forget,
         stacked={f"model.layers.1.{moe}gate.weight": ("model.layers.1.mlp.gate.weight", 0, 1), **experts(moe + "experts.{e}.w1.weight", moe + "experts.{e}.w3.weight", moe + "experts.{e}.w2.weight")})(
        lambda: t.KimiLinearForCausalLM(t.KimiLinearConfig(
            **kimi, model_max_length=64, num_shared_experts=1, num_experts_per_token=2, num_experts=6, linear_head_dim=8, linear_num_heads=3,
            layer_types=["linear_attention", "full_attention", "linear_attention"])))
    # As the releases say it: lists of layers, counted from 1.
    case("kimi_linear_lists", config=lambda c: {**{k: v for k, v in c.items() if k not in ("layer_types", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "mlp_layer_types")},
                                                "first_k_dense_replace": 2, "linear_attn_config": {"full_attn_layers": [2, 3], "kda_layers": [1], "head_dim": 6, "num_heads": 4, "short_conv_kernel_size": 3}})(
        lambda: t.KimiLinearForCausalLM(t.KimiLinearConfig(
            **kimi, q_lora_rank=10, model_max_length=64, num_shared_experts=2, num_experts_per_token=2, num_experts=8, num_expert_group=2, first_k_dense_replace=2,
            linear_attn_config={"full_attn_layers": [2, 3], "kda_layers": [1], "head_dim": 6, "num_heads": 4, "short_conv_kernel_size": 3})))

    # Indexers, of which the number of keys they choose is less than that of positions; with many heads equal scores are rare.
    indexed = dict(**latent, q_lora_rank=14, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, index_topk=4, index_head_dim=12, index_n_heads=16)
    scored = (attention + "q_a_proj.weight", attention + "kv_a_proj_with_mqa.weight", attention + "o_proj.weight", "model.layers.1.mlp.gate.weight")
    case("deepseek_v32", scored)(lambda: t.DeepseekV32ForCausalLM(t.DeepseekV32Config(**indexed, n_group=2, topk_group=1, first_k_dense_replace=1, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0))))
    case("glm_moe_dsa", scored)(lambda: t.GlmMoeDsaForCausalLM(t.GlmMoeDsaConfig(**indexed, first_k_dense_replace=1, indexer_types=["full", "shared", "full"])))
    case("glm_moe_dsa_every", config=lambda c: {**{k: v for k, v in c.items() if k != "indexer_types"}, "index_topk_freq": 2, "index_skip_topk_offset": 1})(
        lambda: t.GlmMoeDsaForCausalLM(t.GlmMoeDsaConfig(**indexed, first_k_dense_replace=0, index_topk_freq=2, index_skip_topk_offset=1)))
    case("axk2", (attention + "o_proj.weight", "model.layers.1.input_layernorm.norm.weight"), named={".mlp.fc1.": ".W_down."})(
        lambda: t.AXK2ForCausalLM(t.AXK2Config(**{**indexed, "index_topk": 2}, gated_norm_rank=5)))
    case("axk2_groups")(lambda: t.AXK2ForCausalLM(t.AXK2Config(**{**indexed, "index_topk": 2, "n_routed_experts": 8}, gated_norm_rank=3, n_group=4, topk_group=2, tie_word_embeddings=True)))

    ling = {k: v for k, v in kimi.items() if k != "num_hidden_layers"}
    inner = "model.layers.0.attention."
    case("bailing_hybrid", (inner + "f_proj.weight", inner + "g_proj.weight", inner + "A_log", "model.layers.2.attention.g_proj.weight", "model.layers.2.attention.dense.weight"),
         named={**forget, ".self_attn.o_proj.": ".attention.dense.", "self_attn.": "attention."}, stacked=experts(**EXPERTS))(
        lambda: t.BailingHybridForCausalLM(t.BailingHybridConfig(
            **ling, num_hidden_layers=4, model_max_length=64, num_shared_experts=1, num_experts_per_token=2, num_experts=8, num_expert_group=2, topk_group=1, head_dim=8, layer_group_size=3,
            first_k_dense_replace=1)))
    case("bailing_hybrid_unbounded")(lambda: t.BailingHybridForCausalLM(t.BailingHybridConfig(
        **ling, num_hidden_layers=2, q_lora_rank=10, model_max_length=64, num_shared_experts=2, num_experts_per_token=2, num_experts=6, num_expert_group=1, topk_group=1, head_dim=6,
        layer_group_size=2, first_k_dense_replace=0, kda_safe_gate=False)))
    mimo = dict(**{**small, "num_hidden_layers": 4, "num_key_value_heads": 1}, head_dim=12, v_head_dim=6, sliding_window=6, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2)
    case("mimo_v2_flash", (attention + "k_proj.weight", attention + "attention_sink_bias", "model.layers.0.self_attn.v_proj.weight", "model.layers.1.mlp.gate.weight"),
         named={"self_attn.sinks": "self_attn.attention_sink_bias"}, stacked=experts(**EXPERTS))(lambda: t.MiMoV2FlashForCausalLM(t.MiMoV2FlashConfig(**mimo)))
    case("mimo_v2_flash_mixed")(lambda: t.MiMoV2FlashForCausalLM(t.MiMoV2FlashConfig(
        **{**mimo, "num_key_value_heads": 2, "num_hidden_layers": 3}, attention_bias=True, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        mlp_layer_types=["sparse", "dense", "sparse"], n_group=2, topk_group=1, routed_scaling_factor=1.7, attention_value_scale=None)))
