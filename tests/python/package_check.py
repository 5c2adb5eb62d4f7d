#!/usr/bin/env python3
"""The Python package: built by pip around the library of this build, then tried, and the blocks of docs/guide/python.md run.

usage: package_check.py LIBLUMEN LUMEN      exit code 77: what building needs is missing, nothing was checked
"""
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
missing = [name for name in ("pip", "nanobind", "scikit_build_core", "numpy") if importlib.util.find_spec(name) is None]
if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
    missing.append("Python.h (python3-dev)")
if missing:
    print(f"skipped: no {', '.join(missing)}; pip install nanobind scikit-build-core numpy")
    sys.exit(77)

LIBRARY, LUMEN = (Path(p).resolve() for p in sys.argv[1:3])


def run(*words, cwd, env):
    done = subprocess.run([str(w) for w in words], cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode} from {' '.join(map(str, words))}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}")
    return done.stdout + done.stderr


def document_script():
    """The document's Python, block behind block."""
    text = (ROOT / "docs/guide/python.md").read_text()
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))


with tempfile.TemporaryDirectory(prefix="lumen-python-") as name:
    folder = Path(name)
    site = folder / "site"
    env = {**os.environ, "LUMEN_CACHE": str(folder / "cache")}
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--target", site,
        f"--config-settings=build-dir={folder / 'build'}", f"--config-settings=cmake.define.LUMEN_LIBRARY={LIBRARY}", ROOT,
        cwd=folder, env=env)
    env["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    env["LUMEN_PROGRAM"] = str(LUMEN)
    print(run(sys.executable, HERE / "package_test.py", cwd=folder, env=env)[-300:])
    (folder / "document.py").write_text(document_script())
    run(sys.executable, "document.py", cwd=folder, env=env)
    stand_in = LIBRARY.parent / "tests/amd/libamdhip64.so"
    if stand_in.exists():
        chip = {"LUMEN_HIP_LIBRARY": str(stand_in), "LUMEN_STAND_IN_AMD": "gfx1100", "LUMEN_TRY": "never",
                "LUMEN_MODEL": str(folder / "run/model.gguf")}
        print(run(sys.executable, HERE / "device_test.py", cwd=folder, env=env | chip)[-300:])
    if importlib.util.find_spec("mypy"):
        run(sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--no-warn-unused-ignores", "--disable-error-code=no-any-return", site / "lumen_compiler",
            cwd=folder, env=env)
print("the package, and its document")
