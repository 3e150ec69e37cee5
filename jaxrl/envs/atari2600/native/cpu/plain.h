// The plain interpreter: one instruction at a time, with every access to the bus in its order.
//
// The threaded interpreter (threaded.h) shares the operations and is much faster; this one plays
// what that one leaves out (undocumented opcodes, programs that run in RAM), counts instructions,
// and is what the fast one is tested against.
#pragma once

#include "bus/machine.h"
#include "cpu/opcodes.h"
#include "cpu/operations.h"
#include "cpu/processor.h"

namespace jaxrl {

struct Plain : Processor {
  // From RAM, where programs that it plays often are, without the memory map.
  u8 fetch() {
    const u32 address = pc++ & 0xFFFF;
    if ((address & 0x1280) != 0x80) return read_memory(machine, address);
    machine.console->read_last = 1;
    return machine.console->bus = machine.console->riot.ram[address & 0x7F];
  }
  u32 fetch_word() {
    const u32 low = fetch();
    return low | (u32)fetch() << 8;
  }

  // Returns the address that an instruction names.
  // An indexed read takes a cycle more across a page.
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

}  // namespace jaxrl
