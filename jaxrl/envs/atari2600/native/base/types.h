// Integer types and hints to the compiler that every chip uses.
//
// The same headers are compiled for CPUs, and by NVRTC for GPUs. `JAXRL_GPU` is 1 where the structs
// are those of a GPU: there no cartridge is decoded, and logs lie elsewhere. `JAXRL_HOST` is 1
// where the compiler is the machine's, which has the standard library; both are 1 in what talks to
// a GPU.
#pragma once

#if defined(__CUDACC_RTC__)
#define JAXRL_HOST 0
#define JAXRL_GPU 1
#else
#define JAXRL_HOST 1
#include <cstdint>
#include <cstring>
#endif
#if !defined(JAXRL_GPU)
#define JAXRL_GPU 0
#endif

namespace jaxrl {

#if JAXRL_HOST
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;

#define JAXRL_INLINE inline __attribute__((always_inline))
#define JAXRL_NOINLINE __attribute__((noinline))
#else
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

#define JAXRL_INLINE __forceinline__
#define JAXRL_NOINLINE __noinline__
#endif
// Called in so many places that copies of it would push a GPU's program out of its cache.
#if JAXRL_GPU
#define JAXRL_SHARED_CODE JAXRL_NOINLINE
#else
#define JAXRL_SHARED_CODE
#endif
#if defined(__clang__)
#define JAXRL_NOCLONE
#else
#define JAXRL_NOCLONE __attribute__((noclone))
#endif
#define JAXRL_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define JAXRL_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// Returns the number of the lowest bit that is set, of a number that is not 0.
JAXRL_INLINE int lowest_bit(u32 bits) {
#if JAXRL_HOST
  return __builtin_ctz(bits);
#else
  return __ffs((int)bits) - 1;
#endif
}
JAXRL_INLINE int count_bits(u32 bits) {
#if JAXRL_HOST
  return __builtin_popcount(bits);
#else
  return __popc(bits);
#endif
}
// Rounds to the nearest whole number, halves to the even one.
JAXRL_INLINE i32 to_nearest(float number) {
#if JAXRL_HOST
  return (i32)__builtin_nearbyintf(number);
#else
  return __float2int_rn(number);
#endif
}

// One line of the television is 228 color clocks or 76 cycles of the processor: 68 clocks of
// horizontal blank, then 160 pixels.
constexpr i32 kClocksPerLine = 228;
constexpr i32 kCyclesPerLine = 76;
constexpr i32 kHorizontalBlank = 68;
constexpr i32 kScreenWidth = 160;
constexpr i32 kMostLines = 250;  // that a game shows; nearly all show 210
constexpr i32 kSeenLines = 210;  // that learners see, as EnvPool has it: the upper ones

// Mixes bytes into a digest (FNV-1a).
inline u64 digest_of(const u8* bytes, u64 size, u64 digest = 0xCBF29CE484222325ull) {
  for (u64 at = 0; at < size; at++) digest = (digest ^ bytes[at]) * 0x100000001B3ull;
  return digest;
}

}  // namespace jaxrl
