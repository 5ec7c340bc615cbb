#!/usr/bin/env python3
"""Queries: one or two Wefts, PostgreSQL 15 and DuckDB, in turns. See README.md beside this file."""

import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import charts  # noqa: E402
import kept  # noqa: E402
import runs  # noqa: E402
import servers  # noqa: E402
import statements  # noqa: E402
import tables  # noqa: E402
from axes import Quantity  # noqa: E402
from contenders import Duck, Served, medians  # noqa: E402

MORE_FIELDS = ["cpu_ms", "baseline_cpu_ms", "answer"]
PROTOCOLS = ["prepared", "extended", "simple"]


def record(figure, case, name, own, base, answer, options):
    """`own` and `base`: (milliseconds, milliseconds of processor time), the base PostgreSQL's."""
    return {
        "bench": "queries",
        "case": f"{case}, {name}",
        "config": f"{options.orders} orders, {options.rounds} rounds"
        + ("" if options.cpu is None else ", one core"),
        "metric": "latency",
        "value": round(own[0], 4),
        "unit": "ms",
        "baseline": f"postgresql 15: {base[0]:.4f}",
        "ratio": round(own[0] / base[0], 3),
        "cpu_ms": round(own[1], 4),
        "baseline_cpu_ms": round(base[1], 4),
        "answer": answer,
    }


def say(lab, figure, row):
    lab.add(figure, row)
    words = f"{row['value']:10.3f} ms  {row['ratio']:7.2f} times PostgreSQL  {row['cpu_ms']:10.3f} ms cpu"
    print(f"{row['case']:58} {words}  {row['answer']}", flush=True)


def analytical(lab, contenders):
    options = lab.options
    for case, sql in statements.ANALYTICAL.items():
        if options.case not in case:
            continue
        answers = {c.name: c.answer(sql) for c in contenders if isinstance(c, Served)}
        # A refusal is not measured; a wrong answer is, and is told.
        able = [c for c in contenders if not answers.get(c.name, "").startswith("ERROR ")]
        measured = {c.name: [] for c in able}
        for _ in range(options.rounds):
            for contender in able:
                measured[contender.name].append(contender.run(sql, options.times))
        found = medians(measured)
        for name, own in found.items():
            same = name == "duckdb" or answers[name] == answers["postgresql"]
            told = "" if name in ("postgresql", "duckdb") else "same answer" if same else "another answer"
            say(lab, "analytical", record("analytical", case, name, own, found["postgresql"], told, options))
        for name in answers.keys() - found.keys():
            print(f"{case}, {name}: {answers[name]}")


def small(lab, contenders, directory):
    options = lab.options
    contenders = [c for c in contenders if isinstance(c, Served)]
    counts = {"orders": options.orders, "customers": max(options.orders // 10, 10)}
    for case, text in statements.SMALL.items():
        if options.case not in case:
            continue
        script = directory / "small.sql"
        script.write_text(text.format(**counts))
        for protocol in options.protocols.split(","):
            measured = {c.name: [] for c in contenders}
            for _ in range(options.rounds):
                for contender in contenders:
                    try:
                        ms, cpu = contender.pgbench(str(script), protocol, options.seconds)
                        measured[contender.name].append(([ms], cpu))
                    except SystemExit as refused:
                        said = str(refused)
                        told = f"{case}, {protocol}, {contender.name}:"
                        print(told, said[said.find("ERROR:") :].splitlines()[0])
            found = medians({name: rounds for name, rounds in measured.items() if rounds})
            for name, own in found.items():
                row = record("small", f"{case}, {protocol}", name, own, found["postgresql"], "", options)
                say(lab, "small", row)


def run(lab):
    options = lab.options
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-queries-"))
    os.chmod(directory, 0o755)
    files = tables.write(directory, options.orders)
    contenders = []
    try:
        if options.before:
            server = servers.start_weft(directory, "127.0.0.1", options.before, name="before")
            contenders.append(Served("before", server))
        contenders.append(Served("weft", servers.start_weft(directory, "127.0.0.1", options.weft)))
        contenders.append(Served("postgresql", servers.start_postgres(directory, "127.0.0.1")))
        try:
            contenders.append(Duck(len(os.sched_getaffinity(0))))
        except ImportError:
            print("without DuckDB: this Python has no module duckdb")
        for contender in contenders:
            contender.load(tables.CREATED, files)
        if lab.wants("analytical"):
            analytical(lab, contenders)
        if lab.wants("small"):
            small(lab, contenders, directory)
    finally:
        for contender in contenders:
            contender.stop()
        shutil.rmtree(directory, ignore_errors=True)


def draw(rows):
    """Times PostgreSQL's latency, by statement and contender."""

    def ratios(figure):
        of_figure = [{**row, "metric": "ratio", "value": row["ratio"]} for row in rows
                     if row["figure"] == figure]

        def place(row):
            case, name = row["case"].rsplit(", ", 1)
            return (case, name) if name != "postgresql" else None

        return kept.points(of_figure, "ratio", place)

    unit, peer = Quantity("latency, times PostgreSQL 15", 10), (1, "as PostgreSQL 15")
    titles = {"analytical": "Queries over whole tables", "small": "Queries over few rows, by protocol"}
    return {name: charts.bars(title, unit, ratios(name), reference=peer) for name, title in titles.items()}


def main():
    parser = runs.parser(__doc__)
    parser.add_argument("--before", help="a second Weft, of an older commit")
    parser.add_argument("--orders", type=int, help="rows of orders; lineitem has four times as many")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--times", type=int, help="executions of an analytical query in a round")
    parser.add_argument("--seconds", type=int, default=2, help="of a small query in a round")
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--case", default="", help="only statements whose name contains this, and no drawing")
    parser.add_argument("--cpu", type=int, help="all contenders and clients on this core")
    options = parser.parse_args()
    orders, rounds, times = (1000, 1, 2) if options.quick else (75_000, 3, 3)
    options.orders = options.orders or orders
    options.rounds = options.rounds or rounds
    options.times = options.times or times
    drawing = draw if options.plot or not options.case else lambda _: {}
    runs.experiment(HERE, run, drawing, options, MORE_FIELDS)


if __name__ == "__main__":
    main()
