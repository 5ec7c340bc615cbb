// What the softcore computes: 64-bit integers with a NULL flag, three-valued logic, conditions of branches.
//
// One cycle, no state. Overflow is an error of the transaction (22003), not a flag. Golden model: the
// interpreter of `weft-program`.

module softcore_alu
  import bionic_pkg::*;
  import softcore_pkg::*;
(
  input  instr_t instr_i,
  input  value_t first_i,
  input  value_t second_i,
  output value_t result_o,
  output logic   overflow_o,
  output logic   taken_o       // of a branch
);

  logic        either_null;
  logic [64:0] sum;
  logic [64:0] difference;
  logic        equal;
  logic        less;
  logic        test_equal;
  logic        test_less;
  logic        holds;
  logic        first_zero;
  logic        second_zero;

  assign either_null = first_i.is_null || second_i.is_null;
  assign sum = {first_i.bits[63], first_i.bits} + {second_i.bits[63], second_i.bits};
  assign difference = {first_i.bits[63], first_i.bits} - {second_i.bits[63], second_i.bits};
  assign equal = first_i.bits == second_i.bits;
  assign less = $signed(first_i.bits) < $signed(second_i.bits);
  assign first_zero = first_i.bits == '0;
  assign second_zero = second_i.bits == '0;
  assign test_equal = instr_i.op == OpcTest ? first_zero : equal;
  assign test_less = instr_i.op == OpcTest ? first_i.bits[63] : less;

  function automatic value_t truth(logic value);
    return '{is_null: 1'b0, bits: {63'd0, value}};
  endfunction

  always_comb begin
    unique case (instr_i.imm[2:0])
      3'd0:    holds = test_equal;
      3'd1:    holds = !test_equal;
      3'd2:    holds = test_less;
      3'd3:    holds = test_less || test_equal;
      3'd4:    holds = !test_less && !test_equal;
      default: holds = !test_less;
    endcase
  end

  always_comb begin
    unique case (instr_i.op)
      OpcJmp:    taken_o = 1'b1;
      OpcBe:     taken_o = !either_null && equal;
      OpcBne:    taken_o = !either_null && !equal;
      OpcBlt:    taken_o = !either_null && less;
      OpcBle:    taken_o = !either_null && (less || equal);
      OpcBgt:    taken_o = !either_null && !(less || equal);
      OpcBge:    taken_o = !either_null && !less;
      OpcBnull:  taken_o = first_i.is_null;
      OpcBnnull: taken_o = !first_i.is_null;
      OpcBt:     taken_o = !first_i.is_null && !first_zero;
      OpcBnt:    taken_o = first_i.is_null || first_zero;
      default:   taken_o = 1'b0;
    endcase
  end

  always_comb begin
    result_o = '{is_null: either_null, bits: '0};
    overflow_o = 1'b0;
    unique case (instr_i.op)
      OpcMov:    result_o = first_i;
      OpcLdi:    result_o = '{is_null: 1'b0, bits: {{32{instr_i.imm[31]}}, instr_i.imm}};
      OpcLdhi:   result_o = '{is_null: 1'b0, bits: {instr_i.imm, first_i.bits[31:0]}};
      OpcLdnull: result_o = '{is_null: 1'b1, bits: '0};
      OpcMaskn:  result_o = '{is_null: 1'b0, bits: first_i.bits | (64'd1 << instr_i.imm[5:0])};
      OpcAdd: begin
        result_o.bits = sum[63:0];
        overflow_o = !either_null && sum[64] != sum[63];
      end
      OpcSub: begin
        result_o.bits = difference[63:0];
        overflow_o = !either_null && difference[64] != difference[63];
      end
      OpcNeg, OpcAbs: begin
        result_o = first_i;
        if (instr_i.op == OpcNeg || first_i.bits[63]) begin
          result_o.bits = -first_i.bits;
          overflow_o = !first_i.is_null && first_i.bits == {1'b1, 63'd0};
        end
      end
      OpcNarrow: begin
        result_o = first_i;
        overflow_o = !first_i.is_null && (instr_i.c == 8'd4
          ? first_i.bits[63:31] != {33{first_i.bits[31]}}
          : instr_i.c == 8'd2 && first_i.bits[63:15] != {49{first_i.bits[15]}});
      end
      OpcNot:    result_o = first_i.is_null ? first_i : truth(first_zero);
      OpcAnd: begin
        if ((!first_i.is_null && first_zero) || (!second_i.is_null && second_zero)) result_o = truth(1'b0);
        else if (!either_null) result_o = truth(1'b1);
      end
      OpcOr: begin
        if ((!first_i.is_null && !first_zero) || (!second_i.is_null && !second_zero)) result_o = truth(1'b1);
        else if (!either_null) result_o = truth(1'b0);
      end
      OpcIsnull: result_o = truth(first_i.is_null);
      OpcCmp:    if (!either_null) result_o = truth(holds);
      OpcTest:   result_o = first_i.is_null ? first_i : truth(holds);
      default:   result_o = '0;
    endcase
    if (result_o.is_null) result_o.bits = '0;
  end

endmodule
