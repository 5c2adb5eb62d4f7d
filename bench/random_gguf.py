#!/usr/bin/env python3
"""Writes a GGUF file of a Llama shape with random weights: what speed and memory are measured on where no trained model of
the size is at hand. Tokens are single bytes, and reserved ones up to the vocabulary's size. Needs numpy.

  python3 bench/random_gguf.py 1b q4_0 model.gguf
"""
import argparse
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

# vocabulary, width, layers, heads, heads of keys and values, inner width
SHAPES = {
    "tiny": (512, 256, 2, 4, 2, 512),
    "100m": (32000, 768, 8, 12, 4, 2048),
    "1b": (32000, 2048, 22, 32, 4, 5632),
    "8b": (128256, 4096, 32, 32, 8, 14336),
    "8b-2layers": (128256, 4096, 2, 32, 8, 14336),
    "70b": (128256, 8192, 80, 64, 8, 28672),
}
DEVIATION = 0.02  # of the weights


def f16(value):
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def bf16(random, count):
    """Normal numbers, cut to bf16."""
    values = (random.standard_normal(count, dtype=np.float32) * np.float32(DEVIATION)).view(np.uint32)
    return (values >> 16).astype(np.uint16).view(np.uint8)


def blocks(bytes_each, heads):
    """Blocks of random codes whose first bytes are `heads`."""
    def make(random, count):
        data = random.integers(0, 256, (count, bytes_each), dtype=np.uint8)
        for at, value in heads:
            data[:, at:at + 2] = f16(value)
        return data.reshape(-1)
    return make


# GGUF's number, elements and bytes of a block, and random blocks (of so many).
TYPES = {
    "bf16": (30, 1, 2, bf16),
    "q8_0": (8, 32, 34, blocks(34, [(0, DEVIATION / 74)])),
    "q4_0": (2, 32, 18, blocks(18, [(0, DEVIATION / 4.6)])),
    # Scales of 6 bits are 31 on average, codes 7.5: the offset takes the mean out.
    "q4_k": (12, 256, 144, blocks(144, [(0, DEVIATION / 4.6 / 31), (2, DEVIATION / 4.6 / 31 * 7.5)])),
}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, data):
    return text(key) + struct.pack("<I", kind) + data


def byte_names():
    """The printable characters that stand for bytes in byte-level vocabularies."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, more = {}, 256
    for b in range(256):
        names[b] = chr(b) if b in kept else chr(more)
        more += b not in kept
    return [names[b] for b in range(256)]


def write(path, shape, kind, context=8192, vocabulary=None):
    usual, width, layers, heads, groups, inner = SHAPES[shape]
    vocabulary = vocabulary or usual
    depth = width // heads
    words = byte_names()
    words += [words[101] + words[32]]  # one merge, as readers expect some
    words += [f"<|reserved_{i}|>" for i in range(vocabulary - len(words))]
    u32 = lambda key, value: entry(key, 4, struct.pack("<I", value))
    array = lambda key, type_, items: entry(key, 9, struct.pack("<IQ", type_, len(items)) + b"".join(items))
    keys = [
        entry("general.architecture", 8, text("llama")), u32("llama.vocab_size", vocabulary), u32("llama.embedding_length", width),
        u32("llama.block_count", layers), u32("llama.attention.head_count", heads), u32("llama.attention.head_count_kv", groups),
        u32("llama.feed_forward_length", inner), u32("llama.context_length", context), u32("llama.rope.dimension_count", depth),
        entry("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        entry("llama.rope.freq_base", 6, struct.pack("<f", 500000.0)),
        entry("tokenizer.ggml.model", 8, text("gpt2")), entry("tokenizer.ggml.pre", 8, text("llama-bpe")),
        array("tokenizer.ggml.tokens", 8, [text(w) for w in words]),
        array("tokenizer.ggml.token_type", 5, [struct.pack("<i", 1 if i < 257 else 3) for i in range(vocabulary)]),
        array("tokenizer.ggml.merges", 8, [text(words[101] + " " + words[32])]),
        u32("tokenizer.ggml.eos_token_id", vocabulary - 1),
    ]
    tensors = [("token_embd.weight", vocabulary, width), ("output.weight", vocabulary, width), ("output_norm.weight", 0, width)]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", rows, columns) for name, rows, columns in (
            ("attn_norm", 0, width), ("ffn_norm", 0, width), ("attn_q", width, width), ("attn_k", groups * depth, width),
            ("attn_v", groups * depth, width), ("attn_output", width, width), ("ffn_gate", inner, width), ("ffn_up", inner, width),
            ("ffn_down", width, inner))]
    number, elements, size, make = TYPES[kind]
    bytes_of = lambda rows, columns: rows * columns // elements * size if rows else 4 * columns
    aligned = lambda n: (n + 31) // 32 * 32
    infos, offset = [], 0
    for name, rows, columns in tensors:
        dims = struct.pack("<IQQ", 2, columns, rows) if rows else struct.pack("<IQ", 1, columns)
        infos.append(text(name) + dims + struct.pack("<IQ", number if rows else 0, offset))
        offset += aligned(bytes_of(rows, columns))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(infos)
    # One stretch of random blocks serves all tensors, each from another place in it.
    random = np.random.default_rng(1)
    stretch = make(random, (1 << 26) // size).tobytes()
    start = aligned(len(header))
    with open(path, "wb") as file:
        file.write(header)
        file.truncate(start + offset)
    jobs = []  # (offset in the file, bytes of it, offset in the stretch); none: ones, of a norm
    at = start
    for name, rows, columns in tensors:
        left = count = bytes_of(rows, columns)
        if not rows:
            jobs.append((at, count, None))
            left = 0
        while left > 0:
            source = int(random.integers(0, len(stretch) // size // 2)) * size
            part = min(left, len(stretch) - source)
            jobs.append((at + count - left, part, source))
            left -= part
        at += aligned(count)
    with open(path, "r+b") as file, ThreadPoolExecutor() as pool:
        def place(job):
            to, count, source = job
            data = np.ones(count // 4, np.float32).tobytes() if source is None else memoryview(stretch)[source:source + count]
            done = 0
            while done < count:
                done += os.pwrite(file.fileno(), data[done:], to + done)
        for _ in pool.map(place, jobs):
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("file", type=Path)
    parser.add_argument("--vocabulary", type=int, help="tokens, in place of the shape's; at least 258")
    arguments = parser.parse_args()
    if arguments.vocabulary is not None and arguments.vocabulary < 258:
        parser.error("--vocabulary must be at least 258")
    write(arguments.file, arguments.shape, arguments.type, vocabulary=arguments.vocabulary)
