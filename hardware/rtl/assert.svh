// Assertions of the project: immediate ones, checked at every clock edge outside reset.
`ifndef WEFT_ASSERT
`define WEFT_ASSERT(name, condition) \
  always_ff @(posedge clk_i) if (rst_ni) begin \
    name : assert (condition); \
  end
`endif
