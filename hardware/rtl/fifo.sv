// First in, first out, with a valid/ready handshake on both sides and no path between the two.
//
//   valid_i --> [ Depth entries ] --> valid_o
//   ready_o <--                   <-- ready_i
//
// An entry can leave one cycle after it came. Depth is a power of two.

`include "assert.svh"

module fifo #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 16
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,

  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);

  localparam int unsigned IndexBits = $clog2(Depth);

  logic [Width-1:0]     entries_q [Depth];
  logic [IndexBits:0]   head_q;
  logic [IndexBits:0]   tail_q;
  logic [IndexBits:0]   used;

  assign used = tail_q - head_q;
  assign ready_o = used != (IndexBits+1)'(Depth);
  assign valid_o = used != 0;
  assign data_o = entries_q[head_q[IndexBits-1:0]];

  always_ff @(posedge clk_i) begin
    if (valid_i && ready_o) begin
      entries_q[tail_q[IndexBits-1:0]] <= data_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q <= '0;
      tail_q <= '0;
    end else begin
      if (valid_i && ready_o) tail_q <= tail_q + 1'b1;
      if (valid_o && ready_i) head_q <= head_q + 1'b1;
    end
  end

  `WEFT_ASSERT(bounded, used <= (IndexBits+1)'(Depth))

endmodule
