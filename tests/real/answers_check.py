#!/usr/bin/env python3
"""Real models (tools/real_models.sh) give the answers that other programs give.

transformers reads the same GGUF files itself, decoded to f32, and is compared with `--exact`: prompts of chat templates, log probabilities of whole
windows, perplexity to four digits, and greedy text. Where greedy text parts, the two tokens are a near tie that is printed. The folder that
`lumen export` writes must give transformers the same logits, and its tokenizer.json the same token numbers of mixed text (Korean, code, emoji);
transformers' reader of GGUF does not read how a text is split. With llama-cpp-python, perplexity of the file as it is (both programs round
activations, each in its own manner) agrees within 0.5 %.

Needs torch, transformers, gguf and accelerate from PyPI; without them it says so and exits with 77.
Usage: tests/real/answers_check.py LUMEN [MODEL..] [--megabytes N]
"""
import argparse
import json
import math
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import accelerate  # noqa: F401  transformers reads GGUF files with it
    import gguf  # noqa: F401
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging
except ImportError as error:
    print(f"skipped: {error}; pip install torch transformers gguf accelerate")
    sys.exit(77)
try:
    from llama_cpp import Llama
except ImportError:
    Llama = None

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli" / "serve"))
sys.path.insert(0, str(ROOT / "tests" / "real"))
import serve_check  # noqa: E402
from models_check import model_file  # noqa: E402

MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b", "gemma-3-270m")
WINDOW, WINDOWS = 256, 4
PROMPTS = ("The capital of France is", "Once upon a time, there was a", "def fibonacci(n):\n", "1, 2, 3, 4, 5,", "The mitochondria is",
           "Question: Why is the sky blue?\nAnswer:", "SELECT name FROM users WHERE", "대한민국의 수도는", "Dear Sir or Madam,\n\n", "#include <stdio.h>\n\nint main")
NEAR_TIE = 0.02  # nats between two tokens that f32 in another order may exchange
CONVERSATIONS = (
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "서울의 날씨는?"}],
    [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": " and 2+2? \n"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": "<|im_start|>user"}, {"role": "assistant", "content": "😀"},
     {"role": "user", "content": "a\n\nb"}],
)


def lumen_out(lumen, *words, given=None):
    done = subprocess.run([lumen, *map(str, words)], input=given, capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def mixed_text(size):
    """Pieces of Korean, code, emoji, numbers and spaces, the same in each run."""
    draw = random.Random(7)
    code = "".join(sorted((ROOT / "tools").glob("*.py"))[k].read_text() for k in range(8)) + (ROOT / "src/lang/parse.h").read_text()
    prose = (ROOT / "data/tinyshakespeare/input.txt").read_text() + (ROOT / "docs/guide/serving.md").read_text()
    endings = ("은", "는", "이", "가", "을", "를", "에서", "으로", "입니다.", "했다", "하고 ", "\n")
    pieces, total = [], 0
    while total < size:
        kind = draw.randrange(6)
        if kind == 0:
            word = "".join(chr(draw.randrange(0xAC00, 0xD7A4)) for _ in range(draw.randrange(1, 5)))
            piece = " ".join(word[: draw.randrange(1, 5)] + draw.choice(endings) for _ in range(draw.randrange(1, 60)))
        elif kind == 1:
            at = draw.randrange(len(code) - 2000)
            piece = code[at : at + draw.randrange(1, 2000)]
        elif kind == 2:
            at = draw.randrange(len(prose) - 2000)
            piece = prose[at : at + draw.randrange(1, 2000)]
        elif kind == 3:
            emoji = ("😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇰🇷", "é", "é", "ﬁ", "Ⅷ", "½", "ㅋㅋㅋ", "漢字", "ру́сский", "العربية", "हिन्दी", "\u200b", "\ufeff")
            piece = draw.choice(("", " ")).join(draw.choice(emoji) for _ in range(draw.randrange(1, 40)))
        elif kind == 4:
            piece = "".join(draw.choice("0123456789., -+eE%\t ") for _ in range(draw.randrange(1, 200)))
        else:
            piece = draw.choice((" ", "\n", "\t", "\r\n", "\u3000", "\u00a0", "_", "=", "...")) * draw.randrange(1, 40) + draw.choice("aA1가'\"(")
        pieces.append(piece)
        total += len(piece.encode())
    return pieces


def tokens(lumen, model, tokenizer, size):
    pieces = mixed_text(size)
    got = lumen_out(lumen, "tokenize", "-m", model, "--plain", "--json-lines", given="\n".join(json.dumps(p) for p in pieces) + "\n").splitlines()
    wanted = tokenizer(pieces, add_special_tokens=False)["input_ids"]
    assert len(got) == len(pieces)
    count = 0
    for piece, ours, theirs in zip(pieces, got, wanted):
        ours = json.loads(ours)["ids"]
        assert ours == theirs, (piece, ours, theirs)
        count += len(theirs)
    return f"{sum(len(p.encode()) for p in pieces):,} bytes are the same {count:,} tokens"


def templates(lumen, work, model, tokenizer):
    if not tokenizer.chat_template:
        return "no chat template"
    s = serve_check.Served(lumen, work, "-m", model, "--ctx-size", 512)
    try:
        for messages in CONVERSATIONS:
            ours = s.json("/apply-template", {"messages": messages})["prompt"]
            theirs = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            assert ours == theirs, (messages, ours, theirs)
        assert s.end() == 143
    finally:
        s.process.kill()
    return f"{len(CONVERSATIONS)} conversations are the same prompts"


def log_probabilities(network, ids):
    with torch.no_grad():
        return torch.log_softmax(network(torch.tensor([ids])).logits[0].double(), -1).numpy()


def recorded(file):
    """The windows' tokens and rows of log probabilities in what `perplexity --record-logits` writes."""
    data = file.read_bytes()
    vocabulary, length, first, windows = struct.unpack("<4q", data[8:40])
    ids = np.frombuffer(data, np.int32, windows * length, 40).reshape(windows, length)
    rows = np.frombuffer(data[40 + ids.nbytes :], np.dtype([("least", "<f4"), ("step", "<f4"), ("codes", "<u2", vocabulary)]))
    return ids, rows.reshape(windows, length - 1 - first)


def windows(lumen, work, model, tokenizer, network):
    """Log probabilities of all tokens of a window, and its perplexity. BOS takes the place of a window's first token."""
    text = work / "windows.txt"
    text.write_text((ROOT / "docs/guide/serving.md").read_text()[:16000])
    given = ["perplexity", "-m", model, "-f", text, "-c", WINDOW, "--chunks", WINDOWS, "--full", "--bos", "windows", "-q"]
    lumen_out(lumen, *given, "--exact", "--record-logits", work / "rows.bin")
    ids, rows = recorded(work / "rows.bin")
    if tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id:
        ids = ids.copy()
        ids[:, 0] = tokenizer.bos_token_id
    farthest, nats, counted = 0.0, 0.0, 0
    for window, some in zip(ids, rows):
        theirs = log_probabilities(network, window.tolist())[: len(some)]
        for theirs_row, row, following in zip(theirs, some, window[1:]):
            ours_row = row["least"] + row["step"] * row["codes"].astype(np.float64)
            likely = theirs_row > theirs_row.max() - 12
            farthest = max(farthest, float(np.abs(ours_row - theirs_row)[likely].max()))
            nats -= theirs_row[following]
            counted += 1
    ours = float(re.search(r"perplexity ([0-9.]+)", lumen_out(lumen, *given, "--exact"))[1])
    theirs = math.exp(nats / counted)
    assert farthest < 2e-3, farthest
    assert abs(ours / theirs - 1) < 2e-4, (ours, theirs)
    rounded = float(re.search(r"perplexity ([0-9.]+)", lumen_out(lumen, *given))[1])
    said = (f"log probabilities within {farthest:.1e}; perplexity {ours:.4f} exact, {theirs:.4f} transformers, {rounded:.4f} with activations in "
            f"8 bits")
    if Llama:
        other = Llama(str(model), n_ctx=WINDOW, logits_all=True, verbose=False, n_threads=2)
        nats, counted = 0.0, 0
        for window in ids:
            other.reset()
            other.eval(window.tolist())
            scores = torch.log_softmax(torch.tensor(np.array(other._scores[: WINDOW - 1])).double(), -1).numpy()
            nats -= sum(scores[k, following] for k, following in enumerate(window[1:]))
            counted += WINDOW - 1
        llama = math.exp(nats / counted)
        assert abs(rounded / llama - 1) < 5e-3, (rounded, llama)
        said += f", {llama:.4f} llama.cpp"
    return said


def greedy(lumen, work, model, tokenizer, network):
    """Each token of our greedy text is the likeliest of transformers' after the same tokens, or nearly."""
    s = serve_check.Served(lumen, work, "-m", model, "--ctx-size", 512, "--exact")
    ties = []
    try:
        for prompt in PROMPTS:
            ids = s.json("/tokenize", {"prompt": prompt, "add_special_tokens": True})["tokens"]
            answer = s.json("/completion", {"prompt": ids, "temperature": 0, "n_predict": 200, "ignore_eos": True, "return_tokens": True})
            ours = answer["tokens"]
            assert len(ours) == 200, answer
            rows = log_probabilities(network, ids + ours)[len(ids) - 1 : -1]
            for place, (row, token) in enumerate(zip(rows, ours)):
                row[[k for k in tokenizer.all_special_ids if k != token]] = -np.inf  # an end does not end this text
                if row.argmax() == token:
                    continue
                gap = float(row.max() - row[token])
                ties.append(f"{tokenizer.decode([token])!r} for {tokenizer.decode([int(row.argmax())])!r} at {place} of {prompt!r}, {gap:.1e} nats")
                assert gap < NEAR_TIE, ties[-1]
        assert s.end() == 143
    finally:
        s.process.kill()
    return f"{len(PROMPTS)} x 200 greedy tokens are the likeliest, but for {len(ties)} near ties{': ' if ties else ''}{'; '.join(ties)}"


def exported(lumen, folder, model, network):
    lumen_out(lumen, "export", model, folder, "--type", "f32", "-q")
    other = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = list(range(5, 105))
    farthest = float(np.abs(log_probabilities(network, ids) - log_probabilities(other, ids)).max())
    assert farthest < 1e-4, farthest
    return f"the exported folder's logits differ by {farthest:.1e}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lumen")
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--megabytes", type=float, default=1)
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    lumen = str(Path(given.lumen).resolve())
    for name in given.models:
        model = Path(model_file(name))
        network = AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name, dtype=torch.float32).eval()
        with tempfile.TemporaryDirectory(prefix="lumen-answers-") as folder:
            work = Path(folder)
            print(f"{name}: export: {exported(lumen, work / 'folder', model, network)}", flush=True)
            tokenizer = AutoTokenizer.from_pretrained(work / "folder")
            for part, what in (("tokens", lambda: tokens(lumen, model, tokenizer, given.megabytes * 1e6)),
                               ("templates", lambda: templates(lumen, work, model, tokenizer)),
                               ("windows", lambda: windows(lumen, work, model, tokenizer, network)),
                               ("greedy", lambda: greedy(lumen, work, model, tokenizer, network))):
                print(f"{name}: {part}: {what()}", flush=True)


if __name__ == "__main__":
    main()
