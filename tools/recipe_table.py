#!/usr/bin/env python3
"""What multiplies in a training step, by recipe and machine: the table of docs/guide/quantized-training.md, made from what `lumen compile
--emit bids` says of every product of a layer.

Usage: tools/recipe_table.py BUILD [--check] [--recipes A,B] [--machines A,B]
  BUILD      folder with the lumen binary
  --check    compare with the committed table instead of writing it; exits 1 and shows what changed
  --recipes, --machines  only these rows and columns (printed, or compared)
A cell names what the instructions read, the most used first; in brackets what less than a tenth of the multiplications get.
Takes about ten minutes of processor time.
"""
import argparse
import collections
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guide" / "quantized-training.md"
BEGIN, END = "<!-- recipes by machine: made by tools/recipe_table.py -->", "<!-- end -->"
RECIPES = ["bf16", "fp8-tensors", "fp8-rows", "fp8-blocks", "infir2", "moss", "mxfp8", "int8-rows", "int8-learned", "mxfp4-training",
           "nvfp4-training"]
MACHINES = ["x86-64-v3", "avx512-vnni", "avx512-bf16", "amx", "neon-i8mm", "sm_80", "sm_89", "sm_90a", "gfx90a", "gfx942", "gfx950", "gfx1100",
            "gfx1201"]
SHAPE = ["--shape", "llama-1b", "--config", "layers=1", "--config", "vocab=512", "--symbols", "B=4,T=512"]
VOCABULARY = 512
PRODUCT = re.compile(r"^  (?:group )?dot (\d+)x(\d+)x(\d+)")
OPERANDS = re.compile(r"\.((?:i8|u8|i16|f16|bf16|f32|e4m3|e5m2|f8|fp8|bf8|f4|e2m1)+)\.(?:i32|f32)")
NAME = re.compile(r"bf16|f16|f32|i16|i8|u8|e4m3|e5m2|fp8|bf8|f8|e2m1|f4")


def instruction(plan: str) -> str:
    """What the instructions of a plan read: 'e5m2 e4m3', 'i8', 'f32'."""
    found = OPERANDS.search(plan)
    if not found:
        return "f32"
    names = NAME.findall(found[1])
    return " ".join(dict.fromkeys(names))


def cell(lumen: Path, recipe: str, machine: str) -> str:
    command = [lumen, "compile", "llama", "--function", "train", *SHAPE, "--precision", recipe, "--target", machine, "--emit", "bids"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    work, product = collections.Counter(), None
    for line in done.stdout.splitlines():
        if found := PRODUCT.match(line):
            product = [int(n) for n in found.groups()]
        elif product:  # the best bid comes first
            if VOCABULARY not in product:
                work[instruction(line)] += product[0] * product[1] * product[2]
            product = None
    total = sum(work.values())
    if total == 0:
        raise SystemExit(f"{recipe} on {machine}: no products found")
    # bf16 is the plain type here, so that a step under a recipe multiplies some products in it anyway.
    much = [name for name, n in work.most_common() if n >= total / 10]
    little = [name for name, n in work.most_common() if n < total / 10]
    return ", ".join(much) + (f" ({', '.join(little)})" if little else "")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--recipes", type=lambda t: t.split(","), default=RECIPES)
    parser.add_argument("--machines", type=lambda t: t.split(","), default=MACHINES)
    options = parser.parse_args()
    cells = {}
    for recipe in options.recipes:
        for machine in options.machines:
            cells[recipe, machine] = cell(options.build / "lumen", recipe, machine)
            print(f"{recipe} on {machine}: {cells[recipe, machine]}", file=sys.stderr, flush=True)
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if options.check:
        rows = [[word.strip().strip("`") for word in line.strip("|").split("|")] for line in text[begin:end].strip().splitlines()]
        kept = {(row[0], machine): word for row in rows[2:] for machine, word in zip([m for m in rows[0][1:]], row[1:])}
        changed = [f"{r} on {m}: {kept.get((r, m))} in the table, now {now}" for (r, m), now in cells.items() if kept.get((r, m)) != now]
        print("\n".join(changed) or f"{len(cells)} cells of the table are as they were")
        raise SystemExit(1 if changed else 0)
    if options.recipes != RECIPES or options.machines != MACHINES:
        return
    lines = ["| | " + " | ".join(f"`{m}`" for m in MACHINES) + " |", "|---" * (len(MACHINES) + 1) + "|"]
    lines += [f"| `{r}` | " + " | ".join(cells[r, m] for m in MACHINES) + " |" for r in RECIPES]
    PAGE.write_text(text[:begin] + "\n" + "\n".join(lines) + "\n" + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
