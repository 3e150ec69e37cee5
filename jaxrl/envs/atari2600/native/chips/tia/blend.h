// Rows of 160 pixels: blend a color into those that a mask of 160 bits names.
//
// With AVX-512 a row is three registers and a mask is what the instruction takes; with AVX2 it is
// five, and 32 bits become 32 bytes; elsewhere eight bits become eight bytes by a multiplication.
#pragma once

#include "base/types.h"

#if defined(__AVX2__) && !JAXRL_GPU
#include <immintrin.h>
#endif

namespace jaxrl {

#if defined(__AVX512BW__) && defined(__AVX512VL__) && !JAXRL_GPU

struct PixelRow {
  __m512i first, second;
  __m256i third;
};

JAXRL_INLINE void fill(PixelRow& row, u8 color) {
  const __m512i all = _mm512_set1_epi8((char)color);
  row = {all, all, _mm256_set1_epi8((char)color)};
}

JAXRL_INLINE void blend(PixelRow& row, const u64* mask, u8 color) {
  const __m512i all = _mm512_set1_epi8((char)color);
  row.first = _mm512_mask_mov_epi8(row.first, mask[0], all);
  row.second = _mm512_mask_mov_epi8(row.second, mask[1], all);
  row.third = _mm256_mask_mov_epi8(row.third, (__mmask32)mask[2], _mm256_set1_epi8((char)color));
}

JAXRL_INLINE void store(u8* pixels, const PixelRow& row, const u64* mask) {
  _mm512_mask_storeu_epi8(pixels, mask[0], row.first);
  _mm512_mask_storeu_epi8(pixels + 64, mask[1], row.second);
  _mm256_mask_storeu_epi8(pixels + 128, (__mmask32)mask[2], row.third);
}

#elif defined(__AVX2__) && !JAXRL_GPU

struct PixelRow {
  __m256i part[5];
};

JAXRL_INLINE void fill(PixelRow& row, u8 color) {
  const __m256i all = _mm256_set1_epi8((char)color);
  row = {{all, all, all, all, all}};
}

// Returns 32 bytes, 0xFF where the bit is set.
JAXRL_INLINE __m256i spread(u32 bits) {
  const __m256i byte_of_pixel =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of_pixel = _mm256_set1_epi64x((long long)0x8040201008040201ull);
  const __m256i each = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), byte_of_pixel);
  return _mm256_cmpeq_epi8(_mm256_and_si256(each, bit_of_pixel), bit_of_pixel);
}

JAXRL_INLINE u32 bits_of(const u64* mask, int part) {
  return (u32)(mask[part / 2] >> part % 2 * 32);
}

JAXRL_INLINE void blend(PixelRow& row, const u64* mask, u8 color) {
  const __m256i all = _mm256_set1_epi8((char)color);
  for (int part = 0; part < 5; part++) {
    const u32 bits = bits_of(mask, part);
    if (bits) row.part[part] = _mm256_blendv_epi8(row.part[part], all, spread(bits));
  }
}

JAXRL_INLINE void store(u8* pixels, const PixelRow& row, const u64* mask) {
  for (int part = 0; part < 5; part++) {
    __m256i* place = (__m256i*)pixels + part;
    const u32 bits = bits_of(mask, part);
    if (!bits) continue;
    const __m256i kept = _mm256_loadu_si256(place);
    _mm256_storeu_si256(place, _mm256_blendv_epi8(kept, row.part[part], spread(bits)));
  }
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

JAXRL_INLINE void fill(PixelRow& row, u8 color) { memset(&row, color, sizeof row); }

JAXRL_INLINE void blend(PixelRow& row, const u64* mask, u8 color) {
  const u64 all = color * 0x0101010101010101ull;
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
