#!/usr/bin/env python3
"""The interpreter of AMD's machine code against a second witness: AMD's own pseudo-code, as the PyPI package tinygrad ships it, and
its encoder of instructions. Every operation that both know, on edge cases and random operands, bit for bit.

usage: pcode_reference.py AMD_INSTRUCTION [--chip NAME] [--only WORDS] [--rounds N] [-v]
       exit code 77: tinygrad is missing, nothing was checked
"""
import argparse
import math
import random
import re
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import open_meanings
from pcode import Lanes, Memory
from pcode_numbers import Denormal, Open, V, real, rounded, value

try:
    from tinygrad.renderer.amd.dsl import v
except ImportError as missing:
    print(f"skipped: {missing}; pip install tinygrad")
    sys.exit(77)
from pcode_cases import (ADDRESS, BASE, CHIPS, EXEC_NUMBER, RESULT, SOURCES, VCC_NUMBER, Arch, Case, bits_of, build, build_memory,
                         build_permute, class_of, operands_of)

# To an ulp on the hardware, denormals flushed or not; which is right no document says.
NEAR = re.compile(r"v_(s_)?(rcp|rsq|sqrt|exp|log|sin|cos)_(iflag_)?f(16|32|64)$")
# Not executed here, each with its reason.
OPEN = {
    r"v_(s|)(mfma|wmma|smfmac|swmmac)": "matrix instructions: the text is a picture; checked against sums in double precision",
    r"v_div_(scale|fmas|fixup)_f": "the text's scaling gives no right quotients (docs/guide/amd.md); the ladder checks whole divisions",
    r"v_mov(rel|_fed)|s_mov(rel|_fed)": "registers by M0",
    r"s_(get|set)reg|s_setpc|s_getpc|s_swappc|s_rfe|s_call|s_cbranch|s_branch|s_set_gpr|s_nop|s_wait|s_sleep|s_setprio|s_clause|s_delay|s_code_end"
    r"|s_barrier|s_endpgm|s_sendmsg|s_icache|s_dcache|s_prefetch|s_set_inst|s_inst_pre|s_trap|s_wakeup|s_ttrace": "control flow and hints",
    r"v_(sin|cos)_": "accuracy of sin and cos: no kernel uses them",
    r"ds_swizzle": "the text is not in the language",
    r"(global_load_lds|buffer_|scratch_|flat_)": "addresses of private memory and buffers; FLAT as GLOBAL",
    r".*(cmpst|cmpswap)": "a compare and swap: not among those that kernels use",
    r".*_(fp8|bf8)": "codes of 8 bits: only named by the text; checked against their definition",
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
# Which zero is the smaller one the texts of generation 9 leave out; later ones say -0.
ZEROES = re.compile(r"v_(pk_)?(min|max|med)3?_f(16|32|64)")
FEWEST = 600  # operations of a chip: fewer mean that the texts or the encoder have changed their form
WHOLE_WAVE = re.compile(r"v_readfirstlane|v_readlane|v_writelane|v_permlane|ds_(b|)permute")

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
        if case.simm is not None:  # the constant is SIMM16, S1, or S0
            constant = V(case.simm, 32, "b")
            e |= {"S0": e.get("D0"), "S1": constant} if "S1" in case.text or "SIMM16" in case.text else {"S0": constant}
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
            if ZEROES.match(name) and case.arch.name == "cdna":
                got, want = plain_zeroes(got, name), plain_zeroes(want, name)
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


def plain_zeroes(bits, name):
    size = int(re.search(r"_f(\d+)", name)[1])
    parts = [bits >> k & (1 << size) - 1 for k in range(0, 64, size)]
    return sum((0 if x == 1 << (size - 1) else x) << size * k for k, x in enumerate(parts))


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
    compared, wrong, unread, foreign, samples = set(), {}, {}, set(), 0
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
        if re.sub(r"_(e32|e64)$", "", after.text.split()[0]) != name:  # the code of another instruction on this chip
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
    if not arguments.only:
        named = check_open(tool, chip, arch, pick, wrong)
        print(f"{chip}: {len(named)} operations that the pseudo-code leaves open, against definitions: {' '.join(sorted(named))}")
    report(chip, compared, samples, wrong, unread, foreign - compared, left, arguments)
    return compared, wrong, unread


def check_open(tool, chip, arch, pick, wrong):
    """Matrix instructions and codes of 8 bits."""
    matrices = []
    for op in arch.pcode:
        name = op.name.lower()
        if not re.fullmatch(r"v_(mfma|wmma)_(f32|i32)_(16x16|32x32)x\d+_(f32|f16|bf16|i8|iu8|[fb][p]8_[fb][p]8|[fb][fp]8_[fb][fp]8)", name):
            continue
        code = open_meanings.matrix_code(arch, op, v)
        if code:
            matrices += [(name, open_meanings.Matrix(chip, name, code, pick)) for _ in range(2)]
    found = set()
    for (name, m), after in zip(matrices, answers(tool, chip, [m for _, m in matrices]), strict=True):
        mnemonic = re.sub(r"_1k$|_", "", after.text.split()[0]) if after.text else ""
        if mnemonic != name.replace("_", "") or "not known" in (after.fault or ""):
            continue  # the code of another instruction on this chip
        what = m.wrong(after)
        if what:
            wrong.setdefault(name, f"{after.text}: {what}")
        found.add(name)
    found |= check_codes(tool, chip, arch, pick, wrong)
    return found


class Plain:
    """A case of one instruction with vector registers."""

    def __init__(self, code, vectors, lanes):
        self.code, self.vectors, self.lanes = code, vectors, lanes

    def lines(self):
        return [f"v {r:x} " + " ".join(f"{x:x}" for x in c) for r, c in self.vectors.items()] + [
            "s 7e ffffffff", *(["s 7f ffffffff"] if self.lanes == 64 else []), "x " + self.code.hex()]


def check_codes(tool, chip, arch, pick, wrong):
    found, lanes = set(), 64 if arch.name == "cdna" else 32
    named = {op.name.lower(): op for op in arch.pcode}
    for kind in ("fp8", "bf8"):
        op = named.get(f"v_cvt_f32_{kind}_e32")
        if op:
            code = arch.ins.VOP1(op, vdst=v[RESULT], src0=v[SOURCES[0]]).to_bytes()
            cases = [Plain(code, {SOURCES[0]: list(range(n, n + lanes))}, lanes) for n in range(0, 256, lanes)]
            after = answers(tool, chip, cases)
            if not any(a.fault for a in after):
                found.add(f"v_cvt_f32_{kind}")
                what = open_meanings.codes_wrong(chip, kind, [x for a in after for x in a.vectors.get(RESULT, [0] * lanes)])
                if what:
                    wrong[f"v_cvt_f32_{kind}"] = what
        op = named.get(f"v_cvt_pk_{kind}_f32")
        if not op:
            continue
        code = class_of(arch, op, operands_of(op))(op=op, vdst=v[RESULT], src0=v[SOURCES[0]], src1=v[SOURCES[1]]).to_bytes()
        form = open_meanings.small_float(kind, chip)
        numbers = [open_meanings.bits_of_f32(x) for x in edges_of(form)] + [bits_of(pick, "F32", 32) for _ in range(300)]
        numbers += [0] * (-len(numbers) % lanes)
        cases = [Plain(code, {SOURCES[0]: numbers[n:n + lanes], SOURCES[1]: numbers[n:n + lanes]}, lanes) for n in range(0, len(numbers), lanes)]
        for case, after in zip(cases, answers(tool, chip, cases), strict=True):
            if after.fault:
                break
            found.add(f"v_cvt_pk_{kind}_f32")
            for x, got in zip(case.vectors[SOURCES[0]], after.vectors.get(RESULT, [0] * lanes)):
                want = open_meanings.nearest_code(open_meanings.f32(x), form)
                if want is not None and got & 0xffff != want * 257:
                    wrong.setdefault(f"v_cvt_pk_{kind}_f32", f"{open_meanings.f32(x)}: {got:#x}, not {want * 257:#x}")
    return found


def edges_of(form):
    """Numbers of the code, and halves between them."""
    numbers = [x for x in (open_meanings.code_value(c, *form) for c in range(256)) if math.isfinite(x)]
    numbers.sort()
    return numbers + [(a + b) / 2 for a, b in zip(numbers, numbers[1:])] + [1.07 * numbers[-1], -1.07 * numbers[-1], 1e9, -1e9]


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
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="count", default=0)
    arguments = parser.parse_args()
    begin = time.time()
    failed = False
    names = set()
    for chip in [arguments.chip] if arguments.chip else CHIPS:
        compared, wrong, unread = check_chip(arguments.tool, chip, arguments)
        names |= compared
        failed = failed or bool(wrong) or bool(unread)
        if not arguments.only and len(compared) < FEWEST:
            print(f"{chip}: fewer than {FEWEST} operations were compared")
            failed = True
    print(f"{len(names)} operations in all, {time.time() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
