#!/usr/bin/env python3
"""What is installed is whole and works: `cmake --install` and the Debian package of `make deb`, each into an empty folder.
And a build without the applications (LUMEN_APPS=OFF) configures. packages_check.py looks at the packages of `make packages`.

Usage: tests/packages/install_check.py BUILD_FOLDER
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ["bin/lumen", "include/lumen.h", "share/lumen/formats/q4_0.lum", "share/lumen/models/llama.lum", "share/lumen/recipes/lora.toml",
         "share/man/man1/lumen.1", "share/man/man1/lumen-train.1", "share/bash-completion/completions/lumen",
         "share/zsh/site-functions/_lumen", "share/fish/vendor_completions.d/lumen.fish"]


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{words} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def check(prefix, work):
    """Files are there, the program runs, a C program is built with what pkg-config says, and the manual's pages are whole."""
    missing = [f for f in FILES if not (prefix / f).is_file()]
    assert not missing, f"{prefix} lacks {missing}"
    libraries = sorted(prefix.rglob("liblumen.so*"))
    assert [p.name for p in libraries if p.is_symlink()] == ["liblumen.so", "liblumen.so.0"], libraries
    home = {**os.environ, "HOME": str(work), "LUMEN_CACHE": str(work / "cache"), "LD_LIBRARY_PATH": str(libraries[0].parent)}
    lumen = prefix / "bin/lumen"
    version = run(lumen, "--version", env=home).split()[1]
    assert f'"lumen {version}"' in (prefix / "share/man/man1/lumen.1").read_text(), version
    assert "q4_0" in run(lumen, "format", "list", env=home)
    pages = {p.name for p in (prefix / "share/man/man1").iterdir()}
    assert {"lumen-run.1", "lumen-quantize.1", "lumen-serve.1", "lumen-shell-completion.1"} <= pages, pages
    config = {**home, "PKG_CONFIG_PATH": str(next(prefix.rglob("lumen.pc")).parent)}
    flags = run("pkg-config", "--define-prefix", "--cflags", "--libs", "lumen", env=config).split()
    program = work / "program"
    (work / "program.c").write_text('#include <lumen.h>\n#include <stdio.h>\nint main(void) { puts(lumen_version()); return 0; }\n')
    run("cc", work / "program.c", "-o", program, *flags)
    assert run(program, env=home).strip() == version
    program.unlink()


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="lumen-install-") as folder:
        work = Path(folder)
        run("cmake", "--install", build, "--prefix", work / "opt")
        check(work / "opt", work)
        run("cmake", "-S", ROOT, "-B", work / "without", "-G", "Ninja", "-D", "CMAKE_BUILD_TYPE=Release", "-D", "LUMEN_APPS=OFF")
        if not shutil.which("dpkg-shlibdeps"):
            print("no dpkg-dev: the Debian package is not looked at")
            return
        run("cpack", "-G", "DEB", "-B", work / "deb", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none", cwd=build)
        package = next((work / "deb").glob("*.deb"))
        fields = run("dpkg-deb", "--field", package)
        for wanted in ("Package: lumen-compiler", "libllvm22", "libc6", "libfmt9"):
            assert wanted in fields, f"{wanted} is not in\n{fields}"
        run("dpkg-deb", "-x", package, work / "root")
        check(work / "root/usr", work)
    print("installed: cmake --install, Debian package; configured: without applications")


main()
