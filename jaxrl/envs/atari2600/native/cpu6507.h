// The 6507: what its operations do to the registers, and an interpreter that plays one instruction
// at a time with every access to the bus in its order.
//
// The threaded interpreter (threaded.h) shares the operations and is much faster; this one plays what
// that one leaves out (undocumented opcodes, programs that run in RAM), counts instructions, and is
// what the fast one is tested against.
//
// Decimal mode, N and Z after it and the undocumented opcodes are as in ALE. Flags N and Z are kept as
// the value that set them: `nz` is negative where bit 7 or 15 is set, and zero where its low byte is 0.
#pragma once

#include "base.h"
#include "machine.h"
#include "opcodes.h"

namespace jaxrl {

// Registers while the processor runs, as wide as the compiler likes them.
struct Registers {
  u32 a, x, y, sp, nz, carry, overflow, decimal, no_interrupts;
};

JAXRL_INLINE Registers loaded(const Cpu& cpu) {
  return {cpu.a,     cpu.x,        cpu.y,       cpu.sp,           cpu.nz,
          cpu.carry, cpu.overflow, cpu.decimal, cpu.no_interrupts};
}

JAXRL_INLINE void store_registers(Cpu& cpu, const Registers& r) {
  cpu.a = (u8)r.a;
  cpu.x = (u8)r.x;
  cpu.y = (u8)r.y;
  cpu.sp = (u8)r.sp;
  cpu.nz = (u16)r.nz;
  cpu.carry = (u8)r.carry;
  cpu.overflow = (u8)r.overflow;
  cpu.decimal = (u8)r.decimal;
  cpu.no_interrupts = (u8)r.no_interrupts;
}

// Bits N V - B D I Z C. B is always set: the 6507 has no interrupt pins.
JAXRL_INLINE u8 packed_flags(const Registers& r) {
  return (u8)((r.nz & 0x8080 ? 0x80 : 0) | r.overflow << 6 | 0x30 | r.decimal << 3 |
              r.no_interrupts << 2 | (r.nz & 0xFF ? 0 : 2) | r.carry);
}

JAXRL_INLINE void unpack_flags(Registers& r, u32 flags) {
  r.carry = flags & 1;
  r.no_interrupts = flags >> 2 & 1;
  r.decimal = flags >> 3 & 1;
  r.overflow = flags >> 6 & 1;
  r.nz = (flags & 2 ? 0 : 1) | (flags & 0x80) << 8;
}

// --- operations ----------------------------------------------------------------------------------

// The two digits of a byte as a number, and a number below 200 as two digits and no hundreds.
constexpr i32 from_digits(u32 digits) { return (i32)((digits >> 4) * 10 + (digits & 15)); }
constexpr u32 to_digits(i32 number) { return (u32)(number % 100 / 10 << 4 | number % 10); }

JAXRL_INLINE void add(Registers& r, u32 value) {
  const u32 before = r.a;
  if (JAXRL_UNLIKELY(r.decimal)) {
    const i32 sum = from_digits(before) + from_digits(value) + (i32)r.carry;
    r.carry = sum > 99;
    r.a = to_digits(sum & 0xFF);
    r.overflow = ((before ^ r.a) & (r.a ^ value)) >> 7 & 1;
  } else {
    const u32 sum = before + value + r.carry;
    r.overflow = (~(before ^ value) & (before ^ sum)) >> 7 & 1;
    r.carry = sum >> 8;
    r.a = sum & 0xFF;
  }
  r.nz = r.a;
}

JAXRL_INLINE void subtract(Registers& r, u32 value) {
  if (JAXRL_UNLIKELY(r.decimal)) {
    const u32 before = r.a, borrow = 1 - r.carry;
    i32 difference = from_digits(before) - from_digits(value) - (i32)borrow;
    if (difference < 0) difference += 100;
    r.a = to_digits(difference & 0xFF);
    r.nz = r.a;
    r.carry = before >= value + borrow;
    r.overflow = ((before ^ r.a) & (r.a ^ value)) >> 7 & 1;
  } else {
    add(r, value ^ 0xFF);
  }
}

JAXRL_INLINE void compare(Registers& r, u32 held, u32 value) {
  r.carry = held >= value;
  r.nz = (held - value) & 0xFF;
}

JAXRL_INLINE void rotate_and(Registers& r, u32 value) {
  const u32 both = r.a & value;
  r.a = both >> 1 | r.carry << 7;
  if (!r.decimal) {
    r.carry = r.a >> 6 & 1;
    r.overflow = (r.a >> 6 ^ r.a >> 5) & 1;
    r.nz = r.a;
    return;
  }
  r.nz = (r.a != 0) | r.carry << 15;
  r.overflow = (both ^ r.a) >> 6 & 1;
  if ((both & 15) + (both & 1) > 5) r.a = (r.a & 0xF0) | ((r.a + 6) & 15);
  r.carry = ((both + (both & 0x10)) & 0x1F0) > 0x50;
  if (r.carry) r.a = (r.a + 0x60) & 0xFF;
}

// Lets an operation take the value that it has read.
template <Operation operation>
JAXRL_INLINE void take(Registers& r, u32 value) {
  using O = Operation;
  if constexpr (operation == O::LDA) r.nz = r.a = value;
  if constexpr (operation == O::LDX) r.nz = r.x = value;
  if constexpr (operation == O::LDY) r.nz = r.y = value;
  if constexpr (operation == O::LAX) r.nz = r.a = r.x = value;
  if constexpr (operation == O::AND) r.nz = r.a &= value;
  if constexpr (operation == O::ORA) r.nz = r.a |= value;
  if constexpr (operation == O::EOR) r.nz = r.a ^= value;
  if constexpr (operation == O::ADC) add(r, value);
  if constexpr (operation == O::SBC) subtract(r, value);
  if constexpr (operation == O::CMP) compare(r, r.a, value);
  if constexpr (operation == O::CPX) compare(r, r.x, value);
  if constexpr (operation == O::CPY) compare(r, r.y, value);
  if constexpr (operation == O::BIT) {
    r.overflow = value >> 6 & 1;
    r.nz = (r.a & value) | (value & 0x80) << 8;
  }
  if constexpr (operation == O::ANC) {
    r.nz = r.a &= value;
    r.carry = r.a >> 7;
  }
  if constexpr (operation == O::ALR) {
    r.carry = r.a & value & 1;
    r.nz = r.a = (r.a & value) >> 1;
  }
  if constexpr (operation == O::ARR) rotate_and(r, value);
  if constexpr (operation == O::SBX) {
    const u32 held = r.a & r.x;
    compare(r, held, value);
    r.x = r.nz;
  }
  if constexpr (operation == O::ANE) r.nz = r.a = (r.a | 0xEE) & r.x & value;
  if constexpr (operation == O::LXA) r.nz = r.a = r.x = (r.a | 0xEE) & value;
  if constexpr (operation == O::LAS) r.nz = r.a = r.x = r.sp = r.sp & value;
}

// Returns what an operation makes of the value that it has read and writes back.
template <Operation operation>
JAXRL_INLINE u32 modified(Registers& r, u32 value) {
  using O = Operation;
  const u32 carried = r.carry;
  u32 result = value;
  if constexpr (operation == O::ASL || operation == O::SLO) {
    r.carry = value >> 7;
    result = value << 1 & 0xFF;
  }
  if constexpr (operation == O::LSR || operation == O::SRE) {
    r.carry = value & 1;
    result = value >> 1;
  }
  if constexpr (operation == O::ROL || operation == O::RLA) {
    r.carry = value >> 7;
    result = (value << 1 & 0xFF) | carried;
  }
  if constexpr (operation == O::ROR || operation == O::RRA) {
    r.carry = value & 1;
    result = value >> 1 | carried << 7;
  }
  if constexpr (operation == O::INC || operation == O::ISB) result = (value + 1) & 0xFF;
  if constexpr (operation == O::DEC || operation == O::DCP) result = (value - 1) & 0xFF;
  r.nz = result;
  return result;
}

// The second half of the undocumented operations that modify memory and then take it.
template <Operation operation>
JAXRL_INLINE void take_modified(Registers& r, u32 value) {
  using O = Operation;
  if constexpr (operation == O::SLO) take<O::ORA>(r, value);
  if constexpr (operation == O::RLA) take<O::AND>(r, value);
  if constexpr (operation == O::SRE) take<O::EOR>(r, value);
  if constexpr (operation == O::RRA) take<O::ADC>(r, value);
  if constexpr (operation == O::DCP) take<O::CMP>(r, value);
  if constexpr (operation == O::ISB) take<O::SBC>(r, value);
}

// Returns what an operation stores at an address; the SH? operations store the address's high byte
// plus 1 with it.
template <Operation operation>
JAXRL_INLINE u32 stored(Registers& r, u32 address) {
  using O = Operation;
  const u32 next_page = ((address >> 8) + 1) & 0xFF;
  if constexpr (operation == O::STA) return r.a;
  if constexpr (operation == O::STX) return r.x;
  if constexpr (operation == O::STY) return r.y;
  if constexpr (operation == O::SAX) return r.a & r.x;
  if constexpr (operation == O::SHA) return r.a & r.x & next_page;
  if constexpr (operation == O::SHX) return r.x & next_page;
  if constexpr (operation == O::SHY) return r.y & next_page;
  if constexpr (operation == O::SHS) {
    r.sp = r.a & r.x;
    return r.sp & next_page;
  }
}

template <Operation operation>
JAXRL_INLINE void change_registers(Registers& r) {
  using O = Operation;
  if constexpr (operation == O::TAX) r.nz = r.x = r.a;
  if constexpr (operation == O::TAY) r.nz = r.y = r.a;
  if constexpr (operation == O::TXA) r.nz = r.a = r.x;
  if constexpr (operation == O::TYA) r.nz = r.a = r.y;
  if constexpr (operation == O::TSX) r.nz = r.x = r.sp;
  if constexpr (operation == O::TXS) r.sp = r.x;
  if constexpr (operation == O::INX) r.nz = r.x = (r.x + 1) & 0xFF;
  if constexpr (operation == O::INY) r.nz = r.y = (r.y + 1) & 0xFF;
  if constexpr (operation == O::DEX) r.nz = r.x = (r.x - 1) & 0xFF;
  if constexpr (operation == O::DEY) r.nz = r.y = (r.y - 1) & 0xFF;
  if constexpr (operation == O::CLC) r.carry = 0;
  if constexpr (operation == O::SEC) r.carry = 1;
  if constexpr (operation == O::CLI) r.no_interrupts = 0;
  if constexpr (operation == O::SEI) r.no_interrupts = 1;
  if constexpr (operation == O::CLV) r.overflow = 0;
  if constexpr (operation == O::CLD) r.decimal = 0;
  if constexpr (operation == O::SED) r.decimal = 1;
}

template <Operation operation>
JAXRL_INLINE bool branches(const Registers& r) {
  using O = Operation;
  if constexpr (operation == O::BPL) return !(r.nz & 0x8080);
  if constexpr (operation == O::BMI) return r.nz & 0x8080;
  if constexpr (operation == O::BVC) return !r.overflow;
  if constexpr (operation == O::BVS) return r.overflow;
  if constexpr (operation == O::BCC) return !r.carry;
  if constexpr (operation == O::BCS) return r.carry;
  if constexpr (operation == O::BNE) return r.nz & 0xFF;
  if constexpr (operation == O::BEQ) return !(r.nz & 0xFF);
}

// --- one instruction at a time -------------------------------------------------------------------

#if !JAXRL_GPU

struct Plain {
  Machine& machine;
  Registers r;
  u32 pc;

  u8 fetch() { return read_memory(machine, pc++ & 0xFFFF); }
  u32 fetch_word() {
    const u32 low = fetch();
    return low | (u32)fetch() << 8;
  }
  void pass(u32 cycles) { machine.console->cycle += (i32)cycles; }
  void push(u32 value) {
    write_memory(machine, 0x100 + r.sp, (u8)value);
    r.sp = (r.sp - 1) & 0xFF;
  }
  u32 pull() {
    r.sp = (r.sp + 1) & 0xFF;
    return read_memory(machine, 0x100 + r.sp);
  }
  // The first pull of an instruction: the processor reads the stack once before it moves on.
  u32 pull_first() {
    read_memory(machine, 0x100 + r.sp);
    return pull();
  }

  // Returns the address that an instruction names. An indexed read takes a cycle more across a page.
  template <Mode mode>
  u32 address(bool reads) {
    if constexpr (mode == Mode::Immediate) return pc++ & 0xFFFF;
    if constexpr (mode == Mode::Zero) return fetch();
    if constexpr (mode == Mode::ZeroX) return (fetch() + r.x) & 0xFF;
    if constexpr (mode == Mode::ZeroY) return (fetch() + r.y) & 0xFF;
    if constexpr (mode == Mode::Absolute) return fetch_word();
    if constexpr (mode == Mode::IndirectX) {
      const u32 pointer = (fetch() + r.x) & 0xFF;
      const u32 low = read_memory(machine, pointer);
      return low | (u32)read_memory(machine, pointer + 1) << 8;
    }
    if constexpr (mode == Mode::AbsoluteX || mode == Mode::AbsoluteY || mode == Mode::IndirectY) {
      u32 base;
      if constexpr (mode == Mode::IndirectY) {
        const u32 pointer = fetch();
        base = read_memory(machine, pointer);
        base |= (u32)read_memory(machine, pointer + 1) << 8;
      } else {
        base = fetch_word();
      }
      const u32 index = mode == Mode::AbsoluteX ? r.x : r.y;
      if (reads) pass(((base & 0xFF) + index) >> 8);
      return (base + index) & 0xFFFF;
    }
    return 0;
  }

  template <Operation operation, Kind kind, Mode mode, u32 cycles>
  void play() {
    using O = Operation;
    pass(cycles);
    if constexpr (kind == Kind::Read || kind == Kind::OddRead) {
      const u32 from = address<mode>(true);
      take<operation>(r, read_memory(machine, from));
    } else if constexpr (kind == Kind::Write || kind == Kind::OddWrite) {
      const u32 to = address<mode>(false);
      const u32 value = stored<operation>(r, to);
      write_memory(machine, to, (u8)value);
    } else if constexpr (mode == Mode::Accumulator) {
      r.a = modified<operation>(r, r.a);
    } else if constexpr (kind == Kind::Modify || kind == Kind::OddModify) {
      const u32 at = address<mode>(false);
      const u32 value = modified<operation>(r, read_memory(machine, at));
      write_memory(machine, at, (u8)value);
      take_modified<operation>(r, value);
    } else if constexpr (kind == Kind::Register || kind == Kind::OddRegister) {
      change_registers<operation>(r);
    } else if constexpr (kind == Kind::Branch) {
      const i8 distance = (i8)fetch();
      if (branches<operation>(r)) {
        const u32 target = (pc + (u32)(i32)distance) & 0xFFFF;
        pass(1 + ((target ^ pc) >> 8 & 1));
        pc = target;
      }
    } else if constexpr (operation == O::JMP) {
      const u32 target = fetch_word();
      if constexpr (mode == Mode::Indirect) {
        // The pointer's high byte comes from the same page.
        const u32 low = read_memory(machine, target);
        pc = low | (u32)read_memory(machine, (target & 0xFF00) | ((target + 1) & 0xFF)) << 8;
      } else {
        pc = target;
      }
    } else if constexpr (operation == O::JSR) {
      const u32 low = fetch();
      push(pc >> 8 & 0xFF);
      push(pc & 0xFF);
      pc = low | (u32)fetch() << 8;
    } else if constexpr (operation == O::RTS) {
      const u32 low = pull_first();
      pc = low | pull() << 8;
      fetch();
    } else if constexpr (operation == O::RTI) {
      unpack_flags(r, pull_first());
      const u32 low = pull();
      pc = low | pull() << 8;
    } else if constexpr (operation == O::BRK) {
      pc++;
      push(pc >> 8 & 0xFF);
      push(pc & 0xFF);
      push(packed_flags(r));
      r.no_interrupts = 1;
      const u32 low = read_memory(machine, 0xFFFE);
      pc = low | (u32)read_memory(machine, 0xFFFF) << 8;
    } else if constexpr (operation == O::PHA) {
      push(r.a);
    } else if constexpr (operation == O::PHP) {
      push(packed_flags(r));
    } else if constexpr (operation == O::PLA) {
      r.nz = r.a = pull_first();
    } else if constexpr (operation == O::PLP) {
      unpack_flags(r, pull_first());
    } else if constexpr (operation == O::JAM) {
      pc--;
    }
  }

  void play_one() {
    switch (fetch()) {
#define JAXRL_CASE(code, operation, kind, mode, cycles) \
  case code: play<Operation::operation, Kind::kind, Mode::mode, cycles>(); break;
      OPCODES(JAXRL_CASE)
#undef JAXRL_CASE
    }
    pc &= 0xFFFF;
  }
};

#endif

}  // namespace jaxrl

#if JAXRL_GPU
#include "staged.h"
#endif

namespace jaxrl {

#if JAXRL_GPU
using OneByOne = Staged;
#else
using OneByOne = Plain;
#endif

// Plays instructions until the frame is over or `most` are played; returns how many were.
inline u32 play_plainly(Machine& machine, u32 most) {
  Cpu& cpu = machine.console->cpu;
  OneByOne processor{machine, loaded(cpu), cpu.pc};
  u32 played = 0;
  while (played < most && !machine.frame_over) {
    processor.play_one();
    played++;
  }
  store_registers(cpu, processor.r);
  cpu.pc = (u16)processor.pc;
  return played;
}

}  // namespace jaxrl
