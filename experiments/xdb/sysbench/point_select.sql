-- oltp_point_select.
\set id random(1, :rows)
SELECT c FROM sbtest WHERE id = :id;
