#!/usr/bin/env python3
"""The packages of `make packages`: the program generates the code that the build's own does, and each package is installed
into roots of other distributions (roots.sh), in a copy of each, and used there: it trains, quantizes and writes. Needs root.

Usage: packages_check.py PACKAGES ROOTS [NAME..] [--only code,tarball,deb,image,wheel]
       PACKAGES: BUILD/packages; NAME: a root, default all of ROOTS
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Machines of every processor family that the program generates code for.
TARGETS = ["x86-64-v3", "avx512", "amx", "neon", "sme-512", "cortex-m4", "sm_90a", "gfx942", "gfx1201"]
# What is done with an installed program, in an empty folder: no network, no compiler, no other package.
DEMO = """set -e
lumen --version
lumen train --shape tiny --tokenizer bytes:300 --steps 20 --warmup 2 --eval-every 0 -c 64 -o tiny -q
lumen quantize tiny/model.gguf small.gguf q4_0 -q
lumen run -m small.gguf -p 'ROMEO:' -n 8 --seed 1
lumen compile llama --function step --symbols T=1,S=64 --format '*=q4_0' --target gfx942 --emit obj -o kernels.hsaco
test -s kernels.hsaco
"""
PYTHON_DEMO = """
import lumen_compiler as lumen
lumen.train(out="run", shape="tiny", steps=2, seed=1, quiet=True)
model = lumen.load("run/model.gguf")
print(lumen.__version__, len(model.tokenize("To be")), model.generate("ROMEO:", max_tokens=4, seed=1).tokens)
"""


class Root:
    """A copy of a root that is thrown away; what is written goes to a folder of its own (overlayfs)."""

    def __init__(self, base, packages):
        self.base, self.packages = base, packages
        self.folder = tempfile.TemporaryDirectory(prefix="lumen-root-")
        for name in ("upper", "work", "root"):
            (Path(self.folder.name) / name).mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def run(self, script, may_fail=False):
        """A shell script inside, in /home/demo; /packages has the packages."""
        inside = Path(self.folder.name)
        mounts = f"""set -e
mount -t overlay overlay -o lowerdir={self.base},upperdir={inside}/upper,workdir={inside}/work {inside}/root
mkdir -p {inside}/root/packages {inside}/root/home/demo
mount --bind {self.packages} {inside}/root/packages
mount -t proc proc {inside}/root/proc
mount --bind /dev {inside}/root/dev
exec chroot {inside}/root /usr/bin/env -i HOME=/home/demo PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin sh -c 'cd /home/demo; . /tmp/script'
"""
        (inside / "upper/tmp").mkdir(exist_ok=True)
        (inside / "upper/tmp").chmod(0o1777)
        (inside / "upper/tmp/script").write_text(script)
        done = subprocess.run(["unshare", "--mount", "--net", "--propagation", "private", "bash", "-c", mounts],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0 and not may_fail:
            raise SystemExit(f"in {self.base.name}:\n{script}\nended with {done.returncode}:\n{done.stdout[-3000:]}")
        return done.stdout


def check_tarball(root):
    said = root.run("mkdir -p /opt && tar -C /opt -xf /packages/unpacked.tar\n"
                    "PATH=/opt/lumen-linux-x86_64/bin:$PATH\n" + DEMO)
    assert said.startswith("lumen "), said


def check_deb(root):
    said = root.run("dpkg -i /packages/lumen-compiler_*.deb /packages/liblumen-dev_*.deb > /dev/null\n" + DEMO)
    assert said.startswith("lumen "), said
    left = root.run("dpkg -r lumen-compiler liblumen-dev > /dev/null\nfind /usr -name '*lumen*'")
    assert not left.strip(), f"left behind: {left}"


def check_image(root):
    """The steps of the recipe, done by hand: no image is pulled here."""
    recipe = (root.packages / "Containerfile").read_text().splitlines()
    steps, entry = ["set -e"], None
    for line in recipe:
        word, _, rest = line.partition(" ")
        if word == "ADD":
            file, place = rest.split()
            assert (root.packages / file).is_file(), file
            steps.append(f"mkdir -p {place} && tar -C {place} -xf /packages/unpacked.tar")
        elif word in ("RUN", "ENV"):
            steps.append(rest if word == "RUN" else f"export {rest}")
        elif word == "ENTRYPOINT":
            entry = re.search(r'"(.*)"', rest).group(1)
    assert entry
    said = root.run("\n".join([*steps, f"{entry} --version", DEMO]))
    assert said.startswith("lumen "), said


def python_of(root):
    """(3, 11), or None without Python."""
    said = root.run("python3 -c 'import sys; print(*sys.version_info[:2])'", may_fail=True).split()
    return (int(said[0]), int(said[1])) if len(said) == 2 and said[0] == "3" else None


def check_wheel(root, wheels):
    """False where no wheel is for the root's Python."""
    python = python_of(root)
    fits = [w for w in wheels if python and (f"-cp3{python[1]}-cp3" in w.name or ("-abi3-" in w.name and python >= (3, 12)))]
    if not fits:
        return False
    for wheel in fits[:1]:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest",
                        root.packages / "python", "--python-version", f"3.{python[1]}", "--platform", "manylinux_2_28_x86_64",
                        "--platform", "manylinux2014_x86_64", "numpy", "pip"], check=True)
        pip = next((root.packages / "python").glob("pip-*.whl")).name
        said = root.run(f"set -e\npython3 /packages/python/{pip}/pip install --quiet --no-index --find-links /packages/python "
                        f"--target /home/demo/site /packages/{wheel.name}\nPYTHONPATH=/home/demo/site python3 /packages/demo.py")
        assert re.match(r"\d+\.\d+", said.strip().splitlines()[-1]), said  # pip warns of root first
    return True


def check_same_code(build):
    """LLVM inside the program generates what the system's does: none of what is left out was needed."""
    environment = {**os.environ, "LUMEN_CACHE": "off"}
    with tempfile.TemporaryDirectory() as folder:
        for target in TARGETS:
            objects = []
            for program in (build / "lumen", build / "portable/lumen"):
                out = Path(folder) / "kernels.o"
                subprocess.run([program, "compile", "llama", "--function", "step", "--symbols", "T=1,S=64", "--format", "*=q4_0",
                                "--target", target, "--emit", "obj", "-o", out], check=True, capture_output=True, env=environment)
                objects.append(out.read_bytes())
            assert objects[0] == objects[1], f"{target}: another object than that of {build}/lumen"
    print(f"the same objects as {build.name}/lumen: {', '.join(TARGETS)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path)
    parser.add_argument("roots", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", default="code,tarball,deb,image,wheel")
    given = parser.parse_args()
    packages, roots, only = given.packages.resolve(), given.roots.resolve(), given.only.split(",")
    names = given.names or sorted(p.name for p in roots.iterdir() if (p / "made").is_file())
    if not names:
        sys.exit(f"{roots} has no root")
    wheels = sorted(packages.glob("*.whl"))
    (packages / "demo.py").write_text(PYTHON_DEMO)
    # A root's tar may have no xz; who unpacks the tarball by hand has one.
    with open(packages / "unpacked.tar", "wb") as out:
        subprocess.run(["xz", "-dc", packages / "lumen-linux-x86_64.tar.xz"], stdout=out, check=True)
    if "code" in only:
        check_same_code(packages.parent)
    checks = {"tarball": check_tarball, "deb": check_deb, "image": check_image}
    for name in names:
        start = time.monotonic()
        done = []
        for what, check in checks.items():
            if what in only:
                with Root(roots / name, packages) as root:
                    check(root)
                done.append(what)
        if "wheel" in only:
            with Root(roots / name, packages) as root:
                done.append("wheel" if check_wheel(root, wheels) else "no wheel for its Python")
        print(f"{name}: {', '.join(done)} ({time.monotonic() - start:.0f} s)", flush=True)
    (packages / "unpacked.tar").unlink()
    (packages / "demo.py").unlink()


main()
