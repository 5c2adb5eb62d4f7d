#!/usr/bin/env python3
"""Products of any shape on this machine's GPU, beside cuBLASLt through PyTorch in the same run: thirty ordinary shapes, weights
in several types, each ratio, their geometric mean and the least.

Usage: bench/products.py [--build build] [--types bf16,fp8_e4m3*,q4_0,q4_k,mxfp4,fp8_e4m3] [--machine ROW] [--shapes MxNxK,..]
  --types    weights; activations are bf16 beside bf16, codes of the same type where a * is behind it, else f32, as in inference
Ours is the fastest plan of what the families of kernels bid and offer beside it; `first`, in brackets, is the one that the cost
model puts first. (A program tries those that give the first one's bits.) Weights of all types but the codes are compared with bf16 by bf16. PyTorch multiplies as many copies of
the weight in turn as no cache holds, as we do; times are medians by the card's clock.
"""
import argparse
import collections
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

# Rows, columns and K of models that people run (Llama, Qwen, Gemma, Mistral, Phi), and odd ones.
SHAPES = """17x4096x4096 17x14336x4096 33x4096x14336 48x3072x8192 65x8192x8192 77x5120x5120 96x2048x5632 100x18944x3584
128x4096x4096 128x28672x4096 160x2560x9728 200x1536x8960 256x11008x4096 256x4096x11008 300x5120x13824 333x11008x4096
384x3072x3072 512x14336x4096 512x4096x14336 640x2304x9216 777x5120x13824 896x4864x896 1000x4096x4096 1024x8192x8192
1024x6144x4096 1500x2048x2048 1536x3584x18944 2048x2048x2048 2048x5632x2048 2048x4096x14336 3000x4096x4096 3333x2560x10240
4096x4096x4096 4096x28672x4096 5000x3000x7000""".split()
COPIES = 256 << 20


def ours(build: Path, shapes, types, machine):
    """Microseconds of each line: the cost model's first and the fastest bid."""
    find = next((build / n for n in ("bench/bench_gpu", "bench_gpu") if (build / n).exists()), build / "bench_gpu")
    command = [find, "--plans", *(["--machine", machine] if machine else []), "--shapes", ",".join(shapes), ",".join(types)]
    run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    bids = collections.defaultdict(list)
    for name, seconds, plan in re.findall(r"^bid (.+?) \| .+? \| .+? \| (.+?) \| (.*)$", run.stdout, re.M):
        bids[name].append((float(seconds) * 1e6, plan))
    for line in run.stdout.splitlines():
        if (error := re.search(r"error (\S+)", line)) and not float(error[1]) < 0.05:
            print("wrong:", line, file=sys.stderr)
        elif "error" not in line and not line.startswith("bid ") and "x" in line.split(" ")[-1]:
            print(line, file=sys.stderr)
    return bids


def beside(shapes):
    """Microseconds of PyTorch for each shape: bf16, and FP8 where it multiplies that."""
    import torch

    def time(run):
        for i in range(3):
            run(i)
        torch.cuda.synchronize()
        rounds, repeat = [], 2
        for r in range(7):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            for i in range(repeat):
                run(i)
            end.record()
            torch.cuda.synchronize()
            each = begin.elapsed_time(end) / repeat * 1e-3
            if r > 0:
                rounds.append(each)
            repeat = min(max(int(0.004 / max(each, 1e-9)), 2), 200)
        return statistics.median(rounds) * 1e6

    out, one = {}, torch.ones((), device="cuda")
    for shape in shapes:
        m, n, k = map(int, shape.split("x"))
        count = lambda size: max(1, min(8, COPIES // (n * k * size)))
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        b = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(count(2))]
        # Launches of small products take longer than the products: a recorded loop has no gaps.
        line = {"bf16": time(recorded(lambda i: a @ b[i % len(b)].T, len(b)))}
        try:
            x = a.to(torch.float8_e4m3fn)
            y = [w.to(torch.float8_e4m3fn) for w in (b * 2)[: count(1)]]
            line["fp8"] = time(recorded(lambda i: torch._scaled_mm(x, y[i % len(y)].T, one, one, out_dtype=torch.bfloat16), len(y)))
        except RuntimeError as error:
            line["why"] = str(error).splitlines()[0]
        out[shape] = line
    return out


def recorded(run, copies):
    """Calls of `run` with each copy, as graphs whose replays are timed."""
    import torch
    side = torch.cuda.Stream()
    graphs = []
    with torch.cuda.stream(side):
        for i in range(copies):
            run(i)
        torch.cuda.synchronize()
        for i in range(copies):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run(i)
            graphs.append(graph)
    torch.cuda.synchronize()
    return lambda i: graphs[i % copies].replay()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--types", default="bf16,fp8_e4m3*,q4_0,q4_k,mxfp4,fp8_e4m3")
    parser.add_argument("--machine", default="")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shapes, types = arguments.shapes.split(","), arguments.types.split(",")
    if arguments.beside:
        print(json.dumps(beside(shapes)))
        return 0
    run = subprocess.run([sys.executable, __file__, "--beside", "--shapes", arguments.shapes], capture_output=True, text=True)
    torch = json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else {}
    if not torch:
        print("without PyTorch:", run.stderr.strip().splitlines()[-1:], file=sys.stderr)
    bids = ours(arguments.build, shapes, types, arguments.machine)
    print(f"{'shape':18}{'cuBLASLt us':>14}{'TFLOP/s':>9}" + "".join(f"{t:>22}" for t in types))
    ratios = collections.defaultdict(list)
    rows = {}
    for shape in shapes:
        m, n, k = map(int, shape.split("x"))
        base = torch.get(shape, {}).get("bf16")
        text = f"{shape:18}" + (f"{base:14.1f}{2 * m * n * k / base / 1e6:9.0f}" if base else f"{'-':>14}{'-':>9}")
        for type in types:
            all = bids.get(f"{type} {shape}")
            other = torch.get(shape, {}).get("fp8") if type.endswith("*") else base
            if not all:
                text += f"{'-':>22}"
                continue
            best = min(all)[0]
            rows[f"{type} {shape}"] = {"best": min(all), "first": all[0], "beside": other}
            if other:
                ratios[type].append((other / best, other / all[0][0], shape))
                text += f"{best:9.1f} {other / best:5.2f} ({other / all[0][0]:4.2f})"
            else:
                text += f"{best:9.1f}   -   ( -  )"
        print(text)
    for type in types:
        if not ratios[type]:
            continue
        mean = lambda i: math.exp(statistics.fmean(math.log(r[i]) for r in ratios[type]))
        least = min(ratios[type])
        below = sum(r[0] < 0.8 for r in ratios[type])
        print(f"{type}: geometric mean {mean(0):.3f} (first {mean(1):.3f}) of {len(ratios[type])}; least {least[0]:.2f} at {least[2]}; {below} below 0.8")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
