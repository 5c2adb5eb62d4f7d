#!/usr/bin/env python3
"""Chats as calibration data: rows with messages are rendered by the model's template, on the road that training takes, by
quantize and imatrix; and `--activations none` leaves out what a model says of activations.

usage: chats_check.py LUMEN
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LUMEN = os.path.abspath(sys.argv[1])
WORDS = "What is it They say so My lord".split()


def run(work, *words, fails=False):
    got = subprocess.run([LUMEN, *words], cwd=work, capture_output=True, text=True)
    assert (got.returncode != 0) == fails, (words, got.returncode, got.stderr[-2000:])
    return got.stdout + got.stderr


def chat(i):
    line = " ".join(WORDS[(i + 3 * k) % 8] for k in range(5))
    return {"messages": [{"role": "user", "content": line}, {"role": "assistant", "content": line[::-1].replace("W", "w")}]}


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run(work, "train", "--shape", "tiny", "--steps", "2", "--eval-every", "0", "-o", "run", "-q")
        (work / "chats.jsonl").write_text("".join(json.dumps(chat(i)) + "\n" for i in range(40)) + '{"messages": 3}\n')
        (work / "raw.txt").write_text("".join(chat(i)["messages"][0]["content"] + "\n" for i in range(40)))
        # As many tokens as training has of the same file, and the dropped row is named.
        counted = re.search(r"(\d+) examples, (\d+) tokens", run(work, "data", "stats", "-m", "run/model.gguf", "--data", "chats.jsonl"))
        some = ["-c", "16", "--chunks", "4"]
        text = run(work, "quantize", "run/model.gguf", "chats.gguf", "int4_g32", "--strategy", "gptq", "--calibration", "chats.jsonl", *some)
        noted = re.search(r"calibrating on 'chats.jsonl': (\d+) chats by the template '[^']+', (\d+) tokens", text)
        assert noted and noted.groups() == counted.groups(), (text[-1500:], counted and counted.groups())
        assert "chats.jsonl:41" in text and "1 rows are left out" in text, text[-1500:]
        # What is calibrated on decides.
        run(work, "quantize", "run/model.gguf", "raw.gguf", "int4_g32", "--strategy", "gptq", "-f", "raw.txt", *some)
        assert (work / "chats.gguf").read_bytes() != (work / "raw.gguf").read_bytes()
        text = run(work, "imatrix", "-m", "run/model.gguf", "-f", "chats.jsonl", "-c", "16", "-o", "i.gguf")
        assert f"{int(counted.group(2)) // 16} windows" in text, text
        # A folder says what activations are held in, and another one that they are floats.
        run(work, "quantize", "run/model.gguf", "w8a8", "int8_row", "--output-format", "compressed-tensors", "--activations", "int8_row", *some)
        said = json.loads((work / "w8a8/config.json").read_text())["quantization_config"]["config_groups"]["group_0"]
        assert said["input_activations"]["strategy"] == "token" and said["format"] == "int-quantized", said
        text = run(work, "quantize", "w8a8", "plain", "f32", "--output-format", "hf", "--allow-requantize", fails=True)
        assert "--activations none" in text, text
        assert not (work / "plain").exists()
        run(work, "quantize", "w8a8", "plain", "f32", "--output-format", "hf", "--allow-requantize", "--activations", "none")
        text = run(work, "quantize", "run/model.gguf", "bad", "int8_row", "--output-format", "compressed-tensors", "--activations", "mxfp8_e4m3", *some, fails=True)
        assert "int8_row" in text and not (work / "bad").exists(), text
    print("chats calibrate through the template; folders say what activations are held in")


main()
