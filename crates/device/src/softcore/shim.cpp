// A C interface to one model of a worker: made, reset, stepped by a cycle, and freed.
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
    uint64_t load_data;
    uint64_t mem_resp_data;
    uint32_t txn_block;
    uint32_t mem_resp_tag;
    uint16_t load_at;
    uint8_t load_valid;
    uint8_t load_kind;
    uint8_t batch_max;
    uint8_t in_flight_max;
    uint8_t txn_valid;
    uint8_t txn_program;
    uint8_t done_ready;
    uint8_t mem_req_ready;
    uint8_t mem_resp_valid;
    uint8_t mem_resp_error;
    uint8_t reset;
    // Outputs.
    uint64_t mem_req_data;
    uint32_t mem_req_addr;
    uint32_t mem_req_tag;
    uint32_t done_block;
    uint8_t txn_ready;
    uint8_t done_valid;
    uint8_t mem_req_valid;
    uint8_t mem_req_write;
    uint8_t events;
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
    model.load_valid_i = pins->load_valid;
    model.load_kind_i = pins->load_kind;
    model.load_at_i = pins->load_at;
    model.load_data_i = pins->load_data;
    model.batch_max_i = pins->batch_max;
    model.in_flight_max_i = pins->in_flight_max;
    model.txn_valid_i = pins->txn_valid;
    model.txn_block_i = pins->txn_block;
    model.txn_program_i = pins->txn_program;
    model.done_ready_i = pins->done_ready;
    model.mem_req_ready_i = pins->mem_req_ready;
    model.mem_resp_valid_i = pins->mem_resp_valid;
    model.mem_resp_error_i = pins->mem_resp_error;
    model.mem_resp_data_i = pins->mem_resp_data;
    model.mem_resp_tag_i = pins->mem_resp_tag;
    model.clk_i = 0;
    model.eval();
    pins->txn_ready = model.txn_ready_o;
    pins->done_valid = model.done_valid_o;
    pins->done_block = model.done_block_o;
    pins->mem_req_valid = model.mem_req_valid_o;
    pins->mem_req_write = model.mem_req_write_o;
    pins->mem_req_addr = model.mem_req_addr_o;
    pins->mem_req_data = model.mem_req_data_o;
    pins->mem_req_tag = model.mem_req_tag_o;
    pins->events = model.events_o;
    model.clk_i = 1;
    model.eval();
    return simulation->context.errorCount();
}

}  // extern "C"
