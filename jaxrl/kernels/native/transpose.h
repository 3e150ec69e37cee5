// Turns lines of floats into columns, a square of vectors at a time.
#pragma once

#include <utility>

#include "lanes.h"

namespace jaxrl {

// Of two lines whose numbers differ in the bit `bit`: swaps the second half of each pair of `bit`
// columns of the first with the first half of those of the second.
template <int bit, int... lane>
void swap_halves(Lanes& a, Lanes& b, std::integer_sequence<int, lane...>) {
  const Lanes upper = shuffled<(lane & bit ? kLanes + lane - bit : lane)...>(a, b);
  b = shuffled<(lane & bit ? kLanes + lane : lane + bit)...>(a, b);
  a = upper;
}

template <int bit>
void swap_quarters(Lanes* lines) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; i++)
    if (!(i & bit))
      swap_halves<bit>(lines[i], lines[i + bit], std::make_integer_sequence<int, kLanes>{});
  if constexpr (bit > 1) swap_quarters<bit / 2>(lines);
}

// to[j][i] = from[i][j]; both sizes are a multiple of kLanes.
inline void transpose(int lines, int columns, const float* from, long from_step, float* to,
                      long to_step) {
  for (int i = 0; i < lines; i += kLanes)
    for (int j = 0; j < columns; j += kLanes) {
      Lanes square[kLanes];
#pragma GCC unroll 16
      for (int k = 0; k < kLanes; k++) square[k] = load(from + (i + k) * from_step + j);
      swap_quarters<kLanes / 2>(square);
#pragma GCC unroll 16
      for (int k = 0; k < kLanes; k++) store(to + (j + k) * to_step + i, square[k]);
    }
}

}  // namespace jaxrl
