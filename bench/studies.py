#!/usr/bin/env python3
"""The long studies of docs/measurements (recommend, diffuse, federate, classify), run in parallel with several seeds each.

  python3 bench/studies.py --lumen build/lumen --data DATA --work build/studies --out results --minutes 25
  python3 bench/studies.py .. --parts federate,recommend --cores 16 --seeds 3
  python3 bench/studies.py .. --parts diffuse --device cuda
  python3 bench/studies.py .. --tiny                        # all of it in a minute or two, to see that it runs

DATA has mnist/*-ubyte.gz, amazon-beauty/beauty.txt.gz, amazon-video-games/video_games.txt.gz and movielens-latest-small/ratings.csv; what is
missing is left out, and said. Parts: classify (alone, before everything else: it measures time, and needs PyTorch), federate, recommend, diffuse.

What ends is not run again by the next call with the same --work; training of diffusion goes on where it was. What --minutes ends is run
again then, so a machine that is lent for ten minutes at a time is called some times. --out gets tables, pages, JSON and logs alone, and
summary.md and summary.json of all that there is so far.
"""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

PARTITIONS = ["iid", "dir:0.5", "dir:0.1"]
LARGEST = 8 << 20
KEPT = {".json", ".html", ".txt", ".log", ".md"}
# Data, and what trains on them: config of both families, items of a loss, dropout, epochs, epochs of plans. Sizes are those of the published
# figures: SASRec's own (50 numbers) and, on Beauty, those with which softmax over 3000 drawn items was published (64).
RECOMMEND = {
    ("beauty", "sasrec"): (["hidden=64", "length=20", "dropout=0.1"], 3000, 24, 24),
    ("beauty", "caser"): (["hidden=50"], 3000, 8, 8),
    ("video_games", "sasrec"): (["hidden=50", "length=20", "dropout=0.3"], 1000, 30, 30),
    ("video_games", "caser"): (["hidden=50"], 1000, 20, 20),
    ("movielens", "sasrec"): (["hidden=50", "length=50"], 0, 60, 100),
    ("movielens", "caser"): (["hidden=50"], 1000, 30, 30),
}
FILES = {"beauty": "amazon-beauty/beauty.txt.gz", "video_games": "amazon-video-games/video_games.txt.gz", "movielens": "movielens-latest-small/ratings.csv"}
# (HR@10, NDCG@10) as published, and by which ranking; Beauty and Video Games are the very files.
PUBLISHED = [
    ("beauty", "sasrec", "full", "softmax over 3000 drawn items", .0490, .0295),
    ("beauty", "sasrec", "full", "pairs", .0246, .0126),
    ("video_games", "sasrec", "of101", "pairs", .7318, .5308),
    ("video_games", "caser", "of101", "as the SASRec paper reports it", .5282, .3214),
]


class Job:
    """Commands one after another; one that ended well is not run again."""

    def __init__(self, name, commands, cores=1, after=(), alone=False):
        self.name, self.commands, self.cores, self.after, self.alone = name, commands, cores, after, alone
        self.process, self.at, self.state = None, 0, "waits"


class Studies:
    def __init__(self, options):
        self.o, self.jobs = options, []
        self.work = options.work.resolve() / ("tiny" if options.tiny else "whole")  # what is done of one is not of the other
        self.work.mkdir(parents=True, exist_ok=True)
        self.seeds = range(1, options.seeds + 1)

    def lumen(self, *words, threads=1, device=None):
        out = [self.o.lumen, *words, "--threads", threads]
        if device and device != "cpu":
            out += ["--device", device]
        return [str(w) for w in out]

    def add(self, name, *commands, **more):
        self.jobs.append(Job(name, commands, **more))

    # ---- What there is to do

    def classify(self):
        if subprocess.run([self.o.python, "-c", "import torch"], capture_output=True).returncode != 0:
            return print("classify: no PyTorch here, left out (--python names another)", flush=True)
        for threads in (1, 2):
            sizes = ["--batch", "16", "--steps", "80", "--rounds", "1"] if self.o.tiny else ["--batch", "128", "--steps", "40", "--rounds", "3"]
            self.add(f"classify-{threads}-threads", [self.o.python, str(Path(__file__).with_name("classify.py")), "--lumen", str(self.o.lumen),
                                                     "--threads", str(threads), "--out", "classify.json", *sizes], cores=threads, alone=True)

    def federate(self):
        sizes = ["--examples", 600, "--rounds", 2, "--every", 1, "--first", 1, "--tested", 100] if self.o.tiny else [
            "--examples", 2400, "--rounds", self.o.rounds, "--every", 2, "--first", 3, "--eval-every", 2, "--tested", 1000]
        self.federate_flags = [self.o.data / "mnist", "--family", "small_images", "--shape", "xs", "--clients", 20, "--sampled", 10,
                               "--batch", 16, "--weights", "int4_row", "--activations", "int8", "--lr", 0.03, "--refresh", 2,
                               "--fake-share", 0.27, *sizes]
        for seed in self.seeds:
            for how in PARTITIONS:
                name = f"federate-{how.replace(':', '-')}-{seed}"
                self.add(name, self.lumen("federate", "study", *self.federate_flags, "-o", "study", "--how", how, "--seed", seed, "--seeds", 1))
        # All of them as one table and one page: nothing is run again, as every run is there.
        files = [["--with", self.work / f"federate-{how.replace(':', '-')}-{s}" / "study" / "federate.json"] for s in self.seeds for how in PARTITIONS]
        self.add("federate-all", self.lumen("federate", "study", *self.federate_flags, "-o", "study", "--how", ",".join(PARTITIONS), "--seed", 1,
                                            "--seeds", self.o.seeds, *sum(files, [])),
                 after=[j.name for j in self.jobs if j.name.startswith("federate-")])

    def recommend(self):
        for seed in self.seeds:
            for (data, family), (config, candidates, epochs, planned) in RECOMMEND.items():
                file = self.o.data / FILES[data]
                if not file.exists():
                    print(f"{file} is not there: left out", flush=True)
                    continue
                if self.o.tiny and data != "movielens":
                    continue
                scaled = lambda n: 1 if self.o.tiny else max(1, round(n * self.o.epochs))
                config = sum((["--config", c] for c in config), [])
                flags = [file, "--family", family, "--planned", f"{family}_planned", *config, "--candidates", candidates, "--epochs", scaled(epochs),
                         "--planned-epochs", scaled(planned), "--eval-every", 1 if self.o.tiny else 2, "--tau-steps", 20 if self.o.tiny else 1500,
                         "--seed", seed, "--seeds", 1, "--users", 50 if self.o.tiny else self.o.users, "--tuned-users", 3 if self.o.tiny else 30]
                for part in ("trained", "aware", "frozen", "frozen-bits", "planned"):
                    self.add(f"recommend-{data}-{family}-{part}-{seed}",
                             self.lumen("recommend", "study", *flags, "-o", "study", "--only", part, device=self.o.device))
            self.pairs(seed)

    def pairs(self, seed):
        """SASRec as it was published: a drawn item beside each target, many epochs; measured on all users."""
        file = self.o.data / FILES["video_games"]
        if not file.exists() or self.o.tiny:
            return
        train = self.lumen("recommend", "train", file, "--family", "sasrec", "--objective", "pairs", "--config", "hidden=50", "--config", "length=50",
                           "--config", "dropout=0.5", "--epochs", self.o.pair_epochs, "--eval-every", 5, "--patience", 8, "--seed", seed, "-o", "run",
                           "--eval-users", 1000, device=self.o.device)
        evaluate = self.lumen("recommend", "eval", "run", file, "--users", self.o.users, device=self.o.device)
        self.add(f"recommend-video_games-pairs-{seed}", train, evaluate)

    def diffuse(self):
        on_gpu = self.o.device != "cpu"
        shape = self.o.shape or ("s" if on_gpu else "xs")
        steps, batch = (30, 16) if self.o.tiny else (self.o.steps, 128 if on_gpu else 64)
        cores = 1 if on_gpu or self.o.tiny else min(4, self.o.cores)
        mnist = self.o.data / "mnist"
        self.add("diffuse-train", self.lumen("diffuse", "train", mnist, "--family", "dit", "--shape", shape, "--lr", 0.0005 if shape == "s" else 0.001,
                                             "--steps", steps, "--batch", batch, "--warmup", min(500, steps), "--ema", 0.9 if self.o.tiny else 0.999,
                                             "--save-every", max(1, steps // 30), "-o", "run", threads=cores, device=self.o.device), cores=cores)
        sizes = ["--images", 20, "--steps", 4, "--calibrate", 4, "--classifier-steps", 20, "--methods", "smoothquant,both"] if self.o.tiny else [
            "--images", self.o.images, "--steps", 20, "--calibrate", 20, "--classifier-steps", 3000]
        for seed in self.seeds:
            self.add(f"diffuse-study-{seed}",
                     self.lumen("diffuse", "study", self.work / "diffuse-train" / "run", "--data", mnist, "-o", "study", "--in", "W8A8=int8,int8",
                                "--in", "W4A8=int4_row,int8_row", "--in", "W4A4=int4_row,int4_row", "--rank", 8, "--batch", 20, "--family",
                                "small_images", "--shape", "xs", "--seed", seed, "--seeds", 1, *sizes, device=self.o.device),
                     after=["diffuse-train"])

    # ---- Doing it

    def folder(self, job):
        return self.work / job.name

    def is_done(self, job):
        return all((self.folder(job) / f"{i}.done").exists() for i in range(len(job.commands)))

    def start(self, job):
        folder = self.folder(job)
        folder.mkdir(exist_ok=True)
        while (folder / f"{job.at}.done").exists():
            job.at += 1
        command = list(job.commands[job.at])
        if command[1:3] in (["diffuse", "train"], ["recommend", "train"]) and any((folder / "run").glob("checkpoint-*")):
            command.append("--resume")
        with open(folder / "log.log", "a") as log:
            print("$ " + " ".join(command), file=log, flush=True)
            job.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        job.state, job.began = "runs", time.monotonic()

    def ended(self, job):
        """Whether a running job needs no core any more."""
        rc = job.process.poll()
        if rc is None:
            return False
        seconds = time.monotonic() - job.began
        if rc != 0:
            job.state = f"ended with {rc}"
            print(f"{job.name}: ended with {rc}, see its log", flush=True)
            return True
        (self.folder(job) / f"{job.at}.done").write_text(f"{seconds:.1f}\n")
        if job.at + 1 < len(job.commands):
            self.start(job)
            return False
        job.state = "done"
        print(f"{job.name}: {seconds:.0f} s", flush=True)
        return True

    def run(self):
        end = time.monotonic() + 60 * self.o.minutes
        for job in self.jobs:
            if self.is_done(job):
                job.state = "done"
        running = []
        try:
            while time.monotonic() < end:
                running = [j for j in running if not self.ended(j)]
                self.fill(running)
                if not running:
                    break
                time.sleep(0.2)
        finally:
            self.stop(running)

    def fill(self, running):
        done = {j.name for j in self.jobs if j.state == "done"}
        lone = [j for j in self.jobs if j.alone and j.state == "waits"]
        if any(j.alone for j in running):
            return
        for job in lone[:1] if lone else self.jobs:
            free = self.o.cores - sum(j.cores for j in running)
            if job.state != "waits" or not set(job.after) <= done or (running and (job.cores > free or job.alone)):
                continue
            self.start(job)
            running.append(job)

    def stop(self, running):
        for job in running:
            os.killpg(job.process.pid, signal.SIGINT)
        for job in running:
            try:
                job.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(job.process.pid, signal.SIGKILL)
                job.process.wait()
            job.state = "interrupted"

    # ---- What came of it

    def collect(self):
        out = self.o.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        for job in self.jobs:
            for file in self.folder(job).rglob("*"):
                if not file.is_file() or file.suffix not in KEPT or file.stat().st_size > LARGEST:
                    continue
                relative = file.relative_to(self.work)
                if "run" in relative.parts or "classifier" in relative.parts or any(p.startswith("checkpoint-") for p in relative.parts):
                    continue
                (out / relative).parent.mkdir(parents=True, exist_ok=True)
                if file.suffix == ".log":  # lines that overwrite themselves: what stood there last
                    (out / relative).write_text("".join(line.split("\r")[-1] for line in file.read_text(errors="replace").splitlines(True)))
                else:
                    shutil.copyfile(file, out / relative)
        facts = {"jobs": {j.name: j.state for j in self.jobs}, "recommend": self.recommend_arms(), "diffuse": self.diffuse_arms(), "pairs": self.pair_figures()}
        (out / "summary.json").write_text(json.dumps(facts, indent=1) + "\n")
        (out / "summary.md").write_text(self.text_of(facts))
        print(self.text_of(facts), flush=True)

    def read(self, pattern):
        for file in sorted(self.work.glob(pattern)):
            yield file.parts[-3], json.loads(file.read_text())

    def recommend_arms(self):
        arms = {}
        for job, data in self.read("recommend-*/study/recommend.json"):
            of = "-".join(job.split("-")[1:3])
            for arm in data:
                one = arms.setdefault(of, {}).setdefault(arm["name"], {"bits": arm["bits"], "bytes": arm["bytes_sent"], "ms": [], "seeds": []})
                if arm["name"] == "popularity" and one["seeds"]:
                    continue
                one["ms"].append(arm["milliseconds"])
                for key, values in arm.get("agreement", {}).items():
                    one.setdefault(key, []).extend(values)
                one["seeds"] += arm["seeds"]
        return {of: dict(sorted(found.items())) for of, found in sorted(arms.items())}

    def diffuse_arms(self):
        arms = {}
        for _, data in self.read("diffuse-study-*/study/study.json"):
            for arm in data["arms"]:
                arms.setdefault(f"{arm['in']} {arm['method']}", []).extend(arm["seeds"])
        return arms

    def pair_figures(self):
        out = []
        for file in sorted(self.work.glob("recommend-*-pairs-*/log.log")):
            out.append({"job": file.parent.name, "lines": [line for line in file.read_text(errors="replace").splitlines() if "NDCG" in line or "HR@" in line][-8:]})
        return out

    def text_of(self, facts):
        lines = ["# Studies", "", f"{sum(s == 'done' for s in facts['jobs'].values())} of {len(facts['jobs'])} jobs are done."]
        for of, arms in facts["recommend"].items():
            lines += ["", f"## {of}", "", "| | bits | bytes | ms | NDCG@10 full | HR@10 full | NDCG@10 of 101 | HR@10 of 101 | seeds |", "|---|---|---|---|---|---|---|---|---|"]
            for name, a in arms.items():
                row = [spread([s[kind][key] for s in a["seeds"]], 4) for kind in ("full", "of101") for key in ("ndcg10", "hr10")]
                lines.append(f"| {name} | {a['bits']:.2f} | {a['bytes']:.0f} | {statistics.median(a['ms']):.2f} | " + " | ".join(row) + f" | {len(a['seeds'])} |")
            for data, family, kind, how, hit, ndcg in PUBLISHED:
                if of == f"{data}-{family}":
                    lines.append(f"| published ({how}), {kind} | | | | " + (f"{ndcg:.4f} | {hit:.4f} | | |" if kind == "full" else f"| | {ndcg:.4f} | {hit:.4f} |") + " |")
            for name, a in arms.items():
                if "own" in a:
                    lines += ["", f"Spearman's correlation of classes with gradients: {spread(a['own'], 3)}; of another user's classes {spread(a['of_others'], 3)}."]
        if facts["pairs"]:
            lines += ["", "## Pairs, as published", ""] + [f"    {p['job']}: {line}" for p in facts["pairs"] for line in p["lines"]]
        if facts["diffuse"]:
            lines += ["", "## Diffusion", "", "| | PSNR | SSIM | distance | FID-m | accuracy | seeds |", "|---|---|---|---|---|---|---|"]
            for name, seeds in facts["diffuse"].items():
                row = [spread([s[key] for s in seeds], digits) for key, digits in (("psnr", 2), ("ssim", 4), ("feature_cosine_distance", 5), ("fid_m", 3), ("accuracy", 3))]
                lines.append(f"| {name} | " + " | ".join(row) + f" | {len(seeds)} |")
        for file in sorted(self.work.glob("federate-all/study/federate.txt")) + sorted(self.work.glob("classify-*/log.log")):
            lines += ["", f"## {file.parts[-3] if file.name == 'federate.txt' else file.parts[-2]}", ""] + ["    " + line for line in file.read_text(errors="replace").splitlines()]
        return "\n".join(lines) + "\n"


def spread(values, digits):
    if not values:
        return "-"
    text = f"{statistics.mean(values):.{digits}f}"
    return text if len(values) == 1 else f"{text} +- {statistics.stdev(values):.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lumen", type=Path, default=Path("build/lumen"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/studies"), help="checkpoints, and what is done")
    parser.add_argument("--out", type=Path, required=True, help="tables, pages, JSON and logs")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", default="classify,diffuse,federate,recommend")
    parser.add_argument("--device", default="cpu", help="of diffusion and recommenders")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--only", default="", help="only jobs whose names this regular expression finds")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rounds", type=int, default=80, help="of federated training")
    parser.add_argument("--epochs", type=float, default=1, help="of recommenders, times what is usual here")
    parser.add_argument("--pair-epochs", type=int, default=120)
    parser.add_argument("--users", type=int, default=0, help="users tested, drawn; 0: all")
    parser.add_argument("--steps", type=int, default=15000, help="of diffusion's training")
    parser.add_argument("--shape", default="", help="of the diffusion transformer")
    parser.add_argument("--images", type=int, default=500, help="of each seed of a diffusion study")
    options = parser.parse_args()
    options.lumen, options.data = options.lumen.resolve(), options.data.resolve()
    studies = Studies(options)
    for part in options.parts.split(","):
        if part not in ("classify", "diffuse", "federate", "recommend"):
            parser.error(f"no part is called {part}")
        getattr(studies, part)()
    studies.jobs = [j for j in studies.jobs if re.search(options.only, j.name)]
    studies.run()
    studies.collect()


if __name__ == "__main__":
    main()
