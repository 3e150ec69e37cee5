// A game of a cartridge, as ALE plays it: the console, what its RAM means, and how it is started.
#pragma once

#include "console.h"
#include "games.h"

namespace jaxrl {

struct Game {
  Console console;
  Progress progress;
};

// Where the frames of a game are drawn, if they are.
struct Pictures {
  u8* pixels = nullptr;
  const u8* colours = nullptr;
};

struct Player {
  Machine& machine;
  Cartridge& cartridge;
  const GameRules& rules;
  Engine engine = Engine::kThreaded;
};

inline void play_frame(Player& player, Game& game, u8 action, Pictures pictures = {},
                       u8 held = 0) {
  set_controls(game.console, player.cartridge.setup, action, held);
  run_frame(player.machine, game.console, player.cartridge, pictures.pixels, pictures.colours,
            player.engine);
  player.rules.step(Ram{game.console.riot.ram}, game.progress);
}

inline void hold_reset(Player& player, Game& game) {
  for (int frame = 0; frame < 4; frame++)
    play_frame(player, game, kNoop, {}, kResetSwitch);
}

// Holds SELECT for some frames, whose scores do not count, and plays one frame without it.
inline void press_select(Player& player, Game& game, int frames) {
  Console& console = game.console;
  set_controls(console, player.cartridge.setup, kNoop, kSelectSwitch);
  for (int frame = 0; frame < frames; frame++)
    run_frame(player.machine, console, player.cartridge, nullptr, nullptr);
  play_frame(player, game, kNoop);
}

inline void choose_mode(Player& player, Game& game) {
  const Menu& menu = player.rules.menu;
  if (!menu.chosen) return;
  for (int frame = 0; frame < menu.idle_frames && !game.progress.over; frame++)
    play_frame(player, game, kNoop);
  if (menu.resets_first) hold_reset(player, game);
  if (menu.presses_first) press_select(player, game, menu.presses_first);
  constexpr int kMostPresses = 256;  // a byte shows the mode
  for (int press = 0; press < kMostPresses; press++) {
    if (Ram{game.console.riot.ram}[menu.address] == menu.mode) break;
    press_select(player, game, menu.frames);
  }
  if (menu.looks_over) game.progress.memory = 1;
  hold_reset(player, game);
}

inline void power_on(Player& player, Game& game) {
  power_on(player.machine, game.console, player.cartridge);
  begin(player.rules, game.progress);
}

// Starts the game anew, as ALE's reset_game does: RAM keeps what it holds.
inline void reset_game(Player& player, Game& game) {
  center_paddles(game.console);
  reset_system(game.console, player.cartridge);
  for (int frame = 0; frame < 60; frame++) play_frame(player, game, kNoop);
  hold_reset(player, game);
  begin(player.rules, game.progress);
  choose_mode(player, game);
  hold_reset(player, game);
  for (int frame = 0; frame < player.rules.start_frames; frame++)
    play_frame(player, game, player.rules.start_action);
}

// Plays one frame of an action and returns its reward; a game that is over stands still.
inline i32 act(Player& player, Game& game, u8 action, Pictures pictures = {}) {
  if (game.progress.over) return 0;
  if (!player.rules.has_fire && (kPressed[action] & kButton)) action = kNoop;
  play_frame(player, game, action, pictures);
  return game.progress.reward;
}

}  // namespace jaxrl
