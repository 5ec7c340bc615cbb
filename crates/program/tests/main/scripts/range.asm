; Ranges over a two-column key, with residual predicates and LIMIT.

; INSERT two rows in one statement
.program catalog 3
.inputs
  i0 int4
  i1 int4
.consts
  c0 text 'first'
  c1 text 'second; \'quoted\''
  c2 int4 '0'
.tables
  t0 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 ()
.access
  insert_row t0 [i0, i1]
  insert_row t0 [i1, c2]
.logic
  row b0, t0
  setin b0.0, i0
  setin b0.1, i1
  setk b0.2, c0
  insert cp0, t0, b0
  row b0, t0
  setin b0.0, i1
  setk b0.1, c2
  setk b0.2, c1
  insert cp1, t0, b0
  end
.commit
  ret r0, cp0
  count s0, r0
  ret r0, cp1
  count s0, r0
  commit
.abort
  abort
;> 1 | 1
;= s0 affected 2
;> 1 | 2
;= s0 affected 2
;> 1 | 3
;= s0 affected 2
;> 2 | 9
;= s0 affected 2
; The second row of this one is there already: nothing of it stays.
;> 7 | 1
;= error 23505 duplicate key value violates unique constraint "pairs_pkey"
;> -5 | 4
;= s0 affected 2

; SELECT a, b, v FROM pairs WHERE a = $1 AND b >= $2 ORDER BY b LIMIT $3
.program catalog 3
.inputs
  i0 int4
  i1 int4
  i2 int8
.consts
.tables
  t0 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int4, int4, text)
.access
  read_range t0 [i0, i1] [i0]
.logic
  key k0
  keyin k0, i0
  keyin k0, i1
  key k1
  keyin k1, i0
  ldin r9, i2
  scan cp0, t0.x0, k0, k1, forward, r9
  end
.commit
  ret r0, cp0
next:
  bnt r0, done
  outrow b0, s0
  setcol b0.0, cp0.0
  setcol b0.1, cp0.1
  setcol b0.2, cp0.2
  emit s0, b0
  next r0, cp0
  jmp next
done:
  commit
.abort
  abort
;> 1 | 1 | null
;= s0 affected 0
;=    1 | 1 | first
;=    1 | 2 | first
;=    1 | 3 | first
;> 1 | 2 | 1
;= s0 affected 0
;=    1 | 2 | first
;> 1 | 0 | 0
;= s0 affected 0
;> 1 | 0 | -1
;= error 2201W LIMIT must not be negative
;> 3 | 0 | null
;= s0 affected 0
;=    3 | 0 | second; 'quoted'
;> null | 0 | null
;= s0 affected 0

; SELECT a, b FROM pairs WHERE a > $1 AND (b < $2 OR v = 'first') ORDER BY a DESC, b DESC: LIMIT 2 by counting
.program catalog 3
.inputs
  i0 int4
  i1 int4
.consts
  c0 text 'first'
.tables
  t0 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int4, int4)
.access
  read_range t0 [i0]
.logic
  key k0
  keyin k0, i0
  key k1
  ldi r5, 0
  ldi r6, 2
  ldi r7, 1
  ldin r4, i1
  scan cp0, t0.x0, k0, k1, reverse/lo_exclusive, all
  end
.commit
  ret r0, cp0
next:
  bnt r0, done
  ldcol r1, cp0.1
  cmp.lt r1, r1, r4
  cmpv r2, cp0.2, c0
  test.eq r2, r2
  or r1, r1, r2
  bnt r1, skip
  outrow b0, s0
  setcol b0.0, cp0.0
  setcol b0.1, cp0.1
  emit s0, b0
  add r5, r5, r7
  bge r5, r6, done
skip:
  next r0, cp0
  jmp next
done:
  commit
.abort
  abort
;> 0 | 1
;= s0 affected 0
;=    9 | 0
;=    4 | 0
;> 0 | null
;= s0 affected 0
;=    2 | 9
;=    1 | 3
;> -100 | 100
;= s0 affected 0
;=    9 | 0
;=    4 | 0
;> 100 | 100
;= s0 affected 0
