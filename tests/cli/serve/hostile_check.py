#!/usr/bin/env python3
"""`lumen serve` against those who mean no good: fuzzed requests of every path, heads and bodies that lie about their length, packed and
nested and endless ones, grammars and schemas of all sizes, slow readers, half-open sockets, many connections. Every one of them is
answered with a status or let go; the server goes on, other clients are answered, and its memory stays.

Usage: tests/cli/serve/hostile_check.py LUMEN [COUNT [CONNECTIONS]]     COUNT fuzzed requests (400), CONNECTIONS held open at once (200)
LUMEN_HOSTILE_HEADS=10000: so many hostile heads (300) from heads.py
"""
import copy
import json
import os
import random
import socket
import sys
import tempfile
import time
from pathlib import Path

import heads
import serve_check

GOOD = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "seed": 1, "temperature": 0.5, "stream": False,
                             "tools": serve_check.TOOLS, "tool_choice": "auto", "stop": ["x"], "logprobs": True, "top_logprobs": 2,
                             "prediction": {"type": "content", "content": [{"type": "text", "text": "Hello to you"}]}},
    "/v1/completions": {"prompt": "Once", "max_tokens": 2, "echo": True, "logprobs": 1, "n": 1, "logit_bias": {"3": 1}, "stream": True,
                        "grammar": 'root ::= "a" [b-c]{1,3}'},
    "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}], "max_output_tokens": 2, "instructions": "b", "store": True,
                      "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "boolean"}}}},
    "/v1/messages": {"max_tokens": 2, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "system": "b", "stop_sequences": ["c"]},
    "/v1/embeddings": {"input": ["a", "b"], "encoding_format": "float"},
    "/v1/rerank": {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True},
    "/v1/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/completion": {"prompt": ["a", 3, "b"], "n_predict": 2, "n_probs": 1, "logit_bias": [[3, 1.5], ["a", False]], "json_schema": {"type": "boolean"}, "stream": True},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "c", "text": "d"}], "n_predict": 2},
    "/apply-template": {"messages": [{"role": "user", "content": "Hello"}]},
    "/api/chat": {"messages": [{"role": "user", "content": "Hello", "images": []}, {"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": {"a": 1}}}]},
                               {"role": "tool", "tool_name": "x", "content": "b"}], "options": {"num_predict": 2, "seed": 1, "stop": ["x"]}, "format": {"type": "boolean"},
                  "tools": serve_check.TOOLS, "think": False},
    "/api/generate": {"prompt": "Hello", "system": "a", "raw": False, "options": {"num_predict": 2}, "stream": False},
    "/api/embed": {"input": ["a", "b"], "dimensions": 4, "truncate": True},
    "/api/show": {"model": "served"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1, 2]},
}
ODD = [None, True, -1, 0, 1e308, -1e308, 2**63, -2**63, 10**30, 0.5, "", "\ud800", "\0", "a" * 3000, [], {}, [[]], [None], {"type": "object"}, "<|im_start|>", "../../etc/passwd",
       [1] * 500, {"a": {"b": {"c": []}}}, "root ::= root", "root ::= " + "(" * 500, {"$ref": "#"}, {"anyOf": [{"$ref": "#"}]}]


def places(value, at=()):
    """Where values stand within a value."""
    yield at
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*at, key))


def changed(value, r):
    """The request with something wrong in it."""
    out = json.loads(json.dumps(value))
    for _ in range(r.choice((1, 1, 2, 4))):
        where = r.choice([p for p in places(out) if p])
        holder = out
        for key in where[:-1]:
            holder = holder[key]
        kind = r.randrange(4)
        if kind == 0:
            del holder[where[-1]]
        elif kind == 1 and isinstance(holder, dict):
            holder[r.choice(("n", "x", "model", "type", "content", "role", "schema", "seed"))] = copy.deepcopy(r.choice(ODD))
        else:
            holder[where[-1]] = copy.deepcopy(r.choice(ODD))
        if not [p for p in places(out) if p]:
            break
    text = json.dumps(out, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass")
    if r.random() < 0.3:
        data = bytearray(text)
        for _ in range(r.choice((1, 3))):
            at = r.randrange(len(data) + 1)
            data[at:at + r.randrange(3)] = bytes(r.randrange(256) for _ in range(r.randrange(3)))
        text = bytes(data)
    return text


def head_of(path, body, r):
    """The request's bytes, often with a head that lies."""
    length = f"Content-Length: {len(body)}\r\n"
    head = r.choice([length] * 24 + [
        length + "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\n" + length, length + f"Content-Length: {len(body) + 1}\r\n",
        "Transfer-Encoding: chunked, chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding : chunked\r\n", "Content-Length: +3\r\n",
        "Content-Length: -1\r\n", "Content-Length: 0x10\r\n", "Content-Length: 99999999999999999999\r\n", length + "Expect: 100-continue\r\n", length + "Upgrade: h2c\r\n",
        length + "A: " + "b" * 40000 + "\r\n", length + "C: d\r\n" * 200, length + "\x00: a\r\n", length + "X\r\n", length + " folded\r\n", length + "Host: a\nX: y\r\n"])
    method = r.choice(["POST"] * 40 + ["GET", "PUT", "OPTIONS", "CONNECT", "P\0ST", "post", "X" * 3000])
    version = r.choice(["HTTP/1.1"] * 40 + ["HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "", "HTTP/1.1 "])
    data = f"{method} {path} {version}\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n{head}\r\n".encode("latin-1")
    if "Transfer-Encoding: chunked\r\n" in head and r.random() < 0.5:
        sizes = [f"{len(body):x}", "-1", "ffffffffffffffff", "zz", f"{len(body):x};{'x' * 5000}", "0x5", ""]
        body = f"{r.choice(sizes)}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    if r.random() < 0.1:
        body = body[:r.randrange(len(body) + 1)]
    return data + body


def tell(s, data, seconds=10):
    """The status that is heard, 0 where the connection ends without one."""
    with socket.create_connection(("127.0.0.1", s.port), timeout=seconds) as c:
        heard = b""
        try:
            c.sendall(data)
            c.shutdown(socket.SHUT_WR) if len(data) % 2 else None
            while part := c.recv(65536):
                heard += part
        except TimeoutError:
            raise AssertionError(("no end", data[:300], heard[:300]))
        except OSError:
            pass
    return int(heard[9:12]) if heard.startswith(b"HTTP/1.1 ") else 0


def memory(s):
    return int(Path(f"/proc/{s.process.pid}/statm").read_text().split()[1]) * 4096


def is_well(s):
    assert s.process.poll() is None, s.log.read_text()[-2000:]
    begin = time.time()
    assert s.json("/v1/completions", {"prompt": "a", "max_tokens": 1})["usage"]["completion_tokens"] == 1
    return time.time() - begin


def fuzzed(s, count, seed):
    r = random.Random(seed)
    seen = {}
    for i in range(count):
        path = r.choice(list(GOOD))
        data = head_of(path, changed(GOOD[path], r) if r.random() < 0.8 else json.dumps(GOOD[path]).encode(), r)
        status = tell(s, data, seconds=60)
        seen[status] = seen.get(status, 0) + 1
        assert status < 500 or status == 503, (status, data[:500])
        if i % 500 == 499:
            is_well(s)
    return seen


def large(s):
    """What is deep, long or endless."""
    deep = {"type": "array"}
    for _ in range(50):
        deep = {"type": "array", "items": deep}
    wide = {"type": "object", "properties": {f"k{i}": {"enum": [f"v{j}" for j in range(20)]} for i in range(300)}}
    ask = lambda form: json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "response_format": {"type": "json_schema", "json_schema": {"schema": form}}})
    bodies = [ask(deep), ask(wide), ask({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}), '{"a":' * 5000, '{"messages": ' + "[" * 60 + "]" * 60 + "}",
              json.dumps({"prompt": "a", "max_tokens": 2, "grammar": "root ::= " + " | ".join(f'"{i}"' for i in range(5000))}),
              json.dumps({"prompt": "a", "max_tokens": 2, "grammar": "root ::= ([a-z]{1,1000}){1,1000}"}),
              json.dumps({"prompt": "a", "max_tokens": 2, "grammar": "root ::= a a a a a a\na ::= b?\nb ::= \"\" | a"})]
    for body in bodies:
        for path in ("/v1/chat/completions", "/v1/completions"):
            data = body.encode()
            status = tell(s, f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data, 60)
            assert status in (200, 400, 413, 499), (status, body[:100])  # 499: who closes one side has left


def crowd(s, count):
    """Connections that say nothing or half of something, and readers that do not read, while another client is answered."""
    held = []
    request = serve_check.request_of("/v1/completions", {"prompt": "Long", "max_tokens": 2000, "stream": True, "ignore_eos": True})
    for i in range(count):
        c = socket.create_connection(("127.0.0.1", s.port), timeout=30)
        if i % 3 == 1:
            c.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-")
        elif i % 50 == 2:
            c.sendall(request)
        held.append(c)
    slowest = max(is_well(s) for _ in range(5))
    for c in held:
        c.close()
    s.wait_for("lumen_requests_running", 0)
    return slowest


def dead_readers(s, count):
    """Clients that ask for long answers and read nothing: others have the same answers at the same time as without them, and the dead are let
    go while they still hold their connections."""
    # More than the system's buffers of a connection hold.
    body = {"prompt": "Long", "max_tokens": 3500, "n": 3, "stream": True, "ignore_eos": True, "logprobs": 20, "temperature": 1}
    want, held = s.json("/v1/completions", {"prompt": "Good", "max_tokens": 8, "seed": 3})["choices"], []
    for i in range(count):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        c.sendall(serve_check.request_of("/v1/completions", {**body, "seed": i}))
        held.append(c)
    s.wait_for("lumen_requests_running", 3 * count)
    slowest, beside = 0, 0
    while s.metric("lumen_requests_running") > 0:
        begin = time.time()
        assert s.json("/v1/completions", {"prompt": "Good", "max_tokens": 8, "seed": 3})["choices"] == want
        slowest, beside = max(slowest, time.time() - begin), beside + 1
        assert slowest < serve_check.LONGEST / 4 and beside < 100_000, (slowest, beside)
    assert beside > 1, "nobody was served beside them"
    cancelled = s.metric("lumen_requests_cancelled_total")
    assert cancelled >= count, (cancelled, count)
    for c in held:
        c.close()
    return slowest, beside


def hostile_heads(s, count):
    """Heads of heads.py, beside a client that behaves; no request hides in another, and memory stays."""
    ask = lambda: s.json("/tokenize", {"prompt": "ab"})["tokens"]
    heads.send_all(s.port, count // 10, 1, ask)
    before = memory(s)
    seen, slowest = heads.send_all(s.port, count, 2, ask)
    is_well(s)
    heads.none_got_through(s.log.read_text())
    grown = memory(s) - before
    assert grown < 32 << 20, f"memory grew by {grown >> 20} MiB"
    assert slowest < 10, slowest
    return seen, slowest, grown


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    count, connections = int(sys.argv[2]) if len(sys.argv) > 2 else 400, int(sys.argv[3]) if len(sys.argv) > 3 else 200
    with tempfile.TemporaryDirectory(prefix="lumen-hostile-") as folder:
        work = Path(folder)
        serve_check.make_model(lumen, work)
        (work / "calls.jinja").write_text(serve_check.TEMPLATE)
        s = serve_check.Served(lumen, work, "-m", "served.gguf", "--lookup", "--body", "256K", "--timeout", "5", "--connections", connections + 50, "--chat-template", "calls.jinja", "--log-json")
        try:
            begin = time.time()
            large(s)
            fuzzed(s, count // 4, 1)  # what is made once is made
            crowd(s, connections)
            before = memory(s)
            seen = fuzzed(s, count - count // 4, 2)
            slowest = crowd(s, connections)
            grown = memory(s) - before
            assert grown < 48 << 20, f"memory grew by {grown >> 20} MiB"
            print(f"serve: {count} hostile requests {dict(sorted(seen.items()))}, {connections} connections, an answer beside them in {slowest:.2f} s at most, "
                  f"memory {before >> 20} MiB and {grown / 2**20:+.1f} MiB, {time.time() - begin:.1f} s")
            slowest, beside = dead_readers(s, 2)
            print(f"serve: {beside} answers beside 2 clients that read nothing, in {slowest:.2f} s at most")
            begin, wanted = time.time(), int(os.environ.get("LUMEN_HOSTILE_HEADS", 300))
            seen, slowest, grown = hostile_heads(s, wanted)
            print(f"serve: {wanted} hostile heads {dict(sorted(seen.items()))}, none got through, an answer beside them in {slowest:.2f} s at most, "
                  f"memory {grown / 2**20:+.1f} MiB, {time.time() - begin:.1f} s")
            assert s.end() == 143, s.log.read_text()[-2000:]
        finally:
            s.process.kill()


if __name__ == "__main__":
    main()
