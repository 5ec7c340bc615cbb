// Types that the units share: the memory port, the operations of an index, and the layout of tuples.
//
// Memory is words of 64 bits; every address is a word address, and address 0 is null.
//
//   bucket of a hash table, one word     [31:0] address of the first tuple, 0 if there is none
//   tuple, three words and its key       see hardware/doc/hash_index.md
//     word 0   [31:0] next tuple of the bucket, [38:32] bytes of the key
//     word 1   state: [61:0] write timestamp, [62] tombstone, [63] dirty
//     word 2   read timestamp
//     word 3.. the key, the first byte in the lowest bits, padded with zeros; the row follows it
//
// The state is one word, so that a commit, which clears the dirty bit and sets the timestamp, is one write.

package bionic_pkg;

  parameter int unsigned AddrBits = 32;
  parameter int unsigned SlotBits = 6;
  parameter int unsigned TimestampBits = 62;
  parameter int unsigned KeyBytesMax = 64;
  parameter int unsigned KeyWordsMax = KeyBytesMax / 8;
  parameter int unsigned TupleHeaderWords = 3;
  // Tuples of one bucket that an operation looks at before it gives up: a chain that is a circle ends too.
  parameter int unsigned ChainMax = 255;

  typedef logic [63:0] word_t;
  typedef logic [AddrBits-1:0] addr_t;
  typedef logic [SlotBits-1:0] slot_t;
  typedef logic [TimestampBits-1:0] timestamp_t;
  // Bytes of a key; 127 fits, so that a key that is too long can be named and refused.
  typedef logic [6:0] key_bytes_t;
  // A word of a burst, counted from 0.
  typedef logic [3:0] beat_t;

  // Which stage a response of the memory goes to. The unit's traverse stages follow DestTraverse.
  typedef logic [3:0] dest_t;
  localparam dest_t DestHash = 4'd0;
  localparam dest_t DestHead = 4'd1;
  localparam dest_t DestKeyComp = 4'd2;
  localparam dest_t DestComplete = 4'd3;
  localparam dest_t DestDiscard = 4'd4;
  localparam dest_t DestTraverse = 4'd8;

  // Returned by the memory as it was sent. `last` is the number of the burst's last word: words arrive in any
  // order, and the burst is complete when `last` + 1 of them have arrived.
  typedef struct packed {
    dest_t dest;
    slot_t slot;
    beat_t beat;
    beat_t last;
  } tag_t;
  localparam int unsigned TagBits = $bits(tag_t);

  // One word is read or written by each request. Every request is answered, a write too.
  typedef struct packed {
    logic  write;
    addr_t addr;
    word_t data;
    tag_t  tag;
  } mem_req_t;

  typedef struct packed {
    logic  error;
    word_t data;
    tag_t  tag;
  } mem_resp_t;

  typedef enum logic [1:0] {
    OpInsert = 2'd0,
    OpSearch = 2'd1,
    OpUpdate = 2'd2,
    OpRemove = 2'd3
  } op_kind_e;

  // How an operation ended.
  typedef enum logic [3:0] {
    CodeDone       = 4'd0,
    CodeNotFound   = 4'd1,
    CodeDuplicate  = 4'd2,
    CodeDirty      = 4'd3,
    CodeTooLate    = 4'd4,
    CodeBadKey     = 4'd8,
    CodeBadMemory  = 4'd9,
    CodeLongChain  = 4'd10
  } code_e;

  typedef logic [15:0] op_id_t;

  typedef struct packed {
    op_kind_e   kind;
    logic       unique_key;  // INSERT: CodeDuplicate if there is a tuple with the key
    addr_t      base;        // first bucket of the table
    addr_t      mask;        // number of buckets - 1
    addr_t      key_addr;
    key_bytes_t key_bytes;
    addr_t      tuple_addr;  // INSERT: where the new tuple goes
    timestamp_t timestamp;
    op_id_t     id;          // returned with the result
  } op_t;

  typedef struct packed {
    op_id_t id;
    code_e  code;
    addr_t  addr;            // the tuple, for CodeDone
  } result_t;

  // What a terminal stage hands to the finish stage.
  typedef enum logic [1:0] {
    FinishNow = 2'd0,        // nothing is outstanding
    FinishWrite = 2'd1,      // after one write
    FinishPending = 2'd2     // after writes that the stage issues itself
  } finish_e;

  typedef struct packed {
    slot_t   slot;
    code_e   code;
    addr_t   addr;
    finish_e how;
    addr_t   write_addr;
    word_t   write_data;
  } finish_t;

  // What the response stage hands to the stage that a burst was for.
  typedef struct packed {
    slot_t slot;
    logic  error;
    logic  differs;          // a word of the tuple's key differs from the search key
    logic  too_long;         // more than ChainMax tuples
  } arrival_t;

  function automatic beat_t key_words(key_bytes_t bytes);
    return beat_t'((bytes + 7'd7) >> 3);
  endfunction

  // Two steps of sdbm, h = h * 65599 + byte, of which 65599 = 2^16 + 2^6 - 1 and its square is
  // 2^23 - 2^17 + 2^12 - 2^7 + 1 modulo 2^32.
  function automatic logic [31:0] sdbm_pair(logic [31:0] h, logic [7:0] first, logic [7:0] second);
    logic [31:0] f;
    f = {24'd0, first};
    return (h << 23) - (h << 17) + (h << 12) - (h << 7) + h + (f << 16) + (f << 6) - f + {24'd0, second};
  endfunction

  function automatic logic [31:0] sdbm_single(logic [31:0] h, logic [7:0] first);
    return (h << 16) + (h << 6) - h + {24'd0, first};
  endfunction

endpackage
