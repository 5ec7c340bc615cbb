// Finish: keeps an operation's result, and issues the write that ends it, if there is one.
//
//   from the terminal stages --> [ result ] --> now: complete queue
//                                           --> write: port, acknowledged to the complete stage
//                                           --> pending: the stage's own writes are acknowledged to it

module finish
  import bionic_pkg::*;
#(
  parameter bit WaitForAcks = 1'b1
) (
  input  logic     clk_i,
  input  logic     rst_ni,

  input  logic     finish_valid_i,
  output logic     finish_ready_o,
  input  finish_t  finish_i,

  output logic     result_valid_o,  // into the result table
  output slot_t    result_slot_o,
  output code_e    result_code_o,
  output addr_t    result_addr_o,

  output logic     req_valid_o,
  input  logic     req_ready_i,
  output mem_req_t req_o,

  output logic     now_valid_o,     // always accepted: the queue has room for every slot
  output slot_t    now_slot_o
);

  logic  write_q;
  slot_t slot_q;
  addr_t addr_q;
  word_t data_q;
  logic  takes;
  logic  wrote;

  assign wrote = write_q && req_ready_i;
  assign finish_ready_o = !write_q || (wrote && WaitForAcks);
  assign takes = finish_valid_i && finish_ready_o;

  assign result_valid_o = takes;
  assign result_slot_o = finish_i.slot;
  assign result_code_o = finish_i.code;
  assign result_addr_o = finish_i.addr;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q <= 1'b0;
    end else if (takes) begin
      write_q <= finish_i.how == FinishWrite;
    end else if (wrote) begin
      write_q <= 1'b0;
    end
    if (takes) begin
      slot_q <= finish_i.slot;
      addr_q <= finish_i.write_addr;
      data_q <= finish_i.write_data;
    end
  end

  assign req_valid_o = write_q;
  assign req_o = '{
    write: 1'b1,
    addr: addr_q,
    data: data_q,
    tag: '{dest: WaitForAcks ? DestComplete : DestDiscard, slot: slot_q, beat: '0, last: '0}
  };

  assign now_valid_o = (takes && finish_i.how == FinishNow) || (!WaitForAcks && wrote);
  assign now_slot_o = (!WaitForAcks && wrote) ? slot_q : finish_i.slot;

endmodule
