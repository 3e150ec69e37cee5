// SC: 128 bytes of RAM besides the banks. $1000-$107F writes them, $1080-$10FF reads them.
#pragma once

#include "mappers/mapper.h"

namespace jaxrl::superchip {

constexpr u32 kBytes = 128, kEnd = 0x100;

inline bool read(Access& access, u32 offset, u8& value) {
  if (offset < kBytes || offset >= kEnd) return false;
  value = access.state.ram[offset - kBytes];
  return true;
}

inline void write(Access& access, u32 offset, u8 value) {
  if (offset < kBytes) access.state.ram[offset] = value;
}

// A bank of such a cartridge has nothing where the RAM is.
inline bool leaves_room(const u8* image, u64 size) {
  for (u64 at = 0; at < size; at++)
    if (at % kImage < kEnd && image[at] != image[at / kImage * kImage]) return false;
  return true;
}

// A scheme of whole banks with this RAM.
template <const Mapper& scheme>
constexpr Mapper added_to() {
  Mapper mapper = scheme;
  mapper.first = kEnd;
  mapper.ram = kBytes;
  mapper.fits = [](const u8* image, u64 size) {
    return scheme.fits(image, size) && leaves_room(image, size);
  };
  mapper.read = read;
  mapper.write = write;
  return mapper;
}

}  // namespace jaxrl::superchip
