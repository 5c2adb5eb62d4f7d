#!/usr/bin/env python3
"""Gives a small model what large ones have by themselves: activations of single tokens that stand far out of all others in
the inner layer of some feed-forwards ("spikes", as in Llama 2 and Mistral). One channel of each is taken out of the model (its
column of the last matrix becomes zero), then made very large where a chosen token stands. Nothing reads it, so the two files
written compute the same: the one with spikes is measured against the one without.

Run:  python3 bench/token_spikes.py model-f32.gguf without.gguf with.gguf --token 0 --layers 0,1 --size 60
"""
import argparse
import math
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TEXT, ARRAY, F32 = 8, 9, 0


class Gguf:
    def __init__(self, path):
        self.data = bytearray(open(path, "rb").read())
        self.at = 8
        count, keys = self.number("<q"), self.number("<q")
        alignment = 32
        for _ in range(keys):
            key, kind = self.text(), self.number("<i")
            value = self.skip(kind)
            alignment = value if key == "general.alignment" else alignment
        self.tensors = {}
        for _ in range(count):
            name, axes = self.text(), self.number("<I")
            shape = [self.number("<q") for _ in range(axes)]
            kind, offset = self.number("<i"), self.number("<Q")
            self.tensors[name] = (shape, kind, offset)
        self.begin = (self.at + alignment - 1) // alignment * alignment

    def number(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def text(self):
        length = self.number("<q")
        self.at += length
        return bytes(self.data[self.at - length:self.at]).decode("utf-8", "replace")

    def skip(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            inner, count = self.number("<i"), self.number("<q")
            for _ in range(count):
                self.skip(inner)
            return None
        self.at += SIZES[kind]
        return struct.unpack_from("<I", self.data, self.at - 4)[0] if SIZES[kind] == 4 else None

    def place(self, name, row, column):
        shape, kind, offset = self.tensors[name]
        if kind != F32:
            raise SystemExit(f"{name} is not f32: decode the model first")
        return self.begin + offset + 4 * (row * shape[0] + column)

    def get(self, name, row, column):
        return struct.unpack_from("<f", self.data, self.place(name, row, column))[0]

    def set(self, name, row, column, value):
        struct.pack_into("<f", self.data, self.place(name, row, column), value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("without")
    parser.add_argument("spiky")
    parser.add_argument("--token", type=int, default=0, help="where the spikes are")
    parser.add_argument("--layers", default="0,1")
    parser.add_argument("--channel", type=int, default=5)
    parser.add_argument("--size", type=float, default=60)
    args = parser.parse_args()
    model = Gguf(args.model)
    layers = [int(n) for n in args.layers.split(",")]
    for layer in layers:
        for row in range(model.tensors[f"blk.{layer}.ffn_down.weight"][0][1]):
            model.set(f"blk.{layer}.ffn_down.weight", row, args.channel, 0)
    open(args.without, "wb").write(model.data)
    width = model.tensors["token_embd.weight"][0][0]
    token = [model.get("token_embd.weight", args.token, k) for k in range(width)]
    length = math.sqrt(sum(v * v for v in token))
    for layer in layers:
        for name in ("ffn_gate", "ffn_up"):
            for k in range(width):
                model.set(f"blk.{layer}.{name}.weight", args.channel, k, args.size * token[k] / length)
    open(args.spiky, "wb").write(model.data)


if __name__ == "__main__":
    main()
