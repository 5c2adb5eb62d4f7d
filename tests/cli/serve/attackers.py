"""Clients that mean no good, one function each: it does one thing to the server at a port and returns the status that it heard, 0 where the
connection ended without one. Every address of 127.0.0.0/8 is this machine, so attackers come from others than the clients that behave.
soak.py runs them for as long as one likes.
"""
import base64
import json
import os
import random
import socket
import struct
import time

import heads
import hostile_check
import serve_check

LONGEST = serve_check.LONGEST
NEVER = 1e9


class Attacker:
    """One that attacks from an address, with the numbers of a seed. `trap` is a port that no server has a reason to call."""

    def __init__(self, port, address, seed, trap):
        self.port, self.address, self.trap = port, address, trap
        self.goes_on = lambda: True  # false: the attack is over
        self.r = random.Random(seed)

    def connection(self, seconds=LONGEST, buffer=0):
        c = socket.socket()
        if buffer:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        c.bind((self.address, 0))
        c.settimeout(seconds)
        c.connect(("127.0.0.1", self.port))
        return c

    def wait(self, most):
        """Some of these seconds, and no longer than the attack lasts."""
        until = time.monotonic() + self.r.uniform(0, most)
        while self.goes_on() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def hear(self, c, most=1 << 22):
        """The status of what comes until the connection ends."""
        heard, size = b"", 0
        try:
            while (part := c.recv(65536)) and size < most:
                heard, size = heard + part if len(heard) < 100 else heard, size + len(part)
        except OSError:
            pass
        return int(heard[9:12]) if heard.startswith(b"HTTP/1.1 ") else 0

    def say(self, data, seconds=LONGEST):
        """The status of an answer to these bytes."""
        with self.connection(seconds) as c:
            try:
                c.sendall(data)
            except OSError:  # let go before everything was said
                pass
            return self.hear(c)

    def leave(self, c):
        """Ends a connection, half of the times with a reset."""
        if self.r.random() < 0.5:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()

    def stream(self, tokens=400):
        """A request for a long answer, in one of the APIs."""
        said = [{"role": "user", "content": "Say much."}]
        path, body = self.r.choice((("/v1/completions", {"prompt": "Long ago", "max_tokens": tokens, "ignore_eos": True}),
                                    ("/v1/chat/completions", {"messages": said, "max_tokens": tokens, "ignore_eos": True}),
                                    ("/v1/messages", {"messages": said, "max_tokens": tokens}), ("/v1/responses", {"input": "Say much.", "max_output_tokens": tokens}),
                                    ("/api/chat", {"messages": said, "options": {"num_predict": tokens}})))
        return close_post(path, json.dumps({**body, "stream": True}).encode())


def close_post(path, body):
    """A whole request of these bytes."""
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def fuzzed(a):
    path = a.r.choice(list(hostile_check.GOOD))
    return a.say(hostile_check.head_of(path, hostile_check.changed(hostile_check.GOOD[path], a.r), a.r), 20)


def odd_head(a):
    data = a.r.choice(heads.KINDS)(a.r)
    with a.connection(a.r.choice((0.1, 1))) as c:
        try:
            c.sendall(data)
        except OSError:
            pass
        return a.hear(c)


def long_head(a):
    line = b"X-%d: " + b"y" * a.r.choice((100, 5_000, 40_000, 300_000)) + b"\r\n"
    return a.say(heads.post(*[line % i for i in range(a.r.choice((1, 20, 300)))]), 20)


def trickled(a):
    """A byte now and then, for as long as the server bears it or some seconds."""
    with a.connection() as c:
        try:
            for byte in a.stream(4)[:a.r.randrange(5, 200)]:
                c.sendall(bytes([byte]))
                a.wait(0.2)
        except OSError:
            return 0
        a.leave(c)
    return 0


def half(a):
    data = a.stream(4)
    with a.connection() as c:
        c.sendall(data[:a.r.randrange(len(data))])
        a.wait(5)
        a.leave(c)
    return 0


def wrong_length(a):
    body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
    by = a.r.choice((-len(body), -3, -1, 1, 40, 1 << 20, 1 << 40))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body) + by}\r\n\r\n"
    return a.say(head.encode() + body, a.r.uniform(0.1, 5))


def large_body(a):
    """More than the server takes: announced, in chunks that do not end, or as one long prompt."""
    kind = a.r.randrange(3)
    if kind == 0:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000000000\r\n\r\n"
        return a.say(head + b" " * (1 << 20), 20)
    if kind == 1:
        piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        return a.say(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + piece * 300, 20)
    return a.say(close_post("/v1/completions", json.dumps({"prompt": "many words " * a.r.choice((10_000, 100_000)), "max_tokens": 1}).encode()))


def broken_text(a):
    body = json.dumps({"prompt": "a\u00e9\u4e2d", "max_tokens": 1}, ensure_ascii=False)
    data = body.encode()
    wrong = [data[:-1], data[:a.r.randrange(len(data))], data + b"}", data.replace(b"1", b"01"), data.replace(b"1", b"NaN"), data.replace(b"1", b"1e999"), b"\xef\xbb\xbf" + data,
             body.encode("utf-16"), data.replace(b"\xc3", b"\xff"), data.replace(b"\xc3\xa9", b"\xed\xa0\x80"), data.replace(b"\xe4", b""), data.replace(b"a", b"\\ud800"),
             data.replace(b"a", b"\0"), data.replace(b"{", b'{"prompt": 1, "prompt": "b", '), b"", b"null", b"[]", b'"', bytes(a.r.randrange(256) for _ in range(300))]
    return a.say(close_post(a.r.choice(("/v1/completions", "/v1/chat/completions", "/api/generate", "/tokenize")), a.r.choice(wrong)))


def deep(a):
    depth = a.r.choice((10, 63, 64, 65, 1000, 100_000))
    open_, close = a.r.choice((("[", "]"), ('{"a":', "}")))
    whole = open_ * depth + "1" + close * depth
    body = a.r.choice(('{"messages": %s}', '{"prompt": %s}', '{"prompt": "a", "max_tokens": 1, "json_schema": %s}', "%s")) % a.r.choice((whole, open_ * depth))
    return a.say(close_post(a.r.choice(("/v1/chat/completions", "/v1/completions", "/v1/responses")), body.encode()))


def bomb(a):
    """Schemas and grammars that grow when they are compiled."""
    nested = {"type": "array"}
    for _ in range(50):
        nested = {"type": "array", "items": nested, "minItems": 2, "maxItems": 9}
    powers = {f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}, "b": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(40)}
    schemas = [nested, {"$defs": {**powers, "d40": {"type": "null"}}, "$ref": "#/$defs/d0"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
               {"type": "object", "properties": {f"k{i}": {"type": "string", "pattern": f"^[a-z]{{{i},{i + 40}}}x$"} for i in range(60)}},
               {"anyOf": [{"type": "object", "properties": {"p" * i: {"type": "integer", "minimum": i, "maximum": 10 ** (i % 15)}}} for i in range(1, 120)]},
               {"type": "string", "pattern": "^(" * 60 + "a" + ")*" * 60 + "$"}, {"type": "string", "pattern": "^((a{1,100}){1,100}){1,100}$"},
               {"type": "array", "uniqueItems": True, "items": {"enum": list(range(8))}}, {"allOf": [{"not": {"enum": [str(i) for i in range(300)]}}, {"type": "string"}]},
               {"type": "object", "properties": {f"k{i}": {"enum": [f"v{j}" for j in range(20)]} for i in range(300)}, "required": [f"k{i}" for i in range(300)]}]
    grammars = ["root ::= " + " | ".join(f'"{i}"' for i in range(5000)), "root ::= ([a-z]{1,1000}){1,1000}", 'root ::= a a a a a a\na ::= b?\nb ::= "" | a', "root ::= root",
                "root ::= " + "(" * 5000, "root ::= x\n" + "\n".join(f"x{i} ::= x{i + 1} x{i + 1}" for i in range(60)) + '\nx60 ::= "a"\nx ::= x0']
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "stream": True}
    if a.r.random() < 0.6:
        ask["response_format"] = {"type": "json_schema", "json_schema": {"name": "x", "schema": a.r.choice(schemas)}}
    else:
        ask["grammar"] = a.r.choice(grammars)
    return a.say(close_post("/v1/chat/completions", json.dumps(ask).encode()))


def dropped(a):
    """Leaves in the middle of a stream."""
    with a.connection() as c:
        c.sendall(a.stream())
        try:
            for _ in range(a.r.randrange(1, 6)):
                c.recv(a.r.choice((64, 4096)))
        except OSError:
            pass
        a.leave(c)
    return 0


def cancelled(a):
    """Leaves as soon as it has asked, with a prompt that takes a while."""
    with a.connection() as c:
        c.sendall(close_post("/v1/completions", json.dumps({"prompt": f"{a.r.random()} " + "and so on " * a.r.choice((1, 100)), "max_tokens": 100}).encode()))
        a.wait(0.1)
        a.leave(c)
    return 0


def unread(a):
    with a.connection(buffer=4096) as c:
        c.sendall(a.stream())
        a.wait(10)
        a.leave(c)
    return 0


def sipped(a):
    with a.connection(buffer=4096) as c:
        c.sendall(a.stream(100))
        try:
            while c.recv(200) and a.goes_on():
                a.wait(0.1)
        except OSError:
            pass
    return 0


def flood(a):
    """Many connections at once, more than one address may have; some say something."""
    held = []
    try:
        for i in range(a.r.choice((50, 200, 400))):
            c = a.connection(5)
            held.append(c)
            if i % 3 == 0:
                c.sendall(a.r.choice((b"\0", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")))
    except OSError:
        pass
    for c in held:
        a.leave(c)
    return 0


def upgrade(a):
    """Asks for another protocol, and goes on in it."""
    key = a.r.choice((base64.b64encode(bytes(16)).decode(), "short", "", "x" * 5000))
    more = a.r.choice(("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 0", "Sec-WebSocket-Protocol: realtime", "Sec-WebSocket-Extensions: permessage-deflate; x=" + "9" * 999))
    path = a.r.choice(("/", "/v1/realtime?model=x", "/v1/responses", "/v1/chat/completions"))
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: {a.r.choice(('websocket', 'h2c', 'websocket, h2c', 'x'))}\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n{more}\r\n\r\n"
    frames = b"".join(bytes([a.r.choice((0x81, 0x82, 0x88, 0x89, 0xff)), a.r.choice((0x85, 0x7f, 0xff, 0))]) + os.urandom(20) for _ in range(10))
    status = a.say(head.encode() + frames, 5)
    assert status != 101, path
    return status


def image(a):
    """Asks the server to open what is not the client's to open."""
    url = a.r.choice((f"http://127.0.0.1:{a.trap}/a.png", f"http://localhost:{a.trap}/../x", "file:///etc/passwd", "data:image/png;base64,iVBORw0KGgo=", "data:image/png;base64," + "A" * 100_000,
                      "ftp://127.0.0.1/x", "\\\\host\\share", "http://[::1]:1/", ""))
    path, part = a.r.choice((("/v1/chat/completions", {"type": "image_url", "image_url": {"url": url}}), ("/v1/responses", {"type": "input_image", "image_url": url}),
                             ("/v1/messages", {"type": "image", "source": {"type": "url", "url": url}}), ("/v1/chat/completions", {"type": "image_url", "image_url": url})))
    content = [{"type": "input_text" if path == "/v1/responses" else "text", "text": "What is it?"}, part]
    body = {"input": [{"role": "user", "content": content}]} if path == "/v1/responses" else {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    status = a.say(close_post(path, json.dumps(body).encode()))
    assert status in (400, 413, 429, 503), (path, part, status)
    return status


def other_protocol(a):
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(300)
    return a.say(a.r.choice((hello, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(60), b"SSH-2.0-x\r\n", b"*1\r\n$4\r\nPING\r\n", os.urandom(2000))), 2)


def pipelined(a):
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with a.connection(a.r.uniform(0.1, 2)) as c:
        try:
            c.sendall(ask * a.r.choice((2, 50, 2000)))
        except OSError:
            pass
        return a.hear(c)


def too_much(a):
    """Numbers of tokens, sequences and words that nobody can have."""
    body = {"prompt": "a", "max_tokens": 2, "stream": True}
    body.update(a.r.choice(({"n": 10**6}, {"max_tokens": 10**12}, {"prompt": ["a"] * 5000}, {"prompt": list(range(20_000))}, {"logprobs": 10**6}, {"stop": ["a"] * 10**4}, {"stop": ["a" * 10**5]},
                            {"logit_bias": {str(i): 1 for i in range(50_000)}}, {"prompt": [[-1]]}, {"dry_multiplier": 1, "dry_sequence_breakers": ["a" * 9999] * 64}, {"seed": 10**40})))
    with a.connection() as c:
        try:
            c.sendall(close_post("/v1/completions", json.dumps(body).encode()))
            status = int((c.recv(65536) or b"HTTP/1.1 0  ")[9:12])
        except (OSError, ValueError):
            status = 0
        a.leave(c)
    return status


ATTACKS = (fuzzed, fuzzed, fuzzed, odd_head, odd_head, long_head, trickled, half, wrong_length, large_body, broken_text, broken_text, deep, bomb, dropped, dropped, cancelled, cancelled,
           unread, sipped, flood, upgrade, image, other_protocol, pipelined, too_much)


def attack(a, kind=None):
    """One of them, any where none is named: its name and the status."""
    kind = kind or a.r.choice(ATTACKS)
    try:
        status = kind(a)
    except OSError:  # no connection was to be had, as the limits of an address say
        status = 0
    assert status < 500 or status == 503, (kind.__name__, status)
    return kind.__name__, status
