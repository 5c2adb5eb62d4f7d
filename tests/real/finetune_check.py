#!/usr/bin/env python3
"""QLoRA of a real model beside peft: the same rows, masks, adapter at the start, rate and optimizer; the losses of all steps agree within 1 %.

Each step takes all rows, so that their order is no matter. Both programs compute in f32 with the file's packed weights (transformers decodes them).
The trained adapter, read by peft, has our validation loss.

Needs torch, transformers, peft, gguf and accelerate from PyPI; without them it says so and exits with 77.
Usage: tests/real/finetune_check.py LUMEN [MODEL] [--data FILE.jsonl] [--rows N] [--length N] [--steps N]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import accelerate  # noqa: F401  transformers reads GGUF files with it
    import gguf  # noqa: F401
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
except ImportError as error:
    print(f"skipped: {error}; pip install torch transformers peft gguf accelerate")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "real"))
sys.path.insert(0, str(ROOT / "tests" / "cli" / "serve"))
from models_check import model_file  # noqa: E402

RATE, SEED, RANK = 2e-4, 3, 8
BOUND = 0.01  # of a step's loss


def lumen_out(lumen, *words):
    done = subprocess.run([lumen, *map(str, words)], capture_output=True, text=True, env={**os.environ, "LUMEN_CONFIG": "off"})
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def trained(lumen, model, data, out, given, rate, steps):
    """The losses of the steps, and of all rows at the end."""
    lumen_out(lumen, "train", "-m", model, "--data", data, "--validation-data", data, "--lora", "--lora-rank", RANK, "--lora-alpha", 2 * RANK,
              "-b", given.rows, "-c", given.length, "--steps", steps, "--warmup", 0, "--schedule", "constant", "--lr", rate, "--weight-decay", 0,
              "--max-grad-norm", 0, "-s", SEED, "--eval-every", 0, "-o", out, "-q")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "lr" in line], [line["validation_loss"] for line in lines if "validation_loss" in line][-1]


def batch_of(lumen, model, data, given):
    """Token numbers and targets of all rows; -100 where nothing is learned."""
    rows = [json.loads(line) for line in lumen_out(lumen, "data", "preview", "-m", model, "--data", data, "-n", given.rows, "--json").splitlines()]
    assert len(rows) == given.rows, (len(rows), given.rows)
    ids = torch.zeros(given.rows, given.length, dtype=torch.long)
    targets = torch.full_like(ids, -100)
    for k, row in enumerate(rows):
        assert len(row["ids"]) <= given.length, "a longer --length is needed"
        for i, (token, learned) in enumerate(zip(row["ids"], row["learned"])):
            ids[k, i] = token
            if learned:
                targets[k, i] = token
    return ids, targets


def loss_of(network, ids, targets, backward):
    """The mean over all learned tokens, a few rows at a time."""
    count, total = int((targets[:, 1:] >= 0).sum()), 0.0
    for first in range(0, len(ids), 4):
        some = slice(first, first + 4)
        logits = network(ids[some]).logits[:, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[some, 1:].flatten(), reduction="sum") / count
        if backward:
            loss.backward()
        total += loss.item()
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lumen")
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--data", default=str(ROOT / "examples/library/questions.jsonl"))
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    lumen, model = str(Path(given.lumen).resolve()), Path(model_file(given.model))
    with tempfile.TemporaryDirectory(prefix="lumen-finetune-") as folder:
        work = Path(folder)
        data = work / "rows.jsonl"
        data.write_text("".join(line + "\n" for line in Path(given.data).read_text().splitlines()[: given.rows]))
        trained(lumen, model, data, work / "start", given, 1e-30, 1)  # its adapter is that before the first step
        ours, ours_end = trained(lumen, model, data, work / "ours", given, RATE, given.steps)

        def network(adapter, learns):
            base = AutoModelForCausalLM.from_pretrained(model.parent, gguf_file=model.name, dtype=torch.float32)
            return PeftModel.from_pretrained(base, str(adapter), is_trainable=learns)

        ids, targets = batch_of(lumen, model, data, given)
        peft = network(work / "start" / "adapter", True)
        optimizer = torch.optim.AdamW([p for p in peft.parameters() if p.requires_grad], lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
        theirs = []
        for _ in range(given.steps):
            theirs.append(loss_of(peft, ids, targets, True))
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            theirs_end = loss_of(peft, ids, targets, False)
            read_by_peft = loss_of(network(work / "ours" / "adapter", False), ids, targets, False)
        farthest = max(abs(a / b - 1) for a, b in zip(ours, theirs))
        print(f"{given.model}: {given.rows} rows, {given.steps} steps: loss {ours[0]:.4f} to {ours_end:.4f}, with peft {theirs[0]:.4f} to {theirs_end:.4f}; "
              f"steps differ by up to {100 * farthest:.3f} %; peft reads our adapter with a loss of {read_by_peft:.4f}", flush=True)
        assert ours_end < 0.9 * ours[0], "nothing was learned"
        assert farthest < BOUND, list(zip(ours, theirs))
        assert abs(ours_end / theirs_end - 1) < BOUND
        assert abs(read_by_peft / ours_end - 1) < 2e-4, (read_by_peft, ours_end)


if __name__ == "__main__":
    main()
