#!/usr/bin/env python3
"""Trains ResNet-20 (3 x 32 x 32, 10 classes) on made-up colour images in PyTorch and by `lumen classify train`, alternating, with the
same batch and number of threads, and prints images per second and the ratio. Only on a machine that does nothing else.

With --inference: one thread, one image at a time, floats in PyTorch (its weights folded with what normalizations remember, in the
layout that is faster here; and in batches of 64) beside what `lumen classify export` writes, in 8 bits and in floats. Times are a
thread's own processor time, so that others on the machine disturb less; medians and the least of many calls, in turns. Needs cc.

Needs PyTorch from PyPI in a virtual environment:   python3 -m venv venv && venv/bin/pip install torch numpy
Run:                                                venv/bin/python bench/classify.py --lumen build/lumen
"""
import argparse
import copy
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


HARNESS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int lumen_run(const void* const* inputs, void* const* results);
int main(int argc, char** argv) {
  static float image[3072], answers[10];
  for (int i = 0; i < 3072; ++i) image[i] = (float)((i * 2654435761u >> 16) % 256) / 128 - 1;
  const void* const inputs[] = {image};
  void* const results[] = {answers};
  for (int n = atoi(argv[argc - 1]); n > 0; --n) {
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    if (lumen_run(inputs, results)) return 1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    printf("%.9f\n", (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
  }
  return 0;
}
"""


def folded(model):
    """Normalizations are multiplied into the convolutions before them."""
    model = copy.deepcopy(model).eval()
    fuse = torch.nn.utils.fusion.fuse_conv_bn_eval
    model.first, model.norm = fuse(model.first, model.norm), nn.Identity()
    for b in model.blocks:
        b.one, b.norm1 = fuse(b.one, b.norm1), nn.Identity()
        b.two, b.norm2 = fuse(b.two, b.norm2), nn.Identity()
    return model


def torch_times(model, x, count):
    times = []
    with torch.inference_mode():
        for _ in range(count):
            began = time.thread_time()
            model(x)
            times.append((time.thread_time() - began) / len(x))
    return times


def exported(lumen, folder, run, way, target):
    """A program that calls what was exported of a run that was quantized so, and prints the time of each call."""
    subprocess.run([lumen, "classify", "quantize", run, folder, "--ranges", "static", "--threads", "1", *way], check=True, capture_output=True)
    out = f"{run}-{len(way)}"
    subprocess.run([lumen, "classify", "export", run, "--target", target, "-o", out], check=True, capture_output=True)
    Path(f"{out}/main.c").write_text(HARNESS)
    subprocess.run(["cc", "-O2", "-o", f"{out}/program", f"{out}/main.c", f"{out}/model.c", f"{out}/kernels.o"], check=True)
    return f"{out}/program"


def inference(options):
    torch.set_num_threads(1)
    ways = {}
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), 200)
        run = f"{folder}/run"
        subprocess.run([options.lumen, "classify", "train", folder, "--family", "resnet", "-o", run, "-b", "16", "--steps", "2", "--test", "1",
                        "--threads", "1", "--no-augment"], check=True, capture_output=True)
        programs = {"Lumen, 8 bits, static ranges": exported(options.lumen, folder, run, [], options.target)}
        calibration = json.loads((Path(run) / "ranges.json").read_text())["calibration"]
        names = list(calibration["products"])
        programs["Lumen, floats"] = exported(options.lumen, folder, run, ["--keep-float", ",".join(names)], options.target)
        model = folded(ResNet20())
        last = copy.deepcopy(model).to(memory_format=torch.channels_last)
        one, many = torch.randn(1, 3, 32, 32), torch.randn(64, 3, 32, 32)
        torches = {"PyTorch, floats, channels first": (model, one, 40), "PyTorch, floats, channels last": (last, one.to(memory_format=torch.channels_last), 40),
                   "PyTorch, floats, channels last, 64 at once": (last, many.to(memory_format=torch.channels_last), 3)}
        for _ in range(options.rounds):
            for name, program in programs.items():
                lines = subprocess.run([program, "100"], check=True, capture_output=True, text=True).stdout.split()
                ways.setdefault(name, []).extend(float(x) for x in lines[10:])
            for name, (m, x, count) in torches.items():
                torch_times(m, x, 2)
                ways.setdefault(name, []).extend(torch_times(m, x, count))
    ours = next(iter(programs))
    for name, times in ways.items():
        middle, least = statistics.median(times), min(times)
        print(f"{name}: {1e3 * middle:.3f} ms an image, the least {1e3 * least:.3f}; beside our 8 bits "
              f"{middle / statistics.median(ways[ours]):.2f}, of the least {least / min(ways[ours]):.2f}")
    if options.out:
        Path(options.out).write_text(json.dumps({"seconds": ways, "torch": torch.__version__, "target": options.target}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="JSON of all rounds")
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--target", default="x86-64-v3", help="of --inference: what lumen doctor lists that runs here")
    options = parser.parse_args()
    if options.inference:
        return inference(options)
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
