#!/usr/bin/env python3
"""Trains the character-level setting (4 layers, 4 heads, width 128, context 64, batch 12) in PyTorch and in Lumen, alternating,
on the same text, batch and model shape, and prints tokens per second and the ratio.

Needs PyTorch from PyPI in a virtual environment:   python3 -m venv venv && venv/bin/pip install torch numpy
Run:                                                venv/bin/python bench/train_char.py --lumen build/lumen
"""
import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parent.parent


class Norm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotate(x, cos, sin):
    """Rotary positions on adjacent pairs; x: [B, H, T, D]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h = self.norm1(x)
        q, k, v = (m(h).view(b, t, self.heads, -1).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, vocab, width, layers, heads, inner, context):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Layer(width, heads, inner) for _ in range(layers))
        self.norm = Norm(width)
        self.output = nn.Linear(width, vocab, bias=False)
        half = width // heads // 2
        angle = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.output(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run_torch(args, data, vocab, compile_model):
    torch.manual_seed(1)
    model = Model(vocab, args.width, args.layers, args.heads, args.inner, args.context)
    step_model = torch.compile(model) if compile_model else model
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.99), fused=True)
    start = None
    for step in range(args.steps + args.warm):
        if step == args.warm:
            start = time.perf_counter()
        at = torch.randint(len(data) - args.context - 1, (args.batch,))
        x = torch.stack([data[i:i + args.context] for i in at])
        y = torch.stack([data[i + 1:i + 1 + args.context] for i in at])
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 100)
        loss = step_model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return args.steps * args.batch * args.context / (time.perf_counter() - start), loss.item()


def run_lumen(args):
    """Tokens per second as Lumen's own metrics state it, warm-up steps (compilation) left out."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.lumen, "train", "--shape", "char", "--data", args.text, "--max-steps", str(args.steps + args.warm),
                   "--output-dir", folder, "--eval-steps", "0", "--threads", str(args.threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lumen failed with {done.returncode}:\n{done.stderr}")
        rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        rows = [r for r in rows if "elapsed" in r and "step" in r]
        first = next(r for r in rows if r["step"] >= args.warm)
        last = rows[-1]
        tokens = (last["step"] - first["step"]) * args.batch * args.context
        return tokens / (last["elapsed"] - first["elapsed"]), last["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default=str(ROOT / "build/lumen"))
    parser.add_argument("--text", default=str(ROOT / "data/tinyshakespeare/input.txt"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm", type=int, default=20, help="steps not timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="also torch.compile (needs a C++ compiler)")
    for name, value in (("width", 128), ("layers", 4), ("heads", 4), ("inner", 384), ("context", 64), ("batch", 12)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = Path(args.text).read_text()
    alphabet = sorted(set(text))
    index = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([index[c] for c in text[: int(len(text) * 0.9)]])

    modes = ["torch eager"] + (["torch compiled"] if args.compile else []) + ["lumen"]
    speeds = {mode: [] for mode in modes}
    for _ in range(args.rounds):
        for mode in modes:
            speed, loss = run_lumen(args) if mode == "lumen" else run_torch(args, data, len(alphabet), mode.endswith("compiled"))
            speeds[mode].append(speed)
            print(f"{mode:15} {speed:10.0f} tokens/s   loss {loss:.3f}", flush=True)
    lumen = statistics.median(speeds["lumen"])
    print()
    for mode in modes:
        median = statistics.median(speeds[mode])
        print(f"{mode:15} median {median:10.0f} tokens/s   lumen / this = {lumen / median:.2f}")
    assert all(math.isfinite(s) for values in speeds.values() for s in values)


if __name__ == "__main__":
    main()
