#!/usr/bin/env bash
# Pipelined transactions over the wire, compared with what PostgreSQL answers.
#
#   pipeline_client.sh HOST PORT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
actual=$("${WEFT_PYTHON:-python3}" "$here/pipeline_client.py" "$1" "$2" 2>&1)
if diff -u "$here/pipeline_client.expected" <(echo "$actual"); then
    echo "pipelines: ok"
else
    echo "pipelines: the answers differ" >&2
    exit 1
fi
