-- Procedures through psql: the examples' transactions with CALL. Run from the repository's root.
\set VERBOSITY verbose
\set ON_ERROR_STOP off
\i examples/procedures/smallbank.sql
CALL open_account(1, 'Ann', 1000, 500);
CALL open_account(2, 'Bob', 1000, 500);
CALL balance(1, NULL);
CALL deposit_checking(1, 50);
CALL transact_savings(2, -400);
CALL write_check(2, 2000);
CALL send_payment(1, 2, 100);
CALL amalgamate(2, 1);
SELECT * FROM savings ORDER BY customer;
SELECT * FROM checking ORDER BY customer;
CALL transact_savings(1, -5000);
CALL balance(9, NULL);
CALL open_account(1, 'Ann', 0, 0);
BEGIN;
CALL deposit_checking(2, 7);
CALL balance(2, NULL);
ROLLBACK;
CALL balance(2, NULL);
\i examples/procedures/tpcc.sql
CALL load_items(20);
CALL load_warehouse(1, 20);
CALL load_customers(1, 1, 20);
CALL load_customers(1, 2, 20);
CALL new_order(1, 1, 5, 5, 1, 1, 2, 3, 1, 4, 5, 1, 6, 7, 1, 8, 9, 1, 10, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CALL payment(1, 1, 1, 2, 10, 4200, NULL, NULL, NULL, NULL);
CALL payment_by_name(1, 1, 1, 1, 'LAST0', 100, NULL, NULL);
CALL order_status(1, 1, 5, NULL, NULL, NULL, NULL, NULL);
CALL delivery(1, 3, NULL);
CALL delivery(1, 3, NULL);
CALL stock_level(1, 1, 55, NULL);
SELECT h_amount, h_data FROM history WHERE h_amount > 1000;
SELECT s_i_id, s_quantity, s_ytd, s_order_cnt FROM stock WHERE s_order_cnt > 0 ORDER BY s_i_id;
DROP PROCEDURE new_order, new_order_line, payment, payment_by_name, customer_by_name, order_status,
    order_status_by_name, delivery, stock_level, load_items, load_warehouse, load_customers;
DROP PROCEDURE open_account, balance, deposit_checking, transact_savings, amalgamate, write_check, send_payment;
DROP TABLE warehouse, district, customer, history, orders, new_order, order_line, item, stock;
DROP TABLE account, savings, checking;
