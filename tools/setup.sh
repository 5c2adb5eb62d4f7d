#!/usr/bin/env bash
# Installs the Debian packages Lumen builds with, by name. Idempotent: packages already there are left alone.
#   tools/setup.sh            what building and testing need
#   tools/setup.sh --fuzz     also what fuzzing needs
#   tools/setup.sh --packages also what checking packages needs
set -euo pipefail

build=(
  cmake ninja-build g++ ccache mold pkg-config git
  llvm-22-dev liblld-22-dev clang-format-22
  libcli11-dev libeigen3-dev libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libpcre2-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev
  libsnappy-dev liblz4-dev libbrotli-dev liburing-dev libssl-dev libcpp-httplib-dev libcurl4-openssl-dev libedit-dev libncurses-dev
  libjpeg62-turbo-dev libpng-dev libwebp-dev
  libjs-marked libjs-katex node-highlight.js
  python3 python3-venv dpkg-dev file
)
tests=(openssl python3-dev openmpi-bin libopenmpi3 libgtest-dev librapidcheck-dev libbenchmark-dev qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
  clang-tidy-14)
fuzz=(clang-22 libclang-rt-22-dev libomp-22-dev)

packages=("${build[@]}" "${tests[@]}")
if [[ ${1:-} == --packages ]]; then packages+=(debootstrap xz-utils); fi
if [[ ${1:-} == --fuzz ]]; then packages+=("${fuzz[@]}"); fi

missing=()
for package in "${packages[@]}"; do
  if [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true) != "install ok installed" ]]; then
    missing+=("$package")
  fi
done

if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

echo "setup: installing ${#missing[@]} Debian packages: ${missing[*]}"
if [[ $(id -u) -ne 0 ]]; then
  echo "setup: this needs root; run:  sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
if ! apt-cache show llvm-22-dev > /dev/null 2>&1; then
  echo "setup: no package llvm-22-dev in the configured sources; Lumen needs Debian 12 (bookworm-updates) or newer" >&2
  exit 1
fi
apt-get install -y -q --no-install-recommends "${missing[@]}"
echo "setup: done"
