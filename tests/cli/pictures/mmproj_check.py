#!/usr/bin/env python3
"""Towers in GGUF files of their own (`--mmproj`): the tiny models of tests/model/fixtures/pictures, their towers written with the names and
shapes that ggml's converter gives them, say the same as their folders.

usage: mmproj_check.py LUMEN
"""
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LUMEN = sys.argv[1]
FIXTURES = Path(__file__).resolve().parents[2] / "model/fixtures"
PICTURES, SHOWN = FIXTURES / "pictures", FIXTURES / "pictures/shown"
MARK = "<|vision_start|><|image_pad|><|vision_end|>"


def tensors_of(folder):
    """Of a folder's tower: name -> (shape, list of f32)."""
    data = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, about in json.loads(data[8:8 + size]).items():
        if ".visual." not in name and not name.startswith("visual."):
            continue
        begin, end = about["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        assert about["dtype"] in ("BF16", "F32"), about
        if about["dtype"] == "BF16":
            raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
        out[name.split("visual.", 1)[1]] = (about["shape"], list(struct.unpack(f"<{len(raw) // 4}f", raw)))
    return out


def rows(tensor, part, parts):
    shape, values = tensor
    each = len(values) // parts
    return [shape[0] // parts, *shape[1:]], values[part * each:(part + 1) * each]


def tower(folder, kind):
    """Metadata and tensors as the converter writes them."""
    config = json.loads((folder / "config.json").read_text())
    vision, given, out = config["vision_config"], tensors_of(folder), {}
    prepared = json.loads((folder / "preprocessor_config.json").read_text())
    meta = {"general.architecture": "clip", "general.type": "mmproj", "general.file_type": 0, "clip.has_vision_encoder": True,
            "clip.projector_type": kind, "clip.vision.image_size": 560, "clip.vision.patch_size": vision["patch_size"],
            "clip.vision.block_count": vision["depth"], "clip.vision.attention.head_count": vision["num_heads"],
            "clip.vision.projection_dim": config["text_config"]["hidden_size"], "clip.vision.attention.layer_norm_epsilon": 1e-6,
            "clip.vision.spatial_merge_size": vision["spatial_merge_size"],
            "clip.vision.embedding_length": vision.get("embed_dim", vision["hidden_size"]),
            "clip.vision.feed_forward_length": vision.get("intermediate_size", vision["hidden_size"]),
            "clip.vision.image_mean": prepared["image_mean"], "clip.vision.image_std": prepared["image_std"],
            "clip.vision.image_min_pixels": prepared["size"]["shortest_edge"], "clip.vision.image_max_pixels": prepared["size"]["longest_edge"]}
    names = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "mlp.linear_fc1": "ffn_up",
             "mlp.linear_fc2": "ffn_down", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    deep = vision.get("deepstack_visual_indexes", [])
    for name, (shape, values) in given.items():
        stem, kind_of = name.rsplit(".", 1)
        if name == "patch_embed.proj.weight":
            hidden, channels, frames, tall, wide = shape
            each = tall * wide
            for f in range(frames):
                part = [values[(h * channels + c) * frames * each + f * each + i] for h in range(hidden) for c in range(channels) for i in range(each)]
                out["v.patch_embd.weight" + (f".{f}" if f else "")] = [hidden, channels, tall, wide], part
        elif name == "patch_embed.proj.bias":
            out["v.patch_embd.bias"] = shape, values
        elif name == "pos_embed.weight":
            out["v.position_embd.weight"] = shape, values
        elif stem.endswith("attn.qkv"):
            layer = stem.split(".")[1]
            if deep:
                out[f"v.blk.{layer}.attn_qkv.{kind_of}"] = shape, values
            else:
                for n, one in enumerate("qkv"):
                    out[f"v.blk.{layer}.attn_{one}.{kind_of}"] = rows((shape, values), n, 3)
        elif stem.startswith("blocks."):
            _, layer, rest = stem.split(".", 2)
            out[f"v.blk.{layer}.{names[rest]}.{kind_of}"] = shape, values
        elif stem.startswith("deepstack_merger_list."):
            _, number, rest = stem.split(".", 2)
            out[f"v.deepstack.{deep[int(number)]}.{rest.replace('linear_', '')}.{kind_of}"] = shape, values
        else:
            part = {"merger.ln_q": "v.post_ln", "merger.norm": "v.post_ln", "merger.mlp.0": "mm.0", "merger.linear_fc1": "mm.0",
                    "merger.mlp.2": "mm.2", "merger.linear_fc2": "mm.2"}[stem]
            out[f"{part}.{kind_of}"] = shape, values
    if "num_position_embeddings" in vision:
        meta["clip.vision.image_size"] = math.isqrt(vision["num_position_embeddings"]) * vision["patch_size"]
    if deep:
        meta["clip.vision.is_deepstack_layers"] = [i in deep for i in range(vision["depth"])]
    if "fullatt_block_indexes" in vision:
        meta["clip.vision.n_wa_pattern"] = vision["fullatt_block_indexes"][0] + 1
        meta["clip.vision.window_size"] = vision["window_size"]
    if "mlp_ratio" in vision and vision["mlp_ratio"] != 4:
        # The converter writes no ratio: released models have 4. This is where Lumen keeps what a file has no key for.
        meta["lumen.config.growth"] = float(vision["mlp_ratio"])
    return meta, out


def write_gguf(path, meta, tensors):
    def text(words):
        raw = words.encode()
        return struct.pack("<Q", len(raw)) + raw

    def value(v):
        if isinstance(v, bool):
            return struct.pack("<I?", 7, v)
        if isinstance(v, int):
            return struct.pack("<II", 4, v)
        if isinstance(v, float):
            return struct.pack("<If", 6, v)
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        kind, form = (7, "?") if isinstance(v[0], bool) else (6, "f")
        return struct.pack("<IIQ", 9, kind, len(v)) + struct.pack(f"<{len(v)}{form}", *v)

    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(meta)) + b"".join(text(k) + value(v) for k, v in meta.items())
    body = b""
    for name, (shape, values) in tensors.items():
        assert math.prod(shape) == len(values), name
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, len(body))
        body += struct.pack(f"<{len(values)}f", *values)
        body += bytes(-len(body) % 32)
    Path(path).write_bytes(head + bytes(-len(head) % 32) + body)


def run(model, *words):
    return subprocess.run([LUMEN, "run", "-m", str(model), "--exact", "--temp", "0", "-n", "8", "--threads", "1", "--no-display-prompt", "--no-markdown",
                           "-p", f"What is {MARK} and {MARK}? ", "--image", str(SHOWN / "wide.png"), "--image", str(SHOWN / "tall.webp"),
                           *map(str, words)], capture_output=True, stdin=subprocess.DEVNULL, timeout=300)


def said(done, text):
    assert done.returncode != 0 and text in done.stderr.decode(), (text, done.returncode, done.stderr.decode())


def main():
    kinds = {"qwen2_vl": "qwen2vl_merger", "qwen2_5_vl": "qwen2.5vl_merger", "qwen3_vl": "qwen3vl_merger"}
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in kinds.items():
            model, text, file = PICTURES / name, Path(folder) / f"{name}.gguf", Path(folder) / f"mmproj-{name}.gguf"
            done = subprocess.run([LUMEN, "quantize", model, text, "f32"], capture_output=True, timeout=300)
            assert done.returncode == 0 and f"--mmproj '{model}'" in done.stderr.decode(), done.stderr.decode()
            meta, tensors = tower(model, kind)
            write_gguf(file, meta, tensors)
            whole, parted = run(model), run(text, "--mmproj", file)
            assert whole.returncode == 0 and parted.returncode == 0, parted.stderr.decode()
            assert whole.stdout == parted.stdout and whole.stdout.strip(), (name, whole.stdout, parted.stdout)
            # The folder itself has the tower, too.
            beside = run(text, "--mmproj", model)
            assert beside.returncode == 0 and beside.stdout == whole.stdout, beside.stderr.decode()
            # What is missing, of another kind, or another file, is named.
            said(run(text), "reads no pictures")
            said(run(text, "--mmproj", text), "no pictures")
            fewer = dict(tensors)
            fewer.pop("mm.2.weight")
            write_gguf(file, meta, fewer)
            said(run(text, "--mmproj", file), "'mm.2.weight' is missing")
            write_gguf(file, {**meta, "clip.projector_type": "ldp"}, tensors)
            said(run(text, "--mmproj", file), "projector 'ldp'")
            write_gguf(file, {**meta, "clip.has_audio_encoder": True}, tensors)
            said(run(text, "--mmproj", file), "clip.has_audio_encoder")
            write_gguf(file, {**meta, "clip.vision.projection_dim": 16}, tensors)
            said(run(text, "--mmproj", file), "mm.2.weight")
            write_gguf(file, meta, {**tensors, "v.other.weight": ([1], [0.0])})
            said(run(text, "--mmproj", file), "v.other.weight")
            said(run(file), "--mmproj")
    print("towers in files of their own: as in folders")


main()
