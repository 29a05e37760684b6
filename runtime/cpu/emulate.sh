#!/bin/sh
# Runs the unit tests of this crate, those of every kernel among them, on processors that this machine does not have, under QEMU.
#
#   runtime/cpu/emulate.sh
#
# takes about twenty minutes on two cores.
#
# Needs qemu-user-static and gcc-aarch64-linux-gnu (Debian's names) and the Rust target aarch64-unknown-linux-gnu. What is not there, or not
# emulated by this QEMU, is reported at the end and makes the exit status 2; a failed test makes it 1. No QEMU to date emulates AVX-512,
# AVX-VNNI or AMX: their kernels are tested by `cargo test` where the processor has them.

set -u
cd "$(dirname "$0")" || exit 1

arm=aarch64-unknown-linux-gnu
failed=
not_run=

# The unit tests' binary for target $1, and the example that says which levels a processor has.
build() {
    binary=$(cargo test --no-run --lib --target "$1" 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
    example=$(cargo build --example levels --target "$1" --message-format json 2> /dev/null |
        sed -n 's/.*"executable":"\([^"]*levels[^"]*\)".*/\1/p')
    [ -n "$binary" ] && [ -n "$example" ]
}

# Whether the level $1 is among those printed.
has() {
    case "$levels," in *" $1,"*) return 0 ;; *) return 1 ;; esac
}

# run QEMU CPU WANTED: the tests on a processor whose best level is to be WANTED.
run() {
    what="$3 ($1 -cpu $2)"
    if ! command -v "$1" > /dev/null; then
        not_run="$not_run\n  $what: no $1"
        return
    fi
    levels=$("$1" -L /usr/aarch64-linux-gnu -cpu "$2" "$example" 2> /dev/null)
    if ! has "$3"; then
        not_run="$not_run\n  $what: the emulated processor has ${levels:-no levels}"
        return
    fi
    echo "== $what, $levels"
    # Peaks are measured against the clock, and mean nothing here.
    "$1" -L /usr/aarch64-linux-gnu -cpu "$2" "$binary" --quiet --skip peaks || failed="$failed\n  $what"
}

if ! command -v aarch64-linux-gnu-gcc > /dev/null; then
    not_run="$not_run\n  every level of NEON: no aarch64-linux-gnu-gcc"
elif ! rustc --print target-libdir --target "$arm" | xargs test -d; then
    not_run="$not_run\n  every level of NEON: no Rust target $arm"
else
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    if build "$arm"; then
        run qemu-aarch64-static cortex-a72 neon
        run qemu-aarch64-static neoverse-n1 neon-dotprod
        run qemu-aarch64-static max neon-i8mm
    else
        failed="$failed\n  build for $arm"
    fi
fi

if [ "$(uname -m)" = x86_64 ]; then
    if build x86_64-unknown-linux-gnu; then
        run qemu-x86_64-static Nehalem scalar
        run qemu-x86_64-static max avx2
    else
        failed="$failed\n  build for x86_64-unknown-linux-gnu"
    fi
else
    not_run="$not_run\n  levels of x86-64: this machine is $(uname -m)"
fi

[ -z "$not_run" ] || printf "not run:$not_run\n"
[ -z "$failed" ] || { printf "failed:$failed\n"; exit 1; }
[ -z "$not_run" ] || exit 2
