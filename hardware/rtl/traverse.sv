// Traverse: follows the tuples of a bucket until one matches or the last has been seen.
//
//   from KeyComp ------\
//                       [ reader ] --> port ... memory ... [ judge ] --> install, finish
//   next tuple <-------/                                       |
//        ^-----------------------------------------------------/
//
// Many operations can be between reader and judge at the same time. A unit has several traverse stages
// because each has one reader: with long chains a single reader asks for words more slowly than the port
// could take them. Source: BionicDB 4.4.1.

module traverse
  import bionic_pkg::*;
#(
  parameter dest_t Dest = DestTraverse
) (
  input  logic       clk_i,
  input  logic       rst_ni,

  input  logic       start_valid_i,
  output logic       start_ready_o,
  input  slot_t      start_slot_i,
  input  addr_t      start_addr_i,
  input  beat_t      start_last_i,

  input  logic       arrival_valid_i,
  output logic       arrival_ready_o,
  input  arrival_t   arrival_i,

  output slot_t      read_slot_o,
  input  op_kind_e   kind_i,
  input  key_bytes_t key_bytes_i,
  input  timestamp_t timestamp_i,
  input  addr_t      item_addr_i,
  input  word_t      item_link_i,
  input  word_t      item_state_i,
  input  word_t      item_read_i,

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

  logic  next_valid;
  logic  next_ready;
  slot_t next_slot;
  addr_t next_addr;
  beat_t next_last;
  logic  reader_ready;

  item_judge u_judge (
    .clk_i,
    .rst_ni,
    .arrival_valid_i,
    .arrival_ready_o,
    .arrival_i,
    .read_slot_o,
    .kind_i,
    .key_bytes_i,
    .timestamp_i,
    .item_addr_i,
    .item_link_i,
    .item_state_i,
    .item_read_i,
    .next_valid_o (next_valid),
    .next_ready_i (next_ready),
    .next_slot_o  (next_slot),
    .next_addr_o  (next_addr),
    .next_last_o  (next_last),
    .install_valid_o,
    .install_ready_i,
    .install_slot_o,
    .finish_valid_o,
    .finish_ready_i,
    .finish_o
  );

  // Operations that are here already go before those that come.
  assign next_ready = reader_ready;
  assign start_ready_o = reader_ready && !next_valid;

  item_reader u_reader (
    .clk_i,
    .rst_ni,
    .valid_i (next_valid || start_valid_i),
    .ready_o (reader_ready),
    .slot_i  (next_valid ? next_slot : start_slot_i),
    .addr_i  (next_valid ? next_addr : start_addr_i),
    .last_i  (next_valid ? next_last : start_last_i),
    .dest_i  (Dest),
    .req_valid_o,
    .req_ready_i,
    .req_o
  );

endmodule
