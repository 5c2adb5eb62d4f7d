#!/usr/bin/env python3
"""`lumen serve` for as long as one likes: good clients, in turns alone and beside hostile ones (attackers.py) and many connections that say
nothing. Every good answer is whole and the same as the first one to its request; 99 of 100 good clients wait hardly longer beside the hostile
ones than alone; memory, file descriptors and threads stay; the server opens no connection that a request asks for.

Usage: tests/cli/serve/soak.py LUMEN [--minutes 60] [--model FILE] [--clients 24] [--think 1] [--hostile 8] [--connections 1000] [--json FILE]
  --model   a GGUF file; without it a small model of random weights
  --think   mean seconds (exponentially distributed) between the answer and the next request of a good client, so that the load is the same in
            both parts, and below what the server can do
Good clients, hostile clients and this program, which looks at the server, are processes of their own. Hostile clients have other addresses.
"""
import argparse
import asyncio
import contextlib
import json
import multiprocessing
import queue
import random
import resource
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import attackers
import hostile_check
import serve_check

WARM, LEAST_WARM = 0.15, 10  # of the time, and seconds if that is not half of it: every kernel is met, and every kind of attack
QUIET = 0.45  # of a turn: without hostile clients
SETTLING = 0.08  # of a turn, at both ends of each part: requests that begin here are not measured
LEAST_TURNS, LONGEST_TURN = 3, 240  # seconds of a turn
# Measured in twelve runs of half a minute on two shared cores: 0.9 to 2.3 times as long, at most 33 ms more. Where a step for more sequences
# than before is first compiled beside hostile clients, 0.3 s more; on cores that others had nearly whole, twice as long.
MOST_SLOWER, MOST_LATER = 2.0, 0.25  # times the seconds without them, plus seconds
MOST_GROWTH = 24 << 20  # bytes, of a line through the memory after the warm part
MOST_MORE = {"files": 4, "threads": 2}  # when every client has gone, than before the first one
LEAST_MEASURED = 50  # requests of each part
NEVER = attackers.NEVER
SHARED = "All that these prompts begin with alike, so that pages are shared and given back. "


class Turns:
    """Which part of the run it is at a time; the same in every process. Only `begin_turns` and `go_on` change it."""

    def __init__(self, begin, seconds):
        self.begin = begin
        self.least_warm = max(WARM * seconds, min(LEAST_WARM, seconds / 2))
        rest = seconds - self.least_warm
        self.turns = max(LEAST_TURNS, round(rest / LONGEST_TURN))
        self.turn = rest / self.turns
        self.shared_warm_until, self.shared_end = multiprocessing.Value("d", NEVER), multiprocessing.Value("d", NEVER)

    @property
    def warm_until(self):
        return self.shared_warm_until.value

    @property
    def end(self):
        return self.shared_end.value

    def begin_turns(self, now):
        self.shared_end.value = now + self.turns * self.turn
        self.shared_warm_until.value = now

    def go_on(self):
        """One more turn."""
        self.shared_end.value += self.turn

    def part(self, now):
        """Whether there are hostile clients, whether a request that begins now is measured, and the number of the turn."""
        if now < self.warm_until:
            return True, False, -1
        number, at = divmod((now - self.warm_until) / self.turn, 1)
        hostile = at >= QUIET
        since, left = (at - QUIET, 1 - at) if hostile else (at, QUIET - at)
        return hostile, min(since, left) > SETTLING, int(number)

    def is_hostile_turn(self, number):
        """Whether now is the hostile part of this turn."""
        hostile, _, now = self.part(time.monotonic())
        return hostile and now == number and time.monotonic() < self.end


class Good:
    """Clients that behave, in one process."""

    def __init__(self, port, turns, arguments, told):
        self.port, self.turns, self.arguments, self.told = port, turns, arguments, told
        self.expected = {}

    def request(self, r):
        number = r.randrange(40)
        body = {"prompt": (SHARED if number % 2 else "") + f"Text {number}", "max_tokens": 8 + number, "seed": number, "stream": True, "ignore_eos": True,
                "temperature": 0.7, "top_k": 40 if number % 3 else 0, "frequency_penalty": 0.2 if number % 5 == 0 else 0}
        return number, serve_check.request_of("/v1/completions", body)

    async def one(self, r):
        number, data = self.request(r)
        begin, first = time.monotonic(), None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            heard = b""
            while b"[DONE]" not in heard:
                part = await asyncio.wait_for(reader.read(65536), serve_check.LONGEST)
                assert part, (number, heard[-500:])
                heard += part
                first = first or (time.monotonic() if b"data: " in heard else None)
        finally:
            writer.close()
        end = time.monotonic()
        lines = [json.loads(line[6:]) for line in heard.decode().split("\n") if line.startswith("data: {")]
        said = "".join(line["choices"][0]["text"] for line in lines if line["choices"])
        # The same request has the same answer, whoever is beside it.
        assert self.expected.setdefault(number, said) == said, (number, said, self.expected[number])
        self.told.put(("good", begin, first - begin, end - begin, 8 + number))

    async def client(self, seed):
        r = random.Random(seed)
        await asyncio.sleep(r.uniform(0, self.arguments.think))
        while time.monotonic() < self.turns.end:
            await self.one(r)
            await asyncio.sleep(r.expovariate(1 / self.arguments.think) if self.arguments.think else 0)

    async def all(self):
        await asyncio.gather(*(self.client(seed) for seed in range(self.arguments.clients)))

    def run(self):
        try:
            asyncio.run(self.all())
        except Exception as error:  # told by main
            self.told.put(("fault", f"a good client: {type(error).__name__}: {error}"))


class Hostile:
    """Clients that do not, in one process, at 127.0.0.2 and after it."""

    def __init__(self, port, turns, arguments, told, trap):
        self.port, self.turns, self.arguments, self.told, self.trap = port, turns, arguments, told, trap

    def wait_for_turn(self):
        """The number of the turn whose hostile part it is; None at the end of the run."""
        while (now := time.monotonic()) < self.turns.end and not self.turns.part(now)[0]:
            time.sleep(0.02)
        return self.turns.part(now)[2] if now < self.turns.end else None

    def attack(self, seed):
        a = attackers.Attacker(self.port, f"127.0.0.{2 + seed % 4}", seed, self.trap)
        first = list(dict.fromkeys(attackers.ATTACKS))[seed::self.arguments.hostile]  # all clients together: every kind
        while (number := self.wait_for_turn()) is not None:
            a.goes_on = lambda: self.turns.is_hostile_turn(number)
            kind, status = attackers.attack(a, first.pop() if first else None)
            self.told.put(("hostile", kind, status))
            time.sleep(a.r.expovariate(1 / self.arguments.pause))

    def hold(self, count):
        """Keeps so many connections open that say nothing, or half of a request; who is let go comes back."""
        a = attackers.Attacker(self.port, "127.0.0.1", 0, self.trap)
        while (number := self.wait_for_turn()) is not None:
            held = []
            while self.turns.is_hostile_turn(number):
                for _ in range(min(count - len(held), 100)):
                    a.address = f"127.0.0.{10 + len(held) % 8}"
                    with contextlib.suppress(OSError):
                        c = a.connection(5)
                        if len(held) % 4 == 0:
                            c.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-")
                        c.setblocking(False)
                        held.append(c)
                time.sleep(0.1)
                held = [c for c in held if self.is_open(c)]
            for c in held:
                c.close()

    def is_open(self, c):
        try:
            if c.recv(4096):
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass
        c.close()
        return False

    def guarded(self, what, number):
        try:
            what(number)
        except Exception as error:  # told by main
            self.told.put(("fault", f"{what.__name__}: {type(error).__name__}: {error}"))

    def run(self):
        threads = [threading.Thread(target=self.guarded, args=(self.attack, seed)) for seed in range(self.arguments.hostile)]
        threads.append(threading.Thread(target=self.guarded, args=(self.hold, self.arguments.connections)))
        for t in threads:
            t.start()
        for t in threads:
            t.join()


class Process:
    """What a process holds."""

    def __init__(self, pid):
        self.folder = Path(f"/proc/{pid}")

    def now(self):
        status = dict(line.split(":", 1) for line in (self.folder / "status").read_text().splitlines() if ":" in line)
        return {"memory": int(status["VmRSS"].split()[0]) << 10, "threads": int(status["Threads"]), "files": len(list((self.folder / "fd").iterdir()))}


def late_ones(seconds, share=0.99):
    ordered = sorted(seconds)
    return ordered[int(share * (len(ordered) - 1))] if ordered else float("nan")


def grown(points):
    """What a line through (time, value) rises by from the first to the last."""
    times, values = zip(*points)
    return statistics.linear_regression(times, values).slope * (times[-1] - times[0])


class Soak:
    def __init__(self, served, turns, told):
        self.process, self.turns, self.told = Process(served.process.pid), turns, told
        self.good = []  # (begin, first, whole, tokens), measured or not
        self.hostile, self.faults = {}, []
        self.seen = []  # (time, what the process holds)

    def drain(self):
        with contextlib.suppress(queue.Empty):
            while True:
                kind, *rest = self.told.get_nowait()
                if kind == "good":
                    self.good.append(rest)
                elif kind == "hostile":
                    of_kind = self.hostile.setdefault(rest[0], {})
                    of_kind[rest[1]] = of_kind.get(rest[1], 0) + 1
                else:
                    self.faults.append(rest[0])

    def watch(self):
        """Until the run is over or something is wrong. A slow machine gets more time, until enough was seen."""
        latest = self.turns.begin + 3 * (self.turns.least_warm + self.turns.turns * self.turns.turn) + 4 * serve_check.LONGEST
        while (now := time.monotonic()) < min(self.turns.end, latest) and not self.faults:
            self.seen.append((now, self.process.now()))
            self.drain()
            if now < self.turns.warm_until and now > self.turns.begin + self.turns.least_warm and len(self.good) >= LEAST_MEASURED:
                self.turns.begin_turns(now)
            elif self.turns.end - now < 1 and min(len(self.seconds(hostile)) for hostile in (False, True)) < LEAST_MEASURED:
                self.turns.go_on()
            time.sleep(min(0.5, self.turns.turn / 20))
        self.turns.shared_end.value = min(self.turns.end, time.monotonic())

    def seconds(self, hostile, since=0, until=NEVER):
        """Whole times of good requests that were measured in one of the parts."""
        return [whole for begin, _, whole, _ in self.good if self.turns.part(begin)[:2] == (hostile, True) and since <= begin < until]

    def least_in_quiet(self, what):
        """For each turn, the least that its part without hostile clients had."""
        of_turn = {}
        for at, held in self.seen:
            hostile, _, number = self.turns.part(at)
            if number >= 0 and not hostile:
                of_turn[number] = min(of_turn.get(number, NEVER), held[what])
        return list(of_turn.values())

    def wait_for_rest(self, before):
        """Nothing is left of clients that have gone."""
        until = time.monotonic() + serve_check.LONGEST
        while any((now := self.process.now())[what] > before[what] + most for what, most in MOST_MORE.items()):
            assert time.monotonic() < until, f"held before the first client {before}, after the last one {now}"
            time.sleep(0.1)

    def marks(self, every):
        """A line for each stretch of the run."""
        rows, at = [], self.turns.begin
        while at < self.turns.end:
            until = at + every
            inside = [held for t, held in self.seen if at <= t < until]
            alone, beside = self.seconds(False, at, until), self.seconds(True, at, until)
            rows.append({"minutes": round((min(until, self.turns.end) - self.turns.begin) / 60, 1), "memory_mib": inside[-1]["memory"] >> 20 if inside else None,
                         "files": inside[-1]["files"] if inside else None, "threads": inside[-1]["threads"] if inside else None,
                         **{f"{name}_{p}": round(late_ones(values, share), 3) for name, values in (("alone", alone), ("beside", beside)) for p, share in (("p50", 0.5), ("p99", 0.99))},
                         "alone": len(alone), "beside": len(beside)})
            at = until
        return rows

    def result(self):
        fitted = [(t, held["memory"]) for t, held in self.seen if t > self.turns.warm_until]
        alone, beside = self.seconds(False), self.seconds(True)
        files, threads = self.least_in_quiet("files"), self.least_in_quiet("threads")
        return {"answers": len(self.good), "tokens": sum(g[3] for g in self.good), "alone": len(alone), "beside": len(beside), "hostile": sum(sum(k.values()) for k in self.hostile.values()),
                "alone_p50": late_ones(alone, 0.5), "alone_p99": late_ones(alone), "beside_p50": late_ones(beside, 0.5), "beside_p99": late_ones(beside),
                "memory_mib": fitted[-1][1] / 2**20, "memory_growth_mib": grown(fitted) / 2**20, "memory_hours": (fitted[-1][0] - fitted[0][0]) / 3600,
                "files": files, "threads": threads}

    def check(self, got):
        assert not self.faults, self.faults[:3]
        assert min(got["alone"], got["beside"], got["hostile"]) >= LEAST_MEASURED, got
        assert got["memory_growth_mib"] < MOST_GROWTH / 2**20, f"memory grew by {got['memory_growth_mib']:.1f} MiB: {[held['memory'] >> 20 for _, held in self.seen]}"
        bound = MOST_SLOWER * got["alone_p99"] + MOST_LATER
        assert got["beside_p99"] < bound, f"99 of 100 good clients wait {got['beside_p99']:.2f} s beside hostile ones and {got['alone_p99']:.2f} s alone: more than {bound:.2f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lumen", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--think", type=float, default=1)
    parser.add_argument("--hostile", type=int, default=16)
    parser.add_argument("--pause", type=float, default=0.05, help="mean seconds between two attacks of a hostile client")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    room = hard - arguments.clients - 400 * arguments.hostile - 200  # files of a process: the server has one for each connection, and so have the clients
    if hard != resource.RLIM_INFINITY and arguments.connections > room:
        print(f"serve: this system allows {hard} files, so {room} connections and not {arguments.connections}")
        arguments.connections = room
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    lumen = str(arguments.lumen.resolve())
    parallel = arguments.clients + arguments.hostile
    with tempfile.TemporaryDirectory(prefix="lumen-soak-") as folder, socket.create_server(("127.0.0.1", 0)) as trap:
        work = Path(folder)
        if not arguments.model:
            serve_check.make_model(lumen, work)
        model = arguments.model.resolve() if arguments.model else "served.gguf"
        # An address may have as many connections as an eighth of those that say nothing and an attacker's, and no more: nobody else is refused.
        of_address = arguments.connections // 8 + 300
        s = serve_check.Served(lumen, work, "-m", model, "--connections", arguments.connections + arguments.clients + 300 * 4 + 100, "--client-connections", of_address, "--parallel", parallel,
                               "--queue", 2 * parallel, "--ctx-size", 512 * parallel, "--batch-invariant", "--timeout", 10, "--body", "1M", "--max-n", 8)
        try:
            for path, body in hostile_check.GOOD.items():  # what has kernels of its own compiles them
                s.ask(path, body)
            told = multiprocessing.Queue()
            turns = Turns(time.monotonic(), arguments.minutes * 60)
            soak = Soak(s, turns, told)
            before = soak.process.now()
            others = [Good(s.port, turns, arguments, told), Hostile(s.port, turns, arguments, told, trap.getsockname()[1])]
            processes = [multiprocessing.Process(target=other.run, daemon=True) for other in others]
            for p in processes:
                p.start()
            soak.watch()
            ended = time.monotonic()
            while any(p.is_alive() for p in processes) and time.monotonic() < ended + serve_check.LONGEST and not soak.faults:
                soak.drain()
                time.sleep(0.05)
            soak.drain()
            got = soak.result()
            marks = soak.marks(600 if arguments.minutes >= 20 else arguments.minutes * 15)
            if arguments.json:
                arguments.json.write_text(json.dumps({**got, "marks": marks, "attacks": soak.hostile, "faults": soak.faults}, indent=1))
            for row in marks if arguments.minutes >= 2 else []:
                print(json.dumps(row))
            soak.check(got)
            trap.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                trap.accept()
                raise AssertionError("the server opened a connection that a request asked for")
            s.wait_for("lumen_requests_running", 0)
            soak.wait_for_rest(before)
            print(f"serve: {got['answers']} good answers ({got['tokens'] / arguments.minutes / 60:.0f} tokens/s) and {got['hostile']} attacks of {len(soak.hostile)} kinds: p50 and p99 "
                  f"{got['alone_p50']:.2f} and {got['alone_p99']:.2f} s alone, {got['beside_p50']:.2f} and {got['beside_p99']:.2f} s beside hostile clients; memory {got['memory_mib']:.0f} MiB, "
                  f"{got['memory_growth_mib']:+.1f} MiB in {60 * got['memory_hours']:.1f} minutes; files {got['files']}; threads {got['threads']}")
            assert s.end() == 143, s.log.read_text()[-2000:]
        finally:
            s.process.kill()


if __name__ == "__main__":
    main()
