-- SmallBank: its schema and its six transactions as procedures.
--
-- Alomar, Cahill, Fekete, Roehm: "The Cost of Serializability on Platforms That Use Snapshot Isolation", ICDE
-- 2008. Customers are numbered; amounts are in cents. Every key follows from the parameters, so each program
-- locks exactly the rows that it touches: see EXPLAIN CALL write_check(1, 100).
--
--     psql -h 127.0.0.1 -p 5433 -U postgres -f examples/procedures/smallbank.sql postgres

CREATE TABLE account (
    customer bigint PRIMARY KEY,
    name varchar(64) NOT NULL
);
CREATE TABLE savings (
    customer bigint PRIMARY KEY,
    balance bigint NOT NULL
);
CREATE TABLE checking (
    customer bigint PRIMARY KEY,
    balance bigint NOT NULL
);

CREATE PROCEDURE open_account(p_customer bigint, p_name text, p_savings bigint, p_checking bigint)
LANGUAGE sql AS $$
    INSERT INTO account VALUES (p_customer, p_name);
    INSERT INTO savings VALUES (p_customer, p_savings);
    INSERT INTO checking VALUES (p_customer, p_checking);
$$;

-- What a customer owns.
CREATE PROCEDURE balance(p_customer bigint, OUT total bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_savings bigint;
    v_checking bigint;
BEGIN
    SELECT balance INTO STRICT v_savings FROM savings WHERE customer = p_customer;
    SELECT balance INTO STRICT v_checking FROM checking WHERE customer = p_customer;
    total := v_savings + v_checking;
END
$$;

CREATE PROCEDURE deposit_checking(p_customer bigint, p_amount bigint)
LANGUAGE plpgsql AS $$
BEGIN
    IF p_amount < 0 THEN
        RAISE EXCEPTION 'a deposit of % is not possible', p_amount;
    END IF;
    UPDATE checking SET balance = balance + p_amount WHERE customer = p_customer;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'customer % has no checking account', p_customer;
    END IF;
END
$$;

-- Adds to the savings, or takes from them what is there.
CREATE PROCEDURE transact_savings(p_customer bigint, p_amount bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_balance bigint;
BEGIN
    UPDATE savings SET balance = balance + p_amount WHERE customer = p_customer
        RETURNING balance INTO STRICT v_balance;
    IF v_balance < 0 THEN
        RAISE EXCEPTION 'customer % cannot take % from savings', p_customer, -p_amount;
    END IF;
END
$$;

-- Moves everything that one customer owns to the checking account of another.
CREATE PROCEDURE amalgamate(p_from bigint, p_to bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_savings bigint;
    v_checking bigint;
BEGIN
    SELECT balance INTO STRICT v_savings FROM savings WHERE customer = p_from;
    SELECT balance INTO STRICT v_checking FROM checking WHERE customer = p_from;
    UPDATE savings SET balance = 0 WHERE customer = p_from;
    UPDATE checking SET balance = 0 WHERE customer = p_from;
    UPDATE checking SET balance = balance + v_savings + v_checking WHERE customer = p_to;
END
$$;

-- Cashes a check; one that is not covered costs a dollar more.
CREATE PROCEDURE write_check(p_customer bigint, p_amount bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_total bigint;
    v_penalty bigint := 0;
BEGIN
    CALL balance(p_customer, v_total);
    IF v_total < p_amount THEN
        v_penalty := 100;
    END IF;
    UPDATE checking SET balance = balance - p_amount - v_penalty WHERE customer = p_customer;
END
$$;

CREATE PROCEDURE send_payment(p_from bigint, p_to bigint, p_amount bigint)
LANGUAGE plpgsql AS $$
DECLARE
    v_balance bigint;
BEGIN
    SELECT balance INTO STRICT v_balance FROM checking WHERE customer = p_from;
    IF v_balance < p_amount THEN
        RAISE EXCEPTION 'customer % has % and cannot send %', p_from, v_balance, p_amount;
    END IF;
    UPDATE checking SET balance = balance - p_amount WHERE customer = p_from;
    UPDATE checking SET balance = balance + p_amount WHERE customer = p_to;
END
$$;
