// What the games from Q to Z mean; see rules.h.
#pragma once

#include "games/rules.h"

namespace jaxrl::games {

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
inline void road_runner(Ram ram, Progress& p) {
  i32 score = 0;
  for (u32 address = 0xCC; address >= 0xC9; address--)
    score = 10 * score + ram.shown_digit(address);
  set_score(p, 100 * score);
  const i32 lives = ram[0xC4] & 7;
  set_end(p, lives == 0 && (ram[0xB9] != 0 || ram[0xBD] != 0), lives + 1);
}
inline void robotank(Ram ram, Progress& p) {
  set_score(p, 12 * ram[0xB6] + ram[0xB5]);  // squadrons of 12, and tanks
  set_end(p, ram[0xA8] == 0 && ram[0xB4] == 0xFF, ram.low_digit(0xA8) + 1);
}
inline void seaquest(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xBA, 0xB9, 0xB8));
  set_end(p, ram[0xA3] != 0, ram[0xBB] + 1);
}
inline void sir_lancelot(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xA0, 0x9F, 0x9E));
  set_end(p, ram[0xA9] == 0 && ram[0xA7] == 0xA0, ram[0xA9]);
}
inline void skiing(Ram ram, Progress& p) {
  // Time is what the game counts, so its reward is negative.
  const i32 centiseconds = ram[0xE8] * 6000 + ram.digits(0xEA, 0xE9);
  set_score(p, centiseconds);
  p.reward = -p.reward;
  set_end(p, ram[0x91] == 0xFF, 0);
}
inline void solaris(Ram ram, Progress& p) {
  set_score(p, 10 * ram.digits(0xDC, 0xDD, 0xDE));
  set_end(p, ram[0xD9] == 0, ram.low_digit(0xD9));
}
inline void space_invaders(Ram ram, Progress& p) {
  const i32 score = ram.digits(0xE8, 0xE6), before = p.score;
  set_score(p, score);
  if (p.reward < 0) p.reward = 10000 - before + score;  // the display starts again at 0
  set_end(p, (ram[0x98] & 0x80) || ram[0xC9] == 0, ram[0xC9]);
}
inline void space_war(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xA7));
  set_end(p, p.score == 10 || ram[0x80] == 0, 1);  // ten points, or ten minutes
}
inline void star_gunner(Ram ram, Progress& p) {
  i32 score = 0;
  for (u32 address = 0x86; address >= 0x83; address--)
    score = 10 * score + ram.shown_digit(address);
  set_score(p, 100 * score);
  p.started |= ram[0x87] == 5;
  set_end(p, ram[0x87] == 0, p.started ? ram.low_digit(0x87) : 5);
}
inline void superman(Ram ram, Progress& p) {
  // The end is Clark Kent's return to his newspaper; what is left of 100 minutes is the reward.
  const bool is_clark_kent = ram[0x9F] & 0x40, is_there = ram[0x80] == 0xAC && ram[0x81] == 0xF2;
  set_end(p, is_clark_kent && is_there, 1);
  const i32 seconds = 60 * ram.digits(0xE3) + ram.digits(0xE2);
  p.reward = p.over ? 5999 - seconds : 0;
  p.score += p.reward;
}
inline void surround(Ram ram, Progress& p) {
  const i32 theirs = ram.digits(0xF6), mine = ram.digits(0xF7);
  set_score(p, mine - theirs);
  set_end(p, mine == 10 || theirs == 10, 1);
}
inline void tennis(Ram ram, Progress& p) {
  // A won game counts, or else a won point.
  // `score` holds the difference in games, `memory` that in points.
  const i32 mine = ram[0xC7], theirs = ram[0xC8];
  const i32 games = mine - theirs, points = ram[0xC5] - ram[0xC6];
  p.reward = games != p.score ? games - p.score : points - p.memory;
  p.score = games;
  p.memory = (i16)points;
  const bool won = (mine >= 6 && games >= 2) || (theirs >= 6 && -games >= 2);
  set_end(p, won || mine == 7 || theirs == 7, 0);
}
inline void tetris(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xF1, 0xF2));
  if (p.reward < 0) p.reward = 0;
  set_end(p, ram[0xF3] & 0x80, 0);
  if (p.over) p.score = 0;
}
inline void tic_tac_toe_3d(Ram ram, Progress& p) {
  // Somebody has won when the stack holds the return to $F310; a draw is a full board.
  const bool won = ram[0xFE] == 0x10 && ram[0xFF] == 0xF3;
  p.reward = !won ? 0 : ram[0xE1] == 8 ? 1 : -1;
  p.score += p.reward;
  bool full = true;
  for (u32 place = 0x9A; place <= 0xD9; place++) full &= ram[place] != 0;
  set_end(p, p.over || won || full, 1);
}
inline void time_pilot(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0x8D, 0x8F));
  if (ram.low_digit(0x80) == 2)
    p.memory = (i16)((ram[0x8B] & 7) + 1);  // lives count in flight only
  set_end(p, ram[0xA0] != 0, p.memory);
}
inline void trondead(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xBF, 0xBE, 0xBD));
  set_end(p, ram[0xC8] == 5, 5 - ram[0xC8]);
}
inline void turmoil(Ram ram, Progress& p) {
  set_score(p, 10 * (ram.digits(0x89, 0x8A) + ram[0xD3]));
  set_end(p, ram[0xB9] == 0 && ram[0xC5] == 1, ram[0xB9]);
}
inline void tutankham(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x9C, 0x9A));
  // 0x84 is there until the first game begins.
  set_end(p, ram[0x9E] == 0 && ram[0x81] != 0x84, ram[0x9E] & 3);
}
inline void up_n_down(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x82, 0x81, 0x80));
  set_end(p, ram[0x94] > 0x40 && ram.low_digit(0x86) == 0, ram.low_digit(0x86) + 1);
}
inline void venture(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xC8, 0xC7));
  set_end(p, ram[0xC6] == 0 && ram[0xCD] == 0xFF && (ram[0xBF] & 0x80), (ram[0xC6] & 7) + 1);
}
inline void video_checkers(Ram ram, Progress& p) {
  // Four times eight places, a byte apart. White's pieces have bit 7; black is the player.
  bool has_black = false, has_white = false;
  for (u32 row = 0; row < 4; row++)
    for (u32 place = 0; place < 8; place++) {
      const i32 piece = ram[0x80 + 9 * row + place];
      has_black |= piece == 0x10 || piece == 0x20;
      has_white |= piece == 0x90 || piece == 0xA0;
    }
  if (!has_black || !has_white) p.reward = has_black ? 1 : -1;
  set_end(p, p.over || !has_black || !has_white, 1);
}
inline void video_chess(Ram ram, Progress& p) {
  // While black thinks, it tries moves on the board itself.
  const i32 mated = ram[0xE1] == 0x82 ? ram[0xEE] : 3;  // 0 is black, the computer, and 1 white
  p.reward = mated == 0 ? 1 : mated == 1 ? -1 : 0;
  set_end(p, p.over || mated <= 1, 1);
}
inline void video_cube(Ram ram, Progress& p) {
  i32 faces = 0;  // of one color
  for (u32 face = 0xA0; face < 0xA0 + 6 * 9; face += 9) {
    bool alike = true;
    for (u32 tile = 1; tile < 9; tile++) alike &= ram[face + tile] == ram[face];
    faces += alike;
  }
  set_score(p, faces);
  // Who does not move for so long that the timer wraps loses the cube to the computer.
  const bool late = p.memory == 0xFF && ram[0xDB] == 0;
  p.memory = (i16)ram[0xDB];
  if (late) p.reward = -1;
  set_end(p, late || faces == 6, 1);
}
// ALE has three of the 18 games, each with 50 cubes: a mode is 100 times the cube, plus the game.
inline bool video_cube_menu(Ram ram, i32 mode) {
  constexpr i32 kShown[] = {0, 2, 8};
  return (ram[0xFB] & 0x1F) == kShown[mode % 100];
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
inline void word_zapper(Ram ram, Progress& p) {
  // Without its clock the display means nothing; ALE gives the last reward again.
  if (ram[0xCF] == 0) return;
  set_score(p, 2 - (i8)ram[0xDC]);  // rounds to go, down to -1
  set_end(p, p.score == 3 || ram[0xDE] == 0, 1);
}
inline void yars_revenge(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xE2, 0xE1, 0xE0));
  set_end(p, ram[0x9E] >> 4 == 0, ram[0x9E] >> 4);
}
inline void zaxxon(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xE9, 0xE8));
  set_end(p, (ram[0xEA] & 7) == 0, ram[0xEA] & 7);
}

}  // namespace jaxrl::games
