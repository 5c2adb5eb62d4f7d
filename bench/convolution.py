#!/usr/bin/env python3
"""Convolutions in bf16 on one GPU: cuDNN, on AMD MIOpen (PyTorch, channels last, its own search for the fastest way) beside Lumen, in the same run, of residual
networks, U-Nets and shapes nobody chose. Milliseconds of the product, of the gradient of the images, of that of the weight; ratios are cuDNN's time
over Lumen's.

Needs PyTorch for CUDA or ROCm. Run:    python3 bench/convolution.py --bench build/bench/bench_convolution [--device hip]
"""
import argparse
import json
import math
import statistics
import subprocess

# images x high x wide x channels : outputs, side of the window, stride, zeros around
SHAPES = [
    "64x56x56x64:64,3,1,1", "64x28x28x128:128,3,1,1", "64x14x14x256:256,3,1,1", "64x7x7x512:512,3,1,1", "64x56x56x256:64,1,1,0",
    "64x28x28x512:128,1,1,0", "64x56x56x128:128,3,2,1", "64x28x28x256:256,3,2,1", "64x224x224x3:64,7,2,3", "128x32x32x16:16,3,1,1",
    "16x64x64x320:320,3,1,1", "16x32x32x640:640,3,1,1", "32x35x35x96:144,5,1,2", "17x33x41x48:80,3,1,1", "8x128x128x128:128,3,1,1",
    "100x28x28x72:200,3,1,1",
]


def numbers(shape):
    left, right = shape.split(":")
    return [int(x) for x in left.split("x")] + [int(x) for x in right.split(",")]


def cudnn(shape, runs=30):
    import torch
    import torch.nn.functional as F
    torch.backends.cudnn.benchmark = True
    n, h, w, c, o, k, s, p = numbers(shape)
    x = torch.randn(n, c, h, w, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    weight = (torch.randn(o, c, k, k, device="cuda") / math.sqrt(k * k * c)).bfloat16().to(memory_format=torch.channels_last)
    y = F.conv2d(x, weight, stride=s, padding=p)
    slope = torch.randn_like(y)

    def backward(which):
        return torch.ops.aten.convolution_backward(slope, x, weight, None, [s, s], [p, p], [1, 1], False, [0, 0], 1, which)

    ways = {"forward": lambda: F.conv2d(x, weight, stride=s, padding=p), "images": lambda: backward([True, False, False]),
            "weight": lambda: backward([False, True, False])}
    out = {}
    for name, once in ways.items():
        for _ in range(10):
            once()
        torch.cuda.synchronize()
        times = []
        for _ in range(5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(runs):
                once()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / runs)
        out[name] = statistics.median(times)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--device", default="cuda", help="Lumen's: cuda or hip (PyTorch calls both cuda)")
    parser.add_argument("--out")
    o = parser.parse_args()
    ours = subprocess.run([o.bench, "--json", "--device", o.device, *o.shapes], capture_output=True, text=True)
    if ours.returncode != 0:
        raise SystemExit(ours.stdout + ours.stderr)
    rows, ratios = [], {"forward": [], "images": [], "weight": []}
    for line in ours.stdout.splitlines():
        row = json.loads(line)
        row["cudnn"] = cudnn(row["shape"])
        text = f"{row['shape']:26}"
        for way, of in ratios.items():
            of.append(row["cudnn"][way] / row[way])
            text += f"  {way} {row[way]:.3f} ms, cuDNN {row['cudnn'][way]:.3f}: {of[-1]:.2f}"
        print(text, flush=True)
        rows.append(row)
    for way, of in ratios.items():
        print(f"{way}: geometric mean {math.exp(statistics.fmean(math.log(x) for x in of)):.2f}, least {min(of):.2f}")
    if o.out:
        with open(o.out, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
