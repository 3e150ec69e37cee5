// What ALE counts while it starts a game.
#pragma once

#include "console/game.h"

namespace jaxrl {

struct StartCount {
  u32 frames;
  u32 acts;  // those of actions, for which it draws whether they are sticky
};

// Between the first press of RESET and the last it counts each press of SELECT, with the frame
// after it, as one frame, and each other frame.
class StartCounter {
 public:
  // Resets the game; returns what is counted, which may depend on what RAM holds from before.
  static StartCount reset(Player& player, Game& game) {
    GameRules rules = player.rules;
    seen_ = {&game.console, rules.step};
    rules.step = look;
    Player counting{.machine = player.machine,
                    .cartridge = player.cartridge,
                    .rules = rules,
                    .screens = player.screens,
                    .variant = player.variant};
    reset_game(counting, game);
    player.cut_short |= counting.cut_short;
    return seen_.counted;
  }

 private:
  struct Seen {
    const Console* console;
    void (*step)(Ram, Progress&);
    StartCount counted;
    bool has_reset, selects;  // in an earlier frame, in the frame before
    u32 others;               // since RESET
  };

  static void look(Ram ram, Progress& progress) {
    const u8 pressed = ~seen_.console->port_b & (kResetSwitch | kSelectSwitch);
    const bool selects = pressed == kSelectSwitch;
    seen_.counted.frames += selects && !seen_.selects;
    seen_.others += !pressed && !seen_.selects;
    seen_.selects = selects;
    if (pressed == kResetSwitch) {
      if (seen_.has_reset) {
        seen_.counted.frames += seen_.others;
        seen_.counted.acts += seen_.others;
      }
      seen_.has_reset = true;
      seen_.others = 0;
    }
    seen_.step(ram, progress);
  }

  static inline thread_local Seen seen_{};
};

}  // namespace jaxrl
