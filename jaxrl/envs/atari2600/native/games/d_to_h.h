// What the games from D to H mean; see rules.h.
#pragma once

#include "games/rules.h"

namespace jaxrl::games {

inline void darkchambers(Ram ram, Progress& p) {
  // `memory` is the highest level; a lower one is a new game, and so is a lower score.
  const i32 level = ram[0xD5], score = 10 * ram.digits(0xCC, 0xCF);
  const bool new_level = level < p.memory, new_score = score < p.score;
  const bool dead = (ram[0xCA] & 0x1F) == 0;
  if (!new_level) p.memory = (i16)level;
  set_score(p, new_level || new_score ? p.score : score);
  set_end(p, p.over || new_level || new_score || dead, 1);
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
inline void donkey_kong(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0x88, 0x87));
  set_end(p, ram[0xA3] == 0 && ram[0x8F] == 3 && ram[0x8B] == 0x1F, ram[0xA3]);
}
inline void double_dunk(Ram ram, Progress& p) {
  const i32 mine = ram.digits(0xF6), theirs = ram.digits(0xF7);
  set_score(p, mine - theirs);
  set_end(p, (mine >= 24 || theirs >= 24) && ram[0xFE] == 0xE7, 0);
}
inline void earthworld(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xA7));  // clues that were found
  set_end(p, p.score == 10, 1);
}
inline void elevator_action(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x89, 0x88, 0x87));
  const bool title = ram[0x81] == 0;
  set_end(p, ram[0x83] == 0 && !title, ram[0x83]);
}
inline void enduro(Ram ram, Progress& p) {
  const i32 day = ram[0xAD];
  i32 passed = 0;  // the game counts the cars still to pass
  if (day == 1) passed = 200 - ram.digits(0xAB, 0xAC);
  if (day >= 2) passed = 200 + 300 * (day - 2) + 300 - ram.digits(0xAB, 0xAC);
  set_score(p, passed);
  set_end(p, ram[0xAF] == 0xFF, 0);
}
inline void entombed(Ram ram, Progress& p) {
  set_score(p, ram[0xE3]);
  set_end(p, (ram[0xC7] & 3) == 0, 1);
}
inline void et(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xE1, 0xE0, 0xDF));
  const i32 lives = (i8)(ram[0xE5] + 1);
  const bool title = ram[0x80] == 8;
  set_end(p, lives == 0 && title, lives);
}
inline void fishing_derby(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xBD) - ram.digits(0xBE));
  set_end(p, ram[0xBD] == 0x99 || ram[0xBE] == 0x99, 0);
}
inline void flag_capture(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xEA));
  set_end(p, ram.digits(0xEB) == 0, 1);  // seconds that are left
}
inline void freeway(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xE7));
  if (p.reward < 0) p.reward = 0;
  if (p.reward > 1) p.reward = 1;
  set_end(p, ram[0x96] == 1, 0);
}
inline bool frogger_menu(Ram ram, i32 mode) { return ram[0xDD] == 1 + 2 * mode; }
inline void frogger(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCE, 0xCC));
  set_end(p, ram[0xD0] == 0xFF, ram[0xD0]);
}
inline void frostbite(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCA, 0xC9, 0xC8));
  set_end(p, ram.low_digit(0xCC) == 0 && (ram[0xF1] & 0x80), ram.low_digit(0xCC) + 1);
}
inline void galaxian(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xAE, 0xAD, 0xAC));
  if (p.reward < 0) p.reward += 1000000;  // the display starts again at 0
  set_end(p, ram[0xBF] & 0x80, ram[0xB9] + 1);
}
inline void gopher(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xB2, 0xB1, 0xB0));
  const i32 carrots = ram[0xB4] & 7;
  set_end(p, carrots == 0, count_bits((u32)carrots));
}
inline void gravitar(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x89, 0x88, 0x87));
  const i32 screen = ram[0x81];  // 0 is the title, 1 the end
  set_end(p, screen == 1, screen == 0 ? 6 : ram[0x84] + 1);
}
inline void hangman(Ram ram, Progress& p) {
  // A game is one word. `memory` is the clock of the last frame, which runs out from 255 to 0.
  set_score(p, ram.digits(0xEB) - ram.digits(0xEC));
  const bool time_is_up = ram[0xF1] == 0 && p.memory == 255;
  p.memory = (i16)ram[0xF1];
  set_end(p, p.reward != 0 || time_is_up, 1);
}
inline void haunted_house(Ram ram, Progress& p) {
  // A match costs a point; `memory` is how many were lit.
  const i32 matches = ram.digits(0x82);
  const bool escaped = ram[0x99] == 0x44;  // with the whole urn
  set_score(p, p.score - (matches != p.memory) + 100 * escaped);
  p.memory = (i16)matches;
  set_end(p, ram[0x96] == 0 || escaped, ram[0x96]);
}
inline void hero(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xB9, 0xB8, 0xB7));
  set_end(p, ram[0xB3] == 0, ram[0xB3]);
}
inline bool human_cannonball_menu(Ram ram, i32 mode) {
  return ram[0xB6] == mode + 1 && ram[0xB7] == 1;
}
inline void human_cannonball(Ram ram, Progress& p) {
  const i32 hits = ram.digits(0xB6), misses = ram.digits(0xB7);
  set_score(p, hits);
  set_end(p, hits == 7 || misses == 7, 1);
}

}  // namespace jaxrl::games
