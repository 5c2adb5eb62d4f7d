#!/usr/bin/env python3
"""A run in phases (all weights; an adapter beside them, of packed conversations; the same adapter on pairs; all weights again
in a format after the merge), killed or stopped by Ctrl-C at random moments and resumed, ends with the very bytes of a run left
alone; what is handed over is the best of a phase where its recipe says so; the ready recipes run.

Usage: tests/cli/phases_check.py LUMEN [SEED]

LUMEN_KILLS in the environment is how many kills there are in all (4 without it; releases are held to 50). When a run has come
to its end before, another one begins, with another seed, order of data and packing.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLS = int(os.environ.get("LUMEN_KILLS", "4"))
ROOT = Path(__file__).resolve().parent.parent.parent

PHASES = """
[model]
size = "tiny"
[data]
path = "texts.txt"
tokenizer = "characters"
validation = 0.1
[run]
seed = {seed}
batch = 2
length = 24
evaluate_every = 0
save_every = {save_every}
[schedule]
warmup_steps = 2
steps = 60

[[phase]]
name = "texts"

[[phase]]
name = "chats"
begin = "model"
[phase.data]
path = "chats.jsonl"
packing = {packing}
[phase.run]
length = 96
[phase.adapter]
method = "lora"
rank = 2

[[phase]]
name = "pairs"
begin = "adapter"
[phase.data]
path = "pairs.jsonl"
validation = 0.2
[phase.run]
length = 96
evaluate_every = 4
[phase.evaluation]
load_best = true
[phase.schedule]
steps = 20
learning_rate = 0.2
[phase.objective]
name = "dpo"
[phase.adapter]
method = "lora"
rank = 2

[[phase]]
name = "rounded"
begin = "merged"
[phase.schedule]
steps = 40
[[phase.quantize]]
value = "*"
format = "q8_0"
"""


def write_data(work):
    rng = random.Random(7)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "dog", "user", "assistant", "yes", "no", "why"]
    sentence = lambda n: " ".join(rng.choice(words) for _ in range(n))
    letters = "".join(chr(c) for c in range(32, 127)) + "\n"  # everything that templates may print
    (work / "texts.txt").write_text(letters * 3 + "\n".join(sentence(9) for _ in range(300)) + "\n")
    with open(work / "chats.jsonl", "w") as f:
        for _ in range(60):
            f.write(json.dumps({"messages": [{"role": "user", "content": sentence(3)},
                                             {"role": "assistant", "content": sentence(4)}]}) + "\n")
    with open(work / "pairs.jsonl", "w") as f:
        for _ in range(40):
            f.write(json.dumps({"prompt": sentence(3), "chosen": sentence(3), "rejected": sentence(3)}) + "\n")


def start(lumen, work, out, *more):
    words = [lumen, "train", "--cache", str(work / "cache"), "-o", str(out), *more]
    return subprocess.Popen(words, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, (process.args, out[-2000:], err[-4000:])
    return out


def result(out):
    """All that must be the same: models, and the last checkpoint of each phase."""
    files = {}
    for path in sorted(out.rglob("*")):
        inside = path.relative_to(out)
        if path.is_file() and path.suffix in (".gguf", ".safetensors"):
            files[str(inside)] = path.read_bytes()
    assert any(name == "model.gguf" for name in files), sorted(files)
    assert any(name.startswith("2-chats/checkpoint-60/") for name in files), sorted(files)
    return files


def kills(lumen, work, rng):
    killed, rounds = 0, 0
    while killed < KILLS or rounds == 0:
        settings = {"seed": rounds + 1, "save_every": rng.choice([3, 5, 8]), "packing": "false" if rounds % 2 else "true"}
        recipe = PHASES
        for name, value in settings.items():
            recipe = recipe.replace(f"{{{name}}}", str(value))
        (work / "recipe.toml").write_text(recipe)
        killed += killed_run(lumen, work, rng, KILLS - killed)
        rounds += 1
        if rounds == 1:
            best(lumen, work)
    print(f"{killed} kills over four phases, {rounds} run{'s' * (rounds > 1)}: files alike")


def killed_run(lumen, work, rng, most):
    """One run, killed at most so many times, beside the same left alone; returns the kills."""
    # Files name the model they were trained beside, so that both runs are in one place.
    out, killed, saved = work / "run", 0, False
    shutil.rmtree(out, ignore_errors=True)
    began = time.time()
    finished(start(lumen, work, out, "-r", "recipe.toml"))
    whole_takes = time.time() - began
    want = result(out)
    shutil.rmtree(out)
    while True:
        resume = ["--resume"] if (out / "phases.json").exists() else ["-r", "recipe.toml"]
        process = start(lumen, work, out, *resume)
        if killed >= most:
            finished(process)
            break
        try:
            _, said = process.communicate(timeout=rng.uniform(0.02, 0.25) * whole_takes)
        except subprocess.TimeoutExpired:
            stopped = rng.random() < 0.25
            process.send_signal(signal.SIGINT if stopped else signal.SIGKILL)
            _, said = process.communicate()
            # What does not train yet, or no more, ends at once.
            assert process.returncode in ((0, 130, -signal.SIGINT) if stopped else (0, -signal.SIGKILL)), said[-4000:]
            killed += 1
            saved = saved or stopped
            continue
        assert process.returncode == 0, said[-4000:]
        break
    got = result(out)
    if saved:  # what Ctrl-C saved takes the place of an older checkpoint of its phase: those that both have are compared
        folder = lambda name: name.rpartition("/")[0]
        both = {folder(name) for name in set(got) & set(want)}
        stays = lambda name: "/checkpoint-" not in name or folder(name) in both
        got, want = ({n: c for n, c in files.items() if stays(n)} for files in (got, want))
    assert sorted(got) == sorted(want), set(got) ^ set(want)
    for name, content in want.items():
        assert got[name] == content, f"{name} differs after {killed} kills"
    return killed


def best(lumen, work):
    """The phase after one with load_best began with the weights that its files have."""
    run = work / "run"
    last, chosen = (max(int(p.name.split("-")[1]) for p in run.glob("3-pairs/checkpoint-*")),
                    int((run / "3-pairs/best").readlink().name.split("-")[1]))
    assert chosen < last, f"the last step ({last}) is the best: nothing is proved"
    merged = work / "merged.gguf"
    done = subprocess.run([lumen, "merge", "--cache", str(work / "cache"), str(run / "1-texts/model.gguf"),
                           str(run / "3-pairs/adapter"), "-o", str(merged), "--type", "f32", "--no-check"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    weights = 90_000  # bytes at the ends of the files: tensors, whatever stands before them
    assert (run / "3-pairs/merged.gguf").read_bytes()[-weights:] == merged.read_bytes()[-weights:], "the last state was handed over, not the best"
    assert not (run / "best").exists(), "checkpoints stay in their phases"
    print(f"handed over after step {chosen} of {last}, the best")


def recipes(lumen, work):
    """Each ready recipe, a few steps of a tiny model."""
    few = ["--steps", "3", "--warmup", "1", "--length", "96", "--batch", "2", "--accumulate", "2", "--overwrite", "--save-every", "0"]
    base = str(work / "run/1-texts/model.gguf")
    (work / "texts").mkdir()
    (work / "texts/a.txt").write_text((work / "texts.txt").read_text())
    data = {"lora": "chats.jsonl", "qlora": "chats.jsonl", "qlora-korean": "chats.jsonl", "dpo": "pairs.jsonl"}
    for name, file in data.items():
        finished(start(lumen, work, work / f"ready-{name}", "-r", name, "-m", base, "--data", file, "--lora-rank", "4", *few))
    finished(start(lumen, work, work / "ready-two", "-r", "cpt-then-sft", "-m", base, *few))
    assert json.loads((work / "ready-two/phases.json").read_text())["done"] == 2
    print("ready recipes run:", ", ".join([*data, "cpt-then-sft"]))


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_data(work)
        kills(lumen, work, random.Random(seed))
        recipes(lumen, work)


if __name__ == "__main__":
    main()
