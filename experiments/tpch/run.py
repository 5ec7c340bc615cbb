#!/usr/bin/env python3
"""TPC-H's 22 queries: Weft, PostgreSQL 15, DuckDB and DataFusion, in turns. See README.md in this folder."""

import decimal
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import charts  # noqa: E402
import contenders  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
import servers  # noqa: E402
import statements  # noqa: E402
from axes import Quantity  # noqa: E402

MORE_FIELDS = ["cpu_ms", "answer"]
# Rows of a file that one COPY loads: a transaction of Weft has a limit (docs/limits.md).
PART_ROWS = 250_000
LINES = 6_000_000


class Fusion:
    """DataFusion over Arrow's arrays in this process; ImportError if this Python has no module datafusion."""

    name = "datafusion"

    def __init__(self, threads):
        import datafusion

        config = datafusion.SessionConfig().with_target_partitions(threads)
        self.context = datafusion.SessionContext(config)

    def load(self, created, files):
        """Tables of the columns that `created` names; their rows stay in memory."""
        for number, table in enumerate(statements.TABLES):
            paths = [path for name, path in files if name == table]
            folder = pathlib.Path(tempfile.mkdtemp(dir=paths[0].parent.parent))
            for at, path in enumerate(paths):
                (folder / f"{at}.csv").symlink_to(path.resolve())
            columns = created.split("CREATE TABLE ")[number + 1].split("(", 1)[1].split("PRIMARY KEY (")[0]
            columns = columns.replace(" PRIMARY KEY", "").replace(" NOT NULL", "")
            columns = columns.rsplit(");", 1)[0].rstrip(", \n")
            self.context.sql(
                f"CREATE EXTERNAL TABLE csv_{table} ({columns}) STORED AS CSV LOCATION '{folder}/' "
                "OPTIONS ('format.has_header' 'true')"
            ).collect()
            self.context.sql(f"CREATE TABLE {table} AS SELECT * FROM csv_{table}").collect()

    def rows(self, sql):
        return [tuple(row.values()) for batch in self.context.sql(sql).collect() for row in batch.to_pylist()]

    run = contenders.Duck.run

    def stop(self):
        pass


def generate(directory, scale):
    """Files of all tables, in parts: (table, path)."""
    tool = shutil.which("tpchgen-cli") or pathlib.Path(sys.executable).parent / "tpchgen-cli"
    parts = max(1, round(scale * LINES / PART_ROWS))
    words = ["csv", "-s", str(scale), f"--output-dir={directory}"]
    try:
        subprocess.run([tool, *words, *([f"--parts={parts}"] if parts > 1 else [])], check=True)
    except FileNotFoundError:
        sys.exit("TPC-H's rows are made by tpchgen-cli: pip install tpchgen-cli")
    files = []
    for table in statements.TABLES:
        found = sorted([*directory.glob(f"{table}.csv"), *directory.glob(f"{table}/*.csv")])
        files.extend((table, path) for path in found)
    for folder in [directory, *(path.parent for _, path in files)]:
        folder.chmod(0o755)
    return files


def value(text):
    """A number if it is one; text without what pads it."""
    if isinstance(text, (int, float, decimal.Decimal)):
        return float(text)
    try:
        return float(text)
    except (TypeError, ValueError):
        return str(text).rstrip() if text is not None else ""


def same(answer, rows):
    """Whether psql's lines are these rows: texts, and numbers but for the last digits."""
    lines = [line.split("|") for line in answer.splitlines()]
    if len(lines) != len(rows):
        return False
    for line, row in zip(lines, rows):
        for own, other in zip(map(value, line), map(value, row)):
            if isinstance(own, float) and isinstance(other, float):
                if abs(own - other) > 1e-6 * max(1.0, abs(other)):
                    return False
            elif own != other:
                return False
    return True


def queries(lab, all_contenders):
    options = lab.options
    by_name = {contender.name: contender for contender in all_contenders}
    for name, sql in statements.queries(options.scale).items():
        if not lab.wants("tpch") or options.case and name not in options.case.split(","):
            continue
        answer = by_name["weft"].answer(sql)
        told = []
        if "postgresql" in by_name:
            told.append(("PostgreSQL", by_name["postgresql"].answer(sql) == answer))
        for peer, title in [("duckdb", "DuckDB"), ("datafusion", "DataFusion")]:
            if peer in by_name:
                told.append((title, same(answer, by_name[peer].rows(sql))))
        answers = ", ".join(f"{'as' if is_same else 'not as'} {peer}" for peer, is_same in told)
        if answer.startswith("ERROR "):
            print(f"{name}: {answer}")
            continue
        measured = {contender.name: [] for contender in all_contenders}
        for _ in range(options.rounds):
            for contender in all_contenders:
                measured[contender.name].append(contender.run(sql, options.times))
        found = contenders.medians(measured)
        base_name = next(peer for peer in ["duckdb", "datafusion", "postgresql", "weft"] if peer in found)
        for contender, (ms, cpu) in found.items():
            lab.add("tpch", {
                "bench": "tpch",
                "case": f"{name}, {contender}",
                "config": f"scale {options.scale:g}, {options.rounds} rounds of {options.times}",
                "metric": "latency",
                "value": round(ms, 3),
                "unit": "ms",
                "baseline": f"{base_name}: {found[base_name][0]:.3f}",
                "ratio": round(ms / found[base_name][0], 3),
                "cpu_ms": round(cpu, 3),
                "answer": answers if contender == "weft" else "",
            })
        words = ", ".join(f"{contender} {ms:.1f} ms" for contender, (ms, _) in found.items())
        print(f"{name:4} {words}; {answers}", flush=True)


def warm_up(contender, scale):
    """Queries until Weft's copies of columns no longer grow."""
    grown = -1.0
    while (bytes_now := contender.server.shown(["column_bytes"])["column_bytes"]) > grown:
        grown = bytes_now
        for sql in statements.queries(scale).values():
            contender.answer(sql)


def write_answers(options):
    """PostgreSQL's answers, as a test of Weft reads them."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-tpch-"))
    directory.chmod(0o755)
    postgres = None
    try:
        files = generate(directory / "rows", options.scale)
        postgres = contenders.Served("postgresql", servers.start_postgres(directory, "127.0.0.1"))
        postgres.load(statements.CREATED, files, "CSV HEADER")
        form = ["-F", ",", "-P", "null=NULL"]
        parts = [f"-- {name}\n{postgres.server.psql(*form, '-c', sql)}"
                 for name, sql in statements.queries(options.scale).items()]
        pathlib.Path(options.answers).write_text("".join(parts))
    finally:
        if postgres:
            postgres.stop()
        shutil.rmtree(directory, ignore_errors=True)


def run(lab):
    options = lab.options
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-tpch-"))
    directory.chmod(0o755)
    threads = len(os.sched_getaffinity(0))
    started = []
    try:
        files = generate(directory / "rows", options.scale)
        started.append(contenders.Served("weft", servers.start_weft(directory, "127.0.0.1", options.weft)))
        if not options.without_postgres:
            started.append(contenders.Served("postgresql", servers.start_postgres(directory, "127.0.0.1")))
        for contender in started:
            contender.load(statements.CREATED, files, "CSV HEADER")
            contender.execute(statements.INDEXES)
        for peer, form in [(contenders.Duck, ("FORMAT csv, HEADER true",)), (Fusion, ())]:
            try:
                peer = peer(threads)
            except ImportError as missing:
                print(f"without {missing.name}: this Python has no such module")
                continue
            peer.load(statements.CREATED, files, *form)
            started.append(peer)
        warm_up(started[0], options.scale)
        queries(lab, started)
    finally:
        for contender in started:
            contender.stop()
        shutil.rmtree(directory, ignore_errors=True)


def draw(rows):
    """Latency by query and contender."""

    def place(row):
        return tuple(row["case"].rsplit(", ", 1))

    found = kept.points([row for row in rows if row["figure"] == "tpch"], "latency", place)
    return {"tpch": charts.bars("TPC-H's queries", Quantity("ms", 10), found)}


def main():
    parser = runs.parser(__doc__)
    parser.add_argument("--scale", type=float, help="TPC-H's scale factor")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--times", type=int, help="executions in a round")
    parser.add_argument("--case", default="", help="only these queries, such as Q1,Q6; nothing is drawn")
    parser.add_argument("--without-postgres", action="store_true")
    parser.add_argument("--answers", metavar="FILE", help="run nothing: write PostgreSQL's answers")
    options = parser.parse_args()
    scale, rounds, times = (0.01, 1, 1) if options.quick else (1.0, 3, 3)
    options.scale = options.scale or scale
    options.rounds = options.rounds or rounds
    options.times = options.times or times
    if options.answers:
        return write_answers(options)
    drawing = draw if options.plot or not options.case else lambda _: {}
    runs.experiment(HERE, run, drawing, options, MORE_FIELDS)


if __name__ == "__main__":
    main()
