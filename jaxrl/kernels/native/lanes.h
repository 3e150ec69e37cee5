// Vectors of floats as wide as the processor's registers, by the compiler's own vector types.
#pragma once

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

inline void store(float* to, Lanes lanes) { *reinterpret_cast<AnywhereLanes*>(to) = lanes; }

// The lanes where `of` is above 0, others 0:
// also where `of` is not a number, as XLA's gradient has it.
inline Lanes where_positive(Lanes of, Lanes lanes) { return of > Lanes{} ? lanes : Lanes{}; }

// max(x, 0), where what is not a number stays so.
inline Lanes rectified(Lanes x) { return x < Lanes{} ? Lanes{} : x; }

}  // namespace jaxrl
