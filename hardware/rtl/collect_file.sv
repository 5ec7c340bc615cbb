// Collect registers: the result of one DB instruction each, which comes whenever the index is done with it.
//
//   issue_i --> busy          result --> code, address; no longer busy
//
// A read takes a cycle. `read_ready_o` says that the register was not busy when it was read: data that come
// in the cycle of the read are seen by the next read. WaitForResults = 0 leaves that out, for the tests.

`include "assert.svh"

module collect_file
  import bionic_pkg::*;
  import softcore_pkg::*;
#(
  parameter bit WaitForResults = 1'b1
) (
  input  logic    clk_i,
  input  logic    rst_ni,

  input  logic    issue_i,        // a DB instruction is handed to the index
  input  reg_t    issue_at_i,

  input  logic    result_i,       // it is done
  input  result_t result_data_i,

  input  reg_t    read_at_i,
  output logic    read_ready_o,
  output code_e   read_code_o,
  output addr_t   read_addr_o
);

  logic [Registers-1:0] busy_q;
  logic [35:0]          results_q [Registers];
  logic [35:0]          read_q;
  logic                 ready_q;
  reg_t                 result_at;

  assign result_at = result_data_i.id[RegisterBits-1:0];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= '0;
    end else begin
      if (result_i) busy_q[result_at] <= 1'b0;
      if (issue_i) busy_q[issue_at_i] <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (result_i) results_q[result_at] <= {result_data_i.code, result_data_i.addr};
    read_q <= results_q[read_at_i];
    ready_q <= !busy_q[read_at_i];
  end

  assign read_ready_o = ready_q || !WaitForResults;
  assign read_code_o = code_e'(read_q[35:32]);
  assign read_addr_o = read_q[31:0];

  // One register, one DB instruction.
  `WEFT_ASSERT(issued_once, !WaitForResults || !issue_i || !busy_q[issue_at_i])
  `WEFT_ASSERT(asked_for, !WaitForResults || !result_i || busy_q[result_at])

endmodule
