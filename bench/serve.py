#!/usr/bin/env python3
"""Load on a server with the OpenAI interface, as clients see it: tokens a second, time to the first token, time between tokens, as a Markdown
table. Starts `lumen serve` itself, or measures any server (`--url`). With `--peer` another server runs the same load on the same file in turns
with ours. Prompts are tokens drawn by a seed, no two begin alike, and outputs have the length that is asked for, so that all servers do the
same work.

Usage: bench/serve.py -m MODEL [--lumen build/lumen] [--url http://HOST:PORT/v1] [--clients 1,16,64] [--rate R] [--prompt N]
                      [--generate N] [--requests N] [--sampling NAME|JSON] [--serve "FLAGS"] [--bench] [--json F]
       bench/serve.py -m MODEL --peer llama.cpp=PATH/llama-server [--flags "--threads 2"] [--rounds 3] ..
  --clients   closed loop: so many clients, each of which sends its next request when the last one is answered
  --rate      open loop instead: requests a second, as a Poisson process
  --lengths   lengths as in conversations (a log-normal distribution whose medians are --prompt and --generate), not all equal
  --sampling  what a request asks for: default (temperature 1 and nothing else, as OpenAI's clients send), greedy, logprobs, topk
              (temperature 0.8, top_k 40, top_p 0.95), one filter alone (top-k-1000, top-p, typical, mirostat1, mirostat2), or
              fields as JSON
  --bench     `lumen bench` at the same numbers first, on an idle machine; the last column is the server's share of its speed
  --peer      NAME=PROGRAM of a server with llama.cpp's flags (-m, --port, --parallel, --ctx-size), or NAME=COMMAND with {model}, {port},
              {parallel} and {context} in it. Repeatable. All servers get --flags, and room for the same sequences; filters of tokens that a
              request does not name are off for all. Each number of clients runs once unmeasured, then --rounds times, with the servers in
              turns, each round in the opposite order of the one before; a server that is not measured has no requests.
Times are of clients in one process, on the machine of the server: medians over rounds of tokens a second and of the ratios of ours to the
peer's, percentiles over the requests of all rounds.
"""
import argparse
import asyncio
import contextlib
import json
import math
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

SAMPLINGS = {
    "default": {"temperature": 1},
    "greedy": {"temperature": 0},
    "logprobs": {"temperature": 1, "logprobs": 5},
    "topk": {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    "top-k-1000": {"temperature": 1, "top_k": 1000},
    "top-p": {"temperature": 1, "top_p": 0.95},
    "typical": {"temperature": 1, "typical_p": 0.9},
    "mirostat1": {"temperature": 1, "mirostat": 1},
    "mirostat2": {"temperature": 1, "mirostat": 2},
}
NO_FILTERS = {"top_k": 0, "top_p": 1, "min_p": 0}  # what other servers do by default, where a request does not say


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


class Load:
    def __init__(self, arguments, host, port, path, model):
        self.arguments, self.host, self.port, self.path, self.model = arguments, host, port, path, model
        self.random = random.Random(arguments.seed)
        sampling = arguments.sampling
        self.sampling = SAMPLINGS[sampling] if sampling in SAMPLINGS else json.loads(sampling)
        if arguments.peer:
            self.sampling = {**NO_FILTERS, **self.sampling}
        self.firsts, self.gaps, self.tokens, self.errors = [], [], 0, []

    def length(self, median):
        if not self.arguments.lengths:
            return median
        return max(1, min(8 * median, round(self.random.lognormvariate(math.log(median), 0.8))))

    def request(self):
        low, high = self.arguments.vocabulary
        prompt = [self.random.randrange(low, high) for _ in range(self.length(self.arguments.prompt))]
        body = {"model": self.model, "prompt": prompt, "max_tokens": self.length(self.arguments.generate), "stream": True,
                "ignore_eos": True, "stream_options": {"include_usage": True}, "seed": self.random.randrange(1 << 31), **self.sampling}
        text = json.dumps(body).encode()
        head = f"POST {self.path}/completions HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        if self.arguments.key:
            head += f"Authorization: Bearer {self.arguments.key}\r\n"
        return f"{head}Connection: close\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text

    async def one(self):
        message = self.request()
        begin = time.perf_counter()
        times, made = [], None
        try:
            reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
            writer.write(message)
            await writer.drain()
            status = (await reader.readline()).decode().split(" ", 2)
            while (await reader.readline()).strip():
                pass
            if status[1] != "200":
                raise RuntimeError(f"{' '.join(status).strip()}: {(await reader.read(2000)).decode(errors='replace')}")
            async for line in reader:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                if b'"error"' in line:
                    raise RuntimeError(line.decode(errors="replace")[:300])
                event = json.loads(line[6:])
                if event.get("usage"):
                    made = event["usage"]["completion_tokens"]
                if event.get("choices"):
                    times.append(time.perf_counter())
            writer.close()
        except (OSError, RuntimeError, ValueError, IndexError) as error:
            self.errors.append(str(error))
            return
        if not times or made is None:
            self.errors.append("the answer has no tokens, or no usage")
            return
        self.firsts.append(times[0] - begin)
        self.gaps += [b - a for a, b in zip(times, times[1:])]
        self.tokens += made

    async def closed(self, clients, requests):
        left = requests

        async def client():
            nonlocal left
            while left > 0:
                left -= 1
                await self.one()

        await asyncio.gather(*(client() for _ in range(clients)))

    async def open(self, rate, requests):
        tasks = []
        for _ in range(requests):
            tasks.append(asyncio.create_task(self.one()))
            await asyncio.sleep(self.random.expovariate(rate))
        await asyncio.gather(*tasks)

    def measure(self, clients, requests):
        """One round of a line: its speed, and every time that was seen."""
        self.firsts, self.gaps, self.tokens, self.errors = [], [], 0, []
        begin = time.perf_counter()
        asyncio.run(self.open(self.arguments.rate, requests) if self.arguments.rate else self.closed(clients, requests))
        seconds = time.perf_counter() - begin
        return {"tokens_per_second": self.tokens / seconds, "firsts": self.firsts, "gaps": self.gaps, "errors": self.errors}


def free_port():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


class Server:
    """A program that serves the model on a free port, as long as the block lasts."""

    def __init__(self, arguments, name, command):
        self.arguments, self.name, self.port = arguments, name, free_port()
        parallel = max(arguments.counts)
        # Log-normal lengths are up to eight times their medians.
        context = parallel * ((arguments.prompt + arguments.generate) * (8 if arguments.lengths else 1) + 32)
        room = f" --parallel {parallel} --ctx-size {context}" if arguments.peer else ""
        if command is None:
            self.command = [arguments.lumen, "serve", "-m", f"model={arguments.model}", "--port", str(self.port), *shlex.split(room),
                            *shlex.split(arguments.flags), *shlex.split(arguments.serve)]
        elif "{port}" in command:
            filled = {"model": arguments.model, "port": self.port, "parallel": parallel, "context": context}
            self.command = [word.format(**filled) for word in shlex.split(command)]
        else:
            self.command = [*shlex.split(command), "-m", arguments.model, "--host", "127.0.0.1", "--port", str(self.port), *shlex.split(room),
                            *shlex.split(arguments.flags)]

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def __enter__(self):
        self.log = tempfile.TemporaryFile(mode="w+", errors="replace")
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.log)
        until = time.monotonic() + self.arguments.start
        while not self.is_ready():
            ended = self.process.poll() is not None
            if ended or time.monotonic() > until:
                self.__exit__()
                self.log.seek(0)
                what = f"ended with {self.process.returncode}" if ended else f"did not answer in {self.arguments.start:g} s"
                sys.exit(f"`{shlex.join(self.command)}` {what}: {self.log.read()[-1000:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def load(self):
        return Load(self.arguments, "127.0.0.1", self.port, "/v1", "model")


def bench_speed(arguments, clients):
    """Tokens a second of the work of one round: prompts at bench's speed of prompts, then outputs at that of so many sequences."""
    common = [arguments.lumen, "bench", "-m", arguments.model, "-o", "jsonl", *shlex.split(arguments.bench_flags)]
    rows = []
    for flags in (["-p", str(arguments.prompt), "-n", "0"], ["-p", "0", "-n", str(arguments.generate), "--sequences", str(clients)]):
        run = subprocess.run([*common, *flags], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"lumen bench ended with {run.returncode}: {run.stderr[-500:]}")
        rows += [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    speed = {(r["n_prompt"] > 0): statistics.median(r["samples_ts"]) for r in rows}
    seconds = clients * (arguments.prompt / speed[True] + arguments.generate / speed[False])
    return clients * arguments.generate / seconds


def row_of(name, clients, rate, requests, rounds):
    """What the rounds of one line and one server say together."""
    pooled = {key: [value for r in rounds for value in r[key]] for key in ("firsts", "gaps", "errors")}
    return {"server": name, "clients": clients, "rate": rate, "requests": requests, "rounds": [r["tokens_per_second"] for r in rounds],
            "tokens_per_second": statistics.median(r["tokens_per_second"] for r in rounds), "errors": pooled["errors"],
            **{f"first_p{p}": percentile(pooled["firsts"], p / 100) for p in (50, 95, 99)},
            **{f"gap_p{p}": percentile(pooled["gaps"], p / 100) for p in (50, 95, 99)}}


def measure(arguments, loads, of_bench):
    """Every line of every server, in turns."""
    in_ms = lambda row, what: ", ".join(f"{1000 * row[f'{what}_p{p}']:.1f}" for p in (50, 95, 99))
    last = "lumen / it" if arguments.peer else "of bench"
    print(f"| {'requests/s' if arguments.rate else 'clients'} | server | requests | tokens/s | first token p50, p95, p99 ms | between tokens p50, p95, p99 ms | errors | {last} |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    rows = []
    for load in loads.values():
        load.measure(min(arguments.counts[0], 4), 4)  # the server's first kernels and pages
    for clients in arguments.counts:
        requests = arguments.requests or max(8, 4 * clients)
        order, rounds = list(loads), {name: [] for name in loads}
        for number in range(-1 if arguments.peer else 0, arguments.rounds):
            for name in order:
                got = loads[name].measure(clients, requests)
                if number >= 0:
                    rounds[name].append(got)
            order.reverse()
        ours = next(iter(loads))
        for name in loads:
            row = row_of(name, clients, arguments.rate, requests, rounds[name])
            share = None
            if name != ours:
                share = row["ratio"] = statistics.median(a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(rounds[ours], rounds[name]))
            elif clients in of_bench:
                share = row["of_bench"] = row["tokens_per_second"] / of_bench[clients]
            who = f"{arguments.rate:g}" if arguments.rate else str(clients)
            print(f"| {who} | {name} | {requests} | {row['tokens_per_second']:.0f} | {in_ms(row, 'first')} | {in_ms(row, 'gap')} | {len(row['errors'])} | "
                  f"{'' if share is None else f'{share:.2f}'} |", flush=True)
            if row["errors"]:
                print(f"  {row['errors'][0][:200]}", file=sys.stderr)
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model")
    parser.add_argument("--lumen", default="build/lumen")
    parser.add_argument("--url")
    parser.add_argument("--name", default="model", help="the model's name at --url")
    parser.add_argument("--key")
    parser.add_argument("--clients", default="1,16,64")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--requests", type=int, default=0, help="of each line; 0: four for each client, at least 8")
    parser.add_argument("--lengths", action="store_true")
    parser.add_argument("--sampling", default="default")
    parser.add_argument("--vocabulary", default="300,30000", type=lambda t: [int(x) for x in t.split(",")])
    parser.add_argument("--serve", default="", help="flags of `lumen serve`")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--bench-flags", default="")
    parser.add_argument("--start", type=float, default=600, help="seconds that the server may take to start")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--flags", default="", help="flags of all servers, which have the same names in both")
    parser.add_argument("--rounds", type=int, default=0, help="measured rounds of each line; 0: three with peers, one without")
    arguments = parser.parse_args()
    if arguments.url and arguments.peer:
        parser.error("--peer starts servers, and --url names one that runs")
    if not arguments.url and not arguments.model:
        parser.error("-m or --url is needed")
    peers = [peer.partition("=") for peer in arguments.peer]
    if wrong := [name for name, _, command in peers if not name or not command]:
        parser.error(f"--peer is NAME=PROGRAM, and '{wrong[0]}' has no program")
    arguments.counts = [1] if arguments.rate else [int(c) for c in arguments.clients.split(",")]
    arguments.rounds = arguments.rounds or (3 if peers else 1)
    of_bench = {c: bench_speed(arguments, c) for c in arguments.counts} if arguments.bench else {}

    with contextlib.ExitStack() as running:
        if arguments.url:
            parts = urllib.parse.urlsplit(arguments.url)
            loads = {arguments.name: Load(arguments, parts.hostname, parts.port or 80, parts.path.rstrip("/"), arguments.name)}
        else:
            servers = [Server(arguments, name, command) for name, command in [("lumen", None), *((name, command) for name, _, command in peers)]]
            for server in servers:
                print("#", shlex.join(server.command), flush=True)
            loads = {server.name: running.enter_context(server).load() for server in servers}
        rows = measure(arguments, loads, of_bench)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if any(r["errors"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
