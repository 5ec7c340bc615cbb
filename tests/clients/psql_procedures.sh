#!/usr/bin/env bash
# Procedures through psql: runs psql_procedures.sql, the examples in it, and compares what psql prints with
# psql_procedures.expected.
#
#   psql_procedures.sh HOST PORT            compare
#   psql_procedures.sh HOST PORT --rewrite  write the expected output
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 HOST PORT [--rewrite]" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
actual=$(mktemp)
trap 'rm -f "$actual"' EXIT

# LOCATION and CONTEXT lines name places in PostgreSQL's sources and plans: neither is compared.
export PGCLIENTENCODING=UTF8 PGOPTIONS='-c TimeZone=UTC' LC_ALL=C.UTF-8
cd "$here/../.."
psql --no-psqlrc --quiet --host "$1" --port "$2" --username postgres --dbname postgres \
    --file "$here/psql_procedures.sql" 2>&1 \
    | sed -e '/^LOCATION: /d' -e '/^CONTEXT: /d' -e 's/^psql:[^ ]*: //' -e 's/[[:space:]]*$//' >"$actual"

if [ "${3:-}" = --rewrite ]; then
    cp "$actual" "$here/psql_procedures.expected"
    echo "wrote $here/psql_procedures.expected"
elif diff -u "$here/psql_procedures.expected" "$actual"; then
    echo "psql procedures: ok"
else
    echo "psql procedures: the output differs" >&2
    exit 1
fi
