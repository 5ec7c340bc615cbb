#!/usr/bin/env bash
# Weft through pgbench: initialisation, then every combination of script, protocol and number of clients.
# Fails on any failed transaction, on any error message, and if money appeared or vanished.
#
#   pgbench_client.sh HOST PORT [SCALE [SECONDS]]      defaults: scale 1, 3 seconds for each run
#
# Prints one line for each run: script, protocol, clients, transactions per second, mean latency.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: $0 HOST PORT [SCALE [SECONDS]]" >&2
    exit 2
fi
export PGHOST=$1 PGPORT=$2 PGUSER=postgres PGDATABASE=postgres
scale=${3:-1}
seconds=${4:-3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0

fail() {
    echo "FAILED: $*" >&2
    status=1
}

value() {
    psql --no-psqlrc --tuples-only --no-align --command "$1"
}

if ! pgbench --initialize --scale "$scale" --quiet >"$log" 2>&1; then
    cat "$log" >&2
    echo "FAILED: initialisation" >&2
    exit 1
fi
accounts=$(value 'SELECT count(*) FROM pgbench_accounts')
[ "$accounts" = $((scale * 100000)) ] || fail "$accounts accounts after initialisation"

transactions=0
for script in tpcb-like select-only; do
    for protocol in simple extended prepared; do
        for clients in 1 8; do
            run="$script $protocol, $clients clients"
            if ! pgbench --no-vacuum --builtin "$script" --protocol "$protocol" --client "$clients" \
                --jobs "$((clients < 2 ? clients : 2))" --time "$seconds" --scale "$scale" >"$log" 2>&1; then
                cat "$log" >&2
                fail "$run: pgbench failed"
                continue
            fi
            failed=$(sed -n 's/^number of failed transactions: \([0-9]*\).*/\1/p' "$log")
            done=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$log")
            rate=$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$log")
            latency=$(sed -n 's/^latency average = \([0-9.]*\).*/\1/p' "$log")
            printf '%-12s %-9s %2d clients %12.1f tps %8.3f ms\n' \
                "$script" "$protocol" "$clients" "$rate" "$latency"
            [ "${failed:-missing}" = 0 ] || fail "$run: ${failed:-unknown} failed transactions"
            [ "${done:-0}" -gt 0 ] || fail "$run: nothing was processed"
            if grep -qiE 'error|fatal|aborted' "$log"; then
                cat "$log" >&2
                fail "$run: error messages"
            fi
            [ "$script" = select-only ] || transactions=$((transactions + done))
        done
    done
done

# Every transfer adds the same amount in four places.
sums=$(value 'SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                     (SELECT sum(tbalance) FROM pgbench_tellers),
                     (SELECT sum(bbalance) FROM pgbench_branches),
                     (SELECT sum(delta) FROM pgbench_history)')
if [ "$(tr '|' '\n' <<<"$sums" | sort -u | wc -l)" != 1 ]; then
    fail "balances differ: accounts, tellers, branches, history = $sums"
fi
history=$(value 'SELECT count(*) FROM pgbench_history')
[ "$history" = "$transactions" ] || fail "$history rows of history after $transactions transactions"

value 'DROP TABLE pgbench_accounts, pgbench_tellers, pgbench_branches, pgbench_history' >"$log"
[ "$status" = 0 ] && echo "pgbench: ok"
exit "$status"
