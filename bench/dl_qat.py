#!/usr/bin/env python3
"""DL-QAT beside what else gives 3 bits in groups of 128: trains a small Llama on real text, then rounds it in several ways and measures
each file on text that nobody trained on. Prints a table.

  python3 bench/dl_qat.py --lumen build/lumen --device cuda --text TRAIN.txt .. --heldout TEXT.txt

The model has about 30 million parameters (--width, --layers), byte pairs of 4096 made from the text. Ways:
  RTN                 codes by the format's own search, nothing trained
  LoRA, then RTN      an adapter trained beside the unrounded model, folded in, rounded
  scales and offsets  trained alone; what QA-LoRA can learn (an adapter of what groups sum up to, folded into offsets) is a part of it
  DL-QAT              the recipe dl-qat-3bit: fields, then magnitudes of groups, then an adapter inside the rounding
All that train see the same text for as many steps.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FORMAT = "int3_g128_affine"
MIXTURE = "layers3"

FAMILY = """
model trained(cfg) : extends llama {{
  size small {{ vocab = 4096; hidden = {width}; layers = {layers}; heads = {heads}; ffn = {inner}; context = 512; eps = 1e-5 }}
}}
"""


class Bench:
    def __init__(self, arguments, folder):
        self.a, self.folder = arguments, folder
        models = folder / "models"
        models.mkdir()
        inner = arguments.width * 11 // 4 // 128 * 128
        (models / "trained.lum").write_text(FAMILY.format(width=arguments.width, layers=arguments.layers, heads=arguments.width // 64, inner=inner))
        # Tables and the output stay as they are: what is compared is the layers' matrices.
        (models / "layers3.toml").write_text('doc = "3 bits in the layers"\n[[quantize]]\nvalue = "*"\nformat = "f16"\n'
                                             f'[[quantize]]\ntensor = "blk.*"\nformat = "{FORMAT}"\n')
        self.shared = ["--models", models, "--device", arguments.device]
        self.text = folder / "text.txt"
        self.text.write_text("\n".join(Path(f).read_text() for f in arguments.text))

    def run(self, *command):
        begin = time.perf_counter()
        done = subprocess.run([str(c) for c in (self.a.lumen, *command, *self.shared)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lumen {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        print(f"# {time.perf_counter() - begin:6.1f} s  lumen {command[0]} {command[1]} .. {command[-1]}", flush=True)
        return done.stdout + done.stderr

    def train(self, out, *flags):
        return self.run("train", "-o", self.folder / out, "--data", self.text, "-c", 512, "--validation", 0.02, "--eval-every", 0,
                        "--save-every", 0, "--seed", 1, *flags)

    def tune(self, out, *flags):
        return self.train(out, "-m", self.base, "--steps", self.a.steps, "--warmup", self.a.steps // 20, "-b", self.a.batch, "--accumulate", 1, *flags)

    def measure(self, name, file, run=None):
        """One row: perplexity, divergence from the unrounded model, size, and what was trained."""
        common = ("-f", self.a.heldout, "-c", 512, "-b", 8, "--chunks", self.a.chunks)
        plain = self.run("perplexity", "-m", file, *common)
        far = self.run("perplexity", "-m", file, *common, "--kl-divergence", self.folder / "base.logits")
        number = lambda pattern, text: float(re.search(pattern, text)[1])
        share = ""
        if run:
            facts = [json.loads(line)["run"] for line in next((self.folder / run).rglob("metrics.jsonl")).read_text().splitlines() if '"run"' in line]
            share = f"{100 * facts[-1]['trained'] / facts[-1]['parameters']:.2f} %"
        self.rows.append((name, number(r"perplexity[^\d]*([\d.]+)", plain), number(r"KL divergence ([-\d.]+)", far),
                          number(r"likeliest token ([\d.]+)", far), file.stat().st_size / 1e6, share))
        print(self.rows[-1], flush=True)

    def table(self):
        self.rows = []
        self.train("base", "--family", "trained", "--shape", "small", "--tokenizer", "bytes:4096", "-b", 32, "--steps", self.a.base_steps,
                   "--lr", 2e-3, "--min-lr", 2e-4, "--warmup", min(100, self.a.base_steps // 4), "--precision", "bf16")
        self.base = self.folder / "base" / "model.gguf"
        self.run("perplexity", "-m", self.base, "-f", self.a.heldout, "-c", 512, "-b", 8, "--chunks", self.a.chunks, "--record-logits",
                 self.folder / "base.logits")
        self.measure("unrounded", self.base)
        self.run("quantize", self.base, self.folder / "rtn.gguf", MIXTURE)
        self.measure("RTN", self.folder / "rtn.gguf")
        adapter = ("--lora", "--lora-rank", self.a.rank, "--lora-alpha", 2 * self.a.rank)
        self.tune("lora", *adapter, "--lr", 2e-4, "--merge", "f32")
        self.run("quantize", self.folder / "lora" / "model.gguf", self.folder / "lora-rtn.gguf", MIXTURE)
        self.measure("LoRA, then RTN", self.folder / "lora-rtn.gguf", "lora")
        self.tune("fields", *adapter, "--lr", 1e-3, "-r", self.only_fields())
        self.measure("scales and offsets", self.folder / "fields" / "model.gguf", "fields")
        self.train("dl", "-m", self.base, "-r", self.scaled_recipe(self.a.steps / 1000), "-b", self.a.batch, "--accumulate", 1)
        self.measure("DL-QAT", self.folder / "dl" / "model.gguf", "dl")
        print("| way | perplexity | KL, nats | same likeliest token | MB | trained |\n| --- | --- | --- | --- | --- | --- |")
        for name, perplexity, kl, same, size, share in self.rows:
            print(f"| {name} | {perplexity:.3f} | {kl:.4f} | {same:.1f} % | {size:.1f} | {share} |")

    def only_fields(self):
        file = self.folder / "fields.toml"
        file.write_text('[adapter]\nmethod = "lora"\nrank = 4\nalpha = 8\ntargets = ["all-linear"]\n'
                        f'[ship]\ntype = "{MIXTURE}"\nfields = "learned"\ntrains = ["fields"]\n[optimizer]\nweight_decay = 0.0\n')
        return file

    def scaled_recipe(self, share):
        """recipes/dl-qat-3bit.toml with its phases cut to so many steps in all."""
        text = (Path(__file__).resolve().parent.parent / "recipes" / "dl-qat-3bit.toml").read_text()
        text = re.sub(r"^(steps = )(\d+)", lambda m: m[1] + str(max(2, round(int(m[2]) * share))), text, flags=re.M)
        text = text.replace(f'type = "{FORMAT}"', f'type = "{MIXTURE}"')
        text = re.sub(r"^(length = )\d+", r"\g<1>512", text, flags=re.M)
        text = re.sub(r"^(rank = )\d+", rf"\g<1>{self.a.rank}", text, flags=re.M)
        text = re.sub(r"^(alpha = )\d+", rf"\g<1>{2 * self.a.rank}", text, flags=re.M)
        file = self.folder / "dl-qat.toml"
        file.write_text(text)
        return file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lumen", type=Path, default=Path("build/lumen"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--heldout", type=Path, required=True)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--base-steps", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--chunks", type=int, default=128)
    arguments = parser.parse_args()
    arguments.lumen = arguments.lumen.resolve()
    arguments.heldout = arguments.heldout.resolve()
    with tempfile.TemporaryDirectory() as folder:
        Bench(arguments, Path(folder)).table()


if __name__ == "__main__":
    main()
