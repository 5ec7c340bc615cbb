// A partition worker without its neighbours: a softcore, its hash index and one memory port.
//
//   host --> softcore --op--> hash index        both --> [ port ] --> memory
//        <--         <-result--                 answers go by the stage in their tag
//
// The softcore is served first: it has one transaction at a time to finish, the index has many operations.
// Source: BionicDB 4.2, figure 2.

module worker
  import bionic_pkg::*;
  import softcore_pkg::*;
#(
  parameter int unsigned Slots = 64,
  parameter int unsigned TraverseStages = 1,
  parameter bit WaitForResults = 1'b1,
  parameter bit WaitForWrites = 1'b1,
  parameter bit RenameRegisters = 1'b1,
  parameter bit CloseWhenFull = 1'b1,
  parameter bit DrainBatch = 1'b1
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  logic                 load_valid_i,
  input  load_e                load_kind_i,
  input  pc_t                  load_at_i,
  input  word_t                load_data_i,
  input  logic [ContextBits:0] batch_max_i,
  input  logic [SlotBits:0]    in_flight_max_i,

  input  logic                 txn_valid_i,
  output logic                 txn_ready_o,
  input  addr_t                txn_block_i,
  input  program_t             txn_program_i,
  output logic                 done_valid_o,
  input  logic                 done_ready_i,
  output addr_t                done_block_o,

  output logic                 mem_req_valid_o,
  input  logic                 mem_req_ready_i,
  output mem_req_t             mem_req_o,
  input  logic                 mem_resp_valid_i,
  input  mem_resp_t            mem_resp_i,

  output logic [5:0]           events_o        // retired, waits: result, index, memory; switching, closed
);

  logic     op_valid;
  logic     op_ready;
  op_t      op;
  logic     result_valid;
  result_t  result;
  logic [1:0]     req_valid;
  logic [1:0]     req_ready;
  mem_req_t [1:0] req;
  logic     for_core;
  logic     unused_wait_line;
  logic     unused_wait_slot;

  assign for_core = mem_resp_i.tag.dest == DestCore;

  softcore #(
    .WaitForResults (WaitForResults),
    .WaitForWrites  (WaitForWrites),
    .RenameRegisters(RenameRegisters),
    .CloseWhenFull  (CloseWhenFull),
    .DrainBatch     (DrainBatch)
  ) u_core (
    .clk_i,
    .rst_ni,
    .load_valid_i,
    .load_kind_i,
    .load_at_i,
    .load_data_i,
    .batch_max_i,
    .txn_valid_i,
    .txn_ready_o,
    .txn_block_i,
    .txn_program_i,
    .done_valid_o,
    .done_ready_i,
    .done_block_o,
    .op_valid_o    (op_valid),
    .op_ready_i    (op_ready),
    .op_o          (op),
    .result_valid_i(result_valid),
    .result_i      (result),
    .req_valid_o   (req_valid[0]),
    .req_ready_i   (req_ready[0]),
    .req_o         (req[0]),
    .resp_valid_i  (mem_resp_valid_i && for_core),
    .resp_i        (mem_resp_i),
    .retired_o     (events_o[0]),
    .wait_result_o (events_o[1]),
    .wait_index_o  (events_o[2]),
    .wait_memory_o (events_o[3]),
    .switching_o   (events_o[4]),
    .closed_o      (events_o[5])
  );

  hash_index #(
    .Slots         (Slots),
    .TraverseStages(TraverseStages)
  ) u_index (
    .clk_i,
    .rst_ni,
    .in_flight_max_i,
    .op_valid_i      (op_valid),
    .op_ready_o      (op_ready),
    .op_i            (op),
    .result_valid_o  (result_valid),
    .result_ready_i  (1'b1),
    .result_o        (result),
    .mem_req_valid_o (req_valid[1]),
    .mem_req_ready_i (req_ready[1]),
    .mem_req_o       (req[1]),
    .mem_resp_valid_i(mem_resp_valid_i && !for_core),
    .mem_resp_i      (mem_resp_i),
    .wait_line_o     (unused_wait_line),
    .wait_slot_o     (unused_wait_slot)
  );

  memory_port #(
    .Senders(2)
  ) u_port (
    .clk_i,
    .rst_ni,
    .valid_i    (req_valid),
    .ready_o    (req_ready),
    .req_i      (req),
    .req_valid_o(mem_req_valid_o),
    .req_ready_i(mem_req_ready_i),
    .req_o      (mem_req_o)
  );

endmodule
