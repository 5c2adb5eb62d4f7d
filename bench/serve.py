#!/usr/bin/env python3
"""Load on a server with the OpenAI interface, as clients see it: tokens a second, time to the first token, time between tokens.
Starts `lumen serve` itself, or measures any server (`--url`), llama.cpp's or vLLM's too. Prompts are tokens drawn by a seed, no two
begin alike, and outputs have the length that is asked for, so that all servers do the same work.

Usage: bench/serve.py -m MODEL [--lumen build/lumen] [--url http://HOST:PORT/v1] [--clients 1,16,64] [--rate R] [--prompt N]
                      [--generate N] [--requests N] [--sampling NAME|JSON] [--serve "FLAGS"] [--bench] [--json F]
  --clients   closed loop: so many clients, each of which sends its next request when the last one is answered
  --rate      open loop instead: requests a second, as a Poisson process
  --lengths   lengths as in conversations (a log-normal distribution whose medians are --prompt and --generate), not all equal
  --sampling  what a request asks for: default (temperature 1 and nothing else, as OpenAI's clients send), greedy, logprobs, topk
              (temperature 0.8, top_k 40, top_p 0.95), one filter alone (top-k-1000, top-p, typical, mirostat1, mirostat2), or
              fields as JSON
  --bench     `lumen bench` at the same numbers first, on an idle machine; the last column is the server's share of its speed
Times are of clients in one process, on the machine of the server: medians of tokens, percentiles over all requests.
"""
import argparse
import asyncio
import json
import math
import random
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.parse

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


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


class Load:
    def __init__(self, arguments, host, port, path, model):
        self.arguments, self.host, self.port, self.path, self.model = arguments, host, port, path, model
        self.random = random.Random(arguments.seed)
        sampling = arguments.sampling
        self.sampling = SAMPLINGS[sampling] if sampling in SAMPLINGS else json.loads(sampling)
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

    def measure(self, clients, rate, requests):
        self.firsts, self.gaps, self.tokens, self.errors = [], [], 0, []
        begin = time.perf_counter()
        asyncio.run(self.open(rate, requests) if rate else self.closed(clients, requests))
        seconds = time.perf_counter() - begin
        return {"clients": clients, "rate": rate, "requests": requests, "tokens_per_second": self.tokens / seconds,
                "errors": self.errors, **{f"first_p{p}": percentile(self.firsts, p / 100) for p in (50, 95, 99)},
                **{f"gap_p{p}": percentile(self.gaps, p / 100) for p in (50, 95, 99)}}


class Server:
    """`lumen serve` on a free port, as long as the block lasts."""

    def __init__(self, arguments):
        self.arguments = arguments

    def __enter__(self):
        with socket.socket() as any_port:
            any_port.bind(("127.0.0.1", 0))
            port = any_port.getsockname()[1]
        command = [self.arguments.lumen, "serve", "-m", f"model={self.arguments.model}", "--port", str(port), *shlex.split(self.arguments.serve)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + self.arguments.start
        while time.monotonic() < until:
            if self.process.poll() is not None:
                sys.exit(f"`{shlex.join(command)}` ended with {self.process.returncode}: {self.process.stderr.read()[-1000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        import threading
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()
        return "127.0.0.1", port, "/v1", "model"

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


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
    arguments = parser.parse_args()
    counts = [1] if arguments.rate else [int(c) for c in arguments.clients.split(",")]
    of_bench = {c: bench_speed(arguments, c) for c in counts} if arguments.bench else {}

    def measure(host, port, path, model):
        load = Load(arguments, host, port, path, model)
        load.measure(min(counts[0], 4), None, 4)  # the server's first kernels and pages
        head = f"{'clients':>8} {'requests':>8} {'tokens/s':>9} {'first token p50, p95, p99 ms':>30} {'between tokens ms':>24} {'errors':>6} {'of bench':>8}"
        print(head, flush=True)
        rows = []
        for clients in counts:
            row = load.measure(clients, arguments.rate, arguments.requests or max(8, 4 * clients))
            firsts = ", ".join(f"{1000 * row[f'first_p{p}']:.1f}" for p in (50, 95, 99))
            gaps = ", ".join(f"{1000 * row[f'gap_p{p}']:.1f}" for p in (50, 95, 99))
            share = f"{row['tokens_per_second'] / of_bench[clients]:.2f}" if clients in of_bench else "-"
            row["of_bench"] = None if share == "-" else float(share)
            who = f"{arguments.rate:g}/s" if arguments.rate else str(clients)
            print(f"{who:>8} {row['requests']:>8} {row['tokens_per_second']:9.0f} {firsts:>30} {gaps:>24} {len(row['errors']):>6} {share:>8}", flush=True)
            if row["errors"]:
                print(f"  {row['errors'][0][:200]}", file=sys.stderr)
            rows.append(row)
        return rows

    if arguments.url:
        parts = urllib.parse.urlsplit(arguments.url)
        rows = measure(parts.hostname, parts.port or 80, parts.path.rstrip("/"), arguments.name)
    else:
        if not arguments.model:
            parser.error("-m or --url is needed")
        with Server(arguments) as (host, port, path, model):
            rows = measure(host, port, path, model)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)
    return 1 if any(r["errors"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
