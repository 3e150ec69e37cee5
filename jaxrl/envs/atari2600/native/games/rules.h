// What a game means: where its RAM holds the score, the lives and the end, and how it is started.
//
// Addresses and conventions are the Arcade Learning Environment's (Bellemare 2013), so that scores
// can be compared with what others publish: a reward is the change of the score since the frame
// before.
#pragma once

#include "base/types.h"
#include "bus/cartridge.h"

namespace jaxrl {

// A game's course; plain data.
struct Progress {
  i32 score;
  i32 reward;  // of the last frame
  i16 lives;   // 0 at the end; always 0 in most games without lives, as ALE has it
  i16 memory;  // what a game's rule remembers besides
  u8 over;
  u8 started;   // some games show the end before they have begun
  u8 notes[2];  // more that a rule remembers
};

// RAM by the addresses that the processor uses, $80 to $FF; the upper bit may be left out.
struct Ram {
  const u8* bytes;
  const u8* more;  // RAM of the cartridge, if it has any
  i32 operator[](u32 address) const { return bytes[address & 0x7F]; }
  i32 low_digit(u32 address) const { return (*this)[address] & 15; }
  // Two digits of binary-coded decimal in each byte, the lowest pair first.
  i32 digits(u32 address) const { return 10 * ((*this)[address] >> 4) + low_digit(address); }
  i32 digits(u32 low, u32 high) const { return digits(low) + 100 * digits(high); }
  i32 digits(u32 low, u32 middle, u32 high) const {
    return digits(low, middle) + 10000 * digits(high);
  }
  // The cartridge's RAM, by addresses that end alike.
  Ram in_cartridge() const { return {more, nullptr}; }
  // A digit shown as 10 is a blank.
  i32 shown_digit(u32 address) const { return low_digit(address) == 10 ? 0 : low_digit(address); }
};

// How ALE chooses a game's mode after a reset: it presses SELECT until RAM shows the mode.
struct Menu {
  u8 address = 0;
  u8 mode = 0;           // the default
  u8 more = 0;           // RAM shows the mode's number plus this
  bool decimal = false;  // RAM shows it in binary-coded decimal
  u8 frames = 0;         // that SELECT is held each time; 0 where no mode is chosen
  u8 idle_frames = 0;    // before
  u8 idle_after = 0;     // frames after each press, besides the one that every press has
  u8 presses_first = 0;  // frames of a first press, whatever the mode
  bool resets_first = false;
  bool looks_over = false;  // RAM shows the end for a frame after; the rule's `memory` is set
  bool (*shows)(Ram ram, i32 mode) = nullptr;  // the mode, where no single byte does

  bool is_at(Ram ram, i32 wanted) const {
    if (shows) return shows(ram, wanted);
    return (decimal ? ram.digits(address) : ram[address]) == wanted + more;
  }
};

// Frames of a start around those of its action.
struct Around {
  u8 resets = 0;              // RESET is held, before all others
  u16 before = 0, after = 0;  // nothing is pressed
};

struct GameRules {
  const char* name;
  void (*step)(Ram ram, Progress& progress);
  i16 lives = 0;  // at the start
  i32 score = 0;
  i16 memory = 0;
  Menu menu = {};
  Setup setup = {};
  u8 start_action = 0;  // pressed for `start_frames` after a reset
  u8 start_frames = 0;
  bool has_fire = true;
  // It first reads collisions after minutes, and never clears them: all are kept from the start.
  bool keeps_collisions = false;
  Around around = {};
  u8 cut_short = 8;          // most frames in a row that do not draw every line
  bool has_options = false;  // its menu is Double Dunk's; see `choose_options`
  bool has_cubes = false;    // it is Video Cube; see `choose_cube`
};

namespace games {

inline void set_score(Progress& progress, i32 score) {
  progress.reward = score - progress.score;
  progress.score = score;
}

inline void set_end(Progress& progress, bool over, i32 lives) {
  progress.over = over;
  progress.lives = (i16)(over ? 0 : lives);
}

constexpr u8 kFireButton = 1, kUpward = 2, kRightward = 3, kLeftward = 4, kDownward = 5,
             kUpwardFire = 10;

}  // namespace games

inline void begin(const GameRules& rules, Progress& progress) {
  progress = Progress{};
  progress.score = rules.score;
  progress.lives = rules.lives;
  progress.memory = rules.memory;
}

}  // namespace jaxrl
