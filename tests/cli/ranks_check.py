#!/usr/bin/env python3
"""Several processes train one model: losses follow those of one process, repeated runs have the same bytes, checkpoints have the
layout of one process and are gone on with by any number of ranks; a rank that is killed (kill -9) at a random moment ends the
others within seconds, nothing is lost, and what is resumed ends in the very bytes of a run left alone. Ranks are started by
--ranks, and as torchrun, srun and mpirun start them (mpirun itself where it is installed).

Usage: tests/cli/ranks_check.py LUMEN [SEED]

LUMEN_KILLS in the environment is how many ranks are killed in all (3 without it; releases are held to 20).
"""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLS = int(os.environ.get("LUMEN_KILLS", "3"))
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LONGEST = 300  # seconds of anything
ENDS_WITHIN = 20  # seconds after a rank is killed, on a machine that has much else to do
BASE = ["--shape", "tiny", "--warmup", "2", "--batch", "4", "--length", "32", "--threads", "1", "--eval-every", "4", "--save-every", "4", "-q"]


class Check:
    def __init__(self, lumen, work):
        self.lumen, self.work = lumen, work
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD_", "SLURM_", "OMPI_", "MASTER_"))}
        self.environment["LUMEN_CACHE"] = str(work / "cache")

    def start(self, *words, before=(), **variables):
        return subprocess.Popen([*before, self.lumen, "train", *map(str, words)], cwd=self.work, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**self.environment, **variables})

    def run(self, *words, code=0, before=(), **variables):
        process = self.start(*words, before=before, **variables)
        out, err = process.communicate(timeout=LONGEST)
        assert process.returncode == code, (process.args, process.returncode, out[-1000:], err[-3000:])
        return out + err

    def result(self, out):
        """All that must be the same: the model, and every checkpoint."""
        return {str(p.relative_to(self.work / out)): p.read_bytes() for p in sorted((self.work / out).rglob("*"))
                if p.is_file() and p.suffix in (".gguf", ".safetensors")}

    def same(self, a, b, what):
        first, second = self.result(a), self.result(b)
        assert first and first.keys() == second.keys(), (what, first.keys() ^ second.keys())
        for name, content in first.items():
            assert content == second[name], f"{what}: {name} differs"

    def losses(self, out):
        lines = [json.loads(line) for line in (self.work / out / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "norm" in line]

    def near(self, a, b, within):
        first, second = self.losses(a), self.losses(b)
        assert len(first) == len(second) > 0
        for x, y in zip(first, second):
            assert abs(x - y) <= within * abs(x), (a, b, x, y)


def layout(path):
    """A safetensors file's header: names, types, shapes and places."""
    blob = path.read_bytes()
    return blob[8:8 + int.from_bytes(blob[:8], "little")]


def runs_alike(c):
    c.run(*BASE, "--steps", 12, "-o", "alone")
    for shard in ("none", "states", "gradients", "parameters"):
        words = [*BASE, "--steps", 12, "--keep", 0, "--ranks", 4, "--shard", shard]
        c.run(*words, "-o", f"four-{shard}")
        c.near("alone", f"four-{shard}", 1e-5)
        for part in ("model", "optimizer"):
            name = f"checkpoint-12/{part}.safetensors"
            assert layout(c.work / f"four-{shard}" / name) == layout(c.work / "alone" / name), (shard, part)
        if shard == "parameters":
            c.run(*words, "-o", "again")
            c.same(f"four-{shard}", "again", "a second run")
            shutil.rmtree(c.work / "again")
        if shard in ("gradients", "parameters"):
            c.same("four-states", f"four-{shard}", shard)
        # Gone on with from the checkpoint in the middle: by as many ranks the same bytes, by fewer the same run.
        for ranks, resumed in ((4, "same"), (2, "fewer"), (1, "one")):
            if ranks < 4 and shard != "parameters":
                continue  # from the same checkpoint as with parameters
            shutil.copytree(c.work / f"four-{shard}", c.work / resumed, symlinks=True)
            for step in (8, 12):
                shutil.rmtree(c.work / resumed / f"checkpoint-{step}")
            c.run("--resume", resumed, "--ranks", ranks, "--shard", shard, "--threads", 1, "-q")
            if ranks == 4:
                c.same(f"four-{shard}", resumed, "a resumed run")
            else:
                c.near(f"four-{shard}", resumed, 1e-5)
            shutil.rmtree(c.work / resumed)


def formats_and_kinds(c):
    """Exchanges in formats, and everything that is trained otherwise than plain weights."""
    for name, more in {
        "coded": ["--shard", "gradients", "--reduce-type", "q8_0", "--gather-type", "q8_0"],
        "coded-sums": ["--reduce-type", "mxfp8_e4m3"],
        "coded-layers": ["--shard", "parameters", "--reduce-type", "q8_0", "--gather-type", "q8_0"],
    }.items():
        words = [*BASE, "--steps", 12, "--keep", 0, "--ranks", 2, *more]
        c.run(*words, "-o", name)
        c.near("alone", name, 2e-2)
        assert c.losses("alone") != c.losses(name)
        # What exchanges have lost is forgotten at checkpoints, so that a run that goes on from one ends in the same bytes.
        shutil.copytree(c.work / name, c.work / "resumed")
        for step in (8, 12):
            shutil.rmtree(c.work / "resumed" / f"checkpoint-{step}")
        c.run("--resume", "resumed", "--ranks", 2, *more, "--threads", 1, "-q")
        c.same(name, "resumed", name)
        shutil.rmtree(c.work / "resumed")
    kinds = {
        "muon": ["--optimizer", "muon"], "adafactor": ["--optimizer", "adafactor"],
        "moments": ["--moments", "q8_0"], "halves": ["--param-type", "bf16"],
        "rests": ["--param-type", "bf16", "--param-compensation", "exact"], "mean": ["--ema", "0.9"],
        "parts": ["--accumulate", "2"], "adapter": ["-m", "alone/model.gguf", "--lora", "--lora-rank", "4"],
    }
    for name, more in kinds.items():
        base = BASE[2:] if name == "adapter" else BASE
        c.run(*base, "--steps", 8, *more, "-o", f"one-{name}")
        for shard in ("gradients", "parameters") if name in ("muon", "halves", "rests", "mean", "parts") else ("gradients",):
            c.run(*base, "--steps", 8, "--ranks", 2, "--shard", shard, *more, "-o", name)
            c.near(f"one-{name}", name, 1e-2 if name == "halves" else 1e-3)
            for path in sorted((c.work / name / "checkpoint-8").glob("*.safetensors")):
                assert layout(path) == layout(c.work / f"one-{name}" / "checkpoint-8" / path.name), path
            shutil.rmtree(c.work / name)
        shutil.rmtree(c.work / f"one-{name}")


def scales(c):
    """Scales that steps before tell: those of the whole batch, and in checkpoints those of one process."""
    for precision, shard in (("fp8-delayed", "none"), ("moss", "states"), ("moss", "gradients"), ("fp8-delayed", "parameters"), ("moss", "parameters")):
        words = [*BASE, "--steps", 8, "--keep", 0, "--precision", precision]
        one = f"one-{precision}"
        is_new = not (c.work / one).exists()
        if is_new:
            c.run(*words, "-o", one)
        c.run(*words, "--ranks", 2, "--shard", shard, "-o", "scaled")
        c.near(one, "scaled", 1e-2)
        assert layout(c.work / "scaled/checkpoint-8/optimizer.safetensors") == layout(c.work / one / "checkpoint-8/optimizer.safetensors")
        for ranks, resumed in ((2, "same"), (1, "one")) if is_new else ((2, "same"),):
            shutil.copytree(c.work / "scaled", c.work / resumed, symlinks=True)
            shutil.rmtree(c.work / resumed / "checkpoint-8")
            c.run("--resume", resumed, "--ranks", ranks, "--shard", shard, "--threads", 1, "-q")
            if ranks == 2:
                c.same("scaled", resumed, precision)
            else:
                c.near("scaled", resumed, 1e-2)
            shutil.rmtree(c.work / resumed)
        shutil.rmtree(c.work / "scaled")
    for precision in ("fp8-delayed", "moss"):
        shutil.rmtree(c.work / f"one-{precision}")


def killed(c, seed, shard, count, *more):
    """`more`: of the runs that are killed; the one that is left alone goes without."""
    rng = random.Random(f"{seed} {shard}")
    steps = 100
    words = [*BASE, "--steps", steps, "--keep", 0, "--seed", seed, "--ranks", 4]
    saved_now = lambda: set((c.work / "killed").glob("checkpoint-*"))
    begin = time.time()
    c.run(*words, "--shard", shard, "-o", "left-alone")
    whole = time.time() - begin
    kills, resumes, slowest = 0, 0, 0.0
    while kills < count:
        shutil.rmtree(c.work / "killed", ignore_errors=True)
        go_on = [*words, "--shard", shard, *more, "-o", "killed"]
        while True:
            before = saved_now()
            process = c.start(*go_on)
            wait = rng.uniform(0.3, 1.0) * whole if kills < count else LONGEST
            if kills < count and rng.random() < 0.7:  # starting takes most of the time: a kill within the steps
                while process.poll() is None and saved_now() <= before:
                    time.sleep(0.005)
                wait = rng.uniform(0, 0.5)
            end = time.time() + wait
            while process.poll() is None and time.time() < end:
                time.sleep(0.01)
            if process.poll() is None:
                ranks = [int(p) for p in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
                if not ranks:
                    continue
                os.kill(rng.choice(ranks), signal.SIGKILL)
                hit = time.time()
                out, err = process.communicate(timeout=LONGEST)
                took = time.time() - hit
                slowest = max(slowest, took)
                assert took < ENDS_WITHIN, f"{took:.1f} s until all had ended"
                if process.returncode == 0:
                    break  # the rank had done all
                assert process.returncode in (1, 3), (process.returncode, err)
                assert "rank" in err and "Killed" in err, err
                kills += 1
            else:
                out, err = process.communicate(timeout=LONGEST)
                assert process.returncode == 0, err
                break
            saved = list((c.work / "killed").glob("checkpoint-*"))
            resumes += bool(saved)
            go_on = (["--resume", "killed", "--ranks", 4, "--shard", shard, "--threads", 1, "-q"] if saved else
                     [*words, "--shard", shard, *more, "-o", "killed", "--overwrite"])
            # A rank may have been killed before the first had made the folder.
            assert not list((c.work / "killed").glob("*offload*"))
        c.same("left-alone", "killed", f"after {kills} kills")
    print(f"ranks: with {shard} in parts {kills} killed, {resumes} times resumed from a checkpoint; all had ended within {slowest:.1f} s; same bytes")
    # With fewer ranks it goes on as well.
    shutil.rmtree(c.work / "killed" / f"checkpoint-{steps}")
    c.run("--resume", "killed", "--ranks", 2, "--threads", 1, "-q")
    c.near("left-alone", "killed", 1e-4)
    for p in ("left-alone", "killed"):
        shutil.rmtree(c.work / p)


def stopped(c):
    process = c.start(*BASE, "--steps", 100000, "--ranks", 4, "-o", "stopped")
    while not list((c.work / "stopped").glob("checkpoint-*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 143, (process.returncode, err)
    assert list((c.work / "stopped").glob("checkpoint-*"))


def outside(c):
    """Layers, gradients and states in files, each rank's in its own: the bytes of ranks that hold them, also when other ranks go on;
    where a file finds no room all end, and the checkpoint is whole."""
    words = [*BASE, "--steps", 8, "--keep", 0, "--ranks", 2, "--shard", "states", "--moments", "q8_0"]
    c.run(*words, "-o", "held")
    c.run(*words, "--offload", "layers", "-o", "outside")
    c.same("held", "outside", "layers in files")
    assert not [p.name for p in (c.work / "outside").iterdir() if "offload" in p.name]
    for out, more in (("held", []), ("outside", ["--offload", "layers,activations"])):
        shutil.rmtree(c.work / out / "checkpoint-8")
        if out == "outside":
            files = c.result(out)
            errors = c.run("--resume", out, "--ranks", 4, "--shard", "gradients", *more, "--threads", 1, "--cache", "off", "-q", code=1,
                           before=["sh", "-c", 'trap "" XFSZ; ulimit -f 128; exec "$@"', "sh"])
            assert "no room for the" in errors and "lumen-offload" in errors, errors
            assert c.result(out) == files
        c.run("--resume", out, "--ranks", 4, "--shard", "gradients", *more, "--threads", 1, "-q")
    c.same("held", "outside", "other ranks going on")
    for p in ("held", "outside"):
        shutil.rmtree(c.work / p)


def refusals(c):
    assert "not divided by 3 ranks" in c.run(*BASE, "--ranks", 3, "-o", "x", code=2)
    assert "no parameters are gathered" in c.run(*BASE, "--ranks", 2, "--gather-type", "q8_0", "-o", "x", code=2)
    assert "an adapter needs all parameters" in c.run("-m", "alone/model.gguf", *BASE[2:], "--ranks", 2, "--zero", 3, "--lora", "-o", "x", code=2)
    assert "contradict each other" in c.run(*BASE, "--ranks", 2, "--zero", 3, "--kept-format", "fp8_row", "-o", "x", code=2)
    assert "one GPU" in c.run(*BASE, "--ranks", 2, "--device", "cuda:0", "-o", "x", code=2)
    assert "contradicts torchrun" in c.run(*BASE, "--ranks", 3, "-o", "x", code=2, RANK="0", WORLD_SIZE="2")
    assert "every rank would move all" in c.run(*BASE, "--ranks", 2, "--offload", "moments", "-o", "x", code=2)
    assert "gradients grow where they lie" in c.run(*BASE, "--ranks", 2, "--offload", "layers", "--reduce-type", "q8_0", "-o", "x", code=2)
    errors = c.run(*BASE, "--ranks", 2, "--reduce-type", "nonsense", "-o", "x", code=1)
    assert errors.count("error:") == 1, errors


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launchers(c, shard):
    """The same bytes whoever starts the ranks, and whatever carries what they say."""
    words = [*BASE, "--steps", 6, "--shard", shard]
    c.run(*words, "--ranks", 2, "-o", "here")
    for name, rank, more in (
        ("torchrun", "RANK", {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "LUMEN_TOKEN": "secret"}),
        ("slurm", "SLURM_PROCID", {"SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": "77"}),
    ):
        port = str(free_port())
        ranks = [c.start(*words, "-o", name, MASTER_PORT=port, **{rank: str(r)}, **more) for r in (0, 1)]
        for process in ranks:
            out, err = process.communicate(timeout=LONGEST)
            assert process.returncode == 0, (name, err)
        c.same("here", name, name)
    if shutil.which("mpirun"):
        c.run(*words, "-o", "mpi", before=["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,tcp", "-np", "2"])
        c.same("here", "mpi", "mpirun")
    else:
        print("ranks: no mpirun here, MPI is not tried")
    for p in c.work.iterdir():
        if p.name in ("here", "torchrun", "slurm", "mpi"):
            shutil.rmtree(p)


def plans(c):
    """What is in parts is counted as parts."""
    def together(*more):
        out = c.run("--shape", "tiny", "--batch", 4, "--length", 32, "--plan", *more)
        sizes = re.findall(r"^(\S.*?) {2,}([0-9.]+) (bytes|KiB|MiB|GiB)$", out, re.MULTILINE)
        assert sizes, out
        return {name: float(size) * UNITS[unit] for name, size, unit in sizes}
    whole, states, parameters = (together("--ranks", 4, "--shard", s) for s in ("none", "states", "parameters"))
    assert states["states of the optimizer"] < 0.3 * whole["states of the optimizer"], (whole, states)
    assert parameters["together"] < whole["together"], (whole, parameters)
    assert "exchanges with other ranks" in parameters and "exchanges with other ranks" not in together()


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"ranks: seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lumen-ranks-") as folder:
        c = Check(lumen, Path(folder))
        parts = (runs_alike, formats_and_kinds, scales, outside, refusals, plans, stopped, lambda c: launchers(c, "states"),
                 lambda c: launchers(c, "parameters"))
        for name, part in zip(("runs alike", "formats and kinds", "scales", "outside", "refusals", "plans", "stopped", "launchers", "launchers"), parts):
            begin = time.time()
            part(c)
            print(f"ranks: {name} in {time.time() - begin:.1f} s", flush=True)
        killed(c, seed, "states", KILLS - KILLS // 2)
        killed(c, seed, "parameters", KILLS // 2, "--offload", "layers,activations")


if __name__ == "__main__":
    main()
