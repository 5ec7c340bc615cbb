"""Figures 5.5 to 5.7 and tables 5.1 and 5.2: locks and two-phase commits."""

import re

import charts
import kept
from axes import Quantity
from rows import of, predicted

# Agents of the columns of table 5.1; as many servers stand beside them.
AGENTS = [1260, 2520]
# Of TPC-C's transactions so many are new orders (5.4.2: 5.9 of 13.6 million).
NEW_ORDERS = 0.45
HERE = "measured, one server and one agent"


def tpcc(row):
    """(isolation and whose costs, ranks) of simulated TPC-C."""
    at = re.match(r"SIMULATION (.+) tpcc (.+) ranks=(\d+)$", row["case"])
    return at and (f"{at[2]}, {at[1]}", int(at[3]))


def synthetic(row):
    """(whose costs, percent of remote locks) of the synthetic workload at the document's scale, or here."""
    at = re.match(r"SIMULATION (.+) synthetic remote=(\d+)% ranks=5040$", row["case"])
    if at:
        return f"simulated, {at[1]}", int(at[2])
    at = re.match(r"synthetic remote=(\d+)%$", row["case"])
    return at and ("measured, two servers and one agent", int(at[1]))


def normalized(rows):
    """The time of a transaction, 1 without remote locks."""
    found = kept.points(rows, "transaction p50", synthetic)
    found |= kept.points(rows, "transaction", synthetic)
    local = {line: point.middle for (line, percent), point in found.items() if percent == 0}
    known = kept.Points({place: point for place, point in found.items() if place[0] in local})
    known.sources, known.rounds, known.left_out = found.sources, found.rounds, found.left_out
    return known.scaled(lambda place: 1 / local[place[0]])


def table(rows, agents):
    """Bars (percent of remote locks, simulated or predicted) with the document's costs, in M/s."""
    pattern = re.compile(rf"SIMULATION the document's costs synthetic remote=(\d+)% ranks={2 * agents}$")

    def place(row, whose):
        at = pattern.match(row["case"])
        return at and (f"{at[1]} % remote", whose)

    found = kept.points(rows, "transactions", lambda row: place(row, "simulated"), 1e6)
    equation = "equation 5.4"
    found |= kept.points(predicted(rows, equation), "transactions", lambda row: place(row, equation), 1e6)
    return found


def times(row):
    """(what, whose) takes time."""
    at = re.match(r"SIMULATION (.+) tpcc serializable ranks=5040$", row["case"])
    if at:
        names = {"lock": "a lock", "votes of a transaction": "votes of a transaction",
                 "transaction": "a transaction"}
        return names.get(row["metric"]) and (names[row["metric"]], f"simulated, {at[1]}")
    is_replay = row["case"] == "tpcc serializable warehouses=4 servers=1 agents=1"
    own = {"lock p50": "a lock", "commit p50": "the end of a transaction", "transaction p50": "a transaction"}
    if is_replay and row["metric"] in own:
        return own[row["metric"]], HERE
    parts = {("mailbox", "round trip"): "a message there and back",
             ("lock table alone", "lock"): "the lock table, for a lock"}
    part = parts.get((row["case"], row["metric"]))
    return part and (part, HERE)


def breakdown(rows):
    """Bars of times in microseconds."""
    found = kept.Points()
    metrics = ["round trip", "lock", "lock p50", "votes of a transaction", "commit p50", "transaction",
               "transaction p50"]
    for metric in metrics:
        found |= kept.points(rows, metric, times, 1e3)
    return found


def new_orders(rows):
    """Bars of new orders a second, in millions: the lock protocol simulated, and this database."""

    def simulated(row):
        at = tpcc(row)
        return at and at[1] == 5040 and ("locks and votes alone, 5,040 cores, SIMULATED", at[0]) or None

    found = kept.points(of(rows, "5"), "transactions", simulated, 1e6 / NEW_ORDERS)
    product = [row for row in of(rows, "5.2-here") if row["case"].endswith("product")]
    found |= kept.points(product, "throughput", lambda _: (
        "Weft, the whole mix with its data, two cores, measured", "batches"), 1e6 / NEW_ORDERS)
    return found


def draw(rows, said):
    cores = Quantity("cores, half of them agents", 2)
    figures = {
        "figure-5.5": charts.lines(
            "Figure 5.5: TPC-C's locks, SIMULATED", cores, Quantity("M transactions/s", 10),
            kept.points(of(rows, "5"), "transactions", tpcc, 1e6), said["5.5"]),
        "figure-5.5-locks": charts.lines(
            "Figure 5.5b: lock requests, SIMULATED", cores, Quantity("M locks/s", 10),
            kept.points(of(rows, "5"), "locks", tpcc, 1e6), said["5.5-locks"]),
        "figure-5.6": charts.bars(
            "Figure 5.6: where the time goes, TPC-C, serializable", Quantity("us", 10),
            breakdown(of(rows, "5", "5-here")), said["5.6"]),
        "figure-5.7": charts.lines(
            "Figure 5.7: a transaction of ten locks", Quantity("% of locks are remote"),
            Quantity("execution time, 1 without remote locks"), normalized(of(rows, "5", "5-here")),
            said["5.7"]),
        "table-5.2": charts.bars(
            "Table 5.2: TPC-C's new orders", Quantity("M/s", 10), new_orders(rows), said["table-5.2"]),
    }
    for agents in AGENTS:
        figures[f"table-5.1-{agents}"] = charts.bars(
            f"Table 5.1: {agents:,} agents, the document's costs, SIMULATED", Quantity("M transactions/s"),
            table(of(rows, "5"), agents), said[f"table-5.1-{agents}"])
    return figures


def run(lab):
    quick = lab.options.quick
    tiny = " --quick --rounds 1" if quick else ""
    if lab.wants("5-here"):
        lab.run("5-here", f"locks{tiny}")
    if lab.wants("5.2-here"):
        size = "--warehouses 1 --items 100 --customers-per-district 10 --seconds 0.1 --rounds 1"
        lab.run("5.2-here", f"tpcc {size if quick else '--warehouses 2 --window 64'}", "product")
    if lab.wants("5"):
        for agents in AGENTS:
            lab.run("5", f"locks --simulate-ranks {2 * agents}{tiny}")
