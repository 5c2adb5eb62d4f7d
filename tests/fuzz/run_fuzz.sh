#!/usr/bin/env bash
# Builds the fuzz targets and runs each for SECONDS (default 60) on its saved corpus, after replaying that corpus.
# New inputs and findings stay in build-fuzz/; a find ends the script with the failing input's path and text.
#   usage: run_fuzz.sh [SECONDS] [TARGET...]        needs clang++-22 with libFuzzer (libclang-rt-22-dev)
# FUZZ_RUNS=N       executes each target N times in all, over its jobs, instead of for SECONDS
# FUZZ_JOBS=N       processes at a time; without it, one for each core. Cores that targets leave over go to more jobs of
#                   the same targets, which share what they find.
# LUMEN_FUZZ_SEED=N makes a run the same wherever and whenever it is made: a fixed number of mutations of the saved corpus
#                   alone, in a fixed order, and none drawn from addresses that comparisons saw. Otherwise each run differs.
# LUMEN_FUZZ_PROGRAM, LUMEN_FUZZ_CORPUS: a program that is built already, and the saved corpus, where neither CMake nor
#                   the source tree is at hand (pack_fuzz.sh)
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
seconds="${1:-60}"
shift || true
build="${LUMEN_FUZZ_BUILD:-$root/build-fuzz}"
corpus="${LUMEN_FUZZ_CORPUS:-$root/tests/fuzz/corpus}"
program="${LUMEN_FUZZ_PROGRAM:-}"
if [ -z "$program" ]; then
  (cd "$root" && cmake --preset fuzz -B "$build" > /dev/null)
  cmake --build "$build" --target fuzz
  program="$build/tests/fuzz/fuzz"
fi
if [ $# -gt 0 ]; then
  targets=("$@")
else
  mapfile -t targets < <("$program" --list)
fi
cores="${FUZZ_JOBS:-$(nproc)}"
jobs=$(((cores + ${#targets[@]} - 1) / ${#targets[@]}))
mkdir -p "$build/findings" "$build/logs"
# Targets that read folders write one for each execution: in memory that is ten times as fast.
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm

# What takes longer than 20 s by the clock is a finding, and so is what takes more than 100 ms of the processor for each
# kilobyte (fuzz.cpp) or more than 1 GB; a machine that stands still for a moment in between is none.
limits=(-timeout=20 -report_slow_units=20 -rss_limit_mb=1024 -malloc_limit_mb=1024 -max_len=65536)

replay() {  # TARGET
  "$program" "$1" "${limits[@]}" -runs=0 -artifact_prefix="$build/logs/$1-" "$corpus/$1" > "$build/logs/$1-replay" 2>&1 ||
    { tail -n 30 "$build/logs/$1-replay"; echo "$1 fails on its saved corpus"; return 1; }
}

fuzz() {  # TARGET JOB
  local target="$1" job="$2" found what log
  found="$build/corpus/$target"
  log="$build/logs/$target-$job"
  mkdir -p "$found"
  if [ -n "${LUMEN_FUZZ_SEED:-}" ]; then
    found="$build/corpus/$target-seeded-$job"
    rm -rf "$found"
    mkdir -p "$found"
    find "$corpus/$target" -type f | LC_ALL=C sort > "$found.list"
    what=(-seed="$((LUMEN_FUZZ_SEED + job))" -runs="${FUZZ_RUNS:-$((seconds * 1000))}" -use_cmp=0 -reload=0 "-seed_inputs=@$found.list" "$found")
  elif [ -n "${FUZZ_RUNS:-}" ]; then
    what=(-runs="$(((FUZZ_RUNS + jobs - 1) / jobs))" -reload=30 "$found" "$corpus/$target")
  else
    what=(-max_total_time="$seconds" -reload=30 "$found" "$corpus/$target")
  fi
  "$program" "$target" "${limits[@]}" -print_final_stats=1 -artifact_prefix="$build/findings/$target-$job-" "${what[@]}" > "$log" 2>&1 || true
}

report() {  # TARGET
  local executed
  executed="$(cat "$build"/logs/"$1"-[0-9]* | sed -n 's/^stat::number_of_executed_units: *//p' | awk '{n += $1} END {print n + 0}')"
  printf '%-16s %12d executions, %5d inputs kept' "$1" "$executed" "$(find "$build/corpus/$1"* -type f 2> /dev/null | wc -l)"
  if compgen -G "$build/findings/$1-*" > /dev/null; then
    echo ", findings:"
    grep -hE "SUMMARY|ERROR|internal error|Base64" "$build"/logs/"$1"-[0-9]* || true
    ls "$build/findings/$1-"*
    return 1
  fi
  echo
}

export -f replay fuzz report
export build corpus program seconds jobs
export limits_text="${limits[*]}"
work() {  # TARGET JOB: in a shell of its own, where arrays do not arrive
  read -ra limits <<< "$limits_text"
  if [ "$2" = replay ]; then replay "$1"; else fuzz "$1" "$2"; fi
}
export -f work
rm -f "$build"/logs/*
printf '%s replay\n' "${targets[@]}" | xargs -P "$cores" -L 1 bash -c 'work "$0" "$1"' || exit 1
for ((job = 0; job < jobs; ++job)); do printf "%s $job\n" "${targets[@]}"; done | xargs -P "$cores" -L 1 bash -c 'work "$0" "$1"'
status=0
for target in "${targets[@]}"; do report "$target" || status=1; done
exit "$status"
