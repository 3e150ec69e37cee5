// Vectors of floats as wide as the processor's registers, by the compiler's own vector types.
#pragma once

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace jaxrl {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX__)
constexpr int kLanes = 8, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRegisters = 32;
#else
constexpr int kLanes = 4, kRegisters = 16;
#endif

typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef float AnywhereLanes __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

// The lanes of two vectors at these places, those of the second after those of the first. g++ has
// Clang's function from version 12 on.
template <int... lane>
Lanes shuffled(Lanes a, Lanes b) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, lane...);
#else
  typedef int32_t Places __attribute__((vector_size(4 * kLanes)));
  return __builtin_shuffle(a, b, Places{lane...});
#endif
}

inline Lanes load(const float* from) { return *reinterpret_cast<const AnywhereLanes*>(from); }

// Loads into a register that stays: GCC would rather load again for each use, where there are few.
inline Lanes load_once(const float* from) {
  Lanes lanes = load(from);
#if defined(__AVX512F__)
  asm("" : "+v"(lanes));
#elif defined(__x86_64__)
  asm("" : "+x"(lanes));
#elif defined(__aarch64__)
  asm("" : "+w"(lanes));
#endif
  return lanes;
}

typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));

// A product of numbers of float32.
struct Singles {
  static constexpr int kPer = 1;  // numbers of a factor in four bytes

  static Lanes add(Lanes sum, float value, Lanes others) { return sum + value * others; }
};

// A product of numbers of bfloat16, whose sums are float32: pairs lie in the bits of a float, the
// first below the second.
struct Pairs {
  static constexpr int kPer = 2;

#if defined(__AVX512BF16__)
  static constexpr bool kFast = true;

  static Lanes add(Lanes sum, float value, Lanes others) {
    return _mm512_dpbf16_ps(sum, (__m512bh)others, (__m512bh)_mm512_set1_ps(value));
  }
#else
  static constexpr bool kFast = false;

  static Lanes add(Lanes sum, float value, Lanes others) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return sum + first((Bits)others) * first(Bits{} + bits) +
           second((Bits)others) * second(Bits{} + bits);
  }

 private:
  static Lanes first(Bits pairs) { return (Lanes)(pairs << 16); }
  static Lanes second(Bits pairs) { return (Lanes)(pairs & 0xffff0000); }
#endif
};

inline void store(float* to, Lanes lanes) { *reinterpret_cast<AnywhereLanes*>(to) = lanes; }

// The first `count` floats from `from` on, others 0; `count` may be more than there are lanes.
inline Lanes load_some(const float* from, long count) {
  if (count >= kLanes) return load(from);
  Lanes lanes{};
  for (long i = 0; i < count; i++) lanes[i] = from[i];
  return lanes;
}

inline void store_some(float* to, long count, Lanes lanes) {
  if (count >= kLanes) return store(to, lanes);
  for (long i = 0; i < count; i++) to[i] = lanes[i];
}

// Copies the `count` floats that read(i, left) gives, kLanes at a time.
template <typename Read>
void copy(long count, Read read, float* to) {
  long i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, read(i, kLanes));
  if (i < count) store_some(to + i, count - i, read(i, count - i));
}

// The lanes where `of` is above 0, others 0:
// also where `of` is not a number, as XLA's gradient has it.
inline Lanes where_positive(Lanes of, Lanes lanes) { return of > Lanes{} ? lanes : Lanes{}; }

// max(x, 0), where what is not a number stays so.
inline Lanes rectified(Lanes x) { return x < Lanes{} ? Lanes{} : x; }

}  // namespace jaxrl
