// The TIA: draws the picture while the beam runs, and latches which objects have collided.
//
// The chip is a set of registers that the program changes while the beam crosses the screen.
// Instead of stepping 228 clocks a line, writes are put into a log with their cycle, and the log is
// played when somebody looks: at the end of the frame, or at a read of a collision. Between two
// writes that change the picture lies a segment of a line, on which every object is a mask of 160
// bits: drawing is a blend per object, a collision an AND of two masks. A line on which nothing was
// written is a copy of the line above.
//
//   $00 VSYNC  $01 VBLANK  $02 WSYNC   $04 NUSIZ0-1  $06 COLUP0-1  $08 COLUPF  $09 COLUBK
//   $0A CTRLPF  $0B REFP0-1  $0D PF0-2  $10 RESP0-1  $12 RESM0-1  $14 RESBL  $15-$1A sound
//   $1B GRP0-1  $1D ENAM0-1  $1F ENABL  $20 HMP0-1  $22 HMM0-1  $24 HMBL  $25 VDELP0-1  $27 VDELBL
//   $28 RESMP0-1  $2A HMOVE  $2B HMCLR  $2C CXCLR
//
// Timing follows the "Stella Programmer's Guide" (Wright 1979), A. Towers' "TIA hardware notes",
// and where ALE differs from them, what ALE shows: games are to look as they do there. Clocks and
// cycles are counted from the first line of the frame.
#pragma once

#include "base/types.h"

namespace jaxrl {

// clang-format off: it would take a line for each register
enum TiaRegister : u8 {
  VSYNC = 0x00, VBLANK = 0x01, WSYNC = 0x02, RSYNC = 0x03, NUSIZ0 = 0x04, NUSIZ1 = 0x05,
  COLUP0 = 0x06, COLUP1 = 0x07, COLUPF = 0x08, COLUBK = 0x09, CTRLPF = 0x0A, REFP0 = 0x0B,
  REFP1 = 0x0C, PF0 = 0x0D, PF1 = 0x0E, PF2 = 0x0F, RESP0 = 0x10, RESP1 = 0x11, RESM0 = 0x12,
  RESM1 = 0x13, RESBL = 0x14, AUDC0 = 0x15, AUDV1 = 0x1A, GRP0 = 0x1B, GRP1 = 0x1C, ENAM0 = 0x1D,
  ENAM1 = 0x1E, ENABL = 0x1F, HMP0 = 0x20, HMM0 = 0x22, HMBL = 0x24, VDELP0 = 0x25, VDELP1 = 0x26,
  VDELBL = 0x27, RESMP0 = 0x28, RESMP1 = 0x29, HMOVE = 0x2A, HMCLR = 0x2B, CXCLR = 0x2C,
};
// clang-format on

enum Object : u8 { kPlayer0, kPlayer1, kMissile0, kMissile1, kBall, kPlayfield, kObjects };

// The two objects of each collision latch, in the order of the registers CXM0P to CXPPMM.
constexpr int kPairs = 15;
constexpr u8 kPairObjects[kPairs][2] = {
    {kMissile0, kPlayer1},   {kMissile0, kPlayer0}, {kMissile1, kPlayer0},   {kMissile1, kPlayer1},
    {kPlayer0, kPlayfield},  {kPlayer0, kBall},     {kPlayer1, kPlayfield},  {kPlayer1, kBall},
    {kMissile0, kPlayfield}, {kMissile0, kBall},    {kMissile1, kPlayfield}, {kMissile1, kBall},
    {kBall, kPlayfield},     {kPlayer0, kPlayer1},  {kMissile0, kMissile1},
};
constexpr u16 kAllPairs = (1 << kPairs) - 1;

// Returns the latches that a read of collision register 0 (CXM0P) to 7 (CXPPMM) shows.
constexpr u16 pairs_of_register(u32 index) {
  return index < 6 ? 3 << (2 * index) : index == 6 ? 1 << 12 : 3 << 13;
}

// What the chip remembers; plain data.
struct Tia {
  u8 registers[64];           // last values written; those that only strobe are not kept
  alignas(8) u8 position[8];  // of P0, P1, M0, M1, BL: pixel of the first copy; the rest are 0
  i32 hmove_clock;            // of the last HMOVE
  i32 drawn_until;            // where the beam stands in a frame that goes on
  u16 collisions;             // latches, as kPairObjects
  u16 unknown;                // latches that were not computed since they were cleared
  u8 old_player[2];           // graphics before the last write to the other player (vertical delay)
  u8 old_ball;
  u8 suppressed[2];  // the player was moved on this line: its first copy is not shown
  u8 mirrored;       // the right half of the playfield mirrors the left
  u8 hmove_blank;    // the first 8 pixels of the next line are black
  u8 odd_lines;      // the last frame had an odd number of lines
  u8 stars;          // missile 0 moves by itself: 4 and its step, or 0
  u8 star_look;      // kAsIs, kWide or kHidden on this line
  u8 padding[6];
};

// HMM0 that goes from 7 to 6 just as an HMOVE ends leaves missile 0 counting: it moves on every
// line, until the next HMOVE, and is wide on one line of four and hidden on the next. Games make
// stars of it.
constexpr u8 kStarMoves[4] = {18, 33, 0, 17};  // pixels to the left
constexpr u32 kStarClocks = 63;                // from the HMOVE
enum StarLook : u8 { kAsIs, kWide, kHidden };

namespace tia_tables {

struct Tables {
  u8 reversed[256];
  u16 doubled[256];  // each bit twice
  u32 quadrupled[256];
  u32 playfield[256];  // each bit four times
  u16 pairs[64];       // latches whose two objects are both in a set
  i8 motion[76][16];   // HMOVE at a cycle: pixels to the right by HMxx

  constexpr Tables() : reversed(), doubled(), quadrupled(), playfield(), pairs(), motion() {
    for (int value = 0; value < 256; value++) {
      for (int bit = 0; bit < 8; bit++) {
        if (!(value >> bit & 1)) continue;
        reversed[value] = (u8)(reversed[value] | 0x80 >> bit);
        doubled[value] = (u16)(doubled[value] | 3 << 2 * bit);
        quadrupled[value] |= 15u << 4 * bit;
        playfield[value] |= 15u << 4 * bit;
      }
    }
    for (int set = 0; set < 64; set++)
      for (int pair = 0; pair < kPairs; pair++)
        if ((set >> kPairObjects[pair][0] & 1) && (set >> kPairObjects[pair][1] & 1))
          pairs[set] = (u16)(pairs[set] | 1 << pair);
    // HMOVE lets each object count 0 to 15 extra clocks, one every 4 clocks after the strobe. Eight
    // of them are made up for by the longer blank; those that fall into the visible line move it.
    for (int cycle = 0; cycle < 76; cycle++) {
      for (int value = 0; value < 16; value++) {
        const int extra = value ^ 8;
        int inside = 0, beyond = 0;
        for (int count = 0; count < extra; count++) {
          const int clock = 3 * cycle + 9 + 4 * count;
          inside += clock < 76;
          beyond += clock >= 228;
        }
        motion[cycle][value] = (i8)(cycle == 75 ? 8 - extra : cycle <= 20 ? 8 - inside : -beyond);
      }
    }
  }
};
inline constexpr Tables kTables{};

// How much later than its cycle a write shows, in clocks; the playfield's depends on the cycle.
constexpr u8 kDelay[64] = {0, 1, 0, 0, 8, 8, 0, 0, 0, 0, 0, 1, 1, 0, 0,
                           0, 0, 0, 8, 8, 0, 0, 0, 0, 0, 0, 0, 1, 1};
constexpr u8 kPlayfieldDelay[4] = {4, 5, 2, 3};

// Copies of players and missiles by NUSIZ: a multiplication places them.
constexpr u64 kCopy16 = 1ull << 16, kCopy32 = 1ull << 32;
constexpr u64 kCopies[8] = {1, 1 | kCopy16, 1 | kCopy32, 1 | kCopy16 | kCopy32,
                            1, 1,           1 | kCopy32, 1};
constexpr u64 kCopyAt64[8] = {0, 0, 0, 0, 1, 0, 1, 0};

}  // namespace tia_tables

}  // namespace jaxrl
