#!/usr/bin/env python3
"""Trains one model from scratch with every recipe of quantized training on the same batches of a real text, and prints the
table of docs/measurements/quantized-training.md: speed, loss on text held out, and how far that is from bf16's. With --report, the
page of `lumen report` over all runs; with --picture, an SVG of how far each loss is from bf16's while it falls.

Run:  python3 bench/witness_text.py seen.txt held.txt FOLDER..
      python3 bench/recipes.py --text seen.txt --held held.txt --device cuda --report recipes.html --picture recipes.svg
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# 110 million parameters, 25 million of them in embedding and output; every extent a multiple of 128.
FAMILY = """model witness(cfg) : extends llama, gguf "witness" {
  size base  { vocab = 16384; hidden = 768; layers = 12; heads = 12; ffn = 2048; context = 512; eps = 1e-5 }
  size small { vocab = 65; hidden = 256; layers = 4; heads = 4; ffn = 512; context = 128; eps = 1e-5 }
}
"""
RECIPES = ["bf16", "fp8-tensors", "fp8-delayed", "fp8-rows", "fp8-rows-exact-weights", "fp8-blocks", "infir2", "moss",
           "mxfp8", "int8-rows", "mxfp4-training", "nvfp4-training"]
COLORS = ["#2563c9", "#d9591c", "#1f8f4e", "#9a4fd0", "#c2293f", "#0e8c9b", "#a07a00", "#64748b", "#b0478f", "#5b8c1a",
          "#8a4b2a", "#3d5a80"]


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def train(args, families, work, recipe, seed):
    run = work / f"{recipe}-{seed}"
    command = [args.lumen, "train", "--models", families, "--family", "witness", "--shape", args.size, "--data", args.text,
               "--validation-data", args.held, "--tokenizer", args.tokenizer, "--steps", args.steps, "-b", args.batch,
               "-c", args.length, "--lr", args.lr, "--min-lr", args.lr / 10, "--warmup", args.steps // 20, "--seed", seed,
               "--precision", recipe, "--eval-every", args.steps // 5, "--save-every", 0, "-o", run, "--overwrite"]
    if args.device:
        command += ["--device", args.device]
    begin = time.time()
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=args.limit)
    except subprocess.TimeoutExpired:
        print(f"{recipe}: more than {args.limit} s", file=sys.stderr, flush=True)
        return None
    if done.returncode != 0:
        print(f"{recipe}: {done.stderr[-400:]}", file=sys.stderr, flush=True)
        return None
    lines = lines_of(run)
    held = [(x["step"], x["validation_loss"]) for x in lines if "validation_loss" in x]
    losses = {x["step"]: x["loss"] for x in lines if "loss" in x}
    speeds = sorted(x["tokens_per_second"] for x in lines if "tokens_per_second" in x)
    # Only what the report needs is kept: a model of every run would fill the disk.
    for file in run.rglob("*"):
        if file.suffix in (".gguf", ".safetensors", ".bin") and file.is_file():
            file.unlink()
    return {"recipe": recipe, "seed": seed, "run": str(run), "held": held, "losses": losses,
            "speed": speeds[len(speeds) // 2] if speeds else 0, "seconds": time.time() - begin}


def smoothed(values, span):
    out, total, weight, keep = [], 0.0, 0.0, 1 - 1 / span
    for v in values:
        total, weight = keep * total + v, keep * weight + 1
        out.append(total / weight)
    return out


def picture(base, others, path):
    """How far the training loss of each recipe is from bf16's, in percent, step by step on the same batches."""
    steps = sorted(base["losses"])
    width, height, left, right, top, bottom = 820, 380, 60, 190, 34, 40
    curves = []
    for other in others:
        common = [s for s in steps if s in other["losses"]]
        a = smoothed([base["losses"][s] for s in common], 40)
        b = smoothed([other["losses"][s] for s in common], 40)
        curves.append((other["recipe"], [(s, 100 * (y / x - 1)) for s, x, y in zip(common, a, b)][len(common) // 20:]))
    most = max(0.6, max(y for _, c in curves for _, y in c))
    least = min(-0.6, min(y for _, c in curves for _, y in c))
    x = lambda s: left + s / steps[-1] * (width - left - right)
    y = lambda v: height - bottom - (v - least) / (most - least) * (height - top - bottom)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           f'<text x="{left}" y="20" font-size="14">training loss beside bf16 on the same batches, percent (smoothed over 40 steps)</text>',
           f'<rect x="{left}" y="{y(0.5):.1f}" width="{width - left - right}" height="{y(-0.5) - y(0.5):.1f}" fill="#eef3fb"/>']
    tick = -20.0
    while tick <= 20:
        if least <= tick <= most and abs(tick / 0.5 - round(tick / 0.5)) < 1e-9:
            out.append(f'<path d="M{left} {y(tick):.1f}H{width - right}" stroke="{"#667080" if tick == 0 else "#dfe3e8"}"/>'
                       f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:+.1f}</text>')
        tick += 0.5
    for s in range(0, steps[-1] + 1, max(1, steps[-1] // 5)):
        out.append(f'<text x="{x(s):.1f}" y="{height - bottom + 18}" text-anchor="middle">{s}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">step</text>')
    for i, (name, curve) in enumerate(curves):
        stride = max(1, len(curve) // 200)
        path_of = "L".join(f"{x(s):.1f} {y(v):.1f}" for s, v in curve[::stride])
        color = COLORS[i % len(COLORS)]
        out.append(f'<path d="M{path_of}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        row = top + 12 + 18 * i
        out.append(f'<path d="M{width - right + 12} {row - 4}h16" stroke="{color}" stroke-width="3"/>'
                   f'<text x="{width - right + 34}" y="{row}">{name}</text>')
    path.write_text("\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--text", required=True)
    parser.add_argument("--held", required=True)
    parser.add_argument("--tokenizer", default="bytes:16384", help="a file, or bytes:N, which is learned once for all")
    parser.add_argument("--size", choices=["base", "small"], default="base")
    parser.add_argument("--recipes", nargs="*", default=RECIPES)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1], help="bf16 is trained with each")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--limit", type=float, help="seconds that a run may take")
    parser.add_argument("--device")
    parser.add_argument("--work")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(args.work or scratch)
        families = work / "families"
        families.mkdir(parents=True, exist_ok=True)
        (families / "witness.lum").write_text(FAMILY)
        if args.tokenizer.startswith("bytes:"):
            learned = work / "tokenizer.json"
            subprocess.run([args.lumen, "tokenize", "--train", args.text, "--vocabulary", args.tokenizer[6:], "-o", learned,
                            "-q"], check=True)
            args.tokenizer = learned
        runs = []
        print("| recipe | seed | tokens a second | loss held out | beside bf16 |\n|---|---|---|---|---|")
        plan = [("bf16", s) for s in args.seeds] + [(r, args.seeds[0]) for r in args.recipes if r != "bf16"]
        for recipe, seed in plan:
            run = train(args, families, work, recipe, seed)
            if not run:
                continue
            runs.append(run)
            loss, first = run["held"][-1][1], runs[0]["held"][-1][1]
            print(f"| `{recipe}` | {seed} | {run['speed']:,.0f} | {loss:.4f} | {100 * (loss / first - 1):+.2f} % |", flush=True)
            if args.json:
                args.json.write_text(json.dumps(runs))
        others = [r for r in runs if r["recipe"] != "bf16"]
        if args.picture and others:
            picture(runs[0], others, args.picture)
        if args.report and runs:
            shown = [r["run"] for r in runs if r["seed"] == args.seeds[0]]
            subprocess.run([args.lumen, "report", *shown, "-o", str(args.report)], check=True)


main()
