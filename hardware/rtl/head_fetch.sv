// HeadFetch: looks at a bucket and reads its first tuple.
//
//   bucket --> empty: finish with NotFound, or install (INSERT)
//          --> INSERT that need not be unique: install
//          --> else: read the first tuple for KeyComp
//
// Source: BionicDB 4.4.1. There the hash stage sends an INSERT to the install stage itself; here this stage
// does, because an INSERT of a unique key has to look at the bucket's tuples first.

module head_fetch
  import bionic_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       arrival_valid_i,
  output logic       arrival_ready_o,
  input  arrival_t   arrival_i,

  output slot_t      read_slot_o,    // tables, in the same cycle
  input  op_kind_e   kind_i,
  input  logic       unique_i,
  input  key_bytes_t key_bytes_i,
  input  addr_t      head_i,

  output logic       req_valid_o,
  input  logic       req_ready_i,
  output mem_req_t   req_o,

  output logic       install_valid_o,
  input  logic       install_ready_i,
  output slot_t      install_slot_o,

  output logic       finish_valid_o,
  input  logic       finish_ready_i,
  output finish_t    finish_o
);

  logic       valid_q;
  arrival_t   arrival_q;
  op_kind_e   kind_q;
  logic       unique_q;
  key_bytes_t key_bytes_q;
  addr_t      head_q;

  logic       to_install;
  logic       to_finish;
  logic       to_reader;
  logic       reader_ready;
  logic       done;

  assign read_slot_o = arrival_i.slot;

  always_comb begin
    to_install = 1'b0;
    to_finish = 1'b0;
    to_reader = 1'b0;
    if (valid_q) begin
      if (arrival_q.error) to_finish = 1'b1;
      else if (kind_q == OpInsert && (!unique_q || head_q == '0)) to_install = 1'b1;
      else if (head_q == '0) to_finish = 1'b1;
      else to_reader = 1'b1;
    end
  end

  assign done = (to_install && install_ready_i) || (to_finish && finish_ready_i) ||
                (to_reader && reader_ready);
  assign arrival_ready_o = !valid_q || done;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
    end else if (arrival_ready_o) begin
      valid_q <= arrival_valid_i;
    end
    if (arrival_ready_o) begin
      arrival_q <= arrival_i;
      kind_q <= kind_i;
      unique_q <= unique_i;
      key_bytes_q <= key_bytes_i;
      head_q <= head_i;
    end
  end

  assign install_valid_o = to_install;
  assign install_slot_o = arrival_q.slot;
  assign finish_valid_o = to_finish;
  assign finish_o = '{
    slot: arrival_q.slot,
    code: arrival_q.error ? CodeBadMemory : CodeNotFound,
    addr: '0,
    how: FinishNow,
    write_addr: '0,
    write_data: '0
  };

  item_reader u_reader (
    .clk_i,
    .rst_ni,
    .valid_i    (to_reader),
    .ready_o    (reader_ready),
    .slot_i     (arrival_q.slot),
    .addr_i     (head_q),
    .last_i     (beat_t'(TupleHeaderWords - 1) + key_words(key_bytes_q)),
    .dest_i     (DestKeyComp),
    .req_valid_o,
    .req_ready_i,
    .req_o
  );

endmodule
