// Numbers of float32 as pairs of bfloat16, each pair in the bits of a float.
#pragma once

#include <cstring>

#include "lanes.h"

namespace jaxrl {

typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));

// The nearest numbers of bfloat16, of two equally near the even one; what is not a number stays so.
inline Bits halves(Lanes x) {
  const Bits bits = (Bits)x;
  return x != x ? Bits{} + 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Calls work(i, lanes) for `count` floats from x on; of the last the lanes that are not there are
// 0.
template <typename Work>
void each_lanes(long count, const float* x, Work work) {
  long i = 0;
  for (; i + kLanes <= count; i += kLanes) work(i, kLanes, load(x + i));
  if (i == count) return;
  float rest[kLanes] = {};
  for (long k = i; k < count; k++) rest[k - i] = x[k];
  work(i, static_cast<int>(count - i), load(rest));
}

// Pairs each of `count` numbers, which are even, with the next one.
inline void pair_neighbors(long count, const float* x, float* pairs) {
  each_lanes(count, x, [&](long i, int lanes, Lanes values) {
    const Halves some = __builtin_convertvector(halves(values), Halves);
    memcpy(reinterpret_cast<char*>(pairs) + 2 * i, &some, 2 * lanes);
  });
}

// Pairs each number of a line with that of the second line, or with 0 where there is none.
inline void pair_lines(long count, const float* line, const float* second, float* pairs) {
  each_lanes(count, line, [&](long i, int lanes, Lanes values) {
    Lanes others{};
    if (second && lanes == kLanes) others = load(second + i);
    if (second && lanes < kLanes)
      for (int k = 0; k < lanes; k++) others[k] = second[i + k];
    const Lanes some = (Lanes)(halves(values) | halves(others) << 16);
    if (lanes == kLanes)
      store(pairs + i, some);
    else
      for (int k = 0; k < lanes; k++) pairs[i + k] = some[k];
  });
}

}  // namespace jaxrl
