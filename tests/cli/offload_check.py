#!/usr/bin/env python3
"""A run whose states of the optimizer, or whose layers and what they keep, lie in a file, killed (kill -9) at random moments and resumed, ends with
the very model of a run left alone; no file is left; where the file finds no room, the run ends with code 1 and its checkpoints are
whole.

Usage: tests/cli/offload_check.py LUMEN [SEED]
"""
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLS = int(os.environ.get("LUMEN_KILLS", "2"))


def killed_run(lumen: str, run: list[str], out: str, folder: Path, seconds: float, draw: random.Random) -> int:
    """Kills it at random moments and goes on until its end; how often that was."""
    kills = 0
    while True:
        resumes = any((folder / out).glob("checkpoint-*"))
        command = [lumen, "train", "--resume", "-o", out, "-q"] if resumes else [*run, "-o", out, "--overwrite"]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if kills < KILLS:
            time.sleep(draw.uniform(0.2, 0.9) * seconds)
            process.send_signal(signal.SIGKILL)
        _, text = process.communicate()
        if process.returncode == 0:
            return kills
        assert process.returncode == -signal.SIGKILL, text
        kills += 1


def small_files() -> None:
    """A file system that takes no file of the size that is needed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def main() -> None:
    lumen = str(Path(sys.argv[1]).resolve())
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = [lumen, "train", "--shape", "tiny", "--steps", "40", "--warmup", "5", "--save-every", "4", "--eval-every", "0",
               "--seed", str(seed), "--param-type", "bf16", "--moments", "mxfp8_e4m3", "-q"]
        kills = 0
        # Steps by layers may round otherwise than whole ones; they are held to themselves.
        kept = ["--accumulate", "2", "--precision", "moss"]
        for offload, held, more in (("moments", [], []), ("layers", ["--offload", "layers"], []),
                                    ("activations", ["--offload", "activations,layers"], kept)):
            started = time.monotonic()
            subprocess.run([*run, *more, *held, "-o", f"held-{offload}"], cwd=folder, check=True, capture_output=True)
            seconds = time.monotonic() - started
            kills += killed_run(lumen, [*run, *more, "--offload", offload], offload, folder, seconds, draw)
            expected = (folder / f"held-{offload}/model.gguf").read_bytes()
            assert (folder / offload / "model.gguf").read_bytes() == expected, f"{offload}: another model, seed {seed}"
            left = [p.name for p in (folder / offload).iterdir() if "offload" in p.name]
            assert not left, left

        for name in ("moments", "activations"):
            out = folder / name
            more = [lumen, "train", "--resume", "-o", name, "--steps", "44", "-q"]
            before = sorted(p.name for p in out.glob("checkpoint-*"))
            full = subprocess.run([*more, "--cache", "off"], cwd=folder, capture_output=True, text=True, preexec_fn=small_files)
            assert full.returncode == 1, (full.returncode, full.stderr)
            assert "no room for the" in full.stderr and "lumen-offload" in full.stderr, full.stderr
            assert sorted(p.name for p in out.glob("checkpoint-*")) == before
            again = subprocess.run(more, cwd=folder, capture_output=True, text=True)
            assert again.returncode == 0, again.stderr
        print(f"offload: the same models after {kills} kills; a full disk stops with a clear line")


if __name__ == "__main__":
    main()
