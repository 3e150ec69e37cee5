// The engine of vector environments behind plain functions.
#pragma once

#include <exception>

#include "vector/engine.h"

extern "C" {

using jaxrl::VectorBatch;
using jaxrl::VectorEngine;
using jaxrl::VectorRules;

// Returns null for an unknown game or cartridge, or where there is no memory or no thread left.
VectorEngine* jaxrl_vector_open(const char* game, const uint8_t* image, uint64_t size,
                                const VectorRules* rules, uint32_t count, uint32_t batch_size,
                                uint32_t threads, int32_t first_core, const VectorBatch* batch) {
  const jaxrl::GameRules* known = jaxrl::find_rules(game);
  try {
    auto cartridge = std::make_unique<jaxrl::Cartridge>();
    if (!known || !load_image(*cartridge, image, size, known->setup)) return nullptr;
    return new VectorEngine(*known, image, size, *rules, count, batch_size, threads, first_core,
                            *batch);
  } catch (const std::exception&) {
    return nullptr;
  }
}
void jaxrl_vector_close(VectorEngine* engine) { delete engine; }

void jaxrl_vector_reset(VectorEngine* engine, const uint8_t* chosen, const int64_t* seeds) {
  engine->reset(chosen, seeds);
}
uint8_t jaxrl_vector_send(VectorEngine* engine, const int32_t* actions, const float* strengths) {
  return engine->send(actions, strengths);
}
const uint8_t* jaxrl_vector_receive(VectorEngine* engine, const VectorBatch* next) {
  return engine->receive(*next);
}

// Bytes of one environment's snapshot.
uint64_t jaxrl_vector_snapshot_size(VectorEngine* engine) { return engine->snapshot_size(); }
uint8_t jaxrl_vector_save(VectorEngine* engine, uint8_t* snapshots) {
  return engine->save(snapshots);
}
// Returns a `Refusal`.
int32_t jaxrl_vector_load(VectorEngine* engine, const uint8_t* snapshots) {
  return (int32_t)engine->load(snapshots);
}
}
