#!/usr/bin/env bash
# serve.sh VENV FLAG...: one vLLM on this machine's CPU, on loopback, in a process group of its own. It ends when this script is told to, or when the script's standard
# input ends: engines are several processes, and none of them may outlive the tests that started them, not even tests that were killed.
set -euo pipefail
venv=$1
shift
# Nothing is fetched and nobody is told.
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
# Two engines and the tests share the cores. A first compilation would hold the first request up for minutes.
export VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1
export VLLM_HOST_IP=127.0.0.1 VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 UCX_NET_DEVICES=lo UCX_TLS=tcp,self,sm
# The paths that operators use (/reset_prefix_cache, /sleep): tests reset caches with them, and show that no client reaches them.
export VLLM_SERVER_DEV_MODE=1
export PATH=$venv/bin:$PATH PYTHONNOUSERSITE=1 VIRTUAL_ENV=$venv
PYTHONPATH=$(cd "$(dirname "${BASH_SOURCE[0]}")/site" && pwd)
export PYTHONPATH
LD_PRELOAD=$venv/lib/libiomp5.so setsid "$venv/bin/vllm" serve "$@" </dev/null &
engine=$!
echo "engine: process group $engine"

# Children of the engine are in its group, also after it has ended itself.
end() {
  # A second word to end must not end this before the engine has ended.
  trap "" TERM INT HUP
  kill -TERM -- "-$engine" 2>/dev/null || true
  # By the clock: on busy cores a sleep of a tenth can take a second, and whoever told this to end does not wait for ever.
  SECONDS=0
  while [ "$SECONDS" -lt 5 ] && kill -0 -- "-$engine" 2>/dev/null; do sleep 0.1; done
  kill -KILL -- "-$engine" 2>/dev/null || true
  exit "${1:-0}"
}
trap end TERM INT HUP
# A background job's standard input is /dev/null unless it is given another one.
self=$$
{ cat >/dev/null; kill -TERM "$self" 2>/dev/null; } <&0 &
code=0
wait "$engine" || code=$?
end "$code"
