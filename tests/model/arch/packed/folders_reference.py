#!/usr/bin/env python3
"""Loads folders of packed weights that Lumen wrote with the programs they are for, and compares logits with those that
Lumen computes of the same folder: dense models and mixtures, with an output of their own or the embedding as output, with
floats, and with activations and caches in few bits.

usage: folders_reference.py TEST_PROGRAM      exit code 77: torch or transformers is missing, nothing was checked

Which readers: transformers alone for fp8; with compressed-tensors, bitsandbytes, GPTQModel where they are installed. What
is missing is named and left out.
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}; pip install numpy torch transformers accelerate")
    sys.exit(77)

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

NEEDS = {"compressed-tensors": ["compressed_tensors"], "fp8": ["accelerate"], "bnb": ["bitsandbytes"],
         "gptq": ["gptqmodel", "optimum"], "awq": ["gptqmodel"]}
# The largest difference of logits in units of their range. Weights alone: both multiply floats of 32 bits by the same
# numbers, but for bitsandbytes, which multiplies in 16 bits, or in integers of 8 bits on processors, and GPTQModel, which
# computes in 16 bits. In few bits one code next to a half falls the other way now and then.
BOUND = {"compressed-tensors": 1e-3, "fp8": 1e-4, "bnb": 0.05, "gptq": 0.01, "awq": 0.01}
HELD_BOUND = 0.02


def load(folder, method):
    if method == "gptq":
        bits = json.loads((folder / "config.json").read_text())["quantization_config"]["bits"]
        how = transformers.GPTQConfig(bits=bits, backend="torch")
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16, device_map="cpu", quantization_config=how)
    if method == "awq":
        how = transformers.AwqConfig(backend="torch_awq")
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16, device_map="cpu", quantization_config=how)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def logits_of(model, tokens):
    """Token by token, as whoever writes an answer computes them: with a cache, and scales of one token."""
    past, out = None, []
    with torch.no_grad():
        for token in tokens:
            got = model(torch.tensor([[token]]), past_key_values=past, use_cache=True)
            past = got.past_key_values
            out.append(got.logits[0, 0].float().numpy())
    return np.stack(out)


def off(got, want):
    return float(np.abs(got - want).max() / (want.max() - want.min()))


def check(folder):
    method, held = folder.name.split(".")[2], folder.name.split(".")[4:]
    missing = [m for m in NEEDS[method] if find_spec(m) is None]
    if missing:
        return f"skipped, {' and '.join(missing)} not installed", None
    tokens = json.loads((folder / "tokens.json").read_text())
    want = np.frombuffer((folder / "logits.f32").read_bytes(), np.float32).reshape(len(tokens), -1)
    bound = BOUND[method] if held == ["floats"] else HELD_BOUND
    difference = off(logits_of(load(folder, method), tokens), want)
    plain = folder.with_name(folder.name + ".plain")
    if plain.is_dir():  # the same weights as floats: what Lumen computes of the packed ones
        floats = off(logits_of(load(plain, ""), tokens), want)
        if floats > 1e-4:
            return f"differs by {floats:.2g} of the range from its weights as floats", False
    return f"differs by {difference:.2g} of the range, {bound:g} allowed", difference <= bound


def main():
    failed = done = 0
    with tempfile.TemporaryDirectory() as work:
        out = subprocess.run([sys.argv[1], "--gtest_filter=FolderExchange.Write"], env={**os.environ, "LUMEN_EXCHANGE_DIR": work}, capture_output=True, text=True)
        assert out.returncode == 0 and "[       OK ] FolderExchange.Write" in out.stdout, out.stdout[-3000:]
        for folder in sorted(p for p in Path(work).iterdir() if p.suffix != ".plain"):
            try:
                text, is_right = check(folder)
            except Exception as error:  # a reader that refuses the folder
                text, is_right = f"{type(error).__name__}: {str(error)[:300]}", False
            failed += is_right is False
            done += is_right is not None
            print(f"{folder.name}: {text}{' WRONG' if is_right is False else ''}", flush=True)
    print(f"{done - failed} right, {failed} wrong")
    sys.exit(1 if failed else 0 if done else 77)


main()
