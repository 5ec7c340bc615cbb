-- oltp_insert: keys by chance above the loaded ones, so two clients hardly ever draw the same one.
\set id random(100000000, 2000000000)
\set k random(1, :rows)
INSERT INTO sbtest VALUES (:id, :k, :k, :id) ON CONFLICT DO NOTHING;
