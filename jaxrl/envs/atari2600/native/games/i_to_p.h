// What the games from I to P mean; see rules.h.
#pragma once

#include "games/rules.h"

namespace jaxrl::games {

inline void ice_hockey(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x8A) - ram.digits(0x8B));
  if (p.reward > 1) p.reward = 1;
  set_end(p, ram[0x87] == 0 && ram[0x86] == 0, 0);
}
inline bool jamesbond_menu(Ram ram, i32 mode) { return (ram[0x8C] & ~0x48) == mode; }
inline void jamesbond(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xDC, 0xDD, 0xDE));
  const i32 lives = ram.low_digit(0x86);
  set_end(p, lives == 0 && ram[0x8C] == 0x68, lives + 1);
}
inline void journey_escape(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x92, 0x91, 0x90));
  if (p.reward == 50000) p.reward = 0;  // the cash that the game begins with
  const bool time_is_up = ram[0x95] == 0 && ram[0x96] == 0;
  set_end(p, time_is_up, 0);
}
inline void kaboom(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xA5, 0xA4, 0xA3));
  set_end(p, ram[0xA1] == 0 || p.score == 999999, 1);
}
inline void kangaroo(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xA8, 0xA7));
  set_end(p, ram[0xAD] == 0xFF, (ram[0xAD] & 7) + 1);
}
inline bool kangaroo_menu(Ram ram, i32 mode) {
  return (ram[0xBA] & 0x7F) == mode;  // bit 7 is set until the first game
}
inline void keystone_kapers(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x9C, 0x9B));
  set_end(p, ram[0x96] == 0 && ram[0x88] == 0, ram[0x96]);
}
inline bool king_kong_menu(Ram ram, i32 mode) { return ram[0xEC] == 2 * mode; }
inline void king_kong(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x83, 0x82));
  set_end(p, ram[0xEE] == 0, ram[0xEE]);
}
inline void klax(Ram ram, Progress& p) {
  const Ram more = ram.in_cartridge();
  set_score(p, more.digits(0xB4, 0xB5, 0xB6));
  u32 tiles = 0;  // on the 25 places; what fills them up for the bonus after a wave does not count
  for (u32 place = 0xB3; place < 0xB3 + 25; place++)
    tiles += ram[place] != 0 && (ram[place] & ~0xC) != 2;
  const i32 missed = more[0xEE], most_missed = more[0xE9];
  const bool full = ram[0xA8] == 4 && tiles == 25;
  set_end(p, full || (most_missed > 0 && missed == most_missed) || more[0x9D] == 0x99, 1);
}
inline bool klax_menu(Ram ram, i32 mode) { return ram.in_cartridge()[0xEA] == mode; }
inline void koolaid(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0x81, 0x80));
  set_end(p, ram[0xD1] == 0x80, 0);
}
inline void krull(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x9E, 0x9D, 0x9C));
  set_end(p, ram[0x9F] == 0 && ram[0xA2] == 3 && ram[0x80] == 0x80, (ram[0x9F] & 7) + 1);
}
inline void kung_fu_master(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x9A, 0x99, 0x98));
  set_end(p, ram[0x9D] == 0xFF, (ram[0x9D] & 7) + 1);
}
inline void laser_gates(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x82, 0x81, 0x80));
  set_end(p, ram[0x83] == 0, 0);
}
inline bool lost_luggage_menu(Ram ram, i32 mode) { return ram[0x94] == 1 + 3 * mode; }
inline void lost_luggage(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x96, 0x95, 0x94));
  const bool stopped = ram[0xC8] == 10 && ram[0xA5] == 0 && ram[0xA9] == 0;
  set_end(p, ram[0xCA] == 0 && stopped, ram[0xCA]);
}
inline void mario_bros(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0x8A, 0x89));
  set_end(p, ram[0x87] == 0, ram[0x87]);
}
inline void miniature_golf(Ram ram, Progress& p) {
  // A hole that is finished counts, by how far it stayed under par. Between two holes the display
  // shows the next one's par, else 0 there and all strokes so far, of which it drops the hundreds.
  // `memory` holds the strokes of this hole.
  u8 &hole = p.started, &par = p.notes[0], &shown = p.notes[1];
  p.reward = 0;
  if (ram.digits(0xAF) != hole) {
    if (p.memory > 0) p.reward = par - p.memory;
    hole = (u8)ram.digits(0xAF);
    p.over |= hole == 0;
    p.memory = 0;
  }
  if (ram[0x88] != 0) {
    par = (u8)ram.digits(0x88);
  } else {
    const i32 strokes = ram.digits(0x87);
    p.memory = (i16)(p.memory + strokes - (strokes < shown ? 0 : shown));
    shown = (u8)strokes;
  }
  p.score += p.reward;
  set_end(p, p.over, 1);
}
inline void montezuma_revenge(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x95, 0x94, 0x93));
  set_end(p, ram[0xBA] == 0 && ram[0xFE] == 0x60, (ram[0xBA] & 7) + 1);
}
inline void mr_do(Ram ram, Progress& p) {
  set_score(p, 10 * ram.digits(0x82, 0x83));
  set_end(p, ram[0xDA] == 0x40, ram[0xDB]);
}
inline void ms_pacman(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xF8, 0xF9, 0xFA));
  set_end(p, ram.low_digit(0xFB) == 0 && ram[0xA7] == 0x53, (ram[0xFB] & 7) + 1);
}
inline bool ms_pacman_menu(Ram ram, i32 mode) {
  return ram[0x99] == (mode ? mode : 1) && ram[0xA1] == (mode == 0);
}
inline void name_this_game(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xC6, 0xC5, 0xC4));
  set_end(p, (ram[0xC7] & 7) == 0, ram[0xC7] & 7);
}
inline void othello(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCE) - ram.digits(0xD0));
  // It is nobody's turn for a while during a move, and forever at the end.
  if (ram[0xC0] == 0)
    p.memory++;
  else
    p.memory = 0;
  set_end(p, p.memory > 50, 1);
}
inline void pacman(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCC, 0xCE, 0xD0));
  set_end(p, ram[0x98] == 0 && ram[0xE4] == 0x3F, ram[0x98] + 1);
}
inline bool pacman_menu(Ram ram, i32 mode) {
  return ram[0xCC] == mode + 1 && ram[0xE6] == 0;  // of one player
}
inline void phoenix(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xC8, 0xC9) + 10 * (ram[0xC7] >> 4));
  set_end(p, ram[0xCC] == 0x80, ram[0xCB] & 7);
}
inline void pitfall(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xD7, 0xD6, 0xD5));
  const i32 lives = ram[0x80] >> 4;
  set_end(p, lives == 0 && ram[0x9E] != 0, lives == 0xA ? 3 : lives == 8 ? 2 : 1);
}
inline void pitfall2(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xC9, 0xC8, 0xC7));
  set_end(p, p.score == 199000, 1);
}
inline void pong(Ram ram, Progress& p) {
  set_score(p, ram[0x8E] - ram[0x8D]);
  set_end(p, ram[0x8D] == 21 || ram[0x8E] == 21, 0);
}
inline void pooyan(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x8A, 0x89, 0x88));
  set_end(p, ram[0x96] == 0 && ram[0x98] == 5, (ram[0x96] & 7) + 1);
}
inline void private_eye(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xCA, 0xC9, 0xC8));
  set_end(p, ram[0xC2] > 1, 0);
}

}  // namespace jaxrl::games
