// FE: two banks of 4K; bit 13 of the address chooses one, and there are no hot spots.
#pragma once

#include "mappers/mapper.h"

namespace jaxrl::fe {

// A call into the other bank.
inline bool fits(const u8* image, u64 size) {
  constexpr char kCalls[][6] = {"\x20\x00\xD0\xC6\xC5", "\x20\xC3\xF8\xA5\x82",
                                "\xD0\xFB\x20\x73\xFE", "\x20\x00\xF0\x84\xD6"};
  return size == 8192 && contains(image, size, kCalls);
}

}  // namespace jaxrl::fe

namespace jaxrl {

inline constexpr Mapper kFE = {
    .banks = 2,
    .mask = 0x3FFF,
    .fits = fe::fits,
    .page = [](u32 bank) { return bank == 0 ? 0x3000u : 0x1000u; },
    .seen = [](const CartridgeState&, u32 address) { return address & 0x2000 ? 0u : 1u; },
};

}  // namespace jaxrl
