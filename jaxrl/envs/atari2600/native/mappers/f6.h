// F6: four banks of 4K; $1FF6 to $1FF9 choose one. With or without the RAM of a Superchip.
#pragma once

#include "mappers/mapper.h"
#include "mappers/superchip.h"

namespace jaxrl {

inline constexpr Mapper kF6 = kBanked<4, 0xFF6>;
inline constexpr Mapper kF6WithRam = superchip::added_to<kF6>();

}  // namespace jaxrl
