// The 6507: what its operations do to the registers. All interpreters share them.
//
// Decimal mode, N and Z after it and the undocumented opcodes are as in ALE. Flags N and Z are kept
// as the value that set them: `nz` is negative where bit 7 or 15 is set, and zero where its low
// byte is 0.
#pragma once

#include "base/types.h"
#include "bus/machine.h"
#include "cpu/opcodes.h"

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

}  // namespace jaxrl
