// F8: two banks of 4K; $1FF8 and $1FF9 choose one. With or without the RAM of a Superchip.
#pragma once

#include "mappers/mapper.h"
#include "mappers/superchip.h"

namespace jaxrl {

inline constexpr Mapper kF8 = {
    .banks = 2,
    .end = 0xFF8,
    .fits = [](const u8*, u64 size) { return size == 8192; },
    .touch = choose_bank<0xFF8, 2>,
    .reset = begin_in_second,
};

inline constexpr Mapper kF8WithRam = {
    .banks = 2,
    .first = superchip::kEnd,
    .end = 0xFF8,
    .ram = superchip::kBytes,
    .fits = [](const u8* image,
               u64 size) { return size == 8192 && superchip::leaves_room(image, size); },
    .touch = choose_bank<0xFF8, 2>,
    .read = superchip::read,
    .write = superchip::write,
    .reset = begin_in_second,
};

}  // namespace jaxrl
