// F8: two banks of 4K; $1FF8 and $1FF9 choose one. With or without the RAM of a Superchip.
#pragma once

#include "mappers/mapper.h"
#include "mappers/superchip.h"

namespace jaxrl {

constexpr Mapper begun_in_second(Mapper mapper) {
  mapper.reset = [](CartridgeState& state) { state.bank = 1; };
  return mapper;
}

inline constexpr Mapper kF8 = begun_in_second(kBanked<2, 0xFF8>);
inline constexpr Mapper kF8WithRam = superchip::added_to<kF8>();

}  // namespace jaxrl
