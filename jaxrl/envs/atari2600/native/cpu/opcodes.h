// The 256 opcodes of the 6507: OPCODE(code, operation, kind, addressing mode, cycles).
//
// The cycles are those of the MOS data sheet, without the cycle that a taken branch or an indexed
// read across a page costs. `Odd` kinds are the undocumented opcodes, as "No More Secrets"
// (Groepaz) and 64doc.txt describe them; JAM stops the processor.
#pragma once

#include "base/types.h"

#define OPCODES(OPCODE) \
  OPCODE(0x00, BRK, Flow, Implied, 7) \
  OPCODE(0x01, ORA, Read, IndirectX, 6) \
  OPCODE(0x02, JAM, OddFlow, Implied, 2) \
  OPCODE(0x03, SLO, OddModify, IndirectX, 8) \
  OPCODE(0x04, NOP, OddRead, Zero, 3) \
  OPCODE(0x05, ORA, Read, Zero, 3) \
  OPCODE(0x06, ASL, Modify, Zero, 5) \
  OPCODE(0x07, SLO, OddModify, Zero, 5) \
  OPCODE(0x08, PHP, Flow, Implied, 3) \
  OPCODE(0x09, ORA, Read, Immediate, 2) \
  OPCODE(0x0A, ASL, Modify, Accumulator, 2) \
  OPCODE(0x0B, ANC, OddRead, Immediate, 2) \
  OPCODE(0x0C, NOP, OddRead, Absolute, 4) \
  OPCODE(0x0D, ORA, Read, Absolute, 4) \
  OPCODE(0x0E, ASL, Modify, Absolute, 6) \
  OPCODE(0x0F, SLO, OddModify, Absolute, 6) \
  OPCODE(0x10, BPL, Branch, Relative, 2) \
  OPCODE(0x11, ORA, Read, IndirectY, 5) \
  OPCODE(0x12, JAM, OddFlow, Implied, 2) \
  OPCODE(0x13, SLO, OddModify, IndirectY, 8) \
  OPCODE(0x14, NOP, OddRead, ZeroX, 4) \
  OPCODE(0x15, ORA, Read, ZeroX, 4) \
  OPCODE(0x16, ASL, Modify, ZeroX, 6) \
  OPCODE(0x17, SLO, OddModify, ZeroX, 6) \
  OPCODE(0x18, CLC, Register, Implied, 2) \
  OPCODE(0x19, ORA, Read, AbsoluteY, 4) \
  OPCODE(0x1A, NOP, OddRegister, Implied, 2) \
  OPCODE(0x1B, SLO, OddModify, AbsoluteY, 7) \
  OPCODE(0x1C, NOP, OddRead, AbsoluteX, 4) \
  OPCODE(0x1D, ORA, Read, AbsoluteX, 4) \
  OPCODE(0x1E, ASL, Modify, AbsoluteX, 7) \
  OPCODE(0x1F, SLO, OddModify, AbsoluteX, 7) \
  OPCODE(0x20, JSR, Flow, Absolute, 6) \
  OPCODE(0x21, AND, Read, IndirectX, 6) \
  OPCODE(0x22, JAM, OddFlow, Implied, 2) \
  OPCODE(0x23, RLA, OddModify, IndirectX, 8) \
  OPCODE(0x24, BIT, Read, Zero, 3) \
  OPCODE(0x25, AND, Read, Zero, 3) \
  OPCODE(0x26, ROL, Modify, Zero, 5) \
  OPCODE(0x27, RLA, OddModify, Zero, 5) \
  OPCODE(0x28, PLP, Flow, Implied, 4) \
  OPCODE(0x29, AND, Read, Immediate, 2) \
  OPCODE(0x2A, ROL, Modify, Accumulator, 2) \
  OPCODE(0x2B, ANC, OddRead, Immediate, 2) \
  OPCODE(0x2C, BIT, Read, Absolute, 4) \
  OPCODE(0x2D, AND, Read, Absolute, 4) \
  OPCODE(0x2E, ROL, Modify, Absolute, 6) \
  OPCODE(0x2F, RLA, OddModify, Absolute, 6) \
  OPCODE(0x30, BMI, Branch, Relative, 2) \
  OPCODE(0x31, AND, Read, IndirectY, 5) \
  OPCODE(0x32, JAM, OddFlow, Implied, 2) \
  OPCODE(0x33, RLA, OddModify, IndirectY, 8) \
  OPCODE(0x34, NOP, OddRead, ZeroX, 4) \
  OPCODE(0x35, AND, Read, ZeroX, 4) \
  OPCODE(0x36, ROL, Modify, ZeroX, 6) \
  OPCODE(0x37, RLA, OddModify, ZeroX, 6) \
  OPCODE(0x38, SEC, Register, Implied, 2) \
  OPCODE(0x39, AND, Read, AbsoluteY, 4) \
  OPCODE(0x3A, NOP, OddRegister, Implied, 2) \
  OPCODE(0x3B, RLA, OddModify, AbsoluteY, 7) \
  OPCODE(0x3C, NOP, OddRead, AbsoluteX, 4) \
  OPCODE(0x3D, AND, Read, AbsoluteX, 4) \
  OPCODE(0x3E, ROL, Modify, AbsoluteX, 7) \
  OPCODE(0x3F, RLA, OddModify, AbsoluteX, 7) \
  OPCODE(0x40, RTI, Flow, Implied, 6) \
  OPCODE(0x41, EOR, Read, IndirectX, 6) \
  OPCODE(0x42, JAM, OddFlow, Implied, 2) \
  OPCODE(0x43, SRE, OddModify, IndirectX, 8) \
  OPCODE(0x44, NOP, OddRead, Zero, 3) \
  OPCODE(0x45, EOR, Read, Zero, 3) \
  OPCODE(0x46, LSR, Modify, Zero, 5) \
  OPCODE(0x47, SRE, OddModify, Zero, 5) \
  OPCODE(0x48, PHA, Flow, Implied, 3) \
  OPCODE(0x49, EOR, Read, Immediate, 2) \
  OPCODE(0x4A, LSR, Modify, Accumulator, 2) \
  OPCODE(0x4B, ALR, OddRead, Immediate, 2) \
  OPCODE(0x4C, JMP, Flow, Absolute, 3) \
  OPCODE(0x4D, EOR, Read, Absolute, 4) \
  OPCODE(0x4E, LSR, Modify, Absolute, 6) \
  OPCODE(0x4F, SRE, OddModify, Absolute, 6) \
  OPCODE(0x50, BVC, Branch, Relative, 2) \
  OPCODE(0x51, EOR, Read, IndirectY, 5) \
  OPCODE(0x52, JAM, OddFlow, Implied, 2) \
  OPCODE(0x53, SRE, OddModify, IndirectY, 8) \
  OPCODE(0x54, NOP, OddRead, ZeroX, 4) \
  OPCODE(0x55, EOR, Read, ZeroX, 4) \
  OPCODE(0x56, LSR, Modify, ZeroX, 6) \
  OPCODE(0x57, SRE, OddModify, ZeroX, 6) \
  OPCODE(0x58, CLI, Register, Implied, 2) \
  OPCODE(0x59, EOR, Read, AbsoluteY, 4) \
  OPCODE(0x5A, NOP, OddRegister, Implied, 2) \
  OPCODE(0x5B, SRE, OddModify, AbsoluteY, 7) \
  OPCODE(0x5C, NOP, OddRead, AbsoluteX, 4) \
  OPCODE(0x5D, EOR, Read, AbsoluteX, 4) \
  OPCODE(0x5E, LSR, Modify, AbsoluteX, 7) \
  OPCODE(0x5F, SRE, OddModify, AbsoluteX, 7) \
  OPCODE(0x60, RTS, Flow, Implied, 6) \
  OPCODE(0x61, ADC, Read, IndirectX, 6) \
  OPCODE(0x62, JAM, OddFlow, Implied, 2) \
  OPCODE(0x63, RRA, OddModify, IndirectX, 8) \
  OPCODE(0x64, NOP, OddRead, Zero, 3) \
  OPCODE(0x65, ADC, Read, Zero, 3) \
  OPCODE(0x66, ROR, Modify, Zero, 5) \
  OPCODE(0x67, RRA, OddModify, Zero, 5) \
  OPCODE(0x68, PLA, Flow, Implied, 4) \
  OPCODE(0x69, ADC, Read, Immediate, 2) \
  OPCODE(0x6A, ROR, Modify, Accumulator, 2) \
  OPCODE(0x6B, ARR, OddRead, Immediate, 2) \
  OPCODE(0x6C, JMP, Flow, Indirect, 5) \
  OPCODE(0x6D, ADC, Read, Absolute, 4) \
  OPCODE(0x6E, ROR, Modify, Absolute, 6) \
  OPCODE(0x6F, RRA, OddModify, Absolute, 6) \
  OPCODE(0x70, BVS, Branch, Relative, 2) \
  OPCODE(0x71, ADC, Read, IndirectY, 5) \
  OPCODE(0x72, JAM, OddFlow, Implied, 2) \
  OPCODE(0x73, RRA, OddModify, IndirectY, 8) \
  OPCODE(0x74, NOP, OddRead, ZeroX, 4) \
  OPCODE(0x75, ADC, Read, ZeroX, 4) \
  OPCODE(0x76, ROR, Modify, ZeroX, 6) \
  OPCODE(0x77, RRA, OddModify, ZeroX, 6) \
  OPCODE(0x78, SEI, Register, Implied, 2) \
  OPCODE(0x79, ADC, Read, AbsoluteY, 4) \
  OPCODE(0x7A, NOP, OddRegister, Implied, 2) \
  OPCODE(0x7B, RRA, OddModify, AbsoluteY, 7) \
  OPCODE(0x7C, NOP, OddRead, AbsoluteX, 4) \
  OPCODE(0x7D, ADC, Read, AbsoluteX, 4) \
  OPCODE(0x7E, ROR, Modify, AbsoluteX, 7) \
  OPCODE(0x7F, RRA, OddModify, AbsoluteX, 7) \
  OPCODE(0x80, NOP, OddRead, Immediate, 2) \
  OPCODE(0x81, STA, Write, IndirectX, 6) \
  OPCODE(0x82, NOP, OddRead, Immediate, 2) \
  OPCODE(0x83, SAX, OddWrite, IndirectX, 6) \
  OPCODE(0x84, STY, Write, Zero, 3) \
  OPCODE(0x85, STA, Write, Zero, 3) \
  OPCODE(0x86, STX, Write, Zero, 3) \
  OPCODE(0x87, SAX, OddWrite, Zero, 3) \
  OPCODE(0x88, DEY, Register, Implied, 2) \
  OPCODE(0x89, NOP, OddRead, Immediate, 2) \
  OPCODE(0x8A, TXA, Register, Implied, 2) \
  OPCODE(0x8B, ANE, OddRead, Immediate, 2) \
  OPCODE(0x8C, STY, Write, Absolute, 4) \
  OPCODE(0x8D, STA, Write, Absolute, 4) \
  OPCODE(0x8E, STX, Write, Absolute, 4) \
  OPCODE(0x8F, SAX, OddWrite, Absolute, 4) \
  OPCODE(0x90, BCC, Branch, Relative, 2) \
  OPCODE(0x91, STA, Write, IndirectY, 6) \
  OPCODE(0x92, JAM, OddFlow, Implied, 2) \
  OPCODE(0x93, SHA, OddWrite, IndirectY, 6) \
  OPCODE(0x94, STY, Write, ZeroX, 4) \
  OPCODE(0x95, STA, Write, ZeroX, 4) \
  OPCODE(0x96, STX, Write, ZeroY, 4) \
  OPCODE(0x97, SAX, OddWrite, ZeroY, 4) \
  OPCODE(0x98, TYA, Register, Implied, 2) \
  OPCODE(0x99, STA, Write, AbsoluteY, 5) \
  OPCODE(0x9A, TXS, Register, Implied, 2) \
  OPCODE(0x9B, SHS, OddWrite, AbsoluteY, 5) \
  OPCODE(0x9C, SHY, OddWrite, AbsoluteX, 5) \
  OPCODE(0x9D, STA, Write, AbsoluteX, 5) \
  OPCODE(0x9E, SHX, OddWrite, AbsoluteY, 5) \
  OPCODE(0x9F, SHA, OddWrite, AbsoluteY, 5) \
  OPCODE(0xA0, LDY, Read, Immediate, 2) \
  OPCODE(0xA1, LDA, Read, IndirectX, 6) \
  OPCODE(0xA2, LDX, Read, Immediate, 2) \
  OPCODE(0xA3, LAX, OddRead, IndirectX, 6) \
  OPCODE(0xA4, LDY, Read, Zero, 3) \
  OPCODE(0xA5, LDA, Read, Zero, 3) \
  OPCODE(0xA6, LDX, Read, Zero, 3) \
  OPCODE(0xA7, LAX, OddRead, Zero, 4) \
  OPCODE(0xA8, TAY, Register, Implied, 2) \
  OPCODE(0xA9, LDA, Read, Immediate, 2) \
  OPCODE(0xAA, TAX, Register, Implied, 2) \
  OPCODE(0xAB, LXA, OddRead, Immediate, 2) \
  OPCODE(0xAC, LDY, Read, Absolute, 4) \
  OPCODE(0xAD, LDA, Read, Absolute, 4) \
  OPCODE(0xAE, LDX, Read, Absolute, 4) \
  OPCODE(0xAF, LAX, OddRead, Absolute, 4) \
  OPCODE(0xB0, BCS, Branch, Relative, 2) \
  OPCODE(0xB1, LDA, Read, IndirectY, 5) \
  OPCODE(0xB2, JAM, OddFlow, Implied, 2) \
  OPCODE(0xB3, LAX, OddRead, IndirectY, 5) \
  OPCODE(0xB4, LDY, Read, ZeroX, 4) \
  OPCODE(0xB5, LDA, Read, ZeroX, 4) \
  OPCODE(0xB6, LDX, Read, ZeroY, 4) \
  OPCODE(0xB7, LAX, OddRead, ZeroY, 4) \
  OPCODE(0xB8, CLV, Register, Implied, 2) \
  OPCODE(0xB9, LDA, Read, AbsoluteY, 4) \
  OPCODE(0xBA, TSX, Register, Implied, 2) \
  OPCODE(0xBB, LAS, OddRead, AbsoluteY, 4) \
  OPCODE(0xBC, LDY, Read, AbsoluteX, 4) \
  OPCODE(0xBD, LDA, Read, AbsoluteX, 4) \
  OPCODE(0xBE, LDX, Read, AbsoluteY, 4) \
  OPCODE(0xBF, LAX, OddRead, AbsoluteY, 4) \
  OPCODE(0xC0, CPY, Read, Immediate, 2) \
  OPCODE(0xC1, CMP, Read, IndirectX, 6) \
  OPCODE(0xC2, NOP, OddRead, Immediate, 2) \
  OPCODE(0xC3, DCP, OddModify, IndirectX, 8) \
  OPCODE(0xC4, CPY, Read, Zero, 3) \
  OPCODE(0xC5, CMP, Read, Zero, 3) \
  OPCODE(0xC6, DEC, Modify, Zero, 5) \
  OPCODE(0xC7, DCP, OddModify, Zero, 5) \
  OPCODE(0xC8, INY, Register, Implied, 2) \
  OPCODE(0xC9, CMP, Read, Immediate, 2) \
  OPCODE(0xCA, DEX, Register, Implied, 2) \
  OPCODE(0xCB, SBX, OddRead, Immediate, 2) \
  OPCODE(0xCC, CPY, Read, Absolute, 4) \
  OPCODE(0xCD, CMP, Read, Absolute, 4) \
  OPCODE(0xCE, DEC, Modify, Absolute, 6) \
  OPCODE(0xCF, DCP, OddModify, Absolute, 6) \
  OPCODE(0xD0, BNE, Branch, Relative, 2) \
  OPCODE(0xD1, CMP, Read, IndirectY, 5) \
  OPCODE(0xD2, JAM, OddFlow, Implied, 2) \
  OPCODE(0xD3, DCP, OddModify, IndirectY, 8) \
  OPCODE(0xD4, NOP, OddRead, ZeroX, 4) \
  OPCODE(0xD5, CMP, Read, ZeroX, 4) \
  OPCODE(0xD6, DEC, Modify, ZeroX, 6) \
  OPCODE(0xD7, DCP, OddModify, ZeroX, 6) \
  OPCODE(0xD8, CLD, Register, Implied, 2) \
  OPCODE(0xD9, CMP, Read, AbsoluteY, 4) \
  OPCODE(0xDA, NOP, OddRegister, Implied, 2) \
  OPCODE(0xDB, DCP, OddModify, AbsoluteY, 7) \
  OPCODE(0xDC, NOP, OddRead, AbsoluteX, 4) \
  OPCODE(0xDD, CMP, Read, AbsoluteX, 4) \
  OPCODE(0xDE, DEC, Modify, AbsoluteX, 7) \
  OPCODE(0xDF, DCP, OddModify, AbsoluteX, 7) \
  OPCODE(0xE0, CPX, Read, Immediate, 2) \
  OPCODE(0xE1, SBC, Read, IndirectX, 6) \
  OPCODE(0xE2, NOP, OddRead, Immediate, 2) \
  OPCODE(0xE3, ISB, OddModify, IndirectX, 8) \
  OPCODE(0xE4, CPX, Read, Zero, 3) \
  OPCODE(0xE5, SBC, Read, Zero, 3) \
  OPCODE(0xE6, INC, Modify, Zero, 5) \
  OPCODE(0xE7, ISB, OddModify, Zero, 5) \
  OPCODE(0xE8, INX, Register, Implied, 2) \
  OPCODE(0xE9, SBC, Read, Immediate, 2) \
  OPCODE(0xEA, NOP, Register, Implied, 2) \
  OPCODE(0xEB, SBC, OddRead, Immediate, 2) \
  OPCODE(0xEC, CPX, Read, Absolute, 4) \
  OPCODE(0xED, SBC, Read, Absolute, 4) \
  OPCODE(0xEE, INC, Modify, Absolute, 6) \
  OPCODE(0xEF, ISB, OddModify, Absolute, 6) \
  OPCODE(0xF0, BEQ, Branch, Relative, 2) \
  OPCODE(0xF1, SBC, Read, IndirectY, 5) \
  OPCODE(0xF2, JAM, OddFlow, Implied, 2) \
  OPCODE(0xF3, ISB, OddModify, IndirectY, 8) \
  OPCODE(0xF4, NOP, OddRead, ZeroX, 4) \
  OPCODE(0xF5, SBC, Read, ZeroX, 4) \
  OPCODE(0xF6, INC, Modify, ZeroX, 6) \
  OPCODE(0xF7, ISB, OddModify, ZeroX, 6) \
  OPCODE(0xF8, SED, Register, Implied, 2) \
  OPCODE(0xF9, SBC, Read, AbsoluteY, 4) \
  OPCODE(0xFA, NOP, OddRegister, Implied, 2) \
  OPCODE(0xFB, ISB, OddModify, AbsoluteY, 7) \
  OPCODE(0xFC, NOP, OddRead, AbsoluteX, 4) \
  OPCODE(0xFD, SBC, Read, AbsoluteX, 4) \
  OPCODE(0xFE, INC, Modify, AbsoluteX, 7) \
  OPCODE(0xFF, ISB, OddModify, AbsoluteX, 7)

namespace jaxrl {

// clang-format off: it would take a line for each name
enum class Operation : u8 {
  ADC, ALR, ANC, AND, ANE, ARR, ASL, BCC, BCS, BEQ, BIT, BMI, BNE, BPL, BRK, BVC, BVS, CLC, CLD,
  CLI, CLV, CMP, CPX, CPY, DCP, DEC, DEX, DEY, EOR, INC, INX, INY, ISB, JAM, JMP, JSR, LAS, LAX,
  LDA, LDX, LDY, LSR, LXA, NOP, ORA, PHA, PHP, PLA, PLP, RLA, ROL, ROR, RRA, RTI, RTS, SAX, SBC,
  SBX, SEC, SED, SEI, SHA, SHS, SHX, SHY, SLO, SRE, STA, STX, STY, TAX, TAY, TSX, TXA, TXS, TYA,
};

enum class Mode : u8 {
  Implied, Accumulator, Immediate, Zero, ZeroX, ZeroY, Absolute, AbsoluteX, AbsoluteY, Indirect,
  IndirectX, IndirectY, Relative,
};

enum class Kind : u8 {
  Read, Write, Modify, Register, Branch, Flow, OddRead, OddWrite, OddModify, OddRegister, OddFlow,
};
// clang-format on

constexpr u32 length_of(Mode mode) {
  switch (mode) {
    case Mode::Implied:
    case Mode::Accumulator: return 1;
    case Mode::Absolute:
    case Mode::AbsoluteX:
    case Mode::AbsoluteY:
    case Mode::Indirect: return 3;
    default: return 2;
  }
}

struct Opcode {
  Operation operation;
  Kind kind;
  Mode mode;

  constexpr u32 length() const { return length_of(mode); }
};
inline constexpr Opcode kOpcodes[256] = {
#define JAXRL_ROW(code, operation, kind, mode, cycles) \
  {Operation::operation, Kind::kind, Mode::mode},
    OPCODES(JAXRL_ROW)
#undef JAXRL_ROW
};

}  // namespace jaxrl
