// Takes the memory's responses and wakes the stage that a burst was for when its last word has come.
//
//   response --> [ register; search key word is read ] --> [ compare, store, count ] --> queues of the stages
//
// A word of a tuple's key is compared with the search key's when it arrives, so the judging stages see one
// bit. The words of a burst come in any order; the number of those that have come is kept for each slot,
// which has at most one burst outstanding. Responses are never held back. This stage alone writes the tables
// of tuples.

module response_stage
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16,
  parameter int unsigned TraverseStages = 2
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,

  input  logic                      resp_valid_i,
  input  mem_resp_t                 resp_i,

  output slot_t                     key_slot_o,      // key memory, registered
  output logic [2:0]                key_word_o,
  input  word_t                     key_data_i,
  output logic                      key_write_o,
  output slot_t                     key_write_slot_o,
  output logic [2:0]                key_write_word_o,
  output word_t                     key_write_data_o,

  output logic                      key_arrived_o,   // the key of a slot is complete
  output logic                      head_valid_o,
  output logic                      key_comp_valid_o,
  output logic                      complete_valid_o,
  output logic [TraverseStages-1:0] traverse_valid_o,
  output arrival_t                  arrival_o,       // for whichever of them is valid

  input  slot_t                     head_slot_i,     // the bucket's word: for HeadFetch, and for Install
  output addr_t                     head_o,
  input  slot_t                     install_slot_i,
  output addr_t                     install_head_o,

  input  slot_t [TraverseStages:0]  item_slot_i,     // KeyComp, then the traverse stages
  output addr_t [TraverseStages:0]  item_addr_o,
  output word_t [TraverseStages:0]  item_link_o,
  output word_t [TraverseStages:0]  item_state_o,
  output word_t [TraverseStages:0]  item_read_o
);

  localparam int unsigned IndexBits = $clog2(Slots);
  typedef logic [IndexBits-1:0] index_t;

  logic      valid_q;
  mem_resp_t resp_q;

  // Progress of each slot's burst.
  beat_t      arrived_q [Slots];
  logic       error_q [Slots];
  logic       differs_q [Slots];
  logic [7:0] chain_q [Slots];      // tuples of the bucket seen so far
  logic       key_error_q [Slots];  // the search key could not be read

  // What has arrived.
  addr_t head_q [Slots];
  addr_t addr_q [Slots];
  word_t link_q [Slots];
  word_t state_q [Slots];
  word_t read_q [Slots];

  index_t at;
  logic   is_item;
  logic   is_link;
  logic   is_key;
  logic   first;
  logic   whole;
  logic   error;
  logic   differs;

  assign key_slot_o = resp_i.tag.slot;
  assign key_word_o = 3'(resp_i.tag.beat - beat_t'(TupleHeaderWords));

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
    end else begin
      valid_q <= resp_valid_i;
    end
    resp_q <= resp_i;
  end

  assign at = resp_q.tag.slot[IndexBits-1:0];
  assign is_item = resp_q.tag.dest == DestKeyComp || resp_q.tag.dest >= DestTraverse;
  assign is_link = is_item && resp_q.tag.beat == '0;
  assign is_key = is_item && resp_q.tag.beat >= beat_t'(TupleHeaderWords);
  assign first = arrived_q[at] == '0;
  assign whole = arrived_q[at] == resp_q.tag.last;
  assign error = resp_q.error || (!first && error_q[at]) || (resp_q.tag.dest == DestHead && key_error_q[at]);
  assign differs = (is_key && resp_q.data != key_data_i) || (!first && differs_q[at]);

  assign key_write_o = valid_q && resp_q.tag.dest == DestHash;
  assign key_write_slot_o = resp_q.tag.slot;
  assign key_write_word_o = resp_q.tag.beat[2:0];
  assign key_write_data_o = resp_q.data;

  assign arrival_o = '{
    slot: resp_q.tag.slot,
    error: error,
    differs: differs,
    too_long: chain_q[at] + 8'(is_link) == 8'(ChainMax)
  };
  assign key_arrived_o = valid_q && whole && resp_q.tag.dest == DestHash;
  assign head_valid_o = valid_q && whole && resp_q.tag.dest == DestHead;
  assign key_comp_valid_o = valid_q && whole && resp_q.tag.dest == DestKeyComp;
  assign complete_valid_o = valid_q && whole && resp_q.tag.dest == DestComplete;
  for (genvar i = 0; i < TraverseStages; i++) begin : gen_traverse_valid
    assign traverse_valid_o[i] = valid_q && whole && resp_q.tag.dest == DestTraverse + dest_t'(i);
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      for (int unsigned i = 0; i < Slots; i++) arrived_q[i] <= '0;
    end else if (valid_q && resp_q.tag.dest != DestDiscard) begin
      arrived_q[at] <= whole ? '0 : arrived_q[at] + 1'b1;
    end
    if (valid_q && resp_q.tag.dest != DestDiscard) begin
      if (resp_q.tag.dest == DestHash) key_error_q[at] <= error;
      error_q[at] <= error;
      differs_q[at] <= differs;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_q && resp_q.tag.dest == DestHead) begin
      head_q[at] <= resp_q.data[AddrBits-1:0];
      chain_q[at] <= '0;
    end else if (valid_q && is_link) begin
      chain_q[at] <= chain_q[at] + 1'b1;
    end
    // The address of a tuple is the link that led to it.
    if (valid_q && is_link) addr_q[at] <= link_q[at][AddrBits-1:0];
    if (valid_q && (is_link || resp_q.tag.dest == DestHead)) link_q[at] <= resp_q.data;
    if (valid_q && is_item && resp_q.tag.beat == beat_t'(1)) state_q[at] <= resp_q.data;
    if (valid_q && is_item && resp_q.tag.beat == beat_t'(2)) read_q[at] <= resp_q.data;
  end

  assign head_o = head_q[head_slot_i[IndexBits-1:0]];
  assign install_head_o = head_q[install_slot_i[IndexBits-1:0]];
  for (genvar i = 0; i <= TraverseStages; i++) begin : gen_items
    assign item_addr_o[i] = addr_q[item_slot_i[i][IndexBits-1:0]];
    assign item_link_o[i] = link_q[item_slot_i[i][IndexBits-1:0]];
    assign item_state_o[i] = state_q[item_slot_i[i][IndexBits-1:0]];
    assign item_read_o[i] = read_q[item_slot_i[i][IndexBits-1:0]];
  end

endmodule
