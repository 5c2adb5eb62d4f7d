#!/usr/bin/env python3
"""`lumen serve` for as long as one likes: first good clients alone, then beside hostile ones: connections that stay open, clients that leave
in the midst of an answer or read slowly, fuzzed requests, large grammars and schemas. Every answer is whole and right, memory does not grow
once everything has been seen, and the good clients wait about as long as without the others.

Usage: tests/cli/serve/soak.py LUMEN [--minutes 60] [--connections 1000] [--sequences 200] [--hostile 8]
"""
import argparse
import json
import random
import resource
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import serve_check
import hostile_check
from hostile_check import memory

QUIET = 0.3  # of the time, without hostile clients
MOST_SLOWER, MOST_LATER = 3, 5.0  # bound of the 99th percentile beside hostile ones: times that without them, plus seconds (their kernels are compiled)
LEAST_MEASURED = 50  # requests of each part
MOST_GROWTH = 32 << 20  # bytes between the middle of the first half and that of the second
SHARED = "All that these prompts begin with alike, so that pages are shared and given back. "


class Soak:
    def __init__(self, served, arguments):
        now = time.time()
        self.served, self.hostile_from, self.end = served, now + QUIET * arguments.minutes * 60, now + arguments.minutes * 60
        self.measured_from = now + QUIET / 2 * arguments.minutes * 60  # kernels are compiled before
        self.seconds = {False: [], True: []}  # of the good clients' requests, by whether hostile ones are beside them
        self.lock = threading.Lock()
        self.counts = {"answers": 0, "left": 0, "slow": 0, "tokens": 0, "reopened": 0, "busy": 0, "hostile": 0}
        self.expected, self.faults = {}, []

    def count(self, name, by=1):
        with self.lock:
            self.counts[name] += by

    def is_over(self):
        """When its time has passed, and enough requests of both parts were measured."""
        enough = min(map(len, self.seconds.values())) >= LEAST_MEASURED
        return self.faults or time.time() > (self.end if enough else self.end + 2 * serve_check.LONGEST)

    def is_hostile(self):
        return time.time() >= self.hostile_from and len(self.seconds[False]) >= LEAST_MEASURED

    def wait_for_hostility(self):
        while not self.is_hostile() and not self.is_over():
            time.sleep(0.05)

    def attack(self, seed):
        """Requests that are wrong, large or lie about themselves. Each is answered, or its connection ends."""
        r = random.Random(seed)
        self.wait_for_hostility()
        schemas = [{"type": "object", "properties": {f"k{i}": {"type": "string", "pattern": f"^[a-z]{{{i},{i + 40}}}x$"} for i in range(60)}},
                   {"anyOf": [{"type": "object", "properties": {"p" * i: {"type": "integer", "minimum": i, "maximum": 10 ** (i % 15)}}} for i in range(1, 120)]}]
        while not self.is_over():
            path = r.choice(list(hostile_check.GOOD))
            data = hostile_check.head_of(path, hostile_check.changed(hostile_check.GOOD[path], r), r)
            if r.random() < 0.1:
                form = {"type": "json_schema", "json_schema": {"schema": r.choice(schemas)}}
                body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "stream": True, "response_format": form}
                data = serve_check.request_of("/v1/chat/completions", body, "Connection: close\r\n")
            try:
                status = hostile_check.tell(self.served, data, seconds=serve_check.LONGEST)
                assert status < 500 or status == 503, (status, data[:300])
            except ConnectionError:
                pass
            except Exception as error:  # told by main
                self.faults.append(f"{type(error).__name__}: {error}")
            self.count("hostile")

    def hold(self, count):
        """Keeps so many connections open that say nothing, or half of a request; who is let go comes back."""
        held = []
        self.wait_for_hostility()
        while not self.is_over():
            while len(held) < count:
                c = socket.create_connection(("127.0.0.1", self.served.port), timeout=30)
                if len(held) % 4 == 0:
                    c.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-")
                c.setblocking(False)
                held.append(c)
            time.sleep(0.5)
            open_ones = []
            for c in held:
                try:
                    gone = c.recv(4096) == b""
                except BlockingIOError:
                    gone = False
                except OSError:
                    gone = True
                (c.close if gone else lambda c=c: open_ones.append(c))()
                if gone:
                    self.count("reopened")
            held = open_ones
        for c in held:
            c.close()

    def text(self, r):
        """One request; the same one has the same answer whoever is beside it."""
        number = r.randrange(40)
        body = {"prompt": (SHARED if number % 2 else "") + f"Text {number}", "max_tokens": 8 + number, "seed": number, "stream": True, "ignore_eos": True,
                "temperature": 0.7, "top_k": 40 if number % 3 else 0, "frequency_penalty": 0.2 if number % 5 == 0 else 0}
        beside_hostile = self.is_hostile()
        leaves, slow = beside_hostile and r.random() < 0.1, beside_hostile and r.random() < 0.05
        begin = time.time()
        with socket.create_connection(("127.0.0.1", self.served.port), timeout=serve_check.LONGEST) as s:
            s.sendall(serve_check.request_of("/v1/completions", body))
            heard = b""
            while part := s.recv(512 if slow else 65536):
                heard += part
                if leaves and b"data:" in heard:
                    return self.count("left")
                if b"[DONE]" in heard:
                    break
                if slow:
                    time.sleep(0.05)
        if b" 429 " in heard[:20]:
            time.sleep(0.2)
            return self.count("busy")
        lines = [line[6:] for line in heard.decode().split("\n") if line.startswith("data: {")]
        said = "".join(json.loads(line)["choices"][0]["text"] for line in lines if json.loads(line)["choices"])
        assert b"[DONE]" in heard, heard[-500:]
        with self.lock:
            assert self.expected.setdefault(number, said) == said, (number, said, self.expected[number])
        self.count("answers")
        self.count("tokens", 8 + number)
        if slow:
            self.count("slow")
        elif begin > self.measured_from and beside_hostile == self.is_hostile():
            with self.lock:
                self.seconds[beside_hostile].append(time.time() - begin)

    def write(self, seed):
        r = random.Random(seed)
        while not self.is_over():
            try:
                self.text(r)
            except Exception as error:  # told by main
                self.faults.append(f"{type(error).__name__}: {error}")


def late_ones(seconds):
    """The 99th percentile."""
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lumen", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--sequences", "--texts", type=int, default=200)
    parser.add_argument("--hostile", type=int, default=8, help="clients that send fuzzed and large requests")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    room = hard - arguments.sequences - 200  # files of a process: the server has one for each connection, and so have the clients
    if hard != resource.RLIM_INFINITY and arguments.connections > room:
        print(f"serve: this system allows {hard} files, so {room} connections and not {arguments.connections}")
        arguments.connections = room
    needed = arguments.connections + arguments.sequences + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(min(needed, hard), resource.getrlimit(resource.RLIMIT_NOFILE)[0]), hard))
    lumen = str(arguments.lumen.resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-soak-") as folder:
        work = Path(folder)
        serve_check.make_model(lumen, work)
        s = serve_check.Served(lumen, work, "-m", "served.gguf", "--connections", arguments.connections + arguments.sequences + arguments.hostile + 50, "--parallel", arguments.sequences,
                               "--queue", arguments.sequences, "--ctx-size", 256 * arguments.sequences)
        try:
            soak = Soak(s, arguments)
            begin, seen = time.time(), []
            threads = [threading.Thread(target=soak.hold, args=(arguments.connections,))]
            threads += [threading.Thread(target=soak.attack, args=(i,)) for i in range(arguments.hostile)]
            threads += [threading.Thread(target=soak.write, args=(i,)) for i in range(arguments.sequences)]
            for t in threads:
                t.start()
            while not soak.is_over():
                time.sleep(min(1, max(0.1, arguments.minutes)))
                seen.append(memory(s))
            for t in threads:
                t.join()
            assert not soak.faults, soak.faults[:3]
            assert soak.counts["answers"] > 0, soak.counts
            # The first part is not looked at: kernels are compiled, and every width of a step is met.
            late = seen[int((QUIET + 0.15) * len(seen)):]
            half = len(late) // 2
            grown = statistics.median(late[half:]) - statistics.median(late[:half]) if half else 0
            assert grown < MOST_GROWTH, f"memory grew by {grown / 2**20:.1f} MiB: {[m >> 20 for m in late]}"
            alone, beside = (late_ones(soak.seconds[is_hostile]) for is_hostile in (False, True))
            assert soak.counts["hostile"] > 0, soak.counts
            assert beside < MOST_SLOWER * alone + MOST_LATER, f"99 of 100 good clients wait {beside:.2f} s beside hostile ones, {alone:.2f} s without them"
            s.wait_for("lumen_requests_running", 0)
            seconds = time.time() - begin
            print(f"serve: {seconds:.0f} s with {arguments.connections} connections open and {arguments.sequences} clients: {soak.counts}, "
                  f"{soak.counts['tokens'] / seconds:.0f} tokens/s, good clients' p99 {alone:.2f} s alone and {beside:.2f} s beside hostile ones, memory {late[-1] >> 20} MiB, {grown / 2**20:+.1f} MiB between halves")
            assert s.end() == 143, s.log.read_text()[-2000:]
        finally:
            s.process.kill()


if __name__ == "__main__":
    main()
