#!/usr/bin/env python3
"""Folders that `lumen quantize --output-format` writes, read by the programs they are for: transformers loads them (with
compressed-tensors and bitsandbytes), and its logits are those of the same weights written out in f32. Needs torch, transformers,
compressed-tensors, accelerate and bitsandbytes from PyPI, so that it is run by hand and not by the tests.

Usage: tests/cli/convert/readers_check.py LUMEN
"""
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

FORMS = [
    ("compressed-tensors", "int4_g64"),
    ("compressed-tensors", "int4_g128"),
    ("compressed-tensors", "int8_row"),
    ("compressed-tensors", "fp8_row"),
    ("compressed-tensors", "fp8_tensor"),
    ("fp8", "fp8_tile"),
    ("bnb", "nf4"),
]


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def unpacked_apart(packed, plain):
    """Asymmetric weights by compressed-tensors' own functions: its loader (0.20) does not pack the zero points of the empty
    model that it reads into, and so refuses all such folders, those it has written, too."""
    from compressed_tensors.compressors.pack_quantized.base import unpack_from_int32
    got, want, worst = load_file(packed / "model.safetensors"), load_file(plain / "model.safetensors"), 0.0
    for name, codes in got.items():
        if not name.endswith(".weight_packed"):
            continue
        base = name.removesuffix("_packed")
        scale, shape = got[base + "_scale"].float(), torch.Size(got[base + "_shape"].tolist())
        zeros = unpack_from_int32(got[base + "_zero_point"], 4, torch.Size((shape[0], scale.shape[1])), packed_dim=0)
        q = unpack_from_int32(codes, 4, shape).float()
        group = shape[1] // scale.shape[1]
        value = (q - zeros.float().repeat_interleave(group, 1)) * scale.repeat_interleave(group, 1)
        worst = max(worst, float((value - want[base].float()).abs().max()))
    return worst


def dequantized(model, plain):
    """bitsandbytes multiplies in lower precision on processors; what it decodes is what is to be equal."""
    import bitsandbytes
    worst = 0.0
    want = load_file(plain / "model.safetensors")
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            value = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            own = want[name + ".weight"].to(value.dtype)  # it decodes to 16 bits
            worst = max(worst, float((value.float() - own.float()).abs().max()))
    return worst


def main():
    lumen = sys.argv[1]
    torch.manual_seed(0)
    ids = torch.randint(0, 65, (2, 48))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def run(*words):
            subprocess.run([lumen, *map(str, words), "-q"], check=True, capture_output=True)

        run("train", "--shape", "char", "--steps", "60", "--eval-every", "0", "-o", work / "m")
        for form, name in FORMS + [("compressed-tensors", "int4_g128_asym")]:
            packed, plain = work / f"{form}.{name}", work / f"{form}.{name}.plain"
            run("quantize", work / "m/model.gguf", packed, name, "--output-format", form)
            run("quantize", packed, plain, "f32", "--output-format", "hf", "--allow-requantize")
            if name.endswith("_asym"):
                off = unpacked_apart(packed, plain)
            elif form == "bnb":
                off = dequantized(load(packed), plain)
            else:
                with torch.no_grad():
                    off = float((load(packed)(ids).logits - load(plain)(ids).logits).abs().max())
            failed |= not off <= 1e-6
            print(f"{form} {name}: differs by {off:.3g}", flush=True)
    sys.exit(failed)


main()
