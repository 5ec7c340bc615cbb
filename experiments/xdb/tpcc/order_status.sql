-- Clause 2.6, by number.
\set w random(1, :warehouses)
\set d random(1, 10)
\set c random(1, :customers)
CALL order_status(:w, :d, :c, NULL, NULL, NULL, NULL, NULL);
