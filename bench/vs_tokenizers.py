#!/usr/bin/env python3
"""Lumen's tokenizers beside the Rust library `tokenizers` (from PyPI) on the same texts: one thread, one document (line) after
another, alternating; medians of processor time (other programs do not disturb it) and their ratio.

usage: tokenize.py TOKENIZER.json TEXT... [--repeat N] [--binary build/bench/bench_tokenize]
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--binary", default="build/bench/bench_tokenize")
    args = parser.parse_args()
    import tokenizers

    reference = tokenizers.Tokenizer.from_file(args.tokenizer)
    print(f"| {'text':<24} | {'MB':>6} | {'tokens':>9} | {'tokenizers MB/s':>15} | {'Lumen MB/s':>10} | {'ratio':>6} |")
    print("|---|---|---|---|---|---|")
    for path in args.texts:
        data = open(path, encoding="utf-8").read()
        documents = [line for line in data.split("\n") if line]
        size = sum(len(d.encode()) for d in documents) / 1e6
        ours = subprocess.Popen([args.binary, args.tokenizer, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def lumen():
            ours.stdin.write("\n")
            ours.stdin.flush()
            seconds, tokens = ours.stdout.readline().split()
            return float(seconds), int(tokens)

        def rust():
            start = time.process_time()
            # The fast way: no offsets, and one call for many documents spares the way between the languages.
            tokens = sum(len(e) for e in reference.encode_batch_fast(documents, add_special_tokens=False))
            return time.process_time() - start, tokens

        pairs = [(lumen(), rust()) for _ in range(args.repeat + 1)][1:]  # the first one fills both caches
        ours.stdin.close()
        mine = statistics.median(p[0][0] for p in pairs)
        theirs = statistics.median(p[1][0] for p in pairs)
        if pairs[0][0][1] != pairs[0][1][1]:
            print(f"{path}: {pairs[0][0][1]} tokens, the other library has {pairs[0][1][1]}", file=sys.stderr)
            return 1
        print(f"| {os.path.basename(path):<24} | {size:6.2f} | {pairs[0][0][1]:9d} | {size / theirs:15.2f} | {size / mine:10.2f} | {theirs / mine:6.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
