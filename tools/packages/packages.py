#!/usr/bin/env python3
"""Builds what is handed out, in BUILD/packages: a tarball and Debian packages of the portable program and library, a wheel,
and the recipe of an image. `make packages` calls it when `ninja -C BUILD lumen portable` is through.

Usage: tools/packages/packages.py BUILD [--only tarball,deb,wheel] [--level 0..9]
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# As Debian's packages, the tarball and the wheel call a processor. By what `uname -m` says.
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
OLDEST_GLIBC = "2.31"
# Debian's packages with code that is inside the program; their licences go with it.
INSIDE = ["libllvm22", "liblld-22", "libfmt-dev", "libxxhash-dev", "libssl-dev", "zlib1g-dev", "libzstd-dev", "liblz4-dev",
          "libbrotli-dev", "libsnappy-dev", "libpcre2-dev", "libutf8proc-dev", "liburing-dev", "libcpp-httplib-dev",
          "libedit-dev", "libbsd-dev", "libmd-dev", "libncurses-dev", "libjpeg62-turbo-dev", "libpng-dev", "libwebp-dev",
          "nlohmann-json3-dev", "libcli11-dev", "libtomlplusplus-dev", "libeigen3-dev", "libstdc++-12-dev",
          "libjs-marked", "libjs-katex", "node-highlight.js"]
SUMMARY = "Trains, fine-tunes, quantizes and runs language models in any number format"


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(w) for w in words)} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def newest_glibc(file):
    """The newest version of glibc's symbols that a program or library asks for."""
    versions = re.findall(r"\(GLIBC_([0-9.]+)\)|\bGLIBC_([0-9.]+)\b", run("objdump", "-T", file))
    return max(("".join(v) for v in versions), key=lambda v: [int(n) for n in v.split(".")])


def check_glibc(file):
    newest = newest_glibc(file)
    if [int(n) for n in newest.split(".")] > [int(n) for n in OLDEST_GLIBC.split(".")]:
        sys.exit(f"{file} asks for glibc {newest}, and is to start with {OLDEST_GLIBC}")


def install_files(build, prefix):
    """What every package has: formats, models, recipes, manual pages, completion, licences."""
    run("cmake", "--install", build, "--prefix", prefix, "--component", "files")
    licences = prefix / "share/doc/lumen/inside"
    licences.mkdir(parents=True)
    for package in INSIDE:
        text = Path("/usr/share/doc") / package / "copyright"
        if not text.is_file():
            sys.exit(f"{text} is missing: the licence of what is inside the program")
        shutil.copyfile(text, licences / f"{package}.txt")


def tarball(build, out, processor, level):
    name = f"lumen-linux-{processor}"
    with tempfile.TemporaryDirectory(dir=build) as folder:
        top = Path(folder) / name
        install_files(build, top)
        (top / "bin").mkdir()
        shutil.copy2(build / "portable/lumen", top / "bin/lumen")
        file = out / f"{name}.tar.xz"
        run("tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C", folder, "-cf", file, "-I", f"xz --x86 --lzma2=preset={level},dict=64MiB", name)
    return file


def deb(out, folder, package, version, processor, level, description):
    """One package of what `folder` holds."""
    size = sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink()) // 1024
    control = folder / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(f"""Package: {package}
Version: {version}
Architecture: {PROCESSORS[processor]}
Maintainer: Lumen's maintainers <maintainers@users.noreply.a-seed-a7e590b3.example>
Installed-Size: {size}
Depends: libc6 (>= {OLDEST_GLIBC})
Suggests: libcurl4
Section: science
Priority: optional
Description: {description}
""")
    run("chmod", "-R", "u=rwX,go=rX", folder)
    return run("dpkg-deb", "-Zxz", f"-z{level}", "--root-owner-group", "--build", folder, out).split("'")[-2]


def debs(build, out, version, processor, level):
    with tempfile.TemporaryDirectory(dir=build) as name:
        program, library = Path(name) / "program", Path(name) / "library"
        install_files(build, program / "usr")
        (program / "usr/bin").mkdir()
        shutil.copy2(build / "portable/lumen", program / "usr/bin/lumen")
        for page in (program / "usr/share/man/man1").iterdir():
            run("gzip", "-9n", page)
        run("cmake", "--install", build, "--prefix", library / "usr", "--component", "header")
        place = next((library / "usr").rglob("pkgconfig")).parent
        for file in sorted((build / "portable").glob("liblumen.so*")):
            (place / file.name).unlink(missing_ok=True)
            shutil.copy2(file, place / file.name, follow_symlinks=False)
        pc = place / "pkgconfig/lumen.pc"
        pc.write_text(re.sub(r"^prefix=.*", "prefix=/usr", pc.read_text(), flags=re.M))
        return [deb(out, program, "lumen-compiler", version, processor, level, SUMMARY),
                deb(out, library, "liblumen-dev", version, processor, level, "C library of Lumen, with its header")]


def wheel(build, out, processor):
    """For the Python that runs this, from 3.12 on for all later ones; scikit-build-core, nanobind and wheel are from PyPI."""
    platform = f"manylinux_{OLDEST_GLIBC.replace('.', '_')}_{processor}"
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", Path(folder) / "env")
        python = Path(folder) / "env/bin/python"
        run(python, "-m", "pip", "install", "--quiet", "wheel")
        run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT,
            f"--config-settings=cmake.define.LUMEN_LIBRARY={build}/portable/liblumen.so",
            f"--config-settings=build-dir={folder}/build")
        made = next(Path(folder).glob("*.whl"))
        run(python, "-m", "zipfile", "-e", made, Path(folder) / "seen")
        for file in (Path(folder) / "seen/lumen_compiler").glob("*.so*"):
            check_glibc(file)
        name = run(python, "-m", "wheel", "tags", "--platform-tag", platform, made).split()[-1]
        shutil.copy2(Path(folder) / name, out / name)
        return out / name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--only", default="tarball,deb,wheel")
    parser.add_argument("--level", default=9, help="of xz: 0 takes seconds, 9 minutes")
    given = parser.parse_args()
    build, only = given.build.resolve(), given.only.split(",")
    out = build / "packages"
    out.mkdir(exist_ok=True)
    for file in (build / "portable/lumen", build / "portable/liblumen.so"):
        check_glibc(file)
    processor = os.uname().machine
    version = run(build / "portable/lumen", "--version").split()[1]
    made = []
    if "tarball" in only:
        made.append(tarball(build, out, processor, given.level))
        shutil.copyfile(ROOT / "tools/packages/Containerfile", out / "Containerfile")
    if "deb" in only:
        made += debs(build, out, version, processor, given.level)
    if "wheel" in only:
        made.append(wheel(build, out, processor))
    for file in made:
        print(f"{Path(file).stat().st_size / 1e6:6.1f} MB  {file}")


main()
