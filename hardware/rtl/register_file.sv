// Registers of all transactions of a batch: two read ports whose data come a cycle later, one write port.
//
// Two copies of a block memory. A read in the cycle of a write of the same register gives the new value, so
// that an instruction sees what the one before it wrote.

module register_file
  import softcore_pkg::*;
(
  input  logic       clk_i,

  input  logic       write_i,
  input  reg_t       write_at_i,
  input  value_t     write_data_i,

  input  reg_t [1:0]   read_at_i,
  output value_t [1:0] read_data_o
);

  for (genvar i = 0; i < 2; i++) begin : gen_ports
    value_t values_q [Registers];
    value_t read_q;
    value_t forwarded_q;
    logic   forward_q;

    always_ff @(posedge clk_i) begin
      if (write_i) values_q[write_at_i] <= write_data_i;
      read_q <= values_q[read_at_i[i]];
      forward_q <= write_i && write_at_i == read_at_i[i];
      forwarded_q <= write_data_i;
    end

    assign read_data_o[i] = forward_q ? forwarded_q : read_q;
  end

endmodule
