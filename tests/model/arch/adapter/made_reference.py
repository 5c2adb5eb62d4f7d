#!/usr/bin/env python3
"""Adapters that peft made, of each setting that is read, beside and inside models of Lumen: what `--lora` computes, what `lumen merge` writes as a GGUF file
and as a folder (for transformers), all against peft beside transformers. Tied and untied, dense and mixture. adapter_table.py first says whether the package
knows kinds or keys that models/adapters.toml does not list.

usage: made_reference.py LUMEN [CASE ...]      exit code 77: a library is missing, nothing was checked
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
try:
    import numpy as np
    import peft
    import torch
    import transformers
    from transformers.utils import logging
except ImportError as missing:
    print(f"skipped: {missing}; pip install numpy torch transformers peft")
    sys.exit(77)

import adapter_reference as reference

MERGED_BOUND = 1e-4  # of the range of log probabilities
BASES = {
    "dense": dict(family="llama", size="tiny", hidden=32, layers=2, heads=4, kv_heads=2, ffn=48),
    "tied": dict(family="qwen2", hidden=32, layers=2, heads=4, kv_heads=2, ffn=48, tied=1),
    "mixture": dict(family="qwen3_moe", hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, experts=4, picked=2, expert_ffn=24),
    "tied_mixture": dict(family="qwen3_moe", hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, experts=4, picked=2, expert_ffn=24, tied=1),
}
Q = dict(r=2, lora_alpha=4, target_modules=["q_proj"])
CASES = {
    "plain": ("dense", dict(Q, target_modules=["q_proj", "down_proj", "lm_head"]), {}),
    "stretched": ("tied", dict(Q, use_dora=True, use_rslora=True), {}),
    "patterns": ("mixture", dict(Q, target_modules=["q_proj", "v_proj"], rank_pattern={"layers.1.self_attn.q_proj": 3}, alpha_pattern={"v_proj": 9}), {}),
    "layers": ("dense", dict(Q, target_modules=["q_proj", "up_proj"], layers_to_transform=[1], layers_pattern="layers"), {}),
    "excluded": ("dense", dict(Q, target_modules=r".*\.(q|v)_proj", exclude_modules=["layers.0.self_attn.v_proj"]), {}),
    "biases": ("tied", dict(Q, bias="all"), {}),
    "own_biases": ("tied", dict(Q, bias="lora_only"), {}),
    "low_rank_biases": ("dense", dict(Q, lora_bias=True), {"folder": False}),  # its merge with peft is not possible at all
    "copies": ("dense", dict(Q, modules_to_save=["embed_tokens", "lm_head"]), {}),
    "copy_apart": ("tied", dict(Q, modules_to_save=["embed_tokens"]), {}),
    "copy_tied": ("tied", dict(Q, modules_to_save=["embed_tokens"], ensure_weight_tying=True), {}),
    "copy_tied_mixture": ("tied_mixture", dict(Q, modules_to_save=["lm_head"], ensure_weight_tying=True), {}),
    "adapted_tied": ("tied", dict(Q, target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True), {}),
    "tokens": ("dense", dict(Q, trainable_token_indices={"embed_tokens": [3, 70], "lm_head": [5]}), {}),
    "tokens_tied": ("tied_mixture", dict(Q, trainable_token_indices=[3, 70]), {}),
    "experts": ("mixture", dict(Q, target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]), {}),
    "experts_tied": ("tied_mixture", dict(Q, target_modules=[], target_parameters=["mlp.experts.down_proj", "mlp.gate.weight"]), {}),
    "grown": ("dense", Q, {"tokens": 300}),
    "grown_tied": ("tied", dict(Q, trainable_token_indices=[7, 290]), {"tokens": 300}),
    "grown_copy": ("tied_mixture", dict(Q, modules_to_save=["embed_tokens"], ensure_weight_tying=True), {"tokens": 300}),
}


def base_of(hf, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32, attn_implementation="eager")
    if tokens:
        torch.manual_seed(3)
        model.resize_token_embeddings(tokens)
    return model.eval()


def make(hf, out, config, tokens):
    model = peft.get_peft_model(base_of(hf, tokens), peft.LoraConfig(task_type="CAUSAL_LM", **config))
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key, p in model.named_parameters():
            bias = key.endswith(".bias") and (config.get("bias") == "all" or (config.get("bias") == "lora_only" and ".base_layer." in key))
            if "lora_" in key or "modules_to_save" in key or "trainable_tokens" in key or bias:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.1)
    model.save_pretrained(out)


def check(program, folder, name):
    base, config, more = CASES[name]
    if not os.path.exists(f"{folder}/{base}"):
        reference.make_base(program, folder, base)
    hf, out, tokens = f"{folder}/{base}/hf", f"{folder}/{name}-adapter", more.get("tokens")
    make(hf, out, config, tokens)
    text, plain = reference.recorded(program, folder, "-m", hf)
    with torch.no_grad():
        model = peft.PeftModel.from_pretrained(base_of(hf, tokens), out).eval()
        theirs = reference.log_probabilities(model(torch.tensor([text]), use_cache=False).logits[0])
    wide = theirs.max() - theirs.min()
    found = {"--lora": reference.recorded(program, folder, "-m", hf, "--lora", out)[1]}
    reference.lumen(program, "merge", hf, out, "-o", f"{folder}/{name}.gguf", "--type", "f32", "--no-check")
    found["merged"] = reference.recorded(program, folder, "-m", f"{folder}/{name}.gguf")[1]
    if more.get("folder", True):
        reference.lumen(program, "merge", hf, out, "-o", f"{folder}/{name}-merged", "--type", "f32", "--no-check")
        found["merged, transformers"] = reference.with_transformers(f"{folder}/{name}-merged", text)
    own = plain if plain.shape == theirs.shape else plain - plain.max()
    changed = np.abs(own[:, :256] - theirs[:, :256]).max() / wide
    off = {what: np.abs(rows - theirs).max() / wide if rows.shape == theirs.shape else np.inf for what, rows in found.items()}
    print(f"{name:18} {base:12} changed by {changed:.1e}; away: " + ", ".join(f"{what} {x:.1e}" for what, x in off.items()), flush=True)
    assert changed > 2e-4, f"{name}: the adapter changes nothing"
    return [f"{name}: {what}" for what, x in off.items() if not x < MERGED_BOUND]


def main():
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    program, names = sys.argv[1], sys.argv[2:] or list(CASES)
    subprocess.run([sys.executable, pathlib.Path(__file__).with_name("adapter_table.py")], check=True)
    reference.BASES.update(BASES)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.txt", "w", encoding="utf-8") as file:
            file.write(reference.TEXT)
        wrong = [w for name in names for w in check(program, folder, name)]
    assert not wrong, wrong
    print("all alike")


main()
