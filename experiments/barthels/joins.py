"""Figures 3.7 to 4.6 and tables 4.1 and 4.2: joins, and puts."""

import re

import charts
import kept
from axes import Quantity
from rows import CORES, MILLION, RACKS, join, machines, number, of, predicted, rack, ranks, rates

PHASES = {
    "radix": ["histogram", "network", "wait", "local partition", "build", "probe", "imbalance"],
    "sort-merge": ["histogram", "partition", "network", "wait", "merge", "match", "imbalance"],
}
SECONDS = Quantity("s")
# Input of figures 3.11 and 3.12, and of table 4.2: tuples of a side.
RACK_TUPLES = 2048 * MILLION
TABLE_CORES = 1024


def puts(row):
    """(form, bytes of a put)."""
    at = re.match(r"(\w+), puts of (\d+) bytes$", row["case"])
    return at and (at[1], int(at[2]))


def measured_sizes(row):
    """(join and where it runs, million tuples of a side)."""
    own = "one machine, two threads" if "one machine" in row["case"] else "two ranks"
    is_other = row["case"].startswith("unpartitioned")
    return None if is_other else (f"{join(row)}, {own}", number(row, "build") / MILLION)


def side(row, name):
    """Million tuples of a side of all ranks."""
    return round(number(row, name) * ranks(row) / MILLION)


def input_size(row):
    """(size of both sides, machines); sides that differ are another figure's."""
    build, probe = side(row, "build"), side(row, "probe")
    name = f"{build:,} M" if build == probe else f"{build:,} M with {probe:,} M"
    return name, machines(row)


def by_phase(rows, place):
    """Lines of phases in seconds at what `place` makes of a row."""
    found = kept.Points()
    for phase in dict.fromkeys(phase for phases in PHASES.values() for phase in phases):
        found |= kept.points(rows, phase, lambda row, phase=phase: (phase, place(row)), 1e3)
    return found


def beside_model(rows, own):
    """Bars (phase, whose) of rows and of what the equations predict for them, in seconds."""
    found = kept.Points()
    for name, phases in PHASES.items():
        for metric in [*phases, "total"]:
            phase = f"{name}: {metric}"
            of_join = [row for row in rows if join(row) == name]
            found |= kept.points(of_join, metric, lambda _, phase=phase: (phase, own), 1e3)
            found |= kept.points(predicted(of_join, "model"), metric,
                                 lambda _, phase=phase: (phase, "the equations"), 1e3)
    return found


def measured(rows, said):
    """Figures of what was measured."""
    of_ranks = [row for row in of(rows, "3.9") if "one machine" not in row["case"]]
    most = max((number(row, "build") for row in of_ranks), default=None)
    largest = [row for row in of_ranks if number(row, "build") == most]
    return {
        "figure-3.7": charts.lines(
            "Figure 3.7: puts to another rank of this machine", Quantity("bytes of a put", 2),
            Quantity("GB/s", 10), kept.points(of(rows, "3.7"), "bandwidth", puts, 1e9), said["3.7"]),
        "figure-3.9": charts.lines(
            "Figure 3.9: two ranks, and one machine with two threads", Quantity("M tuples of a side", 2),
            Quantity("s", 10), kept.points(of(rows, "3.9"), "total", measured_sizes, 1e3), said["3.9"]),
        "figure-3.15": charts.bars(
            "Figure 3.15: two ranks beside the equations", SECONDS, beside_model(largest, "measured"),
            said["3.15"]),
    }


def racks(rows, said):
    """Figures 3.10 to 3.14 and 3.16, simulated."""
    figures, across = {}, Quantity("machines of eight cores")
    for name in RACKS:
        # The sort-merge join sends so little that both racks are one to it, as in the document.
        for kind in PHASES if name == "FDR" else ["radix"]:
            own = [row for row in of(rows, "3.10", "3.13") if rack(row) == name and join(row) == kind]
            same = [row for row in of(own, "3.10") if side(row, "build") == side(row, "probe")]
            other = [row for row in of(own, "3.10") if side(row, "probe") * MILLION == RACK_TUPLES]
            whole = [row for row in same if side(row, "build") * MILLION == RACK_TUPLES]
            grown, of_kind = of(own, "3.13"), f"{kind} join, {name}, SIMULATED"
            breakdown, growing = ("3.11", "3.13") if kind == "radix" else ("3.12", "3.14")
            for figure, title, points in [
                ("3.10-large", "large with large", kept.points(same, "total", input_size, 1e3)),
                ("3.10-small", "small with large", kept.points(other, "total", input_size, 1e3)),
                (breakdown, "2,048 M with 2,048 M by phase", by_phase(whole, machines)),
                (growing, "512 M of a side on each machine", by_phase(grown, machines)),
            ]:
                key = f"{figure}-{name.lower()}" + (f"-{kind}" if figure.startswith("3.10") else "")
                title = f"Figure {figure.split('-')[0]}: {of_kind}: {title}"
                figures[f"figure-{key}"] = charts.lines(title, across, SECONDS, points, said[key])
    threads = [row for row in of(rows, "3.16") if join(row) == "radix"]
    figures["figure-3.16"] = charts.lines(
        "Figure 3.16: network pass, QDR, SIMULATED", Quantity("machines"), SECONDS,
        kept.points(threads, "network", lambda row: (
            f"{number(row, 'ranks_per_node'):.0f} threads a machine", machines(row)), 1e3), said["3.16"])
    return figures


def supercomputer(rows, said):
    """Figures and tables of chapter 4, simulated."""
    cores, throughput = Quantity("cores", 2), Quantity("G tuples/s", 10)
    scaled = of(rows, "4.2")
    documented = [row for row in scaled if rates(row).startswith("the doc")]
    in_table = [row for row in documented if ranks(row) == TABLE_CORES]
    figures = {
        "figure-4.2": charts.lines(
            "Figures 4.1 and 4.2: 40 M tuples of a side on each core, SIMULATED", cores, throughput,
            kept.points(scaled, "tuples", lambda row: (f"{join(row)}, {rates(row)}", ranks(row)), 1e3),
            said["4.2"]),
        "table-4.1": charts.bars(
            "Table 4.1: tuples of a core, 1,024 cores, SIMULATED", SECONDS,
            kept.points(of(rows, "4.5"), "total", lambda row: (
                f"{number(row, 'build') / MILLION:.0f} M with {number(row, 'probe') / MILLION:.0f} M",
                join(row)), 1e3), said["table-4.1"]),
        "table-4.2": charts.bars(
            "Table 4.2: 1,024 cores by phase, the document's rates, SIMULATED", SECONDS,
            beside_model(in_table, "simulated"), said["table-4.2"]),
        "figure-4.5": charts.lines(
            "Figure 4.5: sides of one size, 1,024 cores, SIMULATED", Quantity("M tuples of a side and core"),
            SECONDS, kept.points(of(rows, "4.5"), "total", lambda row: (
                number(row, "build") == number(row, "probe")
                and (join(row), number(row, "probe") / MILLION) or None), 1e3), said["4.5"]),
    }
    for figure, kind in {"4.3": "radix", "4.4": "sort-merge"}.items():
        own = [row for row in documented if join(row) == kind]
        figures[f"figure-{figure}"] = charts.lines(
            f"Figure {figure}: {kind} join by phase, 40 M tuples of a side on each core, SIMULATED", cores,
            SECONDS, by_phase(own, ranks), said[figure])
    nodes = [row for row in of(rows, "4.6")]
    figures["figure-4.6"] = charts.lines(
        "Figure 4.6: cores of a node, SIMULATED", cores, throughput,
        kept.points(nodes, "tuples", lambda row: (
            f"{join(row)}, {number(row, 'ranks_per_node'):.0f} cores a node", ranks(row)), 1e3), said["4.6"])
    return figures


def draw(rows, said):
    return measured(rows, said) | racks(rows, said) | supercomputer(rows, said)


def run(lab):
    quick = lab.options.quick
    if lab.wants("3.7"):
        for form in ["threads", "processes"]:
            lab.run("3.7", f"fabric --form {form}{' --quick --rounds 1' if quick else ''}")
    if lab.wants("3.9"):
        for tuples in [1 << 14] if quick else [1 << power for power in range(22, 26)]:
            for where in ["--ranks 2", "--ranks 1 --threads 2"]:
                words = f"join {where} --build {tuples} --probe {tuples}"
                lab.run("3.9", words + (" --rounds 1" if quick else " --rounds 3"))
    simulated = "join --rates document --simulate-ranks"
    machine_counts = [2, 5, 10] if quick else range(2, 11)
    for link in RACKS.values():
        for count in machine_counts:
            there = f"{simulated} {count * CORES} --ranks-per-node {CORES} --link-gb {link}"
            if lab.wants("3.10"):
                for build, probe in [(1024, 1024), (2048, 2048), (4096, 4096),
                                     (256, 2048), (512, 2048), (1024, 2048)]:
                    each = [side * MILLION // (count * CORES) for side in (build, probe)]
                    lab.run("3.10", f"{there} --rank-build-tuples {each[0]} --rank-tuples {each[1]}")
            if lab.wants("3.13"):
                lab.run("3.13", f"{there} --rank-tuples {512 * MILLION // CORES}")
    if lab.wants("3.16"):
        for threads in [4, 8]:
            for count in machine_counts:
                each = RACK_TUPLES // (count * threads)
                lab.run("3.16", f"{simulated} {count * threads} --ranks-per-node {threads} "
                                f"--link-gb {RACKS['QDR']} --rank-tuples {each}")
    counts = "16,64" if quick else "16,64,256,512,1024,2048,4096"
    if lab.wants("4.2"):
        lab.run("4.2", f"{simulated} {counts}")
        lab.run("4.2", f"join --simulate-ranks {counts}{' --quick' if quick else ''}")
    if lab.wants("4.5"):
        for build, probe in [(40, 40), (20, 40), (10, 40), (20, 20), (10, 10)]:
            lab.run("4.5", f"{simulated} {TABLE_CORES} --rank-build-tuples {build * MILLION} "
                           f"--rank-tuples {probe * MILLION}")
    if lab.wants("4.6"):
        for cores in [4, 8, 16]:
            lab.run("4.6", f"{simulated} {counts} --ranks-per-node {cores}")
