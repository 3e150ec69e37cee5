// Generators as plain data: they lie in environments.
#pragma once

#include "base/types.h"

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

// mt19937 (Matsumoto and Nishimura 1998), from which ALE draws.
struct Twister {
  static constexpr u32 kWords = 624;
  u32 words[kWords];
  u32 next;  // word to draw
};

inline void seed_twister(Twister& twister, u32 seed) {
  twister.words[0] = seed;
  for (u32 at = 1; at < Twister::kWords; at++) {
    const u32 before = twister.words[at - 1];
    twister.words[at] = 1812433253u * (before ^ before >> 30) + at;
  }
  twister.next = Twister::kWords;
}

inline void twist(Twister& twister) {
  constexpr u32 kAhead = 397;
  u32* words = twister.words;
  for (u32 at = 0; at < Twister::kWords; at++) {
    const u32 both = (words[at] & 0x80000000u) | (words[(at + 1) % Twister::kWords] & 0x7FFFFFFFu);
    words[at] = words[(at + kAhead) % Twister::kWords] ^ both >> 1 ^ (both & 1 ? 0x9908B0DFu : 0);
  }
  twister.next = 0;
}

inline u32 next_random(Twister& twister) {
  if (twister.next == Twister::kWords) twist(twister);
  u32 word = twister.words[twister.next++];
  word ^= word >> 11;
  word ^= word << 7 & 0x9D2C5680u;
  word ^= word << 15 & 0xEFC60000u;
  return word ^ word >> 18;
}

// Draws a number below `end` without bias (Lemire 2019), as GCC's uniform_int_distribution does.
inline u32 random_below(Twister& twister, u32 end) {
  u64 product = (u64)next_random(twister) * end;
  const u32 least = (0 - end) % end;
  while ((u32)product < least) product = (u64)next_random(twister) * end;
  return (u32)(product >> 32);
}

}  // namespace jaxrl
