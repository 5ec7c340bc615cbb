"""The statements that are measured."""

# Whole tables, read by one client.
ANALYTICAL = {
    "Q1 sums by flag and status": """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 -
  l_discount)),
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice),
  avg(l_discount),
  count(*)
FROM lineitem WHERE l_shipdate <= date '1998-12-01' - 90
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "Q3 three tables, first ten": """
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
GROUP BY l_orderkey, o_orderdate ORDER BY revenue DESC, o_orderdate LIMIT 10""",
    "Q5 four tables by nation": """
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND c_nationkey = n_nationkey AND n_regionkey = 2
  AND o_orderdate >= date '1994-01-01' AND o_orderdate < date '1995-01-01'
GROUP BY n_name ORDER BY revenue DESC""",
    "Q6 one sum": """
SELECT sum(l_extendedprice * l_discount) FROM lineitem
WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1995-01-01'
  AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "Q10 returned, first twenty": """
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= date '1993-10-01'
  AND o_orderdate < date '1994-01-01' AND l_returnflag = 'R' AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, n_name ORDER BY revenue DESC, c_custkey LIMIT 20""",
    "Q12 CASE by mode": """
SELECT l_shipmode, sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0
  END),
  sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END)
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
  AND l_shipdate < l_commitdate AND l_receiptdate >= date '1994-01-01' AND l_receiptdate < date '1995-01-01'
GROUP BY l_shipmode ORDER BY l_shipmode""",
    "Q14 share of promotions": """
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
  / sum(l_extendedprice * (1 - l_discount))
FROM lineitem, part
WHERE l_partkey = p_partkey AND l_shipdate >= date '1995-09-01' AND l_shipdate < date '1995-10-01'""",
    "group by a text": """
SELECT c_name, count(*), sum(o_totalprice) FROM customer, orders WHERE c_custkey = o_custkey
GROUP BY c_name ORDER BY 3 DESC, 1 LIMIT 10""",
    "count distinct": """
SELECT l_shipmode, count(DISTINCT l_partkey) FROM lineitem GROUP BY l_shipmode ORDER BY l_shipmode""",
    "Q17 correlated subquery": """
SELECT sum(l_extendedprice) / 7.0 FROM lineitem, part
WHERE p_partkey = l_partkey AND p_brand = 'Brand#23'
  AND l_quantity < (SELECT 0.4 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    "Q18 IN subquery": """
SELECT c_name, o_orderkey, o_totalprice, sum(l_quantity) FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 260)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, o_orderkey, o_totalprice ORDER BY o_totalprice DESC, o_orderkey LIMIT 100""",
    "Q4 EXISTS": """
SELECT o_orderpriority, count(*) FROM orders
WHERE o_orderdate >= date '1993-07-01' AND o_orderdate < date '1993-10-01'
  AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    "ORDER BY LIMIT": """
SELECT l_orderkey, l_linenumber, l_extendedprice FROM lineitem
ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 20""",
    "window: rank by customer": """
SELECT count(*), sum(r) FROM
  (SELECT rank() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC) AS r FROM orders) AS ranked""",
    "window: running sum": """
SELECT max(s) FROM (SELECT sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate,
  o_orderkey) AS s
  FROM orders) AS running""",
    "all rows in order": "SELECT * FROM orders ORDER BY o_orderkey",
}

# Few rows, many times; {orders}, {customers}: how many there are.
SMALL = {
    "join by key, 1 row": """\\set o random(1, {orders})
SELECT o_totalprice, c_name FROM orders JOIN customer ON c_custkey = o_custkey WHERE o_orderkey = :o;
""",
    "join by key, 1 to 7 rows": """\\set o random(1, {orders})
SELECT l_linenumber, l_extendedprice, o_orderdate FROM orders JOIN lineitem ON l_orderkey = o_orderkey
  WHERE o_orderkey = :o;
""",
    "three tables by key": """\\set o random(1, {orders})
SELECT l_linenumber, c_name, l_extendedprice * (1 - l_discount) FROM lineitem JOIN orders ON o_orderkey =
  l_orderkey
  JOIN customer ON c_custkey = o_custkey WHERE l_orderkey = :o ORDER BY l_linenumber;
""",
    "group of 20 rows": """SELECT kind, count(*), sum(amount) FROM few GROUP BY kind;
""",
    "group of one order": """\\set o random(1, {orders})
SELECT l_returnflag, count(*), sum(l_quantity) FROM lineitem WHERE l_orderkey = :o GROUP BY l_returnflag;
""",
    "scalar subquery": """\\set o random(1, {orders})
SELECT o_orderkey, (SELECT count(*) FROM lineitem WHERE l_orderkey = o_orderkey) FROM orders WHERE
  o_orderkey = :o;
""",
    "join of 20 and 25 rows": """SELECT id, n_name FROM few JOIN nation ON n_nationkey = id WHERE amount
  > 300 ORDER BY id LIMIT 5;
""",
    "expressions over one row": """\\set o random(1, {orders})
SELECT upper(o_orderpriority) || '!', extract(year FROM o_orderdate), o_totalprice / 3 FROM orders
  WHERE o_orderkey = :o AND o_orderpriority LIKE '%';
""",
}
