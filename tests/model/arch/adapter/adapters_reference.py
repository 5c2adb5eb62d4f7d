#!/usr/bin/env python3
"""Makes tests/model/fixtures/adapters: low-rank adapters with random weights for the tiny models of fixtures/families, as the
well-known implementation (peft, from PyPI) writes them, and the logits it computes with them beside the weights. Only the
results are needed by the tests.

usage: adapters_reference.py FAMILIES FOLDER [CASE ...]

Each case is a folder: adapter_config.json and adapter_model.safetensors as peft writes them, and expected.safetensors with
`tokens` [2, T] and `logits` [2, T, V] in f32. `base` in expected.safetensors' metadata names the family.
"""
import json
import os
import sys

import peft
import safetensors.torch
import torch
import transformers as t

T = 13
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "every_product": ("llama", dict(r=4, lora_alpha=8, target_modules=ALL + ["lm_head"])),
    "patterns": ("llama_tied_bias", dict(r=2, lora_alpha=3, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"],
                                         rank_pattern={"layers.1.self_attn.q_proj": 5, "v_proj": 1},
                                         alpha_pattern={r"layers\.[01]\.mlp\.down_proj": 7})),
    "embedding": ("gemma2", dict(r=3, lora_alpha=2, target_modules=["embed_tokens", "k_proj", "down_proj"])),
    "transposed": ("gpt2", dict(r=4, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
    # As the library saves embeddings without being asked: their weight beside the change, whether that changed or not ("stretch").
    "saved_embedding": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "embed_tokens", "lm_head"]), {}),
    "other_embedding": ("gemma2", dict(r=2, lora_alpha=4, target_modules=["q_proj", "embed_tokens"]), {"stretch": 1.25}),
    "tied_output": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj", "lm_head"]), {"stretch": 0.75}),
    "tied_together": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True), {}),
    # Modules that are copied and trained as a whole.
    "copies": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head", "embed_tokens", "norm"]), {}),
    "copied_embedding": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"]), {}),
    "copied_output": ("gemma2", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head"]), {}),
    # Rows held at a length that is trained (DoRA).
    "magnitudes": ("llama", dict(r=3, lora_alpha=6, use_dora=True, use_rslora=True, target_modules=ALL + ["lm_head"])),
    "magnitudes_embedding": ("gemma2", dict(r=2, lora_alpha=4, use_dora=True, target_modules=["embed_tokens", "q_proj", "down_proj"])),
    "magnitudes_transposed": ("gpt2", dict(r=2, lora_alpha=2, use_dora=True, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
    # Copies of an embedding that the output follows.
    "tied_copy": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True), {}),
    "tied_copy_output": ("gemma2", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["lm_head"], ensure_weight_tying=True), {}),
    # Biases: those the model has, those of what is adapted, and those that B gives beside its product, in a model without any.
    "biases": ("gpt2", dict(r=2, lora_alpha=4, fan_in_fan_out=True, target_modules=["c_attn", "c_proj"], bias="all")),
    "own_biases": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], bias="lora_only")),
    "low_rank_biases": ("llama", dict(r=2, lora_alpha=6, target_modules=["q_proj", "o_proj", "up_proj"], lora_bias=True)),
    # Rows of some tokens: of both uses of one weight, of two weights, and of one weight that thereby becomes two.
    "tokens": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices=[1, 5, 60])),
    "tokens_of_both": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [7, 1], "lm_head": [2]})),
    "tokens_parted": ("gemma2", dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices={"embed_tokens": [1, 5], "lm_head": [2]})),
    # Vocabularies that were changed before training.
    "grown": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj"]), {"tokens": 70}),
    "grown_tied": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj"]), {"tokens": 70}),
    "grown_adapted": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "embed_tokens", "lm_head"]), {"tokens": 70}),
    "grown_tokens": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj"], trainable_token_indices=[1, 66]), {"tokens": 70}),
    "grown_copy": ("llama_tied_bias", dict(r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"]), {"tokens": 70}),
    "shrunk": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj"]), {"tokens": 40}),
    # Stacked matrices of experts as parameters: both, one of them beside the router, and such whose columns lie between each other.
    "experts": ("qwen3_moe", dict(r=2, lora_alpha=4, target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "experts_down": ("mixtral", dict(r=3, lora_alpha=4, target_modules=[], target_parameters=["mlp.experts.down_proj", "mlp.gate.weight"],
                                     rank_pattern={"experts.down_proj": 2}, alpha_pattern={"gate.weight": 9})),
    "experts_between": ("gpt_oss", dict(r=2, lora_alpha=4, target_modules=[], target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    # All linear modules (of some families those that peft takes) where layers differ: recurrent ones, two sizes of heads, experts as
    # parameters and shared ones.
    "all_of_deltas": ("qwen3_5", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "all_of_deltas_moe": ("qwen3_5_moe", dict(r=2, lora_alpha=4, target_modules="all-linear", target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "all_of_two_sizes": ("gemma4", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "all_of_scans": ("granite_h_moe", dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "output_linear"])),
    "all_of_chunks": ("llama4", dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])),
    "all_of_convolutions": ("lfm2", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "all_of_indexers": ("deepseek_v32", dict(r=2, lora_alpha=4, target_modules=["q_a_proj", "kv_a_proj_with_mqa", "o_proj", "gate_proj", "up_proj", "down_proj", "wk"])),
    # Only some of what the names say.
    "some_layers": ("llama", dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], exclude_modules=["layers.1.self_attn.v_proj"],
                                  layers_to_transform=[1], layers_pattern="layers")),
    "normed_queries": ("qwen3", dict(r=3, lora_alpha=6, target_modules=["q_proj", "k_proj"], layers_to_transform=[1])),
}


def given(families, base, tokens):
    model = t.AutoModelForCausalLM.from_pretrained(f"{families}/{base}", dtype=torch.float32, attn_implementation="eager")
    if tokens:
        torch.manual_seed(3)
        model.resize_token_embeddings(tokens)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.to(torch.bfloat16).to(torch.float32))
    return model


def make(families, folder, name):
    base, config, saved = (*CASES[name], None)[:3]
    torch.manual_seed(1)
    grown = (saved or {}).get("tokens")
    model = given(families, base, grown)
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config)).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key, p in model.named_parameters():
            # Biases of a module that is adapted alone stay, unless all are trained.
            bias = key.endswith(".bias") and (config.get("bias") == "all" or (config.get("bias") == "lora_only" and ".base_layer." in key))
            if "lora_" in key or "modules_to_save" in key or "trainable_tokens" in key or bias:
                p.copy_((torch.randn(p.shape, generator=generator) * 0.3).to(torch.bfloat16).to(torch.float32))
            elif saved is not None and ("base_layer" in key or "stretch" in saved) and ("embed" in key or "lm_head" in key):
                p.mul_(saved.get("stretch", 1)).copy_(p.to(torch.bfloat16).to(torch.float32))
    tokens = torch.randint(0, model.config.vocab_size, (2, T), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits
        with model.disable_adapter():
            plain = model(tokens, use_cache=False).logits
    path = f"{folder}/{name}"
    if saved is None:
        model.to(torch.bfloat16).save_pretrained(path, save_embedding_layers=False)
    else:
        model.to(torch.bfloat16).save_pretrained(path)
    # What was saved is what another run would compute with.
    with torch.no_grad():
        back = peft.PeftModel.from_pretrained(given(families, base, grown), path).eval()(tokens, use_cache=False).logits
    assert (back - logits).abs().max() < 1e-4, (name, (back - logits).abs().max())
    for extra in ("README.md",):
        if os.path.exists(f"{path}/{extra}"):
            os.remove(f"{path}/{extra}")
    settings = json.load(open(f"{path}/adapter_config.json"))
    settings["base_model_name_or_path"] = base
    settings["target_modules"] = sorted(settings["target_modules"])
    json.dump(settings, open(f"{path}/adapter_config.json", "w"), indent=1, sort_keys=False)
    safetensors.torch.save_file({"tokens": tokens.to(torch.int32), "logits": logits.clone()},
                                f"{path}/expected.safetensors", {"base": base})
    print(f"{name:16} {base:16} changes logits by up to {(logits - plain).abs().max().item():.2f} of "
          f"{logits.min().item():.2f} .. {logits.max().item():.2f}")


def main():
    families, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:] or list(CASES)
    for name in names:
        make(families, folder, name)


main()
