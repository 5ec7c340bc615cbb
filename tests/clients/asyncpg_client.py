#!/usr/bin/env python3
"""asyncpg against a running server, with nothing between: its own types, statements, cursors, COPY and pool.

    asyncpg_client.py HOST PORT [-k NAME] [-l]

Needs: pip install asyncpg. Every test is a function `test_*(conn)`; it gets a connection and makes tables of
its own. All tests run even if one fails; the exit status is 0 only if none did.
"""

import argparse
import asyncio
import datetime as dt
import io
import sys
import traceback
import uuid
from decimal import Decimal

import asyncpg

TARGET = {}


def address():
    return {"host": TARGET["host"], "port": TARGET["port"], "user": "postgres", "database": "postgres"}


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
        if not isinstance(error, asyncpg.PostgresError):
            return False
        expect(error.sqlstate, self.sqlstate, f"sqlstate of {error}")
        self.error = error
        return True


async def fresh(conn, name, columns):
    await conn.execute(f"DROP TABLE IF EXISTS {name}")
    await conn.execute(f"CREATE TABLE {name} ({columns})")


# Each type with values that asyncpg sends and receives in binary.
UTC = dt.timezone.utc
VALUES = {
    "bool": [True, False],
    "int2": [-32768, 0, 32767],
    "int4": [-(2**31), 7, 2**31 - 1],
    "int8": [-(2**63), 7, 2**63 - 1],
    "float4": [0.0, -1.5, float("inf")],
    "float8": [0.1, -1e300, float("-inf")],
    "numeric": [Decimal("0"), Decimal("-12345678901234567890.0123456789"), Decimal("1E+20"), Decimal("0.00")],
    "text": ["", "grüße", 'quote " comma , brace } back \\ NULL', "null"],
    "varchar": ["a", "b c"],
    "bpchar": ["abc", "x"],
    "bytea": [b"", b"\x00\xff\\'"],
    "date": [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999999)],
    "timestamp": [dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12, 30, 1, 5)],
    "timestamptz": [dt.datetime(2024, 2, 29, 12, 30, tzinfo=UTC)],
    "interval": [dt.timedelta(days=3, seconds=5, microseconds=7), dt.timedelta(days=-1)],
    "uuid": [uuid.UUID(int=0), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")],
    "json": ['{"b": 1,  "a": [1, null]}', "null"],
    "jsonb": ['{"a": 1}', "[1, 2, \"x\"]"],
    "oid": [0, 2**32 - 1],
}


# ---- types and arrays ---------------------------------------------------------------


async def test_scalars_both_ways(conn):
    for name, values in VALUES.items():
        for value in values:
            expect(await conn.fetchval(f"SELECT $1::{name}", value), value, name)
        expect(await conn.fetchval(f"SELECT $1::{name}", None), None, name)


async def test_arrays_of_every_type(conn):
    for name, values in VALUES.items():
        for value in (values, [], [None], [values[0], None, *values]):
            expect(await conn.fetchval(f"SELECT $1::{name}[]", value), value, f"{name}[]")
        expect(await conn.fetchval(f"SELECT $1::{name}[]", None), None, f"{name}[]")


async def test_arrays_of_several_dimensions(conn):
    for value in ([[1, 2], [3, None]], [[[1], [2]], [[3], [4]]]):
        expect(await conn.fetchval("SELECT $1::int[]", value), value)
    expect(await conn.fetchval("SELECT array_ndims($1::int[])", [[1, 2], [3, 4]]), 2)
    expect(await conn.fetchval("SELECT ARRAY[['a', 'b'], ['c', NULL]]"), [["a", "b"], ["c", None]])


async def test_arrays_in_tables(conn):
    await fresh(conn, "apg_arrays", "id int PRIMARY KEY, tags text[], numbers int8[], moments timestamptz[]")
    now = dt.datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    rows = [(1, ["a", None], [1, 2**40], [now]), (2, [], None, [None]), (3, None, [[1, 2], [3, 4]], [])]
    await conn.executemany("INSERT INTO apg_arrays VALUES ($1, $2, $3, $4)", rows)
    expect([tuple(row) for row in await conn.fetch("SELECT * FROM apg_arrays ORDER BY id")], rows)
    expect(await conn.fetchval("SELECT id FROM apg_arrays WHERE tags @> $1", ["a"]), 1)
    expect(await conn.fetchval("SELECT id FROM apg_arrays WHERE numbers = $1", [[1, 2], [3, 4]]), 3)
    await conn.execute("UPDATE apg_arrays SET tags = tags || $1::text[] WHERE id = $2", ["z"], 1)
    expect(await conn.fetchval("SELECT tags FROM apg_arrays WHERE id = 1"), ["a", None, "z"])
    await conn.execute("DROP TABLE apg_arrays")


async def test_any_of_an_array(conn):
    await fresh(conn, "apg_any", "id int PRIMARY KEY, name text")
    await conn.executemany("INSERT INTO apg_any VALUES ($1, $2)", [(n, f"n{n}") for n in range(20)])
    found = await conn.fetch("SELECT id FROM apg_any WHERE id = ANY($1) ORDER BY id", [3, 5, 99, None])
    expect([row["id"] for row in found], [3, 5])
    found = await conn.fetch("SELECT id FROM apg_any WHERE name = ANY($1::text[]) ORDER BY id", ["n7", "n1"])
    expect([row["id"] for row in found], [1, 7])
    expect(await conn.fetchval("SELECT count(*) FROM apg_any WHERE id = ANY($1)", []), 0)
    expect(await conn.fetchval("SELECT count(*) FROM apg_any WHERE id <> ALL($1::int[])", [1, 2]), 18)
    expect(await conn.execute("DELETE FROM apg_any WHERE id = ANY($1::int[])", [1, 2, 3]), "DELETE 3")
    found = await conn.fetch("SELECT n, t FROM unnest($1::int[], $2::text[]) AS u(n, t)", [1, 2], ["a", None])
    expect([tuple(row) for row in found], [(1, "a"), (2, None)])
    await conn.execute(
        "INSERT INTO apg_any SELECT * FROM unnest($1::int[], $2::text[])", [101, 102], ["x", "y"]
    )
    expect(await conn.fetchval("SELECT array_agg(name ORDER BY id) FROM apg_any WHERE id > 100"), ["x", "y"])
    await conn.execute("DROP TABLE apg_any")


async def test_a_codec_of_the_application(conn):
    import json

    for name in ("json", "jsonb"):
        await conn.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    value = {"a": [1, None, "x"], "b": {"c": 1.5}}
    for name in ("json", "jsonb"):
        expect(await conn.fetchval(f"SELECT $1::{name}", value), value)
        expect(await conn.fetchval(f"SELECT $1::{name}[]", [value, None]), [value, None])
        await conn.reset_type_codec(name, schema="pg_catalog")


async def test_bad_values(conn):
    try:
        await conn.fetchval("SELECT $1::int", 2**31)
        raise AssertionError("accepted a number that is too large")
    except asyncpg.DataError:
        pass
    with raises("22P02"):
        await conn.fetchval("SELECT $1::text::int", "x")
    with raises("22003"):
        await conn.fetchval("SELECT $1::int8::int4", 2**40)
    expect(await conn.fetchval("SELECT 1"), 1)


# ---- statements ---------------------------------------------------------------------


async def test_prepared_statements(conn):
    await fresh(conn, "apg_prepared", "id int PRIMARY KEY, name varchar(10), amount numeric(10, 2)")
    insert = await conn.prepare("INSERT INTO apg_prepared VALUES ($1, $2, $3)")
    expect([t.name for t in insert.get_parameters()], ["int4", "varchar", "numeric"])
    for number in range(10):
        await insert.fetch(number, f"n{number}", Decimal(number) / 4)
    expect(insert.get_statusmsg(), "INSERT 0 1")
    sql = "SELECT id, name, amount FROM apg_prepared WHERE id >= $1 ORDER BY id LIMIT $2"
    select = await conn.prepare(sql)
    expect([(a.name, a.type.name) for a in select.get_attributes()],
           [("id", "int4"), ("name", "varchar"), ("amount", "numeric")])
    for _ in range(7):
        expect([tuple(row) for row in await select.fetch(8, 5)],
               [(8, "n8", Decimal("2.00")), (9, "n9", Decimal("2.25"))])
    expect(await select.fetchval(3, 1, column=1), "n3")
    expect(dict(await select.fetchrow(3, 1)), {"id": 3, "name": "n3", "amount": Decimal("0.75")})
    # A change of the table makes asyncpg prepare again.
    await conn.fetch("SELECT * FROM apg_prepared WHERE id = $1", 1)
    await conn.execute("ALTER TABLE apg_prepared ADD COLUMN more int")
    expect(len(await conn.fetchrow("SELECT * FROM apg_prepared WHERE id = $1", 1)), 4)
    with raises("23505") as caught:
        await insert.fetch(1, "again", None)
    expect(caught.error.constraint_name, "apg_prepared_pkey")
    expect(caught.error.table_name, "apg_prepared")
    with raises("22001"):
        await insert.fetch(100, "a name that is too long", None)
    await conn.execute("DROP TABLE apg_prepared")


async def test_executemany(conn):
    await fresh(conn, "apg_many", "id int PRIMARY KEY, value text")
    await conn.executemany("INSERT INTO apg_many VALUES ($1, $2)", [(n, str(n)) for n in range(2000)])
    expect(await conn.fetchval("SELECT count(*) FROM apg_many"), 2000)
    # All of it or nothing.
    with raises("23505"):
        await conn.executemany("INSERT INTO apg_many VALUES ($1, $2)", [(9000, "a"), (1, "b"), (9001, "c")])
    expect(await conn.fetchval("SELECT count(*) FROM apg_many"), 2000)
    await conn.executemany("UPDATE apg_many SET value = $2 WHERE id = $1", [(n, "u") for n in range(100)])
    expect(await conn.fetchval("SELECT count(*) FROM apg_many WHERE value = 'u'"), 100)
    async with conn.transaction():
        await conn.executemany("INSERT INTO apg_many VALUES ($1, $2)", [(5000, "a"), (5001, "b")])
    expect(await conn.fetchval("SELECT count(*) FROM apg_many"), 2002)
    insert = "INSERT INTO apg_many VALUES ($1, $2) RETURNING id"
    rows = await conn.fetchmany(insert, [(6000, "a"), (6001, "b")])
    expect([row["id"] for row in rows], [6000, 6001])
    await conn.execute("DROP TABLE apg_many")


async def test_scripts(conn):
    expect(await conn.execute("CREATE TABLE apg_script (id int); INSERT INTO apg_script VALUES (1), (2); "
                              "UPDATE apg_script SET id = id + 1"), "UPDATE 2")
    expect(await conn.execute("DROP TABLE apg_script"), "DROP TABLE")


async def test_transactions(conn):
    await fresh(conn, "apg_txn", "id int PRIMARY KEY")
    async with conn.transaction():
        await conn.execute("INSERT INTO apg_txn VALUES (1)")
        try:
            async with conn.transaction():
                await conn.execute("INSERT INTO apg_txn VALUES (2)")
                raise KeyError
        except KeyError:
            pass
        await conn.execute("INSERT INTO apg_txn VALUES (3)")
    expect([row["id"] for row in await conn.fetch("SELECT id FROM apg_txn ORDER BY id")], [1, 3])
    for level in ("serializable", "repeatable_read", "read_committed"):
        async with conn.transaction(isolation=level):
            expect(await conn.fetchval("SHOW transaction_isolation"), level.replace("_", " "))
    with raises("25006"):
        async with conn.transaction(isolation="serializable", readonly=True, deferrable=True):
            await conn.execute("INSERT INTO apg_txn VALUES (9)")
    await conn.execute("DROP TABLE apg_txn")


async def test_cursors(conn):
    async with conn.transaction():
        numbers = [row["n"] async for row in conn.cursor("SELECT n FROM generate_series(1, $1::int) n", 500)]
    expect(numbers, list(range(1, 501)))
    async with conn.transaction():
        numbers = []
        async for row in conn.cursor("SELECT n FROM generate_series(1, 25) n", prefetch=7):
            numbers.append(row["n"])
            if len(numbers) == 10:
                break
        expect(numbers, list(range(1, 11)))
        cursor = await conn.cursor("SELECT n FROM generate_series(1, 20) n")
        expect([row["n"] for row in await cursor.fetch(3)], [1, 2, 3])
        expect((await cursor.fetchrow())["n"], 4)
        expect(await cursor.forward(5), 5)
        expect([row["n"] for row in await cursor.fetch(100)], list(range(10, 21)))
        expect(await cursor.fetch(1), [])
        statement = await conn.prepare("SELECT n FROM generate_series(1, $1::int) n")
        expect([row["n"] async for row in statement.cursor(3)], [1, 2, 3])


async def test_notices_and_errors(conn):
    notices = []
    conn.add_log_listener(lambda _, message: notices.append(message))
    await conn.execute("DROP TABLE IF EXISTS apg_absent")
    await asyncio.sleep(0)
    expect([notice.message for notice in notices], ['table "apg_absent" does not exist, skipping'])
    for sql, state in (("SELECT 1/0", "22012"), ("SELEC 1", "42601"), ("SELECT * FROM apg_absent", "42P01"),
                       ("SELECT absent", "42703"), ("SELECT absent(1)", "42883")):
        with raises(state):
            await conn.fetch(sql)
    with raises("57014"):
        await conn.execute("SET statement_timeout = 50")
        try:
            await conn.execute("SELECT pg_sleep(10)")
        finally:
            await conn.execute("RESET statement_timeout")


async def test_a_timeout_cancels(conn):
    try:
        await conn.fetch("SELECT pg_sleep(10)", timeout=0.2)
        raise AssertionError("no timeout")
    except asyncio.TimeoutError:
        pass
    expect(await conn.fetchval("SELECT 1"), 1)


# ---- COPY ---------------------------------------------------------------------------


async def test_copy_records(conn):
    names = [name for name in VALUES if name not in ("oid", "bpchar")]
    await fresh(conn, "apg_copy", ", ".join(f"c_{name} {name}" for name in names))
    longest = max(map(len, VALUES.values()))
    rows = [tuple((VALUES[name] + [None] * longest)[n] for name in names) for n in range(longest + 1)]
    expect(await conn.copy_records_to_table("apg_copy", records=rows), f"COPY {len(rows)}")
    found = await conn.fetch("SELECT * FROM apg_copy")
    expect(sorted(map(repr, map(tuple, found))), sorted(map(repr, rows)))
    # Out in binary, in again: the same rows.
    out = io.BytesIO()
    expect(await conn.copy_from_table("apg_copy", output=out, format="binary"), f"COPY {len(rows)}")
    await conn.execute("DELETE FROM apg_copy")
    out.seek(0)
    expect(await conn.copy_to_table("apg_copy", source=out, format="binary"), f"COPY {len(rows)}")
    found = await conn.fetch("SELECT * FROM apg_copy")
    expect(sorted(map(repr, map(tuple, found))), sorted(map(repr, rows)))
    await conn.execute("DROP TABLE apg_copy")


async def test_copy_many_records(conn):
    await fresh(conn, "apg_copy", "id serial PRIMARY KEY, name text, tags int[]")
    rows = [(f"n{n}", [n, None]) for n in range(20000)]
    expect(await conn.copy_records_to_table("apg_copy", records=rows, columns=["name", "tags"]), "COPY 20000")
    expect(tuple(await conn.fetchrow("SELECT count(*), min(id), max(id) FROM apg_copy")), (20000, 1, 20000))
    expect(await conn.fetchval("SELECT tags FROM apg_copy WHERE name = 'n77'"), [77, None])
    with raises("23505"):
        await conn.copy_records_to_table("apg_copy", records=[(30000, "x", []), (1, "y", [])])
    expect(await conn.fetchval("SELECT count(*) FROM apg_copy"), 20000)
    with raises("08P01"):
        data = COPY_SIGNATURE + b"\0\3" + b"\0\0\0\1x" * 3 + b"\xff\xff"
        await conn.copy_to_table("apg_copy", source=io.BytesIO(data), format="binary")
    await conn.execute("DROP TABLE apg_copy")


COPY_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8


async def test_copy_of_damaged_data(conn):
    await fresh(conn, "apg_copy", "a int, b text")
    row = b"\0\2" + b"\0\0\0\4\0\0\0\7" + b"\0\0\0\1x"
    end = b"\xff\xff"
    good = COPY_SIGNATURE + row + end
    for damaged, state in (
        (b"PGCOPX" + good[6:], "22P04"),
        (good[:15], "22P04"),
        (COPY_SIGNATURE[:11] + b"\0\1\0\0" + good[15:], "22P04"),
        (COPY_SIGNATURE[:11] + b"\0\0\0\1" + good[15:], None),
        (COPY_SIGNATURE[:11] + b"\0\0\0\0\0\0\0\2zz" + good[19:], None),
        (COPY_SIGNATURE[:11] + b"\0\0\0\0\xff\xff\xff\xff" + good[19:], "22P04"),
        (COPY_SIGNATURE + b"\0\1" + row[2:] + end, "22P04"),
        (COPY_SIGNATURE + row[:9] + end, "22P04"),
        (COPY_SIGNATURE + row[:12], "22P04"),
        (COPY_SIGNATURE + b"\0\2\0\0\0\3\0\0\7" + row[10:] + end, "08P01"),
        (COPY_SIGNATURE + b"\0\2\0\0\0\5\0\0\0\7\7" + row[10:] + end, "22P03"),
        (COPY_SIGNATURE + b"\0\2\xff\xff\xff\xfe" + row[10:] + end, "22P04"),
        (COPY_SIGNATURE + row[:10] + b"\0\0\0\1\xff" + end, "22021"),
        (good + b"more", "22P04"),
        (COPY_SIGNATURE + row, None),
        (COPY_SIGNATURE, None),
        (b"", "22P04"),
    ):
        try:
            await conn.copy_to_table("apg_copy", source=io.BytesIO(damaged), format="binary")
            told = None
        except asyncpg.PostgresError as error:
            told = error.sqlstate
        expect(told, state, damaged)
    await conn.execute("DROP TABLE apg_copy")


async def test_copy_from_query(conn):
    out = io.BytesIO()
    sql = "SELECT n, 'x' || n, NULL::int FROM generate_series($1::int, $2::int) n ORDER BY n"
    expect(await conn.copy_from_query(sql, 1, 3, output=out), "COPY 3")
    expect(out.getvalue(), b"1\tx1\t\\N\n2\tx2\t\\N\n3\tx3\t\\N\n")
    out = io.BytesIO()
    await conn.copy_from_query("SELECT 1 AS a, 'b,c' AS b", output=out, format="csv", header=True)
    expect(out.getvalue(), b'a,b\n1,"b,c"\n')
    out = io.BytesIO()
    expect(await conn.copy_from_query("VALUES (1::int4, NULL::text)", output=out, format="binary"), "COPY 1")
    expect(out.getvalue(), COPY_SIGNATURE + b"\0\2\0\0\0\4\0\0\0\1\xff\xff\xff\xff\xff\xff")
    out = io.BytesIO()
    expect(await conn.copy_from_query("SELECT 1 WHERE false", output=out, format="binary"), "COPY 0")
    expect(out.getvalue(), COPY_SIGNATURE + b"\xff\xff")


async def test_copy_to_table_of_text(conn):
    await fresh(conn, "apg_copy", "a int, b text")
    source = io.BytesIO(b"1\tx\n2\t\\N\n")
    expect(await conn.copy_to_table("apg_copy", source=source), "COPY 2")
    source = io.BytesIO(b"a;b\n3;'q;r'\n")
    await conn.copy_to_table("apg_copy", source=source, format="csv", header=True, delimiter=";", quote="'")
    found = [tuple(row) for row in await conn.fetch("SELECT * FROM apg_copy ORDER BY a")]
    expect(found, [(1, "x"), (2, None), (3, "q;r")])
    await conn.execute("DROP TABLE apg_copy")


# ---- pool and session ---------------------------------------------------------------


async def test_pool_resets_its_connections(conn):
    async with asyncpg.create_pool(**address(), min_size=1, max_size=1) as pool:
        async with pool.acquire() as first:
            pid = await first.fetchval("SELECT pg_backend_pid()")
            await first.execute("SET statement_timeout = 1234")
            await first.execute("BEGIN")
            await first.execute("DECLARE c CURSOR FOR SELECT 1")
            await first.execute("COMMIT")
        async with pool.acquire() as again:
            expect(await again.fetchval("SELECT pg_backend_pid()"), pid)
            expect(await again.fetchval("SHOW statement_timeout"), "0")
    async with asyncpg.create_pool(**address(), min_size=2, max_size=4) as pool:
        answers = await asyncio.gather(*(pool.fetchval("SELECT $1::int", n) for n in range(50)))
        expect(answers, list(range(50)))


async def test_reset_query(conn):
    await conn.execute("SET statement_timeout = 1234")
    await conn.reset()
    expect(await conn.fetchval("SHOW statement_timeout"), "0")
    expect(conn.get_settings().server_encoding, "UTF8")
    expect(conn.get_server_version().major, 15)


# ---- the runner ---------------------------------------------------------------------


async def run(name, test):
    conn = await asyncpg.connect(**address())
    try:
        await test(conn)
        print(f"test {name} ... ok")
        return True
    except Exception:
        print(f"test {name} ... FAILED")
        traceback.print_exc(limit=-3, file=sys.stdout)
        return False
    finally:
        conn.terminate()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("-k", default="")
    parser.add_argument("-l", action="store_true")
    options = parser.parse_args()
    TARGET.update(host=options.host, port=options.port)
    tests = {name: test for name, test in globals().items() if name.startswith("test_") and options.k in name}
    if options.l:
        print("\n".join(tests))
        return 0
    results = [await run(name, test) for name, test in tests.items()]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


sys.exit(asyncio.run(main()))
