-- Clause 2.8.
\set w random(1, :warehouses)
\set d random(1, 10)
\set threshold random(10, 20)
CALL stock_level(:w, :d, :threshold, NULL);
