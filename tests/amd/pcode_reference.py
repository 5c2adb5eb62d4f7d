#!/usr/bin/env python3
"""The interpreter of AMD's machine code against a second witness: AMD's own pseudo-code, as the PyPI package tinygrad ships it, and
its encoder of instructions. Every operation that both know, on edge cases and random operands, bit for bit.

usage: pcode_reference.py AMD_INSTRUCTION [--chip NAME] [--only WORDS] [--rounds N] [-v]
       exit code 77: tinygrad is missing, nothing was checked
"""
import argparse
import importlib
import math
import random
import re
import struct
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pcode import Lanes, Memory, compiled
from pcode_numbers import Denormal, Open, V, real, rounded, value

try:
    from tinygrad.renderer.amd.dsl import OPERANDS, VCC, NULL, s, v
except ImportError as missing:
    print(f"skipped: {missing}; pip install tinygrad")
    sys.exit(77)

CHIPS = {"gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
BASE = 1 << 40  # where memory lies in one_instruction.cpp
VCC_NUMBER, M0, EXEC_NUMBER = 106, 124, 126  # in instruction.h
SOURCES, RESULT, SCALARS, SCALAR_RESULT, MASK, ADDRESS = (1, 5, 9), 16, (20, 24, 28), 40, 50, 60
SLOT = 32  # bytes of memory of each lane

# To an ulp on the hardware, denormals flushed or not; which is right no document says.
NEAR = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|sin|cos)_(iflag_)?f(16|32|64)$")
# Not executed here, each with its reason.
OPEN = {
    r"v_(s|)(mfma|wmma|smfmac|swmmac)": "matrix instructions: the text is a picture; checked by matrix_reference",
    r"v_div_(scale|fmas|fixup)_f": "the text's scaling gives no right quotients (docs/amd.md); the quotients of whole divisions are checked",
    r"v_mov(rel|_fed)|s_mov(rel|_fed)": "registers by M0",
    r"s_(get|set)reg|s_setpc|s_getpc|s_swappc|s_rfe|s_call|s_cbranch|s_branch|s_set_gpr|s_nop|s_wait|s_sleep|s_setprio|s_clause|s_delay|s_code_end"
    r"|s_barrier|s_endpgm|s_sendmsg|s_icache|s_dcache|s_prefetch|s_set_inst|s_inst_pre|s_trap|s_wakeup|s_ttrace": "control flow and hints",
    r"v_(sin|cos)_": "accuracy of sin and cos: no kernel uses them",
    r"ds_swizzle": "the text is not in the language",
    r"(global_load_lds|buffer_|scratch_|flat_)": "addresses of private memory and buffers; FLAT as GLOBAL",
    r".*(cmpst|cmpswap)": "a compare and swap: not among those that kernels use",
    r".*_(fp8|bf8)": "codes of 8 bits: only named by the text; checked by all codes in small_floats",
}
# Where the text is not meant to the last bit (its sums round, or a zero, a denormal or the end of the range is left out), what the
# operation is for decides: LLVM folds rint, x - floor(x) below 1, and frexp into these.
DEFINED = {
    "rndne": lambda x: x if not math.isfinite(x) or abs(x) >= 2.0 ** 52 else math.copysign(float(round(Fraction(x))), x),
    "fract": None,
    "frexp_exp": lambda x: math.frexp(x)[1] if math.isfinite(x) else 0,
    "frexp_mant": lambda x: math.frexp(x)[0] if math.isfinite(x) else x,
}
DEFINITION = re.compile(r"[sv]_(rndne|fract|frexp_exp|frexp_mant)_(i16_|i32_)?f(16|32|64)$")
# Two products and a sum: in which order and how often it is rounded the documents leave open. Within this share of the terms.
DOT2 = re.compile(r"v_dot2(c|acc|)_f32_(f16|bf16)$")
DOT2_SHARE = 2.0 ** -22
WHOLE_WAVE = re.compile(r"v_readfirstlane|v_readlane|v_writelane|v_permlane|ds_(b|)permute")

F32 = [0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x807fffff, 0x800000, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
       0xffc01234, 0x7f800001, 0xffa00000, 0x3f800000, 0xbf800000, 0x3f000000, 0xbf000000, 0x3effffff, 0x3f7fffff, 0x3fc00000, 0x40200000,
       0x4b000001, 0xcb000001, 0x4f000000, 0xcf000000, 0x4f7fffff, 0x4f800000, 0x477fe000, 0x477ff000, 0x33800000, 0x38800000, 0x387fffff]
F16 = [0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01, 0x3c00, 0xbc00, 0x3800, 0xb800, 0x37ff,
       0x3e00, 0x4100, 0x77ff, 0x7800]
F64 = [0, 1 << 63, 1, (1 << 52) - 1, 1 << 52, 0x7fefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001,
       0x3ff0000000000000, 0xbff0000000000000, 0x3fe0000000000000, 0x3fdfffffffffffff, 0x41dfffffffc00000, 0x41e0000000000000,
       0xc1e0000000200000, 0x41efffffffe00000, 0x47efffffe0000000, 0x47effffff0000000, 0x36a0000000000000, 0x380fffffffffffff]
I32 = [0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 47, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff, 0x10000, 0x7fffff, 0x800000, 0xffffff,
       0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0x200004, 0x10001f, 0x400000, 0x7f0000]
I16 = [0, 1, 2, 7, 8, 15, 16, 31, 255, 256, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff]


class Operand:
    """A field of an encoding: where it lies, how wide it is, of which format."""

    def __init__(self, name, fmt, width, kind):
        self.name, self.fmt, self.width, self.kind = name, fmt.replace("FMT_", "").replace("NUM_", ""), width, kind

    @property
    def scalar(self):
        return not ("VGPR" in self.kind or self.kind in ("OPR_SRC", "OPR_SRC_NOLIT", "OPR_SRC_SIMPLE"))


def bits_of(pick, fmt, width):
    """A number of a format: an edge, a plain number, or any bits."""
    way = pick.random()
    if fmt == "F32" and width == 32:
        return pick.choice(F32) if way < 0.5 else struct.unpack("<I", struct.pack("<f", pick.gauss(0, 30)))[0] if way < 0.8 else pick.getrandbits(32)
    if fmt == "F64" and width == 64:
        return pick.choice(F64) if way < 0.5 else struct.unpack("<Q", struct.pack("<d", pick.gauss(0, 30)))[0] if way < 0.8 else pick.getrandbits(64)
    if fmt == "F16" and width == 16:
        return pick.choice(F16) if way < 0.5 else struct.unpack("<H", struct.pack("<e", pick.gauss(0, 5)))[0] if way < 0.8 else pick.getrandbits(16)
    if fmt == "BF16" and width == 16:
        return pick.choice(F32) >> 16 if way < 0.5 else pick.getrandbits(16)
    m = re.fullmatch(r"PK(\d*)_(F16|BF16|F32|I16|U16|B16|I32|U32)", fmt)
    if m or (fmt in ("F16", "BF16", "F32") and width > int(fmt[-2:])):
        inner = m[2] if m else fmt
        one = int(inner.lstrip("BFIU"))
        return sum(bits_of(pick, inner, one) << k for k in range(0, width, one))
    if width == 64:
        return pick.choice(F64) if way < 0.25 else pick.choice(I32) << pick.choice((0, 32)) if way < 0.4 else pick.getrandbits(64)
    if width == 16:
        return pick.choice(I16) if way < 0.6 else pick.getrandbits(16)
    return sum((pick.choice(I32) if pick.random() < 0.6 else pick.getrandbits(32)) << k for k in range(0, width, 32)) & (1 << width) - 1


def format_in(text, name, fmt, width):
    """What the pseudo-code reads of a source, where its format is no float."""
    found = re.findall(rf"\b{name}(?:\[[^]]*\])?\.(f16|f32|f64|bf16)\b", text)
    if not found:
        return fmt
    f = found[0].upper()
    return f if width == int(f.lstrip("BF")) else f"PK{width // int(f.lstrip('BF'))}_{f}"


class Case:
    """One instruction with all registers it reads, and what the pseudo-code makes of them."""

    def __init__(self, arch, op, text, pick, number):
        self.arch, self.op, self.text, self.pick, self.number = arch, op, text, pick, number
        self.lanes = 64 if arch.name == "cdna" else 32
        self.vectors, self.scalars, self.scc = {}, {}, pick.getrandbits(1)
        self.exec = (1 << self.lanes) - 1 if number % 3 != 2 else pick.getrandbits(self.lanes) | 1
        self.fields, self.memory, self.lds = {}, None, None
        self.results = []  # (name, operand, register)
        self.simm = self.literal = None
        self.modifiers = {}

    def vector(self, register, words, give):
        for k in range(words):
            self.vectors[register + k] = [0] * self.lanes
        for lane in range(self.lanes):
            x = give(lane)
            for k in range(words):
                self.vectors[register + k][lane] = x >> (32 * k) & 0xffffffff

    def words_of(self, register, words, lane):
        return sum(self.vectors[register + k][lane] << (32 * k) for k in range(words))

    def lines(self):
        out = [f"v {r:x} " + " ".join(f"{x:x}" for x in column) for r, column in self.vectors.items()]
        for r, x in {**self.scalars, EXEC_NUMBER: self.exec & 0xffffffff, **({EXEC_NUMBER + 1: self.exec >> 32} if self.lanes == 64 else {})}.items():
            out.append(f"s {r:x} {x:x}")
        out.append(f"c {self.scc}")
        if self.memory is not None:
            out.append("m " + self.memory.hex())
        if self.lds is not None:
            out.append("l " + self.lds.hex())
        out.append("x " + self.code.hex())
        return out


class Arch:
    def __init__(self, name):
        self.name = name
        base = f"tinygrad.runtime.autogen.amd.{name}"
        self.ins = importlib.import_module(base + ".ins")
        self.pcode = importlib.import_module(base + ".str_pcode").PCODE
        self.bodies = {}

    def body(self, op):
        if op not in self.bodies:
            self.bodies[op] = compiled(self.pcode[op])
        return self.bodies[op]

    def instruction(self, name):
        """An instruction that the text of another one calls: v_max_f32(a, b)."""
        for op in self.pcode:
            if re.sub(r"_e(32|64)$", "", op.name.lower()) == name:
                def call(*given):
                    e = {f"S{k}": x for k, x in enumerate(given)}
                    e |= {"D0": V(0, given[0].width), "fixed": ("D0",), "instruction": self.instruction, "WAVE_MODE.IEEE": V(1, 1),
                          "TRAPSTS.INVALID": V(0, 1), "NAN": real(math.nan, "f", 64), "INF": real(math.inf, "f", 64)}
                    self.body(op)(e)
                    kind = "f" if given[0].kind == "f" else given[0].kind
                    return V(e["D0"].bits, given[0].width, kind)
                return call
        raise Open(f"what {name} does")


def operands_of(op):
    return {n: Operand(n, f.name, w, t.name) for n, (f, w, t) in OPERANDS.get(op, {}).items()}


def class_of(arch, op, operands):
    """The encoding's class and the fields that it has."""
    kind = type(op).__name__[:-2]
    names = {"GLOBAL": "GLOBAL", "VGLOBAL": "VGLOBAL"}
    name = names.get(kind, kind)
    scalar_result = "vdst" in operands and operands["vdst"].scalar
    options = [name + "_SDST", name] if scalar_result else [name]
    if re.search(r"fmaak|fmamk|madak|madmk", op.name.lower()):
        options = [name + "_LIT"] + options
    for option in options:
        cls = getattr(arch.ins, option, None)
        if cls and (cls.op.allowed is None or op in cls.op.allowed):
            return cls
    raise Open(f"an encoding {name}")


def build(case):
    """Registers, operands, the code."""
    op, pick = case.op, case.pick
    name = op.name.lower()
    operands = operands_of(op)
    cls = class_of(case.arch, op, operands)
    fields = {n for n, _ in cls._fields}
    given = {"op": op}
    case.sources = []
    mask_words = case.lanes // 32
    for o in operands.values():
        plain = re.sub(r"^[vs](src\d)$", r"\1", o.name)
        if o.name not in fields:
            o.name = plain
        if o.name not in fields:
            continue
        if o.fmt == "M64":
            o.width = case.lanes
        words = max(1, o.width // 32)
        if plain in ("src0", "src1", "src2"):
            k = int(plain[-1])
            fmt = format_in(case.text, f"S{k}", o.fmt, o.width)
            if o.scalar or o.fmt == "M64":
                register = SCALARS[k]
                x = pick.getrandbits(o.width) if o.fmt == "M64" else bits_of(pick, fmt, o.width)
                if "LANESEL" in o.kind:
                    x = pick.randrange(128)
                for w in range(words):
                    case.scalars[register + w] = x >> (32 * w) & 0xffffffff
                given[o.name] = s[register] if words == 1 else s[register:register + words - 1]
            else:
                register = SOURCES[k]
                case.vector(register, words, lambda lane: bits_of(pick, fmt, o.width))
                given[o.name] = v[register] if words == 1 else v[register:register + words - 1]
            case.sources.append((k, o, register))
        elif plain in ("vdst", "sdst"):
            if o.scalar:
                register = SCALAR_RESULT if plain == "vdst" or "vdst" not in operands else MASK
                for w in range(words):
                    case.scalars[register + w] = pick.getrandbits(32)
                given[o.name] = s[register] if words == 1 else s[register:register + words - 1]
            else:
                register = RESULT
                fmt = format_in(case.text, "D0", o.fmt, o.width)
                case.vector(register, words, lambda lane: bits_of(pick, fmt, o.width))
                given[o.name] = v[register] if words == 1 else v[register:register + words - 1]
            case.results.append((o, register))
        elif plain == "simm16":
            case.simm = pick.choice(I16)
            given[o.name] = case.simm
        elif plain == "simm32" or plain == "literal":
            pass
    if cls.__name__.endswith("_LIT"):
        case.literal = bits_of(pick, "F32" if name.endswith("f32") else "B32", 32) | 0x10000  # never one that is encoded shorter
        if name.endswith("f16"):
            case.literal = bits_of(pick, "F16", 16)
        given["literal"] = case.literal
    set_modifiers(case, name, fields, given)
    if cls.__name__.endswith("_LIT") or not isinstance(given.get("vdst"), type(None)) and scalar_vdst(cls, operands):
        i = cls.__new__(cls)
        i._raw = 0
        for n, f in cls._fields:
            if n == "vdst" and scalar_vdst(cls, operands):
                i._raw |= SCALAR_RESULT << f.lo
            else:
                i._raw = f.set(i._raw, case.literal if n == "literal" else given.get(n))
        case.code = i.to_bytes()
    else:
        case.code = cls(**given).to_bytes()
    case.mask_words = mask_words
    if re.search(r"_e32$", name) and ("carry" in case.text.lower() or "cndmask" in name or "VCC" in case.text) or name.startswith("v_div_fmas"):
        for w in range(mask_words):
            case.scalars[VCC_NUMBER + w] = pick.getrandbits(32)


def scalar_vdst(cls, operands):
    """A scalar result in a field that the encoder takes for a vector register."""
    return "vdst" in operands and operands["vdst"].scalar and type(dict(cls._fields)["vdst"]).__name__ == "VGPRField"


def set_modifiers(case, name, fields, given):
    """Signs and halves where the text has them."""
    if "opsel_hi" in fields:
        mix = "_mix" in name
        given["opsel_hi"] = case.pick.getrandbits(2) if mix else 3
        given["opsel_hi2"] = case.pick.getrandbits(1) if mix else 1
        if mix or "pk_mov" in name:
            given["opsel"] = case.pick.getrandbits(3 if mix else 2)
        if "dot4_i32_iu8" in name:
            given["neg"] = case.pick.getrandbits(2)
    if "bitop3" in name:
        given["omod"], given["abs"], given["neg"] = case.pick.getrandbits(2), case.pick.getrandbits(3), case.pick.getrandbits(3)
        if name.startswith("v_bitop3_b16"):
            given.pop("opsel", None)
    case.modifiers = {k: given.get(k, 0) for k in ("opsel", "neg", "omod", "abs")}
    case.modifiers["opsel_hi"] = given.get("opsel_hi", 0) | given.get("opsel_hi2", 0) << 2


def build_memory(case):
    """Loads, stores and atomics of LDS, global and scalar memory."""
    op, pick, name = case.op, case.pick, case.op.name.lower()
    operands = operands_of(op)
    cls = class_of(case.arch, op, operands)
    fields = {n for n, _ in cls._fields}
    given = {"op": op}
    ds, scalar = name.startswith("ds_"), name.startswith("s_")
    atomic = not re.search(r"load|store|read|write", name)
    scale = 0
    case.offset = case.offset0 = case.offset1 = 0
    if not atomic and case.number % 2:
        case.offset = 4 * pick.randrange(8)
    if ds and re.search(r"2(addr|st64|_b)|2_", name):
        case.offset = 0
        case.offset0, case.offset1 = (1, 3) if "64_" not in name else (0, 1)
        scale = 1
    slot = 32 + 32 * scale
    # Bytes of the memory behind every address, and offsets.
    size = case.lanes * slot + 64 + (2048 if "st64" in name or "stride64" in name else 64)
    data = bytearray(pick.getrandbits(8) for _ in range(min(size, 4096)))
    fmt = format_in(case.text, "DATA", "B32", 32)
    if fmt != "B32" and atomic:
        data = bytearray(b"".join((bits_of(pick, fmt, 64 if "64" in fmt else 32)).to_bytes(8 if "64" in fmt else 4, "little") for _ in range(size // 8)))
    align = 8 if ds else 4
    spread = max(align, (len(data) - 64 - (2048 if "st64" in name or "stride64" in name else 64)) // case.lanes // align * align)
    place = list(range(case.lanes))
    pick.shuffle(place)
    case.address = [spread * p for p in place]
    if ds:
        case.lds = data
    else:
        case.memory = data
        case.address = [BASE + a for a in case.address]
    for o in operands.values():
        if o.name not in fields:
            continue
        words = max(1, o.width // 32)
        register = {"vdst": RESULT, "data0": SOURCES[0], "data": SOURCES[0], "vsrc": SOURCES[0], "data1": SOURCES[1]}.get(o.name)
        if o.name in ("addr", "vaddr"):
            wide = 1 if ds else 2
            case.vector(ADDRESS, wide, lambda lane: case.address[lane])
            given[o.name] = v[ADDRESS] if wide == 1 else v[ADDRESS:ADDRESS + 1]
        elif o.name == "saddr":
            given[o.name] = NULL if case.arch.name != "cdna" else s[127]
        elif o.name == "sdata":
            given[o.name] = s[SCALAR_RESULT] if words == 1 else s[SCALAR_RESULT:SCALAR_RESULT + words - 1]
            for w in range(words):
                case.scalars[SCALAR_RESULT + w] = pick.getrandbits(32)
            case.results.append((o, SCALAR_RESULT))
        elif o.name == "sbase":
            case.address = [BASE]
            case.scalars[SCALARS[0]], case.scalars[SCALARS[0] + 1] = BASE & 0xffffffff, BASE >> 32
            given[o.name] = s[SCALARS[0]:SCALARS[0] + 1]
        elif register is not None:
            if o.name == "vdst" and not ds and atomic:
                given_back = {"glc": 1, "sc0": 1, "th": 1}
                given |= {k: x for k, x in given_back.items() if k in fields}
            case.vector(register, words, lambda lane: bits_of(pick, fmt, o.width) if fmt != "B32" else bits_of(pick, "B32", o.width))
            given[o.name] = v[register] if words == 1 else v[register:register + words - 1]
            if o.name == "vdst":
                case.results.append((o, register))
            else:
                case.sources.append((o.name, o, register))
    if ds:
        case.scalars[M0] = 0xffffffff
        given["offset0"], given["offset1"] = (case.offset0, case.offset1) if scale else (case.offset & 255, case.offset >> 8)
    elif scalar:
        given["offset" if "offset" in fields else "ioffset"] = case.offset
        given |= {k: x for k, x in (("soffset", NULL if case.arch.name != "cdna" else s[0]), ("imm", 1)) if k in fields}
    else:
        given["offset" if "offset" in fields else "ioffset"] = case.offset
    case.code = cls(**given).to_bytes()


def environment(case):
    a = case.arch
    e = {"instruction": a.instruction, "WAVE32": V(case.lanes == 32, 1), "WAVE64": V(case.lanes == 64, 1), "WAVE_MODE.IEEE": V(1, 1),
         "WAVE_STATUS.PRIV": V(0, 1), "TRAPSTS.INVALID": V(0, 1), "NAN": real(math.nan, "f", 64), "INF": real(math.inf, "f", 64),
         "PI": real(math.pi, "f", 64), "DENORM": Denormal(), "ROUND_MODE": V(0, 2), "ROUND_TOWARD_ZERO": V(3, 2), "ROUND_NEAREST_EVEN": V(0, 2),
         "SCC": V(case.scc, 1), "EXEC": V(case.exec, 64), "VCC": V(0, 64), "EXEC_LO": V(case.exec, 32), "EXECZ": V(case.exec == 0, 1),
         "SRC0": V(SOURCES[0], 32), "VDST": V(RESULT, 32), "DST": V(RESULT, 32), "OPSEL": V(case.modifiers.get("opsel", 0), 4),
         "OPSEL_HI": V(case.modifiers.get("opsel_hi", 0), 3), "NEG": V(case.modifiers.get("neg", 0), 3), "INST.OMOD": V(case.modifiers.get("omod", 0), 2),
         "INST.ABS": V(case.modifiers.get("abs", 0), 3), "INST.NEG": V(case.modifiers.get("neg", 0), 3), "fixed": ("D0", "D1", "VCC", "EXEC", "SCC", "RETURN_DATA", "VDATA", "SDATA", "VDST")}
    e["CVT_OFF_TABLE"] = [real((n - 16 if n > 7 else n) / 16, "f", 32) for n in range(16)]
    # What the text declares and the encoding gives.
    e |= {"given": ("CVT_OFF_TABLE", "S", "OFFSET", "DATA0", "VDST"), "ADDR": V(ADDRESS, 32), "DATA0": V(SOURCES[0], 32), "OFFSET": V(0, 16)}
    if case.simm is not None:
        e["SIMM16"] = V(case.simm, 16)
    if case.literal is not None:
        e["SIMM32"] = V(case.literal, 32)
    return e


class Wrong(Exception):
    pass


def defined(name, f):
    """D0 by a definition."""
    m = DEFINITION.match(name)
    size = int(m[3])
    x = V(f["S0"].bits, size, "f")
    if m[1] == "fract":
        v = value(x)
        below = {16: 1 - 2.0 ** -11, 32: 1 - 2.0 ** -24, 64: 1 - 2.0 ** -53}[size]
        if not math.isfinite(v):
            return real(v if v != v else math.nan, "f", size)
        return V(min(rounded(Fraction(v) - math.floor(v), "f", size), real(below, "f", size).bits), size, "f")
    r = DEFINED[m[1]](value(x))
    return V(r, 16 if m[2] == "i16_" else 32, "i") if m[1] == "frexp_exp" else V(x.bits, size, "f") if r != r else real(r, "f", size)


def near_dot(got, f):
    """A product of pairs against double precision."""
    kind = "bf" if "bf16" in f["text"] else "f"
    a, b = ([value(V(f[n].bits >> k, 16, kind)) for k in (0, 16)] for n in ("S0", "S1"))
    c = value(V(f["S2"].bits if "S2" in f else f["old"].bits, 32, "f"))
    terms = [a[0] * b[0], a[1] * b[1], c]
    x, total = value(V(got, 32, "f")), sum(terms)
    if total != total or math.isinf(total) or abs(total) > 3.4e38:
        return x != x if total != total else x == total or abs(total) > 3.4e38
    return abs(x - total) <= DOT2_SHARE * sum(abs(t) for t in terms) + 2.0 ** -148


def equal(got, want, text, width, near):
    """Bit for bit; which NaN an operation gives is open."""
    for kind, size in (("f", 64), ("f", 32), ("f", 16), ("bf", 16), ("f", 16)):
        name = f"{kind}{size}"
        if not re.search(rf"\b(D0|tmp|RETURN_DATA|dst|MEM\[[^=]*\])(\[[^]]*\])?\.{name}\b", text) and not re.search(rf"f\d+_to_{name}\(", text):
            continue
        if width % size:
            continue
        parts = []
        for k in range(0, width, size):
            x, y = V(got >> k, size, kind), V(want >> k, size, kind)
            a, b = value(x), value(y)
            same = x.bits == y.bits or (a != a and b != b)
            if not same and near and a == a and b == b:
                least = {16: 2.0 ** -14, 32: 2.0 ** -126, 64: 2.0 ** -1022}[size]
                same = abs(x.bits - y.bits) <= 1 or abs(a - b) <= least or (abs(a) > 2.0 ** (size * 2 - 2 if size < 64 else 1023) and math.isinf(b))
            parts.append(same)
        if all(parts):
            return True
    return got == want


def lane_environment(case, e, lane):
    e = dict(e)
    e["laneId"] = V(lane, 32)
    for k, o, register in case.sources:
        words = max(1, o.width // 32)
        if o.scalar or o.fmt == "M64":
            x = sum(case.scalars[register + w] << (32 * w) for w in range(words))
        else:
            x = case.words_of(register, words, lane)
        if o.fmt == "M64":
            e["VCC"] = V(x, 64)
        if isinstance(k, int):
            e[f"S{k}"] = V(x, max(o.width, 32), "b")
    e["S"] = [e.get(f"S{k}", V(0, 32)) for k in range(3)]
    return e


def check_arithmetic(case, after, near):
    """Vector and scalar operations."""
    e = environment(case)
    body = case.arch.body(case.op)
    name = case.op.name.lower()
    if VCC_NUMBER in case.scalars:
        e["VCC"] = V(case.scalars[VCC_NUMBER] | case.scalars.get(VCC_NUMBER + 1, 0) << 32, 64)
    scalar = name.startswith("s_")
    columns = {r: list(c) for r, c in case.vectors.items()}
    vgpr = Lanes(columns)
    if scalar or WHOLE_WAVE.match(name):
        e = lane_environment(case, e, 0)
        e["VGPR"] = vgpr
        del e["laneId"]
        if WHOLE_WAVE.match(name) and "SRC0" in case.text and case.sources and case.sources[0][1].scalar:
            raise Open("a scalar source of lanes")
        for o, register in case.results:
            words = max(1, o.width // 32)
            if o.scalar:
                e["D0"] = V(sum(case.scalars[register + w] << (32 * w) for w in range(words)), o.width, "b")
        if case.simm is not None:  # generation 12 calls the constant S0, others the register that is read and written
            e["S0"] = V(case.simm, 32, "b") if case.arch.name == "rdna4" else e.get("D0", e.get("S0"))
        if DEFINITION.match(name):
            e["D0"] = defined(name, e)
        else:
            body(e)
        for o, register in case.results:
            words = max(1, o.width // 32)
            if o.scalar:
                got = sum(after.scalar(case, register + w) << (32 * w) for w in range(words))
                if not equal(got, e["D0"].bits & (1 << o.width) - 1, case.text, o.width, near):
                    raise Wrong(f"{got:#x}, not {e['D0'].bits & (1 << o.width) - 1:#x} by {describe(case, 0)}")
        for r, column in columns.items():
            got = after.vector(case, r)
            if got != column:
                lane = next(n for n in range(case.lanes) if got[n] != column[n])
                raise Wrong(f"v{r}, lane {lane}: {got[lane]:#x}, not {column[lane]:#x}")
        if scalar:
            if after.scc != e["SCC"].bits:
                raise Wrong(f"SCC {after.scc}, not {e['SCC'].bits} by {describe(case, 0)}")
            mask = e["EXEC"].bits & (1 << case.lanes) - 1
            if after.exec(case) != mask:
                raise Wrong(f"EXEC {after.exec(case):#x}, not {mask:#x}")
        return
    outs = {"mask": 0, "vcc": 0, "exec": 0}
    for lane in range(case.lanes):
        if not case.exec >> lane & 1:
            for o, register in case.results:
                if not o.scalar and case.words_of(register, max(1, o.width // 32), lane) != after.words(case, register, max(1, o.width // 32), lane):
                    raise Wrong(f"a lane that is off was written: {lane}")
            continue
        f = lane_environment(case, e, lane)
        f["VGPR"] = vgpr
        dest = next(((o, r) for o, r in case.results if not o.scalar), None)
        if dest:
            words = max(1, dest[0].width // 32)
            f["D0"] = V(case.words_of(dest[1], words, lane), 32 * words, "b")
        else:
            f["D0"] = V(0, 64)
        f |= {"text": case.text, "old": f["D0"]}
        if DEFINITION.match(name[:-4]):
            x = defined(name[:-4], f)
            f["D0"] = V(f["D0"].bits >> x.width << x.width | x.bits, max(x.width, f["D0"].width), "b")
        else:
            body(f)
        if dest:
            o, register = dest
            want = f["D0"].bits & (1 << 32 * words) - 1
            if "VGPR[laneId][VDST" in case.text:
                want = columns[RESULT][lane]
            elif re.search(r"\bD\.b(32|16)\b", case.text) and "D" in f:
                want = f["D"].bits if f["D"].width >= 32 else want & ~0xffff | f["D"].bits & 0xffff
            got = after.words(case, register, words, lane)
            if o.width == 16 and case.arch.name == "cdna":  # what becomes of the upper half the text leaves open
                got, want = got & 0xffff, want & 0xffff
            if DOT2.match(re.sub(r"_e(32|64)$", "", name)):
                if not near_dot(got, f):
                    raise Wrong(f"lane {lane}: {got:#x} is not {want:#x} within {DOT2_SHARE} by {describe(case, lane)}")
                continue
            if near and not equal(got, want, case.text, 32 * words, True):
                want = flushed_result(body, f, dest[0], want)
            if not equal(got, want, case.text, 16 if o.width == 16 and case.arch.name == "cdna" else 32 * words, near) and not (
                    o.width == 16 and got >> 16 == want >> 16 and equal(got & 0xffff, want & 0xffff, case.text, 16, near)):
                raise Wrong(f"lane {lane}: {got:#x}, not {want:#x} by {describe(case, lane)}")
        bit = 1 << lane
        outs["mask"] |= f["D0"].bits & bit if not dest else 0
        if "D1" in f:
            outs["vcc"] |= bit if f["D1"].bits & 1 else 0
        else:
            outs["vcc"] |= f["VCC"].bits & bit
        outs["exec"] |= f["EXEC"].bits & bit
    for o, register in case.results:
        if not o.scalar:
            continue
        want = outs["mask"] if o.name == "vdst" else outs["vcc"]
        got = sum(after.scalar(case, register + w) << (32 * w) for w in range(case.mask_words))
        if got != want:
            raise Wrong(f"s{register}: {got:#x}, not {want:#x}; lanes differ: {lanes_of(case, got ^ want)}")
    compare = name.startswith("v_cmp") and name.endswith("_e32")
    if compare and not name.startswith("v_cmpx"):
        check_vcc(case, after, outs["mask"])
    if re.search(r"VCC\.u64\[laneId\]\s*=", case.text) and name.endswith("_e32"):
        check_vcc(case, after, outs["vcc"])
    if "EXEC.u64[laneId]" in case.text and after.exec(case) != outs["exec"]:
        raise Wrong(f"EXEC {after.exec(case):#x}, not {outs['exec']:#x}; lanes differ: {lanes_of(case, after.exec(case) ^ outs['exec'])}")


def flushed_result(body, f, o, want):
    """Once more with a denormal source taken for zero."""
    x = V(f["S0"].bits, o.width, "f")
    v = value(x)
    if v == 0 or abs(v) >= {16: 2.0 ** -14, 32: 2.0 ** -126, 64: 2.0 ** -1022}[o.width]:
        return want
    g = dict(f) | {"S0": V(x.bits & 1 << (o.width - 1), max(32, o.width), "b"), "D0": f["old"]}
    body(g)
    return g["D0"].bits & (1 << max(32, o.width)) - 1


def check_vcc(case, after, want):
    got = sum(after.scalar(case, VCC_NUMBER + w) << (32 * w) for w in range(case.mask_words))
    if got != want:
        raise Wrong(f"VCC {got:#x}, not {want:#x}; lanes differ: {lanes_of(case, got ^ want)}")


def lanes_of(case, bits):
    lane = (bits & -bits).bit_length() - 1
    return describe(case, lane) if lane < case.lanes else "none"


def describe(case, lane):
    out = []
    for k, o, register in case.sources:
        words = max(1, o.width // 32)
        x = (sum(case.scalars[register + w] << (32 * w) for w in range(words)) if o.scalar or o.fmt == "M64" else case.words_of(register, words, lane))
        out.append(f"{x:#x}")
    if case.simm is not None:
        out.append(f"constant {case.simm:#x}")
    old = next((case.words_of(r, max(1, o.width // 32), lane) for o, r in case.results if not o.scalar), None)
    return ", ".join(out) + (f" (was {old:#x})" if old is not None else "")


def check_memory(case, after):
    e = environment(case)
    body = case.arch.body(case.op)
    name = case.op.name.lower()
    data = bytearray(case.lds if case.lds is not None else case.memory)
    memory = Memory(0 if case.lds is not None else BASE, data)
    lanes = [0] if name.startswith("s_") else range(case.lanes)
    for lane in lanes:
        if not name.startswith("s_") and not case.exec >> lane & 1:
            continue
        f = dict(e)
        place = case.address[lane]
        f |= {"MEM": memory, "laneId": V(lane, 32), "OFFSET": V(case.offset, 32), "OFFSET0": V(case.offset0, 32), "OFFSET1": V(case.offset1, 32)}
        given = V(place + case.offset, 64)
        f |= {"ADDR": V(place, 64), "ADDR_BASE": V(place, 64), "vgpr_a": V(place, 64), "v_addr": V(place, 64), "s_saddr": V(0, 64), "SADDR": V(0, 64),
              "sgpr_base": V(place, 64), "SBASE": V(place, 64), "offset": V(case.offset, 64), "SOFFSET": V(0, 32), "flat_scratch": V(0, 64)}
        plain = V(place, 64)
        atomic = not re.search(r"load|store|read|write", name)
        for n in ("CalcGlobalAddr", "CalcScalarGlobalAddr", "CalcFlatAddr"):
            f[n] = lambda *_: given
        f["CalcDsAddr"] = lambda *_: plain if re.search(r"MEM\[addr \+ OFFSET", case.text) else given
        if "OFFSET" in case.text and "Calc" not in case.text or atomic:
            f["ADDR"] = plain
        elif "Calc" not in case.text:
            f["ADDR"] = given
        for n, o, register in case.sources:
            x = V(case.words_of(register, max(1, o.width // 32), lane), max(32, o.width), "b")
            for alias in {"data0": ("DATA", "DATA0", "VDATA"), "data": ("DATA", "VDATA"), "vsrc": ("DATA", "VDATA"), "data1": ("DATA2", "DATA1")}[n]:
                f[alias] = x
        result = None
        for o, register in case.results:
            words = max(1, o.width // 32)
            old = (sum(case.scalars[register + w] << (32 * w) for w in range(words)) if o.scalar else case.words_of(register, words, lane))
            result = "SDATA" if o.name == "sdata" else "VDATA" if "VDATA" in case.text else "RETURN_DATA"
            f[result] = V(old, 32 * words, "b")
        body(f)
        for o, register in case.results:
            words = max(1, o.width // 32)
            got = (sum(after.scalar(case, register + w) << (32 * w) for w in range(words)) if o.scalar else after.words(case, register, words, lane))
            want = f[result].bits & (1 << 32 * words) - 1
            if got != want:
                raise Wrong(f"lane {lane}: {got:#x}, not {want:#x}")
    got = after.memory if case.memory is not None else after.lds
    if got != data:
        at = next(n for n in range(len(data)) if got[n] != data[n])
        at -= at % 4
        old = case.lds if case.lds is not None else case.memory
        g, w, o = (int.from_bytes(x[at:at + 4], "little") for x in (got, data, old))
        if not ("f32" in case.text or "f16" in case.text) or not same_memory(got, data, case.text):
            raise Wrong(f"memory at {at:#x}: {g:#x}, not {w:#x}; it was {o:#x}")


def same_memory(got, want, text):
    size = 8 if "f64" in text else 4
    return all(equal(int.from_bytes(got[n:n + size], "little"), int.from_bytes(want[n:n + size], "little"), text, 8 * size, False)
               for n in range(0, len(want) - size + 1, size))


class After:
    """What one_instruction answers."""

    def __init__(self, lines):
        self.vectors, self.scalars, self.scc, self.memory, self.lds, self.fault, self.text = {}, {}, 0, None, None, None, ""
        for line in lines:
            what, _, rest = line.partition(" ")
            if what == "text":
                self.text = rest
            elif what == "fault":
                self.fault = rest
            elif what == "v":
                n, *column = rest.split()
                self.vectors[int(n, 16)] = [int(x, 16) for x in column]
            elif what == "s":
                n, x = rest.split()
                self.scalars[int(n, 16)] = int(x, 16)
            elif what == "c":
                self.scc = int(rest)
            elif what == "m":
                self.memory = bytearray.fromhex(rest)
            elif what == "l":
                self.lds = bytearray.fromhex(rest)

    def vector(self, case, n):
        return self.vectors.get(n) or case.vectors.get(n) or [0] * case.lanes

    def words(self, case, register, count, lane):
        return sum(self.vector(case, register + k)[lane] << (32 * k) for k in range(count))

    def scalar(self, case, n):
        return self.scalars.get(n, case.scalars.get(n, 0))

    def exec(self, case):
        low = self.scalars.get(EXEC_NUMBER, case.exec & 0xffffffff)
        return low | (self.scalars.get(EXEC_NUMBER + 1, case.exec >> 32) << 32 if case.lanes == 64 else 0)


def answers(tool, chip, cases):
    text = "\n".join(line for c in cases for line in c.lines()) + "\n"
    run = subprocess.run([tool, chip], input=text, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{tool} {chip}: exit {run.returncode}: {run.stderr[-400:]}")
    out, lines = [], []
    for line in run.stdout.splitlines():
        if line == ".":
            out.append(After(lines))
            lines = []
        else:
            lines.append(line)
    return out


def reason(name):
    return next((why for pattern, why in OPEN.items() if re.match(pattern, name)), None)


def check_chip(tool, chip, arguments):
    arch = Arch(CHIPS[chip])
    known = set(subprocess.run([tool, chip, "names"], capture_output=True, text=True).stdout.split())
    pick = random.Random(f"{chip} {arguments.seed}")
    cases, left = [], Counter()
    compared, wrong, unread, foreign, encodings, samples = set(), {}, {}, set(), 0, 0
    for op, text in arch.pcode.items():
        name = re.sub(r"_e(32|64)$", "", op.name.lower())
        if arguments.only and not re.fullmatch(arguments.only, name):
            continue
        if name not in known:
            continue
        why = reason(name)
        if why:
            left[why] += 1
            continue
        memory = type(op).__name__[:-2] in ("DS", "GLOBAL", "VGLOBAL", "SMEM") and "permute" not in name
        for number in range(arguments.rounds):
            case = Case(arch, op, text, pick, number)
            case.sources = []
            try:
                if "permute" in name:
                    build_permute(case)
                else:
                    (build_memory if memory else build)(case)
                case.is_memory = memory
                cases.append(case)
            except (Open, TypeError, RuntimeError, KeyError) as f:
                unread[name] = f"{op}: encoding: {f}"
                break
    for case, after in zip(cases, answers(tool, chip, cases), strict=True):
        name = re.sub(r"_e(32|64)$", "", case.op.name.lower())
        if after.fault:
            foreign.add(name) if "not known" in after.fault or "instructions" in after.fault else wrong.setdefault(name, f"{after.text}: {after.fault}")
            continue
        if after.text.split()[0].startswith("bytes"):
            foreign.add(name)
            continue
        try:
            if case.is_memory:
                check_memory(case, after)
            else:
                check_arithmetic(case, after, bool(NEAR.match(name)))
            compared.add(name)
            samples += bin(case.exec).count("1") if not name.startswith("s_") else 1
        except Wrong as f:
            wrong.setdefault(f"{name} ({type(case.op).__name__[:-2]})", f"{after.text}: {f}")
        except (Open, KeyError, AttributeError, TypeError, ValueError, IndexError) as f:
            unread.setdefault(name, f"{type(f).__name__}: {f}")
            if arguments.verbose > 1:
                raise
    del encodings
    report(chip, compared, samples, wrong, unread, foreign - compared, left, arguments)
    return compared, wrong, unread


def build_permute(case):
    pick, op = case.pick, case.op
    cls = class_of(case.arch, op, operands_of(op))
    case.vector(ADDRESS, 1, lambda lane: pick.getrandbits(31) if pick.random() < 0.1 else 4 * pick.randrange(case.lanes))
    case.vector(SOURCES[0], 1, lambda lane: pick.getrandbits(32))
    case.vector(RESULT, 1, lambda lane: pick.getrandbits(32))
    case.code = cls(op=op, vdst=v[RESULT], addr=v[ADDRESS], data0=v[SOURCES[0]]).to_bytes()


def report(chip, compared, samples, wrong, unread, foreign, left, arguments):
    print(f"{chip}: {len(compared)} operations compared on {samples} operands")
    for name, what in sorted(wrong.items()):
        print(f"  WRONG {name}: {what}")
    for name, what in sorted(unread.items()):
        print(f"  not read: {name}: {what}")
    if arguments.verbose:
        print(f"  not of this chip: {' '.join(sorted(foreign))}")
    for why, n in left.items():
        print(f"  left open: {n} encodings: {why}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tool")
    parser.add_argument("--chip", choices=list(CHIPS))
    parser.add_argument("--only", help="a regular expression of operations' names")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="count", default=0)
    arguments = parser.parse_args()
    begin = time.time()
    failed = False
    names = set()
    for chip in [arguments.chip] if arguments.chip else CHIPS:
        compared, wrong, unread = check_chip(arguments.tool, chip, arguments)
        names |= compared
        failed = failed or bool(wrong)
    print(f"{len(names)} operations in all, {time.time() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
