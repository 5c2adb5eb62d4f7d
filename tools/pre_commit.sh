#!/usr/bin/env bash
# Before a commit: are staged C++ files formatted, and does the tree keep the rules of the house?
#   install: ln -s ../../tools/pre_commit.sh .git/hooks/pre-commit
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"
mapfile -t staged < <(git diff --cached --name-only --diff-filter=ACM -- '*.h' '*.cpp')
if [ "${#staged[@]}" -gt 0 ] && ! clang-format-22 --dry-run -Werror "${staged[@]}"; then
  echo "run 'make format', and stage what it changed"
  exit 1
fi
python3 tools/house.py .
