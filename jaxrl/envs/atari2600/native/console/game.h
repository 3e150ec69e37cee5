// A game of a cartridge, as ALE plays it: the console, what its RAM means, and how it is started.
#pragma once

#include "base/random.h"
#include "console/console.h"
#include "console/palette.h"
#include "games/games.h"
#if JAXRL_HOST
#include <memory>
#endif

namespace jaxrl {

struct Game {
  Console console;
  Progress progress;
};

// The last two frames that were drawn, in two buffers that take turns, as ALE's television has
// them: a frame that is cut short leaves below it the lines of the frame before the last.
struct Screens {
  alignas(64) u8 pixels[2][kMostLines * kScreenWidth];
  alignas(64) u8 held[kMostLines * kScreenWidth];  // what was seen of a frame that goes on
  const u8* colors = kGrayPalette.of;
  u8 newest = 0;

  const u8* last() const { return pixels[newest]; }
  const u8* before_last() const { return pixels[1 - newest]; }
};

// Which of its games a cartridge plays, by ALE's numbers, and how the console's switches stand.
struct Variant {
  static constexpr i32 kFirst = -1;
  i32 mode = kFirst;
  u32 difficulty = 0;  // switches on A: bit 0 left, bit 1 right
};

// What a thread needs to play a game of this cartridge.
struct Player {
  Machine& machine;
  Cartridge& cartridge;
  const GameRules& rules;
  Screens* screens;  // null where nothing is drawn
  Interpreter interpreter = kFastest;
  bool cut_short = false;  // a drawn frame has not drawn every line that is seen itself
  Variant variant = {};
};

inline Ram ram_of(const Game& game) { return {game.console.riot.ram, game.console.cartridge.ram}; }

inline void play_frame(Player& player, Game& game, u8 action, u8 held_switches = 0) {
  set_controls(game.console, player.cartridge.setup, action, held_switches);
  game.console.port_b |= (u8)(player.variant.difficulty << 6);
  u8* pixels = nullptr;
  const bool went_on = game.console.goes_on;
  if (Screens* screens = player.screens) {
    if (!went_on) screens->newest ^= 1;
    pixels = screens->pixels[screens->newest];
  }
  run_frame(player.machine, game.console, player.cartridge,
            {pixels, pixels ? player.screens->colors : nullptr}, player.interpreter);
  const Beam& beam = player.machine.beam;
  const i32 end_of_seen = beam.start + kSeenLines * kClocksPerLine;
  player.cut_short |= pixels && (went_on || beam.clock < end_of_seen);
  player.rules.step(ram_of(game), game.progress);
}

inline void hold_reset(Player& player, Game& game, int frames = 4) {
  for (int frame = 0; frame < frames; frame++) play_frame(player, game, kNoop, kResetSwitch);
}

inline void idle(Player& player, Game& game, int frames) {
  for (int frame = 0; frame < frames; frame++) play_frame(player, game, kNoop);
}

// Holds SELECT for some frames, whose scores do not count, and plays one frame without it.
inline void press_select(Player& player, Game& game, int frames) {
  const Progress progress = game.progress;
  for (int frame = 0; frame < frames; frame++) play_frame(player, game, kNoop, kSelectSwitch);
  game.progress = progress;
  play_frame(player, game, kNoop);
}

#if JAXRL_HOST

constexpr int kMostPresses = 256;  // a byte shows the mode
constexpr int kMostTurns = 4096;   // frames; the stick repeats slowly

// Switches the options of Double Dunk's menu, which begin in its third line, as the mode's bits
// say.
inline void choose_options(Player& player, Game& game, i32 mode) {
  const Ram ram = ram_of(game);
  const auto tap = [&](u8 action) {
    play_frame(player, game, action);
    play_frame(player, game, kNoop);
  };
  const auto go_down = [&] {
    const i32 line = ram[0xB0];
    for (int press = 0; press < kMostPresses && ram[0xB0] == line; press++) tap(kDown);
  };
  press_select(player, game, 1);
  go_down();
  for (const u8 option : {0x08, 0x10, 0x04, 0x20}) {
    go_down();
    const bool wanted = mode & 1;
    for (int press = 0; press < kMostPresses && wanted != !!(ram[0x80] & option); press++)
      tap(wanted ? kRight : kLeft);
    mode >>= 1;
  }
  hold_reset(player, game);
  tap(kUpFire);
}

// Turns Video Cube's cubes until the mode's is shown; the first of them without one.
inline void choose_cube(Player& player, Game& game, i32 mode) {
  const i32 cube = mode < 100 ? 1 : mode / 100;
  for (int frame = 0; frame < kMostTurns && ram_of(game).digits(0x9F) != cube; frame++)
    play_frame(player, game, kRight);
}

inline void choose_mode(Player& player, Game& game) {
  const Menu& menu = player.rules.menu;
  const i32 mode = player.variant.mode == Variant::kFirst ? menu.mode : player.variant.mode;
  if (player.rules.has_options) choose_options(player, game, mode);
  if (!menu.frames) return;
  for (int frame = 0; frame < menu.idle_frames && !game.progress.over; frame++)
    play_frame(player, game, kNoop);
  if (menu.resets_first) hold_reset(player, game);
  if (menu.presses_first) press_select(player, game, menu.presses_first);
  for (int press = 0; press < kMostPresses; press++) {
    if (menu.is_at(ram_of(game), mode)) break;
    press_select(player, game, menu.frames);
    idle(player, game, menu.idle_after);
  }
  if (menu.looks_over) game.progress.memory = 1;
  hold_reset(player, game);
  if (player.rules.has_cubes) choose_cube(player, game, mode);
}

inline void power_on(Player& player, Game& game) {
  power_on(player.machine, game.console, player.cartridge);
  begin(player.rules, game.progress);
}

// Starts the game anew, as ALE's reset_game does: RAM keeps what it holds.
inline void reset_game(Player& player, Game& game) {
  player.machine.keeps_all = true;
  center_paddles(game.console, player.cartridge.setup);
  reset_system(game.console, player.cartridge);
  idle(player, game, 60);
  hold_reset(player, game);
  begin(player.rules, game.progress);
  choose_mode(player, game);
  hold_reset(player, game);
  const GameRules& rules = player.rules;
  hold_reset(player, game, rules.around.resets);
  idle(player, game, rules.around.before);
  for (int frame = 0; frame < rules.start_frames; frame++)
    play_frame(player, game, rules.start_action);
  idle(player, game, rules.around.after);
  player.machine.keeps_all = false;
}

// Loads the cartridge as ALE does, which plays a reset at once: of the first mode.
inline void load_game(Player player, Game& game) {
  player.variant = {};
  power_on(player, game);
  reset_game(player, game);
}

#endif

// Plays one frame of an action and returns its reward; a game that is over stands still.
inline i32 act(Player& player, Game& game, u8 action) {
  if (game.progress.over) return 0;
  if (!player.rules.has_fire && (kPressed[action] & kButton)) action = kNoop;
  play_frame(player, game, action);
  return game.progress.reward;
}

#if JAXRL_HOST
// Finds out which collisions a cartridge reads, by playing it for half a minute: from then on only
// those are kept. One that is read later for the first time is kept from that frame on.
inline void learn_collisions(Player& player) {
  constexpr u32 kFrames = 2000, kHeld = 8;
  auto game = std::make_unique<Game>();
  Screens* screens = player.screens;
  player.screens = nullptr;
  power_on(player, *game);
  u64 random = 0;
  u8 action = kNoop;
  game->progress.over = 1;
  for (u32 frame = 0; frame < kFrames; frame++) {
    if (game->progress.over) reset_game(player, *game);
    if (frame % kHeld == 0) action = (u8)random_below(random, kActions);
    player.machine.keeps_all = player.machine.learns = true;
    act(player, *game, action);
    player.machine.keeps_all = player.machine.learns = false;
  }
  player.screens = screens;
  if (player.rules.keeps_collisions) player.cartridge.needed = kAllPairs;
}
#endif

}  // namespace jaxrl
