#!/bin/sh
# Installs the C library that `cargo build --release -p coreline-capi` has built.
#
# Usage: install.sh BUILT PREFIX [LIBDIR]
#
# BUILT is the folder with libcoreline_capi.so and libcoreline_capi.a, such as target/release. Either
# of the two may be missing. PREFIX is an absolute path, because the pkg-config file has it. LIBDIR is
# relative to PREFIX: lib, if it is not given. With DESTDIR in the environment, files go below that
# folder, as packagers need it.
set -eu

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: install.sh BUILT PREFIX [LIBDIR]" >&2
    exit 2
fi
built=$1
prefix=$2
case $prefix in
    /*) ;;
    *)
        echo "install.sh: PREFIX is the relative path $prefix; give an absolute one" >&2
        exit 2
        ;;
esac
libdir=${3:-lib}
source=$(dirname "$0")
version=$(sed -n 's/^#define CORELINE_VERSION_[A-Z]* //p' "$source/include/coreline.h" | paste -sd. -)
# Before 1.0, each minor version may break programs: it is in the name of the shared library.
case $version in
    0.*) series=${version%.*} ;;
    *) series=${version%%.*} ;;
esac
to=${DESTDIR:-}$prefix

found=
mkdir -p "$to/include/coreline" "$to/$libdir/pkgconfig" "$to/share/cmake/coreline" \
    "$to/share/man/man3" "$to/share/man/man7"
if [ -e "$built/libcoreline_capi.so" ]; then
    found=yes
    install -m 755 "$built/libcoreline_capi.so" "$to/$libdir/libcoreline.so.$version"
    ln -sf "libcoreline.so.$version" "$to/$libdir/libcoreline.so.$series"
    ln -sf "libcoreline.so.$series" "$to/$libdir/libcoreline.so"
fi
if [ -e "$built/libcoreline_capi.a" ]; then
    found=yes
    install -m 644 "$built/libcoreline_capi.a" "$to/$libdir/libcoreline.a"
fi
if [ -z "$found" ]; then
    echo "install.sh: no libcoreline_capi.so and no libcoreline_capi.a in $built; build them with" \
        "cargo build --release -p coreline-capi" >&2
    exit 1
fi
install -m 644 "$source/include/coreline.h" "$to/include/"
install -m 644 "$source"/include/coreline/*.h "$to/include/coreline/"
# Without what sed would change in it.
escaped=$(printf '%s\n' "$prefix" | sed 's/[&|\\]/\\&/g')
sed -e "s|@prefix@|$escaped|" -e "s|@libdir@|$libdir|" -e "s|@version@|$version|" \
    "$source/coreline.pc.in" >"$to/$libdir/pkgconfig/coreline.pc"
install -m 644 "$source"/cmake/*.cmake "$to/share/cmake/coreline/"
install -m 644 "$source"/man/*.3 "$to/share/man/man3/"
install -m 644 "$source"/man/*.7 "$to/share/man/man7/"
