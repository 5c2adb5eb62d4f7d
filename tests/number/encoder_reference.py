#!/usr/bin/env python3
"""Writes tests/number/fixtures/encoders.txt: rows of 256 numbers, and the blocks that llama.cpp's encoders make of them.

Usage: tests/number/encoder_reference.py LIBRARY, where LIBRARY is ggml's base library (libggml-base.so of llama.cpp or of
llama-cpp-python) built without assertions, as releases are. Blocks that llama.cpp itself refuses (a scale beyond f16) are left out.
"""
import ctypes
import sys
from pathlib import Path

import numpy as np

TYPES = {"q8_0": 8, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14,
         "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34, "tq2_0": 35, "nvfp4": 40, "q1_0": 41}
FUNCTIONS = {"q2_k": "q2_K", "q3_k": "q3_K", "q4_k": "q4_K", "q5_k": "q5_K", "q6_k": "q6_K"}
COLUMNS = 256


def rows(random):
    z = lambda: random.standard_normal(COLUMNS)
    yield "normal", z()
    yield "subnormal", z() * 1e-40
    yield "tiny", z() * 1e-9
    yield "scale below f16", z() * 2e-7
    for top in (1e4, 1e5, 1e6, 3e7, 1e9, 1e30):
        x = z()
        x[random.integers(COLUMNS)] = top * random.choice([-1, 1])
        yield f"outlier {top:g}", x
    yield "ties", random.integers(-8, 9, COLUMNS) / 8
    yield "halves", random.choice([-1.0, -0.5, 0, 0.5, 1.0], COLUMNS)
    yield "constant", np.full(COLUMNS, 0.37)
    yield "negative constant", np.full(COLUMNS, -0.37)
    yield "zeros", np.zeros(COLUMNS)
    yield "zeros of both signs", np.where(random.random(COLUMNS) < 0.5, 0.0, -0.0)
    x = np.zeros(COLUMNS)
    x[77] = -0.5
    yield "one number", x
    x = z()
    x[: COLUMNS // 2] = 0
    yield "half zeros", x
    yield "positive", np.abs(z())
    for _ in range(4):
        yield "scales apart", z() * 10.0 ** np.repeat(random.uniform(-8, 2, COLUMNS // 16), 16)
    yield "scales apart, subnormal", z() * 10.0 ** np.repeat(random.uniform(-44, -2, COLUMNS // 16), 16)
    yield "signs", random.choice([-1.0, 1.0], COLUMNS) * 0.01
    yield "large", z() * 1e5
    yield "bf16", (z().astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    # Blocks below zero, far apart: minima whose rounding is much more than another block's scale.
    yield "far minima", z() * 1e-6 - np.repeat(random.uniform(0, 1000, COLUMNS // 32), 32)


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_row_size.restype = ctypes.c_size_t
    library.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.ggml_validate_row_data.restype = ctypes.c_bool
    library.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    lines = ["# Made by tests/number/encoder_reference.py: rows of f32, then a line for each encoder that takes the row."]
    with np.errstate(all="ignore"):
        for name, row in rows(np.random.default_rng(14)):
            x = np.ascontiguousarray(row, np.float32)
            lines.append(f"row {name.replace(' ', '_')} {x.tobytes().hex()}")
            for kind, number in TYPES.items():
                encode = getattr(library, "quantize_" + FUNCTIONS.get(kind, kind))
                encode.restype = ctypes.c_size_t
                encode.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
                size = library.ggml_row_size(number, COLUMNS)
                out = np.zeros(size, np.uint8)
                encode(x.ctypes.data, out.ctypes.data, 1, COLUMNS, None)
                if library.ggml_validate_row_data(number, out.ctypes.data, size):
                    lines.append(f"{kind} {out.tobytes().hex()}")
    target = Path(__file__).resolve().parent / "fixtures" / "encoders.txt"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(lines) + "\n")
    print(f"{target}: {len(lines)} lines, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
