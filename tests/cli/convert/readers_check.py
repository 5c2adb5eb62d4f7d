#!/usr/bin/env python3
"""Folders that `lumen quantize --output-format` writes, read by the programs they are for: transformers loads them (with
compressed-tensors, bitsandbytes, and GPTQModel, which reads the layouts of GPTQ and AWQ), and what it has then is what the same weights are
written out in floats: its logits, and of GPTQ and AWQ every weight. Needs torch, transformers and accelerate from PyPI, and of
compressed-tensors, bitsandbytes, gptqmodel with optimum what is there: so it is run by hand and not by the tests. What is missing is
said and left out; with nothing to read by the exit code is 77.

Usage: tests/cli/convert/readers_check.py LUMEN [FORM]
"""
import json
import os
import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}; pip install torch transformers accelerate")
    sys.exit(77)

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

NEEDS = {
    "compressed-tensors": ["compressed_tensors"],
    "fp8": [],
    "bnb": ["bitsandbytes"],
    "gptq": ["gptqmodel", "optimum"],
    "gptq_v2": ["gptqmodel", "optimum"],
    "awq": ["gptqmodel"],
}
TEXT = ["-c", "32", "--chunks", "4"]
# Form, format, options, and of GPTQ the layout that is to be chosen.
FORMS = [
    ("compressed-tensors", "int4_g64", [], ""),
    ("compressed-tensors", "int4_g128", [], ""),
    ("compressed-tensors", "int8_row", [], ""),
    ("compressed-tensors", "fp8_row", [], ""),
    ("compressed-tensors", "fp8_tensor", [], ""),
    ("compressed-tensors", "int4_g32_asym", [], ""),
    ("compressed-tensors", "int4_g128_asym", [], ""),
    ("compressed-tensors", "int3_g64_asym", [], ""),
    ("compressed-tensors", "int2_g32_asym", [], ""),
    ("fp8", "fp8_tile", [], ""),
    ("bnb", "nf4", [], ""),
    ("gptq", "int2_g64", [], "gptq"),
    ("gptq", "int3_g32", [], "gptq"),
    ("gptq", "int4_g64", [], "gptq"),
    ("gptq", "int4_g128", [], "gptq"),
    ("gptq", "q8_0", [], "gptq"),  # 8 bits, groups of 32
    ("gptq", "int8_row", [], "gptq"),  # group_size -1
    ("gptq", "int4_g64", ["--strategy", "gptq", "--desc-act", *TEXT], "gptq"),
    ("gptq", "int2_g32_asym", [], "gptq_v2"),
    ("gptq", "int3_g64_asym", [], "gptq_v2"),
    ("gptq", "int4_g128_asym", [], "gptq_v2"),
    ("gptq_v2", "int4_g32", [], "gptq_v2"),
    ("gptq_v2", "int4_g64_asym", ["--strategy", "gptq", "--desc-act", *TEXT], "gptq_v2"),
    ("awq", "int4_g32_asym", [], ""),
    ("awq", "int4_g128_asym", ["--strategy", "awq", *TEXT], ""),
    ("awq", "int4_g64", [], ""),
]


def load(folder, dtype=torch.float32, **how):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **how)


def logits_off(packed, plain):
    ids = torch.randint(0, 65, (2, 48))
    with torch.no_grad():
        return float((load(packed)(ids).logits - load(plain)(ids).logits).abs().max())


def asymmetric_off(packed, plain):
    """Asymmetric weights by compressed-tensors' own decompress, and by its compress the same bytes again: its loader (0.20) does not
    pack the zero points of the empty model that it reads into, and so refuses all such folders, those it has written, too."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.pack_quantized.base import unpack_from_int32
    from compressed_tensors.quantization import QuantizationScheme
    config = json.loads((packed / "config.json").read_text())["quantization_config"]
    scheme = QuantizationScheme.model_validate(config["config_groups"]["group_0"])
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    got, want, worst, packings = load_file(packed / "model.safetensors"), load_file(plain / "model.safetensors"), 0.0, 0
    for name in got:
        if not name.endswith(".weight_packed"):
            continue
        base = name.removesuffix("weight_packed")
        state = {k.removeprefix(base): v for k, v in got.items() if k.startswith(base)}
        state["weight_scale"] = state["weight_scale"].float()
        value = compressor.decompress(dict(state), scheme)["weight"]
        worst = max(worst, float((value.float() - want[base + "weight"].float()).abs().max()))
        zeros = unpack_from_int32(state["weight_zero_point"], scheme.weights.num_bits,
                                  torch.Size((value.shape[0], state["weight_scale"].shape[1])), packed_dim=0)
        again = compressor.compress({"weight": value, "weight_scale": state["weight_scale"], "weight_zero_point": zeros}, scheme)
        for part in ("weight_packed", "weight_zero_point"):
            if not torch.equal(again[part], state[part]):
                raise SystemExit(f"{packed.name}: {base}{part} is packed otherwise by compressed-tensors")
        packings += 1
    assert packings > 0
    return worst


def bnb_off(packed, plain):
    """bitsandbytes multiplies in lower precision on processors; what it decodes is what is to be equal."""
    import bitsandbytes
    worst, model = 0.0, load(packed)
    want = load_file(plain / "model.safetensors")
    for name, module in model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            value = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            own = want[name + ".weight"].to(value.dtype)  # it decodes to 16 bits
            worst = max(worst, float((value.float() - own.float()).abs().max()))
    return worst


def gptqmodel_off(packed, plain):
    """The weights of the modules that transformers makes of the folder, by GPTQModel's own unpacking, which happens behind its change of
    the first layout of GPTQ into the second. Its modules hold scales in 16 bits; those the folder has in f32 are put back."""
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
    config = json.loads((packed / "config.json").read_text())["quantization_config"]
    awq = config["quant_method"] == "awq"
    how = transformers.AwqConfig(backend="torch_awq") if awq else transformers.GPTQConfig(bits=config["bits"], backend="torch")
    model = load(packed, torch.float16, device_map="cpu", quantization_config=how)
    stored, want, worst, modules = load_file(packed / "model.safetensors"), load_file(plain / "model.safetensors"), 0.0, 0
    for name, module in model.named_modules():
        if not hasattr(module, "qweight"):
            continue
        scales = stored[name + ".scales"].float()
        if awq:
            value = dequantize_gemm(module.qweight, module.qzeros, scales, module.bits, module.group_size)
        else:
            module.scales, module.dequant_dtype = scales, torch.int32
            value = module.dequantize_weight()
        worst = max(worst, float((value.t().float() - want[name + ".weight"].float()).abs().max()))
        modules += 1
    packings = sum(name.endswith(".qweight") for name in stored)
    assert modules == packings > 0, (modules, packings)
    with torch.no_grad():
        logits = model(torch.arange(48).reshape(1, -1)).logits
    assert torch.isfinite(logits).all()
    return worst


def off(form, name, packed, plain):
    if form in ("gptq", "gptq_v2", "awq"):
        return gptqmodel_off(packed, plain)
    if form == "bnb":
        return bnb_off(packed, plain)
    return asymmetric_off(packed, plain) if name.endswith("_asym") else logits_off(packed, plain)


def main():
    lumen, only = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    torch.manual_seed(0)
    failed = done = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)

        def run(*words):
            subprocess.run([lumen, *map(str, words), "-q"], check=True, capture_output=True)

        run("train", "--shape", "char", "--steps", "60", "--eval-every", "0", "-o", work / "m")
        for form, name, options, layout in FORMS:
            if only and form != only:
                continue
            what = " ".join([form, name, *options[1:3]])
            missing = [m for m in NEEDS[form] if find_spec(m) is None]
            if missing:
                print(f"{what}: skipped, {' and '.join(missing)} not installed", flush=True)
                continue
            packed = work / what.replace(" ", ".")
            plain = work / (packed.name + ".plain")
            run("quantize", work / "m/model.gguf", packed, name, "--output-format", form, *options)
            run("quantize", packed, plain, "f32", "--output-format", "hf", "--allow-requantize")
            config = json.loads((packed / "config.json").read_text())["quantization_config"]
            difference = off(form, name, packed, plain)
            wrong = config.get("checkpoint_format", "") != layout or difference != 0
            failed += wrong
            done += 1
            print(f"{what}: differs by {difference:.3g}{' WRONG' if wrong else ''}", flush=True)
    print(f"{done - failed} passed, {failed} failed, {len(FORMS) - done} skipped")
    sys.exit(1 if failed else 0 if done else 77)


main()
