// Complete: hands out the result of an operation whose writes have been acknowledged, and gives back its line
// and its slot.
//
//   acknowledged (response stage) --> [ queue ] --\
//   nothing to write (finish)     --> [ queue ] ---> [ result register ] --> result_valid_o, result_o
//
// Line and slot are free as soon as the result is in the register, even if nobody takes it yet.

module complete
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16
) (
  input  logic    clk_i,
  input  logic    rst_ni,

  input  logic    acked_valid_i,   // always accepted: the queues have room for every slot
  input  slot_t   acked_slot_i,
  input  logic    acked_error_i,
  input  logic    now_valid_i,
  input  slot_t   now_slot_i,

  output slot_t   read_slot_o,     // tables, in the same cycle
  input  op_id_t  id_i,
  input  code_e   code_i,
  input  addr_t   addr_i,

  output logic    release_o,
  output slot_t   release_slot_o,

  output logic    result_valid_o,
  input  logic    result_ready_i,
  output result_t result_o
);

  logic    acked_valid;
  logic    acked_ready;
  slot_t   acked_slot;
  logic    acked_error;
  logic    now_valid;
  logic    now_ready;
  slot_t   now_slot;
  logic    takes;
  logic    failed;
  logic    unused_acked_room;
  logic    unused_now_room;
  logic    valid_q;
  result_t result_q;

  fifo #(
    .Width($bits(slot_t) + 1),
    .Depth(Slots)
  ) u_acked (
    .clk_i,
    .rst_ni,
    .valid_i(acked_valid_i),
    .ready_o(unused_acked_room),
    .data_i ({acked_error_i, acked_slot_i}),
    .valid_o(acked_valid),
    .ready_i(acked_ready),
    .data_o ({acked_error, acked_slot})
  );

  fifo #(
    .Width($bits(slot_t)),
    .Depth(Slots)
  ) u_now (
    .clk_i,
    .rst_ni,
    .valid_i(now_valid_i),
    .ready_o(unused_now_room),
    .data_i (now_slot_i),
    .valid_o(now_valid),
    .ready_i(now_ready),
    .data_o (now_slot)
  );

  assign takes = (acked_valid || now_valid) && (!valid_q || result_ready_i);
  assign acked_ready = takes;
  assign now_ready = takes && !acked_valid;
  assign read_slot_o = acked_valid ? acked_slot : now_slot;
  assign failed = acked_valid && acked_error;
  assign release_o = takes;
  assign release_slot_o = read_slot_o;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
    end else if (!valid_q || result_ready_i) begin
      valid_q <= takes;
    end
    if (takes) begin
      result_q <= '{
        id: id_i,
        code: failed ? CodeBadMemory : code_i,
        addr: failed ? '0 : addr_i
      };
    end
  end

  assign result_valid_o = valid_q;
  assign result_o = result_q;

endmodule
