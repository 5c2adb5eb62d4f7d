#!/usr/bin/env python3
"""Makes tests/model/fixtures/adapter_keys.json: the kinds of adapters that peft (PyPI, 0.21.2) knows, and the keys of adapter_config.json that
each kind's configuration class has. adapter_keys_test.cpp holds models/adapters.toml against it; it needs only the result.

usage: adapter_table.py OUT      writes it
       adapter_table.py          compares it with the package that is installed: exit code 1 and the names of what is new
exit code 77: the package is missing, nothing was checked
"""
import dataclasses
import json
import pathlib
import sys

try:
    import peft
except ImportError as missing:
    print(f"skipped: {missing}; pip install peft")
    sys.exit(77)

FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "adapter_keys.json"


def table():
    return {str(kind.value): sorted(f.name for f in dataclasses.fields(cls)) for kind, cls in peft.PEFT_TYPE_TO_CONFIG_MAPPING.items()}


def main():
    if sys.argv[1:]:
        text = json.dumps({"peft": peft.__version__, "kinds": table()}, sort_keys=True, separators=(",", ":"))
        pathlib.Path(sys.argv[1]).write_text(text.replace('],"', '],\n"') + "\n")
        return
    known = json.loads(FIXTURE.read_text())["kinds"]
    new = [f"kind {kind}" for kind in sorted(set(table()) - set(known))]
    for kind, keys in table().items():
        new += [f"{kind}.{key}" for key in keys if key not in known.get(kind, [])]
    if new:
        sys.exit(f"peft {peft.__version__} knows what {FIXTURE.name} does not: {', '.join(new)}\nrun {pathlib.Path(__file__).name} {FIXTURE}, then add them to "
                 "models/adapters.toml")
    print(f"peft {peft.__version__}: {len(known)} kinds, {sum(map(len, known.values()))} keys")


main()
