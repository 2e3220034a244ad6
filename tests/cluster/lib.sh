# Shared by tests/run and tests/cluster/*: paths, messages, waiting. Sourced, never run.
# shellcheck shell=bash
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TOOLS=${CICADA_TOOLS:-$ROOT/target/tools/bin}
IMAGES=${CICADA_IMAGES:-$ROOT/target/images}

# One build serves the tests, the images and the benchmarks: static programs for this very machine. The
# explicit target keeps the flag away from build scripts and procedural macros, which can't be static.
static_build() {
  TARGET=$(rustc --print host-tuple)
  export CARGO_BUILD_TARGET=$TARGET
  local flags
  flags=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$TARGET")_RUSTFLAGS
  export "$flags=-C target-feature=+crt-static"
  export CICADA_BIN=${CARGO_TARGET_DIR:-$ROOT/target}/$TARGET/release
}

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# installed COMMAND PACKAGE...: remembers the packages of a missing command; `install_missing` installs them.
MISSING=()
need() { # need COMMAND PACKAGE
  local have=""
  have=$(PATH=$PATH:/usr/sbin:/sbin command -v "$1" || true)
  [ -n "$have" ] || [ -e "$1" ] || MISSING+=("$2")
}

install_missing() {
  [ ${#MISSING[@]} -gt 0 ] || return 0
  say "installing: ${MISSING[*]}"
  [ "$(id -u)" = 0 ] || die "missing packages, and not root: sudo apt-get install ${MISSING[*]}"
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${MISSING[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: ${MISSING[*]}"
  fi
  rm -f "$log"
  MISSING=()
}

# alive PIDFILE MARK: true if that process runs and is ours. A recycled process id does not fool it:
# MARK (a path that only this server has on its command line) must be there.
alive() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2"
}

# stop_pidfile PIDFILE MARK: TERM, 10 seconds, KILL; waits until it has gone.
stop_pidfile() {
  local pid i
  if alive "$1" "$2"; then
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do alive "$1" "$2" || break; sleep 0.1; done
    if alive "$1" "$2"; then kill -9 "$pid" 2>/dev/null || true; sleep 0.2; fi
  fi
  rm -f "$1"
}

# wait_until WHAT SECONDS PIDFILE MARK LOG COMMAND...: polls COMMAND. Fails at once when the process has
# died, and shows the end of its log either way.
wait_until() {
  local what=$1 seconds=$2 pidfile=$3 mark=$4 log=$5 end
  shift 5
  end=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    # Between fork and exec a process still has the shell's command line: one look is not enough.
    if ! alive "$pidfile" "$mark" && { sleep 2; ! alive "$pidfile" "$mark"; }; then
      say "error: $what: the process has ended; the end of $log:"
      tail -n 25 "$log" >&2 || true
      return 1
    fi
    if [ $SECONDS -ge $end ]; then
      say "error: $what: not after $seconds s; the end of $log:"
      tail -n 25 "$log" >&2 || true
      return 1
    fi
    sleep 0.25
  done
}
