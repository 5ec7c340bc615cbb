-- Clause 2.7, in the foreground.
\set w random(1, :warehouses)
\set carrier random(1, 10)
CALL delivery(:w, :carrier, NULL);
