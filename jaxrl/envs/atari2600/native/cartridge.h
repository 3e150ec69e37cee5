// A cartridge: its image as the processor sees it, and what every game of it shares.
#pragma once

#include <atomic>
#include <cstring>

#include "base.h"
#include "opcodes.h"
#include "tia.h"

namespace jaxrl {

// How the console is set up for a cartridge.
struct Setup {
  u8 first_line = 34;       // of the window that is drawn
  u8 blanks_hmove = 1;      // HMOVE's blanks are shown
  u8 paddles = 0;           // 1: paddles in the left port; 2: in both ports, the two swapped
  u8 swapped_ports = 0;     // the player's joystick is in the right port
  u8 difficulty = 0;        // switches on A: bit 0 left, bit 1 right
};

// An instruction as the threaded interpreter wants it; see threaded.h.
struct Op {
  const void* handler;
  u16 operand;  // or the byte of the cartridge that it names
  u16 target;   // of a branch or a jump, as an index into Cartridge::ops
  u8 taken;     // cycles of a branch that is taken
};

constexpr u32 kImage = 4096;

struct Cartridge {
  u8 image[kImage];
  Op ops[kImage + 3];           // an instruction may begin at each byte
  Setup setup;
  std::atomic<u16> needed{0};   // collision latches that programs have been seen to read

  u8 at(u32 address) const { return image[address & (kImage - 1)]; }
};

// Returns the collision latches that the image reads by name: LDA, BIT and so on of $00-$07 and their
// mirrors, at any byte. Reads through an index are found when they happen.
inline u16 named_collisions(const u8* image) {
  constexpr u8 kZero[] = {0x05, 0x24, 0x25, 0x45, 0x65, 0xA4, 0xA5, 0xA6, 0xA7, 0xC4, 0xC5, 0xE4, 0xE5};
  constexpr u8 kAbsolute[] = {0x0D, 0x2C, 0x2D, 0x4D, 0x6D, 0xAC, 0xAD, 0xAE, 0xAF,
                              0xCC, 0xCD, 0xEC, 0xED};
  u16 pairs = 0;
  for (u32 address = 0; address < kImage; address++) {
    const u8 low = image[(address + 1) & (kImage - 1)], high = image[(address + 2) & (kImage - 1)];
    if ((low & 0x80) || (low & 0x0F) > 7) continue;
    for (u8 opcode : kZero)
      if (image[address] == opcode) pairs |= pairs_of_register(low & 0x0F);
    for (u8 opcode : kAbsolute)
      if (image[address] == opcode && !(high & 0x10)) pairs |= pairs_of_register(low & 0x0F);
  }
  return pairs;
}

// Reads an image of 2K or 4K; returns false for any other size.
inline bool load_image(Cartridge& cartridge, const u8* bytes, u64 size, const Setup& setup) {
  if (size != 2048 && size != 4096) return false;
  memcpy(cartridge.image, bytes, size);
  if (size == 2048) memcpy(cartridge.image + 2048, bytes, size);
  cartridge.setup = setup;
  cartridge.needed = named_collisions(cartridge.image);
  return true;
}

}  // namespace jaxrl
