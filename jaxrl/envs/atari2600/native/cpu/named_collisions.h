// The collisions that a program is known to look at before it runs.
#pragma once

#include "bus/cartridge.h"
#include "chips/tia/tables.h"
#include "cpu/opcodes.h"

namespace jaxrl {

#if JAXRL_HOST

// Returns the collision latches that the program reads by name: LDA, BIT and so on of $00-$07 and
// their mirrors, in code that is reached from the start without looking at returns and pointers.
// What it reads besides is found when it happens (`Machine::unforeseen`).
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

// Lets a cartridge keep what its banks read by name.
inline void keep_named_collisions(Cartridge& cartridge) {
  if (cartridge.has_slices()) return;  // they are seen in other places than they lie
  for (u32 number = 0; number < cartridge.num_banks; number++)
    cartridge.needed |= named_collisions(cartridge.banks[number].image);
}

#endif

}  // namespace jaxrl
