// Every FIFO: what comes in goes out once, in order, and never more than Depth entries are inside.
//
// One entry is followed: its number among all that come in is any number, which a register without reset
// holds. The entry that leaves with this number must be it.

module fifo_proof #(
  parameter int unsigned Width = 2,
  parameter int unsigned Depth = 2
) (
  input logic             clk_i,
  input logic             valid_i,
  input logic [Width-1:0] data_i,
  input logic             ready_i
);

  logic             running_q = 1'b0;
  logic             ready;
  logic             valid;
  logic [Width-1:0] data;
  logic [3:0]       came_q;
  logic [3:0]       left_q;
  logic [3:0]       followed_q;
  logic [Width-1:0] entry_q;

  fifo #(
    .Width(Width),
    .Depth(Depth)
  ) u_fifo (
    .clk_i,
    .rst_ni (running_q),
    .valid_i,
    .ready_o(ready),
    .data_i,
    .valid_o(valid),
    .ready_i,
    .data_o (data)
  );

  always_ff @(posedge clk_i) begin
    running_q <= 1'b1;
    followed_q <= followed_q;
    if (!running_q) begin
      came_q <= '0;
      left_q <= '0;
    end else begin
      if (valid_i && ready) begin
        came_q <= came_q + 1'b1;
        if (came_q == followed_q) entry_q <= data_i;
      end
      if (valid && ready_i) left_q <= left_q + 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (running_q) begin
      assert (came_q - left_q <= 4'(Depth));
      assert (valid == (came_q != left_q));
      assert (ready == (came_q - left_q != 4'(Depth)));
      if (valid && left_q == followed_q) assert (data == entry_q);
    end
  end

endmodule
