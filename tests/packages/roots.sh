#!/usr/bin/env bash
# Roots of other distributions to install packages in, as debootstrap makes them: FOLDER/NAME for every name given. A root that
# is there is left alone. Needs root, debootstrap, and mirrors that can be reached.
#
# Usage: roots.sh FOLDER debian-11|debian-12|debian-13|ubuntu-20.04|ubuntu-22.04|ubuntu-24.04..
set -euo pipefail
folder=$(realpath -m "$1")
shift
mkdir -p "$folder/downloaded"

# debootstrap leaves /proc mounted in some releases, and where it fails; what walks through the folder would walk there, too.
unmount_proc() {
  if mountpoint -q "$1/proc"; then umount "$1/proc"; fi
}

# What ubuntu releases are signed with is no package of Debian 12; debootstrap then compares checksums alone.
make_root() {  # name, release, mirror, script, options
  local name=$1 release=$2 mirror=$3 script=$4
  shift 4
  if [[ -e $folder/$name/made ]]; then return; fi
  unmount_proc "$folder/$name"
  rm -rf "${folder:?}/$name"
  if ! debootstrap --variant=minbase --cache-dir="$folder/downloaded" "$@" "$release" "$folder/$name" "$mirror" \
    "/usr/share/debootstrap/scripts/$script" > "$folder/$name.log" 2>&1; then
    unmount_proc "$folder/$name"
    tail -n 3 "$folder/$name.log" >&2
    return 1
  fi
  unmount_proc "$folder/$name"
  touch "$folder/$name/made"
}

debian=http://deb.debian.org/debian
ubuntu=http://archive.ubuntu.com/ubuntu
for name in "$@"; do
  case $name in
    debian-11) make_root "$name" bullseye $debian bullseye ;;
    debian-12) make_root "$name" bookworm $debian bookworm --include=python3 ;;
    debian-13) make_root "$name" trixie $debian trixie --include=python3 ;;
    ubuntu-20.04) make_root "$name" focal $ubuntu focal --no-check-gpg ;;
    ubuntu-22.04) make_root "$name" jammy $ubuntu jammy --no-check-gpg --include=python3 ;;
    ubuntu-24.04) make_root "$name" noble $ubuntu jammy --no-check-gpg --include=python3 ;;  # whose script it is, too
    *) echo "no root is called $name" >&2; exit 2 ;;
  esac
done
