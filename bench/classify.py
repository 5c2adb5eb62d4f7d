#!/usr/bin/env python3
"""Trains ResNet-20 (3 x 32 x 32, 10 classes) on made-up colour images in PyTorch and by `lumen classify train`, alternating, with the
same batch and number of threads, and prints images per second and the ratio. Only on a machine that does nothing else.

Needs PyTorch from PyPI in a virtual environment:   python3 -m venv venv && venv/bin/pip install torch numpy
Run:                                                venv/bin/python bench/classify.py --lumen build/lumen
"""
import argparse
import json
import re
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.stride = 1 if before == after else 2
        self.one, self.two = nn.Conv2d(before, after, 3, self.stride, 1, bias=False), nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)

    def forward(self, x):
        y = self.norm2(self.two(F.relu(self.norm1(self.one(x)))))
        if self.stride == 2:
            quarter = x.shape[1] // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, quarter, quarter))
        return F.relu(x + y)


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        widths = [16] * 4 + [32] * 3 + [64] * 3
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in zip(widths, widths[1:])))
        self.answer = nn.Linear(64, 10)

    def forward(self, x):
        return self.answer(self.blocks(F.relu(self.norm(self.first(x)))).mean((2, 3)))


def write_images(folder, count):
    """IDX files of random colours: speed does not depend on what they show."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=generator).numpy().tobytes()
    labels = bytes(i % 10 for i in range(count))
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx4-ubyte").write_bytes(struct.pack(">BBBBIIII", 0, 0, 8, 4, count, 32, 32, 3) + pixels)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, count) + labels)


def torch_speed(batch, steps):
    model = ResNet20().to(memory_format=torch.channels_last)
    assert sum(p.numel() for p in model.parameters()) == 269_722
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    x = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    y = torch.arange(batch) % 10
    began = 0
    for step in range(steps + 3):
        if step == 3:
            began = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return batch * steps / (time.perf_counter() - began)


def lumen_speed(lumen, folder, batch, steps, threads, run):
    """Over all lines but the first, in whose seconds kernels are compiled or loaded, and tried."""
    out = subprocess.run([lumen, "classify", "train", folder, "--family", "resnet", "-o", run, "-b", str(batch), "--steps", str(steps),
                          "--test", "1", "--threads", str(threads), "--no-augment"], check=True, capture_output=True, text=True).stdout
    lines = [(int(a), float(b)) for a, b in re.findall(r"step ([0-9]+)/.* ([0-9.]+) images/s", out)]
    if len(lines) < 2:
        raise SystemExit("too few --steps: all of them were done within the first seconds")
    parts = [(after - before, speed) for (before, _), (after, speed) in zip(lines, lines[1:])]
    return sum(n for n, _ in parts) / sum(n / speed for n, speed in parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="JSON of all rounds")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), 2000)
        for i in range(options.rounds):
            theirs.append(torch_speed(options.batch, options.steps))
            ours.append(lumen_speed(options.lumen, folder, options.batch, options.steps, options.threads, f"{folder}/run{i}"))
            print(f"round {i + 1}: PyTorch {theirs[-1]:.1f}, Lumen {ours[-1]:.1f} images/s", flush=True)
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"median of {options.threads} threads: Lumen {a:.1f}, PyTorch {b:.1f} images/s, ratio {a / b:.2f}")
    if options.out:
        facts = {"threads": options.threads, "batch": options.batch, "steps": options.steps, "lumen": ours, "pytorch": theirs, "torch": torch.__version__}
        Path(options.out).write_text(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
