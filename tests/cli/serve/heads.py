"""Heads of requests that nobody should send, from a seed: lengths that contradict each other, frames of chunks that are none, lines that end
otherwise, bytes that no line may have, floods, and connections that say half of something or say it slowly. Where two programs could read
a request in two ways, what the second of them would take for another request asks for a path that gives it away (CANARY): the server
must never get there. hostile_check.py sends them.
"""
import json
import random
import socket
import threading
import time

CANARY = "/canary-"
BODY = b'{"prompt": "ab"}'
TYPE = b"Content-Type: application/json\r\n"


def canary(r):
    return b"%s %s%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % (r.choice((b"GET", b"POST")), CANARY.encode(), r.randrange(10**9))


def cased(r, name):
    return r.choice((name, name.lower(), name.upper(), name.swapcase()))


def post(*lines, line=b"POST /tokenize HTTP/1.1"):
    return line + b"\r\nHost: localhost\r\n" + TYPE + b"".join(lines) + b"\r\n"


def lengths(r):
    """Two lengths, or one that is no number. Whoever takes the shorter one meets the canary."""
    hidden = canary(r)
    short, long = b"%d" % len(BODY), b"%d" % (len(BODY) + len(hidden))
    pair = [cased(r, b"Content-Length") + b": " + short + b"\r\n", cased(r, b"Content-Length") + b": " + long + b"\r\n"]
    r.shuffle(pair)
    between = [b"X: y\r\n"] * r.randrange(3)
    odd = r.choice((b"+%s", b"-%s", b"%s, %s", b"0x%s", b"%s %s", b"%s;", b"%s.0", b"'%s'", b"%s\x0b", b"%s\x00", b"\x0c%s", b"%se0", b""))
    one = [b"Content-Length: " + odd.replace(b"%s", short) + b"\r\n"]
    spaced = [r.choice((b"Content-Length : ", b"Content-Length\t: ", b" Content-Length: ", b"Content-Length\x00: ", b"Content_Length\r: ")) + short + b"\r\n"]
    return post(*r.choice((pair, [pair[0], *between, pair[1]], one, one, spaced))) + BODY + hidden


def codings(r):
    """A length and chunks, or a coding that is another one to some."""
    hidden = canary(r)
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    coded = [b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:chunked\r\n", b"Transfer-Encoding:\tchunked\r\n", b"TRANSFER-ENCODING: CHUNKED\r\n"]
    other = [b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding : chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
             b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\r\n chunked\r\n", b"Transfer-Encoding: chunked\x0b\r\n", b"Transfer-Encoding: \x00chunked\r\n",
             b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n", b"Transfer-Encoding: chunked;q=1\r\n", b"X: y\nTransfer-Encoding: chunked\r\n",
             b"X: y\rTransfer-Encoding: chunked\r\n", b"Transfer-Encoding: \"chunked\"\r\n", b"Transfer-Encoding:\r\n"]
    if r.random() < 0.5:
        length = b"Content-Length: %d\r\n" % r.choice((len(chunk), len(chunk) + len(hidden), 4, 0))
        pair = [r.choice(coded), length]
        r.shuffle(pair)
        return post(*pair) + chunk + hidden
    return post(r.choice(other)) + chunk + hidden


def chunks(r):
    """Frames that some read to an end where others do not."""
    hidden = canary(r)
    n = b"%x" % len(BODY)
    first = r.choice((b"0x%s\r\n", b"+%s\r\n", b" %s\r\n", b"%s \r\n", b"%s\t\r\n", b"%s\n", b"%s;a\n", b"%s;a\x00\r\n", b"-1\r\n%s\r\n", b"1000000000000000%s\r\n",
                      b"ffffffffffffff%s\r\n", b"00000000000000%s\r\n", b"\r\n%s\r\n", b"%s\r", b"%s;" + b"x" * 400 + b"\r\n", b"g%s\r\n", b"%s,\r\n"))
    last = r.choice((b"0\r\n\r\n", b"\n0\r\n\r\n", b"\r\n0\n\n", b"\r\n0\r\n\n", b"\r\n0\r\nX: y\r\n\r\n", b"\r\n0\r\nContent-Length: 5\r\n\r\n", b"\r\n0;\n\r\n\r\n",
                     b"\r\n00000000000\r\n\r\n", b"\r\n-0\r\n\r\n", b"xx\r\n0\r\n\r\n", b"\r\n0\r\nAuthorization: Bearer a\r\n\r\n"))
    if r.random() < 0.5:
        return post(b"Transfer-Encoding: chunked\r\n") + first.replace(b"%s", n) + BODY + b"\r\n0\r\n\r\n" + hidden
    return post(b"Transfer-Encoding: chunked\r\n") + n + b"\r\n" + BODY + last + hidden


def endings(r):
    """Lines that end with something else; whoever takes it for an end meets the canary."""
    end = r.choice((b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x0b", b"\x0c", b"\x00", b"\r\n\t", b"\r\n "))
    blank = r.choice((end + end, b"\n\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\n\n\r\n"))
    return b"GET /health HTTP/1.1" + r.choice((b"\r\n", end)) + b"Host: localhost" + r.choice((blank, end)) + b"GET %s1 HTTP/1.1" % CANARY.encode() + end + b"Host: localhost\r\n\r\n"


def odd_bytes(r):
    """A control, a NUL or a byte of no encoding somewhere in a head."""
    head = bytearray(post(b"X-Name: value\r\n", b"Content-Length: %d\r\n" % len(BODY), line=r.choice((b"POST /tokenize HTTP/1.1", b"GET /health HTTP/1.1"))))
    at = r.randrange(len(head) - 4)
    byte = r.choice((0, 0, 1, 8, 11, 12, 14, 27, 31, 127, 128, 255, 13, 10))
    head[at:at + r.randrange(2)] = bytes([byte] * r.choice((1, 1, 2, 50)))
    return bytes(head) + BODY


def floods(r):
    kind = r.randrange(6)
    if kind == 0:
        return post(*[b"A%d: b\r\n" % i for i in range(r.choice((101, 500, 2000)))])
    if kind == 1:
        return post(b"A: " + b"b" * r.choice((5000, 33000, 200000)) + b"\r\n")
    if kind == 2:
        return b"GET /" + b"a" * r.choice((1025, 5000, 100000)) + b" HTTP/1.1\r\n\r\n"
    if kind == 3:
        return b"G" * r.choice((100, 10000, 100000)) + b" /health HTTP/1.1\r\n\r\n"
    if kind == 4:
        return b"\r\n" * r.choice((1, 10, 20000))
    return bytes(r.randrange(256) for _ in range(r.choice((10, 300, 3000)))) + b"\r\n\r\n"


def first_lines(r):
    line = r.choice((b"GET /health", b"GET  /health HTTP/1.1", b"GET\t/health\tHTTP/1.1", b" GET /health HTTP/1.1", b"GET /health HTTP/1.1 ", b"GET /health HTTP/1.10", b"GET /health http/1.1",
                     b"GET /health HTTP/2.0", b"PRI * HTTP/2.0", b"GET health HTTP/1.1", b"GET http://a/health HTTP/1.1", b"CONNECT a:80 HTTP/1.1", b"OPTIONS * HTTP/1.1",
                     b"GET /../../etc/passwd HTTP/1.1", b"GET /%00 HTTP/1.1", b"GET /%zz%2 HTTP/1.1", b"GET /health?%s HTTP/1.1" % (b"a=b&" * 200), b"GET //health HTTP/1.1",
                     b"TRACE /health HTTP/1.1", b"G\xc3\x89T /health HTTP/1.1", b"GET /health#x HTTP/1.1", b"GET /\xff\xfe HTTP/1.1", b""))
    return line + b"\r\n" + r.choice((b"", b"Host: localhost\r\n", b"Host: localhost\r\nHost: y\r\n", b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", b"Expect: 100-continue\r\n")) + b"\r\n"


def mutated(r):
    """A sound request with bytes changed, moved or left out, wherever."""
    data = bytearray(post(b"Content-Length: %d\r\n" % len(BODY), b"Authorization: Bearer x\r\n", b"Connection: close\r\n") + BODY)
    for _ in range(r.choice((1, 2, 5, 20))):
        at, kind = r.randrange(len(data)), r.randrange(4)
        if kind == 0:
            data[at] = r.randrange(256)
        elif kind == 1:
            del data[at:at + r.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = data[(k := r.randrange(len(data))):k + r.randrange(1, 40)]
        else:
            data[at:at] = r.choice((b"\r\n", b"\n", b"\r", b":", b" ", b"\0", b"chunked", b"Content-Length: 1\r\n"))
        if not data:
            break
    return bytes(data)


REFUSED = (lengths, codings, chunks, endings)  # never answered as if they were sound
KINDS = REFUSED * 3 + (odd_bytes, floods, first_lines, mutated)


def status_of(port, data, r, held):
    """The status that is heard, 0 where none is."""
    c = socket.create_connection(("127.0.0.1", port), timeout=10)
    heard = b""
    try:
        cut = r.randrange(len(data) + 1) if r.random() < 0.2 else len(data)
        c.sendall(data[:cut])
        if cut < len(data) and r.random() < 0.3:  # half of it, and then nothing
            held.append(c)
            return 0
        c.sendall(data[cut:])
        c.settimeout(0.02 if r.random() < 0.8 else 0.1)
        while part := c.recv(65536):
            heard += part
            if heard.startswith(b"HTTP/1.1 100"):
                heard = heard[heard.find(b"\r\n\r\n") + 4:]
    except OSError:  # also a server that waits for more
        pass
    if c not in held:
        c.close()
    assert not heard or heard.startswith(b"HTTP/1.1 "), (data[:300], heard[:100])
    return int(heard[9:12]) if heard else 0


def slowly(port, data, is_over):
    """One byte now and then: it is let go when its time is over."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as c:
            for byte in data:
                c.sendall(bytes([byte]))
                if is_over.wait(0.2):
                    break
    except OSError:
        pass


def send_all(port, count, seed, ask):
    """Sends so many. `ask` is a client that behaves: it is called beside them all the time. What was heard, and its slowest answer."""
    r, held, seen, slowest, is_over = random.Random(seed), [], {}, [0.0], threading.Event()

    def behaves():
        while not is_over.is_set():
            begin = time.time()
            ask()
            slowest[0] = max(slowest[0], time.time() - begin)
            is_over.wait(0.02)
    failed = []

    def watched():
        try:
            behaves()
        except Exception as error:  # told where it is waited for
            failed.append(error)
    threads = [threading.Thread(target=watched)] + [threading.Thread(target=slowly, args=(port, post(b"X: y\r\n" * 9), is_over)) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(count):
            kind = r.choice(KINDS)
            data = kind(r)
            status = status_of(port, data, r, held)
            assert status < 500 and (kind not in REFUSED or status == 0 or status >= 400), (kind.__name__, status, data[:400])
            seen[status] = seen.get(status, 0) + 1
            while len(held) > 30:
                held.pop(0).close()
            assert not failed, failed
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        for c in held:
            c.close()
    assert not failed, failed
    return seen, slowest[0]


def none_got_through(log):
    """No request for a canary's path is in the server's log."""
    lines = [line for line in log.splitlines() if CANARY in line]
    assert not lines, lines[:3]
    assert any(json.loads(line)["path"] == "/tokenize" for line in log.splitlines() if line.startswith("{")), "the log says nothing"
