// The TIA's beam: draws what it crosses, and latches which objects have collided there.
#pragma once

#include "base/types.h"
#include "chips/tia/blend.h"
#include "chips/tia/masks.h"
#include "chips/tia/tables.h"

namespace jaxrl {

// Where a frame is drawn: rows of 160 bytes, colors[COLUxx] each.
struct Canvas {
  u8* pixels;        // null where the frame is not seen
  const u8* colors;  // [256]: identity, or the gray of each color
};

// A write of the program: cycle << 14 | register << 8 | value.
using LoggedWrite = u32;
// A frame ends at the first write after so many lines; BRK writes 3 times in 7 cycles.
constexpr i32 kLastLines = 291, kLastPalLines = 343;
constexpr int kLogCapacity = ((kLastPalLines + 1) * kCyclesPerLine / 7 + 1) * 3;

// The beam: what is needed while a frame is played and not between frames.
struct Beam {
  LoggedWrite* played;  // the log is played up to here
  Canvas canvas;
  i32 start, stop;    // clocks of the window that is drawn
  i32 clock;          // drawn up to here
  i32 line_start;     // clock of the line of the last update
  i32 quiet_until;    // up to this clock an update only moves the beam
  u16 needed;         // latches that the cartridge reads
  u8 needed_objects;  // objects of those latches
  u8 stale;           // masks to rebuild before use; bit 7: `enabled` too
  u8 enabled;         // objects that can show
  u8 partners;        // objects that may collide with an enabled one, of what is kept and open
  u8 partners_of[8];  // the same by object
  u8 repeats;         // nothing has changed since the row above was drawn whole
  u8 blanks_hmove;    // the console shows HMOVE's blanks
  u8 lost_color;      // 1 where a PAL television loses it, after an odd number of lines
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

JAXRL_SHARED_CODE inline void rebuild(const Tia& tia, Beam& beam, int object) {
  switch (object) {
    case kPlayer0:
    case kPlayer1: beam.mask[object] = player_mask(tia, object - kPlayer0); break;
    case kMissile0:
    case kMissile1: beam.mask[object] = missile_mask(tia, object - kMissile0); break;
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
  beam.enabled =
      (u8)((shown_player(tia, 0) != 0) << kPlayer0 | (shown_player(tia, 1) != 0) << kPlayer1 |
           (registers[ENAM0] >> 1 & ~registers[RESMP0] >> 1 & 1) << kMissile0 |
           (registers[ENAM1] >> 1 & ~registers[RESMP1] >> 1 & 1) << kMissile1 |
           (ball >> 1 & 1) << kBall | playfield << kPlayfield);
  beam.stale &= (u8)~kEnabledStale;
  find_partners(beam);
}

// Looks at the pairs that are open, of objects that are shown.
JAXRL_NOINLINE inline void latch_open(Tia& tia, Beam& beam, u32 open, i32 from, i32 to) {
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

JAXRL_INLINE void latch_collisions(Tia& tia, Beam& beam, i32 from, i32 to) {
  const u32 open = tia_tables::kTables.pairs[beam.enabled] & beam.needed & ~tia.collisions;
  if (open) latch_open(tia, beam, open, from, to);
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
  const auto color = [&](u32 index) { return colors[(registers[index] & 0xFE) | beam.lost_color]; };
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

// Runs the beam through the window of the frame, up to a clock.
// A line ends when the beam leaves it.
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
