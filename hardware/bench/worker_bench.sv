// A worker with its structures taken apart into plain ports, for the simulation's driver.

module worker_bench
  import bionic_pkg::*;
  import softcore_pkg::*;
#(
  parameter int unsigned Slots = 64,
  parameter bit WaitForResults = 1'b1,
  parameter bit WaitForWrites = 1'b1,
  parameter bit RenameRegisters = 1'b1,
  parameter bit CloseWhenFull = 1'b1,
  parameter bit DrainBatch = 1'b1
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        load_valid_i,
  input  logic [1:0]  load_kind_i,
  input  logic [15:0] load_at_i,
  input  logic [63:0] load_data_i,
  input  logic [6:0]  batch_max_i,
  input  logic [6:0]  in_flight_max_i,

  input  logic        txn_valid_i,
  output logic        txn_ready_o,
  input  logic [31:0] txn_block_i,
  input  logic [7:0]  txn_program_i,
  output logic        done_valid_o,
  input  logic        done_ready_i,
  output logic [31:0] done_block_o,

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

  output logic [7:0]  events_o
);

  mem_req_t  mem_req;
  mem_resp_t mem_resp;
  logic [5:0] events;

  assign mem_req_write_o = mem_req.write;
  assign mem_req_addr_o = mem_req.addr;
  assign mem_req_data_o = mem_req.data;
  assign mem_req_tag_o = 32'(mem_req.tag);
  assign mem_resp = '{error: mem_resp_error_i, data: mem_resp_data_i, tag: mem_resp_tag_i[TagBits-1:0]};
  assign events_o = 8'(events);

  worker #(
    .Slots          (Slots),
    .WaitForResults (WaitForResults),
    .WaitForWrites  (WaitForWrites),
    .RenameRegisters(RenameRegisters),
    .CloseWhenFull  (CloseWhenFull),
    .DrainBatch     (DrainBatch)
  ) u_worker (
    .clk_i,
    .rst_ni,
    .load_valid_i,
    .load_kind_i  (load_e'(load_kind_i)),
    .load_at_i    (load_at_i[PcBits-1:0]),
    .load_data_i,
    .batch_max_i,
    .in_flight_max_i,
    .txn_valid_i,
    .txn_ready_o,
    .txn_block_i,
    .txn_program_i(txn_program_i[ProgramBits-1:0]),
    .done_valid_o,
    .done_ready_i,
    .done_block_o,
    .mem_req_valid_o,
    .mem_req_ready_i,
    .mem_req_o    (mem_req),
    .mem_resp_valid_i,
    .mem_resp_i   (mem_resp),
    .events_o     (events)
  );

endmodule
