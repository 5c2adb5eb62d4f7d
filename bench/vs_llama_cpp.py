#!/usr/bin/env python3
"""Lumen and llama.cpp on the same file, in turns: tokens a second and their ratios.

Needs `llama-cpp-python` from PyPI, built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python); the
first lines say what it was built with. Files are written by `lumen bench --write` with random weights, or given.

Usage: bench/vs_llama_cpp.py [--lumen build/lumen] [--types q4_0,q8_0,q4_k,q6_k,f16] [--files FILE...] [--shape llama-1b]
                             [-p 512] [-n 64] [-d 0] [-t 2] [-r 3] [--machine x86-64-v3]

Each round runs one program after the other, each in a process of its own with one warm-up; medians over rounds, and the
median of the rounds' ratios, which a busy machine disturbs least.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def worker(args):
    """Measures llama.cpp as llama-bench does: prints tokens a second of the prompt and of generation as JSON."""
    import ctypes
    import llama_cpp as ll

    silent = ll.llama_log_callback(lambda level, text, data: None)
    ll.llama_log_set(silent, ctypes.c_void_p(0))
    ll.llama_backend_init()
    model_params = ll.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(args.worker.encode(), model_params)
    if not model:
        sys.exit(f"llama.cpp does not load {args.worker}")
    params = ll.llama_context_default_params()
    length = args.depth + args.prompt + args.generate
    params.n_ctx = (length + 255) // 256 * 256
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = args.threads
    context = ll.llama_init_from_model(model, params)
    vocabulary = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(model))
    memory = ll.llama_get_memory(context)
    state = 1

    def tokens(count):
        nonlocal state
        numbers = (ll.llama_token * count)()
        for i in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            numbers[i] = (state >> 33) % vocabulary
        return numbers

    def feed(count):
        while count > 0:
            part = min(count, 512)
            numbers = tokens(part)  # the batch only points to them
            if ll.llama_decode(context, ll.llama_batch_get_one(numbers, part)) != 0:
                sys.exit("llama_decode failed")
            count -= part
        ll.llama_synchronize(context)

    def timed(step):
        ll.llama_memory_clear(memory, True)
        feed(args.depth)
        clock = time.process_time if args.cpu_time else time.perf_counter
        start = clock()
        step()
        return clock() - start

    out = {"system": ll.llama_print_system_info().decode()}
    if args.prompt:
        timed(lambda: feed(args.prompt))
        out["prompt"] = args.prompt / timed(lambda: feed(args.prompt))
    if args.generate:
        timed(lambda: feed(1))
        out["generate"] = args.generate / timed(lambda: [feed(1) for _ in range(args.generate)])
    print(json.dumps(out))


def llama_cpp(args, file):
    command = [sys.executable, __file__, "--worker", file, "-p", args.prompt, "-n", args.generate, "-d", args.depth, "-t", args.threads] + ["--cpu-time"] * args.cpu_time
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"llama.cpp: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def lumen(args, file):
    command = [args.lumen, "bench", "-m", file, "-p", args.prompt, "-n", args.generate, "-d", args.depth, "-t", args.threads, "-r", 1, "-q", "-o", "jsonl", "--machine", args.machine] + ["--cpu-time"] * args.cpu_time
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lumen: {done.stderr}")
    out = {}
    for line in map(json.loads, done.stdout.splitlines()):
        out["prompt" if line["n_prompt"] else "generate"] = line["avg_ts"]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", default=str(Path(__file__).resolve().parent.parent / "build" / "lumen"))
    parser.add_argument("--types", default="q4_0,q8_0,q4_k,q6_k,f16")
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--shape", default="llama-1b")
    parser.add_argument("--keep", help="folder where written files stay", default="")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=0)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="time the processes compute, for a busy machine; with -t 1")
    parser.add_argument("--machine", default="native", help="code for which processor Lumen makes; llama.cpp's is a matter of its build")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args)

    what = [(key, name) for key, name, count in (("prompt", f"pp{args.prompt}", args.prompt), ("generate", f"tg{args.generate}", args.generate)) if count]
    print(f"{'file':<24} {'test':<8} {'lumen t/s':>10} {'llama.cpp t/s':>14} {'ratio':>7}", flush=True)
    told = False
    with tempfile.TemporaryDirectory() as folder:
        for name in args.files or args.types.split(","):
            file = Path(name)
            if not args.files:
                file = Path(args.keep or folder) / f"{name}.gguf"
                if not file.exists():
                    subprocess.run([args.lumen, "bench", "--shape", args.shape, "--type", name, "--write", str(file), "-q"], check=True)
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(lumen(args, file))
                theirs.append(llama_cpp(args, file))
            if not told:
                print(f"llama.cpp: {theirs[0]['system']}", file=sys.stderr)
                told = True
            for key, test in what:
                a, b = [o[key] for o in ours], [t[key] for t in theirs]
                ratio = statistics.median(x / y for x, y in zip(a, b))
                depth = f" @ d{args.depth}" if args.depth else ""
                print(f"{file.name:<24} {test + depth:<8} {statistics.median(a):10.2f} {statistics.median(b):14.2f} {ratio:7.2f}", flush=True)
            if not args.files and not args.keep:
                file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
