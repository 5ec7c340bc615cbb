// KeyFetch: takes an operation, gives it a slot, and reads its search key.
//
//   op --> [ idle ] --> [ fetch: one word a cycle ] --> idle
//               \--> [ reject: a key of no bytes or too many ] --> finish
//
// An operation enters the order queue when it is taken, so that the hash stage sees operations in the order
// in which they were issued, in whatever order their keys arrive. Source: BionicDB 4.4.1.

module key_fetch
  import bionic_pkg::*;
(
  input  logic     clk_i,
  input  logic     rst_ni,

  input  logic     op_valid_i,
  output logic     op_ready_o,
  input  op_t      op_i,

  input  logic     slot_valid_i,   // a slot is free
  input  slot_t    slot_i,
  output logic     taken_o,        // the operation has been taken into the slot

  output logic     order_valid_o,  // always accepted: the order queue has room for every slot
  output slot_t    order_slot_o,

  output logic     req_valid_o,
  input  logic     req_ready_i,
  output mem_req_t req_o,

  output logic     finish_valid_o,
  input  logic     finish_ready_i,
  output finish_t  finish_o
);

  typedef enum logic [1:0] {
    StIdle,
    StFetch,
    StReject
  } state_e;

  state_e state_q;
  slot_t  slot_q;
  addr_t  addr_q;
  beat_t  last_q;
  beat_t  beat_q;
  logic   bad_key;
  logic   ending;
  logic   free;

  assign bad_key = op_i.key_bytes == '0 || op_i.key_bytes > key_bytes_t'(KeyBytesMax);
  assign ending = state_q == StFetch && req_ready_i && beat_q == last_q;
  assign free = state_q == StIdle || ending;
  assign op_ready_o = free && slot_valid_i;
  assign taken_o = op_valid_i && op_ready_o;
  assign order_valid_o = taken_o && !bad_key;
  assign order_slot_o = slot_i;

  assign req_valid_o = state_q == StFetch;
  assign req_o = '{
    write: 1'b0,
    addr: addr_q + addr_t'(beat_q),
    data: '0,
    tag: '{dest: DestHash, slot: slot_q, beat: beat_q, last: last_q}
  };

  assign finish_valid_o = state_q == StReject;
  assign finish_o = '{
    slot: slot_q,
    code: CodeBadKey,
    addr: '0,
    how: FinishNow,
    write_addr: '0,
    write_data: '0
  };

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
    end else if (taken_o) begin
      state_q <= bad_key ? StReject : StFetch;
    end else if (ending || (state_q == StReject && finish_ready_i)) begin
      state_q <= StIdle;
    end
  end

  always_ff @(posedge clk_i) begin
    if (taken_o) begin
      slot_q <= slot_i;
      addr_q <= op_i.key_addr;
      last_q <= key_words(op_i.key_bytes) - 1'b1;
      beat_q <= '0;
    end else if (state_q == StFetch && req_ready_i) begin
      beat_q <= beat_q + 1'b1;
    end
  end

endmodule
