#!/usr/bin/env python3
"""Event files of `lumen train --tensorboard` as the real TensorBoard reads them: the scalars of metrics.jsonl, texts, and
a resumed run in place of the steps it does again.

usage: tensorboard_reference.py LUMEN      exit code 77: the library is missing, nothing was checked
"""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util
except ImportError as missing:
    print(f"skipped: {missing}; pip install tensorboard")
    sys.exit(77)


def read(folder):
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def check(folder, steps):
    events = read(folder)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = {line["step"]: line for line in lines if "loss" in line}
    assert sorted(logged) == list(range(1, steps + 1)), sorted(logged)
    for tag, key in (("train/loss", "loss"), ("train/grad_norm", "norm"), ("train/learning_rate", "lr"), ("speed/mfu", "mfu")):
        scalars = events.Scalars(tag)
        assert [s.step for s in scalars] == sorted(logged), (tag, [s.step for s in scalars])
        for s in scalars:
            assert math.isclose(s.value, logged[s.step][key], rel_tol=1e-6, abs_tol=1e-30), (tag, s)
    validation = {s.step: s.value for s in events.Scalars("validation/loss")}
    # The last evaluation has a tag of its own where it reads more rows than the others.
    last = "validation/loss_of_all_rows"
    last = {s.step: s.value for s in events.Scalars(last)} if last in events.Tags()["scalars"] else {}
    rows = min(line["validation_rows"] for line in lines if "validation_loss" in line)
    for line in lines:
        if "validation_loss" in line:
            scalars = validation if line["validation_rows"] == rows else last
            assert math.isclose(scalars[line["step"]], line["validation_loss"], rel_tol=1e-6)
    texts = [t for t in events.Tags()["tensors"] if t.startswith("samples/")]
    assert texts == ["samples/the cat"], texts
    text = tensor_util.make_ndarray(events.Tensors(texts[0])[-1].tensor_proto).item().decode()
    samples = [line["samples"] for line in lines if "samples" in line]
    assert text == "the cat" + samples[-1][0]["text"], text


def main():
    lumen = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text.txt").write_text("the cat sat on the mat. a dog ran to the cat. " * 200)
        run = folder / "run"
        train = [lumen, "train", "--shape", "tiny", "--data", folder / "text.txt", "--length", "16", "--batch", "4", "--steps", "12",
                 "--warmup", "2", "--eval-every", "4", "--save-every", "5", "--keep", "0", "--tensorboard", "--sample-prompt", "the cat",
                 "--sample-tokens", "4", "-o", run, "-q"]
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
        check(run, 12)
        subprocess.run([lumen, "train", "--resume", run / "checkpoint-5", "-q"], check=True, stdout=subprocess.DEVNULL)
        assert len(list((run / "tensorboard").iterdir())) == 2
        check(run, 12)
    print("tensorboard: scalars and texts equal metrics.jsonl, over a resumed run as well")


if __name__ == "__main__":
    main()
