#!/usr/bin/env python3
"""Makes tests/model/fixtures/families: tiny models with random weights as Hugging Face folders, and what the well-known
implementation (transformers and torch, from PyPI, on the CPU) computes with them. Only the results are needed by the tests.

usage: families_reference.py FOLDER [CASE ...]

Each case is a folder: config.json and model.safetensors as transformers writes them (weights are exact in bf16), and
expected.safetensors with `tokens` [2, T], `logits` [2, T, V] in f32, and for some `gradient.NAME`, gradients of the
mean loss of predicting tokens[:, 1:] from tokens[:, :-1]; of experts with {e} in the name, one after another along the first axis.

Families that transformers lacks are made of those it has that compute the same under other names (EXAONE 3 of Llama), or
written here in plain torch.
"""
import json
import os
import sys

import latest_cases
import safetensors.torch
import torch
import transformers as t

T = 23  # no multiple of anything
SMALL = dict(vocab_size=61, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
             pad_token_id=None)  # torch gives a padding token no gradient


def partly(whole):
    """Llama and Qwen2 of transformers take partial_rotary_factor in the config, but rotate whole heads: rotate the first part."""
    def apply(q, k, cos, sin, *rest, **named):
        n = cos.shape[-1]
        a, b = whole(q[..., :n], k[..., :n], cos, sin, *rest, **named)
        return torch.cat((a, q[..., n:]), -1), torch.cat((b, k[..., n:]), -1)
    return apply


for module in (t.models.llama.modeling_llama, t.models.qwen2.modeling_qwen2):
    module.apply_rotary_pos_emb = partly(module.apply_rotary_pos_emb)


def own_rotary(c):
    """Their classes rotate whole heads whatever the key says; what only we can say stands under a name of ours."""
    part = c["rope_parameters"].pop("partial_rotary_factor")
    head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    return {**c, "lumen_config": {"rotary": int(head * part)}}


def rope(kind, **more):
    return dict(rope_theta=1000.0, rope_type=kind, **more)


CASES = {}


def case(name, gradients=(), **more):
    def add(make):
        CASES[name] = (make, gradients, more)
        return make
    return add


ATTENTION = "model.layers.1.self_attn."
DENSE = (ATTENTION + "q_proj.weight", "model.layers.0.mlp.down_proj.weight", "model.norm.weight", "model.embed_tokens.weight")


def llama(**more):
    return t.LlamaForCausalLM(t.LlamaConfig(**{**SMALL, **more}))


case("llama", DENSE)(lambda: llama())
case("llama_tied_bias", DENSE + (ATTENTION + "k_proj.bias",))(
    lambda: llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=12))
case("llama_linear")(lambda: llama(rope_parameters=rope("linear", factor=2.5)))
case("llama_dynamic")(lambda: llama(rope_parameters=rope("dynamic", factor=3.0), max_position_embeddings=16))
case("llama_llama3")(lambda: llama(head_dim=16, rope_parameters=rope(
    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)))
case("llama_yarn")(lambda: llama(head_dim=16, rope_parameters=rope(
    "yarn", factor=4.0, original_max_position_embeddings=16)))
case("llama_yarn_mscale")(lambda: llama(head_dim=16, rope_parameters=rope(
    "yarn", factor=4.4, original_max_position_embeddings=14, beta_fast=64.0, beta_slow=2.0, mscale=0.8,
    mscale_all_dim=0.5, truncate=False)))
case("llama_longrope")(lambda: llama(max_position_embeddings=64, rope_parameters=rope(
    "longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.5],
    original_max_position_embeddings=16)))
case("llama_longrope_short")(lambda: llama(max_position_embeddings=64, rope_parameters=rope(
    "longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.5], attention_factor=1.3,
    original_max_position_embeddings=32)))
case("llama_longrope_one")(lambda: llama(max_position_embeddings=64, rope_parameters=rope(
    "longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.5], factor=1.0,
    original_max_position_embeddings=16)))
case("llama_partial", config=own_rotary)(lambda: llama(head_dim=16, rope_parameters=rope("linear", factor=2.0, partial_rotary_factor=0.5)))
case("olmo", (ATTENTION + "q_proj.weight", "model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight"))(
    lambda: t.OlmoForCausalLM(t.OlmoConfig(**{k: v for k, v in SMALL.items() if k != "rms_norm_eps"}, clip_qkv=1.5)))
case("mistral", DENSE)(lambda: t.MistralForCausalLM(t.MistralConfig(**SMALL, sliding_window=7)))
case("qwen2", DENSE + (ATTENTION + "v_proj.bias",))(lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**SMALL)))
case("qwen2_window")(lambda: t.Qwen2ForCausalLM(t.Qwen2Config(
    **SMALL, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True)))
case("qwen2_partial", config=own_rotary)(lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**{**SMALL, "num_attention_heads": 2}, rope_parameters=rope(
    "yarn", factor=4.0, original_max_position_embeddings=16, partial_rotary_factor=0.5))))
case("qwen3", DENSE + (ATTENTION + "q_norm.weight",))(lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SMALL, head_dim=12)))
case("exaone4", ("model.layers.2.self_attn.q_proj.weight", "model.layers.3.mlp.up_proj.weight",
                 "model.layers.1.post_attention_layernorm.weight"))(
    lambda: t.Exaone4ForCausalLM(t.Exaone4Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=6,
                                                 sliding_window_pattern=4, rope_parameters=rope(
        "llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))))
case("exaone4_global")(lambda: t.Exaone4ForCausalLM(t.Exaone4Config(
    **SMALL, sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 2, tie_word_embeddings=True)))
case("hyperclovax", DENSE + ("model.layers.0.post_norm1.weight",))(lambda: t.HyperCLOVAXForCausalLM(t.HyperCLOVAXConfig(
    **SMALL, embedding_multiplier=10.0, residual_multiplier=0.7, logits_scaling=0.125, attention_multiplier=0.21,
    use_post_norm=True)))
case("hyperclovax_plain")(lambda: t.HyperCLOVAXForCausalLM(t.HyperCLOVAXConfig(**SMALL, use_post_norm=False)))
case("gemma2", DENSE + ("model.layers.0.pre_feedforward_layernorm.weight",))(
    lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**SMALL, head_dim=12, query_pre_attn_scalar=20, sliding_window=6,
                                               attn_logit_softcapping=1.5, final_logit_softcapping=2.0)))
case("gemma3", DENSE)(
    lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(
        **{**SMALL, "num_hidden_layers": 3}, head_dim=12, query_pre_attn_scalar=12, sliding_window=6,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": dict(rope_theta=100000.0, rope_type="linear", factor=8.0),
                         "sliding_attention": dict(rope_theta=10000.0, rope_type="default")})))
case("gpt2", ("transformer.h.1.attn.c_attn.weight", "transformer.h.0.mlp.c_proj.bias", "transformer.wpe.weight",
              "transformer.ln_f.bias"))(
    lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=None,
                                           resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=1, eos_token_id=2)))
MOE = dict(num_experts_per_tok=2)


def experts(gates, ups, downs, layer=1):
    """Names of files, one for each expert, as (parameter, part, parts along the axis before the last) of the implementation."""
    prefix = f"model.layers.{layer}."
    both, down = prefix + "mlp.experts.gate_up_proj", prefix + "mlp.experts.down_proj"
    return {prefix + gates: (both, 0, 2), prefix + ups: (both, 1, 2), prefix + downs: (down, 0, 1)}


QWEN_EXPERTS = dict(gates="mlp.experts.{e}.gate_proj.weight", ups="mlp.experts.{e}.up_proj.weight",
                    downs="mlp.experts.{e}.down_proj.weight")
ROUTED = (ATTENTION + "q_proj.weight", "model.layers.0.mlp.gate.weight", "model.norm.weight")
case("mixtral", ROUTED[:1] + ROUTED[2:], stacked={
    "model.layers.0.block_sparse_moe.gate.weight": ("model.layers.0.mlp.gate.weight", 0, 1),
    **experts("block_sparse_moe.experts.{e}.w1.weight", "block_sparse_moe.experts.{e}.w3.weight",
              "block_sparse_moe.experts.{e}.w2.weight")})(lambda: t.MixtralForCausalLM(t.MixtralConfig(**SMALL, num_local_experts=5, **MOE)))
case("qwen2_moe", ROUTED + ("model.layers.2.mlp.shared_expert_gate.weight", "model.layers.1.mlp.down_proj.weight"),
     stacked=experts(**QWEN_EXPERTS, layer=2))(lambda: t.Qwen2MoeForCausalLM(t.Qwen2MoeConfig(
    **{**SMALL, "num_hidden_layers": 3}, num_experts=6, moe_intermediate_size=20, shared_expert_intermediate_size=24,
    mlp_only_layers=[1], norm_topk_prob=False, num_experts_per_tok=3)))
case("qwen3_moe", ROUTED, stacked=experts(**QWEN_EXPERTS))(lambda: t.Qwen3MoeForCausalLM(t.Qwen3MoeConfig(
    **SMALL, head_dim=12, num_experts=7, moe_intermediate_size=20, norm_topk_prob=True, **MOE)))

MLA = dict(**{**SMALL, "num_hidden_layers": 3, "num_key_value_heads": 4}, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8,
           v_head_dim=10, moe_intermediate_size=20, routed_scaling_factor=1.7)
case("deepseek_v3")(lambda: t.DeepseekV3ForCausalLM(t.DeepseekV3Config(
    **MLA, q_lora_rank=14, n_routed_experts=12, n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=2,
    first_k_dense_replace=1, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16, mscale=1.0,
                                                  mscale_all_dim=0.7))))
case("deepseek_v3_plain")(lambda: t.DeepseekV3ForCausalLM(t.DeepseekV3Config(
    **MLA, q_lora_rank=None, n_routed_experts=5, n_group=1, topk_group=1, num_experts_per_tok=2, first_k_dense_replace=0,
    norm_topk_prob=False, rope_interleave=False)))
case("axk1")(lambda: t.AXK1ForCausalLM(t.AXK1Config(
    **MLA, q_lora_rank=14, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2)))




def scored(c):
    """Released configs say how experts are scored; transformers leaves it out."""
    return {**c, "scoring_func": "sigmoid"}


MSCALE = dict(mscale=1.0, mscale_all_dim=1.0)
case("deepseek_v3_even", config=scored)(lambda: t.DeepseekV3ForCausalLM(t.DeepseekV3Config(
    **MLA, q_lora_rank=14, n_routed_experts=12, n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=1,
    first_k_dense_replace=1, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16, **MSCALE))))
# As Kanana-2-30b-a3b: no latent of queries, one group, two shared experts, YaRN.
case("kanana2", config=scored)(lambda: t.DeepseekV3ForCausalLM(t.DeepseekV3Config(
    **MLA, q_lora_rank=None, n_routed_experts=6, n_group=1, topk_group=1, num_experts_per_tok=3, n_shared_experts=2,
    first_k_dense_replace=1, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16, **MSCALE))))
# As Kanana-1.5: YaRN with its own bounds, head_dim apart from hidden_size / heads, tied.
case("kanana15", DENSE)(lambda: llama(head_dim=12, tie_word_embeddings=True, rope_parameters=rope(
    "yarn", factor=4.4, original_max_position_embeddings=14, beta_fast=64.0, beta_slow=2.0)))
case("gemma2_even")(lambda: t.Gemma2ForCausalLM(t.Gemma2Config(
    **SMALL, head_dim=12, query_pre_attn_scalar=12, sliding_window=6, attn_logit_softcapping=1.5, final_logit_softcapping=2.0)))
case("solar_open", (ATTENTION + "q_proj.weight", "model.norm.weight"), config=lambda c: {**c, "partial_rotary_factor": 1.0})(lambda: t.SolarOpenForCausalLM(t.SolarOpenConfig(
    **SMALL, head_dim=12, n_routed_experts=6, moe_intermediate_size=20, num_experts_per_tok=3, n_shared_experts=1,
    routed_scaling_factor=1.3, n_group=1, topk_group=1)))
case("exaone_moe", config=lambda c: {**scored(c), "sliding_window_pattern": "LLLG"})(lambda: t.ExaoneMoeForCausalLM(t.ExaoneMoeConfig(
    **{**SMALL, "num_hidden_layers": 4}, head_dim=12, sliding_window=6, sliding_window_pattern=4, num_experts=6,
    moe_intermediate_size=20, num_experts_per_tok=3, num_shared_experts=2)))


# As released: every sixth layer sees everything, and only those stretch positions.
case("gemma3_period")(lambda: t.Gemma3ForCausalLM(t.Gemma3TextConfig(
    **{**SMALL, "num_hidden_layers": 6, "hidden_size": 24, "intermediate_size": 28}, head_dim=12, query_pre_attn_scalar=12, sliding_window=6,
    layer_types=["sliding_attention"] * 5 + ["full_attention"],
    rope_parameters={"full_attention": dict(rope_theta=100000.0, rope_type="linear", factor=8.0),
                     "sliding_attention": dict(rope_theta=10000.0, rope_type="default")})))


case("smollm3", DENSE + ("model.layers.3.self_attn.k_proj.weight",))(lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
    **{**SMALL, "num_hidden_layers": 4}, rope_parameters=rope("default"))))
case("smollm3_window", config=lambda c: {**c, "no_rope_layers": c["no_rope_layers"] + [1, 0]})(lambda: t.SmolLM3ForCausalLM(t.SmolLM3Config(
    **SMALL, no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=6, tie_word_embeddings=False)))
case("olmo2", DENSE + (ATTENTION + "k_norm.weight", "model.layers.0.post_feedforward_layernorm.weight"))(
    lambda: t.Olmo2ForCausalLM(t.Olmo2Config(**SMALL)))
case("granite", DENSE)(lambda: t.GraniteForCausalLM(t.GraniteConfig(
    **SMALL, embedding_multiplier=6.0, residual_multiplier=0.3, logits_scaling=4.0, attention_multiplier=0.2)))
case("phi3", (ATTENTION + "qkv_proj.weight", "model.layers.0.mlp.gate_up_proj.weight", "model.layers.0.mlp.down_proj.weight"))(
    lambda: t.Phi3ForCausalLM(t.Phi3Config(**SMALL)))
# As Phi-4 mini: factors for each pair of the part of a head that turns, by the length of the text; and as the first releases say it.
LONG = dict(short_factor=[1.0, 1.1, 1.2], long_factor=[1.5, 2.0, 3.0])
case("phi3_longrope")(lambda: t.Phi3ForCausalLM(t.Phi3Config(
    **SMALL, original_max_position_embeddings=16, tie_word_embeddings=True, rope_parameters=rope("longrope", partial_rotary_factor=0.75, **LONG))))


def first_release(c):
    c["rope_scaling"] = {"type": "su", **LONG}
    return {**c, "rope_theta": c.pop("rope_parameters")["rope_theta"], "partial_rotary_factor": 0.75}


case("phi3_old_config", config=first_release)(lambda: t.Phi3ForCausalLM(t.Phi3Config(
    **SMALL, sliding_window=9, original_max_position_embeddings=16, rope_parameters=rope("longrope", partial_rotary_factor=0.75, **LONG))))
case("glm4_moe", (ATTENTION + "q_proj.bias", "model.layers.1.mlp.gate.weight", "model.layers.0.mlp.up_proj.weight"),
     stacked=experts(**QWEN_EXPERTS))(lambda: t.Glm4MoeForCausalLM(t.Glm4MoeConfig(
    **SMALL, head_dim=12, attention_bias=True, use_qk_norm=True, n_routed_experts=4, moe_intermediate_size=12, num_experts_per_tok=2, n_shared_experts=1, routed_scaling_factor=1.3, first_k_dense_replace=1)))
case("glm4_moe_plain")(lambda: t.Glm4MoeForCausalLM(t.Glm4MoeConfig(
    **SMALL, head_dim=8, n_routed_experts=8, moe_intermediate_size=12, num_experts_per_tok=2, n_shared_experts=2, n_group=4,
    topk_group=2, norm_topk_prob=False, first_k_dense_replace=1, rope_parameters=rope("default", partial_rotary_factor=1.0))))
OSS = dict(**{**SMALL, "intermediate_size": 32}, head_dim=8, num_local_experts=4, sliding_window=6)
YARN = rope("yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=16)


def gpt_oss(**more):
    return t.GptOssForCausalLM(t.GptOssConfig(**{**OSS, "num_experts_per_tok": 2, "rope_parameters": YARN, **more}))


case("gpt_oss", (ATTENTION + "q_proj.bias", ATTENTION + "sinks", "model.layers.0.mlp.router.weight",
                 "model.layers.1.mlp.experts.down_proj", "model.layers.1.mlp.experts.down_proj_bias"))(gpt_oss)
case("gpt_oss_limits")(lambda: gpt_oss(swiglu_limit=0.8, swiglu_alpha=1.3, rope_parameters={**YARN, "truncate": True}))


def in_blocks(path):
    """Experts as released: codes of four bits, two in a byte, the first the lower, and a power of two for each 32. What they stand for
    is what transformers reads them as."""
    weights = safetensors.torch.load_file(f"{path}/model.safetensors")
    for name in [n for n in weights if n.endswith("_proj") and "experts" in n]:
        w = weights.pop(name).float().transpose(-1, -2).contiguous()
        blocks = w.reshape(*w.shape[:-1], -1, 32)
        power = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
        grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        scaled = blocks / torch.exp2(power)[..., None]
        codes = (scaled.abs()[..., None] - grid).abs().argmin(-1) + 8 * (scaled < 0)
        weights[name + "_blocks"] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        weights[name + "_scales"] = (power + 127).to(torch.uint8)
    safetensors.torch.save_file(weights, f"{path}/model.safetensors", {"format": "pt"})
    config = json.load(open(f"{path}/config.json"))
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    json.dump(config, open(f"{path}/config.json", "w"))
    return t.GptOssForCausalLM.from_pretrained(path, dtype=torch.float32, quantization_config=t.Mxfp4Config(dequantize=True))


case("gpt_oss_mxfp4", again=in_blocks)(gpt_oss)
case("cohere2", DENSE[:3])(lambda: t.Cohere2ForCausalLM(t.Cohere2Config(
    **{k: v for k, v in SMALL.items() if k != "rms_norm_eps"} | {"num_hidden_layers": 4}, sliding_window=6, layer_norm_eps=1e-5,
    logit_scale=0.25)))
case("deepseek_v2")(lambda: t.DeepseekV2ForCausalLM(t.DeepseekV2Config(
    **{**MLA, "num_hidden_layers": 2}, q_lora_rank=14, n_routed_experts=8, n_group=4, topk_group=2, topk_method="group_limited_greedy",
    num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1, rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=16, **MSCALE))))
# As V2 Lite: no latent of queries, and groups that nobody asks.
case("deepseek_v2_lite", config=lambda c: {**c, "scoring_func": "softmax"})(lambda: t.DeepseekV2ForCausalLM(t.DeepseekV2Config(
    **{**MLA, "num_hidden_layers": 2}, q_lora_rank=None, n_routed_experts=4, n_group=2, topk_group=1, topk_method="greedy",
    num_experts_per_tok=3, n_shared_experts=2,
    first_k_dense_replace=1)))
case("qwen2_moe_step")(lambda: t.Qwen2MoeForCausalLM(t.Qwen2MoeConfig(
    **{**SMALL, "num_hidden_layers": 4}, num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=16,
    decoder_sparse_step=2, mlp_only_layers=[3], num_experts_per_tok=2)))


def pictures():
    small = {k: v for k, v in SMALL.items() if not k.endswith("_token_id")}
    text = dict(**{**small, "num_hidden_layers": 3}, head_dim=12, query_pre_attn_scalar=12, sliding_window=6, pad_token_id=None,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"])
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=4)
    return t.Gemma3ForConditionalGeneration(t.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=60))


def sparse(c):
    """Released configs leave out what is the class's default."""
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
            "sliding_window", "query_pre_attn_scalar", "layer_types", "rms_norm_eps", "max_position_embeddings")
    text = {k: v for k, v in c["text_config"].items() if k in kept}
    return {**c, "text_config": {**text, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}}


case("gemma3_pictures", config=sparse, under={"model.language_model.": "language_model.model.", "model.vision_tower": "vision_tower",
     "model.multi_modal_projector": "multi_modal_projector"}, again=lambda path: t.Gemma3ForConditionalGeneration.from_pretrained(
         path, dtype=torch.float32))(pictures)


class ShortCuts(t.LlamaForCausalLM):
    """Solar Pro's: what stands before some layers is mixed in before later ones."""

    def __init__(self, config, lists, share):
        super().__init__(config)
        kept = {}

        def before(i):
            def enter(layer, args, named):
                x = args[0]
                for which in (0, 1):
                    if i in lists[which]:
                        kept[which] = x
                for which in (0, 1):
                    if i in lists[2 + which]:
                        x = share * kept[which] + (1 - share) * x
                return (x,) + args[1:], named
            return enter

        for i, layer in enumerate(self.model.layers):
            layer.register_forward_pre_hook(before(i), with_kwargs=True)


SHORT_CUTS = ([1, 2], [2], [2, 3], [4])
case("solar", config=lambda c: {**c, "architectures": ["SolarForCausalLM"], "model_type": "solar", "bskcn_tv": [0.9, 0.8],
                                **{f"bskcn_{n + 1}": SHORT_CUTS[n] for n in range(4)}})(
    lambda: ShortCuts(t.LlamaConfig(**{**SMALL, "num_hidden_layers": 5}), SHORT_CUTS, 0.8))
# Gradients are of training, whose share is another.
case("solar_training", DENSE, config=lambda c: {
    **c, "architectures": ["SolarForCausalLM"], "model_type": "solar", "bskcn_tv": [0.9, 0.9],
    **{f"bskcn_{n + 1}": SHORT_CUTS[n] for n in range(4)}})(
    lambda: ShortCuts(t.LlamaConfig(**{**SMALL, "num_hidden_layers": 5}), SHORT_CUTS, 0.9))


@case("exaone", ("transformer.h.1.attn.attention.q_proj.weight", "transformer.h.0.mlp.c_fc_0.weight"), under={
    "model.embed_tokens": "transformer.wte", "model.layers.": "transformer.h.", "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.attention.out_proj", "self_attn": "attn.attention",
    "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1", "mlp.down_proj": "mlp.c_proj", "model.norm": "transformer.ln_f"},
      config=lambda c: {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "num_layers": c["num_hidden_layers"],
                        "activation_function": "silu", "layer_norm_epsilon": c["rms_norm_eps"], "rope_theta": 1000.0,
                        "rope_scaling": {k: v for k, v in c["rope_parameters"].items() if k != "rope_theta"},
                        **{k: c[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
                                             "num_key_value_heads", "head_dim", "max_position_embeddings",
                                             "tie_word_embeddings")}})
def exaone():
    return llama(rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                      original_max_position_embeddings=16))


def old_style(c):
    """The config as it was written before rope_parameters came."""
    parameters = c.pop("rope_parameters")
    c["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    c["rope_scaling"] = parameters
    return c


case("llama_old_config", config=old_style)(lambda: llama(rope_parameters=rope(
    "yarn", factor=2.0, original_max_position_embeddings=16)))


def old_names(c):
    return {**c, "architectures": ["ExaoneForCausalLM"]}


# As transformers 5 saves EXAONE 3.x: Llama's class, the family's type and tensors, `rope_parameters`. And with the class of the published code.
EXAONE = dict(**SMALL, rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))
case("exaone_again")(lambda: t.LlamaForCausalLM(t.ExaoneConfig(**EXAONE)))
case("exaone_again_class", config=old_names)(lambda: t.LlamaForCausalLM(t.ExaoneConfig(**{**EXAONE, "mlp_bias": True, "attention_bias": True})))
case("solar_again", config=lambda c: {**c, "architectures": ["SolarForCausalLM"], "model_type": "solar", "bskcn_tv": [0.9, 0.8],
                                      **{f"bskcn_{n + 1}": SHORT_CUTS[n] for n in range(4)}})(
    lambda: ShortCuts(t.LlamaConfig(**{**SMALL, "num_hidden_layers": 5}, rope_parameters=rope("linear", factor=2.5)), SHORT_CUTS, 0.8))
case("seed_oss", DENSE)(lambda: t.SeedOssForCausalLM(t.SeedOssConfig(**SMALL, head_dim=12, attention_out_bias=True, mlp_bias=True)))
case("arcee", ("model.layers.0.mlp.up_proj.weight",))(lambda: t.ArceeForCausalLM(t.ArceeConfig(**SMALL)))
case("olmo3", DENSE)(lambda: t.Olmo3ForCausalLM(t.Olmo3Config(**{**SMALL, "num_hidden_layers": 4}, sliding_window=6, rope_parameters={
    "full_attention": rope("yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=1.2),
    "sliding_attention": rope("default")})))
case("glm4", ("model.layers.0.mlp.gate_up_proj.weight", ATTENTION + "q_proj.bias", "model.layers.1.post_mlp_layernorm.weight"))(
    lambda: t.Glm4ForCausalLM(t.Glm4Config(**SMALL, head_dim=16, rope_parameters=rope("default", partial_rotary_factor=0.5))))
case("ernie4_5", DENSE)(lambda: t.Ernie4_5ForCausalLM(t.Ernie4_5Config(**SMALL, head_dim=12, use_bias=True)))
case("hunyuan_dense", DENSE + (ATTENTION + "query_layernorm.weight",))(
    lambda: t.HunYuanDenseV1ForCausalLM(t.HunYuanDenseV1Config(**SMALL, head_dim=12, rope_parameters=rope("dynamic", alpha=50.0, factor=1.0))))
case("glm4_moe_lite")(lambda: t.Glm4MoeLiteForCausalLM(t.Glm4MoeLiteConfig(
    **MLA, q_lora_rank=14, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1)))
case("minimax_m2")(lambda: t.MiniMaxM2ForCausalLM(t.MiniMaxM2Config(
    **{**SMALL, "intermediate_size": 12}, head_dim=12, num_local_experts=4, num_experts_per_tok=2,
    rope_parameters=rope("default", partial_rotary_factor=0.5))))


def bare(c):
    return {**c, "architectures": ["Qwen3Model"]}


# A model saved without its head, tied and not (what predicts tokens of it is the embedding, or nothing), as embedders are published.
case("qwen3_bare", config=bare, under={"model.": ""})(lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**SMALL, head_dim=12, tie_word_embeddings=True)))


def seeing(cls, config, text, vision, **more):
    """A model that reads pictures, whose text part is small."""
    config = config(text_config={k: v for k, v in text.items() if k not in ("bos_token_id", "eos_token_id")}, vision_config=vision, **more)
    return cls(config)


VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=4, spatial_merge_size=1, temporal_patch_size=1)
case("qwen2_5_vl")(lambda: seeing(t.Qwen2_5_VLForConditionalGeneration, t.Qwen2_5_VLConfig, {**SMALL, "rope_parameters": rope("default", mrope_section=[1, 1, 2])},
                                  {**VISION, "out_hidden_size": 32, "fullatt_block_indexes": [0], "window_size": 8}))
case("qwen3_vl")(lambda: seeing(t.Qwen3VLForConditionalGeneration, t.Qwen3VLConfig, {**SMALL, "head_dim": 12, "rope_parameters": rope("default", mrope_section=[2, 2, 2])},
                                {**VISION, "out_hidden_size": 32, "deepstack_visual_indexes": [0], "num_position_embeddings": 4}))
case("qwen3_vl_moe")(lambda: seeing(t.Qwen3VLMoeForConditionalGeneration, t.Qwen3VLMoeConfig,
                                    {**SMALL, "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "norm_topk_prob": True,
                                     "rope_parameters": rope("default", mrope_section=[2, 2, 2])},
                                    {**VISION, "out_hidden_size": 32, "deepstack_visual_indexes": [0], "num_position_embeddings": 4}))
case("exaone4_5")(lambda: seeing(t.Exaone4_5_ForConditionalGeneration, t.Exaone4_5_Config,
                                 {**SMALL, "num_hidden_layers": 4, "model_type": "exaone4", "sliding_window": 6, "sliding_window_pattern": 4},
                                 {**VISION, "out_hidden_size": 32, "fullatt_block_indexes": [0], "window_size": 8, "num_key_value_heads": 1}))
case("hyperclovax_vision_v2")(lambda: seeing(t.HyperCLOVAXVisionV2ForConditionalGeneration, t.HyperCLOVAXVisionV2Config,
                                             {**SMALL, "model_type": "hyperclovax", "use_post_norm": True, "attention_multiplier": 0.21},
                                             {**VISION, "model_type": "qwen2_5_vl_vision", "out_hidden_size": 32, "fullatt_block_indexes": [0], "window_size": 8}))
CLIP = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1, image_size=8, patch_size=4)
case("mistral3")(lambda: seeing(t.Mistral3ForConditionalGeneration, t.Mistral3Config, {**SMALL, "model_type": "mistral", "head_dim": 12, "sliding_window": None},
                                {**CLIP, "model_type": "pixtral"}))
case("llava_onevision")(lambda: seeing(t.LlavaOnevisionForConditionalGeneration, t.LlavaOnevisionConfig,
                                       {**SMALL, "model_type": "qwen3", "head_dim": 12}, {**CLIP, "model_type": "siglip_vision_model"}))


# Layers that recur: three of four by a gated delta rule. Released configs say how often a layer attends, not only which.
DELTA = dict(**{**SMALL, "num_hidden_layers": 4}, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
             linear_value_head_dim=4)
LINEAR = "model.layers.1.linear_attn."
RECURRENT = ("model.layers.3.self_attn.q_proj.weight", LINEAR + "in_proj_qkv.weight", LINEAR + "A_log", LINEAR + "dt_bias", LINEAR + "conv1d.weight",
             LINEAR + "out_proj.weight", LINEAR + "norm.weight", "model.layers.0.input_layernorm.weight")
case("qwen3_5", RECURRENT)(lambda: t.Qwen3_5ForCausalLM(t.Qwen3_5TextConfig(**DELTA, tie_word_embeddings=True)))
case("qwen3_5_kinds", config=lambda c: {**c, "full_attention_interval": 4})(lambda: t.Qwen3_5ForCausalLM(t.Qwen3_5TextConfig(
    **{**DELTA, "num_hidden_layers": 3, "linear_num_value_heads": 2}, layer_types=["full_attention", "linear_attention", "linear_attention"],
    rope_parameters=rope("default", partial_rotary_factor=0.5))))
case("qwen3_5_old_rotation", config=lambda c: {**{k: v for k, v in c.items() if k != "rope_parameters"}, "rope_theta": 1000.0, "rope_scaling": {
    "rope_type": "default", "partial_rotary_factor": 0.5}})(lambda: t.Qwen3_5ForCausalLM(t.Qwen3_5TextConfig(
        **{**DELTA, "num_hidden_layers": 1}, layer_types=["full_attention"], rope_parameters=rope("default", partial_rotary_factor=0.5))))
case("qwen3_5_pictures")(lambda: seeing(t.Qwen3_5ForConditionalGeneration, t.Qwen3_5Config, {**DELTA, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
                                        {**VISION, "out_hidden_size": 32, "num_position_embeddings": 4}))
DELTA_MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=16)
case("qwen3_5_moe")(lambda: t.Qwen3_5MoeForCausalLM(t.Qwen3_5MoeTextConfig(**{k: v for k, v in DELTA.items() if k != "intermediate_size"}, **DELTA_MOE)))


# A third layer attends; the others keep a matrix for each head by a selective scan. Released configs have older names of kinds.
MAMBA = dict(mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=5, mamba_expand=2, mamba_chunk_size=8)
SCAN = ("model.layers.0.mamba.in_proj.weight", "model.layers.0.mamba.A_log", "model.layers.0.mamba.D", "model.layers.0.mamba.dt_bias",
        "model.layers.0.mamba.conv1d.weight", "model.layers.0.mamba.conv1d.bias", "model.layers.0.mamba.norm.weight")
GRANITE_H = dict(**{**SMALL, "num_hidden_layers": 3}, **MAMBA, shared_intermediate_size=44, num_local_experts=0, num_experts_per_tok=0,
                 embedding_multiplier=6.0, residual_multiplier=0.3, logits_scaling=4.0, attention_multiplier=0.2)


def old_kinds(c):
    old = {"linear_attention": "mamba", "full_attention": "attention"}
    return {**c, "layer_types": [old[k] for k in c["layer_types"]]}


case("granite_h", SCAN, config=old_kinds)(lambda: t.GraniteMoeHybridForCausalLM(t.GraniteMoeHybridConfig(
    **GRANITE_H, layer_types=["linear_attention", "full_attention", "linear_attention"], tie_word_embeddings=True)))
case("granite_h_rotated")(lambda: t.GraniteMoeHybridForCausalLM(t.GraniteMoeHybridConfig(
    **{**GRANITE_H, "num_hidden_layers": 2}, layer_types=["full_attention", "linear_attention"], position_embedding_type="rope")))
LFM = {k: v for k, v in SMALL.items() if k != "rms_norm_eps"}
case("lfm2", ("model.layers.0.conv.conv.weight", "model.layers.0.conv.in_proj.weight", "model.layers.1.self_attn.q_proj.weight", "model.layers.0.feed_forward.w1.weight"))(
    lambda: t.Lfm2ForCausalLM(t.Lfm2Config(**{**LFM, "num_hidden_layers": 3}, layer_types=["conv", "full_attention", "conv"], block_multiple_of=20)))
case("lfm2_plain")(lambda: t.Lfm2ForCausalLM(t.Lfm2Config(**LFM, layer_types=["full_attention", "conv"], block_auto_adjust_ff_dim=False, conv_L_cache=4,
                                                          tie_word_embeddings=False)))

case("lfm2_moe")(lambda: t.Lfm2MoeForCausalLM(t.Lfm2MoeConfig(**{**LFM, "num_hidden_layers": 3}, layer_types=["conv", "full_attention", "conv"], num_dense_layers=1,
                                                              num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)))
MAMBA2 = {k: v for k, v in SMALL.items() if k in ("vocab_size", "hidden_size", "num_hidden_layers", "bos_token_id", "eos_token_id", "pad_token_id")}
case("mamba2", ("backbone.layers.1.mixer.in_proj.weight", "backbone.layers.0.mixer.A_log", "backbone.layers.0.mixer.norm.weight", "backbone.embeddings.weight"))(
    lambda: t.Mamba2ForCausalLM(t.Mamba2Config(**MAMBA2, num_heads=8, head_dim=8, state_size=5, n_groups=2, chunk_size=8)))


def old_pattern(c):
    """Released configs have a letter for each layer."""
    letters = {"linear_attention": "M", "mlp": "-", "full_attention": "*"}
    kinds = c.pop("layers_block_type")
    return {**c, "num_hidden_layers": len(kinds), "hybrid_override_pattern": "".join(letters[k] for k in kinds)}


NEMOTRON = {k: v for k, v in SMALL.items() if k not in ("rms_norm_eps", "num_hidden_layers")}
case("nemotron_h", ("backbone.layers.0.mixer.in_proj.weight", "backbone.layers.1.mixer.up_proj.weight", "backbone.layers.2.mixer.q_proj.weight"), under={"model.": "backbone."})(
    lambda: t.NemotronHForCausalLM(t.NemotronHConfig(**NEMOTRON, head_dim=12, layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"],
                                                     ssm_state_size=5, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, chunk_size=8)))
case("nemotron_h_pattern", config=old_pattern)(lambda: t.NemotronHForCausalLM(t.NemotronHConfig(
    **NEMOTRON, head_dim=8, layers_block_type=["linear_attention", "full_attention", "mlp"], ssm_state_size=4, mamba_num_heads=4, mamba_head_dim=8, n_groups=4, chunk_size=8)))

# As published, experts with a feed-forward that all tokens share; and Nemotron 3, whose experts may read a narrower vector.
case("granite_h_moe", ("model.layers.0.shared_mlp.output_linear.weight", "model.layers.0.block_sparse_moe.router.layer.weight"), under={"router.weight": "router.layer.weight"})(
    lambda: t.GraniteMoeHybridForCausalLM(t.GraniteMoeHybridConfig(
        **{**GRANITE_H, "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 12, "shared_intermediate_size": 20},
        layer_types=["linear_attention", "full_attention"])))
NEMOTRON_MOE = dict(**NEMOTRON, head_dim=12, layers_block_type=["linear_attention", "moe", "full_attention", "moe", "linear_attention"], ssm_state_size=5, mamba_num_heads=8,
                    mamba_head_dim=8, n_groups=2, chunk_size=8, n_routed_experts=6, moe_intermediate_size=12, moe_shared_expert_intermediate_size=20, num_experts_per_tok=3,
                    routed_scaling_factor=1.7)
case("nemotron_h_moe", ("backbone.layers.1.mixer.gate.weight", "backbone.layers.3.mixer.shared_experts.up_proj.weight"), under={"model.": "backbone."})(
    lambda: t.NemotronHForCausalLM(t.NemotronHConfig(**NEMOTRON_MOE)))


def pattern_with_experts(c):
    letters = {"linear_attention": "M", "mlp": "-", "full_attention": "*", "moe": "E"}
    kinds = c.pop("layers_block_type")
    return {**c, "num_hidden_layers": len(kinds), "hybrid_override_pattern": "".join(letters[k] for k in kinds)}


case("nemotron_h_moe_narrow", config=pattern_with_experts)(lambda: t.NemotronHForCausalLM(t.NemotronHConfig(**NEMOTRON_MOE, moe_latent_size=20)))
case("qwen3_next", ("model.layers.3.self_attn.q_proj.weight", LINEAR + "in_proj_ba.weight", LINEAR + "A_log", LINEAR + "dt_bias", LINEAR + "conv1d.weight",
                    LINEAR + "out_proj.weight", "model.layers.0.mlp.shared_expert_gate.weight"))(
    lambda: t.Qwen3NextForCausalLM(t.Qwen3NextConfig(**DELTA, **DELTA_MOE)))
case("qwen3_next_step")(lambda: t.Qwen3NextForCausalLM(t.Qwen3NextConfig(
    **{**DELTA, "linear_num_value_heads": 2}, **DELTA_MOE, layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"], decoder_sparse_step=2, norm_topk_prob=False)))

# Layer norms without biases, before attention and feed-forward at once.
COHERE = {k: v for k, v in SMALL.items() if k != "rms_norm_eps"}
case("cohere", DENSE[:3])(lambda: t.CohereForCausalLM(t.CohereConfig(**COHERE, logit_scale=0.25)))
case("cohere_norms", (ATTENTION + "q_norm.weight", ATTENTION + "k_norm.weight"))(lambda: t.CohereForCausalLM(t.CohereConfig(
    **COHERE, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False, rope_parameters=rope("linear", factor=2.5))))
case("cohere2_moe", (ATTENTION + "q_proj.weight", "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.shared_experts.up_proj.weight"), stacked=experts(**QWEN_EXPERTS))(
    lambda: t.Cohere2MoeForCausalLM(t.Cohere2MoeConfig(**{**COHERE, "num_hidden_layers": 5, "intermediate_size": 12}, head_dim=12, sliding_window=6, num_experts=5, num_shared_experts=1,
                                                       expert_selection_fn="sigmoid", first_k_dense_replace=1, prefix_dense_intermediate_size=20, logit_scale=0.25)))
case("cohere2_moe_plain")(lambda: t.Cohere2MoeForCausalLM(t.Cohere2MoeConfig(
    **{**COHERE, "intermediate_size": 12}, head_dim=12, sliding_window=6, num_experts=5, num_experts_per_tok=3, rms_norm_eps=1e-5, tie_word_embeddings=False)))

# As Ministral 3: queries grow beyond the original context; and inside of a model that reads pictures.
GROWTH = rope("yarn", factor=4.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=0.3)
case("ministral3", DENSE)(lambda: t.Ministral3ForCausalLM(t.Ministral3Config(**SMALL, head_dim=16, rope_parameters=GROWTH)))
case("ministral3_pictures")(lambda: seeing(t.Mistral3ForConditionalGeneration, t.Mistral3Config, {**SMALL, "model_type": "ministral3", "head_dim": 12, "rope_parameters": GROWTH},
                                           {**CLIP, "model_type": "pixtral"}))

SCORED = dict(moe_intermediate_size=12, num_experts_per_tok=2)
case("dots1", (ATTENTION + "q_norm.weight", "model.layers.1.mlp.gate.weight", "model.layers.0.mlp.up_proj.weight"), stacked=experts(**QWEN_EXPERTS))(
    lambda: t.Dots1ForCausalLM(t.Dots1Config(**SMALL, **SCORED, n_routed_experts=6, n_shared_experts=2, first_k_dense_replace=1, n_group=2, topk_group=1, norm_topk_prob=True,
                                             routed_scaling_factor=1.7)))
case("hy_v3", (ATTENTION + "k_norm.weight", "model.layers.1.mlp.router.gate.weight", "model.layers.1.mlp.shared_mlp.up_proj.weight"),
     under={".mlp.gate.weight": ".mlp.router.gate.weight", ".mlp.shared_experts.": ".mlp.shared_mlp."})(
    lambda: t.HYV3ForCausalLM(t.HYV3Config(**{**SMALL, "num_hidden_layers": 3}, **SCORED, head_dim=12, num_experts=5)))
case("hunyuan_moe", (ATTENTION + "query_layernorm.weight", "model.layers.1.mlp.gate.wg.weight", "model.layers.1.mlp.shared_mlp.up_proj.weight"), stacked=experts(**QWEN_EXPERTS),
     config=lambda c: {**c, "moe_topk": [2, 2]})(
    lambda: t.HunYuanMoEV1ForCausalLM(t.HunYuanMoEV1Config(**{**SMALL, "intermediate_size": 12}, head_dim=12, num_experts=5, moe_topk=2,
                                                           rope_parameters=rope("dynamic", alpha=50.0, factor=1.0))))
case("ernie4_5_moe", (ATTENTION + "q_proj.weight", "model.layers.1.mlp.gate.weight", "model.layers.1.mlp.shared_experts.up_proj.weight"), stacked=experts(**QWEN_EXPERTS))(
    lambda: t.Ernie4_5_MoeForCausalLM(t.Ernie4_5_MoeConfig(**{**SMALL, "num_hidden_layers": 3}, moe_num_experts=5, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=2)))
case("ernie4_5_moe_none")(lambda: t.Ernie4_5_MoeForCausalLM(t.Ernie4_5_MoeConfig(
    **{**SMALL, "num_hidden_layers": 4}, moe_num_experts=4, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=0, moe_layer_interval=2, moe_layer_start_index=0)))
case("afmoe", (ATTENTION + "gate_proj.weight", ATTENTION + "q_norm.weight", "model.layers.1.mlp.router.gate.weight", "model.layers.0.mlp.up_proj.weight"), stacked=experts(**QWEN_EXPERTS))(
    lambda: t.AfmoeForCausalLM(t.AfmoeConfig(**{**SMALL, "num_hidden_layers": 4}, **SCORED, head_dim=12, sliding_window=6, num_experts=5, num_shared_experts=1, num_dense_layers=1,
                                             route_scale=1.7, mup_enabled=True)))
case("bitnet", DENSE + (ATTENTION + "attn_sub_norm.weight", "model.layers.0.mlp.ffn_sub_norm.weight"))(lambda: t.BitNetForCausalLM(t.BitNetConfig(**SMALL)))

# Two sizes of heads, keys and values of lower layers, embeddings of every layer; and values that are keys, and experts.
GEMMA4 = {**SMALL, "num_hidden_layers": 6, "hidden_size": 24, "intermediate_size": 28, "head_dim": 8, "sliding_window": 6, "pad_token_id": None}
case("gemma4", ("model.layers.2.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight", "model.layers.5.mlp.up_proj.weight", "model.embed_tokens_per_layer.weight",
                "model.layers.4.per_layer_input_gate.weight", "model.per_layer_model_projection.weight"))(
    lambda: t.Gemma4ForCausalLM(t.Gemma4TextConfig(
        **GEMMA4, global_head_dim=16, num_kv_shared_layers=3, hidden_size_per_layer_input=6, vocab_size_per_layer_input=61, use_double_wide_mlp=True, final_logit_softcapping=2.0,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2)))
case("gemma4_experts", ("model.layers.5.self_attn.k_proj.weight", "model.layers.1.router.scale", "model.layers.1.router.proj.weight"),
     config=lambda c: {**{k: v for k, v in c.items() if k != "per_layer_config"}, "global_head_dim": 16, "num_global_key_value_heads": 1})(
    lambda: t.Gemma4ForCausalLM(t.Gemma4TextConfig(
        **GEMMA4, global_head_dim=16, num_global_key_value_heads=1, hidden_size_per_layer_input=0, attention_k_eq_v=True, enable_moe_block=True, num_experts=4, top_k_experts=2,
        moe_intermediate_size=12)))

case("apertus", DENSE[:1] + (ATTENTION + "k_norm.weight", "model.layers.0.mlp.act_fn.alpha_p", "model.layers.1.mlp.act_fn.alpha_n", "model.layers.0.mlp.up_proj.weight"))(
    lambda: t.ApertusForCausalLM(t.ApertusConfig(**{**SMALL, "max_position_embeddings": 64})))
LLAMA4 = dict(**{**SMALL, "num_hidden_layers": 4, "intermediate_size": 12}, intermediate_size_mlp=44, head_dim=12, num_local_experts=4, attention_chunk_size=7, floor_scale=5)
case("llama4", ("model.layers.3.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.1.feed_forward.router.weight",
                "model.layers.2.feed_forward.up_proj.weight", "model.layers.1.feed_forward.shared_expert.down_proj.weight"))(
    lambda: t.Llama4ForCausalLM(t.Llama4TextConfig(**LLAMA4, interleave_moe_layer_step=2)))
case("llama4_plain")(lambda: t.Llama4ForCausalLM(t.Llama4TextConfig(
    **{**LLAMA4, "num_hidden_layers": 2, "attention_chunk_size": None}, use_qk_norm=False, num_experts_per_tok=2, no_rope_layers=[0, 1], attn_temperature_tuning=False,
    attention_bias=True, tie_word_embeddings=True)))
# Queries that grow, and no chunks.
case("llama4_grows")(lambda: t.Llama4ForCausalLM(t.Llama4TextConfig(**{**LLAMA4, "num_hidden_layers": 2, "attention_chunk_size": None}, no_rope_layers=[1, 0])))
JAMBA = dict(**SMALL, mamba_d_state=5, mamba_dt_rank=3, num_experts=4, num_experts_per_tok=2)
MAMBA1 = "model.layers.0.mamba."
case("jamba", ("model.layers.1.self_attn.q_proj.weight", "model.layers.1.feed_forward.router.weight", MAMBA1 + "in_proj.weight", MAMBA1 + "A_log", MAMBA1 + "x_proj.weight",
               MAMBA1 + "dt_proj.bias", MAMBA1 + "D", MAMBA1 + "conv1d.weight", MAMBA1 + "b_layernorm.weight"))(
    lambda: t.JambaForCausalLM(t.JambaConfig(**{**JAMBA, "num_hidden_layers": 3}, attn_layer_period=3, attn_layer_offset=1)))
case("glm4v", config=lambda c: {**c, "text_config": {**c["text_config"], "head_dim": 8}})(lambda: seeing(t.Glm4vForConditionalGeneration, t.Glm4vConfig, {**SMALL, "rope_parameters": rope("default", partial_rotary_factor=0.5, mrope_section=[1, 1, 0])},
                             {**VISION, "out_hidden_size": 32}))
case("glm4v_moe")(lambda: seeing(t.Glm4vMoeForConditionalGeneration, t.Glm4vMoeConfig,
                                 {**SMALL, "head_dim": 12, "attention_bias": True, "n_routed_experts": 4, "moe_intermediate_size": 12, "num_experts_per_tok": 2, "n_shared_experts": 1,
                                  "routed_scaling_factor": 1.3, "first_k_dense_replace": 1, "rope_parameters": rope("default", partial_rotary_factor=0.5, mrope_section=[1, 1, 1])},
                                 {**VISION, "out_hidden_size": 32}))

latest_cases.add(case, SMALL, rope, experts)


def settle(model):
    """Weights large enough that nothing is negligible, exact in bf16."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 0.35 if p.dim() > 1 else 0.3
            values = torch.randn(p.shape, generator=generator) * scale
            if "norm" in name and name.endswith("weight") and (p.mean() - 1).abs() < 0.5 or "ln_" in name and name.endswith("weight"):
                values = values + 1
            p.copy_(values.to(torch.bfloat16).to(torch.float32))
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.copy_((1 + torch.randn(b.shape, generator=generator) * 0.2).to(torch.bfloat16).to(torch.float32))
            if "e_score_correction_bias" in name or "expert_bias" in name:
                b.copy_((torch.randn(b.shape, generator=generator) * 0.2).to(torch.bfloat16).to(torch.float32))


def make(name, folder):
    build, gradients, more = CASES[name]
    torch.manual_seed(1)
    model = build().to(torch.float32).eval()
    model.config._attn_implementation = "eager"
    settle(model)
    vocab = model.config.get_text_config().vocab_size
    tokens = torch.randint(0, vocab, (2, T), generator=torch.Generator().manual_seed(3))
    logits = model(tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocab), tokens[:, 1:].reshape(-1))
    loss.backward()
    expected = {"tokens": tokens.to(torch.int32), "logits": logits.detach().clone()}
    renames = more.get("under", {})

    def renamed(key):
        for old, new in {**renames, **more.get("named", {})}.items():
            key = key.replace(old, new)
        return key

    for key, p in model.named_parameters():
        if renamed(key) in gradients:
            expected["gradient." + renamed(key)] = p.grad.clone()
    parameters = dict(model.named_parameters())
    for key, (parameter, part, parts) in more.get("stacked", {}).items():
        gradient = parameters[parameter].grad
        expected["gradient." + key] = gradient.chunk(parts, dim=-2)[part].contiguous() if parts > 1 else gradient.clone()
    missing = [g for g in gradients if "gradient." + g not in expected]
    assert not missing, missing
    path = f"{folder}/{name}"
    os.makedirs(path, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(path)
    for extra in ("generation_config.json",):
        if os.path.exists(f"{path}/{extra}"):
            os.remove(f"{path}/{extra}")
    if "weights" in more:
        weights = more["weights"](safetensors.torch.load_file(f"{path}/model.safetensors"))
        safetensors.torch.save_file(weights, f"{path}/model.safetensors", {"format": "pt"})
    if renames:
        weights = safetensors.torch.load_file(f"{path}/model.safetensors")
        safetensors.torch.save_file({renamed(k): w for k, w in weights.items()}, f"{path}/model.safetensors", {"format": "pt"})
    config = json.load(open(f"{path}/config.json"))
    if "config" in more:
        config = more["config"](config)
    json.dump(config, open(f"{path}/config.json", "w"), indent=1, sort_keys=True)
    if "again" in more:  # what it reads of the files
        again = more["again"](path).eval()
        expected["logits"] = logits = again(tokens, use_cache=False).logits.detach().clone()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocab), tokens[:, 1:].reshape(-1))
    safetensors.torch.save_file(expected, f"{path}/expected.safetensors")
    print(f"{name:24} loss {loss.item():.3f}  logits {logits.min().item():.2f} .. {logits.max().item():.2f}")


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(CASES)
    for name in names:
        make(name, folder)


main()
