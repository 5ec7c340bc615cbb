-- Writes the golden tables of this folder from a PostgreSQL 15 server:
--
--     psql -X -q -At -F "$(printf '\t')" -v table=text   -f generate.sql > text.tsv      (likewise cast, numeric, binary)
--
-- The server's settings are the defaults, with TimeZone = UTC. Every line is a case; its last column is the answer:
-- `=` and the result, or `!`, the SQLSTATE, the message and, where there is one, the DETAIL. Backslash, tab and
-- newline are written \\, \t, \n.

create function pg_temp.ask(query text) returns text language plpgsql as $$
declare
    answer text;
    state text;
    message text;
    detail text;
begin
    execute query into answer;
    return '=' || coalesce(answer, 'NULL');
exception when others then
    get stacked diagnostics state = returned_sqlstate, message = message_text, detail = pg_exception_detail;
    return '!' || state || ' ' || message || case when detail <> '' then ' / ' || detail else '' end;
end $$;

create function pg_temp.escaped(plain text) returns text language sql as $$
    select replace(replace(replace(plain, '\', '\\'), E'\t', '\t'), E'\n', '\n')
$$;

create temp table inputs (id serial, ty text, input text);

insert into inputs (ty, input)
select 'boolean', v from unnest(array['t', 'f', 'true', 'TRUE', 'tru', 'yes', 'y', 'on', 'o', 'of', 'off', 'n', 'no', '1', '0', '10', ' t ',
    '', 'x', 'truex', 'null']) v
union all
select ty, v from unnest(array['smallint', 'integer', 'bigint']) ty, unnest(array['0', '-0', '+7', '  12 ', '32767', '32768', '-32768',
    '-32769', '2147483647', '2147483648', '-2147483648', '-2147483649', '9223372036854775807', '9223372036854775808',
    '-9223372036854775808', '-9223372036854775809', '99999999999999999999999x', '', ' ', '-', '+-1', '1x', '1 x', '1.0', '1e3', '0x10',
    '1_000', E'\t5\n', '007', '- 1']) v
union all
select ty, v from unnest(array['real', 'double precision']) ty, unnest(array['0', '-0', '1', '-1.5', '0.1', '1e5', '1e6', '1e14', '1e15', '1e16',
    '123456', '1234567', '123456789012345', '1234567890123456', '0.0001', '0.00001', '0.00012345', '1.5e-5', '3.4028235e38', '3.4e39',
    '1e-45', '1e-46', '1.1754944e-38', '1e23', '9007199254740993', '5e-324', '2e-324', '1.7976931348623157e308', '1e309', 'NaN', 'nan', 'Infinity', '-inf',
    '+infinity', 'infinit', '', ' ', '.', '.5', '5.', '1e', '1e+', ' 1.5 ', '1.5 x', '1,5', '1e400', '1e-400', ' 1e400 ', '-1e-400', '0e999', '2.2250738585072014e-308',
    '16777216', '16777217', '8.5e15', '4.35', '0.3', '2.675', '33554432', '1e10']) v
union all
-- Half way between two decimals of 17 and of 8 digits.
select 'double precision', (1100000000000000 + n * 31415926535897)::text || '.25' from generate_series(1, 60) n
union all
select 'real', (8388608 + n * 12345)::text || '.5' from generate_series(-60, 60, 7) n
union all
select 'double precision', '1e' || n from generate_series(-307, 308) n
union all
select 'real', '1e' || n from generate_series(-37, 38) n
union all
select ty, (2::numeric ^ n)::text from unnest(array['real', 'double precision']) ty, generate_series(20, 126) n
union all
select 'double precision', (2::numeric ^ n + 2::numeric ^ (n - 51))::text from generate_series(55, 130) n
union all
select 'double precision', substr(digits, 1, 1) || '.' || substr(digits, 2, 17) || 'e' || (n % 600 - 300)
from (select n, '1' || translate(md5(n::text), 'abcdef', '123456') digits from generate_series(1, 600, 3) n) d
union all
select 'real', substr(digits, 1, 1) || '.' || substr(digits, 2, 9) || 'e' || (n % 70 - 35)
from (select n, '1' || translate(md5(n::text), 'abcdef', '123456') digits from generate_series(1, 400, 3) n) d
union all
select ty, v from unnest(array['numeric', 'numeric(5,2)', 'numeric(3,-2)', 'numeric(2,4)', 'numeric(20,0)']) ty, unnest(array['0', '-0', '0.00', '-0.000', '1', '1.0', '1.005', '-1.005',
    '999.994', '999.995', '0.005', '0.0049', '.5', '5.', '+5', '1e3', '1.5e-3', '1e0', '123e-2', '1E5', ' 7 ', 'NaN', ' nan ', '', '.', '-', 'e5', '1e', '1.2.3', '1x', '0x1', '1 2',
    '99950', '49', '50', '-50', '0.00999', '0.01', '12345678901234567890', '123456789012345678901234567890.123456789', '9223372036854775807', '-9223372036854775808', '9223372036854775808',
    '0.00000000000000000001', '99999999999999999999.5', '1e-30', '1e30', '00012.3400', '1e-16384', '1e200000', '0e-5', '0e5']) v
union all
select ty, v from unnest(array['text', 'character varying', 'character varying(3)', 'character(3)']) ty, unnest(array['', 'a', 'abc', 'abcd', 'abc ', 'abc   ', 'ab ', ' a', '   ', '    ', 'äöü', 'äöüx', '日本語', '日本語 ', E'a\tb', E'a\\b']) v
union all
select 'bytea', v from unnest(array['', '\x', '\x00ff', '\xDEADbeef', '\x 00 ff', '\x0', '\x0g', '\x 0', 'abc', 'a\\b', '\001\377', '\400', '\9', '\', 'ä', '\x00 ']) v
union all
select 'uuid', v from unnest(array['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}',
    'a0eebc999c0b4ef8bb6d6bb9bd380a11', 'a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11', '{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}', '', 'x', 'a0eebc99', '{a0eebc999c0b4ef8bb6d6bb9bd380a11',
    'a0eebc999c0b4ef8bb6d6bb9bd380a11}', 'a0eebc999c0b4ef8bb6d6bb9bd380a1g', 'a0eebc999c0b4ef8bb6d6bb9bd380a111', 'a0e-ebc999c0b4ef8bb6d6bb9bd380a11', ' a0eebc999c0b4ef8bb6d6bb9bd380a11', 'a0eebc999c0b4ef8bb6d6bb9bd380a11-']) v
union all
select ty, v from unnest(array['date', 'timestamp', 'timestamp with time zone']) ty, unnest(array['2024-01-01', '2024-1-1', ' 2024-02-29 ', '2023-02-29', '2024-02-30', '2024-04-31', '2024-13-01', '2024-00-01', '2024-01-32', '2024-01-00',
    '0000-01-01', '0001-01-01', '0001-01-01 BC', '0044-03-15 BC', '4714-11-24 BC', '4714-11-23 BC', '4713-01-01 BC', '5874897-12-31', '5874898-01-01', '294276-12-31', '294277-01-01', '12345-06-07', '1970-01-01', '1999-12-31', '2000-01-01',
    '99-01-02', '1/2/03', '1/2/70', '1/2/69', '13/2/2003', '2/13/2003', '1.2.2024', '2024/01/02', '2024.01.02', '2024-01/02', '20240102', '240102', 'Jan 8 1999', 'January 8, 1999', 'jan 8, 99', '8 Jan 1999', '1999 Jan 8', '8-Jan-1999', 'Jan-08-1999', '1999-Jan-08', 'Sept 3 2001',
    'Mon Jan 8 1999', 'Friday, March 1, 2024', '2024-01', '2024', 'Jan', '', ' ', 'x', '2024-01-01x', '2024-01-01 x', 'epoch', 'infinity', '-infinity', '+infinity', 'Infinity', 'inf',
    '2024-01-01 10:11', '2024-01-01 10:11:12', '2024-01-01T10:11:12', '2024-01-01t10:11:12z', '2024-01-01 10:11:12.5', '2024-01-01 10:11:12.123456', '2024-01-01 10:11:12.1234564', '2024-01-01 10:11:12.1234565', '2024-01-01 10:11:12.9999999', '2024-01-01 23:59:59.9999999',
    '2024-01-01 24:00:00', '2024-01-01 24:00:01', '2024-01-01 25:00', '2024-01-01 10:60', '2024-01-01 10:11:60', '2024-01-01 10:11:61', '2024-01-01 1:2:3', '2024-01-01 10', '2024-01-01 1011', '20240101 101112', '20240101T101112', '20240101T101112Z',
    '2024-01-01 10:11:12 AM', '2024-01-01 10:11:12 PM', '2024-01-01 12:00 AM', '2024-01-01 12:00 PM', '2024-01-01 13:00 PM', '2024-01-01 10:11:12+05', '2024-01-01 10:11:12+05:30', '2024-01-01 10:11:12+0530', '2024-01-01 10:11:12 -8', '2024-01-01 10:11:12-08:30:15', '2024-01-01 10:11:12+16', '2024-01-01 10:11:12+1559',
    '2024-01-01 10:11:12Z', '2024-01-01 10:11:12 UTC', '2024-01-01 10:11:12 PST', '2024-01-01 10:11:12 EST', '2024-07-01 10:11:12 EDT', '2024-01-01 10:11:12 America/New_York', '2024-07-01 10:11:12 America/New_York', '2024-07-01 10:11:12 europe/zurich', '2024-03-10 02:30 America/New_York', '2024-11-03 01:30 America/New_York', '2024-01-01 10:00 foo/bar', '2024-01-01 10:00 foo',
    '2024-01-01 10:11:12 BC', '2024-01-01 10:11:12+00 BC', '294276-12-31 23:59:59.999999', '2024-01-01 10:11:12 2024-01-01', '10:11:12', '10:11:12 2024-01-01', '2024-01-01 +05', '2024-01-01 10:11:12.', '2024-01-01 10:11.5', '2024--01-01', '-2024-01-01', '2024-01-01-01']) v;

create temp table casts (id serial, source text, input text, target text);
insert into casts (source, input, target)
select source, input, target from (values
    ('boolean', 't'), ('boolean', 'f'), ('smallint', '-7'), ('integer', '70000'), ('integer', '0'), ('integer', '-2147483648'), ('bigint', '3000000000'), ('bigint', '-5'), ('bigint', '9223372036854775807'),
    ('real', '2.5'), ('real', '-0.1'), ('real', '1e30'), ('real', 'NaN'), ('real', '123456789'), ('double precision', '2.5'), ('double precision', '3.5'), ('double precision', '-2.5'), ('double precision', '1e300'), ('double precision', '1e-300'), ('double precision', 'NaN'),
    ('double precision', '0.1'), ('double precision', '9223372036854775807'), ('double precision', '9.2233720368547748e18'), ('double precision', '123456789.987654321'), ('double precision', '32767.5'),
    ('numeric', '2.5'), ('numeric', '-2.5'), ('numeric', '1e30'), ('numeric', 'NaN'), ('numeric', '0.000'), ('numeric', '1e-50'), ('numeric', '99.995'), ('numeric', '9223372036854775807.4'), ('numeric', '9223372036854775807.5'), ('numeric', '123456789012345678.987654321'), ('numeric', '1e310'),
    ('text', '12'), ('text', ' 12 '), ('text', 'abcdef'), ('text', '2024-01-02'), ('text', 't'), ('text', ''), ('text', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), ('text', '\x01'),
    ('character(5)', 'ab'), ('character(5)', '12'), ('character varying(10)', 'abcd  '),
    ('bytea', '\x4142'), ('uuid', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'),
    ('date', '2024-02-29'), ('date', 'infinity'), ('date', '5874897-12-31'), ('date', '4714-11-24 BC'), ('timestamp', '2024-02-29 23:59:59.5'), ('timestamp', '-infinity'), ('timestamp', '1999-12-31 23:59:59'),
    ('timestamp with time zone', '2024-02-29 23:59:59.5+00'), ('timestamp with time zone', 'infinity')
) s (source, input), unnest(array['boolean', 'smallint', 'integer', 'bigint', 'real', 'double precision', 'numeric', 'numeric(4,2)', 'text', 'character varying(3)', 'character(3)', 'character(8)',
    'bytea', 'date', 'timestamp', 'timestamp with time zone', 'uuid']) target;

create temp table operands (v text);
insert into operands select unnest(array['0', '0.00', '1', '-1', '3', '7', '-7.5', '0.5', '1.005', '-1.005', '2.675', '10', '100.00', '9999', '10000', '0.0001', '0.00001', '99999999', '1e10', '123456789.123456789', '9223372036854775807', '-9223372036854775808',
    '0.000000000000000001', '12345678901234567890.12345', '1e40', '-3.333e-20', 'NaN', '1.50', '33.330']);

\if :{?table}
\else
    \set table text
\endif
select :'table' = 'text' as is_text, :'table' = 'cast' as is_cast, :'table' = 'numeric' as is_numeric, :'table' = 'binary' as is_binary \gset

-- A column of the type, so that text that is too long is refused and not cut.
create function pg_temp.assigned(source text, input text, target text) returns text language plpgsql as $$
declare
    stored text;
begin
    execute format('create temp table assignment (c %s)', target);
    execute format('insert into assignment values (%L::%s)', input, source);
    execute 'select format(''%s'', c) from assignment' into stored;
    execute 'drop table assignment';
    return stored;
end $$;

\if :is_text
-- type, input, answer
select ty, pg_temp.escaped(input), pg_temp.escaped(pg_temp.ask(case when ty like 'character%(%'
    then format('select pg_temp.assigned(''text'', %L, %L)', input, ty) else format('select format(''%%s'', %L::%s)', input, ty) end))
from inputs where not (ty like 'numeric%' and input ilike '%inf%') order by id;
\endif

\if :is_cast
-- source type, input, target type, kind (x explicit, a assignment), answer
select source, pg_temp.escaped(input), target, 'x', pg_temp.escaped(pg_temp.ask(format('select format(''%%s'', %L::%s::%s)', input, source, target)))
from casts order by id;
select source, pg_temp.escaped(input), target, 'a', pg_temp.escaped(pg_temp.ask(format('select pg_temp.assigned(%L, %L, %L)', source, input, target)))
from casts order by id;
\endif

\if :is_numeric
-- left, operator, right, answer
select a.v, op, b.v, pg_temp.ask(format('select (%L::numeric %s %L::numeric)::text', a.v, op, b.v))
from operands a, operands b, unnest(array['+', '-', '*', '/', '%', '<=']) op order by op, a.v, b.v;
select a.v, 'round', s::text, pg_temp.ask(format('select round(%L::numeric, %s)::text', a.v, s)) from operands a, generate_series(-3, 4) s order by 1, s;
select a.v, 'trunc', s::text, pg_temp.ask(format('select trunc(%L::numeric, %s)::text', a.v, s)) from operands a, generate_series(-3, 4) s order by 1, s;
select a.v, 'ceil', '0', pg_temp.ask(format('select ceil(%L::numeric)::text', a.v)) from operands a order by 1;
select a.v, 'floor', '0', pg_temp.ask(format('select floor(%L::numeric)::text', a.v)) from operands a order by 1;
\endif

\if :is_binary
-- type, input, bytes in hexadecimal
select i.ty, pg_temp.escaped(input), pg_temp.ask(format('select encode(%s(%L::%s), ''hex'')', send, input, i.ty))
from inputs i join (values ('boolean', 'boolsend'), ('smallint', 'int2send'), ('integer', 'int4send'), ('bigint', 'int8send'), ('real', 'float4send'), ('double precision', 'float8send'),
    ('numeric', 'numeric_send'), ('numeric(5,2)', 'numeric_send'), ('text', 'textsend'), ('character(3)', 'bpcharsend'), ('bytea', 'byteasend'), ('date', 'date_send'), ('timestamp', 'timestamp_send'),
    ('timestamp with time zone', 'timestamptz_send'), ('uuid', 'uuid_send')) s (ty, send) on i.ty = s.ty
where pg_temp.ask(format('select encode(%s(%L::%s), ''hex'')', send, input, i.ty)) like '=%' and not (i.ty like 'character(%' and length(input) > 3) and (i.ty not in ('real', 'double precision') or i.id % 7 = 0) order by i.id;
\endif
