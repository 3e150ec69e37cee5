// Bank switching: what a cartridge's scheme tells the bus.
//
// The processor sees 4K, and a larger cartridge has more. It is cut into pieces, whole banks of 4K
// or slices of them, and its scheme says which piece is seen where. Most choose it by hot spots: an
// access to one, be it a read, a write or the fetch of an instruction, chooses what is seen from
// then on.
//
// A scheme is one record of constants and functions in one header; mappers.h lists them.
#pragma once

#include "base/types.h"
#include "mappers/dpc_chip.h"

namespace jaxrl {

constexpr u32 kImage = 4096;  // bytes that the processor sees
constexpr u32 kMostSwitched = 3;

// What a cartridge remembers; plain data.
struct CartridgeState {
  union {
    u8 ram[128];
    Dpc dpc;
  };
  i32 music_cycle;  // of the DPC, at which its music was last brought up to date
  u8 bank;
  u8 slices[kMostSwitched];  // of E0
};

// What a scheme's own registers and memory work with.
struct Access {
  CartridgeState& state;
  const u8* data;  // of the cartridge, behind its banks
  i32 cycle;
};

// Offsets and addresses: `offset` counts from the first byte of the 4K,
// `address` is the processor's.
struct Mapper {
  u32 banks = 1;       // of 4K
  u32 piece = kImage;  // bytes that are switched at once
  u32 first = 0;       // reads from this offset on ...
  u32 end = kImage;    // ... up to this one do nothing besides
  u32 fixed_from = 0;  // of slices: from this offset on the same is always seen
  u32 data = 0;        // bytes behind the banks
  u32 ram = 0;         // bytes of memory, random at a reset
  u32 mask = 0x1FFF;   // the lines of the address that choose the bank

  // Whether an image is of this scheme.
  bool (*fits)(const u8* image, u64 size) = nullptr;
  // The first address at which a bank is seen.
  u32 (*page)(u32 bank) = [](u32) { return 0x1000u; };
  // The number of the piece that is seen at an address.
  u32 (*seen)(const CartridgeState& state, u32 address) = [](const CartridgeState& state, u32) {
    return (u32)state.bank;
  };
  // An access to an offset outside `first` to `end`; returns whether another piece is seen.
  bool (*touch)(CartridgeState& state, u32 offset) = [](CartridgeState&, u32) { return false; };
  // A write to the TIA, where the scheme listens to those; returns whether another piece is seen.
  bool (*overhear)(CartridgeState& state, u32 address, u8 value) = nullptr;
  // Registers and memory of the cartridge: a read returns whether they answer.
  bool (*read)(Access& access, u32 offset, u8& value) = [](Access&, u32, u8&) { return false; };
  void (*write)(Access& access, u32 offset, u8 value) = [](Access&, u32, u8) {};
  void (*power_on)(CartridgeState& state) = [](CartridgeState&) {};
  void (*reset)(CartridgeState& state) = [](CartridgeState& state) { state.bank = 0; };
  // Whether play could have come to this state, besides that there is such a bank.
  bool (*is_possible)(const CartridgeState& state) = [](const CartridgeState&) { return true; };
};

// Lets the hot spots from an offset on choose one bank each.
template <u32 first, u32 banks>
inline bool choose_bank(CartridgeState& state, u32 offset) {
  const u32 bank = offset - first;
  if (bank >= banks || state.bank == bank) return false;
  state.bank = (u8)bank;
  return true;
}

// Banks of 4K, which hot spots from an offset to the end choose.
template <u32 number, u32 hot_spots>
inline constexpr Mapper kBanked = {
    .banks = number,
    .end = hot_spots,
    .fits = [](const u8*, u64 size) { return size == number * kImage; },
    .touch = choose_bank<hot_spots, number>,
};

// Returns whether one of these sequences of bytes is somewhere in an image. Their last byte is a 0,
// which does not count.
template <u32 count, u32 length>
inline bool contains(const u8* image, u64 size, const char (&sequences)[count][length]) {
  for (const auto& sequence : sequences)
    for (u64 at = 0; at + length - 1 < size; at++) {
      u32 equal = 0;
      while (equal < length - 1 && image[at + equal] == (u8)sequence[equal]) equal++;
      if (equal == length - 1) return true;
    }
  return false;
}

}  // namespace jaxrl
