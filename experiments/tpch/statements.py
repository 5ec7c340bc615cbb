"""TPC-H's tables and queries: `schema.sql` and `queries.sql`, which a test of Weft reads, too."""

import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = re.sub(r"^--.*\n", "", (HERE / "schema.sql").read_text(), flags=re.MULTILINE)
CREATED, INDEXES = SCHEMA.split("\n\n", 1)
TABLES = re.findall(r"CREATE TABLE (\w+)", CREATED)


def queries(scale):
    """The queries for this scale factor, by name."""
    parts = re.split(r"^-- (Q\d+)\n", (HERE / "queries.sql").read_text(), flags=re.MULTILINE)
    fraction = f"{0.0001 / scale:.10f}"
    found = zip(parts[1::2], parts[2::2])
    return {name: sql.strip().rstrip(";").replace("{fraction}", fraction) for name, sql in found}
