#!/usr/bin/env python3
"""tools/targets.py itself: it takes what passing tests have shown and nothing of those that failed, says when the page is stale or a fact is
of no target or kind, and its table is in the page.

Usage: tests/tools/targets_test.py
"""
import importlib.util
import json
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("targets", ROOT / "tools" / "targets.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
NAMES = ["avx512", "gfx942"]


class Targets(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        base = Path(self.folder.name)
        tool.PAGE, tool.FACTS, tool.MODELS = base / "page.md", base / "facts.jsonl", base / "models.txt"
        tool.PAGE.write_text(f"above\n{tool.BEGIN}\n{tool.END}\nbelow\n")
        tool.MODELS.write_text("gfx942   prompt f32  1\n")
        tool.targets = lambda lumen: NAMES
        self.results = base / "results"
        self.results.mkdir()

    def tearDown(self):
        self.folder.cleanup()

    def run_tool(self, *words):
        sys.argv = ["targets.py", "build", *map(str, words)]
        return tool.main()

    def result(self, verified, **more):
        test = {"name": "Test/0", "classname": "Suite", "result": "COMPLETED", "verified": verified, **more}
        (self.results / "a.json").write_text(json.dumps({"testsuites": [{"testsuite": [test]}]}))

    def test_what_passed_is_in_the_table(self):
        self.result("gfx942|dot|interpreted;avx512|dot|hardware;gfx942|sort|evaluated")
        self.assertEqual(self.run_tool("--results", self.results, "--device", "a card"), 0)
        page = tool.PAGE.read_text()
        self.assertTrue(page.startswith("above\n") and page.endswith("\nbelow\n"))
        row = next(line for line in page.splitlines() if line.startswith("| gfx942 |"))
        cells = dict(zip(["target", *tool.KINDS], (c.strip() for c in row.strip("|").split("|"))))
        self.assertEqual([cells[k] for k in ("dot", "moves", "models", "attend")], ["I", "E", "C", "-"])
        self.assertIn("- a card: avx512 (", page)
        self.assertEqual(self.run_tool("--check"), 0)

    def test_processes_of_one_run_add_up(self):
        for number, verified in enumerate(("gfx942|dot|interpreted", "gfx942|attend|evaluated;avx512|sort|compiled")):
            line = {"classname": "Suite", "name": f"Test/{number}", "verified": verified}
            (self.results / f"{number}.jsonl").write_text(json.dumps(line) + "\n")
        self.assertEqual(self.run_tool("--results", self.results), 0)
        self.assertEqual({(f["target"], f["kind"]) for f in tool.known_facts()}, {("gfx942", "dot"), ("gfx942", "attend"), ("avx512", "sort")})

    def test_what_failed_has_shown_nothing(self):
        for how in ({"failures": [{"failure": "no"}]}, {"result": "SKIPPED"}):
            self.result("gfx942|dot|interpreted", **how)
            self.assertEqual(self.run_tool("--results", self.results), 0)
            self.assertEqual(tool.known_facts(), [])

    def test_a_stale_page_is_said(self):
        self.assertEqual(self.run_tool("--check"), 1)
        self.assertEqual(self.run_tool(), 0)
        self.assertEqual(self.run_tool("--check"), 0)
        tool.targets = lambda lumen: [*NAMES, "new"]
        self.assertEqual(self.run_tool("--check"), 1)
        tool.targets = lambda lumen: NAMES
        tool.KINDS["new kind"] = ["new"]
        self.assertEqual(self.run_tool("--check"), 1)
        del tool.KINDS["new kind"]

    def test_facts_of_nothing_are_refused(self):
        for fact in ("other|dot|evaluated", "gfx942|other|evaluated", "gfx942|dot|other"):
            self.result(fact)
            self.assertEqual(self.run_tool("--results", self.results), 1, fact)

    def test_the_later_run_counts(self):
        for device in ("one", "two", "two"):
            self.result("avx512|dot|hardware")
            self.assertEqual(self.run_tool("--results", self.results, "--device", device), 0)
        self.assertEqual([f["device"] for f in tool.known_facts()], ["one", "two"])


unittest.main()
