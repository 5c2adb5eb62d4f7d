#!/usr/bin/env bash
# Packs the fuzz program, the libraries it is linked with and the saved corpus, so that they run on another machine of
# the same processor without anything installed: FOLDER.tar.zst, and in it run-all.sh CORES SECONDS [TARGET...].
#   usage: pack_fuzz.sh FOLDER     after the fuzz preset is built
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
build="${LUMEN_FUZZ_BUILD:-$root/build-fuzz}"
out="$1"
rm -rf "$out"
mkdir -p "$out/lib"
strip --strip-debug -o "$out/fuzz" "$build/tests/fuzz/fuzz"
ldd "$build/tests/fuzz/fuzz" | awk '$3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}' | xargs -I{} cp -L {} "$out/lib/"
cp -r "$root/tests/fuzz/corpus" "$root/tests/fuzz/run_fuzz.sh" "$out/"
mkdir -p "$out/fixtures/tokenizers"
cp "$root"/tests/model/fixtures/tokenizers/{gpt-2.gguf,deepseek-llm.gguf,ax-3.1-light.json} "$out/fixtures/tokenizers/"
cat > "$out/run-all.sh" <<'SCRIPT'
#!/usr/bin/env bash
# usage: run-all.sh CORES SECONDS [TARGET...]: each target for SECONDS in all, several at a time; executions of each, and
# inputs that fail in work/findings. FUZZ_RUNS=N: N executions of each target instead.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cores="$1" seconds="$2"
shift 2
mkdir -p "$here/work"
cat > "$here/work/fuzz" <<PROGRAM
#!/usr/bin/env bash
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib" "$here/fuzz" "\$@"
PROGRAM
chmod +x "$here/work/fuzz"
mapfile -t all < <("$here/work/fuzz" --list)
[ $# -gt 0 ] || set -- "${all[@]}"
# All of them within SECONDS: with fewer cores than targets each has its share of the time.
each=$seconds
[ $# -le "$cores" ] || each=$((seconds * cores / $#))
export LUMEN_FUZZ_FIXTURES="$here/fixtures"
LUMEN_FUZZ_PROGRAM="$here/work/fuzz" LUMEN_FUZZ_CORPUS="$here/corpus" LUMEN_FUZZ_BUILD="$here/work" FUZZ_JOBS="$cores" \
  "$here/run_fuzz.sh" "$each" "$@"
SCRIPT
chmod +x "$out/run-all.sh" "$out/run_fuzz.sh"
tar -C "$(dirname "$out")" -c "$(basename "$out")" | zstd -q -19 -T0 -f -o "$out.tar.zst"
ls -l "$out.tar.zst"
