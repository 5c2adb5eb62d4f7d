#!/usr/bin/env python3
"""Memory that `lumen quantize` and `lumen export` take: as much for a model of many layers as for one of few, whatever is written and
whether the folder that is read has to be rearranged or not, and less than three times the largest layer on top of the program itself.

usage: stream_check.py LUMEN                            the check
       stream_check.py LUMEN FOLDER LAYERS WIDTH TYPE [FORM]   a synthetic model of bf16 weights in FOLDER, rounded to TYPE: seconds,
                                                        bytes per second and memory (FORM: as --output-format, gguf by default)
"""
import json
import os
import struct
import sys
import tempfile
import time


def tensors(layers, width, ffn, vocab):
    yield "model.embed_tokens.weight", (vocab, width)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (width,)
        for name in "qkvo":
            yield f"{p}self_attn.{name}_proj.weight", (width, width)
        yield p + "post_attention_layernorm.weight", (width,)
        yield p + "mlp.gate_proj.weight", (ffn, width)
        yield p + "mlp.up_proj.weight", (ffn, width)
        yield p + "mlp.down_proj.weight", (width, ffn)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (vocab, width)


def layer_bytes(width, ffn):
    return 2 * (4 * width * width + 3 * width * ffn)


def write_model(folder, layers, width, ffn, vocab):
    """A Llama folder of bf16 numbers: any mantissa, small exponents. Bytes of its weights."""
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": width // 64, "num_key_value_heads": width // 64, "vocab_size": vocab,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    with open(f"{folder}/config.json", "w") as out:
        json.dump(config, out)
    header, at = {}, 0
    for name, shape in tensors(layers, width, ffn, vocab):
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    high = bytes(0x3C | b & 0x80 for b in range(256))
    pool = bytearray(os.urandom(8 << 20))
    pool[1::2] = pool[1::2].translate(high)
    with open(f"{folder}/model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        left = at
        while left > 0:
            out.write(pool[:left])
            left -= len(pool)
    return at


def run(words):
    """Seconds, and the most memory the program had, in bytes."""
    begin = time.monotonic()
    child = os.spawnvp(os.P_NOWAIT, words[0], words)
    _, status, used = os.wait4(child, 0)
    assert status == 0, (words, status)
    return time.monotonic() - begin, used.ru_maxrss * 1024


def check(lumen):
    width, ffn, vocab, few, many = 512, 1536, 64, 2, 26
    layer = layer_bytes(width, ffn)
    with tempfile.TemporaryDirectory() as folder:
        def memory(model, deed, runs):
            out = f"{folder}/out"
            words = [lumen, deed[0], model, out + deed[1], *deed[2:], "--threads", "2", "-q", "--overwrite"]
            return min(run(words)[1] for _ in range(runs))
        for layers in (few, many):
            write_model(f"{folder}/hf{layers}", layers, width, ffn, vocab)
            run([lumen, "export", f"{folder}/hf{layers}", f"{folder}/{layers}.gguf", "-q"])
        for deed in (["quantize", ".gguf", "q8_0"], ["quantize", ".gguf", "q4_k"],
                     ["quantize", "-gptq", "int4_g128", "--output-format", "gptq", "--max-shard-size", "20M"],
                     ["quantize", "-fp8", "fp8_tile", "--output-format", "fp8"],
                     ["export", "-f16.gguf", "--type", "f16"], ["export", "-hf", "--to", "hf"]):
            for model in ("hf{}", "{}.gguf"):
                # The first run compiles kernels, which takes memory of its own; those of more layers are the same.
                small, large = (memory(f"{folder}/" + model.format(n), deed, runs) for n, runs in ((few, 2), (many, 1)))
                if large - small >= 3 * layer:
                    large = memory(f"{folder}/" + model.format(many), deed, 1)
                print(f"{' '.join(deed):70} of {model:8} {small >> 20:5} MiB, of {many // few} times as many layers {large >> 20:5} MiB")
                assert large - small < 3 * layer, (deed, model, small, large, layer)


def measure(lumen, folder, layers, width, kind, form="gguf"):
    ffn, vocab = width * 7 // 2, 32000
    size = write_model(f"{folder}/hf", layers, width, ffn, vocab)
    out = f"{folder}/out.gguf" if form == "gguf" else f"{folder}/out"
    for _ in range(2):  # the second with compiled kernels and a file that is in the system's cache
        seconds, memory = run([lumen, "quantize", f"{folder}/hf", out, kind, "--output-format", form, "--pure", "-q", "--overwrite"])
        print(f"{size / 1e9:.2f} GB to {kind} in {seconds:.1f} s: {size / 1e9 / seconds:.2f} GB/s read; most memory {memory / 1e9:.2f} GB,"
              f" the largest layer {layer_bytes(width, ffn) / 1e9:.2f} GB, the embedding {2 * vocab * width / 1e9:.2f} GB")


if len(sys.argv) == 2:
    check(sys.argv[1])
else:
    measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
