#!/usr/bin/env python3
"""Folders of the families' fixtures, written as GGUF by `lumen export`, loaded by llama.cpp (llama-cpp-python from PyPI): its
logits must be those of the fixtures, which transformers computed.

usage: llama_cpp_families.py LUMEN FIXTURES      exit code 77: a library is missing, nothing was checked
"""
import ctypes
import subprocess
import sys
import tempfile

try:
    import llama_cpp as l
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


def logits_of(path, tokens):
    parameters = l.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = l.llama_model_load_from_file(path.encode(), parameters)
    assert model, f"llama.cpp does not load {path}"
    options = l.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = 64
    options.n_threads = 2
    options.type_k = options.type_v = 0  # f32
    options.flash_attn_type = 0
    context = l.llama_init_from_model(model, options)
    batch = l.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
        batch.seq_id[i][0] = 0
    assert l.llama_decode(context, batch) == 0
    vocab = l.llama_vocab_n_tokens(l.llama_model_get_vocab(model))
    rows = [np.ctypeslib.as_array(l.llama_get_logits_ith(context, i), shape=(vocab,)).copy() for i in range(len(tokens))]
    l.llama_batch_free(batch)
    l.llama_free(context)
    l.llama_model_free(model)
    return np.stack(rows)


def main():
    lumen, fixtures = sys.argv[1:3]
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    l.llama_log_set(quiet, ctypes.c_void_p(0))
    l.llama_backend_init()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[3:] or CASES:
            path = f"{folder}/{name}.gguf"
            subprocess.run([lumen, "export", f"{fixtures}/{name}", path, "--type", "f32", "-q"], check=True)
            expected = safetensors.numpy.load_file(f"{fixtures}/{name}/expected.safetensors")
            want = expected["logits"][0]
            try:
                got = logits_of(path, expected["tokens"][0])
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
