#!/usr/bin/env python3
"""Ctrl-C in every verb that may take long: at different moments, it is said at once, the code is 130, and neither a part nor a half
of an output is left. Prints how long each took; the bound here is for machines that have much else to do.

Usage: tests/cli/system/interrupt_check.py LUMEN [NAME..]
"""
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from verbs import Verbs

BOUND = 20  # seconds; about one is promised where nothing else runs


def long_verbs(out):
    """(name, words, outputs that must not be there afterwards)"""
    model, small, text = "big/model.gguf", "big-small.gguf", ["-f", "long.txt"]
    image = ["--family", "small_images", "--shape", "xs"]
    return [
        ("train", ["train", "--shape", "char", "--steps", "100000", "-o", out / "m"], ["m/model.gguf"]),
        ("train, tokenizing", ["train", "-m", model, "--data", "long.txt", "--steps", "100000", "-o", out / "m"], ["m/model.gguf"]),
        ("quantize", ["quantize", model, out / "q.gguf", "q4_0", "--strategy", "gptq", *text], ["q.gguf"]),
        ("quantize, learned", ["quantize", model, out / "q.gguf", "q4_0", "--strategy", "autoround", *text], ["q.gguf"]),
        ("quantize, budget", ["quantize", model, out / "q.gguf", "--budget", "4.5bpw", "--candidates", "q4_0,q8_0", *text], ["q.gguf"]),
        ("imatrix", ["imatrix", "-m", model, *text, "-o", out / "i.gguf"], ["i.gguf"]),
        ("rewrite, learned", ["rewrite", model, out / "r.gguf", "--rotate", "stream", "--learn-rotation", "q4_0", *text], ["r.gguf"]),
        ("correct", ["correct", model, small, "-o", out / "c.gguf", *text], ["c.gguf"]),
        ("recover", ["recover", model, small, "-o", out / "rec.gguf", *text, "--steps", "100000"], ["rec.gguf"]),
        ("perplexity", ["perplexity", "-m", model, *text, "--record-logits", out / "base.kl"], ["base.kl"]),
        ("compare", ["compare", model, small, *text, "--html", out / "c.html"], ["c.html"]),
        ("bench", ["bench", "-m", model, "-r", "1000"], []),
        ("embed", ["embed", "-m", model, "-f", "short.txt"], []),
        ("run", ["run", "-m", model, "-p", "To be", "-n", "1000000", "--ignore-eos"], []),
        ("run, many", ["run", "-m", model, "-p", "To be", "-n", "1000000", "-np", "4", "--ignore-eos"], []),
        ("tokenize", ["tokenize", "-m", model, "-f", "huge.txt", "--stats"], []),
        ("tokenize, training", ["tokenize", "--train", "huge.txt", "--vocabulary", "4000", "-o", out / "t.json"], ["t.json"]),
        ("data stats", ["data", "stats", "-m", model, "--data", "huge.txt"], []),
        ("demo", ["demo", "-o", out / "demo"], []),
        ("compile", ["compile", "llama", "--shape", "llama-1b", "--function", "train", "--symbols", "B=4,T=512", "--emit", "asm", "--cache", "off"], []),
        ("format check", ["format", "check", "q4_k", "--cache", "off"], []),
        ("doctor", ["doctor", "--cache", "off"], []),
        ("serve", ["serve", "-m", model, "--port", "0"], []),
        ("recommend train", ["recommend", "train", "interactions", "--family", "sasrec", "-o", out / "rr", "--epochs", "100000"], []),
        ("diffuse train", ["diffuse", "train", "shapes", "--family", "dit", "--config", "size=12", "--steps", "100000", "-o", out / "dr"], []),
        ("classify train", ["classify", "train", "shapes", *image, "--steps", "1000000", "-o", out / "cr"], []),
        ("federate simulate", ["federate", "simulate", "shapes", *image, "--config", "size=12", "--clients", "4", "--sampled", "2",
                               "--rounds", "100000", "--method", "float"], []),
    ]


def interrupt(verbs, name, words, made, out, moment):
    """Seconds until the end and until it was said; nothing where the command was over before."""
    process = verbs.start(words, {"LUMEN_CACHE": str(verbs.work / f"cache-{moment}")} if moment == 0.2 else None,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # background jobs begin without it
    heard, said_at = [], []

    def listen():
        for line in process.stderr:
            heard.append(line.decode(errors="replace"))
            if "stopp" in heard[-1]:
                said_at.append(time.monotonic())

    listener = threading.Thread(target=listen)
    sink = threading.Thread(target=lambda: process.stdout.read())
    listener.start()
    sink.start()
    try:
        code = process.wait(timeout=moment)
        listener.join()
        assert code == 0, (name, "is refused, so that nothing is interrupted", code, "".join(heard)[-1000:])
        return None, f"{name}: over after {moment} s with {code}: {''.join(heard)[-300:]}"
    except subprocess.TimeoutExpired:
        pass
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        code = process.wait(timeout=BOUND)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{name} at {moment} s: not over {BOUND} s after Ctrl-C: {''.join(heard)[-500:]}") from None
    took = time.monotonic() - begin
    listener.join()
    sink.join()
    error = "".join(heard)
    if code == -signal.SIGINT and moment < 1 and not error:
        return took, None  # before it had begun
    assert code == 130, (name, moment, code, error[-1000:])
    assert said_at and said_at[0] - begin < max(2, took), (name, moment, error[-500:])
    parts = [p for p in verbs.work.rglob("*") if p.name.endswith(".part")]
    assert not parts, (name, moment, parts)
    assert not [p for p in made if (out / p).exists()], (name, moment, "an output of a run that was stopped")
    return took, None


def main():
    with tempfile.TemporaryDirectory(prefix="lumen-interrupt-") as folder:
        verbs = Verbs(sys.argv[1], folder)
        line = "To be, or not to be, that is the question, of many words and many more of them in a row\n"
        (verbs.work / "long.txt").write_text(line * 3000)
        (verbs.work / "short.txt").write_text("To be, or not to be, that is the question.\n" * 100_000)
        (verbs.work / "huge.txt").write_text("".join(line for i in range(300_000)))
        verbs.do("train", "--shape", "char", "--steps", "1", "--eval-every", "0", "-o", "big", "-q")
        verbs.do("quantize", "big/model.gguf", "big-small.gguf", "q4_0", "-q")
        for command, *words in (("recommend", "sample", "-o", "interactions"),
                                ("diffuse", "data", "-o", "shapes", "--count", "300", "--size", "12")):
            if verbs.has(command):
                verbs.do(command, *words)
        out, longest, over = verbs.work / "out", {}, []
        for name, words, made in long_verbs(out):
            if len(sys.argv) > 2 and name not in sys.argv[2:] or not verbs.has(words[0]):
                continue
            for moment in (0.2, 2):
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                took, early = interrupt(verbs, name, words, made, out, moment)
                if early:
                    over.append(early)
                    break
                longest[name] = max(longest.get(name, 0), took)
            if name in longest:
                print(f"{name:<24} {longest[name]:.2f} s", flush=True)
        for early in over:
            print(early)
        assert len(longest) > 0 and (len(sys.argv) > 2 or len(longest) > 20), longest


if __name__ == "__main__":
    main()
