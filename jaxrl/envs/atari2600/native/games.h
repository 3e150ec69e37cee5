// What a game means: where its RAM holds the score, the lives and the end, and how it is started.
//
// Addresses and conventions are the Arcade Learning Environment's (Bellemare 2013), so that scores can
// be compared with what others publish: a reward is the change of the score since the frame before.
#pragma once

#include <cstring>

#include "base.h"
#include "cartridge.h"

namespace jaxrl {

// A game's course; plain data.
struct Progress {
  i32 score;
  i32 reward;    // of the last frame
  i16 lives;     // 0 at the end; always 0 in most games without lives, as ALE has it
  i16 memory;    // what a game's rule remembers besides
  u8 over;
  u8 started;    // some games show the end before they have begun
  u8 padding[2];
};

// RAM by the addresses that the processor uses, $80 to $FF; the upper bit may be left out.
struct Ram {
  const u8* bytes;
  i32 operator[](u32 address) const { return bytes[address & 0x7F]; }
  i32 low_digit(u32 address) const { return (*this)[address] & 15; }
  // Two digits of binary-coded decimal in each byte, the lowest pair first.
  i32 digits(u32 address) const { return 10 * ((*this)[address] >> 4) + low_digit(address); }
  i32 digits(u32 low, u32 high) const { return digits(low) + 100 * digits(high); }
  i32 digits(u32 low, u32 middle, u32 high) const {
    return digits(low, middle) + 10000 * digits(high);
  }
  // A digit shown as 10 is a blank.
  i32 shown_digit(u32 address) const { return low_digit(address) == 10 ? 0 : low_digit(address); }
};

// How ALE chooses a game's first mode after a reset: it presses SELECT until RAM shows the mode.
struct Menu {
  bool chosen = false;
  u8 address = 0;
  u8 mode = 0;
  u8 frames = 1;          // that SELECT is held each time
  u8 idle_frames = 0;     // before
  u8 presses_first = 0;   // frames of a first press, whatever the mode
  bool resets_first = false;
  bool looks_over = false;  // RAM shows the end for a frame after; the rule's `memory` is set
};

struct GameRules {
  const char* name;
  void (*step)(Ram ram, Progress& progress);
  i16 lives = 0;          // at the start
  i32 score = 0;
  i16 memory = 0;
  Menu menu = {};
  Setup setup = {};
  u8 start_action = 0;    // pressed for `start_frames` after a reset
  u8 start_frames = 0;
  bool has_fire = true;
  // It first reads collisions after minutes, and never clears them: all are kept from the start.
  bool keeps_collisions = false;
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

inline void alien(Ram ram, Progress& p) {
  i32 score = 0;
  // Each digit has a byte, which holds eight times it; 0x80 is a blank.
  constexpr u8 kDigits[] = {0x83, 0x85, 0x87, 0x89, 0x8B};
  for (u8 address : kDigits) score = 10 * score + (ram[address] == 0x80 ? 0 : ram[address] >> 3);
  set_score(p, 10 * score);
  set_end(p, ram.low_digit(0xC0) == 0, ram.low_digit(0xC0));
}
inline void amidar(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xD9, 0xDA, 0xDB));
  set_end(p, ram[0xD6] == 0x80, ram.low_digit(0xD6));
}
inline void assault(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x82, 0x81, 0x80));
  set_end(p, ram[0xE5] == 0, ram[0xE5]);
}
inline void atlantis(Ram ram, Progress& p) {
  const bool over = ram[0xF1] == 0xFF;
  set_score(p, over ? p.score : 100 * ram.digits(0xA2, 0xA3, 0xA1));
  set_end(p, over, ram[0xF1]);
}
inline void bank_heist(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xDA, 0xD9, 0xD8));
  set_end(p, ram[0xCE] == 1 && ram[0xD5] == 0, ram[0xD5]);
}
inline void berzerk(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xDF, 0xDE, 0xDD));
  set_end(p, ram[0xDA] == 0xFF, ram[0xDA] + 1);
}
inline void bowling(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xA1, 0xA6));
  set_end(p, ram[0xA4] > 0x10, 0);
}
inline void boxing(Ram ram, Progress& p) {
  const auto points = [&](u32 address) {
    return ram[address] == 0xC0 ? 100 : ram.digits(address);  // 0xC0 is a knock-out
  };
  const i32 mine = points(0x92), theirs = points(0x93);
  set_score(p, mine - theirs);
  const bool time_is_up = ram[0x90] >> 4 == 0 && ram.digits(0x91) == 0;
  set_end(p, mine == 100 || theirs == 100 || time_is_up, 0);
}
inline void breakout(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCD) + 100 * ram.low_digit(0xCC));
  const i32 balls = ram[0xB9];
  p.started |= balls == 5;
  set_end(p, p.started && balls == 0, balls);
}
inline void chopper_command(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xEE, 0xEC));
  const i32 lives = ram.low_digit(0xE4);
  // The helicopter faces left until the game begins.
  p.started |= ram[0xC2] & 1;
  p.over = p.started && lives == 0;
  p.lives = (i16)lives;
}
inline void defender(Ram ram, Progress& p) {
  i32 score = 0;
  for (u32 digit = 6; digit-- > 0;) score = 10 * score + ram.shown_digit(0x9C + digit);
  set_score(p, score);
  set_end(p, ram[0xC2] == 0, ram[0xC2]);
}
inline void demon_attack(Ram ram, Progress& p) {
  const bool title = ram[0x81] == 0xAB && ram[0x83] == 0xCD && ram[0x85] == 0xEA;
  set_score(p, title ? 0 : ram.digits(0x85, 0x83, 0x81));
  // Choosing the mode leaves the mark of the end for a frame.
  set_end(p, ram[0xF2] == 0 && ram[0xF1] == 0xBD && !p.memory, ram[0xF2] + 1);
  p.memory = 0;
}
inline void enduro(Ram ram, Progress& p) {
  const i32 day = ram[0xAD];
  i32 passed = 0;  // the game counts the cars still to pass
  if (day == 1) passed = 200 - ram.digits(0xAB, 0xAC);
  if (day >= 2) passed = 200 + 300 * (day - 2) + 300 - ram.digits(0xAB, 0xAC);
  set_score(p, passed);
  set_end(p, ram[0xAF] == 0xFF, 0);
}
inline void fishing_derby(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xBD) - ram.digits(0xBE));
  set_end(p, ram[0xBD] == 0x99 || ram[0xBE] == 0x99, 0);
}
inline void freeway(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xE7));
  if (p.reward < 0) p.reward = 0;
  if (p.reward > 1) p.reward = 1;
  set_end(p, ram[0x96] == 1, 0);
}
inline void frostbite(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCA, 0xC9, 0xC8));
  set_end(p, ram.low_digit(0xCC) == 0 && (ram[0xF1] & 0x80), ram.low_digit(0xCC) + 1);
}
inline void gopher(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xB2, 0xB1, 0xB0));
  const i32 carrots = ram[0xB4] & 7;
  set_end(p, carrots == 0, __builtin_popcount((u32)carrots));
}
inline void ice_hockey(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x8A) - ram.digits(0x8B));
  if (p.reward > 1) p.reward = 1;
  set_end(p, ram[0x87] == 0 && ram[0x86] == 0, 0);
}
inline void name_this_game(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xC6, 0xC5, 0xC4));
  set_end(p, (ram[0xC7] & 7) == 0, ram[0xC7] & 7);
}
inline void pitfall(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xD7, 0xD6, 0xD5));
  const i32 lives = ram[0x80] >> 4;
  set_end(p, lives == 0 && ram[0x9E] != 0, lives == 0xA ? 3 : lives == 8 ? 2 : 1);
}
inline void pong(Ram ram, Progress& p) {
  set_score(p, ram[0x8E] - ram[0x8D]);
  set_end(p, ram[0x8D] == 21 || ram[0x8E] == 21, 0);
}
inline void qbert(Ram ram, Progress& p) {
  // The lives of the display count down to -1; `memory` holds them as of the last frame and, above
  // them, the lives left.
  const i32 shown = (i8)ram[0x88], before = (i8)(p.memory & 0xFF);
  i32 lives = p.memory >> 8;
  const bool over = ram[0x88] == 0xFE || (ram[0x88] == 2 && before == -1);
  if (before - 1 == shown) lives--;
  p.memory = (i16)(lives * 256 + (shown & 0xFF));
  set_score(p, over ? p.score : ram.digits(0xDB, 0xDA, 0xD9));
  set_end(p, over, lives);
}
inline void riverraid(Ram ram, Progress& p) {
  i32 score = 0;
  constexpr u8 kDigits[] = {0xCD, 0xCF, 0xD1, 0xD3, 0xD5, 0xD7};  // each eight times a digit
  for (u8 address : kDigits) {
    const i32 digit = ram[address];
    score = 10 * score + (digit % 8 == 0 && digit <= 72 ? digit / 8 : 0);
  }
  set_score(p, score);
  // 0x58 is the state before the first life and after the last, which is 0x59.
  const i32 byte = ram[0xC0];
  const bool over = byte == 0x58 && p.memory == 0x59;
  p.memory = (i16)byte;
  set_end(p, over, byte == 0x58 ? 4 : byte == 0x59 ? 1 : byte / 8 + 1);
}
inline void seaquest(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xBA, 0xB9, 0xB8));
  set_end(p, ram[0xA3] != 0, ram[0xBB] + 1);
}
inline void skiing(Ram ram, Progress& p) {
  // Time is what the game counts, so its reward is negative.
  const i32 centiseconds = ram[0xE8] * 6000 + ram.digits(0xEA, 0xE9);
  set_score(p, centiseconds);
  p.reward = -p.reward;
  set_end(p, ram[0x91] == 0xFF, 0);
}
inline void space_invaders(Ram ram, Progress& p) {
  const i32 score = ram.digits(0xE8, 0xE6), before = p.score;
  set_score(p, score);
  if (p.reward < 0) p.reward = 10000 - before + score;  // the display starts again at 0
  set_end(p, (ram[0x98] & 0x80) || ram[0xC9] == 0, ram[0xC9]);
}
inline void star_gunner(Ram ram, Progress& p) {
  i32 score = 0;
  for (u32 address = 0x86; address >= 0x83; address--) score = 10 * score + ram.shown_digit(address);
  set_score(p, 100 * score);
  p.started |= ram[0x87] == 5;
  set_end(p, ram[0x87] == 0, p.started ? ram.low_digit(0x87) : 5);
}
inline void surround(Ram ram, Progress& p) {
  const i32 theirs = ram.digits(0xF6), mine = ram.digits(0xF7);
  set_score(p, mine - theirs);
  set_end(p, mine == 10 || theirs == 10, 1);
}
inline void tennis(Ram ram, Progress& p) {
  // A won game counts, or else a won point. `score` holds the difference in games, `memory` that in
  // points.
  const i32 mine = ram[0xC7], theirs = ram[0xC8];
  const i32 games = mine - theirs, points = ram[0xC5] - ram[0xC6];
  p.reward = games != p.score ? games - p.score : points - p.memory;
  p.score = games;
  p.memory = (i16)points;
  const bool won = (mine >= 6 && games >= 2) || (theirs >= 6 && -games >= 2);
  set_end(p, won || mine == 7 || theirs == 7, 0);
}
inline void venture(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xC8, 0xC7));
  set_end(p, ram[0xC6] == 0 && ram[0xCD] == 0xFF && (ram[0xBF] & 0x80), (ram[0xC6] & 7) + 1);
}
inline void video_pinball(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xB0, 0xB2, 0xB4));
  set_end(p, ram[0xAF] & 1, 4 + (ram[0xA8] & 1) - (ram[0x99] & 7));
}
inline void wizard_of_wor(Ram ram, Progress& p) {
  i32 score = ram.digits(0x86, 0x88);
  if (score >= 8000) score -= 8000;
  set_score(p, 100 * score);
  const i32 lives = ram.low_digit(0x8D);
  if (!(ram[0xD7] & 1)) p.memory = (i16)lives;  // the worrior waits for its entry
  set_end(p, lives == 0 && ram[0xF4] == 0xF8, p.memory);
}
inline void yars_revenge(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xE2, 0xE1, 0xE0));
  set_end(p, ram[0x9E] >> 4 == 0, ram[0x9E] >> 4);
}

constexpr Menu menu(u8 address, u8 mode, u8 frames = 1) { return {true, address, mode, frames}; }
constexpr Setup setup(u8 paddles, u8 swapped_ports = 0, u8 first_line = 34) {
  return {first_line, 1, paddles, swapped_ports, 0};
}
constexpr u8 kFireButton = 1, kUpward = 2, kDownward = 5;

inline constexpr GameRules kAll[] = {
    {"alien", alien, 3, 0, 0, menu(0x81, 0)},
    {"amidar", amidar, 3, 0, 0, {}, {34, 1, 0, 0, 3}},
    {"assault", assault, 4},
    {"atlantis", atlantis, 6, 0, 0, menu(0x8D, 0, 2)},
    {"bank_heist", bank_heist, 5, 0, 0, menu(0x80, 0)},
    {"berzerk", berzerk, 3, 0, 0, {true, 0x80, 1, 2, 20}},
    {"bowling", bowling, 0, 0, 0, menu(0x82, 0, 2)},
    {"boxing", boxing},
    {"breakout", breakout, 5, 0, 0, menu(0xB2, 0), setup(1)},
    {"chopper_command", chopper_command, 3, 0, 0, menu(0xE0, 0, 2)},
    {"defender", defender, 3, 0, 0, menu(0x9B, 1, 2)},
    {"demon_attack", demon_attack, 4, 0, 0, {true, 0xEA, 1, 1, 0, 0, false, true}},
    {"enduro", enduro, 0, 0, 0, {}, {}, kFireButton, 1},
    {"fishing_derby", fishing_derby},
    {"freeway", freeway, 0, 0, 0, menu(0x80, 0)},
    {"frostbite", frostbite, 4, 0, 0, menu(0x80, 0)},
    {"gopher", gopher, 3, 0, 0, {true, 0xD3, 0, 5, 0, 0, true}, {}, kFireButton, 1, true, true},
    {"ice_hockey", ice_hockey, 0, 0, 0, menu(0x80, 0, 2)},
    {"name_this_game", name_this_game, 3, 0, 0, menu(0xDE, 8, 2)},
    {"pitfall", pitfall, 3, 2000, 0, {}, {}, kUpward, 1},
    {"pong", pong, 0, 0, 0, menu(0x96, 0, 2), setup(2)},
    {"qbert", qbert, 4, 0, 4 * 256 + 2, {}, setup(0, 0, 40)},
    {"riverraid", riverraid, 4, 0, 0x58},
    {"seaquest", seaquest, 4},
    {"skiing", skiing, 0, 0, 0, {}, {}, kDownward, 16, false},
    {"space_invaders", space_invaders, 3, 0, 0, menu(0xDC, 0, 2)},
    {"star_gunner", star_gunner, 5, 0, 0, menu(0xF4, 0, 15)},
    {"surround", surround, 1, 0, 0, menu(0xF9, 1, 2), setup(0, 1)},
    {"tennis", tennis, 0, 0, 0, menu(0x80, 0, 2)},
    {"venture", venture, 4},
    {"video_pinball", video_pinball, 3, 0, 0, menu(0xC1, 0, 2)},
    {"wizard_of_wor", wizard_of_wor, 3, 0, 3, {}, setup(0, 1)},
    {"yars_revenge", yars_revenge, 4, 0, 0, {true, 0xE3, 0, 1, 0, 2}, {}, kFireButton, 1},
};

}  // namespace games

// Returns the rules of a game by its name, or null.
inline const GameRules* find_rules(const char* name) {
  for (const GameRules& rules : games::kAll)
    if (!strcmp(rules.name, name)) return &rules;
  return nullptr;
}

inline void begin(const GameRules& rules, Progress& progress) {
  progress = Progress{};
  progress.score = rules.score;
  progress.lives = rules.lives;
  progress.memory = rules.memory;
}

}  // namespace jaxrl
