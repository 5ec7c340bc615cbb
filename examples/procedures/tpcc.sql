-- TPC-C: its schema and its five transactions as procedures.
--
-- TPC Benchmark C, revision 5.11, clause 2. Amounts are in cents, taxes and discounts in ten-thousandths, so that
-- all sums are exact integers. An order has up to fifteen lines: new_order takes them as parameters and calls
-- new_order_line for each. Keys that follow from parameters are locked row by row. Where a key is read from the
-- database (an order's number, a customer found by name), the rows of that warehouse and district are locked:
-- EXPLAIN CALL tells which.
--
--     psql -h 127.0.0.1 -p 5433 -U postgres -f examples/procedures/tpcc.sql postgres

CREATE TABLE warehouse (
    w_id integer PRIMARY KEY,
    w_name varchar(10) NOT NULL,
    w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20), w_state varchar(2), w_zip varchar(9),
    w_tax integer NOT NULL,
    w_ytd bigint NOT NULL
);
CREATE TABLE district (
    d_w_id integer, d_id integer,
    d_name varchar(10) NOT NULL,
    d_street_1 varchar(20), d_street_2 varchar(20), d_city varchar(20), d_state varchar(2), d_zip varchar(9),
    d_tax integer NOT NULL,
    d_ytd bigint NOT NULL,
    d_next_o_id integer NOT NULL,
    PRIMARY KEY (d_w_id, d_id)
);
CREATE TABLE customer (
    c_w_id integer, c_d_id integer, c_id integer,
    c_first varchar(16), c_middle varchar(2), c_last varchar(16) NOT NULL,
    c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state varchar(2), c_zip varchar(9),
    c_phone varchar(16), c_since timestamptz,
    c_credit varchar(2) NOT NULL,
    c_credit_lim bigint NOT NULL,
    c_discount integer NOT NULL,
    c_balance bigint NOT NULL,
    c_ytd_payment bigint NOT NULL,
    c_payment_cnt integer NOT NULL,
    c_delivery_cnt integer NOT NULL,
    c_data varchar(500),
    PRIMARY KEY (c_w_id, c_d_id, c_id)
);
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE TABLE history (
    h_c_id integer, h_c_d_id integer, h_c_w_id integer, h_d_id integer, h_w_id integer,
    h_date timestamptz, h_amount bigint, h_data varchar(24)
);
CREATE TABLE orders (
    o_w_id integer, o_d_id integer, o_id integer,
    o_c_id integer NOT NULL,
    o_entry_d timestamptz NOT NULL,
    o_carrier_id integer,
    o_ol_cnt integer NOT NULL,
    o_all_local integer NOT NULL,
    PRIMARY KEY (o_w_id, o_d_id, o_id)
);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
CREATE TABLE new_order (
    no_w_id integer, no_d_id integer, no_o_id integer,
    PRIMARY KEY (no_w_id, no_d_id, no_o_id)
);
CREATE TABLE order_line (
    ol_w_id integer, ol_d_id integer, ol_o_id integer, ol_number integer,
    ol_i_id integer NOT NULL,
    ol_supply_w_id integer NOT NULL,
    ol_delivery_d timestamptz,
    ol_quantity integer NOT NULL,
    ol_amount bigint NOT NULL,
    ol_dist_info varchar(24),
    PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)
);
CREATE TABLE item (
    i_id integer PRIMARY KEY,
    i_im_id integer, i_name varchar(24) NOT NULL,
    i_price bigint NOT NULL,
    i_data varchar(50)
);
CREATE TABLE stock (
    s_w_id integer, s_i_id integer,
    s_quantity integer NOT NULL,
    s_dist_01 varchar(24),
    s_dist_02 varchar(24),
    s_dist_03 varchar(24),
    s_dist_04 varchar(24),
    s_dist_05 varchar(24),
    s_dist_06 varchar(24),
    s_dist_07 varchar(24),
    s_dist_08 varchar(24),
    s_dist_09 varchar(24),
    s_dist_10 varchar(24),
    s_ytd bigint NOT NULL,
    s_order_cnt integer NOT NULL,
    s_remote_cnt integer NOT NULL,
    s_data varchar(50),
    PRIMARY KEY (s_w_id, s_i_id)
);

-- Items 1 .. p_items, the same in all warehouses.
CREATE PROCEDURE load_items(p_items integer)
LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..p_items LOOP
        INSERT INTO item VALUES (i, i % 10000, 'item ' || i::text, 100 + i % 9900, 'data of item ' || i::text);
    END LOOP;
END
$$;

-- One warehouse with stock of every item and ten districts.
CREATE PROCEDURE load_warehouse(p_w_id integer, p_items integer)
LANGUAGE plpgsql AS $$
DECLARE
    info text;
BEGIN
    INSERT INTO warehouse VALUES (p_w_id, 'W' || p_w_id::text, 'street', 'street', 'city', 'ST', '123411111',
        1000, 30000000);
    FOR i IN 1..p_items LOOP
        info := 'w' || p_w_id::text || ' i' || i::text || ' d';
        INSERT INTO stock VALUES (p_w_id, i, 50 + i % 50, info || '1', info || '2', info || '3', info || '4', info || '5', info || '6', info || '7', info || '8', info || '9', info || '10',
            0, 0, 0, 'data of stock');
    END LOOP;
    FOR d IN 1..10 LOOP
        INSERT INTO district VALUES (p_w_id, d, 'D' || d::text, 'street', 'street', 'city', 'ST', '123411111',
            d * 100, 3000000, 1);
    END LOOP;
END
$$;

-- Customers 1 .. p_customers of a district; ten share a last name, every tenth has bad credit.
CREATE PROCEDURE load_customers(p_w_id integer, p_d_id integer, p_customers integer)
LANGUAGE plpgsql AS $$
DECLARE
    credit text;
BEGIN
    FOR c IN 1..p_customers LOOP
        credit := 'GC';
        IF c % 10 = 0 THEN
            credit := 'BC';
        END IF;
        INSERT INTO customer VALUES (p_w_id, p_d_id, c, 'FIRST' || (c % 7)::text, 'OE', 'LAST' || (c / 10)::text,
            'street', 'street', 'city', 'ST', '123411111', '0123456789012345', now(), credit, 5000000,
            c % 5000, -1000, 1000, 1, 0, 'data of customer ' || c::text);
        INSERT INTO history VALUES (c, p_d_id, p_w_id, p_d_id, p_w_id, now(), 1000, 'first payment');
    END LOOP;
END
$$;

-- 2.4.2.2: one line of a new order. Adds its amount to p_total.
CREATE PROCEDURE new_order_line(p_w_id integer, p_d_id integer, p_o_id integer, p_number integer,
    p_i_id integer, p_supply_w_id integer, p_quantity integer, INOUT p_total bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_price bigint;
    v_amount bigint;
    v_remote integer := 0;
    s RECORD;
BEGIN
    SELECT i_price INTO v_price FROM item WHERE i_id = p_i_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'item number % is not valid', p_i_id;
    END IF;
    SELECT s_quantity, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10
        INTO s FROM stock WHERE s_w_id = p_supply_w_id AND s_i_id = p_i_id;
    IF s.s_quantity >= p_quantity + 10 THEN
        s.s_quantity := s.s_quantity - p_quantity;
    ELSE
        s.s_quantity := s.s_quantity - p_quantity + 91;
    END IF;
    IF p_supply_w_id <> p_w_id THEN
        v_remote := 1;
    END IF;
    UPDATE stock SET s_quantity = s.s_quantity, s_ytd = s_ytd + p_quantity, s_order_cnt = s_order_cnt + 1,
        s_remote_cnt = s_remote_cnt + v_remote
        WHERE s_w_id = p_supply_w_id AND s_i_id = p_i_id;
    IF p_d_id = 2 THEN
        s.s_dist_01 := s.s_dist_02;
    ELSIF p_d_id = 3 THEN
        s.s_dist_01 := s.s_dist_03;
    ELSIF p_d_id = 4 THEN
        s.s_dist_01 := s.s_dist_04;
    ELSIF p_d_id = 5 THEN
        s.s_dist_01 := s.s_dist_05;
    ELSIF p_d_id = 6 THEN
        s.s_dist_01 := s.s_dist_06;
    ELSIF p_d_id = 7 THEN
        s.s_dist_01 := s.s_dist_07;
    ELSIF p_d_id = 8 THEN
        s.s_dist_01 := s.s_dist_08;
    ELSIF p_d_id = 9 THEN
        s.s_dist_01 := s.s_dist_09;
    ELSIF p_d_id = 10 THEN
        s.s_dist_01 := s.s_dist_10;
    END IF;
    v_amount := p_quantity * v_price;
    INSERT INTO order_line VALUES (p_w_id, p_d_id, p_o_id, p_number, p_i_id, p_supply_w_id, NULL, p_quantity,
        v_amount, s.s_dist_01);
    p_total := p_total + v_amount;
END
$$;

-- 2.4: New-Order. Lines beyond p_ol_cnt are NULL.
CREATE PROCEDURE new_order(p_w_id integer, p_d_id integer, p_c_id integer, p_ol_cnt integer,
    i1 integer, w1 integer, q1 integer,
    i2 integer, w2 integer, q2 integer,
    i3 integer, w3 integer, q3 integer,
    i4 integer, w4 integer, q4 integer,
    i5 integer, w5 integer, q5 integer,
    i6 integer, w6 integer, q6 integer,
    i7 integer, w7 integer, q7 integer,
    i8 integer, w8 integer, q8 integer,
    i9 integer, w9 integer, q9 integer,
    i10 integer, w10 integer, q10 integer,
    i11 integer, w11 integer, q11 integer,
    i12 integer, w12 integer, q12 integer,
    i13 integer, w13 integer, q13 integer,
    i14 integer, w14 integer, q14 integer,
    i15 integer, w15 integer, q15 integer,
    OUT p_o_id integer, OUT p_last text, OUT p_credit text, OUT p_discount integer, OUT p_w_tax integer,
    OUT p_d_tax integer, OUT p_total bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_all_local integer := 1;
BEGIN
    SELECT w_tax INTO STRICT p_w_tax FROM warehouse WHERE w_id = p_w_id;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w_id AND d_id = p_d_id
        RETURNING d_next_o_id - 1, d_tax INTO STRICT p_o_id, p_d_tax;
    SELECT c_discount, c_last, c_credit INTO STRICT p_discount, p_last, p_credit
        FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = p_c_id;
    IF w1 <> p_w_id OR w2 <> p_w_id OR w3 <> p_w_id OR w4 <> p_w_id OR w5 <> p_w_id OR 
        w6 <> p_w_id OR w7 <> p_w_id OR w8 <> p_w_id OR w9 <> p_w_id OR w10 <> p_w_id OR 
        w11 <> p_w_id OR w12 <> p_w_id OR w13 <> p_w_id OR w14 <> p_w_id OR w15 <> p_w_id THEN
        v_all_local := 0;
    END IF;
    INSERT INTO orders VALUES (p_w_id, p_d_id, p_o_id, p_c_id, now(), NULL, p_ol_cnt, v_all_local);
    INSERT INTO new_order VALUES (p_w_id, p_d_id, p_o_id);
    p_total := 0;
    CALL new_order_line(p_w_id, p_d_id, p_o_id, 1, i1, w1, q1, p_total);
    CALL new_order_line(p_w_id, p_d_id, p_o_id, 2, i2, w2, q2, p_total);
    CALL new_order_line(p_w_id, p_d_id, p_o_id, 3, i3, w3, q3, p_total);
    CALL new_order_line(p_w_id, p_d_id, p_o_id, 4, i4, w4, q4, p_total);
    CALL new_order_line(p_w_id, p_d_id, p_o_id, 5, i5, w5, q5, p_total);
    IF p_ol_cnt >= 6 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 6, i6, w6, q6, p_total);
    END IF;
    IF p_ol_cnt >= 7 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 7, i7, w7, q7, p_total);
    END IF;
    IF p_ol_cnt >= 8 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 8, i8, w8, q8, p_total);
    END IF;
    IF p_ol_cnt >= 9 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 9, i9, w9, q9, p_total);
    END IF;
    IF p_ol_cnt >= 10 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 10, i10, w10, q10, p_total);
    END IF;
    IF p_ol_cnt >= 11 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 11, i11, w11, q11, p_total);
    END IF;
    IF p_ol_cnt >= 12 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 12, i12, w12, q12, p_total);
    END IF;
    IF p_ol_cnt >= 13 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 13, i13, w13, q13, p_total);
    END IF;
    IF p_ol_cnt >= 14 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 14, i14, w14, q14, p_total);
    END IF;
    IF p_ol_cnt >= 15 THEN
        CALL new_order_line(p_w_id, p_d_id, p_o_id, 15, i15, w15, q15, p_total);
    END IF;
    p_total := p_total * (10000 - p_discount) / 10000 * (10000 + p_w_tax + p_d_tax) / 10000;
END
$$;

-- 2.5: Payment of a customer known by number.
CREATE PROCEDURE payment(p_w_id integer, p_d_id integer, p_c_w_id integer, p_c_d_id integer, p_c_id integer,
    p_amount bigint, OUT p_first text, OUT p_last text, OUT p_balance bigint, OUT p_data text)
LANGUAGE plpgsql AS $$
DECLARE
    v_w_name text;
    v_d_name text;
    v_credit text;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + p_amount WHERE w_id = p_w_id
        RETURNING w_name INTO STRICT v_w_name;
    UPDATE district SET d_ytd = d_ytd + p_amount WHERE d_w_id = p_w_id AND d_id = p_d_id
        RETURNING d_name INTO STRICT v_d_name;
    UPDATE customer SET c_balance = c_balance - p_amount, c_ytd_payment = c_ytd_payment + p_amount,
        c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = p_c_id
        RETURNING c_first, c_last, c_balance, c_credit, c_data
        INTO STRICT p_first, p_last, p_balance, v_credit, p_data;
    IF v_credit = 'BC' THEN
        p_data := left(p_c_id::text || ' ' || p_c_d_id::text || ' ' || p_c_w_id::text || ' ' || p_d_id::text
            || ' ' || p_w_id::text || ' ' || p_amount::text || ' ' || p_data, 500);
        UPDATE customer SET c_data = p_data WHERE c_w_id = p_c_w_id AND c_d_id = p_c_d_id AND c_id = p_c_id;
    END IF;
    INSERT INTO history VALUES (p_c_id, p_c_d_id, p_c_w_id, p_d_id, p_w_id, now(), p_amount,
        v_w_name || '    ' || v_d_name);
END
$$;

-- 2.5.2.2: the customer in the middle of those with a last name, by first name.
CREATE PROCEDURE customer_by_name(p_w_id integer, p_d_id integer, p_last text, OUT p_c_id integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_count integer := 0;
    c RECORD;
BEGIN
    FOR c IN SELECT c_id FROM customer WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_last LOOP
        v_count := v_count + 1;
    END LOOP;
    IF v_count = 0 THEN
        RAISE EXCEPTION 'no customer of district % is called %', p_d_id, p_last USING ERRCODE = 'no_data_found';
    END IF;
    SELECT c_id INTO p_c_id FROM customer
        WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_last = p_last
        ORDER BY c_first LIMIT 1 OFFSET (v_count - 1) / 2;
END
$$;

CREATE PROCEDURE payment_by_name(p_w_id integer, p_d_id integer, p_c_w_id integer, p_c_d_id integer,
    p_c_last text, p_amount bigint, OUT p_c_id integer, OUT p_balance bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_first text;
    v_last text;
    v_data text;
BEGIN
    CALL customer_by_name(p_c_w_id, p_c_d_id, p_c_last, p_c_id);
    CALL payment(p_w_id, p_d_id, p_c_w_id, p_c_d_id, p_c_id, p_amount, v_first, v_last, p_balance, v_data);
END
$$;

-- 2.6: Order-Status of a customer known by number: the last order and its lines.
CREATE PROCEDURE order_status(p_w_id integer, p_d_id integer, p_c_id integer,
    OUT p_last text, OUT p_balance bigint, OUT p_o_id integer, OUT p_carrier_id integer, OUT p_lines text)
LANGUAGE plpgsql AS $$
DECLARE
    l RECORD;
BEGIN
    SELECT c_last, c_balance INTO STRICT p_last, p_balance FROM customer
        WHERE c_w_id = p_w_id AND c_d_id = p_d_id AND c_id = p_c_id;
    SELECT o_id, o_carrier_id INTO p_o_id, p_carrier_id FROM orders
        WHERE o_w_id = p_w_id AND o_d_id = p_d_id AND o_c_id = p_c_id ORDER BY o_id DESC LIMIT 1;
    p_lines := '';
    FOR l IN SELECT ol_i_id, ol_quantity, ol_amount FROM order_line
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id = p_o_id LOOP
        p_lines := p_lines || l.ol_quantity::text || ' of ' || l.ol_i_id::text || ' for ' || l.ol_amount::text
            || ', ';
    END LOOP;
END
$$;

CREATE PROCEDURE order_status_by_name(p_w_id integer, p_d_id integer, p_c_last text,
    OUT p_c_id integer, OUT p_balance bigint, OUT p_o_id integer, OUT p_carrier_id integer, OUT p_lines text)
LANGUAGE plpgsql AS $$
DECLARE
    v_last text;
BEGIN
    CALL customer_by_name(p_w_id, p_d_id, p_c_last, p_c_id);
    CALL order_status(p_w_id, p_d_id, p_c_id, v_last, p_balance, p_o_id, p_carrier_id, p_lines);
END
$$;

-- 2.7: Delivery of the oldest order of each district.
CREATE PROCEDURE delivery(p_w_id integer, p_carrier_id integer, OUT p_delivered integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_o_id integer;
    v_c_id integer;
    v_total bigint;
    l RECORD;
BEGIN
    p_delivered := 0;
    FOR d IN 1..10 LOOP
        SELECT no_o_id INTO v_o_id FROM new_order WHERE no_w_id = p_w_id AND no_d_id = d
            ORDER BY no_o_id LIMIT 1;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM new_order WHERE no_w_id = p_w_id AND no_d_id = d AND no_o_id = v_o_id;
        UPDATE orders SET o_carrier_id = p_carrier_id
            WHERE o_w_id = p_w_id AND o_d_id = d AND o_id = v_o_id RETURNING o_c_id INTO STRICT v_c_id;
        v_total := 0;
        FOR l IN SELECT ol_amount FROM order_line
            WHERE ol_w_id = p_w_id AND ol_d_id = d AND ol_o_id = v_o_id LOOP
            v_total := v_total + l.ol_amount;
        END LOOP;
        UPDATE order_line SET ol_delivery_d = now()
            WHERE ol_w_id = p_w_id AND ol_d_id = d AND ol_o_id = v_o_id;
        UPDATE customer SET c_balance = c_balance + v_total, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = p_w_id AND c_d_id = d AND c_id = v_c_id;
        p_delivered := p_delivered + 1;
    END LOOP;
END
$$;

-- 2.8: Stock-Level: how many items of the last twenty orders are low in stock.
CREATE PROCEDURE stock_level(p_w_id integer, p_d_id integer, p_threshold integer, OUT p_low integer)
LANGUAGE plpgsql AS $$
DECLARE
    v_next integer;
    v_quantity integer;
    v_counted boolean;
    l RECORD;
    e RECORD;
BEGIN
    SELECT d_next_o_id INTO STRICT v_next FROM district WHERE d_w_id = p_w_id AND d_id = p_d_id;
    p_low := 0;
    FOR l IN SELECT ol_o_id, ol_number, ol_i_id FROM order_line
        WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id >= v_next - 20 AND ol_o_id < v_next LOOP
        SELECT s_quantity INTO v_quantity FROM stock WHERE s_w_id = p_w_id AND s_i_id = l.ol_i_id;
        IF v_quantity < p_threshold THEN
            -- An item counts once: not if an earlier line has it too.
            v_counted := false;
            FOR e IN SELECT ol_o_id, ol_number, ol_i_id FROM order_line
                WHERE ol_w_id = p_w_id AND ol_d_id = p_d_id AND ol_o_id >= v_next - 20 AND ol_o_id < v_next LOOP
                EXIT WHEN e.ol_o_id = l.ol_o_id AND e.ol_number = l.ol_number;
                IF e.ol_i_id = l.ol_i_id THEN
                    v_counted := true;
                    EXIT;
                END IF;
            END LOOP;
            IF NOT v_counted THEN
                p_low := p_low + 1;
            END IF;
        END IF;
    END LOOP;
END
$$;
