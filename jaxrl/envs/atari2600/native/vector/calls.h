// The engine of vector environments behind plain functions.
#pragma once

#include <exception>

#include "vector/engine.h"

// All else of ours is hidden: see FLAGS in runtime/native_library.py.
#pragma GCC visibility push(default)

extern "C" {

using jaxrl::VectorBatch;
using jaxrl::VectorEngine;
using jaxrl::VectorRules;

// Opens `count` environments, a multiple of the titles. Returns null for an unknown game or
// cartridge, or where there is no memory or no thread left.
VectorEngine* jaxrl_vector_open(const jaxrl::VectorTitle* titles, uint32_t num_titles,
                                const VectorRules* rules, uint32_t count, uint32_t batch_size,
                                uint32_t threads, int32_t first_core, const VectorBatch* batch) {
  try {
    std::vector<std::unique_ptr<jaxrl::Title>> played;
    auto cartridge = std::make_unique<jaxrl::Cartridge>();
    for (uint32_t title = 0; title < num_titles; title++) {
      const jaxrl::GameRules* game = jaxrl::find_rules(titles[title].game);
      if (!game || !load_image(*cartridge, titles[title].image, titles[title].size, game->setup))
        return nullptr;
      played.push_back(std::make_unique<jaxrl::Title>(*game, titles[title], *rules));
    }
    return new VectorEngine(std::move(played), *rules, count, batch_size, threads, first_core,
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

#pragma GCC visibility pop
