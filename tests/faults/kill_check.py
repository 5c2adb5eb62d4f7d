#!/usr/bin/env python3
"""Commands killed (kill -9) at random moments and started again: what they write in the end has the very bytes of a run left
alone, and at no moment is there a part of it. Quantization by each strategy, with preparations, by a budget and by criteria;
export, merge, imatrix; a server that keeps prompts on disk gives the same answers after each kill. Training, phases and ranks
have checks of their own (crash_check.py, phases_check.py, ranks_check.py).

Usage: tests/faults/kill_check.py LUMEN [KILLS [SEED [NAMES]]]
  KILLS: of each run (5); NAMES: these runs, with colons between them, or all
"""
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

LONGEST = 600  # seconds of one command, on a machine that has much else to do
CALIBRATION = ["-c", "16", "--chunks", "24", "-b", "4"]


def quantized(*how):
    return ["quantize", "{model}", "{out}.gguf", *how, *CALIBRATION]


RUNS = {
    "gptq": quantized("int4_g32", "--strategy", "gptq"),
    "awq,gptaq": quantized("int3_g32", "--strategy", "awq,gptaq"),
    "block-ap": quantized("int3_g32", "--strategy", "block-ap", "--iterations", "8"),
    "budget": quantized("--budget", "6bpw", "--candidates", "int3_g32,int4_g32,q4_0,q8_0"),
    "criteria": quantized("--budget", "5bpw", "--candidates", "int3_g32,int4_g32,q8_0", "--criteria", "outputs"),
    "serve": None,
    "merge": ["merge", "{model}", "{adapter}", "-o", "{out}.gguf", "--type", "f32", "--no-check"],
    "rtn": quantized("int4_g32", "--strategy", "rtn"),
    "imatrix-rounding": quantized("q4_k", "--strategy", "imatrix", "--fallback", "q4_0"),
    "clip": quantized("int4_g32", "--strategy", "clip"),
    "hqq": quantized("int4_g32", "--strategy", "hqq"),
    "smoothquant,rtn": quantized("int4_g32", "--strategy", "smoothquant,rtn"),
    "autoround": quantized("int3_g32", "--strategy", "autoround", "--iterations", "8"),
    "adaround": quantized("int3_g32", "--strategy", "adaround", "--iterations", "8"),
    "omniquant": quantized("int3_g32", "--strategy", "omniquant", "--iterations", "8"),
    "quantize": ["quantize", "{model}", "{out}.gguf", "q4_0", "--fallback", "q8_0"],
    "export-gguf": ["export", "{model}", "{out}.gguf"],
    "export-folder": ["export", "{model}", "{out}", "--to", "hf"],
    "imatrix": ["imatrix", "-m", "{model}", "-f", "{text}", "-o", "{out}.gguf", "-c", "16", "--chunks", "8"],
}
USUAL = ["gptq", "awq,gptaq", "block-ap", "budget", "criteria", "merge", "export-folder", "serve"]


def contents(place):
    """What stands in the folder of the results: bytes by name."""
    return {str(p.relative_to(place)): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}


class Check:
    def __init__(self, lumen, work, rng):
        self.lumen, self.work, self.rng = lumen, work, rng
        self.complete = 0  # runs that were killed after their result stood in its place
        self.common = ["--cache", str(work / "cache"), "-q"]
        self.inputs = {"model": work / "m/model.gguf", "text": work / "text.txt", "adapter": work / "tuned/adapter"}

    def made(self, *words):
        subprocess.run([self.lumen, *map(str, words), *self.common], check=True, capture_output=True, timeout=LONGEST)

    def prepare(self):
        (self.work / "text.txt").write_text("First Citizen: Before we proceed any further, hear me speak.\nAll: Speak, speak. " * 40)
        self.made("train", "--shape", "tiny", "--length", "128", "--steps", "3", "--eval-every", "0", "-o", self.work / "m")
        self.made("train", "-m", self.work / "m/model.gguf", "--data", self.work / "text.txt", "--lora", "--lora-rank", "2", "--steps", "2", "--batch", "2",
                  "--length", "32", "--eval-every", "0", "-o", self.work / "tuned")

    def words(self, name, out):
        return [self.lumen, *(w.format(out=out, **self.inputs) for w in RUNS[name]), *self.common]

    def killed_at_random(self, name, kills):
        place = self.work / "killed"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        words = self.words(name, place / "out")
        for _ in ("with kernels to be compiled", "without"):
            shutil.rmtree(place)
            place.mkdir()
            begin = time.monotonic()
            done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST)
            assert done.returncode == 0, (words, done.stderr)
            takes = time.monotonic() - begin
        expected = contents(place)
        assert expected, f"{name} writes nothing"
        shutil.rmtree(place)
        place.mkdir()
        killed = 0
        while killed < kills:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                process.wait(timeout=self.rng.uniform(0.02, 0.9) * takes)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
            else:
                self.ended(name, process.returncode, process.stderr.read().decode(), place, expected)
                shutil.rmtree(place)  # from the beginning
                place.mkdir()
            # A kill leaves hidden files and the folder of kept work, which the next run uses and removes.
            seen = {n: c for n, c in contents(place).items() if not n.startswith((".", "out.gguf.work/"))}
            assert not seen or seen == expected, f"{name}: a part of the result: {sorted(seen)}"
        done = subprocess.run(words, capture_output=True, text=True, timeout=LONGEST)
        self.ended(name, done.returncode, done.stderr, place, expected)

    def ended(self, name, code, said, place, expected):
        """A run that was not killed wrote the result, or found the one that a killed run had just put in its place."""
        if code == 1 and "is there already" in said:
            self.complete += 1
            kept = {n: c for n, c in contents(place).items() if not n.startswith((".", "out.gguf.work/"))}
            assert kept == expected, f"{name}: the result of a killed run has other bytes"
            return
        assert code == 0, said
        left = sorted(set(contents(place)) - set(expected))
        assert not left, f"{name}: left behind: {left}"
        assert contents(place) == expected, f"{name}: a run that went on gave other bytes"

    def serve_once(self, folder, seconds):
        """The answer to one prompt, or None where the server was killed before; `seconds` None: it lives until it answered."""
        log = self.work / "serve.log"
        with open(log, "w") as file:
            process = subprocess.Popen([self.lumen, "serve", "-m", str(self.inputs["model"]), "--host", "127.0.0.1", "--port", "0",
                                        "--prefix-cache", str(folder), "--cache", str(self.work / "cache")], stdout=file, stderr=file)
        until = time.monotonic() + (LONGEST if seconds is None else seconds)
        try:
            while not (found := re.search(r"listening at http://127\.0\.0\.1:(\d+)", log.read_text())):
                if time.monotonic() > until:
                    return None
                assert process.poll() is None, log.read_text()
                time.sleep(0.01)
            body = json.dumps({"prompt": "A beginning that many prompts share. " * 2, "max_tokens": 6, "temperature": 0}).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{found[1]}/v1/completions", data=body,
                                             headers={"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=max(0.01, until - time.monotonic())) as answer:
                    text = json.load(answer)["choices"]
            except TimeoutError:
                return None
            time.sleep(max(0.0, min(self.rng.uniform(0, 0.2), until - time.monotonic())))  # while the prompt goes to disk
            return text
        finally:
            process.kill()
            process.wait()
            assert "is damaged" not in log.read_text(), log.read_text()

    def served(self, kills):
        begin = time.monotonic()
        plain = self.serve_once(self.work / "prefixes-of-one", None)
        takes = time.monotonic() - begin
        folder = self.work / "prefixes"
        for _ in range(kills):
            got = self.serve_once(folder, self.rng.uniform(0.1, 1.5) * takes)
            assert got in (None, plain), "an answer changed after kills"
        assert self.serve_once(folder, None) == plain, "an answer changed after kills"


def main():
    lumen = sys.argv[1]
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 30)
    names = sys.argv[4].split(":") if len(sys.argv) > 4 else USUAL
    if names == ["all"]:
        names = list(RUNS)
    print(f"seed {seed}")
    total = 0
    with tempfile.TemporaryDirectory(prefix="lumen-kills-") as folder:
        check = Check(lumen, Path(folder), random.Random(seed))
        check.prepare()
        for name in names:
            if name == "serve":
                check.served(kills)
            else:
                check.killed_at_random(name, kills)
            total += kills
            print(f"{name}: killed {kills} times, equal bytes", flush=True)
    print(f"{total} kills, {check.complete} after the result was complete")


main()
