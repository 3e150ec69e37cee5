// Numbers of float32 as pairs of bfloat16, each pair in the bits of a float.
//
// Numbers become the nearest ones of bfloat16, of two equally near the even one; what is not a
// number stays so. The processor's own instructions make subnormal ones 0, as its products do.
#pragma once

#include <algorithm>
#include <cstring>

#include "lanes.h"

namespace jaxrl {

#if defined(__AVX512BF16__)

// Each number of a vector with the next one; those of the second vector come last.
inline Lanes neighbors_of(Lanes x, Lanes second) {
  return (Lanes)_mm512_cvtne2ps_pbh((__m512)second, (__m512)x);
}

// Each number with that of the second vector in its place.
inline Lanes paired(Lanes x, Lanes second) {
  constexpr auto place = [](int i) { return static_cast<uint16_t>(i / 2 + i % 2 * kLanes); };
  typedef uint16_t Places __attribute__((vector_size(64)));
  Places places;
  for (int i = 0; i < 2 * kLanes; i++) places[i] = place(i);
  return (Lanes)_mm512_permutexvar_epi16((__m512i)places, (__m512i)neighbors_of(x, second));
}

#else

inline Bits halves(Lanes x) {
  const Bits bits = (Bits)x;
  return x != x ? Bits{} + 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline Lanes neighbors_of(Lanes x, Lanes second) {
  typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
  const Halves some[] = {__builtin_convertvector(halves(x), Halves),
                         __builtin_convertvector(halves(second), Halves)};
  Lanes pairs;
  memcpy(&pairs, some, sizeof pairs);
  return pairs;
}

inline Lanes paired(Lanes x, Lanes second) { return (Lanes)(halves(x) | halves(second) << 16); }

#endif

// Pairs each of `count` numbers, which are even, with the next one; read(i, left) gives those from
// i on, 0 beyond the `left` ones that are left.
template <typename Read>
void pair_neighbors(long count, Read read, float* pairs) {
  long i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes)
    store(pairs + i / 2, neighbors_of(read(i, kLanes), read(i + kLanes, kLanes)));
  if (i == count) return;
  const long first = std::min<long>(count - i, kLanes);
  store_some(pairs + i / 2, (count - i) / 2,
             neighbors_of(read(i, first), read(i + first, count - i - first)));
}

// Pairs each of `count` numbers with the second one in its place.
template <typename Read, typename Second>
void pair_lines(long count, Read read, Second second, float* pairs) {
  long i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(pairs + i, paired(read(i, kLanes), second(i, kLanes)));
  if (i < count) store_some(pairs + i, count - i, paired(read(i, count - i), second(i, count - i)));
}

// The numbers of a line for these, or zeros where there is none.
inline auto numbers_of(const float* line) {
  return [=](long i, long left) { return line ? load_some(line + i, left) : Lanes{}; };
}

}  // namespace jaxrl
