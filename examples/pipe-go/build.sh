#!/bin/sh
# Writes the Go code of the contract and builds the pipe. Needs Go, npm ci, and the generators:
#   node scripts/get-tools.mjs protoc-gen-go; node scripts/get-tools.mjs protoc-gen-go-grpc
set -eu
cd "$(dirname "$0")/../.."
PATH="$PWD/.cache/bin:$PATH" node_modules/.bin/buf generate --template examples/pipe-go/buf.gen.yaml \
  --path proto/turnwire/llm --path proto/turnwire/packet --path proto/third_party/buf/validate
cd examples/pipe-go
go build -o pipe .
