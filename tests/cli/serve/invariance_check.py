#!/usr/bin/env python3
"""`lumen serve`: a request has the same answer, to the last bit of its log-probabilities, whatever runs beside it, however much of its prompt
is cached, with a draft model, predictions and an adapter: on processors without a flag, on GPUs with --batch-invariant. With
--no-batch-invariant this is not so, and the check must see that.

Usage: tests/cli/serve/invariance_check.py LUMEN [--count 500] [--formats q4_0,q4_k,..|all] [--device cuda]
       COUNT requests of each format (14); all: twelve formats
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
FORMATS = "q4_0,q4_k,q8_0"
ALL = "f32,f16,bf16,q8_0,q4_0,q4_1,q5_0,q4_k,q6_k,q2_k,iq4_nl,mxfp4"
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


def make_models(lumen, work, formats):
    """A random model in each format, and an adapter that was trained on it."""
    family = (Path(__file__).resolve().parents[3] / "models" / "llama.lum").read_text()
    (work / "sizes").mkdir()
    (work / "sizes" / "llama.lum").write_text(re.sub(r"^  size tiny .*$", SIZE, family, flags=re.M))
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


def look(lumen, work, one, count, seed, is_invariant, *flags):
    """The answers that differ from the first one of the same request, among `count` of them; stops at the first where the flag is off."""
    s = serve_check.Served(lumen, work, "-m", f"{BASE}={one}.gguf", "--adapter", f"{ADAPTER}=changed/adapter.gguf", "--model-draft", "f32.gguf",
                           "--draft", 3, "--parallel", 8, "--ctx-size", 4096, "--batch-size", 48, "--keep-sequences", 4, *flags)
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
    parser.add_argument("--count", type=int, default=14)
    parser.add_argument("--formats", default=FORMATS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    lumen, formats = str(arguments.lumen.resolve()), (ALL if arguments.formats == "all" else arguments.formats).split(",")
    device = ("--device", arguments.device)
    asks = () if arguments.device == "cpu" else ("--batch-invariant",)
    with tempfile.TemporaryDirectory(prefix="lumen-invariance-") as folder:
        work = Path(folder)
        make_models(lumen, work, formats)
        for one in formats:
            begin = time.time()
            differ, cached, drafted = look(lumen, work, one, arguments.count, arguments.seed, True, *device, *asks)
            assert not differ, f"{one}: {len(differ)} of {arguments.count} answers differ from the first one; request {differ[0]}"
            assert cached > 0 and drafted > 0, (one, cached, drafted)  # otherwise nothing was tried
            print(f"serve: {one}: {arguments.count} answers among neighbours are the first ones; {cached:.0f} tokens cached, {drafted:.0f} drafted, "
                  f"{time.time() - begin:.0f} s", flush=True)
        differ, _, _ = look(lumen, work, formats[0], 200, arguments.seed, False, *device, "--no-batch-invariant")
        assert differ, f"{formats[0]}: 200 answers with --no-batch-invariant are the first ones, so this check sees nothing"
        print(f"serve: {formats[0]} with --no-batch-invariant: answer {differ[0][0]} differs")


if __name__ == "__main__":
    main()
