#!/usr/bin/env python3
"""Every verb's smallest command while system calls fail: the n-th read, write, allocation, mapping, thread .. of the program is
made to fail by a preloaded library (fault_injector.cpp). Whatever fails, the program ends by itself with a documented code, an
error has a message, an output is whole and has the bytes of an undisturbed run or is not there, an output that was there
before stays, inputs stay, and no part of a file is left.

Usage: tests/faults/fault_check.py LUMEN INJECTOR [--calls N] [--sample N] [--jobs N] [--seed S] [--only VERB] [--kinds A,B]
                                   [--skip N] [--seconds S] [--report FILE]
  --calls N     the first N calls of each kind (300)
  --beyond N    and N calls drawn from those behind them (20)
  --sample N    of all those trials only N, drawn by the seed; 0: all of them (200)
  --skip N      not the first N of them, which an earlier run with the same seed has done
  --seconds S   no trial begins later than that
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LONGEST = 120  # seconds of one command, on a machine that has much else to do
CODES = (0, 1, 3)  # as it should be, an error of the user's or of data, a refusal for want of memory or hardware
# Of a kind one call fails, or all from one call on, as on a disk that is full or broken.
ALWAYS = {"write-enospc", "write-eio", "read-short", "write-short", "thread", "clock-forward", "mmap"}
KINDS = ["read-short", "read-eio", "read-eintr", "write-short", "write-enospc", "write-eio", "write-eintr", "open-emfile", "fsync-eio",
         "rename-eio", "malloc", "mmap", "thread", "clock-back", "clock-forward"]

CHAT = [{"messages": [{"role": "user", "content": f"How many are {i} and {i}?"}, {"role": "assistant", "content": f"{2 * i}."}]}
        for i in range(40)]

# Each verb's smallest command. {x}: an input made by prepare(); outputs are the names after "out".
COMMANDS = {
    "train": (["train", "--shape", "tiny", "--steps", "2", "--batch", "2", "--length", "16", "--eval-every", "0", "-o", "out"],
              ["out/model.gguf"]),
    "finetune": (["train", "-m", "{chatty}", "--data", "{chats}", "--lora", "--lora-rank", "2", "--steps", "2", "--batch", "2", "--length", "96",
                  "--eval-every", "0", "-o", "out"], ["out/adapter/adapter_model.safetensors"]),
    "resume": (["train", "--shape", "tiny", "--steps", "3", "--batch", "2", "--length", "16", "--eval-every", "0", "-o", "run", "--resume"],
               ["run/model.gguf"]),
    "export-gguf": (["export", "{model}", "out.gguf"], ["out.gguf"]),
    "export-folder": (["export", "{model}", "out", "--to", "hf"], ["out/model.safetensors", "out/config.json"]),
    "quantize": (["quantize", "{model}", "out.gguf", "q8_0", "--fallback", "f16"], ["out.gguf"]),
    "quantize-layers": (["quantize", "{model}", "out.gguf", "int4_g32", "--strategy", "gptq", "-c", "16", "--chunks", "4", "-b", "2"],
                        ["out.gguf"]),
    "quantize-budget": (["quantize", "{model}", "out.gguf", "--budget", "6bpw", "--candidates", "int4_g32,q8_0", "-c", "16", "--chunks",
                         "2", "--score-chunks", "2", "-b", "2"], ["out.gguf"]),
    "merge": (["merge", "{model}", "{adapter}", "-o", "out.gguf", "--type", "f32", "--no-check"], ["out.gguf"]),
    "imatrix": (["imatrix", "-m", "{model}", "-f", "{text}", "-o", "out.gguf", "-c", "16", "--chunks", "2"], ["out.gguf"]),
    "run": (["run", "-m", "{model}", "-p", "ROMEO:", "-n", "4", "--temp", "0"], []),
    "chat": (["chat", "-m", "{model}", "-p", "Good day", "-n", "4", "--temp", "0"], []),
    "perplexity": (["perplexity", "-m", "{model}", "-f", "{text}", "-c", "16"], []),
    "compare": (["compare", "{model}", "{packed}", "-f", "{text}", "-c", "16", "--json", "out.json"], []),
    "eval": (["eval", "-m", "{model}", "--task-file", "{task}", "--data", "{folder}", "--tasks", "colours"], []),
    "embed": (["embed", "-m", "{model}", "a", "b"], []),
    "tokenize": (["tokenize", "-m", "{model}", "Good day"], []),
    "inspect": (["inspect", "{model}"], []),
    "verify": (["verify", "{run}"], []),
    "report": (["report", "{run}", "-o", "out.html"], []),
    "data-stats": (["data", "stats", "{chats}", "-m", "{chatty}"], []),
    "format-list": (["format", "list"], []),
    "compile": (["compile", "{formula}", "--function", "main", "--target", "native", "--emit", "asm"], []),
    "bench": (["bench", "-m", "{model}", "-p", "4", "-n", "1", "-r", "1"], []),
    "serve": (["serve", "-m", "{model}", "--port", "0", "--host", "127.0.0.1"], []),
}


class Bench:
    def __init__(self, lumen, injector, work):
        self.lumen, self.injector, self.work = str(Path(lumen).resolve()), str(Path(injector).resolve()), work
        self.inputs = {}
        self.codes = collections.Counter()  # of trials: how many ended with which code

    def environment(self, cache, fault=None, counts=None):
        out = {k: v for k, v in os.environ.items() if not k.startswith("FAULT")}
        out.update(LUMEN_CACHE=str(cache), OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive", HOME=str(self.work), NO_COLOR="1")
        if fault or counts:
            out["LD_PRELOAD"] = self.injector
        if fault:
            out["FAULT"] = fault
        if counts:
            out["FAULT_COUNTS"] = str(counts)
        return out

    def made(self, *words):
        done = subprocess.run([self.lumen, *map(str, words)], cwd=self.work, capture_output=True, text=True, timeout=LONGEST,
                              env=self.environment(self.work / "cache"))
        assert done.returncode == 0, (words, done.returncode, done.stderr)

    def prepare(self):
        w = self.work
        self.made("train", "--shape", "tiny", "--steps", "2", "--eval-every", "0", "-o", "made", "-q")
        (w / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in CHAT))
        (w / "text.txt").write_text("First Citizen: Before we proceed any further, hear me speak.\nAll: Speak, speak. " * 40)
        self.made("quantize", "made/model.gguf", "packed.gguf", "q4_0", "--fallback", "q8_0")
        self.made("train", "-m", "made/model.gguf", "--data", "text.txt", "--lora", "--lora-rank", "2", "--steps", "2", "--batch", "2", "--length", "32",
                  "--eval-every", "0", "-o", "tuned", "-q")
        self.made("train", "--shape", "tiny", "--data", "chats.jsonl", "--steps", "2", "--batch", "2", "--length", "96", "--eval-every", "0",
                  "-o", "talk", "-q")
        self.made("train", "--shape", "tiny", "--steps", "2", "--batch", "2", "--length", "16", "--eval-every", "0", "-o", "run", "-q")
        (w / "colours.jsonl").write_text("".join(json.dumps({"question": f"Is {c} a colour?", "choices": ["yes", "no"], "answer": 0}) + "\n"
                                                for c in ("red", "green", "blue")))
        (w / "colours.toml").write_text("""name = "colours"
kind = "choice"
data = "colours.jsonl"
prompt = "{{question}}"
choices = "choices"
answer = "{{answer}}"
""")
        (w / "product.lum").write_text("fn main(x: f32[4, 64], w: f32[8, 64]) -> f32[4, 8]\n  y[m, n] = sum(k) x[m, k] * w[n, k]\n")
        self.inputs = {"model": w / "made/model.gguf", "packed": w / "packed.gguf", "chats": w / "chats.jsonl", "text": w / "text.txt",
                       "chatty": w / "talk/model.gguf", "adapter": w / "tuned/adapter", "run": w / "made", "task": w / "colours.toml",
                       "folder": w, "formula": w / "product.lum"}

    def words(self, verb):
        return [w.format(**self.inputs) if "{" in w else w for w in COMMANDS[verb][0]]

    def place(self, name, verb):
        """A folder to run in; the run that a command goes on with is copied there."""
        folder = self.work / "trials" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if verb == "resume":
            shutil.copytree(self.work / "run", folder / "run")
        return folder

    def start(self, verb, folder, environment):
        words, told = [self.lumen, *self.words(verb)], b""
        process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment)
        if verb == "serve":  # ends when it is told to
            until = time.time() + LONGEST
            os.set_blocking(process.stderr.fileno(), False)
            os.set_blocking(process.stdout.fileno(), False)
            said = b""
            while process.poll() is None and time.time() < until and b"listening at" not in said:
                said += (process.stderr.read() or b"") + (process.stdout.read() or b"")
                time.sleep(0.02)
            os.set_blocking(process.stderr.fileno(), True)
            os.set_blocking(process.stdout.fileno(), True)
            process.terminate()
            told = said
        try:
            out, error = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return None, b"", b"", words
        if verb == "serve" and process.returncode == 143:
            return 0, b"", told + error, words
        return process.returncode, out, told + error, words

    def digest(self, path):
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None

    def outputs(self, verb, folder):
        return {name: self.digest(folder / name) for name in COMMANDS[verb][1]}

    def baseline(self, verb):
        """The undisturbed run: what it writes, what it prints, how many calls of each kind it makes."""
        # A cache of its own: trials begin with a copy, and most of a copy's time goes with the number of files.
        cache = self.work / "caches" / verb
        cache.mkdir(mode=0o700, parents=True)
        self.start(verb, self.place(f"{verb}-warm", verb), self.environment(cache))
        folder, counts = self.place(f"{verb}-plain", verb), self.work / f"{verb}.counts"
        code, out, error, words = self.start(verb, folder, self.environment(cache, counts=counts))
        assert code == 0, (words, code, error.decode()[-2000:])
        calls = {k: int(n) for k, n in (line.split() for line in counts.read_text().splitlines())} if counts.exists() else {}
        outputs = self.outputs(verb, folder)
        missing = [name for name, digest in outputs.items() if digest is None]
        assert not missing, (words, missing)
        return {"calls": calls, "outputs": outputs, "out": out}

    def trial(self, verb, kind, call, always, plain):
        """What is wrong, or None."""
        name = f"{verb}-{kind}-{call}"
        folder = self.place(name, verb)
        before = self.outputs(verb, folder)
        # The outputs that stand alone are there already in every other trial: an error must leave them.
        for output in COMMANDS[verb][1]:
            if call % 2 and "/" not in output:
                (folder / output).write_bytes(b"an older output")
                before[output] = self.digest(folder / output)
        cache = folder / "cache"
        shutil.copytree(self.work / "caches" / verb, cache)
        code, out, error, words = self.start(verb, folder, self.environment(cache, f"{kind}:{call}{':always' if always else ''}"))
        shutil.rmtree(cache, ignore_errors=True)
        self.codes[code] += 1
        wrong = self.judge(verb, kind, code, out, error, folder, before, plain)
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        return f"{verb} {kind}:{call}{':always' if always else ''}: {wrong}\n  {' '.join(words)}\n  {error.decode(errors='replace')[-600:]}"

    def judge(self, verb, kind, code, out, error, folder, before, plain):
        if code is None:
            return "does not end"
        if code < 0:
            return f"ended by signal {-code}"
        if code not in CODES:
            return f"code {code}"
        after = self.outputs(verb, folder)
        for name, digest in after.items():
            if code == 0 and digest != plain["outputs"][name]:
                return f"code 0, and {name} is {'missing' if digest is None else 'another'}"
            if code != 0 and digest not in (before[name], plain["outputs"][name]):
                return f"code {code}, and {name} is a part, or the old one is gone"
        if code != 0 and not error.strip():
            return f"code {code} without a message"
        if code == 0 and verb in ("run", "tokenize", "embed", "format-list", "compile") and out != plain["out"]:
            return "code 0, and standard output is another"
        left = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.name.endswith(".part")]
        if left:
            return f"left behind: {left}"
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lumen")
    parser.add_argument("injector")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--beyond", type=int, default=20)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2)))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--only")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--report")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    until = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="lumen-faults-") as folder:
        bench = Bench(options.lumen, options.injector, Path(folder))
        bench.prepare()
        verbs = options.only.split(",") if options.only else list(COMMANDS)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            plain = dict(zip(verbs, pool.map(bench.baseline, verbs)))
            inputs = {p: bench.digest(p) for p in Path(folder).iterdir() if p.is_file()}
            trials = []
            for verb in verbs:
                for kind in options.kinds.split(","):
                    count = plain[verb]["calls"].get(kind, 0)
                    numbers = list(range(1, min(count, options.calls) + 1))
                    if count > options.calls:
                        numbers += sorted(rng.sample(range(options.calls + 1, count + 1), min(options.beyond, count - options.calls)))
                    trials += [(verb, kind, call, kind in ALWAYS) for call in numbers]
            possible = len(trials)
            rng.shuffle(trials)
            trials = trials[options.skip:][:options.sample or None]

            def one(trial):
                if time.monotonic() > until:
                    return "late"
                return bench.trial(*trial, plain[trial[0]])

            found, done = [], 0
            for result in pool.map(one, trials):
                if result == "late":
                    continue
                done += 1
                if done % 500 == 0:
                    print(f"{done}/{len(trials)} trials, {len(found)} findings", flush=True)
                if result:
                    found.append(result)
                    print(result, flush=True)
        changed = [str(p) for p, digest in inputs.items() if bench.digest(p) != digest]
        if changed:
            found.append(f"inputs were changed: {changed}")
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(bench.codes.items(), key=str))
        print(f"{done} of {possible} trials ({len(verbs)} commands; codes {codes}), {len(found)} findings")
        if options.report:
            Path(options.report).write_text("\n".join(found) + f"\n{done} trials, {len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
