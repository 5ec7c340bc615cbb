// Judges a tuple that has arrived: is it the one, and may the operation have it? KeyComp is one of these, and
// each traverse stage has one.
//
//   tuple --> not the key: on to the next tuple; at the end NotFound, or install (INSERT)
//         --> the key: visibility by timestamps, then finish, with a write if there is one
//
// Visibility (BionicDB 4.7), t being the transaction's timestamp:
//   dirty                               rejected: Dirty
//   tombstone written at or before t    not there: NotFound; an INSERT goes on
//   write timestamp above t             rejected: TooLate
//   SEARCH                              Done; the read timestamp becomes t if that is later
//   UPDATE, REMOVE: read at or before t Done; the tuple becomes dirty, with REMOVE a tombstone too
//                   read after t        rejected: TooLate
//   INSERT                              Duplicate
// Equal timestamps are the transaction's own accesses and are granted.

module item_judge
  import bionic_pkg::*;
(
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       arrival_valid_i,
  output logic       arrival_ready_o,
  input  arrival_t   arrival_i,

  output slot_t      read_slot_o,    // tables, in the same cycle
  input  op_kind_e   kind_i,
  input  key_bytes_t key_bytes_i,
  input  timestamp_t timestamp_i,
  input  addr_t      item_addr_i,    // where the tuple is
  input  word_t      item_link_i,    // its words 0 to 2
  input  word_t      item_state_i,
  input  word_t      item_read_i,

  output logic       next_valid_o,   // go on with the next tuple
  input  logic       next_ready_i,
  output slot_t      next_slot_o,
  output addr_t      next_addr_o,
  output beat_t      next_last_o,

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
  key_bytes_t key_bytes_q;
  timestamp_t timestamp_q;
  addr_t      item_addr_q;
  word_t      item_link_q;
  word_t      item_state_q;
  word_t      item_read_q;
  logic       done;

  assign read_slot_o = arrival_i.slot;
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
      key_bytes_q <= key_bytes_i;
      timestamp_q <= timestamp_i;
      item_addr_q <= item_addr_i;
      item_link_q <= item_link_i;
      item_state_q <= item_state_i;
      item_read_q <= item_read_i;
    end
  end

  logic       match;
  logic       dirty;
  logic       tombstone;
  timestamp_t written;
  timestamp_t read;
  addr_t      next_addr;

  assign match = !arrival_q.differs && item_link_q[38:32] == key_bytes_q;
  assign dirty = item_state_q[63];
  assign tombstone = item_state_q[62];
  assign written = item_state_q[TimestampBits-1:0];
  assign read = item_read_q[TimestampBits-1:0];
  assign next_addr = item_link_q[AddrBits-1:0];

  code_e code;
  logic  goes_on;
  logic  to_next;
  logic  to_install;
  logic  to_finish;
  logic  writes;
  addr_t write_addr;
  word_t write_data;

  // A tuple with the key, in the order of the table above.
  always_comb begin
    code = CodeDone;
    goes_on = 1'b0;
    if (arrival_q.error) code = CodeBadMemory;
    else if (!match) goes_on = 1'b1;
    else if (dirty) code = CodeDirty;
    else if (written > timestamp_q) code = CodeTooLate;
    else if (tombstone) begin
      // Older tuples with the key are older than the tombstone: there is nothing behind it.
      code = CodeNotFound;
    end else begin
      unique case (kind_q)
        OpInsert: code = CodeDuplicate;
        OpSearch: code = CodeDone;
        default: code = (read > timestamp_q) ? CodeTooLate : CodeDone;
      endcase
    end
    if (goes_on && arrival_q.too_long) begin
      goes_on = 1'b0;
      code = CodeLongChain;
    end else if (goes_on && next_addr == '0) begin
      goes_on = 1'b0;
      code = CodeNotFound;
    end
  end

  assign to_next = valid_q && goes_on;
  assign to_install = valid_q && !goes_on && kind_q == OpInsert && code == CodeNotFound;
  assign to_finish = valid_q && !goes_on && !to_install;

  always_comb begin
    writes = 1'b0;
    write_addr = item_addr_q + addr_t'(1);
    write_data = {1'b1, kind_q == OpRemove, written};
    if (code == CodeDone) begin
      unique case (kind_q)
        OpSearch: begin
          writes = timestamp_q > read;
          write_addr = item_addr_q + addr_t'(2);
          write_data = {2'b00, timestamp_q};
        end
        OpUpdate, OpRemove: writes = 1'b1;
        default: writes = 1'b0;
      endcase
    end
  end

  assign next_valid_o = to_next;
  assign next_slot_o = arrival_q.slot;
  assign next_addr_o = next_addr;
  assign next_last_o = beat_t'(TupleHeaderWords - 1) + key_words(key_bytes_q);
  assign install_valid_o = to_install;
  assign install_slot_o = arrival_q.slot;
  assign finish_valid_o = to_finish;
  assign finish_o = '{
    slot: arrival_q.slot,
    code: code,
    addr: (code == CodeDone) ? item_addr_q : '0,
    how: writes ? FinishWrite : FinishNow,
    write_addr: write_addr,
    write_data: write_data
  };

  assign done = (to_next && next_ready_i) || (to_install && install_ready_i) || (to_finish && finish_ready_i);

endmodule
