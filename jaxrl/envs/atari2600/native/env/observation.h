// What the learner sees: the maximum of two frames, averaged over areas to the size of a frame.
//
// The average is OpenCV's INTER_AREA, which EnvPool takes, bit for bit: it adds rows and columns in
// single precision, so a pixel that falls halfway between two grays is rounded by the order of
// those additions. For 84 x 84 the sums are whole numbers (pixels weighted by 200ths), and only the
// halves are added as OpenCV does. Compile with -ffp-contract=off.
#pragma once

#include "base/types.h"
#if JAXRL_HOST
#include <cmath>
#include <vector>
#endif
#if defined(__AVX2__) && !JAXRL_GPU
#include <immintrin.h>
#endif

namespace jaxrl {

constexpr i32 kMostTaps = 17;  // 250 lines make at least 16

// The pixels of a row or column that an averaged pixel covers, and their shares.
struct Taps {
  i32 first, count;
  float share[kMostTaps];
};

#if JAXRL_HOST
inline std::vector<Taps> taps_of(i32 from, i32 to) {
  std::vector<Taps> all;
  const double scale = (double)from / to;
  for (i32 pixel = 0; pixel < to; pixel++) {
    const double begin = pixel * scale, end = begin + scale;
    const double width = scale < from - begin ? scale : from - begin;
    i32 last = (i32)std::floor(end), first = (i32)std::ceil(begin);
    if (last > from - 1) last = from - 1;
    if (first > last) first = last;
    Taps taps{first, 0, {}};
    const auto add = [&](double share) {
      if (taps.count < kMostTaps) taps.share[taps.count++] = (float)share;
    };
    if (first - begin > 1e-3) {
      taps.first = first - 1;
      add((first - begin) / width);
    }
    for (i32 whole = first; whole < last; whole++) add(1.0 / width);
    if (end - last > 1e-3) {
      const double share = end - last < 1.0 ? end - last : 1.0;
      add((share < width ? share : width) / width);
    }
    all.push_back(taps);
  }
  return all;
}
#endif

#if defined(__AVX2__) && !JAXRL_GPU
// Eight pixels of a row: each four lie under 16 bytes of the screen, and a shuffle takes each tap's
// byte into the lane of its pixel. Shares of taps that a pixel lacks are 0, and adding 0 changes no
// sum.
struct Eight {
  static constexpr i32 kTaps = 5;  // of 43 columns; fewer columns are not cut so
  i32 offset[2];
  alignas(32) u8 shuffle[kTaps][32];
  alignas(32) float share[kTaps][8];
};

// Of columns; none where four pixels do not lie under 16 bytes.
inline std::vector<Eight> eights_of(const std::vector<Taps>& columns, i32& most) {
  std::vector<Eight> all;
  most = 0;
  for (const Taps& taps : columns) most = taps.count > most ? taps.count : most;
  const i32 width = (i32)columns.size();
  if (most > Eight::kTaps) return all;
  for (i32 start = 0; start < width; start += 8) {
    Eight eight{};
    memset(eight.shuffle, 0x80, sizeof eight.shuffle);
    for (i32 half = 0; half < 2; half++) {
      const i32 begin = start + 4 * half < width ? columns[(u32)(start + 4 * half)].first : 0;
      const i32 offset = begin < kScreenWidth - 16 ? begin : kScreenWidth - 16;
      eight.offset[half] = offset;
      for (i32 lane = 0; lane < 4 && start + 4 * half + lane < width; lane++) {
        const Taps& taps = columns[(u32)(start + 4 * half + lane)];
        for (i32 tap = 0; tap < taps.count; tap++) {
          if (taps.first + tap - offset > 15) return {};
          eight.shuffle[tap][16 * half + 4 * lane] = (u8)(taps.first + tap - offset);
          eight.share[tap][4 * half + lane] = taps.share[tap];
        }
      }
    }
    all.push_back(eight);
  }
  return all;
}
#endif

// Averages frames of `screen_height` x 160 pixels to `height` x `width`, neither of them larger.
struct Averager {
  i32 height, width;
#if JAXRL_GPU
  const Taps *rows, *columns;
#else
  std::vector<Taps> rows, columns;
#endif
  bool halves;  // both sides are halved
  bool square;  // 210 x 160 to 84 x 84
#if defined(__AVX2__) && !JAXRL_GPU
  i32 most_taps = 0;
  std::vector<Eight> eights;
#endif
  i32 down, across;  // pixels that make one, where both are whole numbers; else 0

#if !JAXRL_GPU
  Averager(i32 screen_height, i32 height, i32 width)
      : height(height),
        width(width),
        rows(taps_of(screen_height, height)),
        columns(taps_of(kScreenWidth, width)),
        halves(2 * height == screen_height && 2 * width == kScreenWidth),
        square(screen_height == 210 && height == 84 && width == 84),
        down(screen_height / height),
        across(kScreenWidth / width) {
    if (down * height != screen_height || across * width != kScreenWidth) down = across = 0;
#if defined(__AVX2__)
    eights = eights_of(columns, most_taps);
#endif
  }
#endif

  u8 pixel(const u8* a, const u8* b, i32 y, i32 x) const {
    const Taps& down = rows[(u32)y];
    const Taps& across = columns[(u32)x];
    float sum = 0;
    for (i32 row = 0; row < down.count; row++) {
      const i32 start = (down.first + row) * kScreenWidth + across.first;
      float part = 0;
      for (i32 column = 0; column < across.count; column++) {
        const u8 first = a[start + column], second = b[start + column];
        part += (float)(first > second ? first : second) * across.share[column];
      }
      sum += down.share[row] * part;
    }
    return (u8)to_nearest(sum);
  }
};

inline void average_halves(i32 height, const u8* a, const u8* b, u8* out) {
  const auto largest = [&](i32 at) { return (u32)(a[at] > b[at] ? a[at] : b[at]); };
  for (i32 y = 0; y < height; y++)
    for (i32 x = 0; x < kScreenWidth / 2; x++) {
      const i32 at = 2 * y * kScreenWidth + 2 * x;
      const u32 sum = largest(at) + largest(at + 1) + largest(at + kScreenWidth) +
                      largest(at + kScreenWidth + 1);
      *out++ = (u8)((sum + 2) >> 2);
    }
}

// Averages blocks of whole pixels, which OpenCV adds as whole numbers.
inline void average_blocks(const Averager& averager, const u8* a, const u8* b, u8* out) {
  const i32 down = averager.down, across = averager.across;
  const float share = 1.0f / (float)(down * across);
  for (i32 y = 0; y < averager.height; y++)
    for (i32 x = 0; x < averager.width; x++) {
      i32 sum = 0;
      for (i32 row = 0; row < down; row++) {
        const i32 start = (down * y + row) * kScreenWidth + across * x;
        for (i32 at = start; at < start + across; at++) sum += a[at] > b[at] ? a[at] : b[at];
      }
      *out++ = (u8)to_nearest((float)sum * share);
    }
}

inline void average_any(const Averager& averager, const u8* a, const u8* b, u8* out) {
  if (averager.halves) return average_halves(averager.height, a, b, out);
  if (averager.down) return average_blocks(averager, a, b, out);
  for (i32 y = 0; y < averager.height; y++)
    for (i32 x = 0; x < averager.width; x++) *out++ = averager.pixel(a, b, y, x);
}

#if defined(__AVX2__) && !JAXRL_GPU

// 84 x 84 of 210 x 160: five rows make two, forty columns twenty-one; a pixel is the sum of at most
// 3 x 3 pixels, weighted by 200ths.
struct Square84 {
  static constexpr i32 kSize = 84, kBlocks = 11;  // of 8 pixels, the last one half empty
  alignas(32) u8 shuffle[kBlocks][2][32];
  alignas(32) i16 weight[kBlocks][2][16];
  i32 offset[kBlocks][4];

  constexpr Square84() : shuffle(), weight(), offset() {
    for (i32 block = 0; block < kBlocks; block++)
      for (i32 half = 0; half < 2; half++)
        for (i32 lane = 0; lane < 2; lane++) {
          // A lane of 8 sums of columns makes two pixels of 4 terms each.
          const i32 pixel0 = block * 8 + half * 4 + lane * 2;
          const i32 clamped = pixel0 < kSize - 1 ? pixel0 : kSize - 1;
          const i32 base = 40 * clamped / 21 < 152 ? 40 * clamped / 21 : 152;
          offset[block][half * 2 + lane] = base;
          for (i32 which = 0; which < 2; which++) {
            const i32 pixel = pixel0 + which < kSize - 1 ? pixel0 + which : kSize - 1;
            for (i32 term = 0; term < 4; term++) {
              const i32 column = 40 * pixel / 21 + term;
              const i32 low = 40 * pixel > 21 * column ? 40 * pixel : 21 * column;
              const i32 high =
                  40 * pixel + 40 < 21 * column + 21 ? 40 * pixel + 40 : 21 * column + 21;
              i32 from = column - base, share = high - low;
              if (from > 7 || column >= kScreenWidth || share < 0) from = share = 0;
              u8* bytes = shuffle[block][half] + lane * 16 + which * 8 + term * 2;
              bytes[0] = (u8)(2 * from);
              bytes[1] = (u8)(2 * from + 1);
              weight[block][half][lane * 8 + which * 4 + term] = (i16)share;
            }
          }
        }
  }
};
inline constexpr Square84 kSquare84{};

// Averages one row of column sums, each of which stands for 5 half pixels. Pixels that fall halfway
// are given to `halfway(x)`.
template <typename Halfway>
JAXRL_INLINE void average_row84(const u16* sums, u8* out, Halfway halfway) {
  const Square84& square = kSquare84;
  for (i32 block = 0; block < Square84::kBlocks; block++) {
    __m256i parts[2];
    for (i32 half = 0; half < 2; half++) {
      const __m128i* low = (const __m128i*)(sums + square.offset[block][half * 2]);
      const __m128i* high = (const __m128i*)(sums + square.offset[block][half * 2 + 1]);
      const __m256i both = _mm256_loadu2_m128i(high, low);
      const __m256i terms =
          _mm256_shuffle_epi8(both, _mm256_load_si256((const __m256i*)square.shuffle[block][half]));
      parts[half] =
          _mm256_madd_epi16(terms, _mm256_load_si256((const __m256i*)square.weight[block][half]));
    }
    const __m256i total =
        _mm256_add_epi32(_mm256_hadd_epi32(parts[0], parts[1]), _mm256_set1_epi32(100));
    // A division by 200: by 8, then by 25 as a multiplication.
    __m256i quotient = _mm256_srli_epi32(
        _mm256_mullo_epi32(_mm256_srli_epi32(total, 3), _mm256_set1_epi32(41944)), 20);
    const __m256i whole = _mm256_mullo_epi32(quotient, _mm256_set1_epi32(200));
    const u32 ties = (u32)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(whole, total)));
    // The lanes hold pixels 0 1 4 5 and 2 3 6 7.
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    quotient = _mm256_permutevar8x32_epi32(quotient, order);
    const __m256i words = _mm256_packus_epi32(quotient, quotient);
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const u32 first = (u32)_mm256_extract_epi32(bytes, 0),
              second = (u32)_mm256_extract_epi32(bytes, 4);
    const i32 left = Square84::kSize - 8 * block;
    const u64 eight = first | (u64)second << 32;
    memcpy(out + 8 * block, &eight, left < 8 ? (size_t)left : 8);
    constexpr u8 kPlace[8] = {0, 1, 4, 5, 2, 3, 6, 7};
    for (u32 rest = ties; rest; rest &= rest - 1) {
      const i32 x = 8 * block + kPlace[__builtin_ctz(rest)];
      if (x < Square84::kSize) halfway(x);
    }
  }
}

inline void average84(const Averager& averager, const u8* a, const u8* b, u8* out) {
  alignas(32) u16 upper[kScreenWidth + 16], lower[kScreenWidth + 16];
  for (i32 pair = 0; pair < 42; pair++) {
    const i32 start = pair * 5 * kScreenWidth;
    for (i32 x = 0; x < kScreenWidth; x++) {
      u16 rows[5];
      for (i32 row = 0; row < 5; row++) {
        const u8 first = a[start + row * kScreenWidth + x],
                 second = b[start + row * kScreenWidth + x];
        rows[row] = first > second ? first : second;
      }
      upper[x] = (u16)(2 * (rows[0] + rows[1]) + rows[2]);
      lower[x] = (u16)(rows[2] + 2 * (rows[3] + rows[4]));
    }
    for (i32 half = 0; half < 2; half++) {
      const i32 y = 2 * pair + half;
      u8* row = out + y * Square84::kSize;
      average_row84(half ? lower : upper, row, [&](i32 x) { row[x] = averager.pixel(a, b, y, x); });
    }
  }
}

inline void take_larger(const u8* a, const u8* b, u8* line) {
  for (i32 x = 0; x < kScreenWidth; x += 32) {
    const __m256i first = _mm256_loadu_si256((const __m256i*)(a + x));
    const __m256i second = _mm256_loadu_si256((const __m256i*)(b + x));
    _mm256_store_si256((__m256i*)(line + x), _mm256_max_epu8(first, second));
  }
}

// The part that a line of the screen has in each pixel.
template <i32 kTaps>
inline void sum_columns(const std::vector<Eight>& eights, const u8* line, float* parts) {
  for (const Eight& eight : eights) {
    const __m128i* low = (const __m128i*)(line + eight.offset[0]);
    const __m128i* high = (const __m128i*)(line + eight.offset[1]);
    const __m256i bytes = _mm256_loadu2_m128i(high, low);
    __m256 sum = _mm256_setzero_ps();
    for (i32 tap = 0; tap < kTaps; tap++) {
      const __m256i places = _mm256_load_si256((const __m256i*)eight.shuffle[tap]);
      const __m256 values = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, places));
      sum = _mm256_add_ps(sum, _mm256_mul_ps(values, _mm256_load_ps(eight.share[tap])));
    }
    _mm256_store_ps(parts, sum);
    parts += 8;
  }
}

inline void add_share(i32 width, float share, const float* parts, float* sums) {
  for (i32 x = 0; x < width; x += 8) {
    const __m256 added = _mm256_mul_ps(_mm256_set1_ps(share), _mm256_load_ps(parts + x));
    _mm256_store_ps(sums + x, _mm256_add_ps(_mm256_load_ps(sums + x), added));
  }
}

inline void round_sums(i32 width, const float* sums, u8* out) {
  for (i32 x = 0; x < width; x += 8) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_load_ps(sums + x));
    const __m128i low = _mm256_castsi256_si128(whole), high = _mm256_extracti128_si256(whole, 1);
    const __m128i words = _mm_packus_epi32(low, high);
    const __m128i bytes = _mm_packus_epi16(words, words);
    const i32 left = width - x;
    memcpy(out + x, &bytes, left < 8 ? (size_t)left : 8);
  }
}

// Any size of at least 43 columns, eight pixels at a time,
// with the sums of `Averager::pixel` in their order.
template <i32 kTaps>
inline void average_eights(const Averager& averager, const u8* a, const u8* b, u8* out) {
  alignas(32) u8 line[kScreenWidth];
  alignas(32) float parts[2][kScreenWidth + 8];  // of the newest two lines: pixels may share one
  i32 newest = -1;
  for (const Taps& down : averager.rows) {
    alignas(32) float sums[kScreenWidth + 8] = {};
    for (i32 tap = 0; tap < down.count; tap++) {
      const i32 row = down.first + tap;
      if (row > newest) {
        take_larger(a + row * kScreenWidth, b + row * kScreenWidth, line);
        sum_columns<kTaps>(averager.eights, line, parts[row & 1]);
        newest = row;
      }
      add_share(averager.width, down.share[tap], parts[row & 1], sums);
    }
    round_sums(averager.width, sums, out);
    out += averager.width;
  }
}

#endif

// Writes the observation of the maximum of two frames.
inline void observe(const Averager& averager, const u8* a, const u8* b, u8* out) {
#if defined(__AVX2__) && !JAXRL_GPU
  if (averager.square) return average84(averager, a, b, out);
  if (!averager.eights.empty() && !averager.halves && !averager.down) {
    if (averager.most_taps <= 4) return average_eights<4>(averager, a, b, out);
    return average_eights<Eight::kTaps>(averager, a, b, out);
  }
#endif
  average_any(averager, a, b, out);
}

}  // namespace jaxrl
