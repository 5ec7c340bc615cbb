// Types of the softcore: its instruction words, its catalogue, and the tags of its memory requests.
//
//   instruction, one word of 64 bits: [7:0] op, [15:8] a, [23:16] b, [31:24] c, [63:32] imm
//
// Opcodes that mean the same as in a program (docs/formats/program.md) have its numbers; those from 0xC0 on
// are the core's own and are made by the loader (crates/device/src/softcore/lower.rs). Tables:
// hardware/doc/softcore.md.

package softcore_pkg;

  import bionic_pkg::*;

  parameter int unsigned CodeWords = 4096;
  parameter int unsigned Programs = 64;
  parameter int unsigned Indexes = 16;
  parameter int unsigned Registers = 256;
  parameter int unsigned Contexts = 64;

  parameter int unsigned PcBits = $clog2(CodeWords);
  parameter int unsigned ProgramBits = $clog2(Programs);
  parameter int unsigned IndexBits = $clog2(Indexes);
  parameter int unsigned RegisterBits = $clog2(Registers);
  parameter int unsigned ContextBits = $clog2(Contexts);

  typedef logic [PcBits-1:0] pc_t;
  typedef logic [ProgramBits-1:0] program_t;
  typedef logic [RegisterBits-1:0] reg_t;
  typedef logic [ContextBits-1:0] context_t;

  // A register: 64 bits and a NULL flag.
  typedef struct packed {
    logic  is_null;
    word_t bits;
  } value_t;

  typedef struct packed {
    logic [31:0] imm;
    logic [7:0]  c;
    logic [7:0]  b;
    logic [7:0]  a;
    logic [7:0]  op;
  } instr_t;

  // Opcodes of programs.
  localparam logic [7:0] OpcJmp = 8'h01;
  localparam logic [7:0] OpcBe = 8'h02;
  localparam logic [7:0] OpcBne = 8'h03;
  localparam logic [7:0] OpcBlt = 8'h04;
  localparam logic [7:0] OpcBle = 8'h05;
  localparam logic [7:0] OpcBgt = 8'h06;
  localparam logic [7:0] OpcBge = 8'h07;
  localparam logic [7:0] OpcBnull = 8'h08;
  localparam logic [7:0] OpcBnnull = 8'h09;
  localparam logic [7:0] OpcBt = 8'h0A;
  localparam logic [7:0] OpcBnt = 8'h0B;
  localparam logic [7:0] OpcRet = 8'h10;
  localparam logic [7:0] OpcCommit = 8'h11;
  localparam logic [7:0] OpcAbort = 8'h12;
  localparam logic [7:0] OpcEnd = 8'h13;
  localparam logic [7:0] OpcRaise = 8'h14;
  localparam logic [7:0] OpcMov = 8'h20;
  localparam logic [7:0] OpcLdi = 8'h21;
  localparam logic [7:0] OpcLdnull = 8'h22;
  localparam logic [7:0] OpcAdd = 8'h28;
  localparam logic [7:0] OpcSub = 8'h29;
  localparam logic [7:0] OpcNeg = 8'h2D;
  localparam logic [7:0] OpcAbs = 8'h2E;
  localparam logic [7:0] OpcNarrow = 8'h2F;
  localparam logic [7:0] OpcNot = 8'h48;
  localparam logic [7:0] OpcAnd = 8'h49;
  localparam logic [7:0] OpcOr = 8'h4A;
  localparam logic [7:0] OpcIsnull = 8'h4B;
  localparam logic [7:0] OpcCmp = 8'h50;
  localparam logic [7:0] OpcTest = 8'h54;
  // The core's own.
  localparam logic [7:0] OpcLdhi = 8'hC0;      // a[63:32] = imm
  localparam logic [7:0] OpcIndex = 8'hC1;     // DB instruction: a collect register, b kind, c index, imm key
  localparam logic [7:0] OpcLoad = 8'hC2;      // a = column of a row
  localparam logic [7:0] OpcLoadw = 8'hC3;     // a = word
  localparam logic [7:0] OpcStore = 8'hC4;     // column of a row = b; its bit in mask a
  localparam logic [7:0] OpcStorew = 8'hC5;    // word = b
  localparam logic [7:0] OpcMoveto = 8'hC6;    // where the next MOVE goes
  localparam logic [7:0] OpcMove = 8'hC7;      // words of a row; their bits of mask a
  localparam logic [7:0] OpcWhere = 8'hC8;     // a = address of the tuple of a collect register, or 0
  localparam logic [7:0] OpcClean = 8'hC9;     // a tuple is no longer dirty: b = 1 committed, 0 undone
  localparam logic [7:0] OpcMaskn = 8'hCA;     // bit imm of mask a = 1
  localparam logic [7:0] OpcFence = 8'hCB;     // waits until all writes of the core are acknowledged

  // Where the addresses of LOAD, STORE, MOVE begin: a collect register's tuple, or one of these.
  localparam logic [7:0] BaseInputs = 8'hFD;   // the transaction block where the core writes nothing
  localparam logic [7:0] BaseBlock = 8'hFE;    // the transaction block

  // imm of memory instructions: bit of the column in the row's first word, column and row as offsets in
  // words.
  typedef struct packed {
    logic [5:0]  bit_at;
    logic [12:0] column;
    logic [12:0] row;
  } place_t;

  // Catalogue.
  typedef struct packed {
    logic [9:0]        collects;
    logic [9:0]        registers;
    pc_t               abort_pc;
    pc_t               commit_pc;
    pc_t               start_pc;
  } program_desc_t;

  typedef struct packed {
    key_bytes_t key_bytes;
    logic [4:0] buckets_log2;
    addr_t      base;
  } index_desc_t;

  typedef enum logic [1:0] {
    LoadCode = 2'd0,
    LoadProgram = 2'd1,
    LoadIndex = 2'd2,
    LoadClock = 2'd3
  } load_e;

  // What is kept of a transaction between its two phases.
  typedef struct packed {
    addr_t      block;
    reg_t       register_base;
    reg_t       collect_base;
    pc_t        commit_pc;
    pc_t        abort_pc;
    timestamp_t timestamp;
  } context_t_s;

  // How a transaction ended: the first word of its block.
  //   committed  [63:62] 1, [61:0] timestamp
  //   undone     [63:62] 2, [35:32] why (code_e of the index, or below), [31:0] imm of the RAISE or 0
  localparam logic [3:0] WhyRaised = 4'd14;
  localparam logic [3:0] WhyOverflow = 4'd15;
  localparam logic [3:0] WhyMemory = 4'd13;

  // Tags of the core's requests: dest is DestCore, slot says what for, beat and last number the words of a
  // MOVE.
  localparam dest_t DestCore = 4'd5;
  localparam slot_t CoreNulls = 6'd0;
  localparam slot_t CoreValue = 6'd1;
  localparam slot_t CoreMove = 6'd2;
  localparam slot_t CoreTupleWrite = 6'd3;
  localparam slot_t CoreBlockWrite = 6'd4;

endpackage
