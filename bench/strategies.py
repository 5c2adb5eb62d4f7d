#!/usr/bin/env python3
"""Every strategy with several formats, and the automatic choice against mixtures of one type, on a model that was really
trained: KL divergence on text that neither training nor calibration has seen. Prints the tables of docs/measurements/compression.md.

The model is trained by Lumen on the text given, from a recipe below; nothing is downloaded and nothing but the tables is
kept, unless --work names a folder. Without --held the last tenth of the text is what is measured on; bench/witness_text.py
makes both of folders of real data.

Run:  python3 bench/strategies.py --text input.txt
      python3 bench/strategies.py --text seen.txt --held held.txt --size llama --device cuda
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FAMILY = """model witness(cfg) : extends llama, gguf "witness" {
  size small { vocab = 65; hidden = 256; layers = 4; heads = 4; ffn = 512; context = 128; eps = 1e-5 }
  size llama { vocab = 16384; hidden = 640; layers = 12; heads = 10; kv_heads = 5; ffn = 1792; context = 512; eps = 1e-5 }
}
model witness_moe(cfg) : extends qwen3_moe, gguf "witness_moe" {
  size mixture { vocab = 16384; hidden = 512; layers = 8; heads = 8; kv_heads = 4; head_dim = 64; ffn = 1536; experts = 16; picked = 4; expert_ffn = 512; context = 512; eps = 1e-5 }
}
"""
# What lumen train is told; windows of so many tokens in all that follows.
PAIRS = ["--tokenizer", "bytes:16384", "--steps", 1500, "-b", 32, "--precision", "bf16"]
RECIPES = {
    "small": ("witness", 128, ["--steps", 700, "-b", 16]),
    "llama": ("witness", 512, PAIRS),
    "mixture": ("witness_moe", 512, PAIRS),
}
STRATEGIES = ["rtn", "imatrix", "hqq", "clip", "smoothquant", "awq", "gptq", "awq,gptq", "gptaq"]
FORMATS = ["int2_g64_asym", "int3_g64_asym", "int4_g64", "mxfp4", "q3_k"]
MIXTURES = ["q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "q5_k_m", "q6_k"]
BUDGETS = [2.5, 3.0, 3.5, 4.0, 4.6, 5.5, 6.6]


class Bench:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.families = Path(args.models) if args.models else work / "families"
        self.families.mkdir(parents=True, exist_ok=True)
        if not args.models:
            (self.families / "witness.lum").write_text(FAMILY)
        self.family, self.length, self.recipe = RECIPES[args.size]
        self.seen, self.held = args.text, args.held
        if not args.held:
            text = Path(args.text).read_bytes()
            cut = len(text) * 9 // 10
            self.seen, self.held = work / "seen.txt", work / "held.txt"
            self.seen.write_bytes(text[:cut])
            self.held.write_bytes(text[cut:])

    def lumen(self, *words):
        command = [self.args.lumen, *map(str, words), "--models", str(self.families)]
        if self.args.device:
            command += ["--device", self.args.device]
        done = subprocess.run(command, capture_output=True, text=True)
        return done

    def must(self, *words):
        done = self.lumen(*words)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr}")
        return done

    def train(self):
        if self.args.model:
            return Path(self.args.model)
        model = self.work / "witness" / "model.gguf"
        if model.exists():
            return model
        begin = time.time()
        self.must("train", "--family", self.family, "--shape", self.args.size, "--data", self.seen, *self.recipe, "-c",
                  self.length, "--lr", "1e-3", "--min-lr", "1e-4", "--eval-every", "0", "-o", self.work / "witness", "-q")
        print(f"trained in {time.time() - begin:.0f} s\n", flush=True)
        return model

    def compare(self, model, files):
        out = self.work / "compare.json"
        self.must("compare", model, *files, "-f", self.held, "-c", self.length, "--chunks", self.args.chunks,
                  "--no-speed", "--json", out)
        return json.loads(out.read_text())["points"]

    def calibrated(self):
        return ["-f", self.seen, "-c", self.length, "-b", 8, "--chunks", self.args.calibration, "-q"]

    def strategies(self, model):
        formats = self.args.formats
        print("| KL, nats per token |" + "".join(f" {f} |" for f in formats) + " seconds, each |")
        print("|---|" + "---|" * (len(formats) + 1))
        for strategy in self.args.strategies:
            cells, files, seconds = [], [], []
            for name in formats:
                file = self.work / f"{strategy.replace(',', '-')}.{name}.gguf"
                begin = time.time()
                done = self.lumen("quantize", model, file, name, "--strategy", strategy, *self.calibrated())
                if done.returncode != 0:
                    print(f"{strategy}, {name}: {done.stderr}", file=sys.stderr, flush=True)
                    cells.append("refused")
                    continue
                seconds.append(time.time() - begin)
                files.append(file)
                cells.append(None)
            points = iter(self.compare(model, files)) if files else iter([])
            cells = [c if c else f"{next(points)['kl']:.5f}" for c in cells]
            spent = f"{min(seconds):.0f} to {max(seconds):.0f}" if seconds else ""
            print(f"| `{strategy}` |" + "".join(f" {c} |" for c in cells) + f" {spent} |", flush=True)

    def choices(self, model):
        matrix = self.work / "importance.gguf"
        self.must("imatrix", "-m", model, "-f", self.seen, "-c", self.length, "--chunks", self.args.calibration, "-o", matrix)
        files, names = [], []
        for mixture in self.args.mixtures:
            file = self.work / f"mixture.{mixture}.gguf"
            self.must("quantize", model, file, mixture, "--imatrix", matrix, "-q")
            files.append(file)
            names.append(f"{mixture}, importance matrix")
        for bits in self.args.budgets:
            file = self.work / f"budget.{bits}.gguf"
            begin = time.time()
            self.must("quantize", model, file, "--budget", f"{bits}bpw", *self.calibrated())
            files.append(file)
            names.append(f"`--budget {bits}bpw` ({time.time() - begin:.0f} s)")
        print("\n| | bits per weight | KL, nats per token | perplexity |\n|---|---|---|---|")
        for name, p in sorted(zip(names, self.compare(model, files)), key=lambda x: x[1]["bits"]):
            print(f"| {name} | {p['bits']:.3f} | {p['kl']:.6f} | {p['ppl']:.4f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--text", required=True)
    parser.add_argument("--held", help="text to measure on; without it, the last tenth of --text")
    parser.add_argument("--model", help="a model that is trained already; without it, one is trained")
    parser.add_argument("--models", help="folder with its family, where Lumen does not have it")
    parser.add_argument("--work")
    parser.add_argument("--size", choices=RECIPES, default="small")
    parser.add_argument("--device")
    parser.add_argument("--chunks", type=int, default=100, help="windows of the text that is measured on")
    parser.add_argument("--calibration", type=int, default=144, help="windows that are calibrated on")
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    parser.add_argument("--formats", nargs="*", default=FORMATS)
    parser.add_argument("--mixtures", nargs="*", default=MIXTURES)
    parser.add_argument("--budgets", nargs="*", type=float, default=BUDGETS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, Path(args.work) if args.work else Path(scratch))
        model = bench.train()
        if args.strategies:
            bench.strategies(model)
        if args.mixtures or args.budgets:
            bench.choices(model)


main()
