// Moves words from one place of the memory to another: many reads in flight, each answer is written at once.
//
//   start --> reads, in order --> answers, in any order --> [ queue ] --> writes
//
// Writes go first, so the queue runs dry; reads in flight and words in the queue are at most Depth. The mover
// is busy until the last write has left; writes are acknowledged later, which the softcore counts.

`include "assert.svh"

module word_mover
  import bionic_pkg::*;
  import softcore_pkg::*;
#(
  parameter int unsigned Depth = 64
) (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       start_i,      // when not busy
  input  addr_t      from_i,
  input  addr_t      to_i,
  input  logic [7:0] count_i,      // at least 1
  input  logic       to_tuple_i,   // for the tag
  input  logic       zeros_i,      // write zeros, read nothing
  output logic       busy_o,
  output logic       error_o,      // a word outside the memory was read, since the start

  output logic       req_valid_o,
  input  logic       req_ready_i,
  output mem_req_t   req_o,

  input  logic       resp_valid_i, // of a read
  input  mem_resp_t  resp_i
);

  addr_t       from_q;
  addr_t       to_q;
  logic [7:0]  count_q;
  logic        to_tuple_q;
  logic        zeros_q;
  logic        busy_q;
  logic        error_q;
  logic [7:0]  asked_q;
  logic [7:0]  written_q;
  logic        word_valid;
  logic        word_ready;
  logic        word_room;
  logic [7:0]  word_at;
  word_t       word_data;
  logic        writes;
  logic        reads;

  fifo #(
    .Width($bits(word_t) + 8),
    .Depth(Depth)
  ) u_words (
    .clk_i,
    .rst_ni,
    .valid_i(resp_valid_i),
    .ready_o(word_room),
    .data_i ({resp_i.tag.beat, resp_i.tag.last, resp_i.data}),
    .valid_o(word_valid),
    .ready_i(word_ready),
    .data_o ({word_at, word_data})
  );

  assign writes = busy_q && (word_valid || zeros_q);
  assign reads = busy_q && !zeros_q && asked_q != count_q && asked_q - written_q < 8'(Depth);
  assign word_ready = busy_q && req_ready_i;
  assign req_valid_o = writes || reads;
  assign busy_o = busy_q;
  assign error_o = error_q;

  always_comb begin
    req_o = '{
      write: 1'b1,
      addr: to_q + (zeros_q ? addr_t'(written_q) : addr_t'(word_at)),
      data: zeros_q ? '0 : word_data,
      tag: '{dest: DestCore, slot: to_tuple_q ? CoreTupleWrite : CoreBlockWrite, beat: '0, last: '0}
    };
    if (!writes) begin
      req_o = '{
        write: 1'b0,
        addr: from_q + addr_t'(asked_q),
        data: '0,
        tag: '{dest: DestCore, slot: CoreMove, beat: asked_q[7:4], last: asked_q[3:0]}
      };
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
    end else if (start_i) begin
      busy_q <= 1'b1;
    end else if (writes && req_ready_i && written_q + 1'b1 == count_q) begin
      busy_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      from_q <= from_i;
      to_q <= to_i;
      count_q <= count_i;
      to_tuple_q <= to_tuple_i;
      zeros_q <= zeros_i;
      error_q <= 1'b0;
      asked_q <= '0;
      written_q <= '0;
    end else begin
      if (writes && req_ready_i) written_q <= written_q + 1'b1;
      if (!writes && reads && req_ready_i) asked_q <= asked_q + 1'b1;
      if (resp_valid_i && resp_i.error) error_q <= 1'b1;
    end
  end

  `WEFT_ASSERT(room, !resp_valid_i || word_room)
  `WEFT_ASSERT(starts_idle, !start_i || !busy_q)
  `WEFT_ASSERT(moves_something, !start_i || count_i != '0)

endmodule
