// A generator whose state is one number: it lies in every environment.
#pragma once

#include "base.h"

namespace jaxrl {

// splitmix64 (Steele 2014).
inline u64 next_random(u64& state) {
  u64 z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

inline u32 random_below(u64& state, u32 end) {
  return (u32)((next_random(state) >> 32) * end >> 32);
}

inline bool random_chance(u64& state, float probability) {
  return (double)(next_random(state) >> 11) * 0x1p-53 < probability;
}

}  // namespace jaxrl
