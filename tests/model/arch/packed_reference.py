#!/usr/bin/env python3
"""Makes tests/model/fixtures/packed: one weight rounded and packed by the libraries that write such checkpoints, and what they make
of it again. Only the results are needed by the tests. The weights are random.

usage: packed_reference.py FOLDER [CASE ...]      needs, from PyPI: torch, safetensors, compressed-tensors 0.20, bitsandbytes 0.50,
                                                  and the code of autoawq 0.2.9 and auto-gptq 0.7.1 (pip install --no-deps)

Each file has the tensors of a module as in a checkpoint (without the module's name), `expected.rows` and `expected.values`: some
rows of the weight as the library unpacks it; quantization_config, as config.json would have it, is in the metadata.
"""
import importlib.util
import json
import sys
import types

import safetensors.torch
import torch

OUT, IN = 192, 256
ROWS = [0, 1, 62, 127, 128, 191]
torch.manual_seed(5)
WEIGHT = (torch.randn(OUT, IN) * 0.05).to(torch.float16).to(torch.float32)
CASES = {}


def case(make):
    CASES[make.__name__] = make
    return make


def package(name):
    """A package's modules without what its __init__ would bring along."""
    spec = importlib.util.find_spec(name)
    module = types.ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = module


def linear(weight):
    layer = torch.nn.Linear(IN, OUT, bias=False)
    layer.weight.data = weight.clone()
    return layer


def groups(bits, size, symmetric):
    """Scales and zeros [out, groups], as calibration might give them."""
    parts = WEIGHT.reshape(OUT, -1, size)
    if symmetric:
        return (parts.abs().amax(-1) / (2 ** (bits - 1) - 1)).half().float(), torch.full(parts.shape[:2], 2.0 ** (bits - 1))
    low, high = parts.amin(-1).clamp(max=0), parts.amax(-1).clamp(min=0)
    scales = ((high - low) / (2**bits - 1)).half().float()
    return scales, (-low / scales).round().clamp(1, 2**bits - 1)


def gptq(bits, size, symmetric):
    for name in ("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear"):
        package(name) if name not in sys.modules else None
    from auto_gptq.nn_modules.qlinear.qlinear_cuda_old import QuantLinear
    scales, zeros = groups(bits, size, symmetric)
    packed = QuantLinear(bits, size, IN, OUT, False, use_cuda_fp16=False)
    rounded = torch.clamp(torch.round(WEIGHT / scales.repeat_interleave(size, 1)) + zeros.repeat_interleave(size, 1), 0, 2**bits - 1)
    values = (rounded - zeros.repeat_interleave(size, 1)) * scales.repeat_interleave(size, 1)
    packed.pack(linear(values), scales.clone(), zeros.clone(), None)
    packed.scales = packed.scales.half()
    packed.autogptq_cuda_available = False
    back = packed(torch.eye(IN, dtype=torch.float16)).t().float()
    assert (back - values).abs().max() < 1e-3
    tensors = {k: getattr(packed, k) for k in ("qweight", "qzeros", "scales", "g_idx")}
    return tensors, values, {"quant_method": "gptq", "bits": bits, "group_size": size, "damp_percent": 0.01, "desc_act": False, "static_groups": False,
                             "sym": symmetric, "true_sequential": True, "checkpoint_format": "gptq", "model_name_or_path": None}


@case
def gptq_u4():
    return gptq(4, 128, True)


@case
def gptq_u3_zeros():
    return gptq(3, 64, False)


@case
def awq():
    for name in ("awq", "awq.utils", "awq.modules", "awq.modules.linear"):
        package(name) if name not in sys.modules else None
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm
    scales, zeros = groups(4, 64, False)
    values = (torch.clamp(torch.round(WEIGHT / scales.repeat_interleave(64, 1)) + zeros.repeat_interleave(64, 1), 0, 15) - zeros.repeat_interleave(64, 1)) * scales.repeat_interleave(64, 1)
    packed = WQLinear_GEMM.from_linear(linear(values), 4, 64, scales=scales.t().contiguous(), zeros=zeros.t().contiguous())
    back = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales, 4, 64).t().float()
    assert (back - values).abs().max() < 1e-3
    tensors = {k: getattr(packed, k) for k in ("qweight", "qzeros", "scales")}
    return tensors, values, {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True, "modules_to_not_convert": None}


def compressed(form, args, state):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    compressor = BaseCompressor.get_value_from_registry(form)
    packed = compressor.compress({"weight": WEIGHT.clone(), **state}, scheme)
    back = compressor.decompress(dict(packed), scheme)["weight"].float()
    if form.startswith("nvfp4"):  # which it gives rounded to bf16
        from compressed_tensors.compressors import unpack_fp4_from_uint8
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        codes = unpack_fp4_from_uint8(packed["weight_packed"], OUT, IN, dtype=torch.float32)
        whole = dequantize(x_q=codes, scale=packed["weight_scale"].float(), args=scheme.weights, global_scale=packed["weight_global_scale"], dtype=torch.float32)
        assert (whole - back).abs().max() < back.abs().max() * 0.005
        back = whole
    assert (back - WEIGHT).abs().max() < WEIGHT.abs().max() * 0.3, (back - WEIGHT).abs().max()
    group = json.loads(scheme.model_dump_json())
    config = {"quant_method": "compressed-tensors", "format": form, "global_compression_ratio": None, "ignore": ["lm_head"], "kv_cache_scheme": None,
              "quantization_status": "compressed", "config_groups": {"group_0": {**group, "format": form}}}
    return {k: v.contiguous() for k, v in packed.items()}, back, config


def signed(bits, size, symmetric):
    scales, zeros = groups(bits, size, symmetric)
    return {"weight_scale": scales, "weight_zero_point": (zeros - 2 ** (bits - 1)).to(torch.int8)}


@case
def compressed_u4():
    return compressed("pack-quantized", dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=64), signed(4, 64, True))


@case
def compressed_u4_zeros():
    return compressed("pack-quantized", dict(num_bits=4, type="int", symmetric=False, strategy="group", group_size=64), signed(4, 64, False))


@case
def compressed_rows_i8():
    return compressed("int-quantized", dict(num_bits=8, type="int", symmetric=True, strategy="channel"),
                      {"weight_scale": WEIGHT.abs().amax(1, keepdim=True) / 127})


@case
def compressed_rows_fp8():
    return compressed("float-quantized", dict(num_bits=8, type="float", symmetric=True, strategy="channel"),
                      {"weight_scale": WEIGHT.abs().amax(1, keepdim=True) / 448})


@case
def compressed_blocks_fp8():
    padded = torch.nn.functional.pad(WEIGHT, (0, -IN % 128, 0, -OUT % 128))
    scales = padded.reshape(padded.shape[0] // 128, 128, -1, 128).abs().amax((1, 3)) / 448
    return compressed("float-quantized", dict(num_bits=8, type="float", symmetric=True, strategy="block", block_structure=[128, 128]),
                      {"weight_scale": scales})


@case
def compressed_nvfp4():
    whole = 448 * 6 / WEIGHT.abs().max().reshape(1)
    scales = (WEIGHT.reshape(OUT, -1, 16).abs().amax(-1) / 6 * whole).to(torch.float8_e4m3fn).float()
    return compressed("nvfp4-pack-quantized", dict(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16),
                      {"weight_scale": scales, "weight_global_scale": whole})


@case
def compressed_mxfp4():
    scales = torch.exp2(torch.floor(torch.log2(WEIGHT.reshape(OUT, -1, 32).abs().amax(-1))) - 2)
    return compressed("mxfp4-pack-quantized", dict(num_bits=4, type="float", symmetric=True, strategy="group", group_size=32), {"weight_scale": scales})


def four_bits(kind, nested):
    import bitsandbytes.functional as b
    packed, state = b.quantize_4bit(WEIGHT.clone(), quant_type=kind, compress_statistics=nested, blocksize=64)
    tensors = {"weight": packed, **{"weight." + k: v for k, v in state.as_dict(packed=True).items()}}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "_load_in_4bit": True, "bnb_4bit_quant_type": kind,
              "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8", "llm_int8_threshold": 6.0}
    return tensors, b.dequantize_4bit(packed, state).float(), config


@case
def bitsandbytes_nf4():
    return four_bits("nf4", False)


@case
def bitsandbytes_nf4_nested():
    return four_bits("nf4", True)


@case
def bitsandbytes_fp4():
    return four_bits("fp4", False)


@case
def bitsandbytes_i8():
    import bitsandbytes.functional as b
    codes, scales, _ = b.int8_vectorwise_quant(WEIGHT.half())
    return ({"weight": codes, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}, b.int8_vectorwise_dequant(codes, scales).float(),
            {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False, "llm_int8_threshold": 6.0})


def main():
    for name in sys.argv[2:] or CASES:
        tensors, values, config = CASES[name]()
        tensors = {**tensors, "expected.rows": torch.tensor(ROWS, dtype=torch.int32), "expected.values": values[ROWS].contiguous()}
        safetensors.torch.save_file({k: v.contiguous().cpu() for k, v in tensors.items()}, f"{sys.argv[1]}/{name}.safetensors",
                                    {"format": "pt", "quantization_config": json.dumps(config)})
        print(f"{name:26} off by {(values - WEIGHT).abs().max() / WEIGHT.abs().max():.4f}  {({k: tuple(v.shape) for k, v in tensors.items() if 'expected' not in k})}")


main()
