#!/bin/sh
# Debian's source of cpp-httplib, split into httplib.h and httplib.cc in FOLDER: the package libcpp-httplib-dev has a
# shared library alone. Downloads by name, in the installed version; needs dpkg-dev and the sources of apt.
# Usage: httplib_source.sh FOLDER
set -eu
folder=$1
mkdir -p "$folder/lists/partial" "$folder/parts"
cd "$folder"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
  if [ -f "$file" ]; then sed 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$file" > "parts/$(basename "$file")"; fi
done
if [ -f parts/sources.list ]; then mv parts/sources.list parts/old.list; fi
version=$(dpkg-query -W -f '${source:Version}' libcpp-httplib-dev)
fetch() {
  apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/parts" \
    -o "Dir::State::lists=$folder/lists" -o APT::Sandbox::User=root "$@"
}
fetch update
fetch source --download-only "cpp-httplib=$version"
rm -rf unpacked
dpkg-source --extract cpp-httplib_*.dsc unpacked
python3 unpacked/split.py -e cc -o "$folder"
rm -rf lists parts unpacked
