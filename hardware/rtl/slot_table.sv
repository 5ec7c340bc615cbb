// The slots of a unit: which are free, and the operation in each.
//
// An operation keeps its slot from the cycle in which it is taken until its result is handed out. The number
// of slots in use can be limited below the number that exist.

`include "assert.svh"

module slot_table
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16,
  parameter int unsigned Readers = 1
) (
  input  logic                clk_i,
  input  logic                rst_ni,

  input  logic [SlotBits:0]   in_flight_max_i,

  output logic                slot_valid_o,   // a slot is free
  output slot_t               slot_o,
  input  logic                take_i,         // the free slot is taken for an operation
  input  op_t                 op_i,

  input  logic                release_i,
  input  slot_t               release_slot_i,

  input  slot_t [Readers-1:0] read_slot_i,
  output op_t   [Readers-1:0] read_op_o
);

  localparam int unsigned IndexBits = $clog2(Slots);

  logic [Slots-1:0] used_q;
  op_t              ops_q [Slots];

  always_comb begin
    slot_valid_o = 1'b0;
    slot_o = '0;
    for (int unsigned i = Slots; i > 0; i--) begin
      if (!used_q[i-1] && (SlotBits+1)'(i) <= in_flight_max_i) begin
        slot_valid_o = 1'b1;
        slot_o = slot_t'(i - 1);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      used_q <= '0;
    end else begin
      if (release_i) used_q[release_slot_i[IndexBits-1:0]] <= 1'b0;
      if (take_i) used_q[slot_o[IndexBits-1:0]] <= 1'b1;
    end
    if (take_i) ops_q[slot_o[IndexBits-1:0]] <= op_i;
  end

  for (genvar i = 0; i < Readers; i++) begin : gen_readers
    assign read_op_o[i] = ops_q[read_slot_i[i][IndexBits-1:0]];
  end

  `WEFT_ASSERT(released_was_used, !release_i || used_q[release_slot_i[IndexBits-1:0]])

endmodule
