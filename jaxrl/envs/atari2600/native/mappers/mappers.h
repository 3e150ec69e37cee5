// All schemes of bank switching, and the one place that chooses between them.
#pragma once

#include "mappers/dpc.h"
#include "mappers/e0.h"
#include "mappers/f6.h"
#include "mappers/f8.h"
#include "mappers/fe.h"
#include "mappers/mapper.h"
#include "mappers/unbanked.h"

namespace jaxrl {

// An image is of the first scheme that it fits.
inline constexpr const Mapper* kMappers[] = {
    &kUnbanked, &kF8WithRam, &kE0, &kFE, &kF8, &kF6WithRam, &kF6, &kDPC,
};
constexpr u32 kNumMappers = sizeof kMappers / sizeof kMappers[0];

// Returns the number of the scheme of an image, or `kNumMappers` if it fits none.
inline u32 banking_of(const u8* image, u64 size) {
  u32 number = 0;
  while (number < kNumMappers && !kMappers[number]->fits(image, size)) number++;
  return number;
}

// A scheme as a constant, so that its functions are called by their names, also on a GPU.
template <u32 number>
struct Chosen {
  static constexpr Mapper mapper = *kMappers[number];
};

// Returns what `act` makes of the scheme of a number.
template <u32 number = 0, typename Act>
JAXRL_INLINE auto with_mapper(u32 chosen, const Act& act) {
  if constexpr (number + 1 < kNumMappers)
    if (chosen != number) return with_mapper<number + 1>(chosen, act);
  return act(Chosen<number>{});
}

constexpr u32 most_banks() {
  u32 most = 0;
  for (const Mapper* mapper : kMappers) most = mapper->banks > most ? mapper->banks : most;
  return most;
}
constexpr u32 least_piece() {
  u32 least = kImage;
  for (const Mapper* mapper : kMappers) least = mapper->piece < least ? mapper->piece : least;
  return least;
}
constexpr u32 most_data() {
  u32 most = 0;
  for (const Mapper* mapper : kMappers) most = mapper->data > most ? mapper->data : most;
  return most;
}
constexpr bool any_overhears() {
  for (const Mapper* mapper : kMappers)
    if (mapper->overhear) return true;
  return false;
}
constexpr u32 kMostBanks = most_banks(), kMostPlaces = kImage / least_piece(),
              kMostData = most_data();

}  // namespace jaxrl
