#!/usr/bin/env python3
"""What INSERTs of many rows leave behind in the server.

    memory_client.py HOST PORT

The same rows come by COPY, by INSERTs with literals, each another text, and by INSERTs with parameters. When
all ways have been gone once, so that the server has the room that it works in, each is gone again: when its
client has left and its table is dropped, the server may hold at most SLACK_MB more than it did then.
The server's process is WEFT_SERVER_PID; without it, as against PostgreSQL, nothing is measured.
"""

import os
import pathlib
import sys
import time

import psycopg

COLUMNS = 17
ROWS = 1024
STATEMENTS = 100
SLACK_MB = 50


def connect():
    host, port = sys.argv[1:3]
    return psycopg.connect(host=host, port=port, user="postgres", dbname="postgres", autocommit=True)


def resident_mb():
    """Of the server, when it has had a moment to give back what nobody needs."""
    pid = os.environ.get("WEFT_SERVER_PID")
    if pid is None:
        return 0.0
    time.sleep(1)
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def rows(statement):
    """One statement's rows: a key, and text, numbers and a time, as TPC-C's customers have."""
    for number in range(statement * ROWS, (statement + 1) * ROWS):
        rest = range(1, COLUMNS)
        yield [number, *(f"{column} of {number}" if column % 2 else number * column for column in rest)]


def table(connection, name):
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    others = ", ".join(f"c{number} {'text' if number % 2 else 'int'}" for number in range(1, COLUMNS))
    connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, {others})")


def by_copy(connection, name):
    for statement in range(STATEMENTS):
        with connection.cursor().copy(f"COPY {name} FROM STDIN") as copy:
            for row in rows(statement):
                copy.write_row(row)


def by_literals(connection, name):
    literal = lambda value: f"'{value}'" if isinstance(value, str) else str(value)  # noqa: E731
    for statement in range(STATEMENTS):
        values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows(statement))
        connection.execute(f"INSERT INTO {name} VALUES {values}")


def by_parameters(connection, name):
    groups = []
    for row in range(ROWS):
        places = range(row * COLUMNS + 1, (row + 1) * COLUMNS + 1)
        groups.append(f"({', '.join(f'${place}' for place in places)})")
    text = f"INSERT INTO {name} VALUES {', '.join(groups)}".encode()
    for statement in range(STATEMENTS):
        values = [str(value).encode() for row in rows(statement) for value in row]
        result = connection.pgconn.exec_params(text, values)
        if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
            sys.exit(f"by_parameters: {result.error_message.decode()}")


def held_after(load):
    """What the server holds when `load` has filled a table that is dropped, and how long filling took."""
    with connect() as connection:
        table(connection, "memory")
        begin = time.monotonic()
        load(connection, "memory")
        seconds = time.monotonic() - begin
        (count,) = connection.execute("SELECT count(*) FROM memory").fetchone()
        connection.execute("DROP TABLE memory")
    if count != ROWS * STATEMENTS:
        sys.exit(f"the table has {count} rows")
    return resident_mb(), seconds


def main():
    failed = 0
    room = 0
    for again in [False, True]:
        for load in [by_copy, by_literals, by_parameters]:
            held, seconds = held_after(load)
            print(f"{load.__name__}{', again' if again else ''}: {held:.0f} MB after {seconds:.1f} s")
            if again and held > room + SLACK_MB:
                failed += 1
                print(f"{load.__name__} leaves more than {SLACK_MB} MB behind")
            if not again:
                room = max(room, held)
    sys.exit(failed)


if __name__ == "__main__":
    main()
