// Install: writes a new tuple and puts it in front of its bucket.
//
//   slot --> [ link, state, read timestamp, key words, bucket: one word a cycle ] --> port
//         \-> finish: the result, before the last write
//
// The tuple is dirty until its transaction commits. The bucket is written last, but memory may write in any
// order: nobody reads the bucket before every write has been acknowledged, because the line is locked until
// then. Source: BionicDB 4.4.1.

module install
  import bionic_pkg::*;
#(
  parameter bit WaitForAcks = 1'b1
) (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       slot_valid_i,
  output logic       slot_ready_o,
  input  slot_t      slot_i,

  output slot_t      read_slot_o,   // tables, in the same cycle
  input  key_bytes_t key_bytes_i,
  input  timestamp_t timestamp_i,
  input  addr_t      tuple_addr_i,
  input  addr_t      head_i,
  input  addr_t      line_i,

  output slot_t      key_slot_o,    // key memory, registered
  output logic [2:0] key_word_o,
  input  word_t      key_data_i,

  output logic       req_valid_o,
  input  logic       req_ready_i,
  output mem_req_t   req_o,

  output logic       finish_valid_o,
  input  logic       finish_ready_i,
  output finish_t    finish_o
);

  logic       busy_q;
  logic       told_q;      // finish has the result
  slot_t      slot_q;
  key_bytes_t key_bytes_q;
  timestamp_t timestamp_q;
  addr_t      tuple_addr_q;
  addr_t      head_q;
  addr_t      line_q;
  beat_t      beat_q;
  beat_t      beat_next;
  beat_t      last_q;
  logic       at_last;
  logic       ending;
  logic       tells;

  assign at_last = beat_q == last_q;
  assign ending = busy_q && at_last && req_valid_o && req_ready_i;
  assign slot_ready_o = !busy_q || ending;
  assign read_slot_o = slot_i;

  // Without acknowledgements the result may not be earlier than the last write.
  assign finish_valid_o = busy_q && !told_q && (WaitForAcks || at_last);
  assign tells = finish_valid_o && finish_ready_i;
  assign finish_o = '{
    slot: slot_q,
    code: CodeDone,
    addr: tuple_addr_q,
    how: WaitForAcks ? FinishPending : FinishNow,
    write_addr: '0,
    write_data: '0
  };

  assign req_valid_o = busy_q && (!at_last || told_q);
  assign beat_next = (req_valid_o && req_ready_i) ? beat_q + 1'b1 : beat_q;

  // The word for the next beat; key words begin at beat 3.
  assign key_slot_o = slot_q;
  assign key_word_o = 3'(beat_next - beat_t'(TupleHeaderWords));

  always_comb begin
    req_o.write = 1'b1;
    req_o.addr = tuple_addr_q + addr_t'(beat_q);
    req_o.data = key_data_i;
    req_o.tag = '{dest: WaitForAcks ? DestComplete : DestDiscard, slot: slot_q, beat: beat_q, last: last_q};
    unique case (beat_q)
      4'd0: req_o.data = {25'd0, key_bytes_q, head_q};
      4'd1: req_o.data = {2'b10, timestamp_q};
      4'd2: req_o.data = '0;
      default: if (at_last) begin
        req_o.addr = line_q;
        req_o.data = {32'd0, tuple_addr_q};
      end
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      told_q <= 1'b0;
      beat_q <= '0;
    end else if (slot_ready_o) begin
      busy_q <= slot_valid_i;
      told_q <= 1'b0;
      beat_q <= '0;
    end else begin
      beat_q <= beat_next;
      if (tells) told_q <= 1'b1;
    end
    if (slot_ready_o) begin
      slot_q <= slot_i;
      key_bytes_q <= key_bytes_i;
      timestamp_q <= timestamp_i;
      tuple_addr_q <= tuple_addr_i;
      head_q <= head_i;
      line_q <= line_i;
      last_q <= beat_t'(TupleHeaderWords) + key_words(key_bytes_i);
    end
  end

endmodule
