// Rows of 160 pixels: blend a colour into those that a mask of 160 bits names.
//
// With AVX-512 a row is three registers and a mask is what the instruction takes; elsewhere eight
// bits become eight bytes by a multiplication, which any compiler turns into vector code.
#pragma once

#include <cstring>

#include "base.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#endif

namespace jaxrl {

#if defined(__AVX512BW__) && defined(__AVX512VL__)

struct PixelRow {
  __m512i first, second;
  __m256i third;
};

JAXRL_INLINE PixelRow filled(u8 colour) {
  const __m512i all = _mm512_set1_epi8((char)colour);
  return {all, all, _mm256_set1_epi8((char)colour)};
}

JAXRL_INLINE void blend(PixelRow& row, const u64* mask, u8 colour) {
  const __m512i all = _mm512_set1_epi8((char)colour);
  row.first = _mm512_mask_mov_epi8(row.first, mask[0], all);
  row.second = _mm512_mask_mov_epi8(row.second, mask[1], all);
  row.third =
      _mm256_mask_mov_epi8(row.third, (__mmask32)mask[2], _mm256_set1_epi8((char)colour));
}

JAXRL_INLINE void store(u8* pixels, const PixelRow& row, const u64* mask) {
  _mm512_mask_storeu_epi8(pixels, mask[0], row.first);
  _mm512_mask_storeu_epi8(pixels + 64, mask[1], row.second);
  _mm256_mask_storeu_epi8(pixels + 128, (__mmask32)mask[2], row.third);
}

#else

struct PixelRow {
  u64 eight[20];
};

// Returns eight bytes, 0xFF where the bit is set.
JAXRL_INLINE u64 spread(u8 bits) {
  const u64 each = (bits * 0x0101010101010101ull) & 0x8040201008040201ull;
  return (((each + 0x7F7F7F7F7F7F7F7Full) | each) & 0x8080808080808080ull) / 0x80 * 0xFF;
}

JAXRL_INLINE PixelRow filled(u8 colour) {
  PixelRow row;
  memset(&row, colour, sizeof row);
  return row;
}

JAXRL_INLINE void blend(PixelRow& row, const u64* mask, u8 colour) {
  const u64 all = colour * 0x0101010101010101ull;
  for (int part = 0; part < 20; part++) {
    const u8 bits = (u8)(mask[part / 8] >> part % 8 * 8);
    if (!bits) continue;
    const u64 taken = spread(bits);
    row.eight[part] = (row.eight[part] & ~taken) | (all & taken);
  }
}

JAXRL_INLINE void store(u8* pixels, const PixelRow& row, const u64* mask) {
  for (int part = 0; part < 20; part++) {
    const u8 bits = (u8)(mask[part / 8] >> part % 8 * 8);
    if (!bits) continue;
    u64 kept;
    memcpy(&kept, pixels + 8 * part, 8);
    const u64 taken = spread(bits);
    kept = (kept & ~taken) | (row.eight[part] & taken);
    memcpy(pixels + 8 * part, &kept, 8);
  }
}

#endif

}  // namespace jaxrl
