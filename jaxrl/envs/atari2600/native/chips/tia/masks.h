// The TIA's objects as masks of 160 bits, one for each pixel of a line.
#pragma once

#include "base/types.h"
#include "chips/tia/tables.h"

namespace jaxrl {

struct Mask {
  u64 word[3];  // pixel x is bit x % 64 of word x / 64
};

// Places a pattern of 128 bits at a pixel; what leaves the screen on the right enters on the left.
inline Mask placed(u64 low, u64 high, u32 pixel) {
  const u32 word = pixel >> 6, shift = pixel & 63;
  const unsigned __int128 first = (unsigned __int128)low << shift;
  const unsigned __int128 second = (unsigned __int128)high << shift;
  const u64 a = (u64)first, b = (u64)(first >> 64) | (u64)second, c = (u64)(second >> 64);
  // Words 0 to 4 of a wider screen, chosen in registers: a vector that is read back from memory
  // which two numbers have just been written to waits for both.
  const bool in0 = word == 0, in1 = word == 1;
  const u64 w0 = in0 ? a : 0, w1 = in0 ? b : in1 ? a : 0, w2 = in0 ? c : in1 ? b : a;
  const u64 w3 = in0 ? 0 : in1 ? c : b, w4 = in0 || in1 ? 0 : c;
  // Pixel 160 is pixel 0.
  return {{w0 | w2 >> 32 | w3 << 32, w1 | w3 >> 32 | w4 << 32, w2 & 0xFFFFFFFF}};
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

}  // namespace jaxrl
