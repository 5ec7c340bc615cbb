// The memory port of a unit: stages ask for words, one request leaves in each cycle.
//
//   requests of stages --> [ arbiter ] --> [ register ] --> req_valid_o, req_o
//                                                       <-- req_ready_i
//
// The register keeps a request stable until the memory takes it. Source: BionicDB 4.1 (random accesses of 64
// bits), 4.4 (a stage designates the stage that a response goes to).

`include "assert.svh"

module memory_port
  import bionic_pkg::*;
#(
  parameter int unsigned Senders = 2
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,

  input  logic [Senders-1:0]     valid_i,
  output logic [Senders-1:0]     ready_o,
  input  mem_req_t [Senders-1:0] req_i,

  output logic                   req_valid_o,
  input  logic                   req_ready_i,
  output mem_req_t               req_o
);

  logic     granted_valid;
  logic     granted_ready;
  mem_req_t granted;
  logic     valid_q;
  mem_req_t req_q;

  priority_arbiter #(
    .Senders(Senders),
    .Width  ($bits(mem_req_t))
  ) u_arbiter (
    .valid_i(valid_i),
    .ready_o(ready_o),
    .data_i (req_i),
    .valid_o(granted_valid),
    .ready_i(granted_ready),
    .data_o (granted)
  );

  assign granted_ready = !valid_q || req_ready_i;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
    end else if (granted_ready) begin
      valid_q <= granted_valid;
    end
    if (granted_ready) req_q <= granted;
  end

  assign req_valid_o = valid_q;
  assign req_o = req_q;

endmodule
