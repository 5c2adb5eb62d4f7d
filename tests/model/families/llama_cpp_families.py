#!/usr/bin/env python3
"""Folders of the families' fixtures, written as GGUF by `lumen export`, loaded by llama.cpp (llama-cpp-python from PyPI): its
logits must be those of the fixtures, which transformers computed.

usage: llama_cpp_families.py LUMEN FIXTURES      exit code 77: a library is missing, nothing was checked
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import llama_cpp_logits as llama_cpp
    import numpy as np
    import safetensors.numpy
except ImportError as missing:
    print(f"skipped: {missing}; pip install llama-cpp-python safetensors numpy")
    sys.exit(77)

# Not: what its graphs do not compute (scores scaled in another way, windows of the llama architecture), and what its release 0.3.36
# takes for granted by the number of layers: windows of exaone4 and exaone-moe, deepseek2 without a latent of queries. There it is as
# far from transformers with the files of its own converter. Nor: other limits of GPT-OSS than the released ones, groups of experts by
# their best one, windows of phi3, dense layers between mixtures.
CASES = ["llama", "llama_linear", "llama_llama3", "llama_yarn", "llama_longrope", "llama_tied_bias", "kanana15", "qwen2", "qwen3", "gemma2_even", "gemma3",
         "gemma3_period", "exaone", "exaone4_global", "mixtral", "qwen3_moe", "gpt2", "deepseek_v3_even", "solar_open",
         "smollm3", "olmo2", "granite", "phi3", "glm4_moe", "glm4_moe_plain", "gpt_oss", "gpt_oss_mxfp4", "cohere2", "gemma3_pictures"]


def main():
    lumen, fixtures = sys.argv[1:3]
    llama_cpp.begin()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[3:] or CASES:
            path = f"{folder}/{name}.gguf"
            subprocess.run([lumen, "export", f"{fixtures}/{name}", path, "--type", "f32", "-q"], check=True)
            expected = safetensors.numpy.load_file(f"{fixtures}/{name}/expected.safetensors")
            want = expected["logits"][0]
            try:
                got = llama_cpp.logits_of(path, expected["tokens"][0])
            except AssertionError as failure:
                wrong.append(name)
                print(f"{name:16} {failure}")
                continue
            off = np.abs(got - want).max() / (want.max() - want.min())
            print(f"{name:16} {off:.2e} of the range")
            if not off < 2e-3:  # its products of f32 weights may go through shorter activations
                wrong.append(name)
    assert not wrong, wrong
    print("all alike")


main()
