#!/usr/bin/env bash
# Weft through psql: runs psql_client.sql and compares what psql prints with psql_client.expected.
#
#   psql_client.sh HOST PORT            compare
#   psql_client.sh HOST PORT --rewrite  write the expected output (from PostgreSQL 15)
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 HOST PORT [--rewrite]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
actual=$(mktemp)
trap 'rm -f "$actual"' EXIT

# LOCATION lines name PostgreSQL's source files, "psql:FILE:LINE:" a path: neither is compared.
export PGCLIENTENCODING=UTF8 PGOPTIONS='-c TimeZone=UTC' LC_ALL=C.UTF-8
psql --no-psqlrc --quiet --echo-queries --host "$1" --port "$2" --username postgres --dbname postgres \
    --file "$here/psql_client.sql" 2>&1 \
    | sed -e '/^LOCATION: /d' -e 's/^psql:[^ ]*: //' -e 's/[[:space:]]*$//' >"$actual"

if [ "${3:-}" = --rewrite ]; then
    cp "$actual" "$here/psql_client.expected"
    echo "wrote $here/psql_client.expected"
elif diff -u "$here/psql_client.expected" "$actual"; then
    echo "psql: ok"
else
    echo "psql: the output differs" >&2
    exit 1
fi
