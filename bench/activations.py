#!/usr/bin/env python3
"""Activations in few bits on a model that was really trained: KL divergence on text that was not calibrated on, of the model as
it is, with channels that stand out, and with tokens that do (bench/token_spikes.py). Prints the table of docs/measurements/compression.md.

Run:  python3 bench/activations.py --lumen build/lumen --model model-f32.gguf --seen seen.txt --held held.txt [--models FOLDER]
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

STATIC = ["--activation-scales", "static"]
INT8 = ["int8_row", "--activations", "int8", *STATIC]
KEPT = [*INT8, "--keep-spikes"]
PLAIN, OUTLIERS, SPIKES = "as it is", "with outliers", "with spikes"
RUNS = [
    ("int8_row, floats", ["int8_row", "--strategy", "rtn"], [PLAIN]),
    ("int8_row, int8 static", INT8, [PLAIN, OUTLIERS, SPIKES]),
    ("int8_row, int8 static, smoothquant", [*INT8, "--strategy", "smoothquant"], [OUTLIERS, SPIKES]),
    ("int8_row, int8 static, least error", [*INT8, "--activation-reach", "error"], [PLAIN, OUTLIERS, SPIKES]),
    ("int8_row, int8 dynamic", ["int8_row", "--activations", "int8"], [PLAIN]),
    ("int8_row, int8_row", ["int8_row", "--activations", "int8_row"], [PLAIN, OUTLIERS, SPIKES]),
    ("int8_row, int8_row, smoothquant", ["int8_row", "--activations", "int8_row", "--strategy", "smoothquant"], [OUTLIERS]),
    ("int8_row, int8_block", ["int8_row", "--activations", "int8_block"], [PLAIN]),
    ("fp8_row, fp8_tensor static", ["fp8_row", "--activations", "fp8_tensor", *STATIC], [PLAIN, OUTLIERS, SPIKES]),
    ("fp8_row, fp8_row", ["fp8_row", "--activations", "fp8_row"], [PLAIN]),
    ("mxfp8_e4m3, mxfp8_e4m3", ["mxfp8_e4m3", "--activations", "mxfp8_e4m3"], [PLAIN]),
    ("int4_g64, floats", ["int4_g64", "--strategy", "gptq"], [PLAIN]),
    ("int4_g64, int8_row", ["int4_g64", "--strategy", "gptq", "--activations", "int8_row"], [PLAIN]),
    ("int4_g64, int8 static", ["int4_g64", "--strategy", "gptq", "--activations", "int8", *STATIC], [PLAIN]),
    ("spikes in fp8_tensor", [*KEPT, "fp8_tensor"], [SPIKES]),
    ("spikes in bf16", [*KEPT, "bf16"], [SPIKES]),
    *((f"others in bf16, seed {n}", [*KEPT, "bf16", "--keep-random", str(n)], [SPIKES]) for n in (1, 2, 3)),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--lumen", "--model", "--seen", "--held"):
        parser.add_argument(name, required=True)
    parser.add_argument("--models")
    parser.add_argument("--window", default="128")
    parser.add_argument("--token", default="0", help="where spikes are")
    args = parser.parse_args()
    more = ["--models", args.models] if args.models else []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def lumen(*words):
            subprocess.run([args.lumen, *map(str, words), *more], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)

        lumen("rewrite", args.model, work / "outliers.gguf", "--outliers", "4:30", "-q")
        subprocess.run(["python3", Path(__file__).parent / "token_spikes.py", args.model, work / "without.gguf",
                        work / "spikes.gguf", "--token", args.token, "--size", "6"], check=True)
        sources = {PLAIN: args.model, OUTLIERS: work / "outliers.gguf", SPIKES: work / "spikes.gguf"}
        print("| weights, activations | " + " | ".join(sources) + " |\n|---" + "|---" * len(sources) + "|")
        for label, words, columns in RUNS:
            cells = []
            for column, source in sources.items():
                if column not in columns:
                    cells.append("")
                    continue
                lumen("quantize", source, work / "q.gguf", *words, "-f", args.seen, "-c", args.window, "-b", 8, "--chunks",
                      96, "--restart", "-q")
                lumen("compare", source, work / "q.gguf", "-f", args.held, "-c", args.window, "--chunks", 100, "--no-speed",
                      "--json", work / "q.json")
                points = json.loads((work / "q.json").read_text())["points"]
                cells.append("{:.2g}".format(next(p["kl"] for p in points if "kl" in p)))
            print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
