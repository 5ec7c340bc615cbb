; Edges of arithmetic and three-valued logic.

; SELECT $1 + $2, $1 / $2, $1 % $2, $1 = $2, $1 < $2 OR $2 IS NULL   (bigint)
.program catalog 3
.inputs
  i0 int8
  i1 int8
.consts
.tables
.outputs
  s0 (int8, int8, int8, bool, bool)
.access
.logic
  outrow b0, s0
  ldin r0, i0
  ldin r1, i1
  add r2, r0, r1
  setr b0.0, r2
  div r2, r0, r1
  setr b0.1, r2
  mod r2, r0, r1
  setr b0.2, r2
  cmp.eq r2, r0, r1
  setr b0.3, r2
  cmp.lt r2, r0, r1
  isnull r3, r1
  or r2, r2, r3
  setr b0.4, r2
  emit s0, b0
  end
.commit
  commit
.abort
  abort
;> 7 | -2
;= s0 affected 0
;=    5 | -3 | 1 | f | f
;> -7 | 2
;= s0 affected 0
;=    -5 | -3 | -1 | f | t
;> 5 | null
;= s0 affected 0
;=    null | null | null | null | t
;> 9223372036854775807 | 1
;= error 22003 bigint out of range
;> -9223372036854775808 | -1
;= error 22003 bigint out of range
;> 1 | 0
;= error 22012 division by zero

; SELECT $1 * $2, $1 / $2, $1::integer   (double precision, and real for the second)
.program catalog 3
.inputs
  i0 float8
  i1 float8
.consts
.tables
.outputs
  s0 (float8, float4, int4)
.access
.logic
  outrow b0, s0
  ldin r0, i0
  ldin r1, i1
  fmul r2, r0, r1
  setr b0.0, r2
  ftof4 r3, r0
  ftof4 r4, r1
  f4div r3, r3, r4
  setr b0.1, r3
  ftoi r5, r0, int4
  setr b0.2, r5
  emit s0, b0
  end
.commit
  commit
.abort
  abort
;> 2.5 | 2
;= s0 affected 0
;=    5 | 1.25 | 2
;> 3.5 | -2
;= s0 affected 0
;=    -7 | -1.75 | 4
;> 1 | 0
;= error 22012 division by zero
;> 1e200 | 1e200
;= error 22003 value out of range: overflow
;> 1e-200 | 1e-200
;= error 22003 value out of range: underflow
;> 3e9 | 1
;= error 22003 integer out of range
;> null | 1
;= s0 affected 0
;=    null | null | null

; Endless: ends with its budget.
.program catalog 3
.inputs
.consts
.tables
.outputs
.access
.logic
  ldi r0, 1
again:
  bt r0, again
  end
.commit
  commit
.abort
  abort
;>
;= error 54001 the program exceeded its budget of 20000 instructions

; A voluntary abort with and without words.
.program catalog 3
.inputs
  i0 bool
.consts
  c0 text 'no money'
.tables
.outputs
.access
.logic
  ldin r0, i0
  bnull r0, silent
  bt r0, silent
  raise P0001, c0
silent:
  bnull r0, fine
  abort
fine:
  end
.commit
  commit
.abort
  abort
;> t
;= error 40000 the program aborted the transaction
;> f
;= error P0001 no money
;> null
