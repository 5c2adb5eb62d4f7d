#!/usr/bin/env python3
"""Vocabularies as files of ranks, against the program they come from (tiktoken, from PyPI).

usage: ranks_reference.py make FOLDER                 makes tests/model/fixtures/ranks: small vocabularies and ids of texts
       ranks_reference.py LUMEN [--count N] [--seed N]   compares ids on random texts; exit code 77 without the package
"""
import argparse
import base64
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import tiktoken
    import tiktoken._educational as educational
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[3]
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA.replace(r"\p{N}{1,3}", r"\p{N}")
KINDS = {  # the file's name, the pattern, model_type, control tokens that no other file names
    "llama": ("tokenizer.model", LLAMA, "llama", ["<|begin_of_text|>", "<|end_of_text|>"]),
    "qwen": ("qwen.tiktoken", QWEN, "qwen", ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
}
KOREAN = "나랏말싸미 듕귁에 달아 문자와로 서로 사맛디 아니할쎄 이런 젼차로 어린 백성이 니르고져 홀 배 이셔도 마참내 제 뜻을 시러펴디 못할 노미 하니라 "
CASES = ["", " ", "Hello, world!", "It's 12345 o'clock", "나랏말싸미 듕귁에 달아", "  two\n\n lines\r\n\t tab ", "ROMEO:\nBut soft, what light",
         "émigré naïve \U0001f680\U0001f680", "====----====", "aaaaaaaaaaaaaaaaa", "                 x", "'S'T'LL"]


def learnt(pattern):
    text = (ROOT / "data/tinyshakespeare/input.txt").read_text()[:12000] + KOREAN * 3
    return educational.bpe_train(data=text, vocab_size=600, pat_str=pattern, visualise=None)


def write(folder, kind, ranks):
    name, pattern, model_type, specials = KINDS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in sorted(ranks.items(), key=lambda t: t[1])]
    (folder / name).write_text("".join(lines))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return tiktoken.Encoding(kind, pat_str=pattern, mergeable_ranks=ranks,
                             special_tokens={s: len(ranks) + i for i, s in enumerate(specials)})


def random_text(rng):
    pools = [[chr(c) for c in range(0x20, 0x7F)], list(KOREAN), list(" \n\r\t"), list("0123456789"), ["'s", "'RE", "the", " and", "=="],
             [chr(c) for c in range(0xAC00, 0xAD00)], [chr(c) for c in range(0xC0, 0x250)]]
    return "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(0, 40)))


def main():
    if sys.argv[1] == "make":
        for kind in KINDS:
            folder = Path(sys.argv[2]) / kind
            encoding = write(folder, kind, learnt(KINDS[kind][1]))
            rows = [{"text": t, "ids": encoding.encode_ordinary(t)} for t in CASES]
            (folder / "cases.json").write_text(json.dumps(rows, ensure_ascii=False, indent=0) + "\n")
            print(f"{kind}: {encoding.n_vocab} ids")
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("lumen")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        for kind in KINDS:
            encoding = write(Path(work) / kind, kind, learnt(KINDS[kind][1]))
            texts = CASES + [random_text(rng) for _ in range(args.count)]
            lines = "\n".join(json.dumps(t) for t in texts) + "\n"
            run = subprocess.run([args.lumen, "tokenize", "-m", f"{work}/{kind}", "--json-lines", "--plain"], input=lines, capture_output=True, text=True)
            if run.returncode != 0:
                sys.exit(f"{kind}: {run.stderr}")
            for text, line in zip(texts, run.stdout.splitlines(), strict=True):
                row = json.loads(line)
                ids = row["ids"] if isinstance(row, dict) else row
                if ids != encoding.encode_ordinary(text):
                    wrong += 1
                    print(f"{kind}: {text!r}: {ids} instead of {encoding.encode_ordinary(text)}")
            print(f"{kind}: {len(texts)} texts")
    sys.exit(1 if wrong else 0)


main()
