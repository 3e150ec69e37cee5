// 2K and 4K: all is seen; the smaller one is seen twice.
#pragma once

#include "mappers/mapper.h"

namespace jaxrl {

inline constexpr Mapper kUnbanked = {
    .fits = [](const u8*, u64 size) { return size == 2048 || size == 4096; },
};

}  // namespace jaxrl
