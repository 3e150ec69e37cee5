// The core for tests: games, one frame at a time, behind plain functions.
#include "environment.h"

using namespace jaxrl;

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

extern "C" {

u64 jaxrl_game_size() { return sizeof(Game); }
u64 jaxrl_environment_size() { return sizeof(Environment); }

// Returns null for an unknown name or size.
Handle* jaxrl_open(const char* name, const u8* bytes, u64 size) {
  auto* handle = new Handle{};
  handle->rules = find_rules(name);
  handle->screens.colours = kIdentity.of;
  if (!handle->rules || !load_image(handle->cartridge, bytes, size, handle->rules->setup)) {
    delete handle;
    return nullptr;
  }
  decode(handle->cartridge);
  return handle;
}
void jaxrl_close(Handle* handle) { delete handle; }
u16 jaxrl_needed(const Handle* handle) { return handle->cartridge.needed; }
void jaxrl_set_needed(Handle* handle, u16 pairs) { handle->cartridge.needed = pairs; }

void jaxrl_power_on(Handle* handle, Game* game) {
  Player player = handle->player(0);
  power_on(player, *game);
}
void jaxrl_reset_game(Handle* handle, Game* game, u8 plain) {
  Player player = handle->player(plain);
  reset_game(player, *game);
}
// Plays one frame and returns its reward. Draws it where `draws` says so.
i32 jaxrl_act(Handle* handle, Game* game, u8 action, u8 draws, u8 plain) {
  Player player = handle->player(plain);
  if (!draws) player.screens = nullptr;
  return act(player, *game, action);
}
const u8* jaxrl_screen(const Handle* handle) { return handle->screens.last(); }
const u8* jaxrl_ram(const Game* game) { return game->console.riot.ram; }
void jaxrl_progress(const Game* game, i32* out) {
  out[0] = game->progress.score;
  out[1] = game->progress.lives;
  out[2] = game->progress.over;
}
}
