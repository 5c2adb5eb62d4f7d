#!/usr/bin/env python3
"""The tower needs no application: a program that is linked without them has every other command, and refuses theirs as words that
it does not know.

Usage: tests/apps/without_apps_check.py LUMEN LUMEN_WITHOUT_APPS [APPLICATION..]
"""
import re
import subprocess
import sys


def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def commands(program):
    """The names in the list of commands of `--help`."""
    code, out, error = run(program, "--help")
    assert code == 0, error
    names = re.findall(r"^  ([\w-]+)(?:, [\w-]+)*  ", out[out.index("\nSubcommands:"):], re.M)
    assert "run" in names and len(names) > 20, out
    return names


def main():
    lumen, bare, applications = sys.argv[1], sys.argv[2], sys.argv[3:]
    whole = commands(lumen)
    assert [name for name in whole if name in applications] == applications, (whole, applications)
    assert commands(bare) == [name for name in whole if name not in applications]
    for name in applications:
        assert run(lumen, name, "--help")[0] == 0, name
        code, _, error = run(bare, name, "--help")
        assert code == 2 and f"'{name}'" in error, (name, code, error)
    print(f"{len(whole)} commands, {len(applications)} of them applications")


main()
