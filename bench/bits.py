#!/usr/bin/env python3
"""Size against quality of one model that others trained: quantized files of Lumen's strategies and of llama-quantize, made
from the same weights with the same calibration text, and measured together on other text. Prints the table of
docs/measurements/compression.md and, with --svg, draws its picture.

Needs llama-quantize and llama-imatrix (llama.cpp's tools) for its rows; without --llama they are left out, which a line says.
Files are kept in --work, and so are measured figures: a second run makes only what is new.

Run:  bench/bits.py --model smollm2-135m.gguf --calibrate valid.txt --measure test.txt --work w --llama llama.cpp/build/bin
"""
import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

LLAMA = ["Q2_K", "IQ2_XXS", "IQ2_S", "IQ3_XXS", "IQ3_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_S",
         "Q5_K_M", "Q6_K", "Q8_0"]


class Bits:
    def __init__(self, args):
        self.args, self.work = args, Path(args.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.device = ["--device", args.device] if args.device else []
        self.figures = self.work / "figures.json"
        self.known = json.loads(self.figures.read_text()) if self.figures.exists() else {}
        self.base = self.work / "base-f32.gguf"
        if not self.base.exists():
            self.must(args.lumen, "export", args.model, self.base, "--type", "f32", "-q")

    def must(self, *words):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return done

    def made(self, name, *words):
        """The file of a row, made by a command if it is not there; None where the program refuses, with its reason."""
        file = self.work / f"{name}.gguf"
        if file.exists():
            return file
        begin = time.time()
        done = subprocess.run([*map(str, words)], capture_output=True, text=True)
        if done.returncode != 0 or not file.exists():
            print(f"{name}: refused: {(done.stderr or done.stdout).strip().splitlines()[-1][:300]}", file=sys.stderr, flush=True)
            return None
        self.keep(name, seconds=round(time.time() - begin, 1))
        return file

    def keep(self, name, **what):
        self.known.setdefault(name, {}).update(what)
        self.figures.write_text(json.dumps(self.known, indent=1))

    def of_llama(self):
        if not self.args.llama:
            print("rows of llama-quantize are left out: --llama names no folder", file=sys.stderr)
            return
        tools = Path(self.args.llama)
        matrix = self.work / "imatrix.gguf"
        if not matrix.exists():
            self.must(tools / "llama-imatrix", "-m", self.base, "-f", self.args.calibrate, "-o", matrix, "-c", self.args.length, "--chunks",
                      self.args.calibration, "-t", self.args.threads)
        for kind in self.args.types:
            name = f"llama.{kind}"
            self.made(name, tools / "llama-quantize", "--imatrix", matrix, self.base, self.work / f"{name}.gguf", kind, self.args.threads)
            self.row(name, f"llama-quantize {kind}, imatrix", "llama.cpp")

    def of_lumen(self):
        for line in self.args.rows:
            name = "lumen." + "".join(c if c.isalnum() or c in ".-_" else "_" for c in line)
            text = ["-f", self.args.calibrate, "-c", self.args.length, "--chunks", self.args.calibration]
            base, words = self.base, line
            if " => " in line:
                how, words = line.split(" => ")
                base = self.work / ("rewritten." + "".join(c if c.isalnum() else "_" for c in how) + ".gguf")
                if not base.exists():
                    self.must(self.args.lumen, "rewrite", self.base, base, *how.split(), "-q", *self.device)
            self.made(name, self.args.lumen, "quantize", base, self.work / f"{name}.gguf", *words.split(), *text, "--no-measure", "-q",
                      "-t", self.args.threads, *self.device)
            self.row(name, line, "Lumen")

    def row(self, name, label, program):
        file = self.work / f"{name}.gguf"
        if not file.exists() or "kl" in self.known.get(name, {}):
            return
        out = self.work / "compare.json"
        self.must(self.args.lumen, "compare", self.base, file, "-f", self.args.measure, "-c", self.args.length, "--chunks", self.args.chunks,
                  "--no-speed", "--json", out, "-t", self.args.threads, *self.device)
        point = json.loads(out.read_text())["points"][0]
        self.keep(name, label=label, program=program, bits=point["bits"], bytes=file.stat().st_size, kl=point["kl"], kl_error=point["kl_error"],
                  ppl=point["ppl"], same_top=point["same_top"])
        print(f"{label}: {point['bits']:.3f} bits, KL {point['kl']:.4f}", file=sys.stderr, flush=True)

    def table(self):
        rows = sorted((r for r in self.known.values() if "kl" in r), key=lambda r: r["bits"])
        print("| program | what | bits per weight | KL, nats | perplexity | same likeliest token | seconds |\n|---|---|---|---|---|---|---|")
        for r in rows:
            print(f"| {r['program']} | `{r['label']}` | {r['bits']:.3f} | {r['kl']:.4f} ± {r['kl_error']:.4f} | {r['ppl']:.2f} | "
                  f"{100 * r['same_top']:.1f} % | {r.get('seconds', 0):.0f} |")
        return rows

    def picture(self, rows, out):
        import math
        width, height, left, bottom = 760, 440, 60, 40
        xs, ys = [r["bits"] for r in rows], [math.log10(max(r["kl"], 1e-5)) for r in rows]
        x = lambda v: left + (v - min(xs)) / (max(xs) - min(xs) or 1) * (width - left - 20)
        y = lambda v: 20 + (max(ys) - v) / (max(ys) - min(ys) or 1) * (height - bottom - 20)
        colours = {"Lumen": "#1f6feb", "llama.cpp": "#d1242f"}
        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
                 f'<rect width="{width}" height="{height}" fill="white"/>']
        for b in range(math.ceil(min(xs)), math.floor(max(xs)) + 1):
            parts.append(f'<path d="M{x(b):.1f} 20V{height - bottom}" stroke="#ddd"/><text x="{x(b):.1f}" y="{height - 22}" text-anchor="middle">{b}</text>')
        for e in range(math.ceil(min(ys)), math.floor(max(ys)) + 1):
            parts.append(f'<path d="M{left} {y(e):.1f}H{width - 20}" stroke="#ddd"/><text x="{left - 6}" y="{y(e) + 4:.1f}" text-anchor="end">{10.0 ** e:g}</text>')
        best = []
        for r, v in zip(rows, ys):
            parts.append(f'<circle cx="{x(r["bits"]):.1f}" cy="{y(v):.1f}" r="4" fill="{colours[r["program"]]}"><title>{r["label"]}: {r["bits"]:.2f} bits, '
                         f'KL {r["kl"]:.4f}</title></circle>')
            if r["program"] == "Lumen" and (not best or v < best[-1][1]):
                best.append((r["bits"], v))
        parts.append('<path fill="none" stroke="#1f6feb" d="M' + "L".join(f"{x(b):.1f} {y(v):.1f}" for b, v in best) + '"/>')
        parts.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">bits per weight, whole file</text>'
                     f'<text x="{left + 8}" y="16">KL divergence, nats per token: blue Lumen, red llama.cpp with an importance matrix</text></svg>')
        Path(out).write_text("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--llama", help="folder of llama-quantize and llama-imatrix")
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibrate", required=True, help="text to calibrate on")
    parser.add_argument("--measure", required=True, help="other text to measure on")
    parser.add_argument("--work", required=True, help="folder of the files and figures")
    parser.add_argument("--types", type=lambda s: s.split(","), default=LLAMA, help="of llama-quantize")
    parser.add_argument("--rows", nargs="*", default=[], help="what follows `lumen quantize IN OUT`, one row each; "
                        "'A => B' quantizes by B what `lumen rewrite` makes by A")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--calibration", type=int, default=96, help="windows")
    parser.add_argument("--chunks", type=int, default=20, help="windows to measure on")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", help="of Lumen")
    parser.add_argument("--svg", help="file of the picture")
    args = parser.parse_args()
    bits = Bits(args)
    bits.of_llama()
    bits.of_lumen()
    rows = bits.table()
    if args.svg:
        bits.picture(rows, args.svg)


main()
