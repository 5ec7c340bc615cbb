// The hash index coprocessor with its structures taken apart into plain ports, for the simulation's driver.

module hash_index_bench
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 64,
  parameter int unsigned TraverseStages = 2,
  parameter bit LockLines = 1'b1,
  parameter bit KeepOrder = 1'b1,
  parameter bit WaitForAcks = 1'b1
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic [6:0]  in_flight_max_i,

  input  logic        op_valid_i,
  output logic        op_ready_o,
  input  logic [1:0]  op_kind_i,
  input  logic        op_unique_i,
  input  logic [31:0] op_base_i,
  input  logic [31:0] op_mask_i,
  input  logic [31:0] op_key_addr_i,
  input  logic [6:0]  op_key_bytes_i,
  input  logic [31:0] op_tuple_addr_i,
  input  logic [63:0] op_timestamp_i,
  input  logic [15:0] op_id_i,

  output logic        result_valid_o,
  input  logic        result_ready_i,
  output logic [15:0] result_id_o,
  output logic [3:0]  result_code_o,
  output logic [31:0] result_addr_o,

  output logic        mem_req_valid_o,
  input  logic        mem_req_ready_i,
  output logic        mem_req_write_o,
  output logic [31:0] mem_req_addr_o,
  output logic [63:0] mem_req_data_o,
  output logic [31:0] mem_req_tag_o,
  input  logic        mem_resp_valid_i,
  input  logic        mem_resp_error_i,
  input  logic [63:0] mem_resp_data_i,
  input  logic [31:0] mem_resp_tag_i,

  output logic        wait_line_o,
  output logic        wait_slot_o
);

  op_t       op;
  result_t   result;
  mem_req_t  mem_req;
  mem_resp_t mem_resp;

  assign op = '{
    kind: op_kind_e'(op_kind_i),
    unique_key: op_unique_i,
    base: op_base_i,
    mask: op_mask_i,
    key_addr: op_key_addr_i,
    key_bytes: op_key_bytes_i,
    tuple_addr: op_tuple_addr_i,
    timestamp: op_timestamp_i[TimestampBits-1:0],
    id: op_id_i
  };
  assign result_id_o = result.id;
  assign result_code_o = result.code;
  assign result_addr_o = result.addr;
  assign mem_req_write_o = mem_req.write;
  assign mem_req_addr_o = mem_req.addr;
  assign mem_req_data_o = mem_req.data;
  assign mem_req_tag_o = 32'(mem_req.tag);
  assign mem_resp = '{error: mem_resp_error_i, data: mem_resp_data_i, tag: mem_resp_tag_i[TagBits-1:0]};

  hash_index #(
    .Slots         (Slots),
    .TraverseStages(TraverseStages),
    .LockLines     (LockLines),
    .KeepOrder     (KeepOrder),
    .WaitForAcks   (WaitForAcks)
  ) u_unit (
    .clk_i,
    .rst_ni,
    .in_flight_max_i,
    .op_valid_i,
    .op_ready_o,
    .op_i            (op),
    .result_valid_o,
    .result_ready_i,
    .result_o        (result),
    .mem_req_valid_o,
    .mem_req_ready_i,
    .mem_req_o       (mem_req),
    .mem_resp_valid_i,
    .mem_resp_i      (mem_resp),
    .wait_line_o,
    .wait_slot_o
  );

endmodule
