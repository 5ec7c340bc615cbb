// Collect registers: what RET takes is the result of the last DB instruction that was issued to the register.
//
// One register is followed, and what it must hold is kept beside it. The issuer keeps the rule of programs
// (one DB instruction, then its result, then the next), the index answers only what was asked; when, and with
// what between, is free.

module collect_file_proof
  import bionic_pkg::*;
  import softcore_pkg::*;
#(
  parameter bit WaitForResults = 1'b1
) (
  input logic    clk_i,
  input logic    issue_i,
  input reg_t    issue_at_i,
  input logic    result_i,
  input result_t result_data_i,
  input reg_t    read_at_i
);

  logic  running_q = 1'b0;
  reg_t  followed_q;
  logic  busy_q;
  logic  has_result_q;
  logic  was_read_q;
  code_e code_q;
  addr_t addr_q;
  code_e code_then_q;
  addr_t addr_then_q;
  logic  busy_then_q;
  logic  has_result_then_q;
  logic  issues;
  logic  answers;
  logic  ready;
  code_e code;
  addr_t addr;

  assign issues = issue_i && issue_at_i == followed_q && !busy_q;
  assign answers = result_i && result_data_i.id[RegisterBits-1:0] == followed_q && busy_q;

  collect_file #(
    .WaitForResults(WaitForResults)
  ) u_file (
    .clk_i,
    .rst_ni       (running_q),
    .issue_i      (issues),
    .issue_at_i   (issue_at_i),
    .result_i     (answers),
    .result_data_i(result_data_i),
    .read_at_i,
    .read_ready_o (ready),
    .read_code_o  (code),
    .read_addr_o  (addr)
  );

  always_ff @(posedge clk_i) begin
    running_q <= 1'b1;
    followed_q <= followed_q;
    was_read_q <= running_q && read_at_i == followed_q;
    code_then_q <= code_q;
    addr_then_q <= addr_q;
    busy_then_q <= busy_q;
    has_result_then_q <= has_result_q;
    if (!running_q) begin
      busy_q <= 1'b0;
      has_result_q <= 1'b0;
    end else begin
      if (issues) busy_q <= 1'b1;
      if (answers) begin
        busy_q <= 1'b0;
        has_result_q <= 1'b1;
        code_q <= result_data_i.code;
        addr_q <= result_data_i.addr;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (running_q && was_read_q && ready) begin
      assert (!busy_then_q);
      if (has_result_then_q) assert (code == code_then_q && addr == addr_then_q);
    end
  end

endmodule
