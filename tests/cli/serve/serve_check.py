#!/usr/bin/env python3
"""`lumen serve` as clients meet it: a model made here, answers that are those of `lumen run`, streams, many clients at once, clients
that leave, do not read or send what is no request, keys, TLS, full queues, and signals.

Usage: tests/cli/serve/serve_check.py LUMEN
"""
import json
import math
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

LONGEST = 120  # seconds of anything, on a machine that has much else to do
SIZE = "  size served { vocab = 1200; hidden = 32; layers = 2; heads = 4; kv_heads = 2; ffn = 64; context = 4096; eps = 1e-5 }"
CHECK = ["--host", "127.0.0.1", "--port", "0", "--threads", "1"]


class Served:
    def __init__(self, lumen, work, *words, tls=False):
        self.log = work / f"log-{time.monotonic_ns()}.txt"
        self.environment = {**os.environ, "LUMEN_CACHE": str(work / "cache"), "OMP_WAIT_POLICY": "passive"}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([lumen, "serve", *CHECK, *map(str, words)], cwd=work, stdout=log, stderr=log, env=self.environment)
        until = time.time() + LONGEST
        while not (found := re.search(r"listening at https?://127\.0\.0\.1:(\d+)", self.log.read_text())):
            assert time.time() < until and self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)
        self.port, self.tls, self.key = int(found[1]), tls, None

    def ask(self, path, body=None, key=None, headers=None, method=None):
        """Status, headers and text of an answer."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        if key or self.key:
            request.add_header("Authorization", f"Bearer {key or self.key}")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        context = ssl._create_unverified_context() if self.tls else None
        try:
            with urllib.request.urlopen(request, timeout=LONGEST, context=context) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def json(self, path, body=None, status=200):
        got, _, text = self.ask(path, body)
        assert got == status, (path, body, got, text)
        return json.loads(text)

    def raw(self, data, seconds=20, shut=False):
        """The bytes that the server answers to these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as s:
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
            heard = b""
            try:
                while part := s.recv(65536):
                    heard += part
            except (TimeoutError, ConnectionError):
                pass
            return heard

    def metric(self, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.ask("/metrics")[2], re.M)
        return float(found[1])

    def wait_for(self, name, value):
        until = time.time() + LONGEST
        while self.metric(name) != value:
            assert time.time() < until, (name, value, self.metric(name))
            time.sleep(0.02)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(LONGEST)


def events(text):
    lines = [line for line in text.split("\n") if line]
    assert all(line.startswith("data: ") for line in lines), text[:500]
    assert lines[-1] == "data: [DONE]", text[-500:]
    return [json.loads(line[6:]) for line in lines[:-1]]


def request_of(path, body, more=""):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data


def answers(s, lumen, work):
    """What the paths say."""
    assert s.json("/health") == {"status": "ok"}
    assert [m["id"] for m in s.json("/v1/models")["data"]] == ["served"]
    assert s.json("/v1/models/served")["max_model_len"] == 4096
    tokens = s.json("/tokenize", {"prompt": "Once upon"})["tokens"]
    assert s.json("/detokenize", {"tokens": tokens})["prompt"] == "Once upon"

    info = s.json("/tokenizer_info")
    assert info["model_max_length"] == 4096 and info["vocab_size"] > 256 and {"bos_token", "eos_token", "chat_template"} <= set(info), info

    # The same seed, the same text as `lumen run` writes.
    flags = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "seed": 7, "max_tokens": 20, "ignore_eos": True}
    alone = subprocess.run([lumen, "run", "-m", "served.gguf", "-p", "Once upon", "-n", "20", "--seed", "7", "--no-display-prompt", "--ignore-eos",
                            "--threads", "1", "-q"], cwd=work, capture_output=True, text=True, timeout=LONGEST, env=s.environment)
    given = s.json("/v1/completions", {"model": "served", "prompt": "Once upon", **flags})
    assert given["choices"][0]["text"] == alone.stdout.removesuffix("\n"), (given, alone.stdout, alone.stderr)
    assert given["usage"]["prompt_tokens"] == len(tokens) and given["usage"]["completion_tokens"] == 20
    assert given["choices"][0]["finish_reason"] == "length"
    assert s.json("/v1/completions", {"prompt": tokens, **flags})["choices"][0]["text"] == given["choices"][0]["text"]
    streamed = events(s.ask("/v1/completions", {"prompt": "Once upon", "stream": True, **flags})[2])
    assert "".join(e["choices"][0]["text"] for e in streamed) == given["choices"][0]["text"]
    assert streamed[-1]["choices"][0]["finish_reason"] == "length"

    # Logarithms of what a prompt says.
    scored = s.json("/v1/completions", {"prompt": [tokens, tokens[:3]], "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0})
    told = scored["choices"][0]["logprobs"]
    assert scored["choices"][0]["text"] == "Once upon" and len(told["tokens"]) == len(tokens) == len(told["top_logprobs"])
    assert told["token_logprobs"][0] is None and all(x < 0 for x in told["token_logprobs"][1:])
    assert all(max(top.values()) >= x for top, x in zip(told["top_logprobs"][1:], told["token_logprobs"][1:]))
    assert told["text_offset"] == sorted(told["text_offset"]) and told["text_offset"][0] == 0
    assert abs(scored["choices"][1]["logprobs"]["token_logprobs"][2] - told["token_logprobs"][2]) < 1e-3

    # Chats: whole and in events, several outputs, a schema.
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6, "seed": 3, "n": 2, "logprobs": True, "top_logprobs": 2}
    whole = s.json("/v1/chat/completions", chat)
    assert [c["index"] for c in whole["choices"]] == [0, 1] and whole["choices"][0]["message"]["role"] == "assistant"
    assert len(whole["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    pieces = events(s.ask("/v1/chat/completions", {**chat, "stream": True, "stream_options": {"include_usage": True}})[2])
    assert pieces[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] and pieces[-1]["choices"] == []
    for index in (0, 1):
        said = "".join(c["delta"].get("content", "") for e in pieces for c in e["choices"] if c["index"] == index)
        assert said == whole["choices"][index]["message"]["content"]
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
    formed = s.json("/v1/chat/completions", {"messages": chat["messages"], "max_tokens": 200, "seed": 1, "top_k": 5, "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
    if formed["choices"][0]["finish_reason"] == "stop":  # a random model may write blanks for long
        assert isinstance(json.loads(formed["choices"][0]["message"]["content"])["a"], bool)

    # Stops, and what other requests have computed.
    text = given["choices"][0]["text"]
    stopped = s.json("/v1/completions", {"prompt": "Once upon", **flags, "stop": [text[5:9]]})["choices"][0]
    assert stopped["finish_reason"] == "stop" and stopped["text"] == text[:text.index(text[5:9])]
    long = "A long beginning that many texts share, word by word. " * 8
    s.json("/v1/completions", {"prompt": long, "max_tokens": 2})
    again = s.json("/v1/completions", {"prompt": long + "More", "max_tokens": 2})
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 100, again["usage"]

    vectors = s.json("/v1/embeddings", {"input": ["one text", "another"]})["data"]
    assert len(vectors) == 2 and abs(sum(x * x for x in vectors[0]["embedding"]) - 1) < 1e-4


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def ollama(s):
    """Ollama's API: lines of JSON by default, whole answers otherwise."""
    assert "version" in s.json("/api/version")
    tag = s.json("/api/tags")["models"][0]
    assert tag["name"] == "served" and tag["size"] > 1000 and len(tag["digest"]) == 64 and tag["details"]["family"] == "llama", tag
    assert s.json("/api/ps")["models"][0]["model"] == "served"
    shown = s.json("/api/show", {"model": "served:latest"})
    assert "completion" in shown["capabilities"] and shown["model_info"]["llama.context_length"] == 4096, shown
    options = {"temperature": 0.7, "seed": 3, "num_predict": 12, "num_ctx": 2048}
    chat = {"model": "served:latest", "messages": [{"role": "user", "content": "Hello"}], "options": options}
    status, headers, text = s.ask("/api/chat", chat)
    lines = lines_of(text)
    assert status == 200 and headers["Content-Type"] == "application/x-ndjson", headers
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True] and lines[-1]["eval_count"] <= 12, lines
    whole = s.json("/api/chat", {**chat, "stream": False})
    assert whole["message"]["content"] == "".join(line["message"]["content"] for line in lines) and whole["model"] == "served:latest"
    assert whole["total_duration"] > 0 and whole["prompt_eval_count"] == lines[-1]["prompt_eval_count"] > 0
    raw = s.json("/api/generate", {"prompt": "Once upon", "raw": True, "stream": False, "options": {**options, "temperature": 0, "repeat_penalty": 1}})
    same = s.json("/v1/completions", {"prompt": "Once upon", "temperature": 0, "max_tokens": 12})
    assert raw["response"] == same["choices"][0]["text"] and raw["done_reason"] in ("length", "stop"), raw
    assert lines_of(s.ask("/api/generate", {"prompt": "Hello", "options": options})[2])[-1]["done"] is True
    assert s.json("/api/generate", {"model": "served"})["done_reason"] == "load"
    vectors = s.json("/api/embed", {"input": ["one", "two"]})["embeddings"]
    assert len(vectors) == 2 and s.json("/api/embeddings", {"prompt": "one"})["embedding"] == vectors[0]
    formed = s.json("/api/chat", {**chat, "stream": False, "format": {"enum": ["yes", "no"]}, "options": {"temperature": 0, "num_predict": 30}})
    assert json.loads(formed["message"]["content"]) in ("yes", "no"), formed
    status, _, text = s.ask("/api/chat", {"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]})
    assert status == 400 and "reads no pictures" in json.loads(text)["error"], text
    assert set(json.loads(s.ask("/api/pull", {"model": "a"})[2])) == {"error"}


def other_apis(s):
    """llama.cpp's own paths, scores of documents, and stored responses."""
    props = s.json("/props")
    assert props["total_slots"] >= 1 and props["default_generation_settings"]["n_ctx"] == 4096 and len(s.json("/slots")) == props["total_slots"]
    prompt = s.json("/apply-template", {"messages": [{"role": "user", "content": "Hello"}]})["prompt"]
    assert "Hello" in prompt, prompt
    ask = {"prompt": "Once upon", "n_predict": 10, "temperature": 0, "n_probs": 2, "return_tokens": True, "cache_prompt": True, "ignore_eos": True}
    whole = s.json("/completion", ask)
    same = s.json("/v1/completions", {"prompt": "Once upon", "max_tokens": 10, "temperature": 0, "ignore_eos": True})["choices"][0]
    assert whole["content"] == same["text"] and whole["stop_type"] == "limit" and whole["tokens_predicted"] == 10, (whole, same)
    assert len(whole["tokens"]) == len(whole["completion_probabilities"]) == 10 and whole["timings"]["predicted_n"] == 10, whole
    text = s.ask("/completion", {**ask, "stream": True})[2]
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line]
    assert "".join(p["content"] for p in pieces) == whole["content"] and pieces[-1]["stop"] is True and "[DONE]" not in text
    assert s.json("/infill", {"input_prefix": "a", "input_suffix": "b"}, status=400)["error"]["code"] == "unsupported_model"
    pieces = s.json("/tokenize", {"content": "Once", "with_pieces": True})["tokens"]
    assert "".join(p["piece"] for p in pieces) == "Once", pieces

    documents = ["a cat sat", "one text", "something else"]
    ranked = s.json("/v1/rerank", {"query": "one text", "documents": documents, "top_n": 2, "return_documents": True})
    scores = [r["relevance_score"] for r in ranked["results"]]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True) and ranked["results"][0]["document"]["text"] in documents, ranked
    every = s.json("/rerank/", {"query": "one text", "texts": documents})
    assert sorted(r["index"] for r in every) == [0, 1, 2] and every[0]["score"] == scores[0], every
    one_by_one = [s.json("/v1/score", {"text_1": "one text", "text_2": d})["data"][0]["score"] for d in documents]
    assert all(abs(one_by_one[r["index"]] - r["score"]) < 1e-4 for r in every), (one_by_one, every)

    said = s.json("/v1/responses", {"input": "Hello", "max_output_tokens": 4})
    assert s.json("/v1/responses/" + said["id"]) == said
    assert s.json(f"/v1/responses/{said['id']}/cancel", {}, status=400)
    status, _, text = s.ask("/v1/responses/" + said["id"], method="DELETE")
    assert status == 200 and json.loads(text) == {"id": said["id"], "object": "response", "deleted": True}, text
    s.json("/v1/responses/" + said["id"], status=404)


def tolerance(s):
    """Headers, methods and names as clients and proxies write them; pages of other sites."""
    body = json.dumps({"prompt": "ab"}).encode()
    for kind in ("application/x-www-form-urlencoded", "application/json; charset=utf-8"):
        assert s.ask("/tokenize", body, headers={"Content-Type": kind})[0] == 200, kind
    bare = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert b" 200 " in s.raw(bare + body)[:20]
    assert s.ask("/tokenize", b"a=b", headers={"Content-Type": "application/x-www-form-urlencoded"})[0] == 400
    status, headers, text = s.ask("/health", method="HEAD")
    assert status == 200 and not text and s.ask("/health/")[0] == s.ask("/v1/models/")[0] == 200
    status, headers, _ = s.ask("/v1/completions", method="DELETE")
    assert status == 405 and headers["Allow"] == "POST" and s.ask("/health", {})[1]["Allow"] == "GET, HEAD"
    assert s.json("/v1/completions", {"prompt": "a", "model": "gpt-4o", "max_tokens": 1})["model"] == "served"
    assert s.json("/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})["object"] == "chat.completion"
    for host, wanted in (("evil.example", b"403"), (f"localhost:{s.port}", b"200"), ("[::1]:80", b"200"), ("127.0.0.1.evil.example", b"403")):
        heard = s.raw(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        assert heard[9:12] == wanted, (host, heard[:200])
    assert s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")[9:12] == b"400"
    for origin, wanted in (("http://evil.example", 403), ("null", 403), (f"http://127.0.0.1:{s.port}", 200)):
        status, headers, _ = s.ask("/tokenize", body, headers={"Origin": origin})
        assert status == wanted and "Access-Control-Allow-Origin" not in headers, (origin, status)


def cross_origin(lumen, work):
    """Pages that --cors names, names of --allow-host and --alias, and keys in other forms."""
    s = Served(lumen, work, "-m", "served.gguf", "--cors", "https://chat.example", "--allow-host", "box.lan", "--alias", "first,second", "--api-key", "sesame")
    try:
        asked = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        status, headers, _ = s.ask("/v1/chat/completions", method="OPTIONS", headers=asked)
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "https://chat.example", (status, headers)
        assert headers["Access-Control-Allow-Headers"] == "authorization,content-type" and "POST" in headers["Access-Control-Allow-Methods"]
        status, headers, _ = s.ask("/v1/models", key="sesame", headers={"Origin": "https://chat.example"})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == "https://chat.example" and headers["Vary"] == "Origin"
        assert s.ask("/v1/models", headers={"Origin": "https://chat.example"})[1]["Access-Control-Allow-Origin"], "a page cannot read why it was refused"
        assert s.ask("/v1/models", key="sesame", headers={"Origin": "https://other.example"})[0] == 403
        assert s.ask("/v1/chat/completions", method="OPTIONS", headers={**asked, "Origin": "https://other.example"})[0] == 403
        assert s.raw(b"GET /health HTTP/1.1\r\nHost: box.lan:80\r\nConnection: close\r\n\r\n")[9:12] == b"200"
        for header in ({"Authorization": "bearer sesame"}, {"Authorization": "BEARER  sesame"}, {"x-api-key": "sesame"}):
            assert s.ask("/v1/models", headers=header)[0] == 200, header
        for header in ({"Authorization": "Basic sesame"}, {"Authorization": "sesame"}, {"Authorization": "bearer"}, {"x-api-key": "sesam"}):
            assert s.ask("/v1/models", headers=header)[0] == 401, header
        s.key = "sesame"
        assert [m["id"] for m in s.json("/v1/models")["data"]] == ["first"]
        assert s.json("/v1/models/second")["id"] == "first"
        assert s.json("/v1/completions", {"prompt": "a", "model": "second", "max_tokens": 1})["model"] == "first"
    finally:
        s.process.kill()
    for wrong in (["--cors", "chat.example"], ["--alias", "a,,b"], ["--alias", "a,a"], ["-m", "b=served.gguf", "--alias", "a"]):
        words = [lumen, "serve", *CHECK, "-m", "a=served.gguf", *wrong]
        failed = subprocess.run(words, cwd=work, capture_output=True, text=True, timeout=LONGEST, env=s.environment)
        assert failed.returncode == 2, (wrong, failed.stderr)


def make_judge(folder):
    """A random model as a Hugging Face folder whose vocabulary has the tokens "yes" and "no"."""
    r, hidden, ffn = random.Random(5), 16, 32
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in visible}
    for byte in range(256):
        names.setdefault(byte, chr(256 + len(names) - len(visible)))
    merges = [("y", "e"), ("ye", "s"), ("n", "o")]
    tokens = [names[byte] for byte in range(256)] + [a + b for a, b in merges]
    marks = ["<|im_start|>", "<|im_end|>"]
    vocabulary = len(tokens) + len(marks)
    added = [{"id": len(tokens) + i, "content": m, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, m in enumerate(marks)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "vocab": {token: i for i, token in enumerate(tokens)}, "merges": [f"{a} {b}" for a, b in merges]}}
    template = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
                "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "torch_dtype": "float32"}
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden), "model.norm.weight": (hidden,), layer + "input_layernorm.weight": (hidden,),
              layer + "post_attention_layernorm.weight": (hidden,), layer + "mlp.gate_proj.weight": (ffn, hidden), layer + "mlp.up_proj.weight": (ffn, hidden),
              layer + "mlp.down_proj.weight": (hidden, ffn), **{f"{layer}self_attn.{x}_proj.weight": (hidden, hidden) for x in "qkvo"}}
    data, header = b"", {}
    for name, shape in shapes.items():
        count = math.prod(shape)
        values = [1.0] * count if len(shape) == 1 else [r.gauss(0, 0.6) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>", "add_bos_token": False}))


def judge(lumen, work):
    """A model that can answer yes or no scores documents by that; more documents than --max-n are scored in several requests."""
    make_judge(work / "judge")
    s = Served(lumen, work, "-m", "judge", "--max-n", "3", "--exact")
    try:
        yes, no = (s.json("/tokenize", {"content": word})["tokens"] for word in ("yes", "no"))
        assert len(yes) == len(no) == 1, (yes, no)
        documents = [f"document {i} about {word}" for i, word in enumerate(["cats", "dogs", "birds", "fish", "yes", "no", "trees"])]
        ranked = s.json("/v1/rerank", {"query": "animals", "documents": documents})["results"]
        assert sorted(r["index"] for r in ranked) == list(range(7)) and len({r["relevance_score"] for r in ranked}) == 7, ranked
        for result in ranked[:2] + ranked[-1:]:
            system = 'Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".'
            user = ("<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: animals\n<Document>: " + documents[result["index"]])
            prompt = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
            told = []  # the probabilities of both words by a grammar-free completion: the prompt is scored with each of them at its end
            for word in (yes, no):
                ids = s.json("/tokenize", {"prompt": prompt})["tokens"] + word
                scored = s.json("/v1/completions", {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0})
                told.append(math.exp(scored["choices"][0]["logprobs"]["token_logprobs"][-1]))
            assert abs(result["relevance_score"] - told[0] / sum(told)) < 1e-4, (result, told)
    finally:
        s.process.kill()


def refusals(s):
    """What is no request, and who does not behave."""
    for path, body, status in [("/v1/completions", b"{", 400), ("/v1/completions", b"\xff\xfe", 400), ("/v1/completions", {"prompt": 3}, 400),
                               ("/v1/completions", {"prompt": "a", "best_of": 3}, 400), ("/v1/completions", {"prompt": "a", "n": 10**30}, 400),
                               ("/v1/completions", {"prompt": "a", "model": 3}, 400), ("/nothing", {"a": 1}, 404),
                               ("/v1/completions", b"[" * 5000, 400), ("/v1/completions", {"prompt": "a " * 5000}, 400),
                               ("/v1/completions", None, 405), ("/metrics", {"a": 1}, 405), ("/v1/chat/completions", {"messages": []}, 400),
                               ("/v1/completions", b'{"prompt": "' + b"a" * 70000 + b'"}', 413)]:
        got, _, text = s.ask(path, body)
        assert got == status and set(json.loads(text)["error"]) == {"message", "type", "param", "code"}, (path, str(body)[:60], got, text)
    for data, status in [(b"\0\1\2\3\r\n\r\n", b"400"), (b"GET /\r\n\r\n", b"400"), (b"GET /health HTTP/9.9\r\n\r\n", b"400"),
                         (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n", b"414"), (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", b"431"),
                         (b"GET /health HTTP/1.1\r\nA: " + b"b" * 70000 + b"\r\n\r\n", b"431"), (b"GET /health HTTP/1.1\r\nno header\r\n\r\n", b"400"),
                         (b"GET /health HTTP/1.1\nA: b\n\n\r\n\r\n", b"400"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", b"400"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"400"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde", b"415"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nabcde", b"415"),
                         (b"POST /tokenize HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400")]:
        heard = s.raw(data)
        assert heard.startswith(b"HTTP/1.1 " + status), (data[:80], heard[:200])
    chunked = b"POST /tokenize HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert b'"tokens"' in s.raw(chunked + b"8\r\n{\"prompt\r\n7\r\n\": \"ab\"\r\n1\r\n}\r\n0\r\n\r\n")
    too_long = b"".join(b"1000\r\n" + b" " * 4096 + b"\r\n" for _ in range(20))
    assert s.raw(chunked + too_long).startswith(b"HTTP/1.1 413")
    # Half a request: its time ends.
    begin = time.time()
    s.raw(b"POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{", seconds=LONGEST)
    assert time.time() - begin < 20
    # Two requests on one connection, of which parts of an answer are asked for: the whole comes.
    twice = request_of("/tokenize", {"prompt": "a"}, "Range: bytes=0-0\r\n") + request_of("/tokenize", {"prompt": "b"}, "Connection: close\r\n")
    assert s.raw(twice).count(b"HTTP/1.1 200") == 2


def crowds(s):
    """16 clients at once get what each would get alone; those that leave free their places."""
    ask = lambda i: {"prompt": f"Client {i} says", "max_tokens": 24, "seed": i, "temperature": 1}
    alone = [s.json("/v1/completions", ask(i))["choices"][0]["text"] for i in range(16)]
    together = [None] * 16

    def client(i):
        if i % 2:
            together[i] = "".join(e["choices"][0]["text"] for e in events(s.ask("/v1/completions", {**ask(i), "stream": True})[2]))
        else:
            together[i] = s.json("/v1/completions", ask(i))["choices"][0]["text"]
    threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
    assert together == alone, [(a, b) for a, b in zip(alone, together) if a != b]

    before = s.metric("lumen_requests_cancelled_total")
    for stream in (False, True):
        with socket.create_connection(("127.0.0.1", s.port), timeout=LONGEST) as leaving:
            leaving.sendall(request_of("/v1/completions", {"prompt": "Long", "max_tokens": 4000, "stream": stream, "ignore_eos": True}))
            s.wait_for("lumen_requests_running", 1)
    s.wait_for("lumen_requests_cancelled_total", before + 2)
    s.wait_for("lumen_requests_running", 0)


TOOLS = [{"type": "function", "function": {"name": "weather", "description": "What it is like.", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Seoul", "Busan"]}, "days": {"type": "boolean"}}, "required": ["city", "days"]}}}]
TEMPLATE = """{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}
<call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""


def named_events(text):
    """Names and data of a stream whose events have names."""
    parts = [part.split("\n", 1) for part in text.split("\n\n") if part]
    assert all(name.startswith("event: ") and data.startswith("data: ") for name, data in parts), text[:500]
    return [(name[7:], json.loads(data[6:])) for name, data in parts]


def calls(s):
    """Functions by all three APIs: the arguments fit although the model is random, and streams say what whole answers say."""
    ask = {"messages": [{"role": "user", "content": "Is it nice?"}], "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "seed": 3}
    whole = s.json("/v1/chat/completions", ask)["choices"][0]
    assert whole["finish_reason"] == "tool_calls" and whole["message"]["content"] is None, whole
    call = whole["message"]["tool_calls"][0]
    given = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "weather" and given["city"] in ("Seoul", "Busan") and isinstance(given["days"], bool), call
    streamed = events(s.ask("/v1/chat/completions", {**ask, "stream": True})[2])
    deltas = [e["choices"][0]["delta"]["tool_calls"][0] for e in streamed if "tool_calls" in e["choices"][0]["delta"]]
    assert deltas[0]["function"]["name"] == "weather" and deltas[0]["id"] and len(deltas) > 1
    assert "".join(d["function"]["arguments"] for d in deltas) == call["function"]["arguments"]
    assert streamed[-1]["choices"][0]["finish_reason"] == "tool_calls"
    back = ask["messages"] + [whole["message"], {"role": "tool", "tool_call_id": call["id"], "content": "rain"}]
    after = s.json("/v1/chat/completions", {"messages": back, "tools": TOOLS, "max_tokens": 4})
    assert after["usage"]["prompt_tokens"] > s.json("/v1/chat/completions", {**ask, "max_tokens": 1})["usage"]["prompt_tokens"]
    free = s.json("/v1/chat/completions", {**ask, "tool_choice": "auto", "max_tokens": 12})["choices"][0]
    assert free["finish_reason"] in ("length", "stop", "tool_calls")

    flat = [{"type": "function", **TOOLS[0]["function"]}]
    said = s.json("/v1/responses", {"input": "Is it nice?", "tools": flat, "tool_choice": "required", "parallel_tool_calls": False, "seed": 3})
    assert said["status"] == "completed" and [o["type"] for o in said["output"]] == ["function_call"], said
    assert said["output"][0]["arguments"] == call["function"]["arguments"]
    more = s.json("/v1/responses", {"previous_response_id": said["id"], "max_output_tokens": 4, "tools": flat,
                                    "input": [{"type": "function_call_output", "call_id": said["output"][0]["call_id"], "output": "rain"}]})
    assert more["usage"]["input_tokens"] == after["usage"]["prompt_tokens"] and more["previous_response_id"] == said["id"]
    told = named_events(s.ask("/v1/responses", {"input": "Hello", "max_output_tokens": 8, "stream": True, "seed": 1})[2])
    assert told[0][0] == "response.created" and told[-1][0] in ("response.completed", "response.incomplete"), told[-1]
    assert "".join(d["delta"] for n, d in told if n == "response.output_text.delta") == told[-1][1]["response"]["output"][0]["content"][0]["text"]
    s.json("/v1/responses", {"input": "a", "previous_response_id": "resp_none"}, status=404)

    blocks = [{"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"], "description": "What it is like."}]
    message = {"max_tokens": 200, "messages": [{"role": "user", "content": "Is it nice?"}], "tools": blocks, "seed": 3,
               "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    said = s.json("/v1/messages", message)
    assert said["stop_reason"] == "tool_use" and said["content"][0]["input"] == given, said
    told = named_events(s.ask("/v1/messages", {**message, "stream": True})[2])
    assert told[0][0] == "message_start" and told[-1][0] == "message_stop" and told[-2][1]["delta"]["stop_reason"] == "tool_use"
    assert json.loads("".join(d["delta"]["partial_json"] for n, d in told if n == "content_block_delta")) == given
    count = s.json("/v1/messages/count_tokens", {"messages": message["messages"], "tools": blocks})["input_tokens"]
    assert count == said["usage"]["input_tokens"]
    status, _, text = s.ask("/v1/messages", {"messages": message["messages"]})
    assert status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error"

    status, headers, page = s.ask("/")
    assert status == 200 and page.startswith("<!doctype html>") and "default-src 'none'" in headers["Content-Security-Policy"]
    assert "trusted-types 'none'" in headers["Content-Security-Policy"], "the browser would take text for HTML"
    head = page.split("<script", 1)[0]
    assert not re.search(r"(src|href)=[\"'](?!#|data:,)|@import|url\((?![\"']?data:)", head), "the page reaches elsewhere"
    own = "".join(p.read_text() for p in sorted((Path(__file__).parents[3] / "src/cli/serve/page").glob("*.js")))
    assert own and not re.search(r"https?://|innerHTML|document\.write|eval\(", own), "the page's scripts reach elsewhere"


def signals(s):
    """SIGTERM lets what runs end, and nobody new in."""
    heard = []
    body = {"prompt": "Once", "max_tokens": 400, "stream": True, "ignore_eos": True, "seed": 1, "stream_options": {"include_usage": True}}
    running = threading.Thread(target=lambda: heard.append(s.ask("/v1/completions", body)[2]))
    running.start()
    s.wait_for("lumen_requests_running", 1)
    s.process.send_signal(signal.SIGTERM)
    until, refused = time.time() + LONGEST, None
    while refused is None and time.time() < until and s.process.poll() is None:
        try:
            status, headers, _ = s.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})
            refused = headers["Retry-After"] if status == 503 else None
        except (OSError, urllib.error.URLError):
            break
    running.join(LONGEST)
    assert refused == "1" and events(heard[0])[-1]["usage"]["completion_tokens"] == 400, (refused, heard[0][-300:])
    assert s.process.wait(LONGEST) == 128 + signal.SIGTERM, s.log.read_text()


def make_model(lumen, work):
    """A random model with a vocabulary and room for long sequences: served.gguf."""
    family = (Path(__file__).resolve().parents[3] / "models" / "llama.lum").read_text()
    (work / "sizes").mkdir()
    (work / "sizes" / "llama.lum").write_text(re.sub(r"^  size tiny .*$", SIZE, family, flags=re.M))
    environment = {**os.environ, "LUMEN_CACHE": str(work / "cache")}
    subprocess.run([lumen, "bench", "--models", "sizes", "--shape", "served", "--type", "f32", "--write", "served.gguf"], cwd=work, check=True,
                   capture_output=True, timeout=LONGEST, env=environment)


def adapters(lumen, work):
    """Texts of a model and of its adapter at the same time are those of `lumen run`; a client may ask so often and no more."""
    environment = {**os.environ, "LUMEN_CACHE": str(work / "cache")}
    base = ["--shape", "tiny", "--steps", "4", "--warmup", "1", "--threads", "1", "-q", "-o", "base"]
    lora = ["-m", "base/model.gguf", "--lora", "--lr", "0.05", "--steps", "6", "--warmup", "1", "--threads", "1", "-q", "-o", "changed"]
    for words in (base, lora):
        subprocess.run([lumen, "train", *words], cwd=work, check=True, capture_output=True, timeout=LONGEST, env=environment)
    s = Served(lumen, work, "-m", "plain=base/model.gguf", "--adapter", "changed=changed/adapter.gguf", "--client-rate", "1")
    try:
        assert [m["id"] for m in s.json("/v1/models")["data"]] == ["plain", "changed"]
        heard = {}

        def ask(name):
            heard[name] = s.ask("/v1/completions", {"model": name, "prompt": "To be", "max_tokens": 12, "temperature": 0})

        both = [threading.Thread(target=ask, args=(name,)) for name in ("plain", "changed")]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(LONGEST)
        texts = {}
        for name, more in (("plain", []), ("changed", ["--lora", "changed/adapter.gguf"])):
            assert heard[name][0] == 200, heard[name]
            texts[name] = json.loads(heard[name][2])["choices"][0]["text"]
            alone = subprocess.run([lumen, "run", "-m", "base/model.gguf", *more, "-p", "To be", "-n", "12", "--temp", "0", "--no-display-prompt", "--threads",
                                    "1", "-q"], cwd=work, capture_output=True, text=True, timeout=LONGEST, env=environment)
            assert texts[name] == alone.stdout.removesuffix("\n"), (name, heard[name], alone.stdout, alone.stderr)
        assert texts["plain"] != texts["changed"], texts
        many = [s.ask("/v1/completions", {"model": "plain", "prompt": "a", "max_tokens": 1}) for _ in range(8)]
        told = [headers["Retry-After"] for status, headers, _ in many if status == 429]
        assert told and all(told), [status for status, _, _ in many]
        assert s.ask("/health")[0] == 200
    finally:
        s.process.kill()


def prefixes(lumen, work):
    """A server that was killed has kept what prompts begin with; what was damaged is read again; answers stay byte for byte."""
    ask = {"prompt": "A long beginning that many prompts share, word by word. " * 12, "max_tokens": 8, "seed": 5, "temperature": 0.7}
    heard, cached = [], []
    folder = work / "prefixes"
    for start in range(3):
        if start == 2:
            files = sorted(f for f in folder.rglob("*") if f.is_file() and f.parent.name == "prefixes")
            assert len(files) >= 3 and all(f.stat().st_mode & 0o077 == 0 for f in files), files
            for file in files:
                data = bytearray(file.read_bytes())
                data[len(data) // 2] ^= 1
                file.write_bytes(data)
        s = Served(lumen, work, "-m", "served.gguf", "--prefix-cache", folder, "--prefix-cache-size", "64M", "--log-json")
        try:
            said = s.json("/v1/completions", ask)
            heard.append(said["choices"])
            cached.append(said["usage"]["prompt_tokens_details"]["cached_tokens"])
            read = float(re.search(r"^lumen_prefix_cache_read_total (\S+)$", s.ask("/metrics")[2], re.M)[1])
            until = time.time() + LONGEST  # the disk is behind
            while len(set(re.findall(r"^lumen_prefix_cache_(?:files|written_total) (\S+)$", s.ask("/metrics")[2], re.M))) != 1 and start == 0:
                assert time.time() < until, s.ask("/metrics")[2]
                time.sleep(0.02)
            assert (read > 0) == (start == 1) and s.metric("lumen_prompt_tokens_from_disk_total") == cached[-1], read
        finally:
            s.process.kill()
            s.process.wait(LONGEST)
        assert ("is damaged" in s.log.read_text()) == (start == 2) and ('"disk_tokens"' in s.log.read_text()) == (start == 1), s.log.read_text()
    assert heard[0] == heard[1] == heard[2] and cached[0] == cached[2] == 0 and cached[1] > 100, (heard, cached)


def drafts(lumen, work):
    """Several clients of a server that drafts hear what they hear without drafts, and are told what was drafted."""
    ask = lambda i: {"messages": [{"role": "user", "content": f"{i} and {i} and"}], "max_tokens": 48, "seed": i, "temperature": 0.2 * (i % 3), "top_k": 3}
    heard, told = [], []
    for words in ([], ["--lookup", "--draft", "6"], ["-md", "served.gguf", "--draft", "4"]):
        s = Served(lumen, work, "-m", "served.gguf", "--exact", *words)
        try:
            answers = [None] * 6

            def client(i):
                answers[i] = s.json("/v1/chat/completions", ask(i))
            threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LONGEST)
            heard.append([a["choices"] for a in answers])
            told = [a["usage"].get("completion_tokens_details") for a in answers]
            assert all((t is not None) == bool(words) for t in told), told
            drafted, accepted = s.metric("lumen_drafted_tokens_total"), s.metric("lumen_accepted_tokens_total")
            assert accepted <= drafted and (drafted > 0) == bool(words), (drafted, accepted)
            if words:
                assert accepted == sum(t["accepted_prediction_tokens"] for t in told) and accepted + sum(t["rejected_prediction_tokens"] for t in told) == drafted
            # What the client knows beforehand, with a draft and without.
            text = answers[1]["choices"][0]["message"]["content"]
            known = s.json("/v1/chat/completions", {**ask(1), "prediction": {"type": "content", "content": text}})
            assert known["choices"][0] == answers[1]["choices"][0] and known["usage"]["completion_tokens"] == answers[1]["usage"]["completion_tokens"]
            assert known["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 16, known["usage"]
            for bad in (3, "a", [], {"type": "content"}, {"type": "content", "content": [1]}, {"type": "content", "content": "a " * 9000}):
                s.json("/v1/chat/completions", {**ask(1), "prediction": bad}, status=400)
        finally:
            s.process.kill()
    assert heard[0] == heard[1] == heard[2], heard


def check(lumen, work):
    make_model(lumen, work)
    drafts(lumen, work)
    adapters(lumen, work)
    prefixes(lumen, work)
    cross_origin(lumen, work)
    judge(lumen, work)
    (work / "calls.jinja").write_text(TEMPLATE)
    s = Served(lumen, work, "-m", "served.gguf", "--body", "64K", "--timeout", "2", "--log-json", "--chat-template", "calls.jinja")
    try:
        answers(s, lumen, work)
        calls(s)
        ollama(s)
        other_apis(s)
        tolerance(s)
        refusals(s)
        crowds(s)
        signals(s)
        lines = [json.loads(line) for line in s.log.read_text().splitlines() if line.startswith("{")]
        assert any(line["path"] == "/v1/completions" and line["status"] == 499 for line in lines), "clients that left are not in the log"
    finally:
        s.process.kill()

    # Keys, TLS, names, a queue that is full, and a drain that does not wait.
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-keyout", "key.pem", "-out", "cert.pem"], cwd=work, check=True, capture_output=True, timeout=LONGEST)
    s = Served(lumen, work, "-m", "one=served.gguf", "-m", "two=served.gguf", "--api-key", "sesame", "--tls-cert", "cert.pem", "--tls-key", "key.pem",
               "--parallel", "1", "--queue", "1", "--max-n", "1", "--drain", "0", tls=True)
    try:
        assert s.ask("/health")[0] == 200
        for key in (None, "sesam", "sesamee", "Sesame"):
            assert s.ask("/v1/models", key=key)[0] == 401, key
        s.key = "sesame"
        assert [m["id"] for m in s.json("/v1/models")["data"]] == ["one", "two"]
        assert s.ask("/v1/completions", {"prompt": "a"})[0] == s.ask("/tokenizer_info")[0] == 404
        assert s.json("/v1/completions", {"prompt": "a", "model": "two", "max_tokens": 1})["model"] == "two"
        busy = {"prompt": "a", "model": "one", "max_tokens": 4000, "ignore_eos": True}
        ended = []
        waiting = [threading.Thread(target=lambda: ended.append(s.ask("/v1/completions", busy)[0])) for _ in range(2)]
        for thread in waiting:
            thread.start()
        s.wait_for("lumen_requests_running", 1)
        s.wait_for("lumen_requests_waiting", 1)
        status, headers, _ = s.ask("/v1/completions", busy)
        assert status == 429 and headers["Retry-After"], status
        assert s.end(signal.SIGINT) == 130, s.log.read_text()
        for thread in waiting:
            thread.join(LONGEST)
        assert ended == [503, 503], ended
    finally:
        s.process.kill()


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-serve-") as folder:
        begin = time.time()
        check(lumen, Path(folder))
        print(f"serve: all is as it should be, {time.time() - begin:.1f} s")


if __name__ == "__main__":
    main()
