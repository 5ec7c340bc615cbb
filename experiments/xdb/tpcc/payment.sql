-- Clause 2.5: 60 of 100 customers by last name would come by payment_by_name; here all by number.
\set w random(1, :warehouses)
\set d random(1, 10)
\set c random(1, :customers)
\set amount random(100, 500000)
CALL payment(:w, :d, :w, :d, :c, :amount, NULL, NULL, NULL, NULL);
