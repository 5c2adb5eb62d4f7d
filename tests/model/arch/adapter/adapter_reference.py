#!/usr/bin/env python3
"""Adapters that `lumen train` wrote, loaded by others: the PEFT folder by peft beside transformers, the GGUF adapter by llama.cpp, and what
`lumen merge` makes of both by transformers. All must have the log probabilities that lumen has with the adapter.

usage: adapter_reference.py LUMEN [CASE ...]      exit code 77: a library is missing, nothing was checked
"""
import os
import struct
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
try:
    import numpy as np
    import peft
    import safetensors.torch
    import torch
    import transformers
    from transformers.utils import logging
except ImportError as missing:
    print(f"skipped: {missing}; pip install numpy torch transformers peft")
    sys.exit(77)
try:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
    import llama_cpp_logits as llama_cpp
except ImportError as missing:
    llama_cpp = None
    print(f"without llama.cpp: {missing}; pip install llama-cpp-python")

try:
    import gguf
except ImportError as missing:
    gguf = None
    print(f"without gguf: {missing}; pip install gguf")

TOLERANCE = 1e-4  # of the range of log probabilities
LENGTH = 48
TEXT = "First Citizen: we are accounted poor citizens, the patricians good. What authority surfeits on would relieve us. " * 8

# name: (base, flags, whether a GGUF file can hold the adapter)
CASES = {
    "lora": ("llama", ["--lora", "--lora-alpha", "6"], True),
    "rslora": ("llama", ["--lora", "--rslora", "--lora-targets", "q_proj,v_proj,down_proj"], True),
    "dora": ("llama", ["--dora"], False),
    "ends": ("llama", ["--lora", "--lora-targets", "all-linear,embed,output"], True),
    "stretched_ends": ("llama", ["--dora", "--lora-targets", "embed,output,wq"], False),
    "plus": ("qwen3", ["--lora", "--lora-plus", "16", "--lora-dropout", "0.1"], True),
    "experts": ("mixtral", ["--lora"], True),
}
BASES = {
    "llama": dict(family="llama", size="tiny", hidden=64, layers=2, heads=4, kv_heads=2, ffn=96),
    "qwen3": dict(family="qwen3", hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=96),
    "mixtral": dict(family="mixtral", hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=96, experts=4),
}


def lumen(program, *args):
    done = subprocess.run([program, *map(str, args), "-q"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lumen {' '.join(map(str, args))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def recorded(program, folder, *model):
    """Tokens and log probabilities of the first window of the text: 16 bits between the least and the largest of a row."""
    path = f"{folder}/record"
    lumen(program, "perplexity", *model, "-f", f"{folder}/text.txt", "-c", LENGTH, "--chunks", 1, "--full", "--exact", "--record-logits", path)
    with open(path, "rb") as file:
        _, vocabulary, length, first, windows = struct.unpack("<8s4q", file.read(40))
        assert (length, first, windows) == (LENGTH, 0, 1)
        tokens = np.frombuffer(file.read(4 * length), "<i4").tolist()
        rows = []
        for _ in range(length - 1):
            least, step = struct.unpack("<2f", file.read(8))
            rows.append(least + step * np.frombuffer(file.read(2 * vocabulary), "<u2").astype(np.float64))
    return tokens, np.stack(rows)


def log_probabilities(logits):
    return torch.log_softmax(torch.as_tensor(np.asarray(logits)).double(), -1).numpy()[: LENGTH - 1]


def with_transformers(base, tokens, adapter=None):
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
    if adapter:
        model = peft.PeftModel.from_pretrained(model, adapter).eval()
    with torch.no_grad():
        return log_probabilities(model(torch.tensor([tokens]), use_cache=False).logits[0])


def make_base(program, folder, name):
    """A Hugging Face folder and a GGUF file of the same weights."""
    config = dict(BASES[name])
    family, size = config.pop("family"), config.pop("size", "config.json")
    with open(f"{folder}/{name}.toml", "w") as file:
        file.write(f'[model]\nfamily = "{family}"\nsize = "{size}"\n[model.config]\n')
        file.writelines(f"{key} = {value}\n" for key, value in config.items())
    lumen(program, "train", "--recipe", f"{folder}/{name}.toml", "--tokenizer", "bytes:280", "--steps", 3, "--warmup", 1, "--lr", "3e-3", "--eval-every", 0,
          "-c", 64, "-b", 2, "--hf", "-o", f"{folder}/{name}")


def check(program, folder, name):
    base, flags, gguf = CASES[name]
    if not os.path.exists(f"{folder}/{base}"):
        make_base(program, folder, base)
    hf, out = f"{folder}/{base}/hf", f"{folder}/{name}-run"
    lumen(program, "train", "-m", hf, *flags, "--lora-rank", 3, "--steps", 4, "--warmup", 1, "--lr", "1e-2", "--eval-every", 0, "-b", 2, "-c", 32, "-o", out)
    tokens, plain = recorded(program, folder, "-m", hf)
    _, ours = recorded(program, folder, "-m", hf, "--lora", f"{out}/adapter")
    changed = np.abs(ours - plain).max()
    wide = ours.max() - ours.min()
    assert changed > 100 * TOLERANCE * wide, f"{name}: the adapter changes nothing ({changed})"
    found = {"peft": with_transformers(hf, tokens, f"{out}/adapter")}
    lumen(program, "merge", hf, f"{out}/adapter", "-o", f"{out}/merged")
    found["merged"] = with_transformers(f"{out}/merged", tokens)
    assert os.path.exists(f"{out}/adapter.gguf") == gguf, name
    if gguf:
        found["ours, GGUF"] = recorded(program, folder, "-m", f"{folder}/{base}/model.gguf", "--lora", f"{out}/adapter.gguf")[1]
        if llama_cpp:
            found["llama.cpp"] = log_probabilities(llama_cpp.logits_of(f"{folder}/{base}/model.gguf", tokens, f"{out}/adapter.gguf"))
    off = {what: np.abs(rows - ours).max() / wide for what, rows in found.items()}
    print(f"{name:16} changed by {changed / wide:.1e}; away: " + ", ".join(f"{what} {x:.1e}" for what, x in off.items()))
    # llama.cpp sums products of f32 weights in another way, with shorter activations at times.
    return [f"{name}: {what}" for what, x in off.items() if not x < (2e-3 if what == "llama.cpp" else TOLERANCE)]


def check_pissa(program, folder, name):
    """Base and beginning are those of peft; what was trained is the same beside that base, and as a plain adapter beside the given model."""
    if not os.path.exists(f"{folder}/llama"):
        make_base(program, folder, "llama")
    hf, out = f"{folder}/llama/hf", f"{folder}/{name}-run"
    lumen(program, "train", "-m", hf, "--lora", "--lora-init", "pissa", "--lora-alpha", 6, "--lora-rank", 3, "--steps", 4, "--warmup", 1, "--lr", "1e-2",
          "--eval-every", 0, "-b", 2, "-c", 32, "-o", out)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    theirs = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32),
                                 peft.LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=6, init_lora_weights="pissa", target_modules=targets))
    rest = safetensors.torch.load_file(f"{out}/base/model.safetensors")
    worst = 0.0
    for key, weight in theirs.state_dict().items():
        if not key.endswith("base_layer.weight"):
            continue
        mine = rest[key.replace("base_model.model.", "").replace(".base_layer", "")]
        worst = max(worst, ((mine - weight).abs().max() / (weight.max() - weight.min())).item())
    tokens, _ = recorded(program, folder, "-m", hf)
    _, ours = recorded(program, folder, "-m", f"{out}/base", "--lora", f"{out}/adapter")
    wide = ours.max() - ours.min()
    found = {"peft": with_transformers(f"{out}/base", tokens, f"{out}/adapter"), "plain, peft": with_transformers(hf, tokens, f"{out}/adapter-plain"),
             "plain": recorded(program, folder, "-m", hf, "--lora", f"{out}/adapter-plain.gguf")[1]}
    off = {what: np.abs(rows - ours).max() / wide for what, rows in found.items()}
    print(f"{name:16} base {worst:.1e}; away: " + ", ".join(f"{what} {x:.1e}" for what, x in off.items()))
    assert worst < TOLERANCE, f"{name}: another base than peft's"
    return [f"{name}: {what}" for what, x in off.items() if not x < TOLERANCE]


def check_loftq(program, folder, name):
    """Base and beginning by the formula of peft (peft.utils.loftq_utils), with the rounding of another library."""
    if not gguf:
        return []
    if not os.path.exists(f"{folder}/llama"):
        make_base(program, folder, "llama")
    hf, out, turns, rank, scale = f"{folder}/llama/hf", f"{folder}/{name}-run", 3, 3, 2
    lumen(program, "train", "-m", hf, "--lora", "--lora-init", f"loftq_iter_{turns}", "--lora-base-type", "q4_0", "--lora-alpha", rank * scale, "--lora-rank", rank,
          "--steps", 1, "--warmup", 0, "--eval-every", 0, "-b", 2, "-c", 32, "-o", out)
    kind = gguf.GGMLQuantizationType.Q4_0

    def rounded(x):
        return torch.from_numpy(gguf.dequantize(gguf.quantize(x.numpy(), kind), kind).copy())

    given = safetensors.torch.load_file(f"{hf}/model.safetensors")
    begin = safetensors.torch.load_file(f"{out}/beginning.safetensors")
    packed = {t.name: torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).copy()) for t in gguf.GGUFReader(f"{out}/base.gguf").tensors}
    for theirs, other, ours in [("self_attn.v_proj", "attn_v", "wv"), ("mlp.up_proj", "ffn_up", "up"), ("mlp.down_proj", "ffn_down", "down")]:
        weight = given[f"model.layers.0.{theirs}.weight"]
        rest = weight
        for _ in range(turns):
            base = rounded(rest)
            u, values, v = torch.linalg.svd(weight - base, full_matrices=False)
            product = u[:, :rank] @ torch.diag(values[:rank]) @ v[:rank]
            rest = weight - product
        mine, own = scale * begin[f"layers.0.{ours}.low_rank_b"] @ begin[f"layers.0.{ours}.low_rank_a"], packed[f"blk.0.{other}.weight"]
        base_off, off = (own - base).norm() / base.norm(), (mine - product).norm() / product.norm()
        error, alone = (weight - own - mine).norm() / weight.norm(), (weight - rounded(weight)).norm() / weight.norm()
        print(f"{name:16} {theirs}: base {base_off:.1e}, product {off:.1e}; error {error:.4f}, of rounding alone {alone:.4f}")
        # A number at the edge of two codes may fall to either side of it.
        assert base_off < 5e-3 and off < 5e-2 and error < 0.95 * alone, name
    return []


OTHERS = {"pissa": check_pissa, "loftq": check_loftq}


def main():
    logging.disable_progress_bar()
    program, names = sys.argv[1], sys.argv[2:] or [*CASES, *OTHERS]
    if llama_cpp:
        llama_cpp.begin()
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/text.txt", "w", encoding="utf-8") as file:
            file.write(TEXT)
        wrong = [w for name in names for w in OTHERS.get(name, check)(program, folder, name)]
    assert not wrong, wrong
    print("all alike")


if __name__ == "__main__":
    main()
