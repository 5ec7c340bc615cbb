// The search keys of the operations in flight: a block memory with registered reads, one copy for each
// reader.

module key_memory
  import bionic_pkg::*;
#(
  parameter int unsigned Slots = 16,
  parameter int unsigned Readers = 1
) (
  input  logic                     clk_i,

  input  logic                     write_i,
  input  slot_t                    write_slot_i,
  input  logic [2:0]               write_word_i,
  input  word_t                    write_data_i,

  input  slot_t [Readers-1:0]      read_slot_i,
  input  logic [Readers-1:0][2:0]  read_word_i,
  output word_t [Readers-1:0]      read_data_o
);

  localparam int unsigned IndexBits = $clog2(Slots);
  localparam int unsigned Words = Slots * KeyWordsMax;

  for (genvar i = 0; i < Readers; i++) begin : gen_copies
    word_t words_q [Words];
    word_t data_q;

    always_ff @(posedge clk_i) begin
      if (write_i) words_q[{write_slot_i[IndexBits-1:0], write_word_i}] <= write_data_i;
      data_q <= words_q[{read_slot_i[i][IndexBits-1:0], read_word_i[i]}];
    end

    assign read_data_o[i] = data_q;
  end

endmodule
