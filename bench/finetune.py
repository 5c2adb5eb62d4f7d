#!/usr/bin/env python3
"""Fine-tuning beside PyTorch (transformers with peft; bitsandbytes where it is installed): LoRA on bf16 weights and QLoRA on 4 bits,
of Llama shapes with random weights, in one run on one machine. Prints tokens a second (median of steps), peak memory, ratios.

  python3 bench/finetune.py --lumen build/lumen --device cuda --shapes 1b:4 8b:1 [--length 2048] [--fits]
  python3 bench/finetune.py --lumen build/lumen --device cpu --threads 2 --shapes 1b:1 --length 256

A shape is NAME:BATCH. --fits also tries 8B in 4 bits with 1024 tokens, and 70B. Both programs train rank 16 on every linear layer,
with AdamW. PyTorch keeps all values for the backward pass unless a line says otherwise; Lumen computes elementwise work again
(--recompute maps), as compiled PyTorch does.
"""
import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# This folder has files named as the standard library's: only the one that is wanted is taken from it.
sys.path = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
spec = importlib.util.spec_from_file_location("random_gguf", Path(__file__).resolve().parent / "random_gguf.py")
random_gguf = importlib.util.module_from_spec(spec)
spec.loader.exec_module(random_gguf)

RANK = 16
KINDS = {"lora": "bf16", "qlora": "q4_0"}


def device_memory(device):
    """Bytes in use on the first GPU."""
    if device == "hip":
        used = sorted(Path("/sys/class/drm").glob("card*/device/mem_info_vram_used"))
        return int(used[0].read_text()) if used else 0
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"], capture_output=True, text=True)
    return int(out.stdout.split()[0]) << 20 if out.returncode == 0 and out.stdout.strip() else 0


def resident(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError, ValueError):
        return 0


def watched(command, device, limit=540):
    """Runs a process: its result, and the most memory seen, on the card or resident."""
    before = device_memory(device) if device != "cpu" else 0
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak, done = [0], threading.Event()

    def watch():
        while not done.wait(0.1):
            peak[0] = max(peak[0], device_memory(device) - before if device != "cpu" else resident(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        out += f"\nstopped after {limit} s"
    done.set()
    watcher.join()
    return process.returncode, out, peak[0] / 2**30


def lumen(arguments, model, batch, length, steps, out, *flags):
    """Tokens a second and GiB of `lumen train --lora`."""
    shutil.rmtree(out, ignore_errors=True)
    command = [arguments.lumen, "train", "-m", model, "--data", arguments.text, "--lora", "--lora-rank", RANK, "--lora-alpha", 2 * RANK, "-b", batch,
               "-c", length, "--steps", steps, "--warmup", 1, "--eval-every", 0, "--validation", 0.05 if arguments.device != "cpu" else 0.01,
               "--device", arguments.device, "-o", out, *([] if "--precision" in flags else ["--precision", "bf16"]), *([] if "--recompute" in flags else ["--recompute", "maps"]),
               *arguments.flags, *flags]
    if arguments.threads:
        command += ["-t", arguments.threads]
    begin = time.perf_counter()
    code, text, memory = watched(command, arguments.device)
    took = time.perf_counter() - begin
    if code != 0:
        return {"error": (text.strip().splitlines() or ["failed"])[-1], "code": code}
    lines = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines if line.get("seconds")]
    planned = sum(kind["bytes"] for kind in lines[0]["run"]["memory"]) / 2**30
    shutil.rmtree(out, ignore_errors=True)
    return {"speed": batch * length / statistics.median(seconds[1:] or seconds), "memory": memory, "planned": planned, "whole": took,
            "loss": lines[-1].get("loss"), "text": text}


def torch_part(part):
    """One run of PyTorch in this process."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
    kind, shape, batch, length, steps, device, compiled, again, threads = part
    if threads:
        torch.set_num_threads(threads)
    vocabulary, width, layers, heads, groups, inner = random_gguf.SHAPES[shape]
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
                         intermediate_size=inner, max_position_embeddings=8192, use_cache=False, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    if kind == "qlora":
        import bitsandbytes as bnb
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        # One linear layer after another, on the device: the whole in bf16 need not fit anywhere.
        for name, module in list(model.named_modules()):
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                packed = bnb.nn.Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4",
                                           compress_statistics=True, device="meta")
                weight = torch.randn(module.out_features, module.in_features, device=device) * 0.02
                packed.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", compress_statistics=True, module=packed).to(device)
                parent, _, child = name.rpartition(".")
                setattr(model.get_submodule(parent), child, packed)
        for name, module in list(model.named_modules()):
            for key, parameter in list(module.named_parameters(recurse=False)):
                if parameter.is_meta:
                    fresh = torch.ones(parameter.shape, device=device) if "norm" in name else torch.randn(parameter.shape, device=device) * 0.02
                    setattr(module, key, torch.nn.Parameter(fresh, requires_grad=False))
        model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
        model.is_loaded_in_4bit = True
    else:
        with torch.device(device):
            model = LlamaForCausalLM(config)
        model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    torch.set_default_dtype(torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    if again:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM"))
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    if compiled:  # layer by layer, as its makers advise: the whole takes many minutes
        for layer in model.base_model.model.model.layers:
            layer.compile()
    step_model = model
    seconds = []
    for _ in range(steps):
        tokens = torch.randint(vocabulary, (batch, length), device=device)
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = step_model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None
    print(json.dumps({"speed": batch * length / statistics.median(seconds[2:] or seconds[-1:]), "allocated": memory, "loss": float(loss.detach())}))


def torch_run(arguments, kind, shape, batch, length, steps, compiled=False, again=False):
    # PyTorch calls AMD's GPUs cuda, too.
    part = [kind, shape, batch, length, steps, "cpu" if arguments.device == "cpu" else "cuda", compiled, again, arguments.threads]
    code, text, memory = watched([sys.executable, __file__, "--part", json.dumps(part)], arguments.device, arguments.limit)
    if code != 0:
        return {"error": next((line for line in reversed(text.strip().splitlines()) if "Error" in line or "stopped" in line), text[-200:]), "code": code}
    result = json.loads(text.strip().splitlines()[-1])
    result["memory"] = result.get("allocated") or memory  # of its own allocator: without what that keeps in hand
    return result


def line(what, result):
    if "error" in result:
        print(f"  {what:34} {result['error'][:200]} (exit code {result['code']})", flush=True)
    else:
        print(f"  {what:34} {result['speed']:10.1f} tokens/s  {result['memory']:7.2f} GiB" +
              (f" (planned {result['planned']:.2f}; {result['whole']:.0f} s in all)" if "planned" in result else ""), flush=True)


def compare(arguments, kind, shape, batch):
    length = arguments.length
    print(f"{kind} {shape}, {batch} x {length} tokens", flush=True)
    model = arguments.folder / f"{shape}-{KINDS[kind]}.gguf"
    random_gguf.write(model, shape, KINDS[kind])
    ours = lumen(arguments, model, batch, length, arguments.steps, arguments.folder / "out")
    line("lumen", ours)
    if arguments.show and "text" in ours:
        print(ours["text"])
    for flags in arguments.also:
        result = lumen(arguments, model, batch, length, arguments.steps, arguments.folder / "out", *flags.split())
        line("lumen " + flags, result)
        if "speed" in result and result["speed"] > ours.get("speed", 0):
            ours = result
    model.unlink()
    best = None
    for name, options in (("PyTorch", {}), ("PyTorch, compiled", {"compiled": True}), ("PyTorch, checkpointing", {"again": True})):
        if name in arguments.skip or (options.get("compiled") and (kind == "qlora" or arguments.device == "cpu")):
            continue
        other = torch_run(arguments, kind, shape, batch, length, arguments.steps, **options)
        line(name, other)
        if "speed" in other and (best is None or other["speed"] > best["speed"]):
            best = other
    if best and "speed" in ours:
        print(f"  ratios to the fastest: speed {ours['speed'] / best['speed']:.2f}, memory {ours['memory'] / best['memory']:.2f}", flush=True)
    return ours, best


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lumen", type=Path, default=Path("build/lumen"))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda", "hip"])
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--shapes", nargs="*", default=["1b:1"])
    parser.add_argument("--kinds", nargs="*", default=["lora", "qlora"])
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--limit", type=int, default=300, help="seconds for a run of PyTorch")
    parser.add_argument("--folder", type=Path, default=None, help="where models of many GiB may lie for a while")
    parser.add_argument("--flags", nargs="*", default=[], help="more flags of lumen train, without their dashes")
    parser.add_argument("--also", nargs="*", default=[], help="further runs of Lumen with these flags")
    parser.add_argument("--skip", nargs="*", default=[], help="runs of PyTorch to leave out")
    parser.add_argument("--show", action="store_true", help="what lumen printed")
    parser.add_argument("--fits", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        torch_part(json.loads(arguments.part))
        return 0
    arguments.lumen = arguments.lumen.resolve()
    arguments.flags = [f"--{flag}" if not flag[0].isdigit() else flag for flag in arguments.flags]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        arguments.folder = Path(folder)
        arguments.text = arguments.folder / "text.txt"
        arguments.text.write_text("".join(chr(97 + (i * i // 7 + i) % 26) + (" " if i % 6 == 5 else "") for i in range(400000)))
        for shape in arguments.shapes:
            name, batch = shape.split(":")
            for kind in arguments.kinds:
                compare(arguments, kind, name, int(batch))
        if arguments.fits:
            for shape, length, flags in (("8b", 1024, ("--recompute", "layers")), ("70b", 1024, ("--recompute", "layers"))):
                model = arguments.folder / f"{shape}-q4_0.gguf"
                if not model.exists():
                    random_gguf.write(model, shape, "q4_0")
                line(f"qlora {shape}, 1 x {length} {' '.join(flags)}", lumen(arguments, model, 1, length, 4, arguments.folder / "out", *flags))
                model.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
