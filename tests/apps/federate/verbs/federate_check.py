#!/usr/bin/env python3
"""A federated run of real processes on loopback: a server and three clients, of which one is killed (kill -9) in mid-run and comes
back, as does the server. The run ends with all its rounds; what was acknowledged is not lost; strangers are told so and change
nothing; SIGTERM ends the server with what it has.

Usage: tests/apps/federate/verbs/federate_check.py LUMEN
"""
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LONGEST = 240  # seconds of anything, on a machine that has much else to do
ROUNDS = 12
CHARS = ["--family", "small_images", "--shape", "xs", "--config", "size=12", "--config", "hidden=16", "--config", "classes=4", "--batch", "8",
         "--weights", "int8_row", "--activations", "int8", "--refresh", "1", "--rounds", str(ROUNDS), "--clients", "3", "--sampled", "3",
         "--deadline", "4", "--every", "2", "--first", "2"]


class Check:
    def __init__(self, lumen, work):
        self.lumen, self.work, self.started = lumen, work, []
        self.environment = {**os.environ, "LUMEN_CACHE": str(work / "cache")}

    def start(self, name, *words):
        log = open(self.work / f"{name}.log", "a")
        process = subprocess.Popen([self.lumen, *map(str, words), "--threads", "1"], cwd=self.work, stdout=log, stderr=log, env=self.environment)
        self.started.append(process)
        return process

    def run(self, *words):
        done = subprocess.run([self.lumen, *map(str, words)], cwd=self.work, capture_output=True, text=True, timeout=LONGEST, env=self.environment)
        assert done.returncode == 0, (words, done.returncode, done.stdout[-500:], done.stderr[-2000:])

    def log(self, name):
        return (self.work / f"{name}.log").read_text()

    def wait_for(self, name, pattern, from_=0):
        until = time.time() + LONGEST
        while time.time() < until:
            if found := re.search(pattern, self.log(name)[from_:]):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{name} has not said {pattern!r}: {self.log(name)[-2000:]}")

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()


def stranger(port, data):
    """What a stranger hears who says this."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(data)
        heard = b""
        while part := s.recv(4096):
            heard += part
        return heard


def check(c):
    c.run("diffuse", "data", "-o", "shapes", "--count", "240", "--size", "12")
    c.run("federate", "partition", "shapes", "-o", "parts", "--how", "dir:1", "--clients", "3")
    server = c.start("server", "federate", "serve", *CHARS, "-o", "run", "--listen", "127.0.0.1:0")
    port = int(c.wait_for("server", r"listening at 127\.0\.0\.1:(\d+)")[1])
    join = lambda i: c.start(f"client-{i}", "federate", "join", f"parts/client-{i:03}", "--server", f"127.0.0.1:{port}", "--measure", "0.05")
    clients = [join(i) for i in range(3)]
    c.wait_for("server", r"round 2/")

    # Strangers, and messages that break the form.
    assert b"does not begin as one" in stranger(port, b"GET / HTTP/1.1\r\n\r\n")
    assert b"version 9" in stranger(port, b"LMFD" + struct.pack("<HHIQ", 9, 1, 0, 0))
    assert b"are the most" in stranger(port, b"LMFD" + struct.pack("<HHIQ", 1, 7, 1 << 31, 0))
    assert b"its hash is another" in stranger(port, b"LMFD" + struct.pack("<HHIQ", 1, 1, 2, 5) + b"xx")

    # A client goes in mid-run, and comes back.
    clients[1].kill()
    assert clients[1].wait(LONGEST) == -signal.SIGKILL
    c.wait_for("server", r"without client-001")
    clients[1] = join(1)
    at = len(c.log("server"))
    c.wait_for("server", r"3 answers", at)

    # So does the server: it goes on from the last round that it wrote down.
    server.kill()
    server.wait(LONGEST)
    rounds = [int(n) for n in re.findall(r"round (\d+)/", c.log("server"))]
    at = len(c.log("server"))
    server = c.start("server", "federate", "serve", "-o", "run", "--resume", "--listen", f"127.0.0.1:{port}")
    resumed = int(c.wait_for("server", r"from round (\d+)", at)[1])
    assert resumed in (rounds[-1], rounds[-1] + 1), (resumed, rounds)

    # And once more, asked to.
    c.wait_for("server", rf"round {resumed + 1}/", at)
    server.send_signal(signal.SIGTERM)
    code = server.wait(LONGEST)
    if code != 0:  # it may have come to its end
        assert code in (-signal.SIGTERM, 128 + signal.SIGTERM), code
        server = c.start("server", "federate", "serve", "-o", "run", "--resume", "--listen", f"127.0.0.1:{port}")
        assert server.wait(LONGEST) == 0, c.log("server")[-2000:]
    for i, client in enumerate(clients):
        assert client.wait(LONGEST) == 0, c.log(f"client-{i}")[-2000:]
    assert f"round {ROUNDS}/{ROUNDS}" in c.log("server"), c.log("server")[-2000:]
    assert (c.work / "run" / f"checkpoint-{ROUNDS}").is_dir()
    losses = [float(x) for x in re.findall(r"loss (\d+\.\d+) \|", c.log("server"))]
    assert losses[-1] < losses[0], losses


def check_sums(c):
    """Where the server sees sums alone a client that is killed costs what it was in, and the run ends all the same."""
    c.run("federate", "partition", "shapes", "-o", "four", "--how", "dir:1", "--clients", "4")
    flags = CHARS[:CHARS.index("--rounds")] + ["--clients", "4", "--sampled", "4", "--rounds", "6", "--deadline", "4"]
    server = c.start("sums", "federate", "serve", *flags, "--secure", "-o", "sums", "--listen", "127.0.0.1:0")
    port = int(c.wait_for("sums", r"listening at 127\.0\.0\.1:(\d+)")[1])
    join = lambda i: c.start(f"part-{i}", "federate", "join", f"four/client-{i:03}", "--server", f"127.0.0.1:{port}", "--measure", "0.05", "--hide-labels")
    clients = [join(i) for i in range(4)]
    c.wait_for("sums", r"round 1/.*4 answers")
    clients[2].kill()
    c.wait_for("sums", r"3 answers .*without client-002|came to nothing")
    clients[2] = join(2)
    assert server.wait(LONGEST) == 0, c.log("sums")[-2000:]
    for i, client in enumerate(clients):
        assert client.wait(LONGEST) == 0, c.log(f"part-{i}")[-2000:]
    assert "round 6/6" in c.log("sums"), c.log("sums")[-2000:]


def main():
    with tempfile.TemporaryDirectory() as folder:
        c = Check(str(Path(sys.argv[1]).resolve()), Path(folder))
        try:
            check(c)
            check_sums(c)
        finally:
            c.end()
    print("a server and three clients: killed, resumed, refused what was wrong, ended with all rounds")


main()
