// One game, frame by frame, behind plain functions: for tests and for those who look closer.
#pragma once

#include "environment.h"

namespace jaxrl {

// A cartridge with its rules, and what one thread needs to play it.
struct Handle {
  Machine machine;
  Cartridge cartridge;
  const GameRules* rules;
  Screens screens;
  Player player(u8 plain) {
    return {machine, cartridge, *rules, &screens,
            plain ? Interpreter::kPlain : Interpreter::kThreaded};
  }
};

}  // namespace jaxrl

extern "C" {

using jaxrl::Game;
using jaxrl::Handle;
using jaxrl::Player;

uint64_t jaxrl_game_size() { return sizeof(Game); }

// Returns null for an unknown name or size.
Handle* jaxrl_game_open(const char* name, const uint8_t* bytes, uint64_t size) {
  auto* handle = new Handle{};
  handle->rules = jaxrl::find_rules(name);
  handle->screens.colours = jaxrl::kIdentity.of;
  if (!handle->rules ||
      !jaxrl::load_image(handle->cartridge, bytes, size, handle->rules->setup)) {
    delete handle;
    return nullptr;
  }
  jaxrl::decode(handle->cartridge);
  Player player = handle->player(0);
  jaxrl::learn_collisions(player);
  return handle;
}
void jaxrl_game_close(Handle* handle) { delete handle; }

void jaxrl_game_power_on(Handle* handle, Game* game) {
  Player player = handle->player(0);
  jaxrl::power_on(player, *game);
}
void jaxrl_game_reset(Handle* handle, Game* game, uint8_t plain) {
  Player player = handle->player(plain);
  jaxrl::reset_game(player, *game);
}
// Plays one frame and returns its reward; `plain` takes the interpreter that plays one instruction at
// a time.
int32_t jaxrl_game_act(Handle* handle, Game* game, uint8_t action, uint8_t draws, uint8_t plain) {
  Player player = handle->player(plain);
  if (!draws) player.screens = nullptr;
  return jaxrl::act(player, *game, action);
}
// Collisions that were read when it was not certain that they had been kept.
uint64_t jaxrl_game_doubtful(const Handle* handle) { return handle->machine.doubtful; }
uint32_t jaxrl_game_needed(const Handle* handle) { return handle->cartridge.needed; }
const uint8_t* jaxrl_game_screen(const Handle* handle) { return handle->screens.last(); }
const uint8_t* jaxrl_game_ram(const Game* game) { return game->console.riot.ram; }
void jaxrl_game_progress(const Game* game, int32_t* out) {
  out[0] = game->progress.score;
  out[1] = game->progress.lives;
  out[2] = game->progress.over;
}
}
