#!/usr/bin/env bash
# Whether sources compile alone, as none does in a build: units share headers, so that a missing #include is not seen
# there. Looks at the sources that changed last, COUNT of them (40), or at all.
#   usage: compile_alone.sh [COUNT|all]
set -euo pipefail
cd "$(dirname "$0")/.."
count="${1:-40}"
[ "$count" = all ] && count=1000000
export CXX="${CXX:-g++}"
export FLAGS="-std=c++20 -fsyntax-only -w -DFMT_SHARED -Isrc -Iinclude -I. -isystem /usr/lib/llvm-22/include -isystem /usr/include/eigen3 -DLUMEN_SOURCE_DIR=\"\" -DLUMEN_BINARY_DIR=\"\""
alone() {  # SOURCE
  # shellcheck disable=SC2086
  $CXX $FLAGS "$1" || { echo "$1 does not compile alone"; return 1; }
}
export -f alone
sources=$({ git diff --name-only HEAD; git log --format= --name-only; } | grep -E '^(src|apps|tests)/.*\.cpp$' |
  grep -vE '^tests/(amd|fuzz|hostile|run/fake_gpu)/' | awk '!seen[$0]++' |
  while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done | awk -v n="$count" 'NR <= n')
echo "$sources" | xargs -P "$(nproc)" -I{} bash -c 'alone {}'
echo "$(echo "$sources" | wc -l) sources compile alone"
