#!/usr/bin/env python3
"""A run whose states of the optimizer lie in a file, killed (kill -9) at random moments and resumed, ends with the very model of a
run that holds them; no file is left; where the file finds no room, the run ends with code 1 and its checkpoints are whole.

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

KILLS = int(os.environ.get("LUMEN_KILLS", "3"))


def main() -> None:
    lumen = str(Path(sys.argv[1]).resolve())
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = [lumen, "train", "--shape", "tiny", "--steps", "40", "--warmup", "5", "--save-every", "4", "--eval-every", "0",
               "--seed", str(seed), "--param-type", "bf16", "--moments", "mxfp8_e4m3", "-q"]
        started = time.monotonic()
        subprocess.run([*run, "-o", "held"], cwd=folder, check=True, capture_output=True)
        whole = time.monotonic() - started
        expected = (folder / "held/model.gguf").read_bytes()
        kills = 0
        while True:
            resumes = any((folder / "out").glob("checkpoint-*"))
            command = [lumen, "train", "--resume", "-o", "out", "-q"] if resumes else \
                [*run, "--offload", "moments", "-o", "out", "--overwrite"]
            process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if kills < KILLS:
                time.sleep(draw.uniform(0.2, 0.9) * whole)
                process.send_signal(signal.SIGKILL)
            _, text = process.communicate()
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL, text
            kills += 1
        assert (folder / "out/model.gguf").read_bytes() == expected, f"another model after {kills} kills, seed {seed}"
        left = [p.name for p in (folder / "out").iterdir() if "offload" in p.name]
        assert not left, left

        # A file system that takes no file of the size that is needed.
        def small() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

        before = sorted(p.name for p in (folder / "out").glob("checkpoint-*"))
        full = subprocess.run([lumen, "train", "--resume", "-o", "out", "--steps", "44", "-q", "--cache", "off"], cwd=folder,
                              capture_output=True, text=True, preexec_fn=small)
        assert full.returncode == 1, (full.returncode, full.stderr)
        assert "no room for the" in full.stderr and "lumen-offload" in full.stderr, full.stderr
        assert sorted(p.name for p in (folder / "out").glob("checkpoint-*")) == before
        more = subprocess.run([lumen, "train", "--resume", "-o", "out", "--steps", "44", "-q"], cwd=folder, capture_output=True,
                              text=True)
        assert more.returncode == 0, more.stderr
        print(f"offload: the same model after {kills} kills; a full disk stops with a clear line")


if __name__ == "__main__":
    main()
