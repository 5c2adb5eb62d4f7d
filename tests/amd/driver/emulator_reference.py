#!/usr/bin/env python3
"""Kernels of Lumen in another emulator of AMD's machine code, tinygrad's, which is in its repository and not in its package: the
same code object, arguments and memory as in the interpreter of tests/amd, and the memory they leave compared.

usage: emulator_reference.py BUILD [--chip NAME] [--format FILE] [--only WORDS] [-v]
       LUMEN_TINYGRAD names a checkout of tinygrad; exit code 77: there is none, or no clang, and nothing was checked

Sums of matrix instructions are rounded elsewhere there and need to be near; everything else is compared bit for bit. What that
emulator does not know, or does otherwise than AMD's documents say, is in docs/guide/amd.md: formats here keep away from it.
"""
import argparse
import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = os.environ.get("LUMEN_TINYGRAD", "")
if not (CHECKOUT and (Path(CHECKOUT) / "test/mockgpu/amd/emu.py").exists() and shutil.which("clang")):
    print("skipped: LUMEN_TINYGRAD names no checkout of tinygrad, or there is no clang")
    sys.exit(77)
sys.path.insert(0, CHECKOUT)
from test.mockgpu.amd import emu

# gfx90a is missing: the emulator's table of CDNA has the codes of gfx950.
CHIPS = {"gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
# Every field at a multiple of its size.
FORMATS = """
format scaled : block 32 {
  d : f32
  q : i4[32]
  decode(i) = d * q[i]
  fit(x)    { let s = (max(j) abs(x[j])) / 7;  d = s }
  code(v)   = clamp(rint(v * recip(s)), -7, 7)
}
"""
# Instructions that only speak to caches, which are not decoded there, become s_nop: a first word and how many words.
CACHES = {"rdna3": {0xE0AC0000: 2, 0xE0B00000: 2}, "rdna4": {0xEE0AC07C: 3, 0xEE0B007C: 3, 0xEE13C07C: 3}}
S_NOP = 0xBF800000
NEAR = 2.0 ** -18  # of the largest number, for sums of matrix instructions
KERNELS = re.compile(r"_(\d+x)*17[x_]|dot_48x80x96_.*mma_16x16x16_(bf|f)16")
FEWEST = 6  # kernels of a chip: fewer mean that what is recorded, or the emulator, has changed


class Image:
    """A code object in memory."""

    def __init__(self, data: bytes):
        programs, sections = struct.unpack_from("<QQ", data, 32)
        program_bytes, program_count, section_bytes, section_count = struct.unpack_from("<HHHH", data, 54)
        pieces = [struct.unpack_from("<IIQQQQ", data, programs + n * program_bytes) for n in range(program_count)]
        pieces = [p for p in pieces if p[0] == 1]  # PT_LOAD
        self.memory = Buffer(max(p[3] + p[5] for p in pieces) + 65536)
        for _, _, offset, address, _, size in pieces:
            ctypes.memmove(self.memory.address + address, data[offset:offset + size], size)
        self.symbols = {}
        table = [struct.unpack_from("<IIQQQQIIQQ", data, sections + n * section_bytes) for n in range(section_count)]
        for section in table:
            if section[1] != 11:  # SHT_DYNSYM
                continue
            names = table[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, address, size = struct.unpack_from("<IBBHQQ", data, at)
                self.symbols[data[names + name:data.index(b"\0", names + name)].decode()] = address, size


class Buffer:
    """Bytes at an address that is a multiple of 4096, with some behind them that are nobody's."""

    def __init__(self, size: int, data: bytes = b""):
        self.size = size
        self.raw = ctypes.create_string_buffer(size + 8192)
        self.address = (ctypes.addressof(self.raw) + 4095) // 4096 * 4096
        ctypes.memmove(self.address, data, len(data))

    def bytes(self) -> bytes:
        return ctypes.string_at(self.address, self.size)


class Launch:
    """What recorded.h writes."""

    def __init__(self, path: Path):
        lines = path.read_text().splitlines()
        self.chip, self.symbol = lines[0], lines[1]
        self.blocks, self.threads, self.shared = (int(w) for w in lines[2].split())
        self.arguments = [int(w) for w in lines[3].split()]
        self.places = [tuple(int(w) for w in line.split()) for line in lines[4:]]
        self.object = path.with_suffix(".object").read_bytes()
        self.before, self.after = (self.split(path.with_suffix(end)) for end in (".before", ".after"))

    def split(self, path: Path) -> list[bytes]:
        data, out = path.read_bytes(), []
        for _, size in self.places:
            out.append(data[:size])
            data = data[size:]
        return out

    def run(self) -> list[bytes]:
        arch = CHIPS[self.chip]
        image = Image(self.object)
        base = image.memory.address
        at, size = image.symbols[self.symbol]
        words = (ctypes.c_uint32 * (size // 4)).from_address(base + at)
        for n in range(len(words)):
            count = CACHES.get(arch, {}).get(words[n], 0)
            for k in range(count):
                words[n + k] = S_NOP
        descriptor = base + image.symbols[self.symbol + ".kd"][0]
        group, private, _, _, entry = struct.unpack_from("<IIIIq", ctypes.string_at(descriptor, 64))
        _, _, resources, properties = struct.unpack_from("<IIIH", ctypes.string_at(descriptor, 64), 44)
        # How much LDS there is stands in the descriptor only when it is launched.
        resources = resources & ~(0x1FF << 15) | (max(group, self.shared) + 511) // 512 << 15
        memory = [Buffer(len(b), b) for b in self.before]
        arguments = Buffer(8 * len(self.arguments) + 256)
        for n, value in enumerate(self.arguments):
            for (address, length), own in zip(self.places, memory):
                if address <= value < address + length:
                    value += own.address - address
                    break
            ctypes.memmove(arguments.address + 8 * n, struct.pack("<Q", value), 8)
        # Scalar registers at the beginning: which there are the descriptor says.
        registers = []
        for bit, count in ((1, 4), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 1)):
            if properties & bit:
                registers += [arguments.address & 0xFFFFFFFF, arguments.address >> 32] if bit == 8 else [0] * count
        emu.run_asm(descriptor + entry, size, self.blocks, 1, 1, self.threads, 1, 1, arguments.address, resources, private, arch, registers)
        return [own.bytes() for own in memory]


def difference(launch: Launch, got: list[bytes]) -> str:
    for want, have, (address, size) in zip(launch.after, got, launch.places):
        if want == have:
            continue
        count = size // 4
        if "mma" in launch.symbol and want[4 * count:] == have[4 * count:]:
            pairs = [(a, b) for a, b in zip(struct.unpack_from(f"<{count}f", want), struct.unpack_from(f"<{count}f", have)) if a != b]
            largest = max(abs(a) for a, _ in pairs)
            if all(abs(a - b) <= NEAR * largest for a, b in pairs):
                continue
        at = next(n for n in range(size) if want[n] != have[n])
        wrong = sum(a != b for a, b in zip(want, have))
        return f"{wrong} of {size} bytes at {address:#x}, the first at {at}: {want[at:at + 8].hex()} here, {have[at:at + 8].hex()} there"
    return ""


def check(build: Path, chip: str, text: str, only: str, verbose: bool) -> int:
    same = unknown = 0
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "formats.lum"
        file.write_text(text)
        environment = dict(os.environ) | {
            "LUMEN_TRY": "never", "LUMEN_STAND_IN_AMD": chip, "LUMEN_STAND_IN_RECORD": folder,
            "LUMEN_HIP_LIBRARY": str((build / "tests/amd/libamdhip64.so").resolve())}
        done = subprocess.run([str(build / "lumen"), "format", "check", str(file), "--device", "hip", "--cache", "off"], capture_output=True,
                              text=True, env=environment)
        if not re.search(rf"ok .* {chip} ", done.stdout):
            sys.exit(f"{chip}: lumen format check\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        # Those of the format's own check, whose weights have 17 rows, and what the engine tries of matrix instructions before.
        for path in sorted(Path(folder).glob("*.txt"), key=lambda p: int(p.stem)):
            symbol = path.read_text().splitlines()[1]
            if not KERNELS.search(symbol) or not re.search(only, symbol):
                continue
            launch = Launch(path)
            try:
                said = difference(launch, launch.run())
            except Exception as what:
                unknown += 1
                print(f"{chip}: {symbol}: not known to the emulator: {str(what)[:160]}")
                continue
            same += not said
            if said:
                wrong.append(f"{chip}: {symbol}: {said}")
            if verbose:
                print(f"{chip}: {symbol}: {said or 'the same'}", flush=True)
    print(f"{chip}: {same} kernels leave the same memory, {len(wrong)} another one, {unknown} are not known there")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if not wrong and not only and same < FEWEST:
        print(f"{chip}: fewer than {FEWEST}")
        return 1
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--chip", choices=sorted(CHIPS))
    parser.add_argument("--format", type=Path, help="a file with formats of one's own")
    parser.add_argument("--only", default="", help="symbols that have this")
    parser.add_argument("-v", action="store_true", dest="verbose")
    flags = parser.parse_args()
    text = flags.format.read_text() if flags.format else FORMATS
    return 1 if sum(check(flags.build, chip, text, flags.only, flags.verbose) for chip in ([flags.chip] if flags.chip else CHIPS)) else 0


sys.exit(main())
