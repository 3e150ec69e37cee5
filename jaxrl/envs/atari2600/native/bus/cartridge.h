// A cartridge: its image as the processor sees it, and what every game of it shares.
//
// The processor sees 4K. A larger cartridge has banks,
// and a scheme (mappers/) that says which is seen.
#pragma once

#include "base/types.h"
#include "mappers/mappers.h"

namespace jaxrl {

// How the console is set up for a cartridge.
struct Setup {
  u8 first_line = 34;            // of the window that is drawn
  u8 blanks_hmove = 1;           // HMOVE's blanks are shown
  u8 paddles = 0;                // 1: paddles in the left port; 2: in both ports, the two swapped
  u8 swapped_ports = 0;          // the player's joystick is in the right port
  u8 difficulty = 0;             // switches on A: bit 0 left, bit 1 right
  u8 height = 210;               // lines that are drawn
  u8 pal = 0;                    // made for European televisions: longer frames, other colors
  i32 most_resistance = 790196;  // of a paddle, in ohms
};

// An instruction as the threaded interpreter wants it; see cpu/threaded.h.
struct Op {
  const void* handler;
  u16 operand;   // or the byte of the cartridge that it names
  i16 distance;  // of a branch, in bytes
  u8 taken;      // cycles of a branch that is taken
};

// What the processor sees: 4K of the cartridge.
struct Bank {
  u8 image[kImage];
#if !JAXRL_GPU
  Op ops[kImage + 3];  // an instruction may begin at each byte
#endif
  u32 mask, page;    // addresses that lead here: those that `mask` makes one of 4K from `page` on
  u32 first, count;  // those of them that do nothing when they are read, from `first` on

  JAXRL_INLINE bool holds(u32 address) const { return (address & mask) - page < kImage; }
  JAXRL_INLINE bool shows(u32 address) const { return (address & mask) - first < count; }
};

struct Cartridge {
  Bank banks[kMostBanks];  // its pieces, one after another
  u8 data[kMostData];      // of a chip, which lie behind the banks
  u8 mapper;               // number of its scheme in kMappers
  u32 num_banks;
  u32 piece;   // bytes that are switched at once, in which a decoded instruction lies
  u64 digest;  // of the image
  Setup setup;
  u16 needed;  // collision latches that the program has been seen to read

  bool has_slices() const { return piece != kImage; }
  // The bank in which a piece lies, and where it begins there.
  const Bank& bank_with(u32 number) const { return banks[number * piece / kImage]; }
  u32 start_of(u32 number) const { return number * piece % kImage; }
};

JAXRL_INLINE u8 rom_byte(const Bank& bank, u32 offset) {
#if JAXRL_HOST
  return bank.image[offset];
#else
  return __ldg(bank.image + offset);
#endif
}

// Returns the number of the piece that is seen at an address.
inline u32 piece_at(const Cartridge& cartridge, const CartridgeState& state, u32 address) {
  return with_mapper(cartridge.mapper,
                     [&](auto chosen) { return chosen.mapper.seen(state, address); });
}

// Returns the byte of a piece that an address leads to,
// whether or not it does something when it is read.
JAXRL_INLINE u8 byte_of(const Cartridge& cartridge, u32 piece, u32 address) {
  return rom_byte(cartridge.bank_with(piece),
                  cartridge.start_of(piece) + (address & (cartridge.piece - 1)));
}

inline u8 byte_at(const Cartridge& cartridge, const CartridgeState& state, u32 address) {
  return byte_of(cartridge, piece_at(cartridge, state, address), address);
}

#if JAXRL_HOST

inline const Mapper& mapper_of(const Cartridge& cartridge) { return *kMappers[cartridge.mapper]; }

// Reads an image; returns false for a size that no game has.
inline bool load_image(Cartridge& cartridge, const u8* bytes, u64 size, const Setup& setup) {
  const u32 scheme = banking_of(bytes, size);
  if (scheme == kNumMappers) return false;
  const Mapper& mapper = *kMappers[scheme];
  cartridge.mapper = (u8)scheme;
  cartridge.num_banks = mapper.banks;
  cartridge.piece = mapper.piece;
  cartridge.digest = digest_of(bytes, size);
  cartridge.setup = setup;
  cartridge.needed = 0;
  for (u32 number = 0; number < cartridge.num_banks; number++) {
    Bank& bank = cartridge.banks[number];
    memcpy(bank.image, bytes + number * kImage, size < kImage ? size : kImage);
    if (size == kImage / 2) memcpy(bank.image + size, bytes, size);
    bank.mask = mapper.mask;
    bank.page = mapper.page(number);
    bank.first = bank.page + mapper.first;
    bank.count = mapper.end - mapper.first;
  }
  memcpy(cartridge.data, bytes + cartridge.num_banks * kImage, mapper.data);
  return true;
}

#endif

}  // namespace jaxrl
