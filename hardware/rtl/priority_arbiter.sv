// Many senders, one receiver: the valid sender with the lowest number is served.
//
// No sender starves where this is used: the senders are stages of a pipeline whose operations are bounded by
// its slots, so those that are served run dry until the others are.

module priority_arbiter #(
  parameter int unsigned Senders = 2,
  parameter int unsigned Width = 8
) (
  input  logic [Senders-1:0]            valid_i,
  output logic [Senders-1:0]            ready_o,
  input  logic [Senders-1:0][Width-1:0] data_i,

  output logic                          valid_o,
  input  logic                          ready_i,
  output logic [Width-1:0]              data_o
);

  logic [Senders-1:0] grant;

  always_comb begin
    grant = '0;
    data_o = '0;
    for (int unsigned i = Senders; i > 0; i--) begin
      if (valid_i[i-1]) begin
        grant = '0;
        grant[i-1] = 1'b1;
        data_o = data_i[i-1];
      end
    end
  end

  assign valid_o = |valid_i;
  assign ready_o = ready_i ? grant : '0;

endmodule
