// The interpreter of GPUs: one instruction at a time, in stages that all instructions share.
//
// The lanes of a warp play different games, so at any moment they are at different opcodes, and a
// handler for each opcode would be played for one lane after another. Here every lane passes the
// same stages: it fetches, forms the address, reads, computes, writes. Only computing differs,
// which is short; what is long, an access to the bus, happens in one place for all lanes that need
// it.
//
// Every access comes in the order in which the plain interpreter (plain.h) makes it.
#pragma once

#include "bus/machine.h"
#include "cpu/opcodes.h"
#include "cpu/operations.h"
#include "cpu/processor.h"

namespace jaxrl {

// What the stages do for an opcode.
struct Stages {
  Operation operation;
  Mode mode;
  u8 cycles;
  u8 does;  // bits below
};
constexpr u8 kFetches = 3;  // bytes of the operand, fetched first
constexpr u8 kPoints = 4;   // the operand names an address that holds the address
constexpr u8 kReadsValue = 8, kWritesValue = 16;
constexpr u8 kPaysForPages = 32;  // an indexed read takes a cycle more across a page
constexpr u8 kTakesAfter = 64;    // takes what it has written

constexpr Stages stages_of(Operation operation, Kind kind, Mode mode, u8 cycles) {
  const bool reads = kind == Kind::Read || kind == Kind::OddRead;
  const bool writes = kind == Kind::Write || kind == Kind::OddWrite;
  const bool modifies =
      (kind == Kind::Modify || kind == Kind::OddModify) && mode != Mode::Accumulator;
  // JSR fetches the second byte after it has pushed.
  u32 does = operation == Operation::JSR || mode == Mode::Immediate ? 0 : length_of(mode) - 1;
  if (mode == Mode::Indirect || mode == Mode::IndirectX || mode == Mode::IndirectY) does |= kPoints;
  if (reads || modifies) does |= kReadsValue;
  if (writes || modifies) does |= kWritesValue;
  if (reads) does |= kPaysForPages;
  if (kind == Kind::OddModify) does |= kTakesAfter;
  return {operation, mode, cycles, (u8)does};
}
inline constexpr Stages kStages[256] = {
#define JAXRL_ROW(code, operation, kind, mode, cycles) \
  stages_of(Operation::operation, Kind::kind, Mode::mode, cycles),
    OPCODES(JAXRL_ROW)
#undef JAXRL_ROW
};

// Operations by what they compute.
// clang-format off: it cannot wrap lists of calls
#define JAXRL_TAKES(DO) \
  DO(ADC) DO(ALR) DO(ANC) DO(AND) DO(ANE) DO(ARR) DO(BIT) DO(CMP) DO(CPX) DO(CPY) DO(EOR) DO(LAS) \
  DO(LAX) DO(LDA) DO(LDX) DO(LDY) DO(LXA) DO(ORA) DO(SBC) DO(SBX)
#define JAXRL_MODIFIES(DO) \
  DO(ASL) DO(DCP) DO(DEC) DO(INC) DO(ISB) DO(LSR) DO(RLA) DO(ROL) DO(ROR) DO(RRA) DO(SLO) DO(SRE)
#define JAXRL_STORES(DO) DO(SAX) DO(SHA) DO(SHS) DO(SHX) DO(SHY) DO(STA) DO(STX) DO(STY)
#define JAXRL_CHANGES(DO) \
  DO(CLC) DO(CLD) DO(CLI) DO(CLV) DO(DEX) DO(DEY) DO(INX) DO(INY) DO(SEC) DO(SED) DO(SEI) DO(TAX) \
  DO(TAY) DO(TSX) DO(TXA) DO(TXS) DO(TYA)
#define JAXRL_BRANCHES(DO) DO(BCC) DO(BCS) DO(BEQ) DO(BMI) DO(BNE) DO(BPL) DO(BVC) DO(BVS)
// clang-format on

struct Staged : Processor {
  u32 read(u32 address) { return read_memory(machine, address); }
  u32 fetch() { return read(pc++ & 0xFFFF); }

  // Returns the address that an instruction names.
  u32 address_of(const Stages& stages) {
    u32 address = 0;
    if (stages.does & kFetches) address = fetch();
    if ((stages.does & kFetches) == 2) address |= fetch() << 8;
    const Mode mode = stages.mode;
    if (mode == Mode::Immediate) address = pc++ & 0xFFFF;
    if (mode == Mode::ZeroX || mode == Mode::IndirectX) address = (address + r.x) & 0xFF;
    if (mode == Mode::ZeroY) address = (address + r.y) & 0xFF;
    if (stages.does & kPoints) {
      // The pointer of a jump has its high byte in the same page.
      const u32 next = address + 1;
      const u32 second = mode == Mode::Indirect ? (address & 0xFF00) | (next & 0xFF) : next;
      const u32 low = read(address);
      address = low | read(second) << 8;
    }
    if (mode == Mode::AbsoluteX || mode == Mode::AbsoluteY || mode == Mode::IndirectY) {
      const u32 index = mode == Mode::AbsoluteX ? r.x : r.y;
      if (stages.does & kPaysForPages) pass(((address & 0xFF) + index) >> 8);
      address = (address + index) & 0xFFFF;
    }
    return address;
  }

  void branch(u32 operand) {
    const u32 target = (pc + (u32)(i32)(i8)operand) & 0xFFFF;
    pass(1 + ((target ^ pc) >> 8 & 1));
    pc = target;
  }

  // Plays an operation that moves the program counter or the stack.
  void flow(Operation operation, u32 address) {
    using O = Operation;
    switch (operation) {
      case O::JMP: pc = address; break;
      case O::JSR: {
        const u32 low = fetch();
        push(pc >> 8 & 0xFF);
        push(pc & 0xFF);
        pc = low | fetch() << 8;
        break;
      }
      case O::RTS:
      case O::RTI: {
        u32 low = pull_first();
        if (operation == O::RTI) {
          unpack_flags(r, low);
          low = pull();
        }
        pc = low | pull() << 8;
        if (operation == O::RTS) fetch();
        break;
      }
      case O::BRK: {
        pc++;
        push(pc >> 8 & 0xFF);
        push(pc & 0xFF);
        push(packed_flags(r));
        r.no_interrupts = 1;
        const u32 low = read(0xFFFE);
        pc = low | read(0xFFFF) << 8;
        break;
      }
      case O::PHA: push(r.a); break;
      case O::PHP: push(packed_flags(r)); break;
      case O::PLA: r.nz = r.a = pull_first(); break;
      case O::PLP: unpack_flags(r, pull_first()); break;
      case O::JAM: pc--; break;
      default: break;  // NOP
    }
  }

  // Computes with the value that was read, and returns the one that is written, if any is.
  u32 compute(Operation operation, u32 value, u32 address) {
    using O = Operation;
    switch (operation) {
      // clang-format off: it would take three lines for each
#define JAXRL_TAKE(name) case O::name: take<O::name>(r, value); break;
#define JAXRL_MODIFY(name) case O::name: return modified<O::name>(r, value);
#define JAXRL_STORE(name) case O::name: return stored<O::name>(r, address);
#define JAXRL_CHANGE(name) case O::name: change_registers<O::name>(r); break;
#define JAXRL_BRANCH(name) case O::name: if (branches<O::name>(r)) branch(address); break;
      // clang-format on
      JAXRL_TAKES(JAXRL_TAKE)
      JAXRL_MODIFIES(JAXRL_MODIFY)
      JAXRL_STORES(JAXRL_STORE)
      JAXRL_CHANGES(JAXRL_CHANGE)
      JAXRL_BRANCHES(JAXRL_BRANCH)
#undef JAXRL_TAKE
#undef JAXRL_MODIFY
#undef JAXRL_STORE
#undef JAXRL_CHANGE
#undef JAXRL_BRANCH
      default: flow(operation, address);
    }
    return 0;
  }

  void take_written(Operation operation, u32 value) {
    using O = Operation;
    switch (operation) {
#define JAXRL_TAKE(name) \
  case O::name: take_modified<O::name>(r, value); break;
      JAXRL_MODIFIES(JAXRL_TAKE)
#undef JAXRL_TAKE
      default: break;
    }
  }

  JAXRL_NOINLINE void play_one() {
    const Stages stages = kStages[fetch()];
    pass(stages.cycles);
    const u32 address = address_of(stages);
    const bool of_accumulator = stages.mode == Mode::Accumulator;
    const u32 value = stages.does & kReadsValue ? read(address) : r.a;
    const u32 result = compute(stages.operation, value, address);
    if (of_accumulator) r.a = result;
    if (stages.does & kWritesValue) write_memory(machine, address, (u8)result);
    if (stages.does & kTakesAfter) take_written(stages.operation, result);
    pc &= 0xFFFF;
  }
};

}  // namespace jaxrl
