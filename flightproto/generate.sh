#!/usr/bin/env bash
# Regenerates pb/ from skein.proto. Needs protoc; the Go plugin is built from
# the module's own protobuf version, so that runtime and code agree.
set -euo pipefail
cd "$(dirname "$0")"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
go build -o "$tools/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
mkdir -p pb
PATH="$tools:$PATH" protoc --proto_path=. --go_out=. --go_opt=module=skein/flightproto skein.proto
