// A cartridge: its image as the processor sees it, and what every game of it shares.
#pragma once

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
  u16 needed;                   // collision latches that the program has been seen to read

  u8 at(u32 address) const { return image[address & (kImage - 1)]; }
};

// Returns the collision latches that the program reads by name: LDA, BIT and so on of $00-$07 and their
// mirrors, in code that is reached from the start without looking at returns and pointers. What it
// reads besides is found when it happens (`Machine::unforeseen`).
inline u16 named_collisions(const u8* image) {
  const auto byte = [&](u32 address) { return (u32)image[address & (kImage - 1)]; };
  const auto word = [&](u32 address) { return byte(address) | byte(address + 1) << 8; };
  u16 pairs = 0;
  u8 seen[kImage] = {};
  u16 open[kImage];
  u32 count = 0;
  const auto reach = [&](u32 address) {
    u8& mark = seen[address & (kImage - 1)];
    if (!mark) open[count++] = (u16)(address & (kImage - 1));
    mark = 1;
  };
  reach(word(0xFFC));
  reach(word(0xFFE));
  while (count) {
    const u32 address = open[--count];
    const Opcode& opcode = kOpcodes[byte(address)];
    const u32 operand = opcode.length() == 3 ? word(address + 1) : byte(address + 1);
    const bool reads = opcode.kind == Kind::Read || opcode.kind == Kind::OddRead ||
                       opcode.kind == Kind::Modify || opcode.kind == Kind::OddModify;
    const bool names = opcode.mode == Mode::Zero || opcode.mode == Mode::Absolute;
    if (reads && names && !(operand & 0x1080) && (operand & 15) < 8)
      pairs |= pairs_of_register(operand & 15);
    using O = Operation;
    const O operation = opcode.operation;
    if (opcode.kind == Kind::Branch) reach(address + 2 + (u32)(i32)(i8)operand);
    if (operation == O::JSR || (operation == O::JMP && opcode.mode == Mode::Absolute))
      reach(operand);
    const bool ends = operation == O::JMP || operation == O::RTS || operation == O::RTI ||
                      operation == O::BRK || operation == O::JAM;
    if (!ends) reach(address + opcode.length());
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
