#!/usr/bin/env python3
"""A cloud and devices as real processes on loopback. The cloud is killed (kill -9) while a device waits, which is told and keeps the
plan it has; the cloud comes back and gives the same bytes. Devices are killed at any time: their plan is the old one or the new one,
whole, and the cloud goes on. Strangers are told what is wrong, those who ask too much are let go, and SIGTERM ends the cloud.

Usage: tests/apps/recommend/verbs/recommend_check.py LUMEN
"""
import os
import random
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


class Check:
    def __init__(self, lumen, work):
        self.lumen, self.work, self.started = lumen, work, []
        self.environment = {**os.environ, "LUMEN_CACHE": str(work / "cache")}

    def start(self, log, *words):
        out = open(self.work / f"{log}.log", "a")
        process = subprocess.Popen([self.lumen, "recommend", *map(str, words), "--threads", "1"], cwd=self.work, stdout=out, stderr=out,
                                   env=self.environment)
        self.started.append(process)
        return process

    def run(self, *words):
        done = subprocess.run([self.lumen, "recommend", *map(str, words)], cwd=self.work, capture_output=True, text=True, timeout=LONGEST,
                              env=self.environment)
        return done.returncode, done.stdout + done.stderr

    def must(self, *words):
        code, said = self.run(*words)
        assert code == 0, (words, code, said[-2000:])

    def log(self, name):
        return (self.work / f"{name}.log").read_text()

    def cloud(self, log, listen, *more):
        process = self.start(log, "serve", "run", "--listen", listen, *more)
        until = time.time() + LONGEST
        while time.time() < until and process.poll() is None:
            if found := re.search(r"listening at (127\.0\.0\.1:(\d+))", self.log(log)):
                return process, found[1], int(found[2])
            time.sleep(0.05)
        raise AssertionError(f"no cloud: {self.log(log)[-2000:]}")

    def plan(self, name):
        return (self.work / name).read_bytes()

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()


def connections(port):
    """Connections that a process of this host has made to the port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


def waiting_device(c, cloud, port, at, out):
    """A device that has connected to a cloud that does not answer."""
    cloud.send_signal(signal.SIGSTOP)
    device = c.start("device", "plan", "run", "--cloud", at, "--items", "7,8,9,10", "--patience", 120, "-o", out)
    until = time.time() + LONGEST
    while connections(port) == 0:
        assert time.time() < until and device.poll() is None, c.log("device")[-2000:]
        time.sleep(0.01)
    return device


def said_to(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(data)
        heard = b""
        try:
            while part := s.recv(4096):
                heard += part
        except ConnectionResetError:  # what was still on its way to a cloud that had hung up
            pass
        return heard


def check_kills(c):
    cloud, at, port = c.cloud("cloud", "127.0.0.1:0")
    ask = lambda items, out: c.must("plan", "run", "--cloud", at, "--items", items, "-o", out)
    ask("3,4,5,6", "old.plan")
    ask("7,8,9,10", "new.plan")
    old, new = c.plan("old.plan"), c.plan("new.plan")
    assert old != new, "two users have one plan: nothing below could fail"
    ask("3,4,5,6", "mine.plan")

    # The cloud goes while a device waits for it.
    device = waiting_device(c, cloud, port, at, "mine.plan")
    cloud.kill()
    cloud.wait(LONGEST)
    assert device.wait(LONGEST) == 1, c.log("device")
    assert "went away" in c.log("device"), c.log("device")
    assert c.plan("mine.plan") == old
    code, said = c.run("plan", "run", "--cloud", at, "--items", "7,8,9,10", "--patience", "1", "-o", "mine.plan")
    assert code == 1 and "no cloud at" in said and c.plan("mine.plan") == old, (code, said)

    # It comes back with nothing remembered, and says the same.
    cloud, at, port = c.cloud("again", at)
    ask("7,8,9,10", "same.plan")
    assert c.plan("same.plan") == new

    # A device goes while it waits; what it had stays, and the cloud answers others.
    device = waiting_device(c, cloud, port, at, "mine.plan")
    device.kill()
    assert device.wait(LONGEST) == -signal.SIGKILL
    cloud.send_signal(signal.SIGCONT)
    assert c.plan("mine.plan") == old
    ask("3,4,5,6", "other.plan")
    assert c.plan("other.plan") == old

    # And at any time: what it has is whole.
    began = time.time()
    ask("7,8,9,10", "timed.plan")
    took = time.time() - began
    draw, ended = random.Random(1), 0
    for _ in range(12):
        (c.work / "mine.plan").write_bytes(old)
        device = c.start("device", "plan", "run", "--cloud", at, "--items", "7,8,9,10", "-o", "mine.plan")
        time.sleep(draw.uniform(0, 1.2 * took))
        device.kill()
        ended += device.wait(LONGEST) == 0
        assert c.plan("mine.plan") in (old, new)
    ask("7,8,9,10", "mine.plan")
    assert c.plan("mine.plan") == new
    return cloud, port, ended


def check_strangers(c, cloud, port):
    message = lambda version, kind, length, checksum, content=b"": b"LPLN" + struct.pack("<HHIQ", version, kind, length, checksum) + content
    assert b"a malformed message" in said_to(port, b"GET / HTTP/1.1\r\n\r\n")
    assert b"version" in said_to(port, message(9, 1, 0, 0))
    assert b"are the most" in said_to(port, message(1, 1, 1 << 31, 0))
    assert b"hash" in said_to(port, message(1, 1, 2, 5, b"xx"))
    code, said = c.run("plan", "run", "--cloud", f"127.0.0.1:{port}", "--items", "1000000", "-o", "mine.plan")
    assert code != 0 and said, said
    cloud.send_signal(signal.SIGTERM)
    assert cloud.wait(LONGEST) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)


def check(c):
    c.must("sample", "-o", "made-up.txt", "--users", "120", "--items", "60", "--seed", "1")
    c.must("train", "made-up.txt", "--family", "sasrec_planned", "--freeze", "--objective", "candidates", "--config", "hidden=16",
           "--config", "length=12", "--lr", "0.003", "--tau-steps", "20", "--epochs", "3", "--eval-every", "3", "-o", "run")
    cloud, port, ended = check_kills(c)
    check_strangers(c, cloud, port)
    return ended


def main():
    with tempfile.TemporaryDirectory() as folder:
        c = Check(str(Path(sys.argv[1]).resolve()), Path(folder))
        try:
            ended = check(c)
        finally:
            c.end()
    print(f"a cloud and its devices: killed, came back, kept whole plans (of 12 killed devices {ended} had ended), told strangers why")


main()
