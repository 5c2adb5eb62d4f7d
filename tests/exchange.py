#!/usr/bin/env python3
"""All exchange with other programs, in both directions, for every family: transformers, peft, tokenizers, sentencepiece, tiktoken
and llama.cpp, in one table. What is not installed is skipped and said to be.

usage: tests/exchange.py BUILD_FOLDER [--only WORD]     exit code 1: something differs; 77: nothing was checked
"""
import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests/model/fixtures"


def checks(build):
    lumen, tests = build / "lumen", build / "tests/test_model"
    python = [sys.executable]
    script = lambda name, *args: python + [ROOT / "tests" / name, *args]
    return [
        ("files and tokenizers, both ways", "gguf, safetensors, tokenizers", script("model/reference.py", tests)),
        ("tokenizers on random texts", "tokenizers, sentencepiece", script("model/tokenizer_reference.py", lumen, "--count", 200, FIXTURES / "tokenizers")),
        ("convolutions, poolings, norms, recurrences, and their gradients", "torch",
         script("graph/elaborate/functions_reference.py", build / "tests/test_graph")),
        ("image classifiers and their gradients", "torch", script("apps/classify/network_reference.py", build / "tests/test_apps")),
        ("objectives and their gradients", "torch", script("model/objective_reference.py", tests)),
        ("files of ranks", "tiktoken", script("model/ranks_reference.py", lumen, "--count", 1000)),
        ("every family's folder -> GGUF -> logits", "llama.cpp, transformers", script("model/llama_cpp_families.py", lumen, FIXTURES / "families")),
        ("every family's folder -> GGUF -> folder; random configurations", "transformers", script("model/config_reference.py", tests, "--count", 48)),
        ("padded vocabularies, ends of texts", "llama.cpp", script("model/llama_cpp_vocabulary.py", lumen, FIXTURES)),
        ("quantized GGUF -> perplexity", "llama.cpp", script("cli/llama_cpp_check.py", build)),
        ("every family's folder <- transformers", "fixtures of transformers", [tests, "--gtest_filter=*Families*"]),
        ("every family's GGUF <- llama.cpp's converter", "fixtures of llama.cpp", [tests, "--gtest_filter=*Converted*"]),
        ("adapters <- peft", "fixtures of peft", [tests, "--gtest_filter=*Adapter*"]),
        ("rounded folders <- GPTQ, AWQ, ..", "fixtures of those", [tests, "--gtest_filter=*Packed*"]),
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    rows, any_checked = [], False
    for what, others, command in checks(Path(args.build).resolve()):
        if args.only not in f"{what} {others}":
            continue
        start = time.time()
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT)
        result = {0: "alike", 77: "skipped"}.get(run.returncode, f"DIFFERENT ({run.returncode})")
        last = (run.stdout.strip() or run.stderr.strip()).splitlines()[-1:] or [""]
        rows.append((what, others, result, f"{time.time() - start:.0f} s", last[0][:90]))
        any_checked |= run.returncode != 77
        print(f"{what}: {result}", file=sys.stderr, flush=True)
        if run.returncode not in (0, 77):
            print(run.stdout[-3000:] + run.stderr[-3000:], file=sys.stderr)
    widths = [max(len(row[i]) for row in rows) for i in range(4)] if rows else []
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row[:4], widths)) + "  " + row[4])
    if not any_checked:
        sys.exit(77)
    sys.exit(1 if any("DIFFERENT" in row[2] for row in rows) else 0)


main()
