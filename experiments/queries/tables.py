"""Tables after TPC-H's, as CSV files with rows that are the same on every machine."""

import random

CREATED = """
CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text NOT NULL, n_regionkey int NOT NULL);
CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name text NOT NULL, c_nationkey int NOT NULL,
  c_acctbal numeric(15,2) NOT NULL, c_mktsegment text NOT NULL);
CREATE TABLE part (p_partkey int PRIMARY KEY, p_name text NOT NULL, p_brand text NOT NULL, p_type text
  NOT NULL,
  p_size int NOT NULL, p_retailprice numeric(15,2) NOT NULL);
CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int NOT NULL, o_orderstatus text NOT NULL,
  o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority text NOT NULL);
CREATE TABLE lineitem (l_orderkey int NOT NULL, l_partkey int NOT NULL, l_linenumber int NOT NULL,
  l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT
  NULL,
  l_tax numeric(15,2) NOT NULL, l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date
  NOT NULL,
  l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipmode text NOT NULL,
  PRIMARY KEY (l_orderkey, l_linenumber));
CREATE INDEX lineitem_part ON lineitem (l_partkey);
CREATE TABLE few (id int PRIMARY KEY, kind text NOT NULL, amount numeric(15,2) NOT NULL);
"""

NATIONS = """ALGERIA ARGENTINA BRAZIL CANADA EGYPT ETHIOPIA FRANCE GERMANY INDIA INDONESIA IRAN IRAQ
  JAPAN JORDAN
KENYA MOROCCO MOZAMBIQUE PERU CHINA ROMANIA ARABIA VIETNAM RUSSIA KINGDOM STATES""".split()
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
MATERIALS = ["BRASS", "COPPER", "NICKEL", "STEEL", "TIN"]
COATINGS = ["ANODIZED", "BRUSHED", "BURNISHED", "PLATED", "POLISHED"]
SIZES = ["ECONOMY", "LARGE", "MEDIUM", "PROMO", "SMALL", "STANDARD"]
MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def day(number):
    """The day so many days after 1992-01-01; no year has a 29th of February."""
    year, rest = 1992 + number // 365, number % 365
    for month, days in enumerate(MONTHS, 1):
        if rest < days:
            return f"{year}-{month:02}-{rest + 1:02}"
        rest -= days
    raise AssertionError("365 days have 12 months")


def cents(draw, least, most):
    return f"{draw.randint(least, most) / 100:.2f}"


def rows(orders):
    """(table, rows) with so many orders of four lines on average, ten orders a customer."""
    draw = random.Random(17)
    customers, parts = max(orders // 10, 10), max(orders // 7, 10)
    yield "nation", [(key, name, key % 5) for key, name in enumerate(NATIONS)]
    yield (
        "customer",
        [
            (key, f"Customer#{key:09}",
             draw.randrange(25), cents(draw, -99999, 999999), draw.choice(SEGMENTS))
            for key in range(1, customers + 1)
        ],
    )
    yield (
        "part",
        [
            (
                key,
                f"{draw.choice(COATINGS).lower()} part {key}",
                f"Brand#{draw.randint(1, 5)}{draw.randint(1, 5)}",
                f"{draw.choice(SIZES)} {draw.choice(COATINGS)} {draw.choice(MATERIALS)}",
                draw.randint(1, 50),
                cents(draw, 90000, 200000),
            )
            for key in range(1, parts + 1)
        ],
    )
    ordered, lines = [], []
    for key in range(1, orders + 1):
        placed = draw.randrange(2406)
        total = 0
        for number in range(1, draw.randint(1, 7) + 1):
            quantity, price = draw.randint(1, 50), draw.randint(90000, 200000)
            shipped = placed + draw.randint(1, 121)
            received = shipped + draw.randint(1, 30)
            total += quantity * price
            flag = draw.choice("AR") if received <= 1263 else "N"
            status = "F" if shipped <= 1263 else "O"
            lines.append(
                (
                    key,
                    draw.randint(1, parts),
                    number,
                    f"{quantity}.00",
                    f"{quantity * price / 100:.2f}",
                    f"0.{draw.randint(0, 10):02}",
                    f"0.{draw.randint(0, 8):02}",
                    flag,
                    status,
                    day(shipped),
                    day(placed + draw.randint(30, 90)),
                    day(received),
                    draw.choice(MODES),
                )
            )
        status = draw.choice("FOP")
        priority = draw.choice(PRIORITIES)
        customer = draw.randint(1, customers)
        ordered.append((key, customer, status, f"{total / 100:.2f}", day(placed), priority))
    yield "orders", ordered
    yield "lineitem", lines
    yield "few", [(key, f"kind {key % 5}", f"{key * 37 % 1000}.{key:02}") for key in range(1, 21)]


def write(directory, orders):
    """Writes `NAME.csv` for every table; their names and paths."""
    written = []
    for name, of_table in rows(orders):
        path = directory / f"{name}.csv"
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in of_table))
        path.chmod(0o644)
        written.append((name, path))
    return written
