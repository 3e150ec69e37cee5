// The TIA: draws the picture while the beam runs, and latches which objects have collided.
//
// The chip is a set of registers that the program changes while the beam crosses the screen. Instead
// of stepping 228 clocks a line, writes are put into a log with their cycle, and the log is played
// when somebody looks: at the end of the frame, or at a read of a collision. Between two writes that
// change the picture lies a segment of a line, on which every object is a mask of 160 bits: drawing is
// a blend per object, a collision an AND of two masks. A line on which nothing was written is a copy
// of the line above.
//
//   $00 VSYNC  $01 VBLANK  $02 WSYNC   $04 NUSIZ0-1  $06 COLUP0-1  $08 COLUPF  $09 COLUBK
//   $0A CTRLPF  $0B REFP0-1  $0D PF0-2  $10 RESP0-1  $12 RESM0-1  $14 RESBL  $15-$1A sound
//   $1B GRP0-1  $1D ENAM0-1  $1F ENABL  $20 HMP0-1  $22 HMM0-1  $24 HMBL  $25 VDELP0-1  $27 VDELBL
//   $28 RESMP0-1  $2A HMOVE  $2B HMCLR  $2C CXCLR
//
// Timing follows the "Stella Programmer's Guide" (Wright 1979), A. Towers' "TIA hardware notes", and
// where ALE differs from them, what ALE shows: games are to look as they do there. Clocks and cycles
// are counted from the first line of the frame.
#pragma once

#include "base/types.h"
#include "chips/blend.h"

namespace jaxrl {

enum TiaRegister : u8 {
  VSYNC = 0x00, VBLANK = 0x01, WSYNC = 0x02, RSYNC = 0x03, NUSIZ0 = 0x04, NUSIZ1 = 0x05,
  COLUP0 = 0x06, COLUP1 = 0x07, COLUPF = 0x08, COLUBK = 0x09, CTRLPF = 0x0A, REFP0 = 0x0B,
  REFP1 = 0x0C, PF0 = 0x0D, PF1 = 0x0E, PF2 = 0x0F, RESP0 = 0x10, RESP1 = 0x11, RESM0 = 0x12,
  RESM1 = 0x13, RESBL = 0x14, AUDC0 = 0x15, AUDV1 = 0x1A, GRP0 = 0x1B, GRP1 = 0x1C, ENAM0 = 0x1D,
  ENAM1 = 0x1E, ENABL = 0x1F, HMP0 = 0x20, HMM0 = 0x22, HMBL = 0x24, VDELP0 = 0x25, VDELP1 = 0x26,
  VDELBL = 0x27, RESMP0 = 0x28, RESMP1 = 0x29, HMOVE = 0x2A, HMCLR = 0x2B, CXCLR = 0x2C,
};

enum Object : u8 { kPlayer0, kPlayer1, kMissile0, kMissile1, kBall, kPlayfield, kObjects };

// The two objects of each collision latch, in the order of the registers CXM0P to CXPPMM.
constexpr int kPairs = 15;
constexpr u8 kPairObjects[kPairs][2] = {
    {kMissile0, kPlayer1}, {kMissile0, kPlayer0}, {kMissile1, kPlayer0}, {kMissile1, kPlayer1},
    {kPlayer0, kPlayfield}, {kPlayer0, kBall}, {kPlayer1, kPlayfield}, {kPlayer1, kBall},
    {kMissile0, kPlayfield}, {kMissile0, kBall}, {kMissile1, kPlayfield}, {kMissile1, kBall},
    {kBall, kPlayfield}, {kPlayer0, kPlayer1}, {kMissile0, kMissile1},
};
constexpr u16 kAllPairs = (1 << kPairs) - 1;

// Returns the latches that a read of collision register 0 (CXM0P) to 7 (CXPPMM) shows.
constexpr u16 pairs_of_register(u32 index) {
  return index < 6 ? 3 << (2 * index) : index == 6 ? 1 << 12 : 3 << 13;
}

// What the chip remembers; plain data.
struct Tia {
  u8 registers[64];     // last values written; those that only strobe are not kept
  alignas(8) u8 position[8];  // of P0, P1, M0, M1, BL: pixel of the first copy; the rest are 0
  i32 hmove_clock;      // of the last HMOVE
  i32 drawn_until;      // where the beam stands in a frame that goes on
  u16 collisions;       // latches, as kPairObjects
  u16 unknown;          // latches that were not computed since they were cleared
  u8 old_player[2];     // graphics before the last write to the other player (vertical delay)
  u8 old_ball;
  u8 suppressed[2];     // the player was moved on this line: its first copy is not shown
  u8 mirrored;          // the right half of the playfield mirrors the left
  u8 hmove_blank;       // the first 8 pixels of the next line are black
  u8 odd_lines;         // the last frame had an odd number of lines
  u8 stars;             // missile 0 moves by itself: 4 and its step, or 0
  u8 star_look;         // kAsIs, kWide or kHidden on this line
  u8 padding[6];
};

// HMM0 that goes from 7 to 6 just as an HMOVE ends leaves missile 0 counting: it moves on every line,
// until the next HMOVE, and is wide on one line of four and hidden on the next. Games make stars of it.
constexpr u8 kStarMoves[4] = {18, 33, 0, 17};  // pixels to the left
constexpr u32 kStarClocks = 63;                // from the HMOVE
enum StarLook : u8 { kAsIs, kWide, kHidden };

struct Mask {
  u64 word[3];  // pixel x is bit x % 64 of word x / 64
};

// Where a frame is drawn: rows of 160 bytes, colors[COLUxx] each.
struct Canvas {
  u8* pixels;         // null where the frame is not seen
  const u8* colors;  // [256]: identity, or the gray of each color
};

// A write of the program: cycle << 14 | register << 8 | value.
using LoggedWrite = u32;
// A frame ends at the first write after so many lines; BRK writes 3 times in 7 cycles.
constexpr i32 kLastLines = 291, kLastPalLines = 343;
constexpr int kLogCapacity = ((kLastPalLines + 1) * kCyclesPerLine / 7 + 1) * 3;

// The beam: what is needed while a frame is played and not between frames.
struct Beam {
  LoggedWrite* played;      // the log is played up to here
  Canvas canvas;
  i32 start, stop;          // clocks of the window that is drawn
  i32 clock;                // drawn up to here
  i32 line_start;           // clock of the line of the last update
  i32 quiet_until;          // up to this clock an update only moves the beam
  u16 needed;               // latches that the cartridge reads
  u8 needed_objects;        // objects of those latches
  u8 stale;                 // masks to rebuild before use; bit 7: `enabled` too
  u8 enabled;               // objects that can show
  u8 partners;              // objects that may collide with an enabled one, of what is kept and open
  u8 partners_of[8];        // the same by object
  u8 repeats;               // nothing has changed since the row above was drawn whole
  u8 blanks_hmove;          // the console shows HMOVE's blanks
  u8 lost_color;           // 1 where a PAL television loses it, after an odd number of lines
  Mask mask[kObjects];
};

// How a frame is played: without its picture, with it, or with a lane's share of its newest row.
// The last is of kernels (gpu/share.h).
enum Drawing : u8 { kUnseen, kWhole, kShare };
template <Drawing kDraw>
struct Pixels {
  using Row = PixelRow;
};

constexpr u8 kEnabledStale = 0x80;
constexpr u8 kAllStale = 0xFF;

namespace tia_tables {

struct Tables {
  u8 reversed[256];
  u16 doubled[256];    // each bit twice
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
        motion[cycle][value] =
            (i8)(cycle == 75 ? 8 - extra : cycle <= 20 ? 8 - inside : -beyond);
      }
    }
  }
};
inline constexpr Tables kTables{};

// How much later than its cycle a write shows, in clocks; the playfield's depends on the cycle.
constexpr u8 kDelay[64] = {0, 1, 0, 0, 8, 8, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0,
                           0, 0, 8, 8, 0, 0, 0, 0, 0, 0, 0, 1, 1};
constexpr u8 kPlayfieldDelay[4] = {4, 5, 2, 3};

// Copies of players and missiles by NUSIZ: a multiplication places them.
constexpr u64 kCopy16 = 1ull << 16, kCopy32 = 1ull << 32;
constexpr u64 kCopies[8] = {1, 1 | kCopy16, 1 | kCopy32, 1 | kCopy16 | kCopy32, 1, 1,
                            1 | kCopy32, 1};
constexpr u64 kCopyAt64[8] = {0, 0, 0, 0, 1, 0, 1, 0};

}  // namespace tia_tables

// --- masks ---------------------------------------------------------------------------------------

// Places a pattern of 128 bits at a pixel; what leaves the screen on the right enters on the left.
inline Mask placed(u64 low, u64 high, u32 pixel) {
  const u32 word = pixel >> 6, shift = pixel & 63;
  const unsigned __int128 first = (unsigned __int128)low << shift;
  const unsigned __int128 second = (unsigned __int128)high << shift;
  u64 wide[6] = {};
  wide[word] = (u64)first;
  wide[word + 1] = (u64)(first >> 64) | (u64)second;
  wide[word + 2] = (u64)(second >> 64);
  // Pixel 160 is pixel 0.
  return {{wide[0] | wide[2] >> 32 | wide[3] << 32, wide[1] | wide[3] >> 32 | wide[4] << 32,
           wide[2] & 0xFFFFFFFF}};
}

inline u8 shown_player(const Tia& tia, int player) {
  return tia.registers[VDELP0 + player] & 1 ? tia.old_player[player] : tia.registers[GRP0 + player];
}

inline Mask player_mask(const Tia& tia, int player) {
  using namespace tia_tables;
  const u32 copies = tia.registers[NUSIZ0 + player] & 7;
  u8 graphics = shown_player(tia, player);
  // Bit 7 is the leftmost pixel; masks count from the left.
  if (!(tia.registers[REFP0 + player] & 8)) graphics = kTables.reversed[graphics];
  u64 pattern = graphics;
  // Wide players show one pixel later.
  if (copies == 5) pattern = (u64)kTables.doubled[graphics] << 1;
  if (copies == 7) pattern = (u64)kTables.quadrupled[graphics] << 1;
  const u64 first = tia.suppressed[player] ? 1 : 0;
  return placed(pattern * (kCopies[copies] - first), pattern * kCopyAt64[copies],
                tia.position[kPlayer0 + player]);
}

inline Mask missile_mask(const Tia& tia, int missile) {
  u32 size = tia.registers[NUSIZ0 + missile];
  if (JAXRL_UNLIKELY(!missile && tia.star_look)) {
    if (tia.star_look == kHidden) return {};
    size |= 0x10;
  }
  const u64 pattern = (1u << (1u << (size >> 4 & 3))) - 1;
  return placed(pattern * tia_tables::kCopies[size & 7], pattern * tia_tables::kCopyAt64[size & 7],
                tia.position[kMissile0 + missile]);
}

inline Mask ball_mask(const Tia& tia) {
  const u64 pattern = (1u << (1u << (tia.registers[CTRLPF] >> 4 & 3))) - 1;
  return placed(pattern, 0, tia.position[kBall]);
}

inline Mask playfield_mask(const Tia& tia) {
  using tia_tables::kTables;
  // PF0's upper half from its lowest bit on, PF1 from its highest, PF2 from its lowest.
  const u8 pf0 = tia.registers[PF0] >> 4, pf2 = tia.registers[PF2];
  const u8 pf1 = kTables.reversed[tia.registers[PF1]];
  const u64 left_low = kTables.playfield[pf0] | (u64)kTables.playfield[pf1] << 16 |
                       (u64)kTables.playfield[pf2] << 48;
  const u64 left_high = kTables.playfield[pf2] >> 16;
  u64 right_low = left_low, right_high = left_high;
  if (tia.mirrored) {
    const u32 a = kTables.playfield[kTables.reversed[pf2]];
    const u32 b = kTables.playfield[kTables.reversed[pf1]];
    const u32 c = kTables.playfield[kTables.reversed[pf0] >> 4];
    right_low = a | (u64)b << 32;
    right_high = c;
  }
  // The right half begins at pixel 80, bit 16 of word 1.
  return {{left_low, left_high | right_low << 16, right_low >> 48 | right_high << 16}};
}

JAXRL_SHARED_CODE inline void rebuild(const Tia& tia, Beam& beam, int object) {
  switch (object) {
    case kPlayer0: case kPlayer1: beam.mask[object] = player_mask(tia, object - kPlayer0); break;
    case kMissile0: case kMissile1: beam.mask[object] = missile_mask(tia, object - kMissile0); break;
    case kBall: beam.mask[object] = ball_mask(tia); break;
    default: beam.mask[object] = playfield_mask(tia);
  }
  beam.stale &= (u8)~(1u << object);
}

inline void find_partners(Beam& beam) {
  beam.partners = 0;
  for (u32 enabled = beam.enabled; enabled; enabled &= enabled - 1)
    beam.partners |= beam.partners_of[lowest_bit(enabled)];
}

// To be called when other latches are open.
JAXRL_SHARED_CODE inline void find_open_pairs(const Tia& tia, Beam& beam) {
  memset(beam.partners_of, 0, sizeof beam.partners_of);
  for (u32 open = beam.needed & ~tia.collisions; open; open &= open - 1) {
    const u8* pair = kPairObjects[lowest_bit(open)];
    beam.partners_of[pair[0]] |= (u8)(1u << pair[1]);
    beam.partners_of[pair[1]] |= (u8)(1u << pair[0]);
  }
  find_partners(beam);
}

inline void find_enabled(const Tia& tia, Beam& beam) {
  const u8* registers = tia.registers;
  const u8 ball = registers[VDELBL] & 1 ? tia.old_ball : registers[ENABL];
  const bool playfield = (registers[PF0] & 0xF0) | registers[PF1] | registers[PF2];
  beam.enabled = (u8)((shown_player(tia, 0) != 0) << kPlayer0 |
                      (shown_player(tia, 1) != 0) << kPlayer1 |
                      (registers[ENAM0] >> 1 & ~registers[RESMP0] >> 1 & 1) << kMissile0 |
                      (registers[ENAM1] >> 1 & ~registers[RESMP1] >> 1 & 1) << kMissile1 |
                      (ball >> 1 & 1) << kBall | playfield << kPlayfield);
  beam.stale &= (u8)~kEnabledStale;
  find_partners(beam);
}

// The pixels below each one, to cut segments out of lines.
struct Below {
  Mask pixel[kScreenWidth + 1];
  constexpr Below() : pixel() {
    for (int x = 0; x < kScreenWidth; x++) {
      pixel[x + 1] = pixel[x];
      pixel[x + 1].word[x / 64] |= 1ull << x % 64;
    }
  }
};
inline constexpr Below kBelow{};

// Returns the pixels from `from` up to, not with, `to`.
JAXRL_INLINE Mask between(i32 from, i32 to) {
  const u64* low = kBelow.pixel[from].word;
  const u64* high = kBelow.pixel[to].word;
  return {{high[0] & ~low[0], high[1] & ~low[1], high[2] & ~low[2]}};
}

// --- the beam ------------------------------------------------------------------------------------

inline void latch_collisions(Tia& tia, Beam& beam, i32 from, i32 to) {
  u32 open = tia_tables::kTables.pairs[beam.enabled] & beam.needed & ~tia.collisions;
  if (!open) return;
  const Mask part = between(from, to);
  for (; open; open &= open - 1) {
    const int pair = lowest_bit(open);
    const u8 first = kPairObjects[pair][0], second = kPairObjects[pair][1];
    if (beam.stale >> first & 1) rebuild(tia, beam, first);
    const u64* a = beam.mask[first].word;
    const u64 a0 = a[0] & part.word[0], a1 = a[1] & part.word[1], a2 = a[2] & part.word[2];
    // The second is often the playfield, which changes within lines and is dear to rebuild.
    if (!(a0 | a1 | a2)) continue;
    if (beam.stale >> second & 1) rebuild(tia, beam, second);
    const u64* b = beam.mask[second].word;
    if ((a0 & b[0]) | (a1 & b[1]) | (a2 & b[2])) {
      tia.collisions |= (u16)(1u << pair);
      find_open_pairs(tia, beam);
    }
  }
}

// Draws pixels `from` to `to` of a row.
template <Drawing kDraw>
inline void draw(const Tia& tia, Beam& beam, u8* row, i32 from, i32 to) {
  const u8* registers = tia.registers;
  const u8* colors = beam.canvas.colors;
  const Mask part = between(from, to);
  typename Pixels<kDraw>::Row pixels;
  if (registers[VBLANK] & 2) {
    fill(pixels, colors[0]);
    return store(row, pixels, part.word);
  }
  for (u32 stale = beam.stale & beam.enabled; stale; stale &= stale - 1)
    rebuild(tia, beam, lowest_bit(stale));
  const auto color = [&](u32 index) {
    return colors[(registers[index] & 0xFE) | beam.lost_color];
  };
  fill(pixels, color(COLUBK));
  const u8 player0 = color(COLUP0), player1 = color(COLUP1), front = color(COLUPF);
  const u8 enabled = beam.enabled;
  const u8 priority = registers[CTRLPF] & 6;  // 4: playfield over players; 2: scores' colors
  const Mask& playfield = beam.mask[kPlayfield];
  const auto blend_object = [&](int object, u8 shown) {
    if (enabled >> object & 1) blend(pixels, beam.mask[object].word, shown);
  };
  if (priority == 2) {
    // The halves of the playfield have the players' colors; the left one lies over player 1.
    const u64 left[3] = {playfield.word[0], playfield.word[1] & 0xFFFF, 0};
    const u64 right[3] = {0, playfield.word[1] & ~0xFFFFull, playfield.word[2]};
    blend_object(kBall, front);
    if (enabled >> kPlayfield & 1) blend(pixels, right, player1);
    blend_object(kMissile1, player1);
    blend_object(kPlayer1, player1);
    if (enabled >> kPlayfield & 1) blend(pixels, left, player0);
    blend_object(kMissile0, player0);
    blend_object(kPlayer0, player0);
  } else {
    if (!(priority & 4)) {
      blend_object(kPlayfield, front);
      blend_object(kBall, front);
    }
    blend_object(kMissile1, player1);
    blend_object(kPlayer1, player1);
    blend_object(kMissile0, player0);
    blend_object(kPlayer0, player0);
    if (priority & 4) {
      blend_object(kPlayfield, front);
      blend_object(kBall, front);
    }
  }
  if (tia.hmove_blank) {
    constexpr u64 kFirstEight[3] = {0xFF, 0, 0};
    blend(pixels, kFirstEight, colors[0]);
  }
  store(row, pixels, part.word);
}

template <Drawing kDraw>
inline void run_segment(Tia& tia, Beam& beam, i32 from, i32 to) {
  const bool whole = from == 0 && to == kScreenWidth;
  if (kDraw != kUnseen) {
    u8* row = beam.canvas.pixels;
    if (kDraw == kWhole) row += (beam.line_start - beam.start) / kClocksPerLine * kScreenWidth;
    if (whole && beam.repeats) {
      // Nothing has changed since the row above, so neither have the collisions.
      if (kDraw == kWhole) memcpy(row, row - kScreenWidth, kScreenWidth);
      return;
    }
    draw<kDraw>(tia, beam, row, from, to);
    beam.repeats = whole && !tia.hmove_blank;
  }
  if (!(tia.registers[VBLANK] & 2)) latch_collisions(tia, beam, from, to);
  if (to >= 8) tia.hmove_blank = 0;
}

inline void move_star(Tia& tia, Beam& beam) {
  const u32 step = (tia.stars + 1) & 3;
  tia.stars = (u8)(4 + step);
  tia.position[kMissile0] =
      (u8)((tia.position[kMissile0] + kScreenWidth - kStarMoves[step]) % kScreenWidth);
  tia.star_look = step == 1 ? kWide : step == 2 ? kHidden : kAsIs;
  beam.stale |= 1 << kMissile0;
  beam.repeats = 0;
}

inline void end_line(Tia& tia, Beam& beam) {
  if (JAXRL_UNLIKELY(tia.stars)) move_star(tia, beam);
  const u8 mirrored = tia.registers[CTRLPF] & 1;
  if (tia.mirrored != mirrored) {
    tia.mirrored = mirrored;
    beam.stale |= 1 << kPlayfield;
    beam.repeats = 0;
  }
  for (int player = 0; player < 2; player++) {
    if (!tia.suppressed[player]) continue;
    tia.suppressed[player] = 0;
    beam.stale |= (u8)(1 << (kPlayer0 + player));
    beam.repeats = 0;
  }
}

// Runs the beam through the window of the frame, up to a clock. A line ends when the beam leaves it.
template <Drawing kDraw>
JAXRL_NOINLINE void run_beam_on(Tia& tia, Beam& beam, i32 clock) {
  if (beam.clock >= beam.stop) return;
  if (beam.stale & kEnabledStale) find_enabled(tia, beam);
  const i32 end = clock < beam.stop ? clock : beam.stop;
  for (;;) {
    const i32 line_end = beam.line_start + kClocksPerLine;
    const i32 until = end < line_end ? end : line_end;
    const i32 visible = beam.line_start + kHorizontalBlank;
    const i32 from = beam.clock > visible ? beam.clock - visible : 0;
    if (until - visible > from) run_segment<kDraw>(tia, beam, from, until - visible);
    beam.clock = until;
    if (end <= line_end) break;
    end_line(tia, beam);
    beam.line_start = line_end;
    // Nothing changes any more, so one line that is not drawn stands for all.
    const i32 lines = (end - beam.line_start - 1) / kClocksPerLine;
    if (kDraw == kUnseen && lines > 1 && !tia.stars) {
      run_segment<kUnseen>(tia, beam, 0, kScreenWidth);
      beam.line_start += lines * kClocksPerLine;
      beam.clock = beam.line_start;
    }
  }
  beam.quiet_until = beam.line_start + kHorizontalBlank;
}

template <Drawing kDraw>
JAXRL_INLINE void run_beam(Tia& tia, Beam& beam, i32 clock) {
  if (clock <= beam.clock) return;
  if (JAXRL_LIKELY(clock <= beam.quiet_until)) {
    beam.clock = clock;
    return;
  }
  run_beam_on<kDraw>(tia, beam, clock);
}

// --- writes --------------------------------------------------------------------------------------

// Returns how a player's reset at a pixel falls: -1 just before a copy of it, 1 in a copy, 0 neither.
inline int reset_within(const Tia& tia, int player, i32 pixel) {
  constexpr u8 kSpaced[8] = {0b0001, 0b0011, 0b0101, 0b0111, 0b10001, 0b0001, 0b10101, 0b0001};
  const u32 copies = tia.registers[NUSIZ0 + player] & 7;
  const i32 width = copies == 5 ? 16 : copies == 7 ? 32 : 8;
  for (u32 spaced = kSpaced[copies]; spaced; spaced &= spaced - 1) {
    const i32 behind = (pixel - tia.position[player] - 16 * lowest_bit(spaced) + 320) % 160;
    if (behind < 4) return -1;
    if (behind < 4 + width) return 1;
  }
  return 0;
}

template <Drawing kDraw>
inline void reset_player(Tia& tia, Beam& beam, int player, i32 clock) {
  const i32 place = clock % kClocksPerLine;
  const i32 pixel = place < kHorizontalBlank ? 3 : (place - kHorizontalBlank + 5) % kScreenWidth;
  const int within = reset_within(tia, player, pixel);
  const u8 suppressed = within >= 0;
  if (tia.position[player] == pixel && tia.suppressed[player] == suppressed) return;
  // A copy that has begun is shown to its end, more or less.
  run_beam<kDraw>(tia, beam, within > 0 ? clock + 11 : clock);
  tia.position[player] = (u8)pixel;
  tia.suppressed[player] = suppressed;
  beam.stale |= (u8)(1 << player);
  beam.repeats = 0;
}

// Missiles and the ball that are reset shortly after HMOVE land where the chip, still counting, puts
// them: {cycles since HMOVE, place in the line, pixel}.
struct LateReset {
  i8 object;
  i32 cycles, place;
  u8 pixel;
};
constexpr LateReset kLateResets[] = {{kMissile0, 20, 69, 8}, {kMissile1, 3, 18, 3},
                                     {kBall, 18, 60, 10},    {kBall, 18, 69, 10},
                                     {kBall, 3, 18, 3},      {kBall, 7, 30, 6},
                                     {kBall, 6, 27, 5}};

template <Drawing kDraw>
inline void reset_missile_or_ball(Tia& tia, Beam& beam, int object, i32 clock) {
  const i32 place = clock % kClocksPerLine;
  u8 pixel =
      (u8)(place < kHorizontalBlank ? 2 : (place - kHorizontalBlank + 4) % kScreenWidth);
  const u32 since = (u32)clock - (u32)tia.hmove_clock;
  if (JAXRL_UNLIKELY(since <= 60))
    for (const LateReset& late : kLateResets)
      if (late.object == object && since == (u32)late.cycles * 3 && place == late.place)
        pixel = late.pixel;
  const bool star = object == kMissile0 && (tia.stars | tia.star_look);
  if (tia.position[object] == pixel && !star) return;
  if (kDraw != kUnseen || star || beam.needed_objects >> object & 1)
    run_beam<kDraw>(tia, beam, clock + (object == kBall ? 0 : 8));
  if (star) tia.star_look = kAsIs;
  tia.position[object] = pixel;
  beam.stale |= (u8)(1 << object);
  beam.repeats = 0;
}

// Moves each object as HMOVE at this cycle of a line does; returns those that have moved.
inline u32 move_each(Tia& tia, i32 column) {
  u32 moved = 0;
  for (int object = 0; object < kPlayfield; object++) {
    const u32 motion = tia.registers[HMP0 + object] >> 4;
    i32 pixel = tia.position[object] + tia_tables::kTables.motion[column][motion];
    if (pixel >= kScreenWidth) pixel -= kScreenWidth;
    if (pixel < 0) pixel += kScreenWidth;
    moved |= (u32)(pixel != tia.position[object]) << object;
    tia.position[object] = (u8)pixel;
  }
  return moved;
}

// The same for an HMOVE right after WSYNC, as the manual wants it: all objects at once.
inline u32 move_all(Tia& tia) {
#if JAXRL_GPU
  return move_each(tia, 0);
#else
  typedef u8 Bytes __attribute__((vector_size(8)));
  Bytes position, motion;
  memcpy(&position, tia.position, 8);
  memcpy(&motion, tia.registers + HMP0, 8);
  constexpr Bytes kObjectsOnly = {0xF0, 0xF0, 0xF0, 0xF0, 0xF0, 0, 0, 0};
  // To the left by HMxx as a signed digit, in bytes that stay positive by 16 more.
  const Bytes shifted = position + 24 - (((motion & kObjectsOnly) >> 4) ^ 8);
  const Bytes entering = (Bytes)(shifted < 16) & kScreenWidth;
  const Bytes leaving = (Bytes)(shifted >= 16 + kScreenWidth) & kScreenWidth;
  const Bytes pixels = shifted - 16 + entering - leaving;
  constexpr Bytes kBits = {1, 2, 4, 8, 16, 0, 0, 0};
  const Bytes bits = (Bytes)(pixels != position) & kBits;
  memcpy(tia.position, &pixels, 8);
  u64 moved;
  memcpy(&moved, &bits, 8);
  return (u32)(moved * 0x0101010101010101ull >> 56);
#endif
}

template <Drawing kDraw>
inline void move_objects(Tia& tia, Beam& beam, i32 cycle) {
  const i32 clock = 3 * cycle, column = cycle % kCyclesPerLine;
  run_beam<kDraw>(tia, beam, clock);
  if (beam.blanks_hmove && (column <= 20 || column == 75)) {
    tia.hmove_blank = 1;
    beam.repeats = 0;
  }
  const u32 moved = column <= 3 ? move_all(tia) : move_each(tia, column);
  const u32 shown_again = tia.suppressed[0] << kPlayer0 | tia.suppressed[1] << kPlayer1;
  if (moved | shown_again) {
    beam.stale |= (u8)(moved | shown_again);
    beam.repeats = 0;
  }
  tia.suppressed[0] = tia.suppressed[1] = 0;
  tia.hmove_clock = clock;
  if (JAXRL_LIKELY(!(tia.stars | tia.star_look))) return;
  tia.stars = tia.star_look = 0;
  beam.stale |= 1 << kMissile0;
  beam.repeats = 0;
}

// Which objects and masks a register changes when its value does; `kLooks` only changes colors.
struct Effect {
  u8 objects;
  u8 stale;
};
constexpr u8 kNothing = 0, kLooks = 0x40;
constexpr Effect effect_of(u32 index) {
  constexpr u8 kAll = 0x3F;
  switch (index) {
    case VBLANK: return {kAll | kLooks, 0};
    case COLUP0: case COLUP1: case COLUPF: case COLUBK: return {kLooks, 0};
    case REFP0: case REFP1: {
      const u8 player = (u8)(1 << (kPlayer0 + index - REFP0));
      return {player, player};
    }
    case PF0: case PF1: case PF2: return {1 << kPlayfield, 1 << kPlayfield | kEnabledStale};
    case ENAM0: case ENAM1: return {(u8)(1 << (kMissile0 + index - ENAM0)), kEnabledStale};
    case ENABL: case VDELBL: return {1 << kBall, kEnabledStale};
    case VDELP0: case VDELP1: {
      const u8 player = (u8)(1 << (kPlayer0 + index - VDELP0));
      return {player, (u8)(player | kEnabledStale)};
    }
    default: return {kNothing, 0};
  }
}
struct Effects {
  Effect of[64];
  constexpr Effects() : of() {
    for (u32 index = 0; index < 64; index++) of[index] = effect_of(index);
  }
};
inline constexpr Effects kEffects{};

// Plays one write.
template <Drawing kDraw>
JAXRL_INLINE void play_write(Tia& tia, Beam& beam, u32 index, u8 value, i32 cycle) {
  u8* registers = tia.registers;
  const i32 clock = 3 * cycle;
  // Brings the beam up to a change of these objects. Where nothing is drawn it need not come if none
  // of them may collide with one that is shown: until one is, they have no history.
  const auto run_to = [&](i32 delay, u8 objects) {
    if (kDraw != kUnseen) {
      run_beam<kDraw>(tia, beam, clock + delay);
      beam.repeats = 0;
    } else if (beam.needed_objects & objects) {
      if (beam.stale & kEnabledStale) find_enabled(tia, beam);
      if (beam.partners & objects) run_beam<kDraw>(tia, beam, clock + delay);
    }
  };
  switch (index) {
    case GRP0: case GRP1: {
      // A write to one player's graphics shows the other's last ones, where those are delayed.
      const int player = (int)index - GRP0, other = 1 - player;
      const bool own = !(registers[VDELP0 + player] & 1) && registers[index] != value;
      const bool others = (registers[VDELP0 + other] & 1) &&
                          tia.old_player[other] != registers[GRP0 + other];
      const bool balls = player == 1 && (registers[VDELBL] & 1) && tia.old_ball != registers[ENABL];
      if (own || others || balls) {
        const u8 objects = (u8)(own << player | others << other | balls << kBall);
        run_to(1, objects);
        const bool only_looks = !others && !balls && registers[index] && value;
        beam.stale |= (u8)(objects | (only_looks ? 0 : kEnabledStale));
      }
      registers[index] = value;
      tia.old_player[other] = registers[GRP0 + other];
      if (player == 1) tia.old_ball = registers[ENABL];
      return;
    }
    case NUSIZ0: case NUSIZ1: {
      const int player = (int)index - NUSIZ0;
      const bool star = !player && (tia.stars | tia.star_look);
      if (registers[index] == value && !tia.suppressed[player] && !star) return;
      const u8 objects = (u8)(1 << (kPlayer0 + player) | 1 << (kMissile0 + player));
      run_beam<kDraw>(tia, beam, clock + 8);
      beam.repeats = 0;
      registers[index] = value;
      tia.suppressed[player] = 0;
      if (!player) tia.star_look = kAsIs;
      beam.stale |= objects;
      return;
    }
    case HMM0: {
      const bool star = (u32)clock - (u32)tia.hmove_clock == kStarClocks && registers[HMM0] >> 4 == 7 &&
                        value >> 4 == 6;
      if (star) {
        run_beam<kDraw>(tia, beam, clock);
        tia.stars = 4;
      }
      registers[HMM0] = value;
      return;
    }
    case CTRLPF: {
      // The right half of the line being drawn keeps its reflection.
      const bool in_time = clock % kClocksPerLine < kHorizontalBlank + 79;
      const u8 mirrored = in_time ? value & 1 : tia.mirrored;
      if (registers[CTRLPF] == value && tia.mirrored == mirrored) return;
      run_beam<kDraw>(tia, beam, clock);
      beam.repeats = 0;
      registers[CTRLPF] = value;
      tia.mirrored = mirrored;
      beam.stale |= 1 << kPlayfield | 1 << kBall;
      return;
    }
    case RESP0: case RESP1: return reset_player<kDraw>(tia, beam, (int)index - RESP0, clock);
    case RESM0: case RESM1: case RESBL:
      return reset_missile_or_ball<kDraw>(tia, beam, (int)index - RESM0 + kMissile0, clock);
    case RESMP0: case RESMP1: {
      // The missile hides in its player and comes out in the player's middle.
      const int player = (int)index - RESMP0;
      if (!((registers[index] ^ value) & 2)) return;
      if (tia.stars) run_beam<kDraw>(tia, beam, clock);
      run_to(0, (u8)(1 << (kMissile0 + player)));
      if (!(value & 2)) {
        if (!player) tia.star_look = kAsIs;
        const u32 copies = registers[NUSIZ0 + player] & 7;
        const int middle = copies == 5 ? 8 : copies == 7 ? 16 : 4;
        tia.position[kMissile0 + player] = (u8)((tia.position[player] + middle) % kScreenWidth);
        beam.stale |= (u8)(1 << (kMissile0 + player));
      }
      registers[index] = value;
      beam.stale |= kEnabledStale;
      return;
    }
    case HMOVE: return move_objects<kDraw>(tia, beam, cycle);
    case HMCLR: memset(registers + HMP0, 0, 5); return;
    case CXCLR:
      run_beam<kDraw>(tia, beam, clock);
      beam.repeats = 0;
      tia.collisions = tia.unknown = 0;
      find_open_pairs(tia, beam);
      return;
    default: {
      if (registers[index] == value) return;
      const Effect& effect = kEffects.of[index];
      if (effect.objects) {
        const i32 delay = index >= PF0 && index <= PF2 ? tia_tables::kPlayfieldDelay[cycle % 76 & 3]
                                                       : tia_tables::kDelay[index];
        run_to(delay, effect.objects);
      }
      registers[index] = value;
      beam.stale |= effect.stale;
    }
  }
}

template <Drawing kDraw>
JAXRL_NOINLINE void play_log_until(Tia& tia, Beam& beam, const LoggedWrite* end, i32 clock) {
  LoggedWrite* write = beam.played;
  for (; write < end; write++)
    play_write<kDraw>(tia, beam, *write >> 8 & 63, (u8)*write, (i32)(*write >> 14));
  beam.played = write;
  run_beam<kDraw>(tia, beam, clock);
}

// Plays the log up to `end` and runs the beam to a clock.
inline void play_log(Tia& tia, Beam& beam, const LoggedWrite* end, i32 clock) {
  if (beam.canvas.pixels)
    play_log_until<kWhole>(tia, beam, end, clock);
  else
    play_log_until<kUnseen>(tia, beam, end, clock);
}

inline void start_beam(Beam& beam, const Tia& tia, i32 first_line, i32 height, bool goes_on) {
  beam.start = first_line * kClocksPerLine;
  beam.stop = beam.start + height * kClocksPerLine;
  beam.clock = beam.line_start = beam.start;
  if (goes_on && tia.drawn_until > beam.start) {
    beam.clock = tia.drawn_until;
    beam.line_start += (beam.clock - beam.start - 1) / kClocksPerLine * kClocksPerLine;
  }
  beam.quiet_until = beam.line_start + kHorizontalBlank;
  beam.stale = kAllStale;
  beam.repeats = 0;
}

}  // namespace jaxrl
