#!/usr/bin/env python3
"""needs: clang-tidy (skipped without). The ten checks of .clang-tidy exist, and tools/tidy.py finds what each is for."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import tidy  # noqa: E402

CHECKS = re.findall(r"^  ([a-z][\w-]+),?$", (ROOT / ".clang-tidy").read_text(), re.M)
FAULTS = {
    "bugprone-infinite-loop": "void f() { int i = 0; while (i < 3) { } }",
    "bugprone-sizeof-expression": "unsigned long f() { return sizeof(sizeof(int)); }",
    "bugprone-use-after-move": "#include <string>\n#include <utility>\nvoid g(std::string);\n"
                               "unsigned long f(std::string s) { g(std::move(s)); return s.size(); }",
    "cppcoreguidelines-virtual-class-destructor": "struct A { virtual void f() = 0; };",
    "google-explicit-constructor": "struct A { A(int x); };",
    "modernize-use-override": "struct A { virtual ~A() = default; virtual void f(); };\nstruct B : A { virtual void f(); };",
    "performance-for-range-copy": "#include <string>\n#include <vector>\nunsigned long f(const std::vector<std::string>& v) {\n"
                                  "  unsigned long n = 0;\n  for (const std::string s : v) n += s.size();\n  return n;\n}",
    "performance-move-const-arg": "#include <string>\n#include <utility>\nvoid g(std::string);\n"
                                  "void f(const std::string s) { g(std::move(s)); }",
    "performance-unnecessary-copy-initialization": "#include <string>\nconst std::string& g();\n"
                                                   "unsigned long f() { const std::string s = g(); return s.size(); }",
}


@unittest.skipUnless(tidy.program(), "clang-tidy is not here")
class Tidy(unittest.TestCase):
    def test_ten_checks_that_exist(self):
        self.assertEqual(len(CHECKS), 10)
        known = subprocess.run([tidy.program(), "--checks=*", "--list-checks"], capture_output=True, text=True).stdout.split()
        self.assertEqual([c for c in CHECKS if c not in known], [])
        self.assertEqual(sorted(set(FAULTS) - set(CHECKS)), [])

    def test_each_finds_its_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "src").mkdir()
            (root / ".clang-tidy").write_text((ROOT / ".clang-tidy").read_text())
            for number, text in enumerate(FAULTS.values()):
                (root / f"src/f{number}.cpp").write_text(text + "\n")
            (root / "src/sound.cpp").write_text("int f() { return 1; }\n")
            files = [f"src/f{number}.cpp" for number in range(len(FAULTS))] + ["src/sound.cpp"]
            run = subprocess.run([sys.executable, str(ROOT / "tools/tidy.py"), *files], capture_output=True, text=True,
                                 env={**os.environ, "LUMEN_TIDY_ROOT": str(root)})
            self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
            for number, check in enumerate(FAULTS):
                self.assertRegex(run.stdout, rf"(?m)^src/f{number}\.cpp:\d+: .*\[{check}\]$")
            self.assertNotIn("sound.cpp", run.stdout)


if __name__ == "__main__":
    unittest.main()
