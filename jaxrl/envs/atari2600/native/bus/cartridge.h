// A cartridge: its image as the processor sees it, and what every game of it shares.
//
// The processor sees 4K. A larger cartridge has banks; an access to one of its hot spots, be it a read, a
// write or the fetch of an instruction, chooses the bank that is seen from then on.
//
//   F8   2 banks of 4K       $1FF8, $1FF9
//   F6   4 banks of 4K       $1FF6 to $1FF9
//   SC   F8 or F6 with 128 bytes of RAM: $1000-$107F writes them, $1080-$10FF reads them
//   E0   8 slices of 1K      $1FE0-$1FE7 choose what is seen at $1000, $1FE8-$1FEF at $1400,
//                            $1FF0-$1FF7 at $1800; at $1C00 is the last one
//   FE   2 banks of 4K       bit 13 of the address; there are no hot spots
//   DPC  F8 with the Display Processor Chip at $1000-$107F (mappers/dpc.h)
#pragma once

#include "base/types.h"
#if JAXRL_HOST
#include <initializer_list>
#endif

#include "mappers/dpc.h"

namespace jaxrl {

// How the console is set up for a cartridge.
struct Setup {
  u8 first_line = 34;       // of the window that is drawn
  u8 blanks_hmove = 1;      // HMOVE's blanks are shown
  u8 paddles = 0;           // 1: paddles in the left port; 2: in both ports, the two swapped
  u8 swapped_ports = 0;     // the player's joystick is in the right port
  u8 difficulty = 0;        // switches on A: bit 0 left, bit 1 right
  u8 height = 210;          // lines that are drawn
  u8 pal = 0;               // made for European televisions: longer frames, other colors
  i32 most_resistance = 790196;  // of a paddle, in ohms
};

// An instruction as the threaded interpreter wants it; see cpu/threaded.h.
struct Op {
  const void* handler;
  u16 operand;  // or the byte of the cartridge that it names
  i16 distance; // of a branch, in bytes
  u8 taken;     // cycles of a branch that is taken
};

constexpr u32 kImage = 4096, kSlice = 1024;
constexpr u32 kMostBanks = 4, kMostSwitched = 3;

// What the processor sees: 4K of the cartridge.
struct Bank {
  u8 image[kImage];
#if !JAXRL_GPU
  Op ops[kImage + 3];    // an instruction may begin at each byte
#endif
  u32 mask, page;        // addresses that lead here: those that `mask` makes one of 4K from `page` on
  u32 first, count;      // those of them that do nothing when they are read, from `first` on

  bool holds(u32 address) const { return (address & mask) - page < kImage; }
  bool shows(u32 address) const { return (address & mask) - first < count; }
};

enum class Banking : u8 { kNone, kF8, kF6, kE0, kFE, kDPC };

struct Cartridge {
  Bank banks[kMostBanks];       // of E0 slices 0 to 3 and 4 to 7
  u8 display[2048];             // data of the Display Processor Chip
  Banking banking;
  bool has_ram;
  u32 num_banks;
  u16 first_hot_spot;           // of F8 and F6, as an offset
  u64 digest;                   // of the image
  Setup setup;
  u16 needed;                   // collision latches that the program has been seen to read

  // The bank that addresses with bit 13 lead to, of FE.
  const Bank& bank_of(u32 address) const { return banks[address & 0x2000 ? 0 : 1]; }
  // What a decoded instruction may rely on: it lies in one piece of this size.
  u32 piece() const { return banking == Banking::kE0 ? kSlice : kImage; }
};

// What a cartridge remembers; plain data.
struct CartridgeState {
  union {
    u8 ram[128];
    Dpc dpc;
  };
  i32 music_cycle;            // of the DPC, at which its music was last brought up to date
  u8 bank;
  u8 slices[kMostSwitched];   // of E0
};

#if JAXRL_HOST

// Returns whether one of these sequences of `length` bytes is somewhere in the image.
inline bool contains(const u8* image, u64 size, std::initializer_list<const char*> sequences,
                     u64 length) {
  for (const char* sequence : sequences)
    for (u64 at = 0; at + length < size; at++)
      if (!memcmp(image + at, sequence, length)) return true;
  return false;
}

// A bank of a cartridge with RAM has nothing where the RAM is.
inline bool leaves_room_for_ram(const u8* image, u64 size) {
  for (u64 at = 0; at < size; at++)
    if (at % kImage < 256 && image[at] != image[at / kImage * kImage]) return false;
  return true;
}

// Finds the kind of banks by the size and by accesses that games of that kind have. Returns false for a
// size that no game has.
inline bool find_banking(Cartridge& cartridge, const u8* bytes, u64 size) {
  cartridge.has_ram = false;
  cartridge.first_hot_spot = 0xFF8;
  cartridge.num_banks = size < kImage ? 1 : (u32)(size / kImage);
  switch (size) {
    case 2048: case 4096: cartridge.banking = Banking::kNone; return true;
    case 8192:
      cartridge.has_ram = leaves_room_for_ram(bytes, size);
      cartridge.banking = Banking::kF8;
      if (cartridge.has_ram) return true;
      // An access to a hot spot by its address; a call into the other bank.
      if (contains(bytes, size, {"\x8D\xE0\x1F", "\x8D\xE0\x5F", "\x8D\xE9\xFF", "\xAD\xE9\xFF",
                                 "\xAD\xED\xFF", "\xAD\xF3\xBF"}, 3))
        cartridge.banking = Banking::kE0;
      else if (contains(bytes, size, {"\x20\x00\xD0\xC6\xC5", "\x20\xC3\xF8\xA5\x82",
                                      "\xD0\xFB\x20\x73\xFE", "\x20\x00\xF0\x84\xD6"}, 5))
        cartridge.banking = Banking::kFE;
      return true;
    case 10240: case 10495: case 10496: cartridge.banking = Banking::kDPC; return true;
    case 16384:
      cartridge.has_ram = leaves_room_for_ram(bytes, size);
      cartridge.banking = Banking::kF6;
      cartridge.first_hot_spot = 0xFF6;
      return true;
    default: return false;
  }
}

// Reads an image; returns false for a size that no game has.
inline bool load_image(Cartridge& cartridge, const u8* bytes, u64 size, const Setup& setup) {
  if (!find_banking(cartridge, bytes, size)) return false;
  const Banking banking = cartridge.banking;
  cartridge.digest = digest_of(bytes, size);
  cartridge.setup = setup;
  cartridge.needed = 0;
  for (u32 number = 0; number < cartridge.num_banks; number++) {
    Bank& bank = cartridge.banks[number];
    memcpy(bank.image, bytes + number * kImage, size < kImage ? size : kImage);
    if (size == 2048) memcpy(bank.image + 2048, bytes, size);
    bank.mask = banking == Banking::kFE ? 0x3FFF : 0x1FFF;
    bank.page = banking == Banking::kFE && number == 0 ? 0x3000 : 0x1000;
    const u32 first = cartridge.has_ram ? 0x100 : banking == Banking::kDPC ? 0x80 : 0;
    bank.first = bank.page + first;
    u32 end = kImage;
    if (banking == Banking::kF8 || banking == Banking::kF6) end = cartridge.first_hot_spot;
    if (banking == Banking::kE0) end = 0xFE0;
    if (banking == Banking::kDPC) end = 0xFC0;  // reads of the last page count
    bank.count = end - first;
  }
  if (banking == Banking::kDPC) memcpy(cartridge.display, bytes + 2 * kImage, sizeof cartridge.display);
  return true;
}

#endif

}  // namespace jaxrl
