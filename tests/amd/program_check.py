#!/usr/bin/env python3
"""The whole program on AMD chips that nobody has here: `lumen doctor`, training steps and a model that writes, through the HIP
driver's stand-in, whose launches run in the interpreter; what training and writing give is held against the processor's.

Usage: tests/amd/program_check.py BUILD CHIP...

LUMEN_AMD_LONG=1 in the environment: every format of the library in `doctor`, more precisions, longer texts.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FORMAT = """
format mine : block 32, doc "six bits, a scale of each 32" {
  d : f16
  q : i6[32]
  decode(i) = d * q[i]
  fit(x)    { let s = (max(j) abs(x[j])) / 31;  d = s }
  code(v)   = clamp(rint(v * recip(s)), -31, 31)
}
"""
LONG = os.environ.get("LUMEN_AMD_LONG", "") not in ("", "0")


def run(command: list, chip: str = "", tries: str = "never") -> str:
    """Standard output; `chip`: on it. Ends the check where the command fails. `tries`: of programs' kernels, once each."""
    environment = dict(os.environ) | {"LUMEN_TRY": tries}
    environment.pop("LUMEN_STAND_IN_AMD", None)
    if chip:
        environment |= {"LUMEN_STAND_IN_AMD": chip, "LUMEN_HIP_LIBRARY": str(BUILD / "tests/amd/libamdhip64.so")}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{chip}: {' '.join(str(c) for c in command)} ends with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines for key in ("loss", "validation_loss") if key in line]


def train(folder: Path, device: str, precision: str, chip: str = "") -> list[float]:
    # Without a cache the GPU's ceilings are not measured, which would take hours here.
    run([LUMEN, "train", "--shape", "tiny", "--steps", 2, "--warmup", 1, "--batch", 2, "--length", 24, "--seed", 3, "--precision", precision,
         "--data", TEXT, "--validation", "0.2", "--device", device, "--cache", "off", "-o", folder], chip)
    return losses(folder)


def write(model: Path, device: str, cache: Path, chip: str = "", tries: str = "never") -> str:
    return run([LUMEN, "run", "-m", model, "-p", "the lamp", "-n", 40 if LONG else 8, "--temp", 0, "--seed", 1, "--device", device, "--cache",
                cache, "--no-tune"], chip, tries)


def quantize(base: Path, cache: Path, chip: str) -> None:
    """On the chip as it is, and with a fault: the kernels that have it are named, and the file is the processor's all the same."""
    out = base.parent / "rounded.gguf"

    def rounded(device: str, tries: str, fault: str = "") -> tuple[bytes, str]:
        environment = dict(os.environ) | {"LUMEN_TRY": tries, "LUMEN_STAND_IN_AMD": chip, "LUMEN_STAND_IN_FAULT": fault,
                                          "LUMEN_HIP_LIBRARY": str(BUILD / "tests/amd/libamdhip64.so")}
        for kept in cache.glob("user-*/trials"):
            shutil.rmtree(kept)
        done = subprocess.run([LUMEN, "quantize", base, out, "q4_0", "--device", device, "--cache", cache], capture_output=True, text=True,
                              env=environment)
        if done.returncode != 0:
            sys.exit(f"{chip}: quantize with '{fault}':\n{done.stderr[-3000:]}")
        return out.read_bytes(), done.stderr

    right, _ = rounded("cpu", "never")
    there, said = rounded("hip", "auto")
    if there != right or "wrongly" in said or "could not be tried" in said:
        sys.exit(f"{chip}: quantize:\n{said}")
    fault = "lanes v_cvt"
    if rounded("hip", "never", fault)[0] == right:
        sys.exit(f"{chip}: '{fault}' changes nothing that is rounded")
    there, said = rounded("hip", "always", fault)
    if there != right or "'encode " not in said or "computes wrongly: byte" not in said or "the processor takes its place" not in said:
        sys.exit(f"{chip}: quantize with '{fault}':\n{said}")
    print(f"{chip}: quantize gives the processor's file, also with a fault in the chip")


def check(chip: str, folder: Path) -> None:
    cache = folder / "cache"
    said = run([LUMEN, "doctor", "--device", "hip", "--cache", cache, *(["--all"] if LONG else [])], chip)
    agrees = [line.strip() for line in said.splitlines() if "agree with the evaluator" in line]
    if "REFUSED" in said or not agrees:
        sys.exit(f"{chip}: doctor\n{said}")
    print(f"{chip}: doctor: {agrees[-1]}")
    if LONG or chip == "gfx1100":
        mine = folder / "mine.lum"
        mine.write_text(FORMAT)
        said = run([LUMEN, "format", "check", mine, "--device", "hip", "--cache", cache], chip)
        there = [line for line in said.splitlines() if f" {chip} " in line]
        if "FAIL" in said or len(there) < 6:
            sys.exit(f"{chip}: a format of one's own\n{said}")
        print(f"{chip}: a format of one's own agrees with its codec")
    for precision in ("f32", "bf16", "f16") if LONG else ("f32", "bf16"):
        here = train(folder / f"cpu-{precision}", "cpu", precision)
        there = train(folder / f"{chip}-{precision}", "hip", precision, chip)
        bound = 1e-5 if precision == "f32" else 1e-3
        far = max(abs(a - b) / abs(a) for a, b in zip(here, there))
        if len(here) != len(there) or not far <= bound:
            sys.exit(f"{chip}: {precision}: losses {there}, on the processor {here}")
        print(f"{chip}: two training steps in {precision}: losses within {far:.1e}")
    base = folder / "cpu-f32/model.gguf"
    small = folder / "small.gguf"
    run([LUMEN, "quantize", base, small, "q8_0"])
    quantize(base, cache, chip)
    for model in (base, small):
        here, there = write(model, "cpu", cache), write(model, "hip", cache, chip, "auto" if model == small else "never")
        if here != there:
            sys.exit(f"{chip}: {model.name} writes {there!r}, on the processor {here!r}")
        print(f"{chip}: {model.name} writes the processor's tokens")


if len(sys.argv) < 3:
    sys.exit(__doc__)
BUILD = Path(sys.argv[1])
LUMEN = BUILD / "lumen"
for name in sys.argv[2:]:
    with tempfile.TemporaryDirectory() as temporary:
        TEXT = Path(temporary) / "text.txt"
        TEXT.write_text("the lamp is lit and the long road goes on over the hill to the sea.\n" * 12)
        check(name, Path(temporary))
