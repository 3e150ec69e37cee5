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
constexpr i32 kScreenHeight = 210;

}  // namespace jaxrl
