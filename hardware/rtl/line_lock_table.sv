// The table of locked lines: which bucket each operation in flight holds, from the hash stage to its end.
//
// A line is the address of a bucket. A slot holds at most one line, so the table has one row a slot, and all
// rows are compared at the same time. A line is locked in the cycle in which the read of its bucket is
// granted and unlocked when its operation has completed, its writes acknowledged. Source: BionicDB 4.4.1,
// figure 6.

`include "assert.svh"

module line_lock_table
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16
) (
  input  logic  clk_i,
  input  logic  rst_ni,

  input  addr_t check_line_i,
  output logic  conflict_o,    // the line is held by an operation

  input  logic  lock_i,
  input  slot_t lock_slot_i,
  input  addr_t lock_line_i,

  input  logic  unlock_i,
  input  slot_t unlock_slot_i,

  input  slot_t held_slot_i,
  output addr_t held_line_o    // the line that a slot holds
);

  localparam int unsigned IndexBits = $clog2(Slots);

  logic [Slots-1:0] locked_q;
  addr_t            line_q [Slots];

  assign held_line_o = line_q[held_slot_i[IndexBits-1:0]];

  always_comb begin
    conflict_o = 1'b0;
    for (int unsigned i = 0; i < Slots; i++) begin
      if (locked_q[i] && line_q[i] == check_line_i) conflict_o = 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      locked_q <= '0;
    end else begin
      if (unlock_i) locked_q[unlock_slot_i[IndexBits-1:0]] <= 1'b0;
      if (lock_i) locked_q[lock_slot_i[IndexBits-1:0]] <= 1'b1;
    end
    if (lock_i) line_q[lock_slot_i[IndexBits-1:0]] <= lock_line_i;
  end

  `WEFT_ASSERT(one_line_a_slot, !(lock_i && locked_q[lock_slot_i[IndexBits-1:0]]))

endmodule
