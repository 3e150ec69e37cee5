// Integer types and hints to the compiler that every chip uses.
#pragma once

#include <cstdint>

namespace jaxrl {

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
#if defined(__clang__)
#define JAXRL_NOCLONE
#else
#define JAXRL_NOCLONE __attribute__((noclone))
#endif
#define JAXRL_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define JAXRL_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

// One line of the television is 228 colour clocks or 76 cycles of the processor: 68 clocks of
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
