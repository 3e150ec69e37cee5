// Rows of 160 pixels that half a warp draws, as chips/tia/blend.h has them for one thread.
#pragma once

#include "gpu/world.h"

namespace jaxrl {

// A lane has every 16th pixel.
constexpr i32 kSharers = kLanes / 2;

struct PixelShare {
  u8 pixel[kScreenWidth / kSharers];
};

JAXRL_INLINE i32 own_share() { return (i32)threadIdx.x % kSharers; }

JAXRL_INLINE bool is_in(const u64* mask, i32 lane, i32 which) {
  const i32 first = which * kSharers;
  return mask[first / 64] >> lane >> first % 64 & 1;
}

JAXRL_INLINE void fill(PixelShare& row, u8 color) {
  for (i32 which = 0; which < kScreenWidth / kSharers; which++) row.pixel[which] = color;
}

JAXRL_INLINE void blend(PixelShare& row, const u64* mask, u8 color) {
  const i32 lane = own_share();
#pragma unroll
  for (i32 which = 0; which < kScreenWidth / kSharers; which++)
    if (is_in(mask, lane, which)) row.pixel[which] = color;
}

JAXRL_INLINE void store(u8* pixels, const PixelShare& row, const u64* mask) {
  const i32 lane = own_share();
#pragma unroll
  for (i32 which = 0; which < kScreenWidth / kSharers; which++)
    if (is_in(mask, lane, which)) pixels[lane + which * kSharers] = row.pixel[which];
}

template <>
struct Pixels<kShare> {
  using Row = PixelShare;
};

}  // namespace jaxrl
