// F6: four banks of 4K; $1FF6 to $1FF9 choose one. With or without the RAM of a Superchip.
#pragma once

#include "mappers/mapper.h"
#include "mappers/superchip.h"

namespace jaxrl {

inline constexpr Mapper kF6 = {
    .banks = 4,
    .end = 0xFF6,
    .fits = [](const u8*, u64 size) { return size == 16384; },
    .touch = choose_bank<0xFF6, 4>,
};

inline constexpr Mapper kF6WithRam = {
    .banks = 4,
    .first = superchip::kEnd,
    .end = 0xFF6,
    .ram = superchip::kBytes,
    .fits = [](const u8* image,
               u64 size) { return size == 16384 && superchip::leaves_room(image, size); },
    .touch = choose_bank<0xFF6, 4>,
    .read = superchip::read,
    .write = superchip::write,
};

}  // namespace jaxrl
