"""What AMD's pseudo-code only names, against definitions in double precision: matrix instructions, with the layouts of the documents'
chapters on them, codes of 8 bits (without negative zero on gfx942), and whole divisions."""
import math
import re
import struct
from fractions import Fraction

A, B, C, D = 64, 96, 128, 160  # registers
F32_SHARE = 2.0 ** -20  # of the sum of the terms: order and rounding inside of a sum are not documented


def f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits & 0xffffffff))[0]


def bits_of_f32(x):
    try:
        return struct.unpack("<I", struct.pack("<f", x))[0]
    except OverflowError:
        return 0xff800000 if x < 0 else 0x7f800000


def code_value(code, exponent_bits, mantissa, bias, kind):
    """An 8, 6 or 4 bit float. kind: ocp4 (only all ones is NaN), ocp5 (as IEEE), fnuz (only -0 is NaN), finite."""
    bits = exponent_bits + mantissa
    sign, e, m = code >> bits & 1, code >> mantissa & ((1 << exponent_bits) - 1), code & ((1 << mantissa) - 1)
    top = e == (1 << exponent_bits) - 1
    if kind == "fnuz" and code == 1 << bits or kind == "ocp4" and top and m == (1 << mantissa) - 1:
        return math.nan
    if kind == "ocp5" and top:
        return math.nan if m else -math.inf if sign else math.inf
    size = m * 2.0 ** (1 - bias - mantissa) if e == 0 else ((1 << mantissa) + m) * 2.0 ** (e - bias - mantissa)
    return -size if sign else size


def small_float(name, chip):
    """(exponent bits, mantissa, bias, kind) of fp8 and bf8 on a chip."""
    if name == "fp8":
        return (4, 3, 8, "fnuz") if chip == "gfx942" else (4, 3, 7, "ocp4")
    return (5, 2, 16, "fnuz") if chip == "gfx942" else (5, 2, 15, "ocp5")


class Element:
    def __init__(self, name, chip, signed=True):
        self.name, self.signed = name, signed
        self.bits = {"f32": 32, "f16": 16, "bf16": 16, "i8": 8, "iu8": 8}.get(name, 8)
        self.code = small_float(name, chip) if name in ("fp8", "bf8") else None

    def random(self, pick):
        if self.name == "f32":
            return bits_of_f32(pick.gauss(0, 2))
        if self.name == "f16":
            return struct.unpack("<H", struct.pack("<e", pick.gauss(0, 2)))[0]
        if self.name == "bf16":
            return bits_of_f32(pick.gauss(0, 2)) >> 16
        while True:
            x = pick.getrandbits(8)
            if self.code is None or math.isfinite(code_value(x, *self.code)):
                return x

    def value(self, x):
        if self.name == "f32":
            return f32(x)
        if self.name == "f16":
            return struct.unpack("<e", struct.pack("<H", x))[0]
        if self.name == "bf16":
            return f32(x << 16)
        if self.code:
            return code_value(x, *self.code)
        return x - 256 if self.signed and x > 127 else x


def place_of_sum(chip, size, lane, register):
    """Row and column of a sum: CDNA3 and CDNA4, RDNA3, RDNA4."""
    if chip.startswith("gfx9"):
        return ((8 * (register // 4) + 4 * (lane // 32) + register % 4) if size == 32 else 4 * (lane // 16) + register), lane % size
    return (2 * register + lane // 16 if chip.startswith("gfx11") else 8 * (lane // 16) + register), lane % 16


class Matrix:
    """A product of one instruction with random factors."""

    def __init__(self, chip, op, code, pick):
        m = re.fullmatch(r"v_(mfma|wmma)_(f32|i32)_(\d+)x\d+x(\d+)_([a-z0-9]+?)(?:_([a-z0-9]+))?", op)
        self.chip, self.code, self.integer = chip, code, m[2] == "i32"
        self.size, self.k = int(m[3]), int(m[4])
        self.a, self.b = Element(m[5], chip), Element(m[6] or m[5], chip)
        self.lanes = 64 if m[1] == "mfma" else 32
        third = chip.startswith("gfx11")
        share = self.k if third else self.k * self.size // self.lanes
        self.sums = self.size * self.size // self.lanes
        self.rows = [[self.a.random(pick) for _ in range(self.k)] for _ in range(self.size)]
        self.columns = [[self.b.random(pick) for _ in range(self.k)] for _ in range(self.size)]
        self.vectors = {}
        for base, lines, e in ((A, self.rows, self.a), (B, self.columns, self.b)):
            for lane in range(self.lanes):
                first = 0 if third else lane // self.size * share
                run = lines[lane % self.size][first:first + share]
                whole = sum(x << (e.bits * n) for n, x in enumerate(run))
                for w in range(share * e.bits // 32):
                    self.vectors.setdefault(base + w, [0] * 64)[lane] = whole >> (32 * w) & 0xffffffff
        self.start = [[pick.getrandbits(32) if self.integer else bits_of_f32(pick.gauss(0, 2)) for _ in range(self.lanes)] for _ in range(self.sums)]
        for r, column in enumerate(self.start):
            self.vectors[C + r] = column

    def lines(self):
        out = [f"v {r:x} " + " ".join(f"{x:x}" for x in column[:self.lanes]) for r, column in self.vectors.items()]
        return out + ["s 7e ffffffff", *(["s 7f ffffffff"] if self.lanes == 64 else []), "x " + self.code.hex()]

    def wrong(self, after):
        if after.fault:
            return after.fault
        for r in range(self.sums):
            got = after.vectors.get(D + r) or [0] * self.lanes
            for lane in range(self.lanes):
                row, column = place_of_sum(self.chip, self.size, lane, r)
                terms = [self.a.value(x) * self.b.value(y) for x, y in zip(self.rows[row], self.columns[column])]
                old = self.start[r][lane]
                if self.integer:
                    want = (sum(terms) + old) & 0xffffffff
                    if got[lane] != want:
                        return f"sum {row}, {column}: {got[lane]:#x}, not {want:#x}"
                    continue
                terms.append(f32(old))
                want = math.fsum(terms)
                if not abs(f32(got[lane]) - want) <= F32_SHARE * math.fsum(map(abs, terms)):
                    return f"sum {row}, {column}: {f32(got[lane])}, not {want}"
        return None


def matrix_code(arch, op, v):
    """Its encoding with the registers above; None where the encoder has none."""
    name = op.name.lower()
    options = ("VOP3P_MFMA", "VOP3P") if arch.name == "cdna" else ("VOP3P",)
    for cls in (getattr(arch.ins, n, None) for n in options):
        if cls is None or (cls.op.allowed is not None and op not in cls.op.allowed):
            continue
        i = cls.__new__(cls)
        i._raw = 0
        given = {"op": op, "vdst": v[D], "src0": v[A], "src1": v[B], "src2": v[C]}
        if "iu8" in name:
            given["neg"] = 3  # both have signs
        if arch.name != "cdna":
            given |= {"opsel_hi": 3, "opsel_hi2": 1}
        for n, f in cls._fields:
            if n in given or type(f).__name__ == "FixedBitField":
                i._raw = f.set(i._raw, given.get(n))
        return i.to_bytes()
    return None


def codes_wrong(chip, kind, words):
    """All codes as numbers, by v_cvt_f32_*: words[code] is what came out."""
    for code in range(256):
        want, got = code_value(code, *small_float(kind, chip)), f32(words[code])
        if not (got == want and math.copysign(1, got) == math.copysign(1, want) or got != got and want != want):
            return f"code {code:#x}: {got}, not {want}"
    return None


def nearest_code(x, form):
    """The code of the nearest number, of two the even one; beyond the range NaN or infinity."""
    exponent_bits, mantissa, bias, kind = form
    bits = exponent_bits + mantissa
    sign = 1 << bits if math.copysign(1, x) < 0 else 0
    codes = [c for c in range(1 << bits) if math.isfinite(code_value(c, *form))]
    last = code_value(codes[-1], *form)
    beyond = (1 << bits) if kind == "fnuz" else sign | ((1 << bits) - 1) if kind == "ocp4" else sign | 31 << 2
    if x != x:
        return None
    step = last - code_value(codes[-2], *form)
    if math.isinf(x) or abs(x) > last + step / 2 or (abs(x) == last + step / 2 and codes[-1] & 1):
        return beyond
    best = min(codes, key=lambda c: (abs(Fraction(code_value(c, *form)) - Fraction(abs(x))), c & 1))
    return 0 if best == 0 and kind == "fnuz" else sign | best
