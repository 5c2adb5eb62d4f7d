#!/usr/bin/env python3
"""Libraries to link with, so that the program starts on an older C library than the one it was compiled with.

Each stands in for one library of glibc at link time alone: it has the names that the real one has, each at the newest
version not above the one asked for, and no code. At run time the real libraries are loaded. What the compiled code
refers to and the older C library lacks stays undefined here; old_glibc.c defines it.

Usage: old_glibc.py COMPILER VERSION FOLDER      for example: old_glibc.py g++ 2.31 build/portable/glibc
"""
import re
import subprocess
import sys
from pathlib import Path

LIBRARIES = ["libc.so.6", "libm.so.6"]
# Their functions are in libc.so.6 since glibc 2.34. Before that the program needs them loaded.
MERGED = ["libpthread.so.0", "libdl.so.2", "librt.so.1"]
# Moved to libc.so.6 too, from libraries that the program does not need: a link that asks for them should fail.
MOVED = re.compile(r"(__)?(res|dn|ns_name)_|getaddrinfo_a$|(open|fork)pty$|log(in|out|wtmp)")
# Name, size, kind and version of a defined symbol, as readelf prints them.
SYMBOL = re.compile(r"\s*\d+: [0-9a-f]+\s+(\w+)\s+(\w+)\s+\w+\s+\w+\s+(?:\[.*\]\s+)?(\w+)\s+(\w+)@@?(GLIBC_[0-9.]+)$")


def run(*words):
    return subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout


def numbers(version):
    return tuple(int(n) for n in version.removeprefix("GLIBC_").split("."))


def symbols(library, newest):
    """name -> (version, size, whether it is data)."""
    found = {}
    for line in run("readelf", "--dyn-syms", "--wide", library).splitlines():
        match = SYMBOL.match(line)
        if not match:
            continue
        size, kind, section, name, version = match.groups()
        if section in ("UND", "ABS") or kind == "TLS" or numbers(version) > newest or MOVED.match(name):
            continue
        if name not in found or numbers(found[name][0]) < numbers(version):
            found[name] = (version, int(size, 0), kind == "OBJECT")
    return found


def write_library(compiler, folder, name, found):
    """`name` in `folder`, with the symbols `found`."""
    code, versions = [], {}
    for symbol, (version, size, is_data) in sorted(found.items()):
        versions.setdefault(version, []).append(symbol)
        code += [".bss" if is_data else ".text", f".globl {symbol}", f".type {symbol}, %{'object' if is_data else 'function'}",
                 f".size {symbol}, {size}", f"{symbol}: .zero {max(size, 1) if is_data else 1}"]
    source, script = folder / f"{name}.s", folder / f"{name}.map"
    source.write_text("\n".join(code + ['.section .note.GNU-stack,"",%progbits', ""]))
    script.write_text("".join(f"{v} {{ {' '.join(s + ';' for s in names)} }};\n"
                              for v, names in sorted(versions.items(), key=lambda item: numbers(item[0]))))
    run(compiler, "-shared", "-nostdlib", "-fuse-ld=bfd", source, "-o", folder / name, f"-Wl,-soname,{name}",
        *([f"-Wl,--version-script={script}"] if versions else []))


def main():
    compiler, newest, folder = sys.argv[1], numbers(sys.argv[2]), Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    where = lambda name: run(compiler, f"-print-file-name={name}").strip()
    loader = next(name for name in ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1") if Path(where(name)).is_file())
    for name in [*LIBRARIES, loader]:
        write_library(compiler, folder, name, symbols(where(name), newest))
    for name in MERGED:
        write_library(compiler, folder, name, {})
    # What the compiler asks for by -lc and so on. The part that is linked statically is the compiler's own.
    (folder / "libc.so").write_text(f"GROUP ( {folder.resolve()}/libc.so.6 {where('libc_nonshared.a')} "
                                    f"AS_NEEDED ( {folder.resolve()}/{loader} ) )\n")
    for name in ["libm.so.6", *MERGED]:
        link = folder / (name.split(".so")[0] + ".so")
        link.unlink(missing_ok=True)
        link.symlink_to(name)


main()
