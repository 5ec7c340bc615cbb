// The memory port: a request stays as it is until the memory takes it, every granted request leaves once and
// in order, and no stage is told that its request was granted unless it asked.

module memory_port_proof
  import bionic_pkg::*;
(
  input logic           clk_i,
  input logic [2:0]     valid_i,
  input mem_req_t [2:0] req_i,
  input logic           ready_i
);

  logic       running_q = 1'b0;
  logic [2:0] ready;
  logic       valid;
  mem_req_t   req;
  logic       waited_q;
  mem_req_t   last_q;
  logic       inside_q;
  mem_req_t   granted_q;

  memory_port #(
    .Senders(3)
  ) u_port (
    .clk_i,
    .rst_ni     (running_q),
    .valid_i,
    .ready_o    (ready),
    .req_i,
    .req_valid_o(valid),
    .req_ready_i(ready_i),
    .req_o      (req)
  );

  always_ff @(posedge clk_i) begin
    running_q <= 1'b1;
    waited_q <= running_q && valid && !ready_i;
    last_q <= req;
    if (!running_q) begin
      inside_q <= 1'b0;
    end else begin
      if (valid && ready_i) inside_q <= 1'b0;
      for (int unsigned i = 0; i < 3; i++) begin
        if (valid_i[i] && ready[i]) begin
          inside_q <= 1'b1;
          granted_q <= req_i[i];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (running_q) begin
      assert ((ready & ~valid_i) == '0);
      assert ((ready & (ready - 1'b1)) == '0);
      if (waited_q) assert (valid && req == last_q);
      assert (valid == inside_q);
      if (valid) assert (req == granted_q);
    end
  end

endmodule
