#!/usr/bin/env bash
# Says in a sentence what is missing to build loom, and how to get it.
#   tools/need.sh rust      a Rust toolchain and a linker
#   tools/need.sh python    a Python that can make virtual environments
set -euo pipefail

oldest_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
oldest_python=3.10

refuse() {
    printf 'loom cannot be built yet: %s\n' "$1" >&2
    exit 1
}

# Whether version $1 is at least version $2.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

case "${1:-}" in
rust)
    rustup="install it with rustup: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    found=$(cargo --version 2>/dev/null | awk '{print $2}' || true)
    [ -n "$found" ] || refuse "there is no Rust toolchain (cargo) on this machine; $rustup"
    at_least "$found" "$oldest_rust" ||
        refuse "Rust $oldest_rust or newer is needed, but cargo is $found; update it (rustup update stable) or $rustup"
    command -v cc >/dev/null ||
        refuse "there is no C compiler (cc) to link with; on Debian or Ubuntu: apt-get install build-essential"
    ;;
python)
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null ||
        refuse "there is no $python; install Python $oldest_python or newer, on Debian or Ubuntu: apt-get install python3 python3-venv"
    found=$("$python" -c 'import platform; print(platform.python_version())')
    at_least "$found" "$oldest_python" ||
        refuse "Python $oldest_python or newer is needed, but $python is $found; name another with make PYTHON=python3.12"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        refuse "$python cannot make virtual environments; on Debian or Ubuntu: apt-get install python3-venv"
    ;;
*)
    echo "usage: $0 rust|python" >&2
    exit 2
    ;;
esac
