#!/usr/bin/env python3
"""Crashes of the program as a whole: a training run killed at random moments and resumed ends with the very bytes of a run left
alone; Ctrl-C, SIGTERM and SIGHUP end with code 128 + the signal's number and a checkpoint, a second signal at once; two runs
in one folder are refused, and what a killed run left there is gone after the next; a disk that fills up leaves the last
checkpoint whole and says so, and nothing of an export; a second start compiles nothing.

Usage: tests/cli/crash_check.py LUMEN [SEED]
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

STEPS = 600


def command(lumen, cache, out, *more):
    return [lumen, "train", "--shape", "tiny", "--steps", str(STEPS), "--save-every", "20", "--eval-every", "0", "--validation", "0.02",
            "--cache", str(cache), "-o", str(out), *more]


def run(words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


def checkpoints(out):
    return sorted(p for p in Path(out).glob("checkpoint-*"))


def killed_at_random(lumen, cache, out, rng, whole_takes):
    """Kills and resumes until a run ends by itself; returns how many were killed. The first six starts get a moment of
    a quarter of the whole run's time at most, so that several kills fall into any run, however fast the machine."""
    kills = 0
    for start in range(100):
        resume = ["--resume"] if checkpoints(out) else []
        process = subprocess.Popen(command(lumen, cache, out, *resume), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=rng.uniform(0.02, 0.25) * whole_takes if start < 6 else 300)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            continue
        assert process.returncode == 0, process.stderr.read().decode()
        return kills


def exports(lumen, work, full):
    """A disk that fills up leaves nothing of an export, and what a kill left goes with the next one."""
    model, place = str(work / "whole/model.gguf"), work / "exports"
    place.mkdir()
    for name in ("a.gguf", "folder", "new/folder"):
        done = run([lumen, "export", model, str(place / name)], preexec_fn=full)
        assert done.returncode == 1 and f"{name}" in done.stderr and "ulimit -f" in done.stderr, (name, done.returncode, done.stderr)
        assert not list(place.iterdir()), f"{name}: left {list(place.iterdir())}"
    second = place / "b-00002-of-00002.gguf"
    second.mkdir()
    done = run([lumen, "export", model, str(place / "b.gguf"), "--split-max-size", "50000"])
    assert done.returncode == 1 and second.name in done.stderr, (done.returncode, done.stderr)
    assert list(place.iterdir()) == [second], f"the first of two files was left: {list(place.iterdir())}"
    second.rmdir()
    (place / ".a.gguf.1.0.part").write_bytes(b"half")
    (place / ".folder.1.0.part").mkdir()
    (place / ".folder.1.0.part/model.safetensors").write_bytes(b"half")
    for name in ("a.gguf", "folder"):
        done = run([lumen, "export", model, str(place / name)])
        assert done.returncode == 0, done.stderr
    for file in (place / "folder").iterdir():
        file.write_bytes(b"old " + file.name.encode())
    before = {p.name: p.read_bytes() for p in (place / "folder").iterdir()}
    done = run([lumen, "export", model, str(place / "folder")], preexec_fn=full)
    assert done.returncode == 1, done.stderr
    assert before == {p.name: p.read_bytes() for p in (place / "folder").iterdir()}, "a folder was left half replaced"
    assert sorted(p.name for p in place.iterdir()) == ["a.gguf", "folder"], list(place.iterdir())
    print("exports: nothing half done is left")


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="lumen-crash-") as folder:
        work = Path(folder)
        cache = work / "cache"
        done = run(command(lumen, cache, work / "whole"))
        assert done.returncode == 0, done.stderr

        begin = time.monotonic()
        done = run(command(lumen, cache, work / "warm"))
        assert done.returncode == 0, done.stderr
        kills = killed_at_random(lumen, cache, work / "killed", rng, time.monotonic() - begin)
        assert kills >= 3, f"only {kills} runs were killed: nothing is proved"
        whole, killed = ((work / name / "model.gguf").read_bytes() for name in ("whole", "killed"))
        assert whole == killed, "a killed and resumed run ended with other weights"
        print(f"killed {kills} times, resumed: equal bytes")

        out = work / "stopped"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            before = checkpoints(out)
            process = subprocess.Popen(command(lumen, cache, out, *(["--resume"] if before else [])), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE)
            while process.poll() is None and checkpoints(out) == before:
                time.sleep(0.01)
            if number == signal.SIGTERM:
                second = run(command(lumen, cache, out, "--resume"))
                if process.poll() is None:
                    assert second.returncode == 1 and f"process {process.pid}" in second.stderr, (second.returncode, second.stderr)
            process.send_signal(number)
            error = process.communicate(timeout=60)[1].decode()
            if process.returncode == 0 and number != signal.SIGINT:
                continue  # the run had ended by itself
            assert process.returncode == 128 + number, f"signal {number} ended with {process.returncode}: {error}"
            assert checkpoints(out), f"signal {number} left no checkpoint"
        done = run(command(lumen, cache, out, "--resume"))
        assert done.returncode == 0, done.stderr
        assert (out / "model.gguf").read_bytes() == whole, "stopped and resumed: other weights"
        leavings = [p for p in list(out.iterdir()) + list((work / "killed").iterdir()) if p.name.startswith(".")]
        assert not leavings, f"left behind: {leavings}"
        print("signals: codes 130, 143, 129, resumed: equal bytes; the second run was refused; no leavings")

        # A long save and a second signal: the program ends at once.
        process = subprocess.Popen(command(lumen, cache, work / "twice"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not checkpoints(work / "twice"):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) in (130, 143), process.returncode

        # No file may grow beyond what the metrics need: checkpoints cannot be written any more.
        def full():
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

        out = work / "full"
        done = run([w if w != str(STEPS) else "40" for w in command(lumen, cache, out)])
        assert done.returncode == 0, done.stderr
        before = {p.name: {f.name: f.read_bytes() for f in p.iterdir()} for p in checkpoints(out)}
        done = run(command(lumen, cache, out, "--resume"), preexec_fn=full)
        assert done.returncode == 1 and "checkpoint" in done.stderr and "ulimit -f" in done.stderr, (done.returncode, done.stderr)
        after = {p.name: {f.name: f.read_bytes() for f in p.iterdir()} for p in checkpoints(out)}
        assert before == after, "a full disk changed a checkpoint"
        done = run(command(lumen, cache, out, "--resume"))
        assert done.returncode == 0, done.stderr
        print("full disk:", [line for line in done.stderr.splitlines() if "resumed" in line], "checkpoints whole")

        exports(lumen, work, full)

        files = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in cache.rglob("*") if p.is_file()}
        # Without the tuner, which compiles other plans whenever it finds the time, on a busy machine in this run only.
        done = run(command(lumen, cache, work / "again", "-v", "--no-tune"))
        assert done.returncode == 0, done.stderr
        assert files == {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in cache.rglob("*") if p.is_file()}, "compiled again"
        assert os.path.getsize(work / "again" / "model.gguf") == len(whole)
        print("second start: no kernel was compiled")


if __name__ == "__main__":
    main()
