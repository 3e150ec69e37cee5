// The core for other languages and for tests: consoles and cartridges behind plain functions.
#include "game.h"

using namespace jaxrl;

namespace {
u8 kIdentity[256];
const bool kFilled = [] {
  for (int value = 0; value < 256; value++) kIdentity[value] = (u8)value;
  return true;
}();
}  // namespace

extern "C" {

u64 jaxrl_game_size() { return sizeof(Game); }

// A cartridge with its rules and a machine to run it on; null for an unknown name or size.
struct Handle {
  Machine machine;
  Cartridge cartridge;
  const GameRules* rules;
  Player player() { return {machine, cartridge, *rules}; }
};

Handle* jaxrl_open(const char* name, const u8* bytes, u64 size) {
  const GameRules* rules = find_rules(name);
  auto* handle = new Handle{};
  handle->rules = rules;
  if (!rules || !load_image(handle->cartridge, bytes, size, rules->setup)) {
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
  Player player = handle->player();
  power_on(player, *game);
}
void jaxrl_reset_game(Handle* handle, Game* game) {
  Player player = handle->player();
  reset_game(player, *game);
}
// Plays one frame; `pixels` (210 x 160 colours) may be null. Returns the reward.
i32 jaxrl_act(Handle* handle, Game* game, u8 action, u8* pixels, u8 plain) {
  Player player = handle->player();
  player.engine = plain ? Engine::kPlain : Engine::kThreaded;
  return act(player, *game, action, {pixels, kIdentity});
}
const u8* jaxrl_ram(const Game* game) { return game->console.riot.ram; }
void jaxrl_progress(const Game* game, i32* out) {
  out[0] = game->progress.score;
  out[1] = game->progress.lives;
  out[2] = game->progress.over;
}
}
