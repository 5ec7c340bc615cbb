// The hash index coprocessor: INSERT, SEARCH, UPDATE and REMOVE by key, many operations in flight.
//
//   op --> KeyFetch --> Hash --> HeadFetch --> KeyComp --> Traverse (several)
//              |          |          |    \        |  \        |   \
//              |        lines        |     \-------+---\-------+--> Install
//              \---------------------+-------------+-----------+-----> Finish --> Complete --> result
//
// A stage issues the memory requests of an operation, names the stage that gets the response, and goes on
// with the next operation; the response stage wakes the named stage when all words are there. Operations in
// flight are bounded by slots. Results leave in any order; operations of one bucket take effect in the order
// of their issue. The protections against pipeline hazards can be left out, to show that the tests see it:
//   LockLines    a bucket is held from the hash stage to the end of an operation
//   KeepOrder    operations are hashed in the order of their issue, not in that of their keys' arrival
//   WaitForAcks  an operation ends when its writes are acknowledged, not when they are issued
// Page: hardware/doc/hash_index.md. Source: BionicDB 4.4.1, figures 5a and 6; 4.7.

`include "assert.svh"

module hash_index
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16,
  parameter int unsigned TraverseStages = 2,
  parameter bit LockLines = 1'b1,
  parameter bit KeepOrder = 1'b1,
  parameter bit WaitForAcks = 1'b1
) (
  input  logic              clk_i,
  input  logic              rst_ni,

  input  logic [SlotBits:0] in_flight_max_i,

  input  logic              op_valid_i,       // from the softcore or a remote worker
  output logic              op_ready_o,
  input  op_t               op_i,

  output logic              result_valid_o,   // to whoever issued the operation
  input  logic              result_ready_i,
  output result_t           result_o,

  output logic              mem_req_valid_o,  // memory port
  input  logic              mem_req_ready_i,
  output mem_req_t          mem_req_o,
  input  logic              mem_resp_valid_i,
  input  mem_resp_t         mem_resp_i,

  output logic              wait_line_o,      // counted by the driver: the hash stage waits for a held line,
  output logic              wait_slot_o       // an operation waits for a slot
);

  // Numbers of the senders of memory requests: those of single words first, then those of bursts in the order
  // of the pipeline. An operation's next latency begins early, and bursts fill the port meanwhile.
  localparam int unsigned MemFinish = 0;
  localparam int unsigned MemKey = 1;
  localparam int unsigned MemHash = 2;
  localparam int unsigned MemHead = 3;
  localparam int unsigned MemTraverse = 4;
  localparam int unsigned MemInstall = MemTraverse + TraverseStages;
  localparam int unsigned MemSenders = MemInstall + 1;

  // Numbers of the senders of finished operations, and of operations to install.
  localparam int unsigned FinInstall = 0;
  localparam int unsigned FinTraverse = 1;
  localparam int unsigned FinKeyComp = FinTraverse + TraverseStages;
  localparam int unsigned FinHead = FinKeyComp + 1;
  localparam int unsigned FinKey = FinHead + 1;
  localparam int unsigned FinSenders = FinKey + 1;
  localparam int unsigned InsTraverse = 0;
  localparam int unsigned InsKeyComp = TraverseStages;
  localparam int unsigned InsHead = InsKeyComp + 1;
  localparam int unsigned InsSenders = InsHead + 1;

  // Numbers of the readers of the operation table.
  localparam int unsigned OpLength = 0;
  localparam int unsigned OpTable = 1;
  localparam int unsigned OpHead = 2;
  localparam int unsigned OpInstall = 3;
  localparam int unsigned OpComplete = 4;
  localparam int unsigned OpJudge = 5;       // KeyComp, then the traverse stages
  localparam int unsigned OpReaders = OpJudge + 1 + TraverseStages;

  // Readers of the key memory.
  localparam int unsigned KeyOfHash = 0;
  localparam int unsigned KeyOfResponse = 1;
  localparam int unsigned KeyOfInstall = 2;

  logic     [MemSenders-1:0] mem_valid;
  logic     [MemSenders-1:0] mem_ready;
  mem_req_t [MemSenders-1:0] mem_req;
  logic     [FinSenders-1:0] fin_valid;
  logic     [FinSenders-1:0] fin_ready;
  finish_t  [FinSenders-1:0] fin;
  logic     [InsSenders-1:0] ins_valid;
  logic     [InsSenders-1:0] ins_ready;
  slot_t    [InsSenders-1:0] ins_slot;
  slot_t    [OpReaders-1:0]  op_read_slot;
  op_t      [OpReaders-1:0]  op_read;
  slot_t    [2:0]            key_read_slot;
  logic     [2:0][2:0]       key_read_word;
  word_t    [2:0]            key_read;

  logic  slot_valid;
  slot_t slot;
  logic  taken;
  logic  release_valid;
  slot_t release_slot;

  assign wait_slot_o = op_valid_i && !slot_valid;

  slot_table #(
    .Slots  (Slots),
    .Readers(OpReaders)
  ) u_slots (
    .clk_i,
    .rst_ni,
    .in_flight_max_i,
    .slot_valid_o  (slot_valid),
    .slot_o        (slot),
    .take_i        (taken),
    .op_i          (op_i),
    .release_i     (release_valid),
    .release_slot_i(release_slot),
    .read_slot_i   (op_read_slot),
    .read_op_o     (op_read)
  );

  // KeyFetch, and the order in which operations are hashed.

  logic  issued_valid;
  slot_t issued_slot;
  logic  key_arrived;

  key_fetch u_key_fetch (
    .clk_i,
    .rst_ni,
    .op_valid_i,
    .op_ready_o,
    .op_i,
    .slot_valid_i  (slot_valid),
    .slot_i        (slot),
    .taken_o       (taken),
    .order_valid_o (issued_valid),
    .order_slot_o  (issued_slot),
    .req_valid_o   (mem_valid[MemKey]),
    .req_ready_i   (mem_ready[MemKey]),
    .req_o         (mem_req[MemKey]),
    .finish_valid_o(fin_valid[FinKey]),
    .finish_ready_i(fin_ready[FinKey]),
    .finish_o      (fin[FinKey])
  );

  arrival_t         arrival;
  logic             order_valid;
  logic             order_ready;
  slot_t            order_slot;
  logic             order_room_free;
  logic             oldest_has_key;
  logic [Slots-1:0] has_key_q;

  fifo #(
    .Width($bits(slot_t)),
    .Depth(Slots)
  ) u_order (
    .clk_i,
    .rst_ni,
    .valid_i(KeepOrder ? issued_valid : key_arrived),
    .ready_o(order_room_free),
    .data_i (KeepOrder ? issued_slot : arrival.slot),
    .valid_o(order_valid),
    .ready_i(order_ready && oldest_has_key),
    .data_o (order_slot)
  );

  assign oldest_has_key = has_key_q[order_slot[$clog2(Slots)-1:0]];

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      has_key_q <= '0;
    end else begin
      if (order_valid && order_ready && oldest_has_key) begin
        has_key_q[order_slot[$clog2(Slots)-1:0]] <= 1'b0;
      end
      if (key_arrived) has_key_q[arrival.slot[$clog2(Slots)-1:0]] <= 1'b1;
    end
  end

  logic       key_write;
  slot_t      key_write_slot;
  logic [2:0] key_write_word;
  word_t      key_write_data;

  key_memory #(
    .Slots  (Slots),
    .Readers(3)
  ) u_keys (
    .clk_i,
    .write_i     (key_write),
    .write_slot_i(key_write_slot),
    .write_word_i(key_write_word),
    .write_data_i(key_write_data),
    .read_slot_i (key_read_slot),
    .read_word_i (key_read_word),
    .read_data_o (key_read)
  );

  // Hash, and the lines that are held.

  addr_t check_line;
  logic  conflict;
  logic  lock_valid;
  slot_t lock_slot;
  addr_t lock_line;
  slot_t install_read_slot;
  addr_t install_line;

  hash_stage #(
    .LockLines(LockLines)
  ) u_hash (
    .clk_i,
    .rst_ni,
    .order_valid_i(order_valid && oldest_has_key),
    .order_ready_o(order_ready),
    .order_slot_i (order_slot),
    .key_slot_o   (key_read_slot[KeyOfHash]),
    .key_word_o   (key_read_word[KeyOfHash]),
    .key_data_i   (key_read[KeyOfHash]),
    .length_slot_o(op_read_slot[OpLength]),
    .length_i     (op_read[OpLength].key_bytes),
    .table_slot_o (op_read_slot[OpTable]),
    .table_base_i (op_read[OpTable].base),
    .table_mask_i (op_read[OpTable].mask),
    .check_line_o (check_line),
    .conflict_i   (conflict),
    .lock_o       (lock_valid),
    .lock_slot_o  (lock_slot),
    .lock_line_o  (lock_line),
    .waits_o      (wait_line_o),
    .req_valid_o  (mem_valid[MemHash]),
    .req_ready_i  (mem_ready[MemHash]),
    .req_o        (mem_req[MemHash])
  );

  line_lock_table #(
    .Slots(Slots)
  ) u_lines (
    .clk_i,
    .rst_ni,
    .check_line_i (check_line),
    .conflict_o   (conflict),
    .lock_i       (lock_valid),
    .lock_slot_i  (lock_slot),
    .lock_line_i  (lock_line),
    .unlock_i     (release_valid),
    .unlock_slot_i(release_slot),
    .held_slot_i  (install_read_slot),
    .held_line_o  (install_line)
  );

  // Responses.

  logic                      head_valid;
  logic                      key_comp_valid;
  logic                      complete_valid;
  logic [TraverseStages-1:0] traverse_valid;
  slot_t                     head_read_slot;
  addr_t                     head_word;
  addr_t                     install_head;
  slot_t [TraverseStages:0]  item_slot;
  addr_t [TraverseStages:0]  item_addr;
  word_t [TraverseStages:0]  item_link;
  word_t [TraverseStages:0]  item_state;
  word_t [TraverseStages:0]  item_read;

  response_stage #(
    .Slots         (Slots),
    .TraverseStages(TraverseStages)
  ) u_responses (
    .clk_i,
    .rst_ni,
    .resp_valid_i    (mem_resp_valid_i),
    .resp_i          (mem_resp_i),
    .key_slot_o      (key_read_slot[KeyOfResponse]),
    .key_word_o      (key_read_word[KeyOfResponse]),
    .key_data_i      (key_read[KeyOfResponse]),
    .key_write_o     (key_write),
    .key_write_slot_o(key_write_slot),
    .key_write_word_o(key_write_word),
    .key_write_data_o(key_write_data),
    .key_arrived_o   (key_arrived),
    .head_valid_o    (head_valid),
    .key_comp_valid_o(key_comp_valid),
    .complete_valid_o(complete_valid),
    .traverse_valid_o(traverse_valid),
    .arrival_o       (arrival),
    .head_slot_i     (head_read_slot),
    .head_o          (head_word),
    .install_slot_i  (install_read_slot),
    .install_head_o  (install_head),
    .item_slot_i     (item_slot),
    .item_addr_o     (item_addr),
    .item_link_o     (item_link),
    .item_state_o    (item_state),
    .item_read_o     (item_read)
  );

  // HeadFetch.

  logic     head_queue_valid;
  logic     head_queue_ready;
  arrival_t head_queue;
  logic     head_room_free;

  fifo #(
    .Width($bits(arrival_t)),
    .Depth(Slots)
  ) u_head_queue (
    .clk_i,
    .rst_ni,
    .valid_i(head_valid),
    .ready_o(head_room_free),
    .data_i (arrival),
    .valid_o(head_queue_valid),
    .ready_i(head_queue_ready),
    .data_o (head_queue)
  );

  assign op_read_slot[OpHead] = head_read_slot;

  head_fetch u_head_fetch (
    .clk_i,
    .rst_ni,
    .arrival_valid_i(head_queue_valid),
    .arrival_ready_o(head_queue_ready),
    .arrival_i      (head_queue),
    .read_slot_o    (head_read_slot),
    .kind_i         (op_read[OpHead].kind),
    .unique_i       (op_read[OpHead].unique_key),
    .key_bytes_i    (op_read[OpHead].key_bytes),
    .head_i         (head_word),
    .req_valid_o    (mem_valid[MemHead]),
    .req_ready_i    (mem_ready[MemHead]),
    .req_o          (mem_req[MemHead]),
    .install_valid_o(ins_valid[InsHead]),
    .install_ready_i(ins_ready[InsHead]),
    .install_slot_o (ins_slot[InsHead]),
    .finish_valid_o (fin_valid[FinHead]),
    .finish_ready_i (fin_ready[FinHead]),
    .finish_o       (fin[FinHead])
  );

  // KeyComp.

  logic     comp_queue_valid;
  logic     comp_queue_ready;
  arrival_t comp_queue;
  logic     comp_room_free;
  logic     chain_valid;
  logic     chain_ready;
  slot_t    chain_slot;
  addr_t    chain_addr;
  beat_t    chain_last;

  fifo #(
    .Width($bits(arrival_t)),
    .Depth(Slots)
  ) u_comp_queue (
    .clk_i,
    .rst_ni,
    .valid_i(key_comp_valid),
    .ready_o(comp_room_free),
    .data_i (arrival),
    .valid_o(comp_queue_valid),
    .ready_i(comp_queue_ready),
    .data_o (comp_queue)
  );

  assign op_read_slot[OpJudge] = item_slot[0];

  item_judge u_key_comp (
    .clk_i,
    .rst_ni,
    .arrival_valid_i(comp_queue_valid),
    .arrival_ready_o(comp_queue_ready),
    .arrival_i      (comp_queue),
    .read_slot_o    (item_slot[0]),
    .kind_i         (op_read[OpJudge].kind),
    .key_bytes_i    (op_read[OpJudge].key_bytes),
    .timestamp_i    (op_read[OpJudge].timestamp),
    .item_addr_i    (item_addr[0]),
    .item_link_i    (item_link[0]),
    .item_state_i   (item_state[0]),
    .item_read_i    (item_read[0]),
    .next_valid_o   (chain_valid),
    .next_ready_i   (chain_ready),
    .next_slot_o    (chain_slot),
    .next_addr_o    (chain_addr),
    .next_last_o    (chain_last),
    .install_valid_o(ins_valid[InsKeyComp]),
    .install_ready_i(ins_ready[InsKeyComp]),
    .install_slot_o (ins_slot[InsKeyComp]),
    .finish_valid_o (fin_valid[FinKeyComp]),
    .finish_ready_i (fin_ready[FinKeyComp]),
    .finish_o       (fin[FinKeyComp])
  );

  // Traverse: an operation goes to the first stage that is free.

  logic [TraverseStages-1:0] traverse_free;
  logic [TraverseStages-1:0] traverse_start;

  always_comb begin
    traverse_start = '0;
    for (int unsigned i = TraverseStages; i > 0; i--) begin
      if (traverse_free[i-1]) begin
        traverse_start = '0;
        traverse_start[i-1] = chain_valid;
      end
    end
  end

  assign chain_ready = |traverse_free;

  for (genvar i = 0; i < TraverseStages; i++) begin : gen_traverse
    logic     queue_valid;
    logic     queue_ready;
    arrival_t queue;
    logic     unused_room;

    fifo #(
      .Width($bits(arrival_t)),
      .Depth(Slots)
    ) u_queue (
      .clk_i,
      .rst_ni,
      .valid_i(traverse_valid[i]),
      .ready_o(unused_room),
      .data_i (arrival),
      .valid_o(queue_valid),
      .ready_i(queue_ready),
      .data_o (queue)
    );

    assign op_read_slot[OpJudge+1+i] = item_slot[1+i];

    traverse #(
      .Dest(DestTraverse + dest_t'(i))
    ) u_traverse (
      .clk_i,
      .rst_ni,
      .start_valid_i  (traverse_start[i]),
      .start_ready_o  (traverse_free[i]),
      .start_slot_i   (chain_slot),
      .start_addr_i   (chain_addr),
      .start_last_i   (chain_last),
      .arrival_valid_i(queue_valid),
      .arrival_ready_o(queue_ready),
      .arrival_i      (queue),
      .read_slot_o    (item_slot[1+i]),
      .kind_i         (op_read[OpJudge+1+i].kind),
      .key_bytes_i    (op_read[OpJudge+1+i].key_bytes),
      .timestamp_i    (op_read[OpJudge+1+i].timestamp),
      .item_addr_i    (item_addr[1+i]),
      .item_link_i    (item_link[1+i]),
      .item_state_i   (item_state[1+i]),
      .item_read_i    (item_read[1+i]),
      .req_valid_o    (mem_valid[MemTraverse+i]),
      .req_ready_i    (mem_ready[MemTraverse+i]),
      .req_o          (mem_req[MemTraverse+i]),
      .install_valid_o(ins_valid[InsTraverse+i]),
      .install_ready_i(ins_ready[InsTraverse+i]),
      .install_slot_o (ins_slot[InsTraverse+i]),
      .finish_valid_o (fin_valid[FinTraverse+i]),
      .finish_ready_i (fin_ready[FinTraverse+i]),
      .finish_o       (fin[FinTraverse+i])
    );
  end

  // Install.

  logic  install_valid;
  logic  install_ready;
  slot_t install_slot;

  priority_arbiter #(
    .Senders(InsSenders),
    .Width  ($bits(slot_t))
  ) u_install_arbiter (
    .valid_i(ins_valid),
    .ready_o(ins_ready),
    .data_i (ins_slot),
    .valid_o(install_valid),
    .ready_i(install_ready),
    .data_o (install_slot)
  );

  assign op_read_slot[OpInstall] = install_read_slot;

  install #(
    .WaitForAcks(WaitForAcks)
  ) u_install (
    .clk_i,
    .rst_ni,
    .slot_valid_i  (install_valid),
    .slot_ready_o  (install_ready),
    .slot_i        (install_slot),
    .read_slot_o   (install_read_slot),
    .key_bytes_i   (op_read[OpInstall].key_bytes),
    .timestamp_i   (op_read[OpInstall].timestamp),
    .tuple_addr_i  (op_read[OpInstall].tuple_addr),
    .head_i        (install_head),
    .line_i        (install_line),
    .key_slot_o    (key_read_slot[KeyOfInstall]),
    .key_word_o    (key_read_word[KeyOfInstall]),
    .key_data_i    (key_read[KeyOfInstall]),
    .req_valid_o   (mem_valid[MemInstall]),
    .req_ready_i   (mem_ready[MemInstall]),
    .req_o         (mem_req[MemInstall]),
    .finish_valid_o(fin_valid[FinInstall]),
    .finish_ready_i(fin_ready[FinInstall]),
    .finish_o      (fin[FinInstall])
  );

  // Finish and Complete.

  logic    finish_valid;
  logic    finish_ready;
  finish_t finish;
  logic    store_valid;
  slot_t   store_slot;
  code_e   store_code;
  addr_t   store_addr;
  logic    now_valid;
  slot_t   now_slot;
  slot_t   complete_slot;
  code_e   code_q [Slots];
  addr_t   addr_q [Slots];

  priority_arbiter #(
    .Senders(FinSenders),
    .Width  ($bits(finish_t))
  ) u_finish_arbiter (
    .valid_i(fin_valid),
    .ready_o(fin_ready),
    .data_i (fin),
    .valid_o(finish_valid),
    .ready_i(finish_ready),
    .data_o (finish)
  );

  finish #(
    .WaitForAcks(WaitForAcks)
  ) u_finish (
    .clk_i,
    .rst_ni,
    .finish_valid_i(finish_valid),
    .finish_ready_o(finish_ready),
    .finish_i      (finish),
    .result_valid_o(store_valid),
    .result_slot_o (store_slot),
    .result_code_o (store_code),
    .result_addr_o (store_addr),
    .req_valid_o   (mem_valid[MemFinish]),
    .req_ready_i   (mem_ready[MemFinish]),
    .req_o         (mem_req[MemFinish]),
    .now_valid_o   (now_valid),
    .now_slot_o    (now_slot)
  );

  always_ff @(posedge clk_i) begin
    if (store_valid) begin
      code_q[store_slot[$clog2(Slots)-1:0]] <= store_code;
      addr_q[store_slot[$clog2(Slots)-1:0]] <= store_addr;
    end
  end

  assign op_read_slot[OpComplete] = complete_slot;

  complete #(
    .Slots(Slots)
  ) u_complete (
    .clk_i,
    .rst_ni,
    .acked_valid_i (complete_valid),
    .acked_slot_i  (arrival.slot),
    .acked_error_i (arrival.error),
    .now_valid_i   (now_valid),
    .now_slot_i    (now_slot),
    .read_slot_o   (complete_slot),
    .id_i          (op_read[OpComplete].id),
    .code_i        (code_q[complete_slot[$clog2(Slots)-1:0]]),
    .addr_i        (addr_q[complete_slot[$clog2(Slots)-1:0]]),
    .release_o     (release_valid),
    .release_slot_o(release_slot),
    .result_valid_o,
    .result_ready_i,
    .result_o
  );

  // Memory port.

  memory_port #(
    .Senders(MemSenders)
  ) u_port (
    .clk_i,
    .rst_ni,
    .valid_i    (mem_valid),
    .ready_o    (mem_ready),
    .req_i      (mem_req),
    .req_valid_o(mem_req_valid_o),
    .req_ready_i(mem_req_ready_i),
    .req_o      (mem_req_o)
  );

  // Queues that are said to have room for every slot have it.
  `WEFT_ASSERT(order_room, !issued_valid || order_room_free)
  `WEFT_ASSERT(head_room, !head_valid || head_room_free)
  `WEFT_ASSERT(comp_room, !key_comp_valid || comp_room_free)
  // A response belongs to an operation of this unit.
  `WEFT_ASSERT(slot_exists, !mem_resp_valid_i || 32'(mem_resp_i.tag.slot) < Slots)

endmodule
