// The table of locked lines with the hash stage before it: no two operations hold one line at the same time.
//
// An operation holds its line from the grant of its bucket's read until it completes. Everything else is
// free: which operations come, their keys and tables, when the port grants, when operations complete. What is
// assumed is what the slot table guarantees: an operation comes in a slot that no other has, and completes
// once, after its bucket has been read.

module line_lock_proof
  import bionic_pkg::*;
#(
  parameter bit LockLines = 1'b1
) (
  input logic       clk_i,
  input logic       order_valid_i,
  input logic [1:0] order_slot_i,
  input word_t      key_data_i,
  input key_bytes_t length_i,
  input addr_t      base_i,
  input addr_t      mask_i,
  input logic       grant_i,
  input logic       complete_i,
  input logic [1:0] complete_slot_i
);

  localparam int unsigned Slots = 4;

  logic             running_q = 1'b0;
  logic             order_ready;
  logic             conflict;
  logic             lock;
  slot_t            lock_slot;
  addr_t            lock_line;
  addr_t            check_line;
  logic             req_valid;
  mem_req_t         req;
  logic [Slots-1:0] used_q;
  logic [Slots-1:0] held_q;
  addr_t            line_q [Slots];
  slot_t            unused_key_slot;
  logic [2:0]       unused_key_word;
  slot_t            unused_length_slot;
  slot_t            unused_table_slot;
  logic             unused_waits;
  addr_t            unused_line;

  hash_stage #(
    .LockLines(LockLines)
  ) u_hash (
    .clk_i,
    .rst_ni       (running_q),
    .order_valid_i,
    .order_ready_o(order_ready),
    .order_slot_i (slot_t'(order_slot_i)),
    .key_slot_o   (unused_key_slot),
    .key_word_o   (unused_key_word),
    .key_data_i,
    .length_slot_o(unused_length_slot),
    .length_i,
    .table_slot_o (unused_table_slot),
    .table_base_i (base_i),
    .table_mask_i (mask_i),
    .check_line_o (check_line),
    .conflict_i   (conflict),
    .lock_o       (lock),
    .lock_slot_o  (lock_slot),
    .lock_line_o  (lock_line),
    .waits_o      (unused_waits),
    .req_valid_o  (req_valid),
    .req_ready_i  (grant_i),
    .req_o        (req)
  );

  line_lock_table #(
    .Slots(Slots)
  ) u_lines (
    .clk_i,
    .rst_ni       (running_q),
    .check_line_i (check_line),
    .conflict_o   (conflict),
    .lock_i       (lock),
    .lock_slot_i  (lock_slot),
    .lock_line_i  (lock_line),
    .unlock_i     (complete_i),
    .unlock_slot_i(slot_t'(complete_slot_i)),
    .held_slot_i  ('0),
    .held_line_o  (unused_line)
  );

  // What the slot table guarantees.
  always_comb begin
    if (order_valid_i) assume (!used_q[order_slot_i]);
    if (complete_i) assume (held_q[complete_slot_i]);
    // Short keys and four buckets: other hashes and addresses are compared in the same way.
    assume (length_i != '0 && length_i <= 7'd2);
    assume (base_i == '0 && mask_i <= addr_t'(3));
  end

  always_ff @(posedge clk_i) begin
    running_q <= 1'b1;
    if (!running_q) begin
      used_q <= '0;
      held_q <= '0;
    end else begin
      if (complete_i) begin
        used_q[complete_slot_i] <= 1'b0;
        held_q[complete_slot_i] <= 1'b0;
      end
      if (order_valid_i && order_ready) used_q[order_slot_i] <= 1'b1;
      if (req_valid && grant_i) begin
        held_q[req.tag.slot[1:0]] <= 1'b1;
        line_q[req.tag.slot[1:0]] <= req.addr;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (running_q) begin
      for (int unsigned i = 0; i < Slots; i++) begin
        for (int unsigned j = 0; j < i; j++) begin
          assert (!(held_q[i] && held_q[j] && line_q[i] == line_q[j]));
        end
      end
    end
  end

endmodule
