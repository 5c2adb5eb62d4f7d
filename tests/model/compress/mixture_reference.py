#!/usr/bin/env python3
"""Writes tests/model/fixtures/mixtures.json: which type llama-quantize gives each tensor of some models, by mixture.

Usage: tests/model/compress/mixture_reference.py LLAMA_QUANTIZE; needs `gguf` and `numpy` from PyPI.
"""
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

MIXTURES = ("q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q3_k_s q3_k_m q3_k_l q4_k q4_k_s q4_k_m q5_k q5_k_s q5_k_m q6_k iq4_nl iq4_xs "
            "tq1_0 tq2_0 mxfp4_moe").split()
# Family, architecture of the file, and numbers by the family's own keys.
MODELS = {
    "plain": ("llama", "llama", dict(layers=9, hidden=256, heads=4, kv_heads=4, ffn=256)),
    "grouped": ("llama", "llama", dict(layers=17, hidden=256, heads=8, kv_heads=2, ffn=256)),
    "tied": ("llama", "llama", dict(layers=2, hidden=256, heads=4, kv_heads=4, ffn=256, tied=1)),
    "eight": ("mixtral", "llama", dict(layers=3, hidden=256, heads=4, kv_heads=4, expert_ffn=256, experts=8)),
    "eight grouped": ("mixtral", "llama", dict(layers=8, hidden=256, heads=8, kv_heads=2, expert_ffn=256, experts=8)),
    "four": ("mixtral", "llama", dict(layers=8, hidden=256, heads=4, kv_heads=4, expert_ffn=256, experts=4)),
    "narrow": ("llama", "llama", dict(layers=2, hidden=320, heads=5, kv_heads=5, ffn=416)),
    "narrow tied": ("llama", "llama", dict(layers=2, hidden=80, heads=4, kv_heads=4, ffn=120, tied=1)),
    "deep": ("llama", "llama", dict(layers=80, hidden=256, heads=4, kv_heads=2, ffn=256)),
    "fused": ("gpt2", "gpt2", dict(layers=5, hidden=256, heads=4, ffn=256, tied=1)),
}


def write(path, architecture, c):
    w = GGUFWriter(path, architecture)
    hidden, heads, kv, ffn = c["hidden"], c["heads"], c.get("kv_heads", c["heads"]), c.get("ffn", c.get("expert_ffn"))
    w.add_block_count(c["layers"])
    w.add_context_length(32)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(32)
    w.add_rope_dimension_count(hidden // heads)
    experts = c.get("experts", 0)
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(2)
    tensor = lambda name, *shape: w.add_tensor(name + ".weight", np.ones(shape, np.float32))
    tensor("token_embd", 32, hidden)
    tensor("output_norm", hidden)
    if not c.get("tied"):
        tensor("output", 32, hidden)
    if architecture == "gpt2":
        w.add_layer_norm_eps(1e-5)
        tensor("position_embd", 32, hidden)
    for i in range(c["layers"]):
        t = lambda name, *shape: tensor(f"blk.{i}.{name}", *shape)
        t("attn_norm", hidden)
        t("ffn_norm", hidden)
        if architecture == "gpt2":
            t("attn_qkv", 3 * hidden, hidden)
        else:
            t("attn_q", hidden, hidden)
            t("attn_k", hidden // heads * kv, hidden)
            t("attn_v", hidden // heads * kv, hidden)
        t("attn_output", hidden, hidden)
        kinds = ["up", "down"] if architecture == "gpt2" else ["gate", "up", "down"]
        if experts:
            t("ffn_gate_inp", experts, hidden)
        for kind in kinds:
            shape = (hidden, ffn) if kind == "down" else (ffn, hidden)
            t(f"ffn_{kind}_exps", experts, *shape) if experts else t(f"ffn_{kind}", *shape)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (family, architecture, config) in MODELS.items():
            source = f"{folder}/model.gguf"
            write(source, architecture, config)
            mixtures = {}
            for mixture in MIXTURES:
                done = subprocess.run([sys.argv[1], source, f"{folder}/out.gguf", mixture.upper()], capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(f"{name} {mixture}: {done.stderr[-300:]}")
                reader = GGUFReader(f"{folder}/out.gguf")
                types = {t.name: t.tensor_type.name.lower() for t in reader.tensors if len(t.shape) > 1}
                most = Counter(types.values()).most_common(1)[0][0]
                others = {}
                for tensor, kind in sorted(types.items()):
                    if kind != most:
                        others.setdefault(kind, []).append(tensor)
                mixtures[mixture] = {"file_type": int(reader.fields["general.file_type"].parts[-1][0]), "most": most, "others": others}
            out[name] = {"family": family, "config": config, "mixtures": mixtures}
            print(name)
    target = Path(__file__).resolve().parents[1] / "fixtures" / "mixtures.json"
    # A line for each mixture of each model.
    text = "{\n"
    for i, (name, entry) in enumerate(out.items()):
        text += f'"{name}": {{"family": "{entry["family"]}", "config": {json.dumps(entry["config"])}, "mixtures": {{\n'
        text += ",\n".join(f'  "{m}": {json.dumps(v)}' for m, v in entry["mixtures"].items())
        text += "}}" + ("," if i + 1 < len(out) else "") + "\n"
    target.write_text(text + "}\n")
    print(target, target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
