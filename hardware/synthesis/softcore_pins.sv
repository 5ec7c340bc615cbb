// The softcore behind few pins, for place and route: a chip has fewer pins than the unit has ports.
//
// As hash_index_pins: inputs come from a shift register, outputs are loaded into another one.

module softcore_pins
  import bionic_pkg::*;
  import softcore_pkg::*;
(
  input  logic clk_i,
  input  logic rst_ni,
  input  logic shift_i,
  input  logic load_i,
  output logic shift_o
);

  typedef struct packed {
    logic                 load_valid;
    load_e                load_kind;
    pc_t                  load_at;
    word_t                load_data;
    logic [ContextBits:0] batch_max;
    logic                 txn_valid;
    addr_t                txn_block;
    program_t             txn_program;
    logic                 done_ready;
    logic                 op_ready;
    logic                 result_valid;
    result_t              result;
    logic                 req_ready;
    logic                 resp_valid;
    mem_resp_t            resp;
  } inputs_t;

  typedef struct packed {
    logic       txn_ready;
    logic       done_valid;
    addr_t      done_block;
    logic       op_valid;
    op_t        op;
    logic       req_valid;
    mem_req_t   req;
    logic [5:0] events;
  } outputs_t;

  inputs_t  inputs_q;
  outputs_t outputs;
  outputs_t outputs_q;

  always_ff @(posedge clk_i) begin
    inputs_q <= {inputs_q[$bits(inputs_t)-2:0], shift_i};
    outputs_q <= load_i ? outputs : {outputs_q[$bits(outputs_t)-2:0], 1'b0};
  end

  assign shift_o = outputs_q[$bits(outputs_t)-1];

  softcore u_unit (
    .clk_i,
    .rst_ni,
    .load_valid_i  (inputs_q.load_valid),
    .load_kind_i   (inputs_q.load_kind),
    .load_at_i     (inputs_q.load_at),
    .load_data_i   (inputs_q.load_data),
    .batch_max_i   (inputs_q.batch_max),
    .txn_valid_i   (inputs_q.txn_valid),
    .txn_ready_o   (outputs.txn_ready),
    .txn_block_i   (inputs_q.txn_block),
    .txn_program_i (inputs_q.txn_program),
    .done_valid_o  (outputs.done_valid),
    .done_ready_i  (inputs_q.done_ready),
    .done_block_o  (outputs.done_block),
    .op_valid_o    (outputs.op_valid),
    .op_ready_i    (inputs_q.op_ready),
    .op_o          (outputs.op),
    .result_valid_i(inputs_q.result_valid),
    .result_i      (inputs_q.result),
    .req_valid_o   (outputs.req_valid),
    .req_ready_i   (inputs_q.req_ready),
    .req_o         (outputs.req),
    .resp_valid_i  (inputs_q.resp_valid),
    .resp_i        (inputs_q.resp),
    .retired_o     (outputs.events[0]),
    .wait_result_o (outputs.events[1]),
    .wait_index_o  (outputs.events[2]),
    .wait_memory_o (outputs.events[3]),
    .switching_o   (outputs.events[4]),
    .closed_o      (outputs.events[5])
  );

endmodule
