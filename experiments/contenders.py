"""Contenders that answer queries in turns: servers with PostgreSQL's protocol, and DuckDB in this process."""

import os
import pathlib
import re
import statistics
import tempfile
import time

import servers


def cpu_seconds(pid):
    """Processor time of a process, its children, and theirs."""
    total, children = 0, pathlib.Path(f"/proc/{pid}/task")
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    total += sum(map(int, stat[11:15]))
    for task in children.iterdir():
        for child in (task / "children").read_text().split():
            try:
                total += cpu_seconds(int(child)) * os.sysconf("SC_CLK_TCK")
            except FileNotFoundError:
                pass
    return total / os.sysconf("SC_CLK_TCK")


class Served:
    """A contender that speaks PostgreSQL's protocol."""

    def __init__(self, name, server):
        self.name, self.server = name, server

    def load(self, created, files, form="CSV"):
        """Runs the statements of `created`, and copies the files, each a table's name and a path."""
        self.execute(created)
        for table, path in files:
            self.server.psql("-c", f"\\copy {table} FROM '{path}' {form}")
        if self.name == "postgresql":
            self.server.psql("-c", "VACUUM ANALYZE")

    def execute(self, statements):
        for statement in filter(str.strip, statements.split(";")):
            self.server.psql("-c", statement)

    def answer(self, sql):
        """The rows, or what was said instead."""
        try:
            return self.server.psql("-c", sql)
        except SystemExit as refused:
            said = str(refused)
            return "ERROR " + said[said.find("ERROR:") + 6 :].splitlines()[0].strip()

    def run(self, sql, times):
        """Milliseconds that psql measured for each execution, and processor time of the server in all."""
        before = cpu_seconds(self.server.process.pid)
        sql = sql.strip().replace("\n", " ") + ";\n"
        path = pathlib.Path(tempfile.mkstemp(prefix="weft-queries-", suffix=".sql")[1])
        path.write_text("\\timing on\n\\o /dev/null\n" + sql * times)
        shown = self.server.psql("-f", str(path))
        path.unlink()
        spent = cpu_seconds(self.server.process.pid) - before
        return [float(ms) for ms in re.findall(r"Time: ([0-9.]+) ms", shown)], 1e3 * spent / times

    def pgbench(self, script, protocol, seconds):
        """Latency in milliseconds, and processor time of the server for one."""
        before = cpu_seconds(self.server.process.pid)
        words = ["-n", "-c", "1", "-T", str(seconds), "-M", protocol, "-f", script]
        output = self.server.pgbench(*words)
        spent = cpu_seconds(self.server.process.pid) - before
        count = int(re.search(r"transactions actually processed: (\d+)", output).group(1))
        return 1e3 / servers.tps(output), 1e3 * spent / count

    def stop(self):
        self.server.stop()


class Duck:
    """DuckDB inside this process; ImportError if this Python has no module duckdb."""

    name = "duckdb"

    def __init__(self, threads):
        import duckdb

        self.database = duckdb.connect(config={"threads": threads})

    def load(self, created, files, form="FORMAT csv, HEADER false"):
        self.database.execute(created)
        for table, path in files:
            self.database.execute(f"COPY {table} FROM '{path}' ({form})")

    def rows(self, sql):
        return self.database.execute(sql).fetchall()

    def run(self, sql, times):
        elapsed, before = [], time.process_time()
        for _ in range(times):
            begun = time.perf_counter()
            self.rows(sql)
            elapsed.append(1e3 * (time.perf_counter() - begun))
        return elapsed, 1e3 * (time.process_time() - before) / times

    def stop(self):
        self.database.close()


def medians(measured):
    """By name: median of milliseconds over all rounds, and the least processor time."""
    return {
        name: (statistics.median(ms for elapsed, _ in rounds for ms in elapsed),
               min(cpu for _, cpu in rounds))
        for name, rounds in measured.items()
    }
