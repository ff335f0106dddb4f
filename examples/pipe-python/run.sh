#!/bin/sh
# Writes the Python code of the contract and starts the pipe at the given address. Needs the Python environment:
#   node scripts/get-tools.mjs python
set -eu
cd "$(dirname "$0")/../.."
stubs=.cache/stubs-pipe
mkdir -p "$stubs"
.cache/python/bin/python -m grpc_tools.protoc -I proto/third_party -I proto --python_out="$stubs" \
  --grpc_python_out="$stubs" proto/turnwire/llm/v1/*.proto proto/turnwire/packet/v1/*.proto buf/validate/validate.proto
PYTHONPATH="$stubs" exec .cache/python/bin/python examples/pipe-python/pipe.py "$@"
