// A C interface to one model of the hash index: made, reset, stepped by a cycle, and freed.
//
// Compiled once for each model, with MODEL (its class), MODEL_HEADER and PREFIX (of the functions) defined. The pins
// are a plain structure that `unit.rs` mirrors field by field.

#include <cstdint>
#include <memory>

#include MODEL_HEADER
#include "verilated.h"

#define JOIN_WORDS(a, b) a##_##b
#define JOIN(a, b) JOIN_WORDS(a, b)

namespace {

struct Pins {
    // Inputs.
    uint64_t op_timestamp;
    uint64_t mem_resp_data;
    uint32_t op_base;
    uint32_t op_mask;
    uint32_t op_key_addr;
    uint32_t op_tuple_addr;
    uint32_t mem_resp_tag;
    uint16_t op_id;
    uint8_t in_flight_max;
    uint8_t op_valid;
    uint8_t op_kind;
    uint8_t op_unique;
    uint8_t op_key_bytes;
    uint8_t result_ready;
    uint8_t mem_req_ready;
    uint8_t mem_resp_valid;
    uint8_t mem_resp_error;
    uint8_t reset;
    // Outputs.
    uint64_t mem_req_data;
    uint32_t mem_req_addr;
    uint32_t mem_req_tag;
    uint32_t result_addr;
    uint16_t result_id;
    uint8_t op_ready;
    uint8_t result_valid;
    uint8_t result_code;
    uint8_t mem_req_valid;
    uint8_t mem_req_write;
    uint8_t wait_line;
    uint8_t wait_slot;
};

struct Simulation {
    VerilatedContext context;
    std::unique_ptr<MODEL> model;
};

}  // namespace

extern "C" {

// A model whose registers hold random values drawn from `seed`.
Simulation* JOIN(PREFIX, new)(uint32_t seed) {
    auto simulation = new Simulation;
    simulation->context.randReset(2);
    simulation->context.randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
    simulation->context.fatalOnError(false);
    simulation->model = std::make_unique<MODEL>(&simulation->context);
    return simulation;
}

void JOIN(PREFIX, free)(Simulation* simulation) {
    simulation->model->final();
    delete simulation;
}

// One cycle: the outputs are those before the edge of the clock. Returns the number of assertions that have failed.
int JOIN(PREFIX, step)(Simulation* simulation, Pins* pins) {
    MODEL& model = *simulation->model;
    model.rst_ni = !pins->reset;
    model.in_flight_max_i = pins->in_flight_max;
    model.op_valid_i = pins->op_valid;
    model.op_kind_i = pins->op_kind;
    model.op_unique_i = pins->op_unique;
    model.op_base_i = pins->op_base;
    model.op_mask_i = pins->op_mask;
    model.op_key_addr_i = pins->op_key_addr;
    model.op_key_bytes_i = pins->op_key_bytes;
    model.op_tuple_addr_i = pins->op_tuple_addr;
    model.op_timestamp_i = pins->op_timestamp;
    model.op_id_i = pins->op_id;
    model.result_ready_i = pins->result_ready;
    model.mem_req_ready_i = pins->mem_req_ready;
    model.mem_resp_valid_i = pins->mem_resp_valid;
    model.mem_resp_error_i = pins->mem_resp_error;
    model.mem_resp_data_i = pins->mem_resp_data;
    model.mem_resp_tag_i = pins->mem_resp_tag;
    model.clk_i = 0;
    model.eval();
    pins->op_ready = model.op_ready_o;
    pins->result_valid = model.result_valid_o;
    pins->result_id = model.result_id_o;
    pins->result_code = model.result_code_o;
    pins->result_addr = model.result_addr_o;
    pins->mem_req_valid = model.mem_req_valid_o;
    pins->mem_req_write = model.mem_req_write_o;
    pins->mem_req_addr = model.mem_req_addr_o;
    pins->mem_req_data = model.mem_req_data_o;
    pins->mem_req_tag = model.mem_req_tag_o;
    pins->wait_line = model.wait_line_o;
    pins->wait_slot = model.wait_slot_o;
    model.clk_i = 1;
    model.eval();
    return simulation->context.errorCount();
}

}  // extern "C"
