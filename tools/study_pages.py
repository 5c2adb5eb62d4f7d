#!/usr/bin/env python3
"""Draws the pages of studies in docs/guide again, by `lumen report`, from the documents that they hold.

Usage: tools/study_pages.py BUILD [--check]
  BUILD      folder with the lumen binary
  --check    compare with the committed pages instead of writing them; exits 1 and names those that differ
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPEN, CLOSE = '<script id="report" type="application/json">', "</script>"


def document_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    if OPEN not in text:
        sys.exit(f"{page}: holds no document; it is none of `lumen report`")
    return text.split(OPEN, 1)[1].split(CLOSE, 1)[0]


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    pages = sorted((ROOT / "docs" / "guide").glob("*-study.html"))
    with tempfile.TemporaryDirectory(prefix="lumen-studies-") as folder:
        document, drawn = Path(folder) / "study.json", Path(folder) / "study.html"
        for page in pages:
            document.write_text(document_of(page), encoding="utf-8")
            subprocess.run([options.build / "lumen", "report", document, "-o", drawn, "-q"], check=True, stdout=subprocess.DEVNULL)
            if not options.check:
                page.write_bytes(drawn.read_bytes())
            elif page.read_bytes() != drawn.read_bytes():
                stale.append(page.relative_to(ROOT).as_posix())
            drawn.unlink()
    if stale:
        sys.exit(f"not as `lumen report` draws them: {', '.join(stale)}; run tools/study_pages.py BUILD")
    print(f"{len(pages)} pages of studies")


if __name__ == "__main__":
    main()
