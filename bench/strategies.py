#!/usr/bin/env python3
"""Every strategy with several formats, and the automatic choice against mixtures of one type, on a model that was really
trained: KL divergence on text that neither training nor calibration has seen. Prints the tables of docs/compression.md.

The model is trained by Lumen on the text given (its last tenth is kept for measuring), from the recipe below; nothing is
downloaded and nothing but the tables is kept, unless --work names a folder.

Run:  python3 bench/strategies.py --lumen build/lumen --text input.txt
      python3 bench/strategies.py --lumen build/lumen --text input.txt --work w --size large --device cuda
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FAMILY = """model witness(cfg) : extends llama, gguf "witness" {
  size small { vocab = 65; hidden = 256; layers = 4; heads = 4; ffn = 512; context = 128; eps = 1e-5 }
  size large { vocab = 65; hidden = 768; layers = 12; heads = 12; ffn = 2048; context = 256; eps = 1e-5 }
}
"""
TRAINING = {"small": dict(steps=700, batch=16, length=128), "large": dict(steps=2000, batch=64, length=256)}
STRATEGIES = ["rtn", "imatrix", "hqq", "clip", "smoothquant", "awq", "gptq", "awq,gptq", "gptaq"]
FORMATS = ["int2_g64_asym", "int3_g64_asym", "int4_g64", "mxfp4", "q3_k"]
MIXTURES = ["q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "q5_k_m"]
BUDGETS = [2.5, 3.0, 3.5, 4.0, 4.6, 5.5]


class Bench:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.families = Path(args.models) if args.models else work / "families"
        self.families.mkdir(parents=True, exist_ok=True)
        if not args.models:
            (self.families / "witness.lum").write_text(FAMILY)
        text = Path(args.text).read_bytes()
        cut = len(text) * 9 // 10
        (work / "seen.txt").write_bytes(text[:cut])
        (work / "held.txt").write_bytes(text[cut:])
        self.length = str(TRAINING[args.size]["length"])

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
        t = TRAINING[self.args.size]
        self.must("train", "--family", "witness", "--shape", self.args.size, "--data", self.work / "seen.txt", "--steps",
                  t["steps"], "-b", t["batch"], "-c", t["length"], "--lr", "1e-3", "--min-lr", "1e-4", "--eval-every", "0",
                  "-o", self.work / "witness", "-q")
        return model

    def compare(self, model, files):
        out = self.work / "compare.json"
        self.must("compare", model, *files, "-f", self.work / "held.txt", "-c", self.length, "--chunks", self.args.chunks,
                  "--no-speed", "--json", out)
        return json.loads(out.read_text())["points"]

    def calibrated(self):
        return ["-f", self.work / "seen.txt", "-c", self.length, "-b", 8, "--chunks", 144, "-q"]

    def strategies(self, model):
        print("| KL, nats per token |" + "".join(f" {f} |" for f in FORMATS))
        print("|---|" + "---|" * len(FORMATS))
        for strategy in STRATEGIES:
            cells, files = [], []
            for name in FORMATS:
                file = self.work / f"{strategy.replace(',', '-')}.{name}.gguf"
                done = self.lumen("quantize", model, file, name, "--strategy", strategy, *self.calibrated())
                if done.returncode != 0:
                    cells.append("refused")
                    continue
                files.append(file)
                cells.append(None)
            points = iter(self.compare(model, files)) if files else iter([])
            cells = [c if c else f"{next(points)['kl']:.5f}" for c in cells]
            print(f"| `{strategy}` |" + "".join(f" {c} |" for c in cells), flush=True)

    def choices(self, model):
        matrix = self.work / "importance.gguf"
        self.must("imatrix", "-m", model, "-f", self.work / "seen.txt", "-c", self.length, "--chunks", 128, "-o", matrix)
        files, names = [], []
        for mixture in MIXTURES:
            file = self.work / f"mixture.{mixture}.gguf"
            self.must("quantize", model, file, mixture, "--imatrix", matrix, "-q")
            files.append(file)
            names.append(f"{mixture}, importance matrix")
        for bits in BUDGETS:
            file = self.work / f"budget.{bits}.gguf"
            self.must("quantize", model, file, "--budget", f"{bits}bpw", *self.calibrated())
            files.append(file)
            names.append(f"`--budget {bits}bpw`")
        print("\n| | bits per weight | KL, nats per token | perplexity |\n|---|---|---|---|")
        for name, p in sorted(zip(names, self.compare(model, files)), key=lambda x: x[1]["bits"]):
            print(f"| {name} | {p['bits']:.3f} | {p['kl']:.6f} | {p['ppl']:.4f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--text", required=True)
    parser.add_argument("--model", help="a model that is trained already; without it, one is trained")
    parser.add_argument("--models", help="folder with its family, where Lumen does not have it")
    parser.add_argument("--work")
    parser.add_argument("--size", choices=TRAINING, default="small")
    parser.add_argument("--device")
    parser.add_argument("--chunks", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, Path(args.work) if args.work else Path(scratch))
        model = bench.train()
        bench.strategies(model)
        bench.choices(model)


main()
