// E0: eight slices of 1K. $1FE0-$1FE7 choose what is seen at $1000, $1FE8-$1FEF at $1400,
// $1FF0-$1FF7 at $1800; at $1C00 is the last one.
#pragma once

#include "mappers/mapper.h"

namespace jaxrl::e0 {

constexpr u32 kSlice = 1024, kLast = 7;
constexpr u32 kHotSpots = 0xFE0, kEnd = 0xFF8;

// Games access a hot spot by its address.
inline bool fits(const u8* image, u64 size) {
  constexpr char kAccesses[][4] = {"\x8D\xE0\x1F", "\x8D\xE0\x5F", "\x8D\xE9\xFF",
                                   "\xAD\xE9\xFF", "\xAD\xED\xFF", "\xAD\xF3\xBF"};
  return size == 8192 && contains(image, size, kAccesses);
}

inline u32 seen(const CartridgeState& state, u32 address) {
  const u32 place = address % kImage / kSlice;
  return place < kMostSwitched ? state.slices[place] : kLast;
}

inline bool touch(CartridgeState& state, u32 offset) {
  if (offset < kHotSpots || offset >= kEnd) return false;
  u8& slice = state.slices[(offset - kHotSpots) / 8];
  const u8 before = slice;
  slice = offset & 7;
  return slice != before;
}

inline void reset(CartridgeState& state) {
  state.bank = 0;
  for (u32 place = 0; place < kMostSwitched; place++) state.slices[place] = (u8)(4 + place);
}

inline bool is_possible(const CartridgeState& state) {
  for (u8 slice : state.slices)
    if (slice > kLast) return false;
  return true;
}

}  // namespace jaxrl::e0

namespace jaxrl {

inline constexpr Mapper kE0 = {
    .banks = 2,
    .piece = e0::kSlice,
    .end = e0::kHotSpots,
    .fixed_from = kMostSwitched * e0::kSlice,
    .fits = e0::fits,
    .seen = e0::seen,
    .touch = e0::touch,
    .reset = e0::reset,
    .is_possible = e0::is_possible,
};

}  // namespace jaxrl
