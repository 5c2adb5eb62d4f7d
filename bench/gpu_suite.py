#!/usr/bin/env python3
"""The whole suite on this machine's GPU, in one run: the ladder's correctness, then speed beside PyTorch and the card's own
copying, as one table with the target of each line. What is below its target is marked.

Needs PyTorch for the figures beside ours (without it those lines say so):  python3 bench/gpu_suite.py --build build [--device hip] [--quick]
  --device   cuda or hip, with :N where it is not the first one
  --machine  the code of another row of the table: of an earlier generation, which this GPU executes, too
  --build    folder with lumen, bench/bench_gpu and tests/test_ladder, or with the three in it
  --quick    no training of PyTorch (its compilation takes minutes)
  --speeds   neither the ladder nor the doctor
With --machine neither the vendor's library nor 6.7 billion parameters are tried: what is asked is that generation's code.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from target_table import TargetTable

FORMATS = ["f16", "q8_0", "q4_0", "q4_k", "q6_k", "nf4", "mxfp4", "fp8_e4m3", "int3_g128"]
T, BATCH = 2048, 8
# Tokens a second of a compiled PyTorch 2.11 on an H200, seen elsewhere: for FP8 where torchao is not installed, and because
# 6.7 billion parameters in f32 with their moments leave it no memory.
GIVEN = {"1b fp8_e4m3": 92977, "7b bf16": 13908, "7b fp8_e4m3": 19229}


def seconds(run, repeat=10):
    """Median time of a call on the GPU."""
    import torch
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    rounds = []
    for _ in range(5):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        for _ in range(repeat):
            run()
        end.record()
        torch.cuda.synchronize()
        rounds.append(begin.elapsed_time(end) / repeat * 1e-3)
    return statistics.median(rounds)


def sustained(step, limit=20):
    """Median time of a step over the last half of so many seconds: a card that has worked for a while is at its limit of power."""
    import torch
    rounds, begin = [], time.perf_counter()
    while time.perf_counter() - begin < limit:
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        rounds.append(time.perf_counter() - start)
    return statistics.median(rounds[len(rounds) // 2:])


def torch_products():
    """TFLOP/s of PyTorch: products of 8192^3 in bf16 and FP8, attention forward and backward (causal operations)."""
    import torch
    out, n = {}, 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out["bf16"] = 2 * n**3 / seconds(lambda: a @ b.T) / 1e12
    one = torch.ones((), device="cuda")  # as PyTorch calls AMD's GPUs, too
    # MI300 has codes without -0.
    code = torch.float8_e4m3fnuz if "gfx94" in getattr(torch.cuda.get_device_properties(0), "gcnArchName", "") else torch.float8_e4m3fn
    x, y = a.to(code), b.to(code)
    out["fp8"] = 2 * n**3 / seconds(lambda: torch._scaled_mm(x, y.T, one, one, out_dtype=torch.bfloat16)) / 1e12
    q, k, v = (torch.randn(1, 32, 8192, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    attend = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    work = 4 * 32 * 8192**2 * 128 / 2
    out["attend"] = work / seconds(attend) / 1e12
    result = attend()
    ones = torch.ones_like(result)
    out["attend gradient"] = 2.5 * work / seconds(lambda: torch.autograd.grad(result, (q, k, v), ones, retain_graph=True)) / 1e12
    return out


def torch_training(eager=False, recipe=None, width=2048, layers=22, heads=32, groups=4, inner=5632, vocabulary=32000):
    """Tokens a second and GiB of a (compiled) Llama of 1.1 billion parameters: bf16 products, f32 parameters, fused AdamW.
    With a recipe of torchao's ("tensorwise", "rowwise") linear layers but the last multiply in FP8."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    depth = width // heads
    angles = torch.outer(torch.arange(T, device="cuda").float(), 1e4 ** (-torch.arange(0, depth, 2, device="cuda") / depth))
    cos, sin = angles.cos(), angles.sin()

    def turn(x):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            line = lambda m, n: nn.Linear(m, n, bias=False)
            self.norms = nn.ModuleList([nn.RMSNorm(width), nn.RMSNorm(width)])
            self.q, self.o = line(width, width), line(width, width)
            self.k, self.v = line(width, groups * depth), line(width, groups * depth)
            self.gate, self.up, self.down = line(width, inner), line(width, inner), line(inner, width)

        def forward(self, x):
            y = self.norms[0](x)
            split = lambda z: z.view(BATCH, T, -1, depth).transpose(1, 2)
            q, k, v = turn(split(self.q(y)).float()), turn(split(self.k(y)).float()), split(self.v(y))
            y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(BATCH, T, width))
            y = self.norms[1](x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens, targets):
            x = self.table(tokens)
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.norm(x)).reshape(-1, vocabulary), targets.reshape(-1))

    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    model = Llama().cuda()
    if recipe:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
        convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(recipe),
                                   module_filter_fn=lambda module, name: isinstance(module, nn.Linear) and name != "head")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = model if eager else torch.compile(model)
    tokens = torch.randint(vocabulary, (BATCH, T + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    compiling = time.perf_counter() - begin
    burst = BATCH * T / seconds(step, 4)
    return {"speed": burst, "sustained": BATCH * T / sustained(step), "GiB": torch.cuda.max_memory_allocated() / 2**30, "compiling": compiling}


def in_process(name):
    """A function of this file in a process of its own, which gives its memory back; nothing where it fails."""
    run = subprocess.run([sys.executable, __file__, "--part", name], capture_output=True, text=True)
    if run.returncode != 0:
        print(f"{name}: {run.stderr.strip().splitlines()[-1] if run.stderr else 'failed'}")
        return {}
    return json.loads(run.stdout.splitlines()[-1])


class Suite:
    def __init__(self, build: Path, device: str, machine: str):
        self.on = ["--device", device, *(["--machine", machine] if machine else [])]
        self.device = device
        find = lambda *names: next((build / n for n in names if (build / n).exists()), build / names[0])
        self.lumen, self.bench = find("lumen"), find("bench/bench_gpu", "bench_gpu")
        self.ladder = find("tests/test_ladder", "test_ladder")
        self.folder = tempfile.TemporaryDirectory()
        self.environment = dict(os.environ, LUMEN_CACHE=str(Path(self.folder.name) / "kernels"), NO_COLOR="1")
        # The library that PyTorch multiplies with.
        for folder in map(Path, sys.path):
            for variable, files in (("LUMEN_CUBLASLT_LIBRARY", "nvidia/*/lib/libcublasLt.so.1?"), ("LUMEN_HIPBLASLT_LIBRARY", "torch/lib/libhipblaslt.so")):
                for file in sorted(folder.glob(files)):
                    self.environment.setdefault(variable, str(file))
        self.table = TargetTable()
        self.row = self.table.add

    def run(self, *command):
        return subprocess.run([str(c) for c in command], capture_output=True, text=True, env=self.environment, cwd=self.folder.name)

    def correctness(self):
        text = self.run(self.ladder, *self.on, "--gtest_filter=LadderGpu.*").stdout
        passed = len(re.findall(r"^\[       OK \]", text, re.M))
        ran = len(re.findall(r"^\[ RUN      \]", text, re.M))
        self.row("ladder on the card", passed, f"of {ran} rungs", max(ran, 1), "rungs", 1)
        doctor = self.run(self.lumen, "doctor", *self.on)
        self.row("doctor: exit code 0", float(doctor.returncode == 0), "", 1, "", 1)

    def products(self, torch):
        self.times, self.copying = {}, None
        out = self.run(self.bench, *self.on, *([] if self.on[2:] else ["--libraries"]), "bf16 8192", "fp8_e4m3 8192", "m=1$", "m=16$", "m=4096$").stdout
        if found := re.search(r"copying within memory: (\d+) GB/s", out):
            self.copying = float(found[1])
        for name, us, flops, read in re.findall(r"^(.{16})\s+([\d.]+) us\s+([\d.]+) TFLOP/s\s+(\d+) GB/s", out, re.M):
            self.times[name.strip()] = (float(us), float(flops), float(read))
        get = lambda name, i: self.times[name][i] if name in self.times else None
        self.row("bf16 8192^3", get("bf16 8192", 1), "TFLOP/s", torch.get("bf16"), "PyTorch", 0.8)
        for part in ("dx", "dw"):
            self.row(f"bf16 8192^3, order of {part}", get(f"bf16 8192 {part}", 1), "TFLOP/s", torch.get("bf16"), "PyTorch", 0.8)
        for part in ("", " dx", " dw") if not self.on[2:] else ():
            best = max(filter(None, (get(f"bf16 8192{part}", 1), get(f"bf16 8192{part} lib", 1))), default=None)
            self.row(f"  the library as candidate{part and ', order of' + part}", best, "TFLOP/s", torch.get("bf16"), "PyTorch", 0.98)
        for part in ("", " dx", " dw"):
            self.row(f"FP8 8192^3{part and ', order of' + part}", get(f"fp8_e4m3 8192{part}", 1), "TFLOP/s", torch.get("fp8"), "PyTorch", 0.75)
        dense = get("bf16 m=4096", 1)
        for format in FORMATS:
            one = get(f"{format} m=1", 0)
            self.row(f"{format} decode", get(f"{format} m=1", 2), "GB/s", self.copying, "copying", 0.8)
            self.row(f"{format} 16 rows over one", get(f"{format} m=16", 0), "us", one, "us", 1.2, least=False)
            self.row(f"{format} 4096 rows", get(f"{format} m=4096", 1), "TFLOP/s", dense, "bf16", 0.85)

    def attention(self, torch):
        for function, name, target in (("forward", "attend", 0.6), ("train", "attend gradient", 0.45)):
            out = self.run(self.lumen, "compile", "llama", "--shape", "llama-7b", "--config", "layers=1", "--function", function,
                           "--symbols", "B=1,T=8192", "--precision", "bf16", "--explain", *self.on).stdout
            calls = [(float(ms), float(flops)) for ms, flops, what in
                     re.findall(r"^\s+\d+\s+([\d.]+)\s+[\d.]+\s+[\d.]+%\s+([\d.]+)\s.*?(attend gradient|attend) \d", out, re.M) if what == name]
            work = 4 * 32 * 8192**2 * 128 / 2 * (2.5 if name != "attend" else 1)  # of what the mask lets be seen
            ms = sum(m for m, _ in calls)
            self.row(f"{name}, 8192 x 128, causal", work / ms / 1e9 if ms else None, "TFLOP/s", torch.get("bf16"), "bf16 product", target)

    def step(self, shape, batch, precision, *flags):
        """What is printed of a training step on numbers drawn at random."""
        return self.run(self.lumen, "compile", "llama", "--shape", f"llama-{shape}", "--function", "train", "--symbols", f"B={batch},T={T}",
                        "--explain", *self.on, "--precision", precision, *flags).stdout

    def training(self, torch):
        total_of = lambda text: re.search(r"^([\d.]+) ms for a run in which", text, re.M)
        speed_of = lambda text, batch=BATCH: batch * T / (float(total_of(text)[1]) / 1e3) if total_of(text) else None
        # Neither our compiled kernels nor what the driver keeps of its own compiler's work.
        environment = dict(self.environment)
        self.environment["LUMEN_CACHE"] = str(Path(self.folder.name) / "cold")
        self.environment["CUDA_CACHE_PATH"] = str(Path(self.folder.name) / "driver")
        begin = time.perf_counter()
        self.step("1b", BATCH, "bf16")
        cold = time.perf_counter() - begin
        begin = time.perf_counter()
        out = self.step("1b", BATCH, "bf16")
        warm = time.perf_counter() - begin
        self.environment = environment
        memory = re.search(r"([\d.]+) MiB of memory for values", out)
        self.row("training Llama 1.1B, bf16", speed_of(out), "tokens/s", torch.get("speed"), torch.get("name", "PyTorch"), 1)
        # Parameters, moments and gradients are counted by PyTorch, too.
        held = 3 * 4 * 1.1e9 / 2**30
        self.row("  its memory", float(memory[1]) / 1024 + held if memory else None, "GiB", torch.get("GiB"), torch.get("name", "PyTorch"), 0.9, least=False)
        others = self.on[2:]
        if not others:
            self.row("  with --libraries", speed_of(self.step("1b", BATCH, "bf16", "--libraries")), "tokens/s", torch.get("speed"), torch.get("name", "PyTorch"), 1)
        self.row("  cold compilation", cold - warm, "s", 1, "s", 20, least=False)
        for shape, batch, precision in (("1b", BATCH, "fp8_e4m3"), ("7b", 4, "bf16"), ("7b", 4, "fp8_e4m3"))[: 1 if others else 3]:
            given = GIVEN[f"{shape} {precision}"] if self.device.startswith("cuda") else None
            beside = "PyTorch, given"
            if shape == "1b" and torch.get("fp8"):
                given, beside = torch["fp8"], "PyTorch, torchao"
            name = {"1b": "Llama 1.1B", "7b": "Llama 6.7B"}[shape]
            for flags in ([], ["--libraries"])[: 1 if others else 2]:
                what = "  with --libraries" if flags else f"training {name}, {'bf16' if precision == 'bf16' else 'FP8'}"
                self.row(what, speed_of(self.step(shape, batch, precision, *flags), batch), "tokens/s", given, beside, 1)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--machine", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--speeds", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        parts = {"products": torch_products, "training": torch_training, "eager": lambda: torch_training(True),
                 **{r: lambda r=r: torch_training(recipe=r) for r in ("tensorwise", "rowwise")}}
        print(json.dumps(parts[arguments.part]()))
        return 0
    suite = Suite(arguments.build.resolve(), arguments.device, arguments.machine)
    if suite.run(suite.lumen, "doctor", "--quick", *suite.on).returncode != 0:
        print(f"no {arguments.device} GPU that Lumen can use", file=sys.stderr)
        return 3
    torch = in_process("products")
    if not arguments.speeds:
        suite.correctness()
    suite.products(torch)
    suite.attention(torch)
    training = {} if arguments.quick else in_process("training") or dict(in_process("eager"), name="eager PyTorch")
    if training:
        training["fp8"] = max(in_process(r).get("speed", 0) for r in ("tensorwise", "rowwise"))
    suite.training(training)
    suite.table.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
