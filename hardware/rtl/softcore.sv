// The softcore: runs the programs of transactions, many at a time, and leaves finding rows to the index.
//
//   transaction --> first phase: its DB instructions are issued --> context kept --> the next transaction
//   no register, context or transaction left: the batch is closed
//   first transaction --> second phase: results collected, rows read and changed, commit or undo
//   last transaction, all writes acknowledged: every transaction of the batch is reported
//
// An instruction takes two cycles, and longer where it waits for the memory, the index or a result. Registers
// are renamed by adding the transaction's base, which the batch hands out. The parts below can be left out,
// to show that the tests see it:
//   WaitForResults    RET waits for the index
//   WaitForWrites     a read of a tuple, or of what the core has written, waits for outstanding writes of
//                     that kind; FENCE waits for all
//   RenameRegisters   each transaction has registers of its own
//   CloseWhenFull     a transaction that finds no registers closes the batch
//   DrainBatch        transactions are reported, and the next begun, when all writes are acknowledged
// Page: hardware/doc/softcore.md. Source: BionicDB 4.3, figures 3 and 4; 4.5, figure 8; 4.7.

`include "assert.svh"

module softcore
  import bionic_pkg::*;
  import softcore_pkg::*;
#(
  parameter bit WaitForResults = 1'b1,
  parameter bit WaitForWrites = 1'b1,
  parameter bit RenameRegisters = 1'b1,
  parameter bit CloseWhenFull = 1'b1,
  parameter bit DrainBatch = 1'b1
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  logic                 load_valid_i,   // from the host, while nothing runs: code, catalogue, clock
  input  load_e                load_kind_i,
  input  pc_t                  load_at_i,
  input  word_t                load_data_i,

  input  logic [ContextBits:0] batch_max_i,    // transactions of a batch, 1 to Contexts; constant

  input  logic                 txn_valid_i,    // from the host: a block and its program
  output logic                 txn_ready_o,
  input  addr_t                txn_block_i,
  input  program_t             txn_program_i,

  output logic                 done_valid_o,   // to the host: a block that has ended
  input  logic                 done_ready_i,
  output addr_t                done_block_o,

  output logic                 op_valid_o,     // to the index
  input  logic                 op_ready_i,
  output op_t                  op_o,
  input  logic                 result_valid_i, // from the index; always taken
  input  result_t              result_i,

  output logic                 req_valid_o,    // memory
  input  logic                 req_ready_i,
  output mem_req_t             req_o,
  input  logic                 resp_valid_i,   // only answers to this core's requests
  input  mem_resp_t            resp_i,

  output logic                 retired_o,      // counted by the driver: an instruction ends in this cycle,
  output logic                 wait_result_o,  // RET waits,
  output logic                 wait_index_o,   // a DB instruction waits,
  output logic                 wait_memory_o,  // a read, write or move is under way,
  output logic                 switching_o,    // between two transactions,
  output logic                 closed_o        // a batch is closed because registers or contexts ran out
);

  typedef enum logic [3:0] {
    StIdle,
    StLookup,
    StDecode,
    StExecute,
    StRead,
    StWrite,
    StMove,
    StRestore,
    StRestored,
    StDrain,
    StReport,
    StReported
  } state_e;

  state_e state_q;
  state_e state_d;

  // Code and catalogue.

  word_t         code_q [CodeWords];
  program_desc_t programs_q [Programs];
  index_desc_t   indexes_q [Indexes];
  instr_t        instr_q;
  program_desc_t program_q;
  index_desc_t   index_q;
  pc_t           pc_q;
  pc_t           fetch_at;

  always_ff @(posedge clk_i) begin
    if (load_valid_i && load_kind_i == LoadCode) code_q[load_at_i] <= load_data_i;
    instr_q <= code_q[fetch_at];
  end

  always_ff @(posedge clk_i) begin
    if (load_valid_i && load_kind_i == LoadProgram) begin
      programs_q[load_at_i[ProgramBits-1:0]] <= load_data_i[$bits(program_desc_t)-1:0];
    end
    program_q <= programs_q[txn_program_i];
  end

  always_ff @(posedge clk_i) begin
    if (load_valid_i && load_kind_i == LoadIndex) begin
      indexes_q[load_at_i[IndexBits-1:0]] <= load_data_i[$bits(index_desc_t)-1:0];
    end
    index_q <= indexes_q[instr_q.c[IndexBits-1:0]];
  end

  // The batch, and the transaction that runs.

  context_t_s           contexts_q [Contexts];
  context_t_s           restored_q;
  context_t_s           running_q;
  logic [ContextBits:0] count_q;         // transactions of the batch
  context_t             current_q;       // which of them runs or is reported
  logic [RegisterBits:0] registers_q;    // handed out
  logic [RegisterBits:0] collects_q;
  timestamp_t           clock_q;
  logic                 undoing_q;
  logic [3:0]           why_q;
  logic [31:0]          why_imm_q;

  logic has_room;
  logic is_last;

  assign has_room = count_q < batch_max_i
    && (!CloseWhenFull || (11'(registers_q) + 11'(program_q.registers) <= 11'(Registers)
                        && 11'(collects_q) + 11'(program_q.collects) <= 11'(Registers)));
  assign is_last = (ContextBits+1)'(current_q) + 1'b1 == count_q;

  // Registers.

  value_t [1:0] operand;
  reg_t   [1:0] operand_at;
  logic         write_register;
  logic [7:0]   write_at;
  value_t       write_data;
  logic         is_branch;
  logic         first_is_a;
  reg_t         register_base;
  reg_t         collect_base;

  assign is_branch = instr_q.op >= OpcJmp && instr_q.op <= OpcBnt;
  assign first_is_a = is_branch || instr_q.op == OpcNarrow || instr_q.op == OpcLdhi || instr_q.op == OpcMaskn;
  assign register_base = RenameRegisters ? running_q.register_base : '0;
  assign collect_base = RenameRegisters ? running_q.collect_base : '0;
  assign operand_at[0] = register_base + (first_is_a ? instr_q.a : instr_q.b);
  assign operand_at[1] = register_base
    + (is_branch ? instr_q.b : instr_q.op == OpcStore || instr_q.op == OpcMove ? instr_q.a : instr_q.c);

  register_file u_registers (
    .clk_i,
    .write_i     (write_register),
    .write_at_i  (register_base + write_at),
    .write_data_i(write_data),
    .read_at_i   (operand_at),
    .read_data_o (operand)
  );

  logic  issue;
  reg_t  collect_at;
  logic  collected;
  code_e collected_code;
  addr_t collected_addr;
  logic  has_row;

  assign collect_at = collect_base
    + (instr_q.op == OpcRet ? instr_q.b : instr_q.op == OpcIndex ? instr_q.a : instr_q.c);
  assign has_row = collected_code == CodeDone;

  collect_file #(
    .WaitForResults(WaitForResults)
  ) u_collect (
    .clk_i,
    .rst_ni,
    .issue_i      (issue),
    .issue_at_i   (collect_at),
    .result_i     (result_valid_i),
    .result_data_i(result_i),
    .read_at_i    (collect_at),
    .read_ready_o (collected),
    .read_code_o  (collected_code),
    .read_addr_o  (collected_addr)
  );

  value_t alu_result;
  logic   alu_overflow;
  logic   alu_taken;

  softcore_alu u_alu (
    .instr_i   (instr_q),
    .first_i   (operand[0]),
    .second_i  (operand[1]),
    .result_o  (alu_result),
    .overflow_o(alu_overflow),
    .taken_o   (alu_taken)
  );

  // Index.

  assign op_o = '{
    kind: op_kind_e'(instr_q.b[1:0]),
    unique_key: 1'b1,
    base: index_q.base,
    mask: (32'd1 << index_q.buckets_log2) - 1'b1,
    key_addr: running_q.block + addr_t'(instr_q.imm[15:0]),
    key_bytes: index_q.key_bytes,
    tuple_addr: running_q.block + addr_t'(instr_q.imm[31:16]),
    timestamp: running_q.timestamp,
    id: op_id_t'(collect_at)
  };
  assign op_valid_o = state_q == StExecute && instr_q.op == OpcIndex;
  assign issue = op_valid_o && op_ready_i;

  // Memory instructions: what they are about is kept, because the next instruction is fetched meanwhile.

  place_t      place;
  logic        on_tuple;       // the place is in a tuple; else in the block
  addr_t       base;
  logic        needs_collect;  // the instruction looks at a collect register
  logic        is_memory;

  logic [7:0]  kept_a_q;
  logic [7:0]  kept_op_q;
  logic        kept_committed_q;
  value_t      kept_mask_q;
  addr_t       at_q;           // of the word
  addr_t       nulls_at_q;     // of the row's first word
  logic [5:0]  bit_q;
  logic        want_nulls_q;   // still to be asked for
  logic        want_value_q;
  logic        await_nulls_q;  // still to come
  logic        await_value_q;
  logic        write_tuple_q;
  word_t       write_data_q;
  word_t       nulls_q;
  word_t       value_q;
  logic        failed_q;       // a word outside the memory
  logic        missing_q;      // there is no row
  logic        guard_tuple_q;  // what is read may just have been written
  logic        guard_block_q;
  addr_t       to_q;           // of MOVETO
  logic        to_tuple_q;
  logic [7:0]  to_count_q;
  logic [5:0]  to_bit_q;
  logic [5:0]  to_bits_q;
  logic        mover_start;
  logic        mover_pending_q;
  logic        mover_busy;
  logic        mover_error;
  logic        mover_valid;
  logic        mover_ready;
  mem_req_t    mover_req;
  logic [9:0]  tuple_writes_q; // not yet acknowledged
  logic [9:0]  block_writes_q;
  logic        may_read;
  logic        quiet;          // all writes are acknowledged

  assign place = instr_q.imm;
  assign on_tuple = instr_q.c != BaseInputs && instr_q.c != BaseBlock;
  assign base = on_tuple ? collected_addr : running_q.block;
  assign is_memory = instr_q.op >= OpcLoad && instr_q.op <= OpcClean;
  assign needs_collect = instr_q.op == OpcRet || (is_memory && on_tuple);
  assign may_read = !WaitForWrites
    || ((!guard_tuple_q || tuple_writes_q == '0) && (!guard_block_q || block_writes_q == '0));

  assign quiet = tuple_writes_q == '0 && block_writes_q == '0;

  word_mover u_mover (
    .clk_i,
    .rst_ni,
    .start_i     (mover_start),
    .from_i      (at_q),
    .to_i        (to_q),
    .count_i     (to_count_q),
    .to_tuple_i  (to_tuple_q),
    .zeros_i     (missing_q),
    .busy_o      (mover_busy),
    .error_o     (mover_error),
    .req_valid_o (mover_valid),
    .req_ready_i (mover_ready),
    .req_o       (mover_req),
    .resp_valid_i(resp_valid_i && resp_i.tag.slot == CoreMove),
    .resp_i      (resp_i)
  );

  assign mover_start = state_q == StMove && mover_pending_q && !want_nulls_q && (may_read || missing_q);
  assign mover_ready = req_ready_i;

  always_comb begin
    req_valid_o = 1'b0;
    req_o = '{
      write: 1'b0,
      addr: want_nulls_q ? nulls_at_q : at_q,
      data: write_data_q,
      tag: '{dest: DestCore, slot: want_nulls_q ? CoreNulls : CoreValue, beat: '0, last: '0}
    };
    unique case (state_q)
      StRead:  req_valid_o = (want_nulls_q || want_value_q) && may_read;
      StWrite: begin
        req_valid_o = 1'b1;
        req_o.write = 1'b1;
        req_o.addr = at_q;
        req_o.tag.slot = write_tuple_q ? CoreTupleWrite : CoreBlockWrite;
      end
      StMove: begin
        req_valid_o = want_nulls_q ? may_read : mover_valid;
        if (!want_nulls_q) req_o = mover_req;
      end
      default: ;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      tuple_writes_q <= '0;
      block_writes_q <= '0;
    end else begin
      tuple_writes_q <= tuple_writes_q
        + 10'(req_valid_o && req_ready_i && req_o.write && req_o.tag.slot == CoreTupleWrite)
        - 10'(resp_valid_i && resp_i.tag.slot == CoreTupleWrite);
      block_writes_q <= block_writes_q
        + 10'(req_valid_o && req_ready_i && req_o.write && req_o.tag.slot == CoreBlockWrite)
        - 10'(resp_valid_i && resp_i.tag.slot == CoreBlockWrite);
    end
  end

  // What an instruction does in its last cycle.

  logic   execute_ends;   // StExecute is left
  logic   fails;          // to the code that undoes
  logic   [3:0]  fails_why;
  logic   read_ends;
  logic   move_ends;
  word_t  mask_bits;
  word_t  moved_mask;
  pc_t    next_pc;
  value_t loaded;

  assign read_ends = state_q == StRead && !want_nulls_q && !want_value_q && !await_nulls_q && !await_value_q;
  assign move_ends = state_q == StMove && !want_nulls_q && !await_nulls_q && !mover_pending_q && !mover_busy;
  assign loaded = '{is_null: missing_q || nulls_q[bit_q], bits: missing_q || nulls_q[bit_q] ? '0 : value_q};

  // The bits of a mask that a MOVE sets: one of any column, or several that are at the same place on both
  // sides.
  assign mask_bits = ((64'd1 << to_bits_q) - 1'b1) << to_bit_q;
  always_comb begin
    moved_mask = (kept_mask_q.bits & ~mask_bits) | (nulls_q & mask_bits);
    if (missing_q) moved_mask = kept_mask_q.bits | mask_bits;
    else if (to_bits_q == 6'd1) moved_mask[to_bit_q] = nulls_q[bit_q];
  end

  always_comb begin
    execute_ends = state_q == StExecute && (!needs_collect || collected);
    if (state_q == StExecute && instr_q.op == OpcIndex) execute_ends = op_ready_i;
    if (state_q == StExecute && instr_q.op == OpcFence) execute_ends = quiet || !WaitForWrites;
    fails = 1'b0;
    fails_why = WhyRaised;
    if (execute_ends && !undoing_q) begin
      if (instr_q.op == OpcRet && collected_code != CodeDone && collected_code != CodeNotFound) begin
        fails = 1'b1;
        fails_why = collected_code;
      end else if (instr_q.op == OpcRaise) begin
        fails = 1'b1;
      end else if (!is_branch && !is_memory && alu_overflow) begin
        fails = 1'b1;
        fails_why = WhyOverflow;
      end
    end
    if (!undoing_q && ((read_ends && failed_q) || (move_ends && (failed_q || mover_error)))) begin
      fails = 1'b1;
      fails_why = WhyMemory;
    end
  end

  always_comb begin
    next_pc = pc_q;
    if (execute_ends) next_pc = is_branch && alu_taken ? instr_q.imm[PcBits-1:0] : pc_q + 1'b1;
    if (fails) next_pc = running_q.abort_pc;
    if (state_q == StLookup) next_pc = program_q.start_pc;
    if (state_q == StRestored) next_pc = restored_q.commit_pc;
  end

  assign fetch_at = next_pc;

  always_comb begin
    write_register = 1'b0;
    write_at = kept_a_q;
    write_data = loaded;
    unique case (state_q)
      StExecute: begin
        write_at = instr_q.a;
        write_data = alu_result;
        unique case (instr_q.op)
          OpcRet: begin
            write_register = execute_ends && !fails;
            write_data = '{is_null: 1'b0, bits: {63'd0, has_row}};
          end
          OpcWhere: begin
            write_register = execute_ends;
            write_data = '{is_null: 1'b0, bits: has_row ? {32'd0, collected_addr} : '0};
          end
          OpcStore: begin
            write_register = execute_ends;
            write_data = operand[1];
            write_data.bits[place.bit_at] = operand[0].is_null;
          end
          default: write_register = !is_branch && !is_memory && !fails && instr_q.op != OpcIndex
            && instr_q.op != OpcFence && instr_q.op >= OpcMov;
        endcase
      end
      StRead: begin
        write_register = read_ends && (kept_op_q == OpcLoad || kept_op_q == OpcLoadw);
      end
      StMove: begin
        write_register = move_ends && to_bits_q != '0;
        write_data = '{is_null: 1'b0, bits: moved_mask};
      end
      default: ;
    endcase
  end

  // States.

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StIdle: begin
        if (txn_valid_i) state_d = StLookup;
        else if (count_q != '0) state_d = StRestore;
      end
      StLookup:   state_d = has_room ? StDecode : StRestore;
      StDecode:   state_d = StExecute;
      StExecute: begin
        if (execute_ends) begin
          unique case (instr_q.op)
            OpcLoad, OpcLoadw:   state_d = StRead;
            OpcStore, OpcStorew: state_d = StWrite;
            OpcMove:             state_d = StMove;
            OpcClean: begin
              if (!has_row) state_d = StDecode;
              else state_d = instr_q.b[0] ? StWrite : StRead;
            end
            OpcEnd:              state_d = StIdle;
            OpcCommit, OpcAbort: state_d = StWrite;
            default:             state_d = StDecode;
          endcase
        end
      end
      StRead:     if (read_ends) state_d = kept_op_q == OpcClean ? StWrite : StDecode;
      StWrite: begin
        if (req_ready_i) begin
          if (kept_op_q != OpcCommit && kept_op_q != OpcAbort) state_d = StDecode;
          else state_d = is_last ? StDrain : StRestore;
        end
      end
      StMove:     if (move_ends) state_d = StDecode;
      StRestore:  state_d = StRestored;
      StRestored: state_d = StDecode;
      StDrain:    if (!DrainBatch || quiet) state_d = StReport;
      StReport:   state_d = StReported;
      StReported: if (done_ready_i) state_d = is_last ? StIdle : StReport;
      default:    state_d = StIdle;
    endcase
  end

  assign txn_ready_o = state_q == StLookup && has_room;
  assign done_valid_o = state_q == StReported;
  assign done_block_o = restored_q.block;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= StIdle;
      pc_q <= '0;
    end else begin
      state_q <= state_d;
      pc_q <= next_pc;
    end
  end

  // A batch grows in the first phase, runs again in the second, and is reported.
  always_ff @(posedge clk_i) begin
    restored_q <= contexts_q[current_q];
    if (state_q == StExecute && execute_ends && instr_q.op == OpcEnd) begin
      contexts_q[count_q[ContextBits-1:0]] <= running_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      count_q <= '0;
      current_q <= '0;
      registers_q <= '0;
      collects_q <= '0;
    end else begin
      if (txn_ready_o) begin
        registers_q <= registers_q + (RegisterBits+1)'(program_q.registers);
        collects_q <= collects_q + (RegisterBits+1)'(program_q.collects);
      end
      if (state_q == StExecute && execute_ends && instr_q.op == OpcEnd) count_q <= count_q + 1'b1;
      if ((state_q == StWrite && (state_d == StRestore || state_d == StDrain))
          || (state_q == StReported && done_ready_i)) begin
        current_q <= is_last ? '0 : current_q + 1'b1;
      end
      if (state_q == StReported && state_d == StIdle) begin
        count_q <= '0;
        registers_q <= '0;
        collects_q <= '0;
      end
    end
    if (load_valid_i && load_kind_i == LoadClock) clock_q <= load_data_i[TimestampBits-1:0];
    else if (txn_ready_o) clock_q <= clock_q + 1'b1;
  end

  always_ff @(posedge clk_i) begin
    if (txn_ready_o) begin
      running_q <= '{
        block: txn_block_i,
        register_base: registers_q[RegisterBits-1:0],
        collect_base: collects_q[RegisterBits-1:0],
        commit_pc: program_q.commit_pc,
        abort_pc: program_q.abort_pc,
        timestamp: clock_q + 1'b1
      };
      undoing_q <= 1'b0;
    end
    if (state_q == StRestored) begin
      running_q <= restored_q;
      undoing_q <= 1'b0;
    end
    if (fails) begin
      undoing_q <= 1'b1;
      why_q <= fails_why;
      why_imm_q <= state_q == StExecute && instr_q.op == OpcRaise ? instr_q.imm : 32'(pc_q);
    end
  end

  // Memory instructions.
  always_ff @(posedge clk_i) begin
    if (execute_ends) begin
      kept_a_q <= instr_q.a;
      kept_op_q <= instr_q.op;
      kept_committed_q <= instr_q.b[0];
      kept_mask_q <= operand[1];
      bit_q <= place.bit_at;
      nulls_at_q <= base + addr_t'(place.row);
      at_q <= base + addr_t'(place.row) + addr_t'(place.column);
      missing_q <= on_tuple && !has_row;
      failed_q <= 1'b0;
      guard_tuple_q <= on_tuple;
      guard_block_q <= instr_q.c == BaseBlock;
      write_tuple_q <= on_tuple;
      want_nulls_q <= 1'b0;
      want_value_q <= 1'b0;
      await_nulls_q <= 1'b0;
      await_value_q <= 1'b0;
      mover_pending_q <= 1'b0;
      unique case (instr_q.op)
        OpcLoad, OpcLoadw: begin
          want_nulls_q <= instr_q.op == OpcLoad && !(on_tuple && !has_row);
          await_nulls_q <= instr_q.op == OpcLoad && !(on_tuple && !has_row);
          want_value_q <= !(on_tuple && !has_row);
          await_value_q <= !(on_tuple && !has_row);
          nulls_q <= '0;
        end
        OpcStore:  write_data_q <= operand[0].is_null ? '0 : operand[0].bits;
        OpcStorew: write_data_q <= operand[0].bits;
        OpcMoveto: begin
          to_q <= base + addr_t'(instr_q.imm[15:0]);
          to_tuple_q <= on_tuple;
          to_count_q <= instr_q.imm[23:16];
          to_bit_q <= instr_q.a[5:0];
          to_bits_q <= instr_q.b[5:0];
        end
        OpcMove: begin
          want_nulls_q <= to_bits_q != '0 && !(on_tuple && !has_row);
          await_nulls_q <= to_bits_q != '0 && !(on_tuple && !has_row);
          mover_pending_q <= 1'b1;
        end
        OpcClean: begin
          at_q <= base + addr_t'(1);
          want_value_q <= !instr_q.b[0];
          await_value_q <= !instr_q.b[0];
          write_data_q <= {2'b00, running_q.timestamp};
        end
        OpcCommit, OpcAbort: begin
          at_q <= running_q.block;
          write_tuple_q <= 1'b0;
          write_data_q <= undoing_q
            ? {2'd2, 26'd0, why_q, why_imm_q} : {2'd1, running_q.timestamp};
        end
        default: ;
      endcase
    end
    if (req_valid_o && req_ready_i && (state_q == StRead || state_q == StMove)) begin
      if (want_nulls_q) want_nulls_q <= 1'b0;
      else if (state_q == StRead) want_value_q <= 1'b0;
    end
    if (mover_start) mover_pending_q <= 1'b0;
    if (resp_valid_i && resp_i.tag.slot == CoreNulls) begin
      await_nulls_q <= 1'b0;
      nulls_q <= resp_i.data;
      if (resp_i.error) failed_q <= 1'b1;
    end
    if (resp_valid_i && resp_i.tag.slot == CoreValue) begin
      await_value_q <= 1'b0;
      value_q <= resp_i.data;
      // A tuple that is cleaned after an undo keeps its timestamp, and is neither dirty nor a tombstone.
      write_data_q <= {2'b00, resp_i.data[TimestampBits-1:0]};
      if (resp_i.error) failed_q <= 1'b1;
    end
  end

  assign retired_o = execute_ends;
  assign wait_result_o = state_q == StExecute && needs_collect && !collected;
  assign wait_index_o = op_valid_o && !op_ready_i;
  assign wait_memory_o = state_q == StRead || state_q == StWrite || state_q == StMove || state_q == StDrain;
  assign switching_o = (state_q == StIdle && state_d != StIdle) || state_q == StLookup
    || state_q == StRestore || state_q == StRestored || (execute_ends && instr_q.op == OpcEnd);
  assign closed_o = state_q == StLookup && !has_room;

  // The first phase only issues: it cannot fail.
  `WEFT_ASSERT(known_program, !txn_ready_o || program_q.start_pc != program_q.commit_pc)
  // A program alone fits; the loader sees to it.
  `WEFT_ASSERT(fits_alone, !closed_o || count_q != '0)
  `WEFT_ASSERT(writes_bounded, tuple_writes_q != '1 && block_writes_q != '1)

endmodule
