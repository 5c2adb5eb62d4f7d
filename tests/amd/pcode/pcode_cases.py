"""Cases of pcode_reference.py: registers, memory and code of one instruction, encoded by tinygrad's encoder."""
import importlib
import math
import re
import struct

from pcode import compiled
from pcode_numbers import Open, V, real
from tinygrad.renderer.amd.dsl import NULL, OPERANDS, s, src, v

CHIPS = {"gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
BASE = 1 << 40  # where memory lies in one_instruction.cpp
VCC_NUMBER, M0, EXEC_NUMBER = 106, 124, 126  # in instruction.h
SOURCES, RESULT, SCALARS, SCALAR_RESULT, MASK, ADDRESS = (2, 6, 10), 16, (20, 24, 28), 40, 50, 60
SLOT = 32  # bytes of memory of each lane

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
            given[o.name] = v[ADDRESS] if wide == 1 or case.arch.name == "cdna" else v[ADDRESS:ADDRESS + 1]
        elif o.name == "saddr":
            given[o.name] = NULL if case.arch.name != "cdna" else src[127]
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


def build_permute(case):
    pick, op = case.pick, case.op
    cls = class_of(case.arch, op, operands_of(op))
    case.vector(ADDRESS, 1, lambda lane: pick.getrandbits(31) if pick.random() < 0.1 else 4 * pick.randrange(case.lanes))
    case.vector(SOURCES[0], 1, lambda lane: pick.getrandbits(32))
    case.vector(RESULT, 1, lambda lane: pick.getrandbits(32))
    case.code = cls(op=op, vdst=v[RESULT], addr=v[ADDRESS], data0=v[SOURCES[0]]).to_bytes()
