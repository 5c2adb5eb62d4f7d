#!/usr/bin/env python3
"""A model file that another process cuts while it is mapped: every verb ends with exit 1 and the file's name, and writes nothing; a
server ends that model's requests with 503, and goes on with its other models.

Usage: tests/cli/system/cut_check.py LUMEN
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from verbs import Verbs

LONGEST = 300  # seconds of anything, on a machine that has much else to do


def cut_while(verbs, words, file, moment):
    """Runs a command whose model is cut some time after it has been mapped; its code and what it said."""
    process = verbs.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    maps, until = Path(f"/proc/{process.pid}/maps"), time.time() + LONGEST
    while process.poll() is None and time.time() < until:
        try:
            if file.name in maps.read_text():
                time.sleep(moment)
                os.truncate(file, 4096)
                break
        except OSError:
            break
    out, error = process.communicate(timeout=LONGEST)
    return process.returncode, out.decode(errors="replace"), error.decode(errors="replace")


def verbs_end(verbs):
    file, out = verbs.work / "cut.gguf", verbs.work / "out"
    long = ["-f", "long.txt"]
    (verbs.work / "long.txt").write_text("To be, or not to be, that is the question:\n" * 4000)
    commands = {
        "run": ["run", "-m", file, "-p", "To be", "-n", "100000", "--ignore-eos", "--context-shift"],
        "perplexity": ["perplexity", "-m", file, *long],
        "train": ["train", "-m", file, "--steps", "100000", "--eval-every", "0", "--data", "long.txt", "-o", out / "m", "--lora"],
        "quantize": ["quantize", file, out / "q.gguf", "q4_0", "--strategy", "gptq", *long],
        "imatrix": ["imatrix", "-m", file, *long, "-o", out / "i.gguf"],
        "export": ["export", file, out / "e.gguf", "--type", "bf16"],
    }
    for name, words in commands.items():
        caught = 0
        for moment in (0, 0.05, 0.3):
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            shutil.copy(verbs.work / "big.gguf", file)
            code, _, error = cut_while(verbs, words, file, moment)
            if code == 0 and name in ("export", "quantize", "imatrix"):
                continue  # it was over before
            assert code == 1, (name, moment, code, error[-1000:])
            assert "cut.gguf' was cut while it was read" in error, (name, moment, error[-1000:])
            left = [p for p in out.rglob("*") if p.is_file() and p.suffix in (".gguf", ".safetensors", ".part")]
            assert not left, (name, moment, left)
            caught += 1
        print(f"{name}: exit 1, nothing written ({caught} of 3 caught at work)")


def ask(port, model, stream=False, tokens=8):
    body = json.dumps({"model": model, "prompt": "To be", "max_tokens": tokens, "stream": stream, "temperature": 0, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LONGEST) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def server_goes_on(verbs):
    file = verbs.work / "cut.gguf"
    shutil.copy(verbs.work / "big.gguf", file)
    server = verbs.start(["serve", "-m", f"cut={file}", "-m", "whole=m/model.gguf", "--port", "0", "--prefix-cache", "prefixes"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        port = int(re.search(rb":(\d+) ", server.stdout.readline()).group(1))
        for model in ("cut", "whole"):
            assert ask(port, model)[0] == 200
        before = ask(port, "whole")
        answers = []  # the last of each client, who asks until something is wrong

        def ask_on(stream):
            until = time.time() + LONGEST
            while time.time() < until:
                status, text = ask(port, "cut", stream, 50)
                if status != 200 or '"error"' in text:
                    return answers.append((status, text))

        clients = [threading.Thread(target=ask_on, args=[stream]) for stream in (True, False, True, False)]
        for client in clients:
            client.start()
        time.sleep(1)
        os.truncate(file, 4096)
        for client in clients:
            client.join(LONGEST)
        assert len(answers) == len(clients), answers
        for status, text in answers:
            assert "was cut while it was read" in text and status in (200, 503), (status, text[-500:])
        for _ in range(2):
            status, text = ask(port, "cut")
            assert status == 503 and "was cut" in text, (status, text)
        status, text = ask(port, "whole")
        choices = [json.loads(t)["choices"][0]["text"] for t in (before[1], text)]
        assert status == 200 and choices[0] == choices[1], (status, text)
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        error = server.communicate(timeout=LONGEST)[1].decode()
        assert server.returncode == 143, (server.returncode, error)
        assert error.count("cut.gguf' was cut") >= 1, error
        print("serve: 503 for the model that was cut, the other goes on")
    finally:
        if server.poll() is None:
            server.kill()


def main():
    with tempfile.TemporaryDirectory(prefix="lumen-cut-") as folder:
        verbs = Verbs(sys.argv[1], folder)
        verbs.do("train", "--shape", "char", "--steps", "1", "--eval-every", "0", "-o", "big", "-q")
        shutil.copy(verbs.work / "big/model.gguf", verbs.work / "big.gguf")
        verbs_end(verbs)
        server_goes_on(verbs)


if __name__ == "__main__":
    main()
