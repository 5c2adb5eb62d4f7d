#!/usr/bin/env python3
"""Writes tests/number/fixtures/grids.txt: blocks of random bytes with a finite scale, and what the package `gguf` decodes them to.

Usage: tests/number/grid_reference.py, with the packages gguf and numpy.
"""
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

TYPES = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
BLOCKS = 2


def main():
    random = np.random.default_rng(29)
    lines = ["# Made by tests/number/grid_reference.py: blocks of a format, and their values as f32."]
    for name in TYPES:
        kind = GGMLQuantizationType[name]
        blocks = random.integers(0, 256, (BLOCKS, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        scales = random.standard_normal(BLOCKS).astype(np.float16).view(np.uint16)
        if name == "IQ1_M":  # a nibble of the scale at the top of each of four words
            words = blocks[:, 48:].copy().view(np.uint16) & 0xFFF
            words |= np.stack([(scales >> 4 * k & 15) << 12 for k in range(4)], axis=1)
            blocks[:, 48:] = words.view(np.uint8)
        else:
            blocks[:, :2] = scales.reshape(-1, 1).view(np.uint8)
        values = dequantize(blocks.reshape(1, -1), kind).astype(np.float32)
        lines.append(f"{name.lower()} {blocks.tobytes().hex()} {values.tobytes().hex()}")
    Path(__file__).with_name("fixtures").joinpath("grids.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
