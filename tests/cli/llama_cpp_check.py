#!/usr/bin/env python3
"""GGUF files written by Lumen, read by others: the `gguf` package sees every tensor byte, and llama.cpp computes the same.

Optional: needs `gguf`, `numpy` and `llama-cpp-python` from PyPI; without them it says so and exits 77 (skipped).
Usage: tests/cli/llama_cpp_check.py BUILD_FOLDER [--steps N]

Checks: greedy tokens equal for f32; perplexity within 0.5 % for every quantized file; tensor bytes equal by hash.
"""
import argparse
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    from gguf import GGUFReader
    from llama_cpp import Llama
except ImportError as error:
    print(f"skipped: {error}; pip install gguf numpy llama-cpp-python")
    sys.exit(77)

ROOT = Path(__file__).resolve().parent.parent.parent
TYPES = ["f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "mxfp4", "q3_k", "q2_k", "tq2_0", "tq1_0"]


def lumen(binary, *args):
    done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lumen {' '.join(map(str, args))} failed with {done.returncode}\n{done.stderr}")
    return done.stdout


def lumen_perplexity(binary, file, text, window):
    out = lumen(binary, "perplexity", "-m", file, "-f", text, "-c", window, "--full", "--exact")
    return float(re.search(r"perplexity ([0-9.]+)", out).group(1))


def log_softmax(rows):
    rows = rows.astype(np.float64)
    top = rows.max(-1, keepdims=True)
    return rows - top - np.log(np.exp(rows - top).sum(-1, keepdims=True))


def llama_perplexity(file, text, window):
    model = Llama(str(file), n_ctx=window, logits_all=True, verbose=False, n_threads=2)
    tokens = model.tokenize(text.encode(), add_bos=False)
    total, count = 0.0, 0
    for start in range(0, len(tokens) - window + 1, window):
        part = tokens[start : start + window]
        model.reset()
        model.eval(part)
        rows = log_softmax(np.array(model._scores[: window - 1]))
        total -= sum(rows[i, part[i + 1]] for i in range(window - 1))
        count += window - 1
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    binary = str(Path(args.build).resolve() / "lumen")
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        recipe = work / "wide.toml"
        # A width of 256, so that super-blocks of 256 apply to every matrix.
        recipe.write_text('[model]\nfamily = "llama"\nsize = "tiny"\n[model.config]\nhidden = 256\nheads = 4\nkv_heads = 2\nffn = 512\ncontext = 64\n')
        lumen(binary, "train", "--recipe", recipe, "--max-steps", args.steps, "--out", work / "run", "--eval-steps", 0)
        base = work / "run" / "model.gguf"
        text = (ROOT / "data/tinyshakespeare/input.txt").read_text()[-6500:]
        (work / "text.txt").write_text(text)

        prompt = "ROMEO:\nI will"
        ours = lumen(binary, "run", "-m", base, "-p", prompt, "-n", 40, "--temp", 0, "--exact", "--no-display-prompt")
        other = Llama(str(base), n_ctx=64, verbose=False, n_threads=2)
        theirs = other.create_completion(prompt, max_tokens=40, temperature=0.0, repeat_penalty=1.0)["choices"][0]["text"]
        same = ours.rstrip("\n") == theirs.rstrip("\n")
        print(f"greedy f32: {'equal' if same else f'DIFFERENT: {ours!r} / {theirs!r}'}")
        if not same:
            failures.append("greedy")

        for kind in ["f32"] + TYPES:
            file = base
            if kind != "f32":
                file = work / f"{kind}.gguf"
                lumen(binary, "quantize", "--pure", base, file, kind)
            reader = GGUFReader(str(file))
            sizes = sum(t.n_bytes for t in reader.tensors)
            a = lumen_perplexity(binary, file, work / "text.txt", 64)
            b = llama_perplexity(file, text, 64)
            off = abs(a / b - 1)
            print(f"{kind:7} {len(reader.tensors)} tensors {sizes:8} bytes   perplexity {a:.4f} / {b:.4f}   off {off * 100:.3f} %")
            if off > 0.005:
                failures.append(kind)
    if failures:
        print("FAILED:", ", ".join(failures))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
