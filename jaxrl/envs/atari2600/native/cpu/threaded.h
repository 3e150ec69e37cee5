// The fast interpreter: a cartridge is decoded once,
// and each instruction jumps to the next one's handler.
//
// Decoding looks at the operand, so that a handler knows what it touches: RAM, a byte of the
// cartridge (a constant), a plain register of the TIA, WSYNC, the timer. Registers stay in the
// machine's registers, and only what leaves RAM and the cartridge goes through bus/machine.h.
//
// A program that waits is not played: polls of the timer and loops that count X or Y down are
// passed over in closed form, to the same cycle and the same registers.
//
// What is rare is left to the plain interpreter, one instruction at a time: undocumented opcodes
// and programs in RAM. Nothing is counted here; a frame that runs far beyond its last line leaves
// with `kRunsOn` and is played again by the plain interpreter, which counts to ALE's 25,000.
//
// Needs "labels as values" (GCC, Clang).
#pragma once

#include "base/types.h"
#include "bus/machine.h"
#include "cpu/handlers.h"
#include "cpu/opcodes.h"
#include "cpu/operations.h"
#include "cpu/pairs.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"

namespace jaxrl {

// How a decoded instruction reaches its operand.
// clang-format off: two names share a comment
enum class Special : u8 {
  Constant,       // a byte of the cartridge
  Ram,            // in the zero page or by its absolute address
  Timer,          // INTIM
  ZeroX, ZeroY,   // zero page, indexed: RAM or TIA
  RomX, RomY,     // absolute in the cartridge, indexed
  Anywhere,       // absolute
  AnywhereX, AnywhereY,
  PointerX, PointerY,  // through the zero page
  Plain,          // a register of the TIA whose write can be dropped when it changes nothing
  Strobe,         // one that cannot
  Graphics,       // GRP0 and GRP1
  Sync,           // VSYNC
  Wait,           // WSYNC
  Unseen,         // sound and addresses without a register
  Accumulator,
  None,
  kCount,
};
// clang-format on

// Why the threaded interpreter stops: the frame is over or another bank is seen, the next
// instruction is for the plain interpreter, or the frame runs far beyond its last line.
enum class Leaving : u8 { kStops, kPlain, kRunsOn };

// The processor while it runs; every member lives in a register of the machine.
struct Threaded {
  Registers r;
  i32 cycle;
  const Op* op;
  u32 page;  // upper four bits of the program counter
  LoggedWrite* log;
  u8* ram;
  Machine& machine;
  Console& console;
  const Bank& bank;

  u32 pc() const { return (page + (u32)(op - bank.ops)) & 0xFFFF; }
};

constexpr i32 kFarBeyond = (kLastPalLines + 10) * kCyclesPerLine;

JAXRL_NOINLINE inline u8 read_slowly(Machine& machine, u32 address, u32 bus, i32 cycle,
                                     LoggedWrite* log) {
  machine.console->bus = (u8)bus;
  machine.console->cycle = cycle;
  machine.log = log;
  return read_memory(machine, address & 0xFFFF);
}

// Returns the cycle after the write: WSYNC waits, unless the access before was a write too.
JAXRL_NOINLINE inline i32 write_slowly(Machine& machine, u32 address, u32 value, i32 cycle,
                                       LoggedWrite* log, bool read_last) {
  Console& console = *machine.console;
  console.cycle = cycle;
  machine.log = log;
  console.read_last = read_last;
  write_memory(machine, address & 0xFFFF, (u8)value);
  return console.cycle;
}

// `bus` is the byte that the processor has read last: undriven bits of the TIA show it. `switched`
// becomes true where the read has chosen another bank.
JAXRL_INLINE u32 read_any(Threaded& t, u32 address, u32 bus, bool& switched) {
  if (JAXRL_LIKELY(t.bank.shows(address))) return t.bank.image[address & (kImage - 1)];
  if ((address & 0x1280) == 0x80) return t.ram[address & 0x7F];
  const u8 value = read_slowly(t.machine, address, bus, t.cycle, t.log);
  switched = t.machine.switched;
  return value;
}
JAXRL_INLINE u32 read_any(Threaded& t, u32 address, u32 bus) {
  bool switched;
  return read_any(t, address, bus, switched);
}

JAXRL_INLINE void write_any(Threaded& t, u32 address, u32 value, bool read_last = true) {
  if (JAXRL_LIKELY((address & 0x1280) == 0x80)) {
    t.ram[address & 0x7F] = (u8)value;
  } else {
    t.cycle = write_slowly(t.machine, address, value, t.cycle, t.log, read_last);
    t.log = t.machine.log;
  }
}

JAXRL_INLINE u32 read_zero(Threaded& t, u32 address, u32 bus) {
  if (JAXRL_LIKELY(address & 0x80)) return t.ram[address & 0x7F];
  return read_slowly(t.machine, address, bus, t.cycle, t.log);
}

JAXRL_INLINE void push(Threaded& t, u32 value, bool read_last = true) {
  write_any(t, 0x100 + t.r.sp, value, read_last);
  t.r.sp = (t.r.sp - 1) & 0xFF;
}

JAXRL_INLINE u32 pull(Threaded& t, u32 bus) {
  t.r.sp = (t.r.sp + 1) & 0xFF;
  return read_zero(t, t.r.sp, bus);
}

// The first pull of an instruction: the processor reads the stack once before it moves on, which
// shows where the stack has run out of RAM into the TIA.
JAXRL_INLINE u32 pull_first(Threaded& t, u32 bus) {
  if (JAXRL_UNLIKELY(!((t.r.sp + 1) & 0x80))) bus = read_zero(t, t.r.sp, bus);
  return pull(t, bus);
}

JAXRL_INLINE u32 pointer_at(Threaded& t, u32 zero, u32 bus) {
  const u32 low = read_zero(t, zero, bus);
  return low | read_zero(t, (zero + 1) & 0xFF, low) << 8;
}

// Returns the address of an operand that is not a constant;
// a read takes a cycle more across a page.
template <Special special, bool reads>
JAXRL_INLINE u32 address_of(Threaded& t) {
  const u32 operand = t.op->operand;
  if constexpr (special == Special::ZeroX) return (operand + t.r.x) & 0xFF;
  if constexpr (special == Special::ZeroY) return (operand + t.r.y) & 0xFF;
  if constexpr (special == Special::PointerX)
    return pointer_at(t, (operand + t.r.x) & 0xFF, operand);
  if constexpr (special == Special::PointerY) {
    const u32 base = pointer_at(t, operand, operand);
    if (reads) t.cycle += (i32)(((base & 0xFF) + t.r.y) >> 8);
    return base + t.r.y;
  }
  if constexpr (special == Special::RomX || special == Special::AnywhereX) {
    if (reads) t.cycle += (i32)(((operand & 0xFF) + t.r.x) >> 8);
    return operand + t.r.x;
  }
  if constexpr (special == Special::RomY || special == Special::AnywhereY) {
    if (reads) t.cycle += (i32)(((operand & 0xFF) + t.r.y) >> 8);
    return operand + t.r.y;
  }
  return operand;
}

// Returns the byte that the processor has read last before it reads this operand: the second byte
// of a short instruction, else the high byte of the address.
template <Special special, u32 length>
JAXRL_INLINE u32 bus_before(const Threaded& t, u32 address) {
  if constexpr (special == Special::PointerX) return address >> 8;
  if constexpr (special == Special::PointerY) return (address - t.r.y) >> 8;
  return length == 2 ? t.op->operand : t.op->operand >> 8;
}

template <Special special, u32 length>
JAXRL_INLINE u32 read_operand(Threaded& t, bool& switched) {
  if constexpr (special == Special::Constant) return t.op->operand;
  if constexpr (special == Special::Ram) return t.ram[t.op->operand & 0x7F];
  if constexpr (special == Special::Timer) return read_timer(t.console.riot, t.cycle);
  const u32 address = address_of<special, true>(t);
  if constexpr (special == Special::RomX || special == Special::RomY)
    return t.bank.image[address & (kImage - 1)];
  const u32 bus = bus_before<special, length>(t, address);
  if constexpr (special == Special::ZeroX || special == Special::ZeroY)
    return read_zero(t, address, bus);
  return read_any(t, address, bus, switched);
}

// Writes a register of the TIA; returns whether that ends the frame.
template <Special special>
JAXRL_INLINE bool write_register(Threaded& t, u32 value) {
  const u32 index = t.op->operand & 0x3F;
  const bool late = t.cycle >= t.machine.last_cycle;
  if constexpr (special == Special::Plain) {
    u8& shadow = t.machine.shadow[index];
    if (shadow != value) {
      if (index == VBLANK) ground_paddles(t.console, shadow, (u8)value, t.cycle);
      shadow = (u8)value;
      if (t.machine.logged >> index & 1) *t.log++ = logged_write(index, (u8)value, t.cycle);
    }
  }
  if constexpr (special == Special::Graphics) {
    shadow_graphics(t.machine, index, (u8)value);
    if (t.machine.logged >> index & 1) *t.log++ = logged_write(index, (u8)value, t.cycle);
  }
  if constexpr (special == Special::Strobe) {
    if (index == HMCLR) memset(t.machine.shadow + HMP0, 0, 5);
    t.machine.shadow[index] = (u8)value;
    *t.log++ = logged_write(index, (u8)value, t.cycle);
  }
  if constexpr (special == Special::Wait)
    t.cycle = (i32)((u32)(t.cycle + kCyclesPerLine - 1) / kCyclesPerLine * kCyclesPerLine);
  if constexpr (special == Special::Sync) return write_vsync(t.console, (u8)value, t.cycle) || late;
  return late;
}

constexpr bool is_register(Special special) {
  return special == Special::Plain || special == Special::Strobe || special == Special::Graphics ||
         special == Special::Sync || special == Special::Wait || special == Special::Unseen;
}

// Returns how an instruction with this operand reaches it.
inline Special special_of(Kind kind, Mode mode, u32 operand, const Bank& bank) {
  const bool rom = bank.shows(operand), ram = (operand & 0x1280) == 0x80;
  const bool zero = mode == Mode::Zero;
  switch (mode) {
    case Mode::Implied:
    case Mode::Relative:
    case Mode::Indirect: return Special::None;
    case Mode::Accumulator: return Special::Accumulator;
    case Mode::Immediate: return Special::Constant;
    case Mode::ZeroX: return Special::ZeroX;
    case Mode::ZeroY: return Special::ZeroY;
    case Mode::IndirectX: return Special::PointerX;
    case Mode::IndirectY: return Special::PointerY;
    case Mode::AbsoluteX:
    case Mode::AbsoluteY: {
      const bool inside = kind == Kind::Read && rom && bank.shows(operand + 0xFF);
      if (mode == Mode::AbsoluteX) return inside ? Special::RomX : Special::AnywhereX;
      return inside ? Special::RomY : Special::AnywhereY;
    }
    default: break;
  }
  if (kind == Kind::Flow) return Special::None;
  if (zero ? (operand & 0x80) != 0 : ram) return Special::Ram;
  if (kind == Kind::Read && rom) return Special::Constant;
  if (kind == Kind::Read && (operand & 0x1285) == 0x284) return Special::Timer;
  if (kind == Kind::Write && !(operand & 0x1080)) {
    const u32 index = operand & 0x3F;
    if (index == VSYNC) return Special::Sync;
    if (index == WSYNC) return Special::Wait;
    if (!is_seen(index)) return Special::Unseen;
    if (index == GRP0 || index == GRP1) return Special::Graphics;
    return kPlainRegisters >> index & 1 ? Special::Plain : Special::Strobe;
  }
  return Special::Anywhere;
}

// Plays one instruction. Returns whether the interpreter must stop after it.
template <Operation operation, Kind kind, Special special, u32 length, u32 cycles>
JAXRL_INLINE bool play_special(Threaded& t) {
  using O = Operation;
  t.cycle += (i32)cycles;
  if constexpr (kind == Kind::Read) {
    bool switched = false;
    take<operation>(t.r, read_operand<special, length>(t, switched));
    t.op += length;
    return switched;
  } else if constexpr (kind == Kind::Write) {
    if constexpr (special == Special::Ram) {
      t.ram[t.op->operand & 0x7F] = (u8)stored<operation>(t.r, 0);
    } else if constexpr (is_register(special)) {
      const bool over = write_register<special>(t, stored<operation>(t.r, 0));
      t.op += length;
      if (JAXRL_UNLIKELY(over)) t.machine.frame_over = true;
      return over;
    } else {
      const u32 address = address_of<special, false>(t);
      write_any(t, address, stored<operation>(t.r, address));
    }
  } else if constexpr (kind == Kind::Modify) {
    if constexpr (special == Special::Accumulator) {
      t.r.a = modified<operation>(t.r, t.r.a);
    } else if constexpr (special == Special::Ram) {
      u8& byte = t.ram[t.op->operand & 0x7F];
      byte = (u8)modified<operation>(t.r, byte);
    } else {
      const u32 address = address_of<special, false>(t);
      const u32 bus = bus_before<special, length>(t, address);
      const u32 value = modified<operation>(t.r, read_any(t, address, bus));
      write_any(t, address, value);
    }
  } else if constexpr (kind == Kind::Register) {
    change_registers<operation>(t.r);
  } else if constexpr (operation == O::PHA) {
    push(t, t.r.a);
  } else if constexpr (operation == O::PHP) {
    push(t, packed_flags(t.r));
  } else if constexpr (operation == O::PLA) {
    t.r.nz = t.r.a = pull_first(t, 0x68);
  } else if constexpr (operation == O::PLP) {
    unpack_flags(t.r, pull_first(t, 0x28));
  }
  t.op += length;
  // A slow write may have been one to the TIA.
  constexpr bool may_end = kind == Kind::Write || kind == Kind::Modify || kind == Kind::Flow;
  return may_end && special != Special::Ram && special != Special::Accumulator && t.machine.stops();
}

// Jumps; returns false where the target is not in this bank. The high byte of the address was the
// last on the bus.
JAXRL_INLINE bool jump_to(Threaded& t, u32 address) {
  if (JAXRL_UNLIKELY(!(address & 0x1000))) t.console.bus = (u8)(address >> 8);
  t.page = address & 0xF000;
  t.op = t.bank.ops + (address & (kImage - 1));
  return t.bank.holds(address);
}

constexpr bool jumps(Operation operation) {
  using O = Operation;
  return operation == O::JMP || operation == O::JSR || operation == O::RTS || operation == O::RTI ||
         operation == O::BRK;
}

// Plays a jump, a call or a return. Returns false where its target is not in this bank.
template <Operation operation, Mode mode>
JAXRL_INLINE bool play_flow(Threaded& t) {
  using O = Operation;
  const u32 operand = t.op->operand;
  if constexpr (operation == O::JMP && mode == Mode::Absolute) return jump_to(t, operand);
  if constexpr (operation == O::JMP && mode == Mode::Indirect) {
    // The pointer's high byte comes from the same page.
    const u32 low = read_any(t, operand, operand >> 8);
    const u32 high = read_any(t, (operand & 0xFF00) | ((operand + 1) & 0xFF), low);
    return jump_to(t, low | high << 8);
  }
  if constexpr (operation == O::JSR) {
    const u32 last = t.pc() + 2;
    push(t, last >> 8 & 0xFF);
    push(t, last & 0xFF, false);
    return jump_to(t, operand);
  }
  if constexpr (operation == O::RTS) {
    const u32 low = pull_first(t, 0x60);
    const u32 high = pull(t, low), last = low | high << 8;
    const bool stays = jump_to(t, (last + 1) & 0xFFFF);
    // The processor reads the byte before the one that it returns to.
    if (JAXRL_UNLIKELY(!stays || !t.bank.shows(last))) t.console.bus = (u8)read_any(t, last, high);
    return stays;
  }
  if constexpr (operation == O::RTI) {
    const u32 flags = pull_first(t, 0x40);
    unpack_flags(t.r, flags);
    const u32 low = pull(t, flags);
    return jump_to(t, low | pull(t, low) << 8);
  }
  if constexpr (operation == O::BRK) {
    const u32 after = t.pc() + 2;
    push(t, after >> 8 & 0xFF);
    push(t, after & 0xFF, false);
    push(t, packed_flags(t.r), false);
    t.r.no_interrupts = 1;
    const u32 low = read_any(t, 0xFFFE, 0);
    return jump_to(t, low | read_any(t, 0xFFFF, 0) << 8);
  }
  return true;
}

// --- handlers ------------------------------------------------------------------------------------

// Sanitizers take minutes to compile the pairs.
#ifdef JAXRL_FOR_SANITIZERS
#define JAXRL_PAIRS(ROW)
#else
#define JAXRL_PAIRS(ROW) PAIRS(ROW)
#endif

// clang-format off: it takes these macros for something else
// Handlers by number: first those that decoding makes, then those that stand for whole loops.
enum HandlerId : u16 {
#define JAXRL_ID(code, operation, kind, special, length, cycles) kId_##code##_##special,
  HANDLERS(JAXRL_ID)
#undef JAXRL_ID
  kIdLeave,     // to the plain interpreter
  kIdPollA,     // LDA INTIM, BNE to itself
  kIdPollX,
  kIdPollY,
  kIdCountX,    // DEX, BNE to itself
  kIdCountY,
  kIdPairs,     // two instructions in one handler, in the order of pairs.h
};

struct Pair {
  u16 first, second;
};
inline constexpr Pair kPairsInOne[] = {
#define JAXRL_PAIR(code1, o1, k1, special1, l1, c1, code2, o2, k2, special2, l2, c2) \
  {kId_##code1##_##special1, kId_##code2##_##special2},
    JAXRL_PAIRS(JAXRL_PAIR)
#undef JAXRL_PAIR
    {kIdLeave, kIdLeave},
};
// clang-format on
constexpr u32 kPairsCount = sizeof kPairsInOne / sizeof kPairsInOne[0] - 1;

// Returns the handler of an opcode for an operand of this kind, or `kIdLeave`.
inline u16 handler_of(u8 code, Special special) {
  struct Table {
    u16 of[256][(int)Special::kCount];
    Table() {
      for (auto& row : of)
        for (u16& id : row) id = kIdLeave;
#define JAXRL_ID(code, operation, kind, special, length, cycles) \
  of[code][(int)Special::special] = kId_##code##_##special;
      HANDLERS(JAXRL_ID)
#undef JAXRL_ID
    }
  };
  static const Table table;
  return table.of[code][(int)special];
}

// Passes the turns of a loop that polls the timer, seven cycles each, until it is about to show 0;
// the last turns are played.
JAXRL_INLINE void wait_for_timer(Threaded& t) {
  const Riot& riot = t.console.riot;
  if (!riot.timer || riot.read_late || !riot.interval_shift) return;
  const i32 zero = (i32)((u32)riot.set_at + 1 + ((u32)(riot.timer - 1) << riot.interval_shift));
  const i32 now = t.cycle + 4;
  if (zero > now && zero < kFarBeyond) t.cycle += (zero - now + 6) / 7 * 7;
}

// Plays a loop of DEX or DEY and BNE to its end.
JAXRL_INLINE void count_down(Threaded& t, u32& index) {
  const u32 turns = (index - 1) & 0xFF;
  t.cycle += (i32)(turns * (4 + t.op->taken)) + 4;
  t.r.nz = index = 0;
  t.op += 3;
}

// Plays until the frame is over or somebody else must go on. With a machine of null, returns the
// addresses of the handlers through `labels`.
JAXRL_NOINLINE JAXRL_NOCLONE inline Leaving play_threaded(Machine* played,
                                                          const void* const** labels) {
  // clang-format off: it takes labels for something else
  static const void* const kLabels[] = {
#define JAXRL_LABEL(code, operation, kind, special, length, cycles) &&L_##code##_##special,
      HANDLERS(JAXRL_LABEL)
#undef JAXRL_LABEL
      &&leave, &&poll_a, &&poll_x, &&poll_y, &&count_x, &&count_y,
#define JAXRL_PAIR(code1, o1, k1, special1, l1, c1, code2, o2, k2, special2, l2, c2) \
  &&L_##code1##_##special1##_##code2##_##special2,
      JAXRL_PAIRS(JAXRL_PAIR)
#undef JAXRL_PAIR
  };
  // clang-format on
  if (!played) {
    *labels = kLabels;
    return Leaving::kPlain;
  }
  Leaving leaving = Leaving::kStops;
  Console& console = *played->console;
  const Bank& bank = *played->bank;
  Threaded t{loaded(console.cpu),
             console.cycle,
             bank.ops + (console.cpu.pc & (kImage - 1)),
             (u32)console.cpu.pc & 0xF000,
             played->log,
             console.riot.ram,
             *played,
             console,
             bank};

  // A jump of its own in each handler is what the processor predicts. Sanitizers take minutes to
  // compile that, too: they get one jump.
#ifdef JAXRL_FOR_SANITIZERS
#define JAXRL_NEXT goto next
#else
#define JAXRL_NEXT goto* t.op->handler
#endif
#define JAXRL_TAKE_BRANCH() \
  do { \
    t.cycle += t.op->taken; \
    t.op += t.op->distance; \
    if (JAXRL_UNLIKELY(t.cycle >= kFarBeyond)) goto runs_on; \
  } while (0)
  // clang-format off: it takes labels for something else
  // One instruction, without the jump to the next.
#define JAXRL_PLAY(code, operation, kind, special, length, cycles)                             \
  if constexpr (Kind::kind == Kind::Branch) {                                                  \
    t.cycle += cycles;                                                                         \
    if (branches<Operation::operation>(t.r))                                                   \
      JAXRL_TAKE_BRANCH();                                                                     \
    else                                                                                       \
      t.op += length;                                                                          \
  } else if constexpr (jumps(Operation::operation)) {                                          \
    t.cycle += cycles;                                                                         \
    const bool stays = play_flow<Operation::operation, kOpcodes[code].mode>(t);                \
    if (JAXRL_UNLIKELY(played->stops())) goto out;                                             \
    if (JAXRL_UNLIKELY(!stays)) goto leave;                                                    \
    if (JAXRL_UNLIKELY(t.cycle >= kFarBeyond)) goto runs_on;                                   \
  } else {                                                                                     \
    if (JAXRL_UNLIKELY((play_special<Operation::operation, Kind::kind, Special::special,       \
                                     length, cycles>(t))))                                     \
      goto out;                                                                                \
  }
#define JAXRL_HANDLER(code, operation, kind, special, length, cycles) \
  L_##code##_##special : {                                            \
    JAXRL_PLAY(code, operation, kind, special, length, cycles)        \
  }                                                                   \
  JAXRL_NEXT;

  goto next;
next:
  goto* t.op->handler;
  HANDLERS(JAXRL_HANDLER)
  // clang-format on

poll_a:
  wait_for_timer(t);
  goto L_0xAD_Timer;
poll_x:
  wait_for_timer(t);
  goto L_0xAE_Timer;
poll_y:
  wait_for_timer(t);
  goto L_0xAC_Timer;
count_x:
  count_down(t, t.r.x);
  JAXRL_NEXT;
count_y:
  count_down(t, t.r.y);
  JAXRL_NEXT;

  // clang-format off: it takes labels for something else
#define JAXRL_PAIR(code1, o1, k1, special1, l1, c1, code2, o2, k2, special2, l2, c2) \
  L_##code1##_##special1##_##code2##_##special2 : {                            \
    JAXRL_PLAY(code1, o1, k1, special1, l1, c1)                                \
    JAXRL_PLAY(code2, o2, k2, special2, l2, c2)                                \
  }                                                                            \
  JAXRL_NEXT;
  // clang-format on
  JAXRL_PAIRS(JAXRL_PAIR)
#undef JAXRL_PAIR

runs_on:
  leaving = Leaving::kRunsOn;
  goto out;
leave:
  leaving = Leaving::kPlain;
out:
  store_registers(console.cpu, t.r);
  console.cpu.pc = (u16)t.pc();
  console.cycle = t.cycle;
  played->log = t.log;
  return leaving;
}

#undef JAXRL_NEXT
#undef JAXRL_TAKE_BRANCH
#undef JAXRL_PLAY
#undef JAXRL_HANDLER

// Lets one handler play a loop that waits, or two instructions.
inline void join_loops_and_pairs(Bank& bank, u32 piece, const void* const* labels, const u16* ids) {
  constexpr u32 kLongest = 6;  // bytes of what is joined
  for (u32 address = 0; address + kLongest < kImage; address++) {
    if (address % piece + kLongest > piece) continue;
    Op& op = bank.ops[address];
    const u8* code = bank.image + address;
    const u32 next = address + length_of(kOpcodes[code[0]].mode);
    const bool reads_timer = ids[address] == kId_0xAD_Timer || ids[address] == kId_0xAE_Timer ||
                             ids[address] == kId_0xAC_Timer;
    const bool polls =
        reads_timer && code[3] == 0xD0 && code[4] == 0xFB && bank.ops[address + 3].taken == 1;
    const bool counts = (code[0] == 0xCA || code[0] == 0x88) && code[1] == 0xD0 &&
                        code[2] == 0xFD && ids[address] != kIdLeave && ids[next] != kIdLeave;
    if (polls) {
      op.handler = labels[code[0] == 0xAD ? kIdPollA : code[0] == 0xAE ? kIdPollX : kIdPollY];
      continue;
    }
    if (counts) {
      op.taken = bank.ops[next].taken;
      op.handler = labels[code[0] == 0xCA ? kIdCountX : kIdCountY];
      continue;
    }
    // What begins a loop that waits must not be the second of a pair.
    const bool may_wait =
        ids[next] == kId_0xAD_Timer || ids[next] == kId_0xAE_Timer || ids[next] == kId_0xAC_Timer;
    if (may_wait) continue;
    for (u32 pair = 0; pair < kPairsCount; pair++)
      if (kPairsInOne[pair].first == ids[address] && kPairsInOne[pair].second == ids[next])
        op.handler = labels[kIdPairs + pair];
  }
}

// Decodes the instruction at an address, but for its handler; returns the handler's number.
inline u16 decode_at(const Cartridge& cartridge, const Bank& bank, u32 address, Op& op) {
  const u8* image = bank.image;
  const u8 code = image[address];
  const Opcode& opcode = kOpcodes[code];
  const u32 length = length_of(opcode.mode), piece = cartridge.piece;
  // Fetching it touches a hot spot, or it leaves the cartridge or its slice.
  const u32 last = address + length - 1;
  if (last + 1 >= kImage || last / piece != address / piece) return kIdLeave;
  if (!bank.shows(bank.page | address) || !bank.shows(bank.page | last)) return kIdLeave;
  if (length == 2) op.operand = image[address + 1];
  if (length == 3) op.operand = (u16)(image[address + 1] | image[address + 2] << 8);
  Special special = special_of(opcode.kind, opcode.mode, op.operand, bank);
  if (is_register(special) && mapper_of(cartridge).overhear) return kIdLeave;
  if (opcode.kind == Kind::Branch) {
    const u32 after = address + 2, target = after + (u32)(i32)(i8)op.operand;
    if (target >= kImage || target / piece != address / piece) return kIdLeave;
    op.distance = (i16)(2 + (i8)op.operand);
    op.taken = (u8)(1 + ((target ^ after) >> 8 & 1));
  }
  if (special == Special::Constant && opcode.mode == Mode::Absolute) {
    const u32 offset = op.operand & (kImage - 1);
    // Some slices stay where they are.
    if (!cartridge.has_slices())
      op.operand = image[offset];
    else if (offset >= mapper_of(cartridge).fixed_from)
      op.operand = byte_at(cartridge, CartridgeState{}, offset);
    else
      special = Special::Anywhere;
  }
  return handler_of(code, special);
}

// Decodes the instruction that begins at each byte of the cartridge.
inline void decode(Cartridge& cartridge) {
  const void* const* labels;
  play_threaded(nullptr, &labels);
  u16 ids[kImage + 3];
  for (u32 number = 0; number < cartridge.num_banks; number++) {
    Bank& bank = cartridge.banks[number];
    for (u32 address = 0; address < kImage + 3; address++) {
      Op& op = bank.ops[address];
      op = {labels[kIdLeave], 0, 0, 0};
      ids[address] = address < kImage ? decode_at(cartridge, bank, address, op) : (u16)kIdLeave;
      op.handler = labels[ids[address]];
    }
    join_loops_and_pairs(bank, cartridge.piece, labels, ids);
  }
}

}  // namespace jaxrl

#pragma GCC diagnostic pop
