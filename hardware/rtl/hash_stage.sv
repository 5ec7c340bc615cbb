// Hash: computes the hash of a key, waits until nobody holds its bucket, locks the bucket and reads it.
//
//   order queue --> [ hash: two bytes a cycle ] --> [ line ] --> [ lock and read the bucket ] --> port
//                                                                  waits while the line is held
//
// Operations leave in the order in which they came. So two operations of one bucket run in the order in which
// they were issued, and the second begins when the first has ended. Source: BionicDB 4.4.1, figure 6b.

module hash_stage
  import bionic_pkg::*;
#(
  parameter bit LockLines = 1'b1
) (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       order_valid_i,  // the oldest operation, its key complete
  output logic       order_ready_o,
  input  slot_t      order_slot_i,

  output slot_t      key_slot_o,     // key memory, registered: the word comes in the next cycle
  output logic [2:0] key_word_o,
  input  word_t      key_data_i,

  output slot_t      length_slot_o,  // operation table, in the same cycle
  input  key_bytes_t length_i,
  output slot_t      table_slot_o,
  input  addr_t      table_base_i,
  input  addr_t      table_mask_i,

  output addr_t      check_line_o,   // table of locked lines
  input  logic       conflict_i,
  output logic       lock_o,
  output slot_t      lock_slot_o,
  output addr_t      lock_line_o,
  output logic       waits_o,        // for a held line, to be counted

  output logic       req_valid_o,
  input  logic       req_ready_i,
  output mem_req_t   req_o
);

  // Hash.
  logic        run_q;
  slot_t       slot_q;
  key_bytes_t  pos_q;
  key_bytes_t  pos_next;
  key_bytes_t  bytes_q;
  logic [31:0] hash_q;
  logic [31:0] hash_next;
  logic        last;
  logic        advance;
  logic        begins;

  // Line.
  logic        hashed_valid_q;
  logic        hashed_ready;
  slot_t       hashed_slot_q;
  logic [31:0] hashed_q;

  // Lock.
  logic        line_valid_q;
  logic        line_ready;
  slot_t       line_slot_q;
  addr_t       line_q;
  logic        held;

  logic [15:0] pair;

  always_comb begin
    unique case (pos_q[2:1])
      2'd0: pair = key_data_i[15:0];
      2'd1: pair = key_data_i[31:16];
      2'd2: pair = key_data_i[47:32];
      default: pair = key_data_i[63:48];
    endcase
  end

  assign last = pos_q + 7'd2 >= bytes_q;
  assign hash_next = (pos_q + 7'd1 == bytes_q) ? sdbm_single(hash_q, pair[7:0])
                                               : sdbm_pair(hash_q, pair[7:0], pair[15:8]);
  assign advance = run_q && !(last && !hashed_ready);
  assign pos_next = advance ? pos_q + 7'd2 : pos_q;
  // The next key's first word is read in the cycle in which the last pair of this one is hashed.
  assign order_ready_o = !run_q || (advance && last);
  assign begins = order_valid_i && order_ready_o;
  assign key_slot_o = order_ready_o ? order_slot_i : slot_q;
  assign key_word_o = order_ready_o ? 3'd0 : pos_next[5:3];
  assign length_slot_o = order_slot_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      run_q <= 1'b0;
    end else if (order_ready_o) begin
      run_q <= order_valid_i;
    end
    if (begins) begin
      slot_q <= order_slot_i;
      bytes_q <= length_i;
      pos_q <= '0;
      hash_q <= '0;
    end else if (advance) begin
      pos_q <= pos_next;
      hash_q <= hash_next;
    end
  end

  assign hashed_ready = !hashed_valid_q || line_ready;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      hashed_valid_q <= 1'b0;
    end else if (hashed_ready) begin
      hashed_valid_q <= run_q && last;
    end
    if (hashed_ready) begin
      hashed_slot_q <= slot_q;
      hashed_q <= hash_next;
    end
  end

  assign table_slot_o = hashed_slot_q;
  assign line_ready = !line_valid_q || (req_valid_o && req_ready_i);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      line_valid_q <= 1'b0;
    end else if (line_ready) begin
      line_valid_q <= hashed_valid_q;
    end
    if (line_ready) begin
      line_slot_q <= hashed_slot_q;
      line_q <= table_base_i + (hashed_q & table_mask_i);
    end
  end

  assign check_line_o = line_q;
  assign held = LockLines && conflict_i;
  assign waits_o = line_valid_q && held;
  assign req_valid_o = line_valid_q && !held;
  assign req_o = '{
    write: 1'b0,
    addr: line_q,
    data: '0,
    tag: '{dest: DestHead, slot: line_slot_q, beat: '0, last: '0}
  };
  assign lock_o = req_valid_o && req_ready_i;
  assign lock_slot_o = line_slot_q;
  assign lock_line_o = line_q;

endmodule
