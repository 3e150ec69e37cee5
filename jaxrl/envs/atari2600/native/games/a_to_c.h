// What the games from A to C mean; see rules.h.
#pragma once

#include "games/rules.h"

namespace jaxrl::games {

inline bool adventure_menu(Ram ram, i32 mode) { return (ram[0xDD] & 6) == 2 * mode; }
inline void adventure(Ram ram, Progress& p) {
  const bool won = ram[0xB9] == 0x12;  // the chalice is in the yellow castle
  set_score(p, p.score || won);
  p.over = won || ram[0xE0] == 2;  // or a dragon has eaten the player
  p.lives = 1;
}
inline void air_raid(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xAA, 0xA9, 0xA8));
  set_end(p, ram[0xA7] == 0xFF, 1);
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
inline void asterix(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xE0, 0xDF, 0xDE));
  // At the end of the last death: a frame later FIRE would start the next game.
  set_end(p, ram[0xC7] == 1 && ram.low_digit(0xD3) == 1, ram.low_digit(0xD3));
}
inline void asteroids(Ram ram, Progress& p) {
  set_score(p, 10 * ram.digits(0xBE, 0xBD));
  if (p.reward < 0) p.reward += 100000;  // the display starts again at 0
  set_end(p, ram[0xBC] >> 4 == 0, ram[0xBC] >> 4);
}
inline void atlantis(Ram ram, Progress& p) {
  const bool over = ram[0xF1] == 0xFF;
  set_score(p, over ? p.score : 100 * ram.digits(0xA2, 0xA3, 0xA1));
  set_end(p, over, ram[0xF1]);
}
inline void atlantis2(Ram ram, Progress& p) {
  const bool over = ram[0xF1] == 0xFF;
  set_score(p, over ? p.score : ram.digits(0xA1, 0xA2, 0xA3));
  set_end(p, over, ram[0xF1]);
}
inline void backgammon(Ram ram, Progress& p) {
  // Pieces on the points and on the bar; the player's are negative. Those borne off stand at 0x80
  // and 0x8E. While the computer thinks it uses these bytes, and the pieces are not 15 and 15.
  const i8 my_home = (i8)-ram[0x80], their_home = (i8)ram[0x8E];
  i8 mine = 0, theirs = 0;
  for (u32 point = 0x81; point <= 0x9B; point++) {
    const i8 pieces = (i8)ram[point];
    if (point == 0x8E) continue;
    if (pieces < 0) mine = (i8)(mine - pieces);
    if (pieces > 0) theirs = (i8)(theirs + pieces);
  }
  const bool complete = mine + my_home == 15 && theirs + their_home == 15;
  const i32 won = !complete ? 0 : my_home == 15 ? 1 : their_home == 15 ? -1 : 0;
  set_score(p, won ? won : p.score);
  set_end(p, p.over || won, 1);
}
inline void bank_heist(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xDA, 0xD9, 0xD8));
  set_end(p, ram[0xCE] == 1 && ram[0xD5] == 0, ram[0xD5]);
}
inline void basic_math(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x84));
  set_end(p, ram.digits(0x86) != 0, 1);
}
inline void battle_zone(Ram ram, Progress& p) {
  const auto shown = [](i32 digit) { return digit == 10 ? 0 : digit; };
  const i32 thousands = shown(ram[0x9D] >> 4) + 10 * ram.shown_digit(0x9E);
  set_score(p, 1000 * (thousands + 100 * shown(ram[0x9E] >> 4)));
  set_end(p, ram.low_digit(0xBA) == 0, ram.low_digit(0xBA));
}
inline void beam_rider(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x89, 0x8A, 0x8B));
  // The counter blinks while a ship is lost, and counts when that is over.
  const i32 lives = ram[0x85] + 1;
  if (lives != p.memory - 1 || ram[0x8C] == 1) p.memory = (i16)lives;
  set_end(p, ram[0x85] == 0xFF, p.memory);
}
inline void berzerk(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xDF, 0xDE, 0xDD));
  set_end(p, ram[0xDA] == 0xFF, ram[0xDA] + 1);
}
inline void blackjack(Ram ram, Progress& p) {
  const bool bust = ram[0x86] == 0x0B && ram[0x89] == 0xBB;  // a blank display
  set_score(p, bust ? 0 : ram.digits(0x89, 0x86));
  set_end(p, bust || p.score >= 1000, 1);
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
inline void carnival(Ram ram, Progress& p) {
  set_score(p, 10 * ram.digits(0xAE, 0xAD));
  set_end(p, ram[0x83] == 0, 0);  // no bullets are left
}
inline void casino(Ram ram, Progress& p) {
  if (ram[0xD4] == 3) {  // Poker Solitaire
    set_score(p, ram.digits(0x95, 0x8C));
    return set_end(p, p.score > 0 && ram[0x9E] == 0xAA, 1);
  }
  const i32 before = p.reward;
  const bool ignores_player = ram[0xD3] & 0x80, has_bet = ram.digits(0x9E) > 0;
  set_score(p, ram.digits(0x95, 0x8C));
  // ALE gives the last reward again and again while the player has to wait.
  if (ignores_player) p.reward = before;
  set_end(p, p.score == 0 || (has_bet && ignores_player), 1);
}
inline void centipede(Ram ram, Progress& p) {
  set_score(p, ram.digits(0xF6, 0xF5, 0xF4));
  if (p.reward < 0) p.reward = 0;  // the score may go before the game is over
  set_end(p, ram[0xA6] & 0x40, (ram[0xED] >> 4 & 7) + 1);
}
inline void chopper_command(Ram ram, Progress& p) {
  set_score(p, 100 * ram.digits(0xEE, 0xEC));
  const i32 lives = ram.low_digit(0xE4);
  // The helicopter faces left until the game begins.
  p.started |= ram[0xC2] & 1;
  p.over = p.started && lives == 0;
  p.lives = (i16)lives;
}
inline void crazy_climber(Ram ram, Progress& p) {
  const i32 hundreds = ram[0x82] + 10 * ram[0x83] + 100 * ram[0x84] + 1000 * ram[0x85];
  set_score(p, 100 * hundreds);
  if (p.reward < 0) p.reward = 0;
  set_end(p, ram[0xAA] == 0, ram[0xAA]);
}
inline void crossbow(Ram ram, Progress& p) {
  set_score(p, ram.digits(0x8D, 0x8C, 0x8B));
  set_end(p, ram[0xE7] == 0x82, 1);
}

}  // namespace jaxrl::games
