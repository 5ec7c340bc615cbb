// The hash index behind few pins, for place and route: a chip has fewer pins than the unit has ports.
//
// Inputs come from a shift register, outputs are loaded into another one. Both ends of every path that is
// timed are registers, so the clock found is the unit's own; the shift registers are counted apart in the
// results.

module hash_index_pins
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16,
  parameter int unsigned TraverseStages = 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic shift_i,
  input  logic load_i,
  output logic shift_o
);

  typedef struct packed {
    logic [SlotBits:0] in_flight_max;
    logic              op_valid;
    op_t               op;
    logic              result_ready;
    logic              mem_req_ready;
    logic              mem_resp_valid;
    mem_resp_t         mem_resp;
  } inputs_t;

  typedef struct packed {
    logic     op_ready;
    logic     result_valid;
    result_t  result;
    logic     mem_req_valid;
    mem_req_t mem_req;
    logic     wait_line;
    logic     wait_slot;
  } outputs_t;

  inputs_t  inputs_q;
  outputs_t outputs;
  outputs_t outputs_q;

  always_ff @(posedge clk_i) begin
    inputs_q <= {inputs_q[$bits(inputs_t)-2:0], shift_i};
    outputs_q <= load_i ? outputs : {outputs_q[$bits(outputs_t)-2:0], 1'b0};
  end

  assign shift_o = outputs_q[$bits(outputs_t)-1];

  hash_index #(
    .Slots         (Slots),
    .TraverseStages(TraverseStages)
  ) u_unit (
    .clk_i,
    .rst_ni,
    .in_flight_max_i (inputs_q.in_flight_max),
    .op_valid_i      (inputs_q.op_valid),
    .op_ready_o      (outputs.op_ready),
    .op_i            (inputs_q.op),
    .result_valid_o  (outputs.result_valid),
    .result_ready_i  (inputs_q.result_ready),
    .result_o        (outputs.result),
    .mem_req_valid_o (outputs.mem_req_valid),
    .mem_req_ready_i (inputs_q.mem_req_ready),
    .mem_req_o       (outputs.mem_req),
    .mem_resp_valid_i(inputs_q.mem_resp_valid),
    .mem_resp_i      (inputs_q.mem_resp),
    .wait_line_o     (outputs.wait_line),
    .wait_slot_o     (outputs.wait_slot)
  );

endmodule
