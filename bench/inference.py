#!/usr/bin/env python3
"""How fast models read and write here, beside llama.cpp and PyTorch in the same run: one table with the target of each line. What
is below its target is marked.

Usage: bench/inference.py [--device cuda|hip|cpu] [--build build] [--llama FOLDER] [--parts PART,..] [--threads 2,16] [--runs 2] [--no-mmap]
  --llama    folder with llama-bench and llama-batched-bench, built from llama.cpp's sources (those in llama-cpp-python's source
             package on PyPI: cmake -DGGML_CUDA=ON .. && ninja llama-bench llama-batched-bench); without it lines have no ratio
  --parts    types (1.1 billion weights in each type), depth (8 billion after long contexts), sampling (`lumen run` and `lumen
             bench`), many (sequences at once), starts (first token of a cold and of a warm start), products (bench/products.py);
             on a processor types, starts
  --no-mmap  on a processor: both programs hold the weights in memory of their own, not in the mapped file
Both programs read the same file of random weights (`lumen bench --write`), with caches of f16, and take turns; medians. Nothing
is compared with a run of another day or another machine.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from target_table import TargetTable

TYPES = ["q4_0", "q4_k", "q6_k", "q8_0", "f16"]
CACHE = ["-ctk", "f16", "-ctv", "f16"]


class Bench:
    def __init__(self, arguments):
        self.arguments, self.table = arguments, TargetTable()
        self.lumen = arguments.build / "lumen"
        self.folder = tempfile.TemporaryDirectory()
        self.is_gpu = arguments.device != "cpu"
        self.on = ["--device", arguments.device, *(["--no-mmap"] if arguments.no_mmap else [])]

    def say(self, *command, **options):
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
        if run.returncode != 0:
            print(f"{Path(str(command[0])).name} ended with {run.returncode}: {(run.stderr or run.stdout).strip()[-300:]}", file=sys.stderr)
        return run

    def file(self, shape, type):
        path = Path(self.folder.name) / f"{shape}-{type}.gguf"
        if not path.exists():
            self.say(self.lumen, "bench", "--shape", shape, "--type", type, "--write", path)
        return path

    # Tokens a second by (prompt, generate, depth, sequences).
    def ours(self, file, *flags):
        out = {}
        for line in self.say(self.lumen, "bench", "-m", file, *CACHE, *self.on, "-o", "jsonl", *flags).stdout.splitlines():
            j = json.loads(line)
            out[j["n_prompt"], j["n_gen"], j["n_depth"], j["n_sequences"]] = statistics.median(j["samples_ts"])
        return out

    def theirs(self, file, *flags):
        if not self.arguments.llama:
            return {}
        place = ["-lm", "none"] if self.arguments.no_mmap else []
        run = self.say(self.arguments.llama / "llama-bench", "-m", file, "-ngl", "99" if self.is_gpu else "0", "-fa", "1", "-o", "json", *place, *flags)
        try:
            return {(j["n_prompt"], j["n_gen"], j["n_depth"]): statistics.median(j["samples_ts"]) for j in json.loads(run.stdout)}
        except json.JSONDecodeError:
            return {}

    # Rounds in turns, medians of them; one before counts for neither, in which Lumen tries plans.
    def in_turns(self, file, ours, theirs):
        mine, other = {}, {}
        self.ours(file, *ours, "-r", "5")
        for _ in range(self.arguments.runs):
            for into, found in ((mine, self.ours(file, *ours, "-r", "3")), (other, self.theirs(file, *theirs, "-r", "3"))):
                for key, speed in found.items():
                    into.setdefault(key, []).append(speed)
        return {k: statistics.median(v) for k, v in mine.items()}, {k: statistics.median(v) for k, v in other.items()}

    def types(self):
        for threads in [None] if self.is_gpu else self.arguments.threads:
            flags = [] if threads is None else ["-t", str(threads)]
            for type in TYPES:
                size = ["-p", "512", "-n", "64"] if self.is_gpu or threads > 4 else ["-p", "128", "-n", "32"]
                mine, other = self.in_turns(self.file("llama-1b", type), [*size, *flags], [*size, *flags])
                with_threads = "" if threads is None else f", {threads} threads"
                for (p, n, d, _), speed in mine.items():
                    target = 1.0 if n or self.is_gpu else 3.0
                    self.table.add(f"1.1B {type}{with_threads}: {'reading ' + str(p) if p else 'writing'}", speed, "tokens/s", other.get((p, n, d)), "llama.cpp", target)

    def depth(self):
        file, flags = self.file("llama-8b", "q4_k"), ["-p", "512", "-n", "32", "-d", "0,8192,32768"]
        mine, other = self.in_turns(file, flags, flags)
        for (p, n, d, _), speed in mine.items():
            self.table.add(f"8B q4_k behind {d}: {'reading 512' if p else 'writing'}", speed, "tokens/s", other.get((p, n, d)), "llama.cpp", 1.2 if d else 1.0)

    def sampling(self):
        for shape, name in (("llama-1b", "1.1B, 32,000 tokens"), ("llama-8b", "8B, 128,256 tokens")):
            file = self.file(shape, "q4_k")
            bench = self.ours(file, "-p", "0", "-n", "512", "-r", "3").get((0, 512, 0, 0))
            speeds = []
            for _ in range(3):
                said = self.say(self.lumen, "run", "-m", file, "-p", "a", "-n", "512", "--ignore-eos", "-s", "1", *CACHE, *self.on).stderr
                if found := re.search(r"generation: \d+ tokens, ([\d.]+) tokens/s", said):
                    speeds.append(float(found[1]))
            self.table.add(f"`lumen run` beside `lumen bench`, {name}", statistics.median(speeds) if speeds else None, "tokens/s", bench, "bench", 0.95)

    def many(self):
        for shape, counts, targets in (("llama-1b", [16, 64, 256], {64: 12000, 256: 25000}), ("llama-8b", [64], {64: 4000})):
            file = self.file(shape, "q4_k")
            mine = self.ours(file, "-p", "128", "-n", "128", "--sequences", ",".join(map(str, counts)), "-r", "5")
            other = {}
            if self.arguments.llama:
                run = self.say(self.arguments.llama / "llama-batched-bench", "-m", file, "-c", str(max(counts) * 256), "-b", "2048", "-ub", "512", "-npp", "128", "-ntg", "128",
                               "-npl", ",".join(map(str, counts)), "-fa", "on", "-ngl", "99", "--output-format", "jsonl")
                other = {j["pl"]: j for j in (json.loads(l) for l in run.stdout.splitlines() if l.startswith("{"))}
            name = {"llama-1b": "1.1B", "llama-8b": "8B"}[shape]
            for n in counts:
                for what, key, speed in (("reading 128 each", (128, 0, 0, n), "speed_pp"), ("writing, tokens drawn", (0, 128, 0, n), "speed_tg")):
                    self.table.add(f"{name} q4_k, {n} sequences: {what}", mine.get(key), "tokens/s", other.get(n, {}).get(speed), "llama.cpp (none drawn)", 2 if "writing" in what else 1)
                if n in targets:
                    self.table.add(f"{name} q4_k, {n} sequences: writing", mine.get((0, 128, 0, n)), "tokens/s", targets[n], "wanted on an H200", 1)

    # Seconds until a first token, beside those that reading the file takes.
    def starts(self):
        file = self.file("llama-8b", "q4_k")
        cache = Path(self.folder.name) / "kernels"
        environment = dict(os.environ, LUMEN_CACHE=str(cache), CUDA_CACHE_PATH=str(Path(self.folder.name) / "driver"))

        def seconds(n):
            begin = time.perf_counter()
            self.say(self.lumen, "run", "-m", file, "-p", "a b c", "-n", str(n), "-s", "1", *CACHE, *self.on, env=environment)
            return time.perf_counter() - begin

        begin = time.perf_counter()
        with open(file, "rb", buffering=0) as f:
            while f.read(1 << 24):
                pass
        reading = time.perf_counter() - begin
        self.say(self.lumen, "run", "-m", file, "-p", "a", "-n", "1", *CACHE, *self.on)  # the file is in the page cache, the device awake
        first = seconds(1)  # of this card: its kernels are tested
        for folder in (*cache.glob("user-*/kernels"), *cache.glob("kernels"), Path(environment["CUDA_CACHE_PATH"])):
            shutil.rmtree(folder, ignore_errors=True)
        cold = seconds(1)
        warm = statistics.median(seconds(1) for _ in range(3))
        print(f"reading the file of {file.stat().st_size / 1e9:.1f} GB takes {reading:.2f} s; the first start on a card, which tests it, {first - cold:.2f} s more than a later one", file=sys.stderr)
        self.table.add("8B q4_k: first token, no kernel compiled, beyond a start from the cache", cold - warm, "s", 3, "s", 1, least=False)
        self.table.add("8B q4_k: first token from the cache, beyond reading the file", warm - reading, "s", 0.5, "s", 1, least=False)

    def products(self):
        run = self.say(sys.executable, Path(__file__).with_name("products.py"), "--build", self.arguments.build)
        print(run.stdout, run.stderr, sep="\n", file=sys.stderr)
        for type, mean, least, shape in re.findall(r"^(\S+): geometric mean ([\d.]+) .*; least ([\d.]+) at (\S+);", run.stdout, re.M):
            self.table.add(f"products by {type}: geometric mean", float(mean), "", 1, "cuBLASLt", 0.95)
            self.table.add(f"products by {type}: least ({shape})", float(least), "", 1, "cuBLASLt", 0.8)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--llama", type=Path)
    parser.add_argument("--parts")
    parser.add_argument("--threads", default="2,16")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--no-mmap", action="store_true")
    arguments = parser.parse_args()
    arguments.threads = [int(t) for t in arguments.threads.split(",")]
    parts = (arguments.parts or ("types,starts" if arguments.device == "cpu" else "types,depth,sampling,many,starts,products")).split(",")
    bench = Bench(arguments)
    for part in parts:
        begin = time.perf_counter()
        getattr(bench, part)()
        print(f"{part}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    bench.table.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
