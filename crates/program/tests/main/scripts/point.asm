; Point statements by primary key: INSERT, SELECT, UPDATE balance = balance + $2, DELETE.

; INSERT INTO accounts VALUES ($1, $2, $3, $4, 0.5) RETURNING id, name
.program catalog 3
.inputs
  i0 int8
  i1 int4
  i2 varchar(20)
  i3 text
.consts
  c0 float8 '0.5'
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) x1 16386 unique ordered (3)
.outputs
  s0 (int8, text)
.access
  insert_row t0 [i0]
  write_value t0 16386 [i3]
.logic
  row b0, t0
  setin b0.0, i0
  setin b0.1, i1
  setin b0.2, i2
  setin b0.3, i3
  setk b0.4, c0
  insert cp0, t0, b0
  end
.commit
  ret r0, cp0
  count s0, r0
  outrow b1, s0
  setcol b1.0, cp0.0
  setcol b1.1, cp0.2
  emit s0, b1
  commit
.abort
  abort
;> 1 | 100 | alice | a@x
;= s0 affected 1
;=    1 | alice
;> 2 | 2147483647 | bob | null
;= s0 affected 1
;=    2 | bob
;> 1 | 5 | again | c@x
;= error 23505 duplicate key value violates unique constraint "accounts_pkey"
;> 3 | 5 | mallory | a@x
;= error 23505 duplicate key value violates unique constraint "accounts_email_key"
;> null | 5 | nobody | n@x
;= error 23502 null value in column "id" of relation "accounts" violates not-null constraint
;> 3 | null | carol | null
;= s0 affected 1
;=    3 | carol

; SELECT id, balance, name, email, ratio FROM accounts WHERE id = $1
.program catalog 3
.inputs
  i0 int8
.consts
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) x1 16386 unique ordered (3)
.outputs
  s0 (int8, int4, varchar(20), text, float8)
.access
  read_row t0 [i0]
.logic
  key k0
  keyin k0, i0
  search cp0, t0.x0, k0
  end
.commit
  ret r0, cp0
  bnt r0, none
  outrow b0, s0
  setcol b0.0, cp0.0
  setcol b0.1, cp0.1
  setcol b0.2, cp0.2
  setcol b0.3, cp0.3
  setcol b0.4, cp0.4
  emit s0, b0
none:
  commit
.abort
  abort
;> 1
;= s0 affected 0
;=    1 | 100 | alice | a@x | 0.5
;> 3
;= s0 affected 0
;=    3 | null | carol | null | 0.5
;> 4
;= s0 affected 0
;> null
;= s0 affected 0

; UPDATE accounts SET balance = balance + $2 WHERE id = $1 RETURNING balance
.program catalog 3
.inputs
  i0 int8
  i1 int4
.consts
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) x1 16386 unique ordered (3)
.outputs
  s0 (int4)
.access
  write_row t0 [i0]
.logic
  key k0
  keyin k0, i0
  search cp0, t0.x0, k0
  ret r0, cp0
  bnt r0, done
  ldcol r1, cp0.1
  ldin r2, i1
  add r1, r1, r2
  narrow r1, int4
  copyrow b0, cp0
  setr b0.1, r1
  update cp0, b0
  ret r0, cp0
  count s0, r0
  outrow b1, s0
  setcol b1.0, cp0.1
  emit s0, b1
done:
  end
.commit
  commit
.abort
  abort
;> 1 | -30
;= s0 affected 1
;=    70
;> 2 | 1
;= error 22003 integer out of range
;> 3 | 1
;= s0 affected 1
;=    null
;> 9 | 1
;= s0 affected 0
;> 1 | null
;= s0 affected 1
;=    null

; DELETE FROM accounts WHERE id = $1
.program catalog 3
.inputs
  i0 int8
.consts
.tables
  t0 16384 (int8, int4, varchar(20), text, float8) x0 16385 unique ordered primary (0) x1 16386 unique ordered (3)
.outputs
  s0 ()
.access
  write_row t0 [i0]
.logic
  key k0
  keyin k0, i0
  search cp0, t0.x0, k0
  ret r0, cp0
  remove cp0
  end
.commit
  ret r0, cp0
  count s0, r0
  commit
.abort
  abort
;> 2
;= s0 affected 1
;> 2
;= s0 affected 0
; The row of alice gives up a unique value that was not declared.
;> 1
;= error XXW01 program writes a value in table 16384 without having declared it
