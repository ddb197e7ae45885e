#!/usr/bin/env bash
# Runs three workers and a gateway from the configuration files beside this
# script, with each process's name before its log lines, until Ctrl-C. Their
# data stays in .cluster/.
set -euo pipefail
cd "$(dirname "$0")/../.."
skein=${SKEIN:-./bin/skein}
pids=()

# start NAME COMMAND...: the name goes before every line of the log. Ctrl-C must
# not end what reads the log, or the process could not write its last lines.
start() {
  local name=$1
  shift
  "$@" > >(trap '' INT TERM; exec sed -u "s/^/$name | /") 2>&1 &
  pids+=($!)
}

stop() {
  trap - EXIT INT TERM
  # The gateway was started last and stops first.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill -TERM "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
}
trap stop EXIT
trap 'exit 0' INT TERM

mkdir -p .cluster
for n in 1 2 3; do
  start "worker-$n" "$skein" worker --config "examples/cluster/worker-$n.yaml"
done
start gateway "$skein" gateway --config examples/cluster/gateway.yaml

echo "Flight SQL at grpc://127.0.0.1:8815, health at http://127.0.0.1:8816/readyz; Ctrl-C stops all"
# The first process to end ends the cluster; a healthy one runs until Ctrl-C.
wait -n "${pids[@]}"
echo "a process has ended, stopping the others" >&2
exit 1
