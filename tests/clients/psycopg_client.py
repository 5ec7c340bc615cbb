#!/usr/bin/env python3
"""Weft through psycopg 3: what a Python application does with PostgreSQL.

    psycopg_client.py HOST PORT [-k NAME] [-l]

Every test is a function `test_*(conn)`; it gets a connection in autocommit mode with tables of its own to
make, and fails by an exception. All tests run even if one fails; the exit status is 0 only if none did.
"""

import argparse
import datetime as dt
import math
import socket
import struct
import sys
import threading
import time
import traceback
import uuid
from decimal import Decimal

import psycopg
from psycopg import errors, pq
from psycopg.types.json import Json, Jsonb

TARGET = {}


def connect(**options):
    options.setdefault("autocommit", True)
    return psycopg.connect(
        host=TARGET["host"],
        port=TARGET["port"],
        user="postgres",
        dbname="postgres",
        sslmode="prefer",
        **options,
    )


def expect(actual, wanted, what=""):
    if actual != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, got {actual!r}")


class raises:
    """Expects an error with a SQLSTATE; keeps it as `.error`."""

    def __init__(self, sqlstate):
        self.sqlstate = sqlstate
        self.error = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if error is None:
            raise AssertionError(f"expected an error {self.sqlstate}, got none")
        if not isinstance(error, psycopg.Error):
            return False
        expect(error.sqlstate, self.sqlstate, f"sqlstate of {error}")
        self.error = error
        return True


def fresh(conn, name, columns):
    conn.execute(f"DROP TABLE IF EXISTS {name}")
    conn.execute(f"CREATE TABLE {name} ({columns})")


# ---- startup ----------------------------------------------------------------------


def test_parameter_status(conn):
    info = conn.info
    assert info.parameter_status("server_version").startswith("15"), info.parameter_status(
        "server_version"
    )
    for name, value in {
        "server_encoding": "UTF8",
        "client_encoding": "UTF8",
        "DateStyle": "ISO, MDY",
        "IntervalStyle": "postgres",
        "integer_datetimes": "on",
        "standard_conforming_strings": "on",
        "default_transaction_read_only": "off",
        "in_hot_standby": "off",
    }.items():
        expect(info.parameter_status(name), value, name)
    assert info.parameter_status("TimeZone")
    assert info.backend_pid > 0


def test_startup_options(_):
    with connect(application_name="client test", options="-c TimeZone=UTC") as conn:
        expect(conn.info.parameter_status("application_name"), "client test")
        expect(conn.execute("SHOW application_name").fetchone()[0], "client test")
        expect(conn.info.parameter_status("TimeZone"), "UTC")
        conn.execute("SET application_name = 'renamed'")
        expect(conn.info.parameter_status("application_name"), "renamed", "reported change")


def test_unknown_database(_):
    try:
        psycopg.connect(
            host=TARGET["host"], port=TARGET["port"], user="postgres", dbname="no_such_database"
        )
    except psycopg.OperationalError as error:
        assert "does not exist" in str(error), error
    else:
        raise AssertionError("connected to a database that does not exist")


def test_encryption_is_refused_and_the_session_goes_on(_):
    with socket.create_connection((TARGET["host"], TARGET["port"]), timeout=10) as raw:
        raw.sendall(struct.pack("!II", 8, 80877103))
        expect(raw.recv(1), b"N", "answer to SSLRequest")
        body = struct.pack("!I", 196608) + b"user\0postgres\0database\0postgres\0\0"
        raw.sendall(struct.pack("!I", len(body) + 4) + body)
        expect(raw.recv(1), b"R", "answer to the startup packet")


# ---- types ----------------------------------------------------------------------

UTC = dt.timezone.utc

# type -> values; None means that the value itself is expected back.
TYPES = {
    "boolean": [True, False],
    "smallint": [0, 1, -1, 32767, -32768],
    "integer": [0, 1, -1, 2147483647, -2147483648],
    "bigint": [0, 1, -1, 9223372036854775807, -9223372036854775808],
    "real": [0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan")],
    "double precision": [0.0, 0.1, -1e300, 5e-324, float("inf"), float("-inf"), float("nan")],
    "numeric": [
        Decimal("0"),
        Decimal("1.10"),
        Decimal("-12345678901234567890.123456789"),
        Decimal("1e-20"),
        Decimal("NaN"),
    ],
    "numeric(10,2)": [Decimal("12.30"), Decimal("-99999999.99"), Decimal("0.00")],
    "text": ["", "a", "grüße, 世界 🦀", "quote ' \" \\ \n\t", "x" * 10000],
    "varchar(10)": ["", "ten chars.", "äöüß"],
    "char(5)": ["abcde", "ab   ", "     "],
    "bytea": [b"", b"\x00\x01\xfe\xff", bytes(range(256)) * 10],
    "date": [dt.date(2000, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29)],
    "timestamp": [
        dt.datetime(2000, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(2024, 2, 29, 12, 30),
    ],
    "timestamptz": [
        dt.datetime(2000, 1, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(2024, 2, 29, 12, 30, 15, 250, tzinfo=UTC),
    ],
    "uuid": [uuid.UUID(int=0), uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")],
}


def same(actual, wanted):
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(actual, float) and math.isnan(actual)
    if isinstance(wanted, Decimal):
        return (
            isinstance(actual, Decimal)
            and str(actual) == str(wanted)
            or (
                not wanted.is_nan()
                and actual == wanted
                and actual.as_tuple().exponent == wanted.as_tuple().exponent
            )
        )
    if isinstance(wanted, dt.datetime):
        return actual == wanted and (actual.tzinfo is None) == (wanted.tzinfo is None)
    return type(actual) is type(wanted) and actual == wanted


def check_type(conn, name, values):
    fresh(conn, "ct_type", f"id int PRIMARY KEY, v {name}")
    for given in ("%s", "%t", "%b"):
        for number, value in enumerate([*values, None]):
            conn.execute("DELETE FROM ct_type WHERE id = %s", (number,))
            conn.execute(f"INSERT INTO ct_type VALUES (%s, {given})", (number, value))
        for binary in (False, True):
            with conn.cursor(binary=binary) as cursor:
                if name == "numeric":
                    # By key: the query engine computes with at most 76 digits, rows have no such bound.
                    read = []
                    for number in range(len(values) + 1):
                        cursor.execute("SELECT v FROM ct_type WHERE id = %s", (number,))
                        read.append(cursor.fetchone())
                else:
                    cursor.execute("SELECT v FROM ct_type ORDER BY id")
                    read = cursor.fetchall()
                rows = [row[0] for row in read]
                expect(len(rows), len(values) + 1, f"rows of {name}")
                for actual, wanted in zip(rows, [*values, None]):
                    if not same(actual, wanted):
                        raise AssertionError(
                            f"{name} as {given}, binary={binary}: expected {wanted!r}, got {actual!r}"
                        )
                cursor.execute("SELECT v FROM ct_type WHERE id = %s", (0,))
                assert same(cursor.fetchone()[0], values[0])
    conn.execute("DROP TABLE ct_type")


def make_type_test(name, values):
    def test(conn):
        check_type(conn, name, values)

    return test


for _name, _values in TYPES.items():
    _function = "test_type_" + "".join(c if c.isalnum() else "_" for c in _name).strip("_")
    globals()[_function] = make_type_test(_name, _values)


def test_documents(conn):
    documents = [{}, [], None, True, 1, -2.5, "ü \n \"", {"a": [1, {"b": None}], "bb": "x"}, [[["deep"]]]]
    for name, wrapper in [("json", Json), ("jsonb", Jsonb)]:
        fresh(conn, "ct_type", f"id int PRIMARY KEY, v {name}, l {name}[]")
        for given in ("%s", "%t", "%b"):
            for number, document in enumerate(documents):
                conn.execute("DELETE FROM ct_type WHERE id = %s", (number,))
                values = (number, wrapper(document), [wrapper(document), None])
                conn.execute(f"INSERT INTO ct_type VALUES (%s, {given}, {given})", values)
            for binary in (False, True):
                with conn.cursor(binary=binary) as cursor:
                    rows = cursor.execute("SELECT v, l FROM ct_type ORDER BY id").fetchall()
                    expect(rows, [(document, [document, None]) for document in documents], name)
                    one = cursor.execute("SELECT v FROM ct_type WHERE id = 7").fetchone()
                    expect(one, (documents[7],), name)
        with raises("22P02"):
            conn.execute("INSERT INTO ct_type (id, v) VALUES (99, '{')")
        conn.execute("DROP TABLE ct_type")


def test_description(conn):
    fresh(conn, "ct_desc", "a int PRIMARY KEY, b varchar(20), c numeric(8,3), d char(4)")
    with conn.cursor() as cursor:
        cursor.execute("SELECT a, b, c, d FROM ct_desc")
        expect([column.name for column in cursor.description], ["a", "b", "c", "d"])
        expect([column.type_code for column in cursor.description], [23, 1043, 1700, 1042])
        expect(cursor.description[1].display_size, 20, "varchar's length")
        expect((cursor.description[2].precision, cursor.description[2].scale), (8, 3))
        result = cursor.pgresult
        assert result.ftable(0) > 0
        expect([result.ftablecol(column) for column in range(4)], [1, 2, 3, 4], "column numbers")
        cursor.execute("SELECT 1, 'x' AS named, 2.5")
        expect([column.name for column in cursor.description], ["?column?", "named", "?column?"])
    conn.execute("DROP TABLE ct_desc")


def test_parameter_types_by_oid(conn):
    """Declared, unknown and foreign text types of parameters, through libpq itself."""
    fresh(conn, "ct_oid", "id int PRIMARY KEY, t text, v varchar(10), c char(5), n numeric")
    raw = conn.pgconn
    insert = b"INSERT INTO ct_oid VALUES ($1, $2, $3, $4, $5)"
    for number, text_oid in enumerate((0, 705, 25, 1043, 1042, 19)):
        values = [str(number).encode(), b"t", b"v", b"c", b"1.50"]
        result = raw.exec_params(insert, values, [21, text_oid, text_oid, text_oid, 0])
        expect(result.status, pq.ExecStatus.COMMAND_OK, f"text oid {text_oid}: {result.error_message}")
    result = raw.exec_params(
        insert,
        [struct.pack("!q", 100), b"t", b"v", b"c    ", None],
        [20, 25, 1043, 1042, 1700],
        [1, 1, 1, 1, 1],
    )
    expect(result.status, pq.ExecStatus.COMMAND_OK, f"{result.error_message}")
    # Mixed result formats are chosen per query by libpq: all binary here.
    result = raw.exec_params(b"SELECT id, c FROM ct_oid WHERE id = $1", [b"100"], [0], [0], 1)
    expect((result.get_value(0, 0), result.get_value(0, 1)), (struct.pack("!i", 100), b"c    "))
    conn.execute("DROP TABLE ct_oid")


# ---- statements ----------------------------------------------------------------------


def test_executemany_and_returning(conn):
    fresh(conn, "ct_many", "id int PRIMARY KEY, name text NOT NULL")
    with conn.cursor() as cursor:
        cursor.executemany("INSERT INTO ct_many VALUES (%s, %s)", [(n, f"name {n}") for n in range(500)])
        expect(cursor.rowcount, 500, "rows inserted")
        cursor.executemany(
            "INSERT INTO ct_many VALUES (%s, %s) RETURNING id",
            [(n, "r") for n in range(500, 510)],
            returning=True,
        )
        returned = []
        while True:
            returned.append(cursor.fetchone()[0])
            if not cursor.nextset():
                break
        expect(returned, list(range(500, 510)), "RETURNING")
    expect(conn.execute("SELECT count(*) FROM ct_many").fetchone()[0], 510)
    expect(conn.execute("UPDATE ct_many SET name = 'u' WHERE id < 10").rowcount, 10)
    expect(conn.execute("DELETE FROM ct_many WHERE id >= %s", (100,)).statusmessage, "DELETE 410")
    conn.execute("DROP TABLE ct_many")


def test_prepared_statements(conn):
    fresh(conn, "ct_prep", "id int PRIMARY KEY, v int")
    for number in range(20):
        conn.execute("INSERT INTO ct_prep VALUES (%s, %s)", (number, number * 2), prepare=True)
    for number in range(20):
        row = conn.execute("SELECT v FROM ct_prep WHERE id = %s", (number,), prepare=True).fetchone()
        expect(row, (number * 2,))
    # A table that changes under a prepared statement.
    conn.execute("DROP TABLE ct_prep")
    fresh(conn, "ct_prep", "id int PRIMARY KEY, v int")
    conn.execute("INSERT INTO ct_prep VALUES (%s, %s)", (1, 2), prepare=True)
    expect(conn.execute("SELECT v FROM ct_prep WHERE id = %s", (1,), prepare=True).fetchone(), (2,))
    conn.execute("DEALLOCATE ALL")
    conn.execute("DROP TABLE ct_prep")


def test_several_statements_in_one_message(conn):
    fresh(conn, "ct_multi", "id int PRIMARY KEY")
    cursor = conn.execute(
        "INSERT INTO ct_multi VALUES (1); INSERT INTO ct_multi VALUES (2); SELECT count(*) FROM ct_multi"
    )
    while cursor.nextset():
        pass
    expect(cursor.fetchone(), (2,))
    with raises("23505"):
        conn.execute("INSERT INTO ct_multi VALUES (3); INSERT INTO ct_multi VALUES (1)")
    expect(
        conn.execute("SELECT count(*) FROM ct_multi").fetchone(), (2,), "the message is one transaction"
    )
    expect(conn.pgconn.exec_(b";").status, pq.ExecStatus.EMPTY_QUERY)
    expect(conn.pgconn.exec_(b"").status, pq.ExecStatus.EMPTY_QUERY)
    conn.execute("DROP TABLE ct_multi")


def test_suspended_portals(conn):
    """Execute with a row limit and again, spoken on a socket, because libpq never asks for a limit."""
    fresh(conn, "ct_portal", "id int PRIMARY KEY")
    with conn.cursor() as cursor:
        cursor.executemany("INSERT INTO ct_portal VALUES (%s)", [(n,) for n in range(25)])

    def message(tag, body=b""):
        return tag + struct.pack("!I", len(body) + 4) + body

    with socket.create_connection((TARGET["host"], TARGET["port"]), timeout=10) as raw:
        body = struct.pack("!I", 196608) + b"user\0postgres\0database\0postgres\0\0"
        raw.sendall(struct.pack("!I", len(body) + 4) + body)
        stream = raw.makefile("rb")

        def replies():
            tags = []
            while True:
                tag = stream.read(1)
                length = struct.unpack("!I", stream.read(4))[0]
                payload = stream.read(length - 4)
                tags.append(tag.decode())
                if tag == b"C":
                    tags[-1] += " " + payload[:-1].decode()
                if tag == b"Z":
                    return tags

        replies()
        execute = message(b"E", b"p\0" + struct.pack("!I", 10))
        raw.sendall(
            message(b"Q", b"BEGIN\0")
            + message(b"P", b"\0SELECT id FROM ct_portal ORDER BY id\0\0\0")
            + message(b"B", b"p\0\0\0\0\0\0\0\0")
            + execute
            + message(b"S")
        )
        expect(replies(), ["C BEGIN", "Z"])
        expect(replies(), ["1", "2", *["D"] * 10, "s", "Z"])
        raw.sendall(execute + execute + message(b"S"))
        expect(replies(), [*["D"] * 10, "s", *["D"] * 5, "C SELECT 5", "Z"])
        raw.sendall(message(b"X"))
    conn.execute("DROP TABLE ct_portal")


def test_pipeline(conn):
    fresh(conn, "ct_pipe", "id int PRIMARY KEY, v int")
    with conn.pipeline():
        cursors = [conn.execute("INSERT INTO ct_pipe VALUES (%s, %s)", (n, n)) for n in range(700)]
    expect(sum(cursor.rowcount for cursor in cursors), 700)
    with conn.pipeline():
        cursors = [conn.execute("SELECT v FROM ct_pipe WHERE id = %s", (n,)) for n in range(700)]
        expect([cursor.fetchone()[0] for cursor in cursors], list(range(700)))
    conn.execute("DROP TABLE ct_pipe")


def test_pipeline_error_undoes_its_sync_unit(conn):
    fresh(conn, "ct_pipe_error", "id int PRIMARY KEY")
    with raises("23505"):
        with conn.pipeline() as pipeline:
            conn.execute("INSERT INTO ct_pipe_error VALUES (1)")
            pipeline.sync()
            conn.execute("INSERT INTO ct_pipe_error VALUES (2)")
            conn.execute("INSERT INTO ct_pipe_error VALUES (1)")
            conn.execute("INSERT INTO ct_pipe_error VALUES (3)")
            pipeline.sync()
    with conn.pipeline():
        conn.execute("INSERT INTO ct_pipe_error VALUES (4)")
    expect(conn.execute("SELECT id FROM ct_pipe_error ORDER BY id").fetchall(), [(1,), (4,)])
    conn.execute("DROP TABLE ct_pipe_error")


# ---- transactions ----------------------------------------------------------------------


def test_transactions(conn):
    fresh(conn, "ct_txn", "id int PRIMARY KEY")
    with conn.transaction():
        expect(conn.info.transaction_status, pq.TransactionStatus.INTRANS)
        conn.execute("INSERT INTO ct_txn VALUES (1)")
        with connect() as other:
            expect(
                other.execute("SELECT count(*) FROM ct_txn").fetchone(),
                (0,),
                "uncommitted rows are not seen",
            )
    expect(conn.execute("SELECT count(*) FROM ct_txn").fetchone(), (1,))
    with conn.transaction(force_rollback=True):
        conn.execute("INSERT INTO ct_txn VALUES (2)")
    expect(conn.execute("SELECT count(*) FROM ct_txn").fetchone(), (1,))
    conn.execute("BEGIN")
    with raises("23505"):
        conn.execute("INSERT INTO ct_txn VALUES (1)")
    expect(conn.info.transaction_status, pq.TransactionStatus.INERROR)
    with raises("25P02"):
        conn.execute("SELECT 1")
    expect(conn.execute("COMMIT").statusmessage, "ROLLBACK")
    expect(conn.info.transaction_status, pq.TransactionStatus.IDLE)
    conn.execute("DROP TABLE ct_txn")


def test_savepoints(conn):
    fresh(conn, "ct_save", "id int PRIMARY KEY")
    with conn.transaction():
        conn.execute("INSERT INTO ct_save VALUES (1)")
        try:
            with conn.transaction():
                conn.execute("INSERT INTO ct_save VALUES (2)")
                conn.execute("INSERT INTO ct_save VALUES (1)")
        except errors.UniqueViolation:
            pass
        conn.execute("INSERT INTO ct_save VALUES (3)")
    expect(conn.execute("SELECT id FROM ct_save ORDER BY id").fetchall(), [(1,), (3,)])
    conn.execute("DROP TABLE ct_save")


def test_isolation_levels(conn):
    fresh(conn, "ct_iso", "id int PRIMARY KEY, v int")
    conn.execute("INSERT INTO ct_iso VALUES (1, 0)")
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        conn.execute(f"BEGIN ISOLATION LEVEL {level}")
        expect(conn.execute("SHOW transaction_isolation").fetchone()[0], level.lower())
        first = conn.execute("SELECT v FROM ct_iso WHERE id = 1").fetchone()
        if level != "SERIALIZABLE":
            with connect() as other:
                other.execute("UPDATE ct_iso SET v = v + 1 WHERE id = 1")
            second = conn.execute("SELECT v FROM ct_iso WHERE id = 1").fetchone()
            expect(second == first, level == "REPEATABLE READ", level)
        conn.execute("COMMIT")
    conn.execute("BEGIN READ ONLY")
    with raises("25006"):
        conn.execute("UPDATE ct_iso SET v = 1")
    conn.execute("ROLLBACK")
    conn.execute("DROP TABLE ct_iso")


def test_lost_update_is_refused(conn):
    fresh(conn, "ct_lost", "id int PRIMARY KEY, v int")
    conn.execute("INSERT INTO ct_lost VALUES (1, 0)")
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    conn.execute("SELECT v FROM ct_lost")
    with connect() as other:
        other.execute("UPDATE ct_lost SET v = 1")
    with raises("40001"):
        conn.execute("UPDATE ct_lost SET v = 2")
    conn.execute("ROLLBACK")
    conn.execute("DROP TABLE ct_lost")


def test_deadlocks_are_found(conn):
    fresh(conn, "ct_dead", "id int PRIMARY KEY, v int")
    conn.execute("INSERT INTO ct_dead VALUES (1, 0), (2, 0)")
    outcomes = []
    both_hold = threading.Barrier(2, timeout=20)

    def cross(first, second):
        with connect() as mine:
            mine.execute("BEGIN")
            mine.execute("UPDATE ct_dead SET v = v + 1 WHERE id = %s", (first,))
            both_hold.wait()
            try:
                mine.execute("UPDATE ct_dead SET v = v + 1 WHERE id = %s", (second,))
                mine.execute("COMMIT")
                outcomes.append("committed")
            except psycopg.Error as error:
                outcomes.append(error.sqlstate)
                mine.execute("ROLLBACK")

    threads = [threading.Thread(target=cross, args=args) for args in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expect(sorted(outcomes), ["40P01", "committed"])
    expect(conn.execute("SELECT sum(v) FROM ct_dead").fetchone(), (2,))
    conn.execute("DROP TABLE ct_dead")


def test_advisory_locks(conn):
    """A job's lock, binary results, a waiter that is woken, and a connection that goes away."""
    locked = "SELECT pg_try_advisory_xact_lock(%s, hashtext(%s)) AS locked"
    with connect(autocommit=False) as job, connect() as other:
        expect(job.execute(locked, (7, "jobs")).fetchone(), (True,))
        expect(other.execute(locked, (7, "jobs")).fetchone(), (False,))
        job.commit()
        expect(other.execute(locked, (7, "jobs"), binary=True).fetchone(), (True,))
    notices = []
    conn.add_notice_handler(
        lambda given: notices.append((given.severity, given.sqlstate, given.message_primary))
    )
    conn.execute("SELECT pg_advisory_lock(%s)", (2**40,), prepare=True)
    waiting = connect()
    woken = []

    def wait():
        woken.append(waiting.execute("SELECT pg_advisory_lock(%s)", (2**40,)).fetchone())

    thread = threading.Thread(target=wait)
    thread.start()
    shown = "SELECT pid, granted FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 ORDER BY granted"
    deadline = time.monotonic() + 10
    while len(locks := conn.execute(shown).fetchall()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    expect(locks, [(waiting.info.backend_pid, False), (conn.info.backend_pid, True)])
    expect(woken, [])
    expect(conn.execute("SELECT pg_advisory_unlock(%s)", (2**40,)).fetchone(), (True,))
    thread.join(10)
    expect(woken, [("",)])
    expect(conn.execute("SELECT pg_advisory_unlock(%s)", (2**40,)).fetchone(), (False,))
    expect(notices, [("WARNING", "01000", "you don't own a lock of type ExclusiveLock")])
    # Its end gives the lock back.
    waiting.close()
    conn.execute("SET lock_timeout = '10s'")
    conn.execute("SELECT pg_advisory_lock(%s)", (2**40,))


def test_concurrent_increments(conn):
    fresh(conn, "ct_inc", "id int PRIMARY KEY, v int NOT NULL")
    conn.execute("INSERT INTO ct_inc VALUES (1, 0)")

    def run():
        with connect() as mine:
            for _ in range(100):
                mine.execute("UPDATE ct_inc SET v = v + 1 WHERE id = 1")

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expect(conn.execute("SELECT v FROM ct_inc").fetchone(), (400,))
    conn.execute("DROP TABLE ct_inc")


# ---- errors ----------------------------------------------------------------------


def test_sqlstates(conn):
    fresh(conn, "ct_err", "id int PRIMARY KEY, name varchar(3) NOT NULL, n smallint, d numeric(4,2)")
    conn.execute("INSERT INTO ct_err VALUES (1, 'a', 1, 1)")
    for state, sql in {
        "42601": "SELEC 1",
        "42P01": "SELECT * FROM no_such_table",
        "42703": "SELECT no_such_column FROM ct_err",
        "42883": "SELECT no_such_function(1)",
        "22012": "SELECT 1 / 0",
        "23502": "INSERT INTO ct_err (id) VALUES (2)",
        "23505": "INSERT INTO ct_err VALUES (1, 'b')",
        "22001": "INSERT INTO ct_err VALUES (3, 'abcd')",
        "22003": "INSERT INTO ct_err VALUES (3, 'a', 40000)",
        "22P02": "INSERT INTO ct_err VALUES ('x', 'a')",
        "42P07": "CREATE TABLE ct_err (id int)",
    }.items():
        with raises(state):
            conn.execute(sql)
    with raises("22003"):
        conn.execute("INSERT INTO ct_err VALUES (3, 'a', 1, 100)")
    expect(conn.execute("SELECT count(*) FROM ct_err").fetchone(), (1,))
    conn.execute("DROP TABLE ct_err")


def test_error_fields(conn):
    fresh(conn, "ct_diag", "id int PRIMARY KEY, name text NOT NULL")
    conn.execute("INSERT INTO ct_diag VALUES (1, 'a')")
    with raises("23505") as caught:
        conn.execute("INSERT INTO ct_diag VALUES (1, 'b')")
    diag = caught.error.diag
    expect(diag.severity, "ERROR")
    expect(diag.severity_nonlocalized, "ERROR")
    expect(diag.message_primary, 'duplicate key value violates unique constraint "ct_diag_pkey"')
    expect(diag.message_detail, "Key (id)=(1) already exists.")
    expect(
        (diag.schema_name, diag.table_name, diag.constraint_name), ("public", "ct_diag", "ct_diag_pkey")
    )
    with raises("23502") as caught:
        conn.execute("INSERT INTO ct_diag VALUES (2, NULL)")
    expect((caught.error.diag.table_name, caught.error.diag.column_name), ("ct_diag", "name"))
    with raises("42601") as caught:
        conn.execute("SELECT 1 FRM x y")
    assert caught.error.diag.statement_position
    with raises("42703") as caught:
        conn.execute("SELECT nope FROM ct_diag")
    expect(caught.error.diag.statement_position, "8")
    conn.execute("DROP TABLE ct_diag")


def test_errors_leave_the_connection_usable(conn):
    for _ in range(50):
        with raises("42P01"):
            conn.execute("SELECT * FROM nowhere WHERE id = %s", (1,))
        expect(conn.execute("SELECT %s::int", (5,)).fetchone(), (5,))


# ---- COPY ----------------------------------------------------------------------


def test_copy_in(conn):
    fresh(conn, "ct_copy", "id int PRIMARY KEY, name text, n numeric")
    awkward = [
        (1, "tab\tnewline\nbackslash\\", Decimal("1.50")),
        (2, None, None),
        (3, "", Decimal("-3")),
        (4, "\\N", None),
    ]
    with conn.cursor() as cursor:
        with cursor.copy("COPY ct_copy FROM STDIN") as copy:
            for row in awkward:
                copy.write_row(row)
        expect(cursor.rowcount, 4)
        with cursor.copy("COPY ct_copy (id, name) FROM STDIN") as copy:
            data = "".join(f"{n}\tname {n}\n" for n in range(10, 20010)).encode()
            for start in range(0, len(data), 7001):
                copy.write(data[start : start + 7001])
        expect(cursor.rowcount, 20000)
    expect(conn.execute("SELECT * FROM ct_copy WHERE id < 10 ORDER BY id").fetchall(), awkward)
    expect(conn.execute("SELECT count(*), max(id) FROM ct_copy").fetchone(), (20004, 20009))
    conn.execute("DROP TABLE ct_copy")


def test_copy_in_errors(conn):
    fresh(conn, "ct_copy_err", "id int PRIMARY KEY, name text")

    def copy(data):
        with conn.cursor() as cursor, cursor.copy("COPY ct_copy_err FROM STDIN") as copy:
            copy.write(data)

    with raises("22P04"):
        copy(b"1\ta\textra\n")
    with raises("22P04"):
        copy(b"1\n")
    with raises("22P02"):
        copy(b"1\ta\nx\tb\n")
    with raises("23505"):
        copy(b"1\ta\n1\tb\n")
    with raises("57014"):
        with conn.cursor() as cursor, cursor.copy("COPY ct_copy_err FROM STDIN") as writer:
            writer.write(b"1\ta\n")
            raise psycopg.errors.QueryCanceled("given up")
    with raises("42P01"):
        with conn.cursor() as cursor, cursor.copy("COPY no_such_table FROM STDIN") as writer:
            writer.write(b"1\n")
    expect(conn.execute("SELECT count(*) FROM ct_copy_err").fetchone(), (0,))
    conn.execute("DROP TABLE ct_copy_err")


def test_copy_out(conn):
    fresh(conn, "ct_copy_out", "id int PRIMARY KEY, name text")
    conn.execute("INSERT INTO ct_copy_out VALUES (1, E'tab\\t'), (2, NULL), (3, 'x')")
    with conn.cursor() as cursor:
        with cursor.copy("COPY ct_copy_out TO STDOUT") as copy:
            expect(b"".join(copy), b"1\ttab\\t\n2\t\\N\n3\tx\n")
        expect(cursor.rowcount, 3)
    conn.execute("DROP TABLE ct_copy_out")


# ---- interruption ----------------------------------------------------------------------


def test_cancel_of_a_waiting_statement(conn):
    fresh(conn, "ct_cancel", "id int PRIMARY KEY, v int")
    conn.execute("INSERT INTO ct_cancel VALUES (1, 0)")
    with connect() as holder:
        holder.execute("BEGIN")
        holder.execute("UPDATE ct_cancel SET v = 1 WHERE id = 1")
        timer = threading.Timer(0.5, conn.cancel)
        timer.start()
        started = time.monotonic()
        with raises("57014"):
            conn.execute("UPDATE ct_cancel SET v = 2 WHERE id = 1")
        assert time.monotonic() - started < 10
        holder.execute("COMMIT")
    expect(conn.execute("SELECT v FROM ct_cancel").fetchone(), (1,))
    conn.execute("DROP TABLE ct_cancel")


def test_cancel_of_a_running_query(conn):
    fresh(conn, "ct_cross", "id int PRIMARY KEY")
    with conn.cursor() as cursor, cursor.copy("COPY ct_cross FROM STDIN") as copy:
        copy.write("".join(f"{n}\n" for n in range(20000)))
    timer = threading.Timer(0.5, conn.cancel)
    timer.start()
    with raises("57014"):
        conn.execute(
            "SELECT count(*) FROM ct_cross a, ct_cross b, ct_cross c WHERE a.id + b.id + c.id = -1"
        )
    expect(conn.execute("SELECT 1").fetchone(), (1,))
    conn.execute("DROP TABLE ct_cross")


def test_cancel_when_idle_does_nothing(conn):
    conn.cancel()
    time.sleep(0.2)
    expect(conn.execute("SELECT 1").fetchone(), (1,))


def test_many_connections(_):
    connections = [connect() for _ in range(30)]
    for number, each in enumerate(connections):
        expect(each.execute("SELECT %s::int", (number,)).fetchone(), (number,))
    for each in connections:
        each.close()


def test_large_values(conn):
    fresh(conn, "ct_large", "id int PRIMARY KEY, t text, b bytea")
    text, blob = "ü" * 500_000, bytes(range(256)) * 4000
    conn.execute("INSERT INTO ct_large VALUES (1, %s, %s)", (text, blob))
    for binary in (False, True):
        with conn.cursor(binary=binary) as cursor:
            expect(
                cursor.execute("SELECT t, b FROM ct_large").fetchone() == (text, blob),
                True,
                "large values",
            )
    conn.execute("DROP TABLE ct_large")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("-k", metavar="NAME", default="", help="only tests whose name contains NAME")
    parser.add_argument("-l", action="store_true", help="list the tests")
    parser.add_argument("-v", action="store_true", help="print whole tracebacks")
    arguments = parser.parse_args()
    TARGET.update(host=arguments.host, port=arguments.port)
    tests = {
        name: test
        for name, test in globals().items()
        if name.startswith("test_") and arguments.k in name
    }
    if arguments.l:
        print("\n".join(tests))
        return 0
    failed = []
    for name, test in tests.items():
        started = time.monotonic()
        try:
            with connect() as conn:
                test(conn)
            print(f"ok      {name} ({time.monotonic() - started:.2f} s)", flush=True)
        except Exception as error:  # every failure is reported, and the others still run
            failed.append(name)
            print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
            if arguments.v:
                traceback.print_exc()
    print(f"{len(tests) - len(failed)} of {len(tests)} passed")
    for name in failed:
        print(f"failed: {name}")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
