#!/usr/bin/env python3
"""Unpacks folders of packed weights that Lumen wrote, by other hands: formulas of each layout in numpy, and the libraries that
define them where they are installed (torch with compressed-tensors, bitsandbytes). All weights must be the numbers of the plain folder.

usage: pack_reference.py TEST_PROGRAM      exit code 77: numpy or safetensors is missing, nothing was checked
"""
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import safetensors
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"skipped: {missing}; pip install numpy safetensors")
    sys.exit(77)
try:
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
except ImportError:
    torch = None
try:
    import bitsandbytes.functional as bnb
except ImportError:
    bnb = None

FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def raw_tensors(path):
    """Tensors by name, those of 8-bit floats as bytes; numpy knows no such type."""
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    kinds = {"I32": np.int32, "I64": np.int64, "F32": np.float32, "F16": np.float16, "U8": np.uint8, "I8": np.int8, "F8_E4M3": np.uint8}
    out = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        part = data[8 + size + begin:8 + size + end]
        if info["dtype"] == "BF16":
            out[name] = (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(info["shape"])
        else:
            out[name] = np.frombuffer(part, kinds[info["dtype"]]).reshape(info["shape"])
    return out


def e4m3(codes):
    c = codes.astype(np.int32)
    sign, exponent, mantissa = np.where(c & 128, -1., 1.), c >> 3 & 15, c & 7
    return (sign * np.where(exponent == 0, mantissa * 2. ** -9, (8 + mantissa) * 2. ** (exponent - 10.))).astype(np.float32)


def words(packed, bits, count, axis):
    """`count` numbers along an axis of 32-bit words, low bits first, also across words."""
    packed = np.moveaxis(packed.view(np.uint32), axis, -1)
    stream = ((packed[..., None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(*packed.shape[:-1], -1)
    stream = stream[..., :count * bits].reshape(*packed.shape[:-1], count, bits)
    return np.moveaxis((stream << np.arange(bits, dtype=np.uint32)).sum(-1).astype(np.int32), -1, axis)


def gptq(m, config, shape):
    bits, group = config["bits"], config["group_size"] if config["group_size"] > 0 else shape[1]
    q = words(m["qweight"], bits, shape[1], 0)
    z = words(m["qzeros"], bits, shape[0], 1)
    if config["checkpoint_format"] == "gptq":
        z = z + 1 & 2 ** bits - 1
    assert (m["g_idx"] == np.arange(shape[1]) // group).all()
    return (m["scales"].astype(np.float32)[m["g_idx"]] * (q - z[m["g_idx"]])).T


def awq(m, config, shape):
    order = np.argsort([0, 2, 4, 6, 1, 3, 5, 7])
    def columns(x):
        return words(x, 4, x.shape[1] * 8, 1).reshape(x.shape[0], -1, 8)[:, :, order].reshape(x.shape[0], -1)
    at = np.arange(shape[1]) // config["group_size"]
    return (m["scales"].astype(np.float32)[at] * (columns(m["qweight"]) - columns(m["qzeros"])[at])).T


def compressed(m, config, shape):
    args = config["config_groups"]["group_0"]["weights"]
    form = config["format"]
    if torch:
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        state = {k: torch.from_numpy(v.copy()) for k, v in m.items()}
        if form == "float-quantized":
            state["weight"] = state["weight"].view(torch.float8_e4m3fn)
        if form == "nvfp4-pack-quantized":
            state["weight_scale"] = state["weight_scale"].view(torch.float8_e4m3fn)
        back = BaseCompressor.get_value_from_registry(form).decompress(state, scheme)["weight"].float().numpy()
    else:
        back = None
    scale = m["weight_scale"]
    if form == "pack-quantized":
        assert list(m["weight_shape"]) == list(shape)
        group = args["group_size"] or shape[1]
        q = words(m["weight_packed"], args["num_bits"], shape[1], 1)
        z = 2 ** (args["num_bits"] - 1) if args["symmetric"] else np.repeat(words(m["weight_zero_point"], args["num_bits"], shape[0], 0), group, 1)
        return back, np.repeat(scale.astype(np.float32), group, 1) * (q - z)
    if form == "int-quantized":
        return back, scale.astype(np.float32) * m["weight"]
    if form == "float-quantized":
        if args["strategy"] == "block":
            scale = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:shape[0], :shape[1]]
        return back, scale.astype(np.float32) * e4m3(m["weight"])
    q = np.stack([FP4[m["weight_packed"] & 15], FP4[m["weight_packed"] >> 4]], -1).reshape(shape)
    if form.startswith("nvfp4"):
        return back, np.repeat(e4m3(scale) / m["weight_global_scale"], 16, 1) * q
    return back, np.repeat(2. ** (scale.astype(np.float32) - 127), 32, 1).astype(np.float32) * q


def fp8(m, config, shape):
    if config["weight_block_size"]:
        scale = np.repeat(np.repeat(m["weight_scale_inv"], 128, 0), 128, 1)[:shape[0], :shape[1]]
        return scale * e4m3(m["weight"])
    assert m["weight_scale_inv"].shape == ()
    return m["weight_scale_inv"] * e4m3(m["weight"])


def bitsandbytes(m, config, shape):
    if config.get("load_in_8bit"):
        return m["SCB"][:, None] / np.float32(127) * m["weight"]
    state = json.loads(bytes(m["weight.quant_state.bitsandbytes__nf4"]))
    assert state["shape"] == list(shape) and state["quant_type"] == "nf4"
    q = np.stack([m["weight"].ravel() >> 4, m["weight"].ravel() & 15], -1).ravel()
    ours = (np.repeat(m["weight.absmax"], state["blocksize"]) * m["weight.quant_map"][q]).reshape(shape)
    if not (torch and bnb):
        return ours
    parts = {k.removeprefix("weight."): torch.from_numpy(v.copy()) for k, v in m.items() if k != "weight"}
    theirs = bnb.dequantize_4bit(torch.from_numpy(m["weight"].copy()), bnb.QuantState.from_dict(parts, device="cpu")).float().numpy()
    return theirs, ours


UNPACK = {"gptq": gptq, "awq": awq, "compressed-tensors": compressed, "fp8": fp8, "bitsandbytes": bitsandbytes}


def check(folder):
    config = json.load(open(f"{folder}/config.json"))["quantization_config"]
    tensors, plain = raw_tensors(f"{folder}/model.safetensors"), load_file(f"{folder}.plain/model.safetensors")
    left = set(config.get("ignore") or config.get("modules_to_not_convert") or config.get("llm_int8_skip_modules") or [])
    left |= {re.sub(r"\\", "", name[3:-1]) for name in config.get("dynamic", {})}
    packed = 0
    for name, want in plain.items():
        module = name.removesuffix("weight")
        mine = {k[len(module):]: v for k, v in tensors.items() if k.startswith(module)}
        if len(mine) == 1:
            assert (tensors[name] == want).all(), name
            assert want.ndim == 1 or "embed" in name or module[:-1] in left, f"{name} is in floats and not listed"
            continue
        assert module[:-1] not in left
        got = UNPACK[config["quant_method"]](mine, config, want.shape)
        theirs, got = got if isinstance(got, tuple) else (None, got)
        assert (got.astype(np.float32) == want).all(), (folder, name, np.abs(got - want).max())
        if theirs is not None:  # some unpack into floats of 16 bits
            assert np.abs(theirs - want).max() <= np.abs(want).max() * 0.005, (folder, name, np.abs(theirs - want).max())
        packed += 1
    assert packed == 7, (folder, packed)


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([sys.argv[1], "--gtest_filter=PackExchange.Write"], env={**os.environ, "LUMEN_EXCHANGE_DIR": folder}, capture_output=True, text=True)
        assert out.returncode == 0 and "[       OK ] PackExchange.Write" in out.stdout, out.stdout[-3000:]
        names = sorted(n for n in os.listdir(folder) if not n.endswith(".plain"))
        for name in names:
            check(f"{folder}/{name}")
            print("the same numbers:", name)
        assert len(names) > 15
    print("by libraries:", "compressed-tensors" if torch else "none", "bitsandbytes" if torch and bnb else "")


main()
