#!/usr/bin/env python3
"""The cache that `lumen pull` fills as huggingface_hub sees it, and the cache that huggingface_hub fills as Lumen sees it, against the same
stand-in of the hub.

usage: hub_reference.py LUMEN      exit code 77: the library is missing, nothing was checked
"""
import json
import os
import sys
import tempfile
from pathlib import Path

try:
    import huggingface_hub
except ImportError as missing:
    print(f"skipped: {missing}; pip install huggingface-hub")
    sys.exit(77)

import hub_check

FOLDER = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": hub_check.LARGE}


def tree(cache, name):
    """Paths, links and contents of a repository, without what is empty."""
    folder = cache / ("models--" + name.replace("/", "--"))
    out = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            out[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file() and not path.name.startswith("."):
            out[str(path.relative_to(folder))] = path.read_bytes()
    return out


def main():
    lumen = str(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lumen-hub-") as work:
        repositories = {"user/small": hub_check.usual(), "user/folder": hub_check.Repository(FOLDER)}
        with hub_check.Case(lumen, work, repositories) as case:
            theirs = case.work / "theirs"
            theirs.mkdir()
            case.run("pull", "user/small", "user/small:BF16", "user/folder")
            scan = huggingface_hub.scan_cache_dir(case.cache)
            assert not scan.warnings, scan.warnings
            assert {repo.repo_id: len(next(iter(repo.revisions)).files) for repo in scan.repos} == {"user/small": 3, "user/folder": 3}
            for repo in scan.repos:
                assert [revision.refs for revision in repo.revisions] == [{"main"}], repo
            here = dict(cache_dir=case.cache, local_files_only=True)
            for name, file in (("user/small", "small-Q4_K_M.gguf"), ("user/small", "big/small-BF16-00002-of-00002.gguf"), ("user/folder", "config.json")):
                found = huggingface_hub.hf_hub_download(name, file, **here)
                assert Path(found).read_bytes() == repositories[name].files[file]

            # The library downloads the same files: the two caches are the same, and Lumen finds them.
            for name, files in (("user/small", ["small-Q4_K_M.gguf", "big/small-BF16-00001-of-00002.gguf", "big/small-BF16-00002-of-00002.gguf"]),
                                ("user/folder", list(FOLDER))):
                for file in files:
                    huggingface_hub.hf_hub_download(name, file, cache_dir=theirs, endpoint=case.hub.hub.url)
            for name in repositories:
                assert tree(case.cache, name) == tree(theirs, name), (tree(case.cache, name).keys(), tree(theirs, name).keys())
            ours = json.loads(case.run("list", "--json"))["models"]
            case.environment["HF_HUB_CACHE"] = str(theirs)
            names = [model["name"] for model in json.loads(case.run("list", "--json"))["models"]]
            assert names == [model["name"] for model in ours] and "user/small:Q4_K_M" in names, names
            before = len(case.hub.contents.requests)
            case.run("pull", "user/small", "user/folder")
            assert len(case.hub.contents.requests) == before, "downloaded again"
            case.run("rm", "--yes", "user/small:BF16")
            scan = huggingface_hub.scan_cache_dir(theirs)
            assert not scan.warnings and {repo.repo_id: repo.nb_files for repo in scan.repos} == {"user/small": 1, "user/folder": 3}, scan
    print("huggingface_hub", huggingface_hub.__version__)


if __name__ == "__main__":
    main()
