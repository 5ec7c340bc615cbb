// Reads a tuple: its header and as many words of its key as the search key has.
//
// Takes (slot, address, words) and issues one request in each cycle that the port grants. Another tuple can
// be taken in the cycle of the last request, so the port is kept busy.

module item_reader
  import bionic_pkg::*;
(
  input  logic     clk_i,
  input  logic     rst_ni,

  input  logic     valid_i,
  output logic     ready_o,
  input  slot_t    slot_i,
  input  addr_t    addr_i,
  input  beat_t    last_i,    // number of the last word
  input  dest_t    dest_i,

  output logic     req_valid_o,
  input  logic     req_ready_i,
  output mem_req_t req_o
);

  logic  busy_q;
  slot_t slot_q;
  addr_t addr_q;
  beat_t last_q;
  beat_t beat_q;
  dest_t dest_q;
  logic  ending;

  assign ending = req_ready_i && beat_q == last_q;
  assign ready_o = !busy_q || ending;
  assign req_valid_o = busy_q;
  assign req_o = '{
    write: 1'b0,
    addr: addr_q + addr_t'(beat_q),
    data: '0,
    tag: '{dest: dest_q, slot: slot_q, beat: beat_q, last: last_q}
  };

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      busy_q <= 1'b0;
      beat_q <= '0;
    end else if (valid_i && ready_o) begin
      busy_q <= 1'b1;
      beat_q <= '0;
    end else if (busy_q && req_ready_i) begin
      busy_q <= !ending;
      beat_q <= beat_q + 1'b1;
    end
    if (valid_i && ready_o) begin
      slot_q <= slot_i;
      addr_q <= addr_i;
      last_q <= last_i;
      dest_q <= dest_i;
    end
  end

endmodule
