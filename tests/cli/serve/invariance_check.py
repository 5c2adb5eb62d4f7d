#!/usr/bin/env python3
"""`lumen serve`: a request has the same answer, to the last bit of its log-probabilities, whatever runs beside it, however much of its prompt
is cached, with a draft model, predictions and an adapter: on processors without a flag, on GPUs with --batch-invariant. With
--no-batch-invariant this is not so, and the check must see that.

Usage: tests/cli/serve/invariance_check.py LUMEN [--all] [--count N] [--formats q4_0,q4_k,..] [--caches f16,q8_0,..] [--device cuda]
                                           [--emulated CHIP --build BUILD]
  --all       504 answers: fourteen formats, each with caches in f16 and in q8_0; otherwise three formats, each with another cache
  --count     answers of each format, shared among its caches
  --emulated  a very small model on an AMD chip that nobody has here (gfx942, gfx1100, ..): kernels run in the interpreter of tests/amd
"""
import argparse
import json
import os
import random
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import serve_check

SIZE = "  size served { vocab = 1200; hidden = 256; layers = 2; heads = 4; kv_heads = 2; ffn = 512; context = 512; eps = 1e-5 }"
SMALL = "  size served { vocab = 1200; hidden = 64; layers = 1; heads = 2; kv_heads = 1; ffn = 64; context = 128; eps = 1e-5 }"
FORMATS, CACHES = ["q4_0", "q4_k", "q8_0"], ["f16", "q8_0", "f32"]
ALL = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q2_k", "iq4_nl", "mxfp4", "int4_g64", "nf4", "trellis2_g64", "fp8_row"]
ALL_CACHES, ALL_COUNT = ["f16", "q8_0"], 36
TEXT = "What the harbour remembers of the winter is told by those who were there, and by no one else. "
BASE, ADAPTER = "plain", "changed"

# The requests whose answers may not change. The last one gets another prediction each time.
FIXED = [
    ("/v1/completions", {"model": BASE, "prompt": TEXT + "It", "temperature": 0, "max_tokens": 10, "logprobs": 3, "ignore_eos": True}),
    ("/v1/completions", {"model": BASE, "prompt": TEXT * 2 + "So", "temperature": 1, "seed": 7, "max_tokens": 8, "logprobs": 3, "ignore_eos": True}),
    ("/v1/completions", {"model": ADAPTER, "prompt": TEXT + "He", "temperature": 0.7, "top_k": 40, "seed": 3, "max_tokens": 8, "logprobs": 2, "ignore_eos": True}),
    ("/v1/chat/completions", {"model": BASE, "messages": [{"role": "user", "content": TEXT}], "temperature": 0, "max_tokens": 10, "logprobs": True,
                              "top_logprobs": 2, "ignore_eos": True}),
]


def make_models(lumen, work, formats, size):
    """A random model in each format, and an adapter that was trained on it."""
    family = (Path(__file__).resolve().parents[3] / "models" / "llama.lum").read_text()
    (work / "sizes").mkdir()
    (work / "sizes" / "llama.lum").write_text(re.sub(r"^  size tiny .*$", size, family, flags=re.M))
    environment = {**os.environ, "LUMEN_CACHE": str(work / "cache")}

    def run(*words):
        subprocess.run([lumen, *words], cwd=work, check=True, capture_output=True, timeout=serve_check.LONGEST, env=environment)

    run("bench", "--models", "sizes", "--shape", "served", "--type", "f32", "--write", "f32.gguf")
    run("train", "-m", "f32.gguf", "--lora", "--lr", "0.05", "--steps", "2", "--warmup", "1", "--batch-size", "2", "--length", "32", "--threads", "1", "-q",
        "-o", "changed")
    for one in formats:
        if one != "f32":
            run("quantize", "f32.gguf", f"{one}.gguf", one)


def answer_of(s, path, body):
    """What the model said, without what depends on the cache."""
    choice = s.json(path, body)["choices"][0]
    return json.dumps(choice)


class Neighbours:
    """Requests of all kinds next to the one that is looked at."""

    def __init__(self, s, r):
        self.threads, self.faults = [], []
        for _ in range(r.randrange(1, 7)):
            path, body = self.one(r)
            self.threads.append(threading.Thread(target=self.ask, args=(s, path, body, r.random() * 0.05, r.random() < 0.2)))
        for thread in self.threads:
            thread.start()

    @staticmethod
    def one(r):
        begin = (TEXT * 2)[:r.randrange(1, 2 * len(TEXT))] if r.random() < 0.6 else ""
        text = begin + " ".join(str(r.randrange(1000)) for _ in range(r.randrange(1, 30)))
        body = {"model": r.choice((BASE, ADAPTER)), "max_tokens": r.randrange(1, 16), "temperature": r.choice((0, 0.8, 1.5)), "seed": r.randrange(100),
                "stream": True, "ignore_eos": True}
        if r.random() < 0.3:
            return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": text}], "prediction": {"type": "content", "content": text}}
        return "/v1/completions", {**body, "prompt": text, "n": r.choice((1, 1, 2))}

    def ask(self, s, path, body, waits, leaves):
        try:
            time.sleep(waits)
            with serve_check.socket.create_connection(("127.0.0.1", s.port), timeout=serve_check.LONGEST) as c:
                c.sendall(serve_check.request_of(path, body))
                heard = b""
                while part := c.recv(65536):
                    heard += part
                    if b"[DONE]" in heard or (leaves and b"data:" in heard):
                        break
            assert b" 200 " in heard[:20], heard[:300]
        except Exception as error:  # told by the caller
            self.faults.append(f"{type(error).__name__}: {error}")

    def end(self):
        for thread in self.threads:
            thread.join()
        assert not self.faults, self.faults


def look(lumen, work, one, cache, count, seed, is_invariant, *flags):
    """The answers that differ from the first one of the same request, among `count` of them; stops at the first where the flag is off."""
    s = serve_check.Served(lumen, work, "-m", f"{BASE}={one}.gguf", "--adapter", f"{ADAPTER}=changed/adapter.gguf", "--model-draft", "f32.gguf",
                           "--draft", 3, "--parallel", 8, "--ctx-size", 4096, "--batch-size", 48, "--keep-sequences", 4, "-ctk", cache, "-ctv", cache, *flags)
    try:
        r = random.Random(seed)
        want = [answer_of(s, path, body) for path, body in FIXED]
        differ = []
        for i in range(count):
            number = r.randrange(len(FIXED))
            path, body = FIXED[number]
            if path.startswith("/v1/chat"):
                body = {**body, "prediction": {"type": "content", "content": TEXT[r.randrange(len(TEXT) - 9):]}}
            beside = Neighbours(s, r)
            got = answer_of(s, path, body)
            beside.end()
            if got != want[number]:
                differ.append((i, number, want[number], got))
                if not is_invariant:
                    break
        cached, drafted = s.metric("lumen_prompt_tokens_cached_total"), s.metric("lumen_drafted_tokens_total")
        assert s.end() == 143, s.log.read_text()[-2000:]
        return differ, cached, drafted
    finally:
        s.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lumen", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--count", type=int)
    parser.add_argument("--formats", type=lambda names: names.split(","))
    parser.add_argument("--caches", type=lambda names: names.split(","))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--emulated")
    parser.add_argument("--build", type=Path, help="the build whose interpreter is used; by default the program's folder")
    arguments = parser.parse_args()
    if arguments.emulated:
        library = (arguments.build or arguments.lumen.parent).resolve() / "tests/amd/libamdhip64.so"
        os.environ |= {"LUMEN_STAND_IN_AMD": arguments.emulated, "LUMEN_HIP_LIBRARY": str(library), "LUMEN_TRY": "never"}
        arguments.device = "hip"
    lumen, formats = str(arguments.lumen.resolve()), arguments.formats or (ALL if arguments.all else FORMATS[:1] if arguments.emulated else FORMATS)
    count = arguments.count or (ALL_COUNT if arguments.all else 4 if arguments.emulated else 14)
    device = ("--device", arguments.device)
    asks = () if arguments.device == "cpu" else ("--batch-invariant",)
    with tempfile.TemporaryDirectory(prefix="lumen-invariance-") as folder:
        work = Path(folder)
        make_models(lumen, work, formats, SMALL if arguments.emulated else SIZE)
        answers = 0
        for number, one in enumerate(formats):
            caches = arguments.caches or (ALL_CACHES if arguments.all else [CACHES[number % len(CACHES)]])
            for cache in caches:
                begin, each = time.time(), max(1, count // len(caches))
                differ, cached, drafted = look(lumen, work, one, cache, each, arguments.seed, True, *device, *asks)
                assert not differ, f"{one}, caches {cache}: {len(differ)} of {each} answers differ from the first one; request {differ[0]}"
                assert cached > 0 and drafted > 0, (one, cache, cached, drafted)  # otherwise nothing was tried
                answers += each
                print(f"serve: {one}, caches {cache}: {each} answers among neighbours are the first ones; {cached:.0f} tokens cached, {drafted:.0f} drafted, "
                      f"{time.time() - begin:.0f} s", flush=True)
        print(f"serve: {answers} answers of {len(formats)} formats")
        if arguments.emulated:
            return
        differ, _, _ = look(lumen, work, formats[0] if not arguments.all else "q4_0", "f16", 200, arguments.seed, False, *device, "--no-batch-invariant")
        assert differ, "200 answers with --no-batch-invariant are the first ones, so this check sees nothing"
        print(f"serve: with --no-batch-invariant answer {differ[0][0]} differs")


if __name__ == "__main__":
    main()
