// The state of a console, and the memory map that its processor sees.
//
//   bit 12 set                    cartridge
//   bit 12 clear, bit 7 clear     TIA
//   bit 12 clear, bit 7 set       RIOT: bit 9 clear RAM, set ports and timer
//
// `Console` is the state: plain data that memcpy copies.
// `Machine` is what a thread needs to run it.
#pragma once

#include "base/types.h"
#include "bus/cartridge.h"
#include "chips/riot.h"
#include "chips/tia/beam.h"
#include "chips/tia/tables.h"
#include "chips/tia/writes.h"

namespace jaxrl {

struct Cpu {
  u16 pc;
  u16 nz;  // bits 15 and 7: negative; low byte 0: zero
  u8 a, x, y, sp;
  u8 carry, overflow, decimal, no_interrupts;
};

struct Console {
  Riot riot;
  Tia tia;
  Cpu cpu;
  CartridgeState cartridge;
  i32 cycle;           // since the first line of the frame
  i32 vsync_end;       // clock from which clearing VSYNC ends the frame
  i32 grounded_until;  // cycle at which VBLANK stopped grounding the paddles
  i32 paddle[2];       // resistance of the left and the right player's paddle
  i32 charging[2];     // cycles that the capacitor behind each needs
  u16 resets;          // of the RIOT, which draws its timer anew each time
  u8 port_a;           // pins of SWCHA
  u8 port_b;           // pins of SWCHB
  u8 fire[2];          // INPT4 and INPT5: 0x80 where the button is up
  u8 grounded;         // VBLANK grounds the paddles
  u8 goes_on;          // the frame had no end within 25,000 instructions and goes on
  u8 bus;              // last byte on the data bus
  u8 read_last;        // the last access was a read
  u16 needed;          // collision latches that this game has read besides the cartridge's
};

constexpr i32 kNever = 0x7FFFFFFF;

struct Machine {
  Console* console;
  Cartridge* cartridge;
  const Bank* bank;  // what the processor sees of it
  LoggedWrite* log;  // end of the log
  Beam beam;
  u8 shadow[64];        // TIA registers when the whole log has been played
  u8 shadow_player[2];  // and what vertical delay keeps then
  u8 shadow_ball;
  u64 logged;      // registers whose writes somebody may see in this frame
  i32 last_cycle;  // a write to the TIA from then on ends the frame
  bool frame_over;
  bool finds_standard;  // a new console, which takes every cartridge for NTSC at first
  bool switched;        // the cartridge shows another bank than before
  bool keeps_all;   // every collision is kept: while a game starts, programs read what they like
  bool learns;      // what is read then will be kept
  u16 unforeseen;   // latches that were read and not kept: the frame is played again
  u64 doubtful;     // reads of a collision that may have happened in a frame that did not keep it
  i32 last_update;  // clock up to which the TIA was last brought
#if JAXRL_GPU
  LoggedWrite* writes;  // the log
  u32 capacity;         // of it
  LoggedWrite* end_of_log() const { return writes + capacity; }
#else
  LoggedWrite writes[kLogCapacity + 8];
  LoggedWrite* end_of_log() { return writes + kLogCapacity; }
  Bank view;                     // the slices that are seen, of a cartridge that has some
  u16 viewed[kMostPlaces] = {};  // their numbers and 1, or 0 for none
#endif

  // Whether the threaded interpreter must stop where it is.
  bool stops() const { return frame_over | switched; }
};

// Registers whose writes can be dropped when they change nothing.
constexpr u64 kPlainRegisters = 1ull << VBLANK | 0xFull << COLUP0 | 3ull << REFP0 | 7ull << PF0 |
                                7ull << ENAM0 | 0x1Full << HMP0 | 7ull << VDELP0 | 3ull << RESMP0;
// Registers that ALE's television shows; the others make sound or nothing.
constexpr bool is_seen(u32 index) {
  return index <= CXCLR && index != WSYNC && index != RSYNC && !(index >= AUDC0 && index <= AUDV1);
}

// Returns the registers whose writes matter while the frame is played: all where it is drawn, else
// those of objects whose collisions are kept, and those whose order decides where objects end up.
constexpr u64 find_logged(bool draws, u32 needed_objects) {
  u64 logged = 0;
  for (u32 index = 0; index < 64; index++) {
    const bool orders = !(kPlainRegisters >> index & 1) || (index >= HMP0 && index <= HMBL) ||
                        index == RESMP0 || index == RESMP1;
    const bool graphics = index == GRP0 || index == GRP1;
    const u8 objects = graphics ? 1 << kPlayer0 | 1 << kPlayer1 | 1 << kBall
                                : (u8)(kEffects.of[index].objects & ~kLooks);
    if (draws || (orders && !graphics) || (objects & needed_objects)) logged |= 1ull << index;
  }
  return logged;
}
struct LoggedRegisters {
  u64 of[2][64];  // by whether the frame is drawn, and by the objects whose collisions are kept
  constexpr LoggedRegisters() : of() {
    for (u32 objects = 0; objects < 64; objects++) {
      of[0][objects] = find_logged(false, objects);
      of[1][objects] = find_logged(true, objects);
    }
  }
};
inline constexpr LoggedRegisters kLogged{};

JAXRL_INLINE LoggedWrite logged_write(u32 index, u8 value, i32 cycle) {
  return (u32)cycle << 14 | index << 8 | value;
}

inline void ground_paddles(Console& console, u8 before, u8 value, i32 cycle) {
  if (!(before & 0x80) && (value & 0x80)) console.grounded = 1;
  if ((before & 0x80) && !(value & 0x80)) {
    console.grounded = 0;
    console.grounded_until = cycle;
  }
}

// Writes VSYNC; returns whether the frame ends:
// when VSYNC is cleared a line or more after it was set.
JAXRL_INLINE bool write_vsync(Console& console, u8 value, i32 cycle) {
  if (value & 2) {
    console.vsync_end = 3 * cycle + kClocksPerLine;
    return false;
  }
  if (3 * cycle < console.vsync_end) return false;
  console.vsync_end = kNever;
  return true;
}

// Notes a write of a player's graphics, which the other player's vertical delay keeps.
JAXRL_INLINE void shadow_graphics(Machine& machine, u32 index, u8 value) {
  const u32 player = index - GRP0, other = 1 - player;
  machine.shadow[index] = value;
  machine.shadow_player[other] = machine.shadow[GRP0 + other];
  if (player == 1) machine.shadow_ball = machine.shadow[ENABL];
}

inline void write_tia(Machine& machine, u32 address, u8 value) {
  Console& console = *machine.console;
  const u32 index = address & 0x3F;
  const i32 cycle = console.cycle;
  machine.last_update = 3 * cycle;
  machine.frame_over |= cycle >= machine.last_cycle;
  if (index == VSYNC) {
    machine.frame_over |= write_vsync(console, value, cycle);
  } else if (index == WSYNC) {
    // The processor halts at its next read; a second write in a row does not wait again.
    if (console.read_last)
      console.cycle += (kCyclesPerLine - cycle % kCyclesPerLine) % kCyclesPerLine;
  } else if (is_seen(index)) {
    if ((kPlainRegisters >> index & 1) && machine.shadow[index] == value) return;
    if (index == VBLANK) ground_paddles(console, machine.shadow[index], value, cycle);
    if (index == HMCLR) memset(machine.shadow + HMP0, 0, 5);
    if (index == GRP0 || index == GRP1) shadow_graphics(machine, index, value);
    machine.shadow[index] = value;
    if (!(machine.logged >> index & 1)) return;
    // No program writes more; if one did, its frame would end here.
    if (machine.log == machine.end_of_log())
      machine.frame_over = true;
    else
      *machine.log++ = logged_write(index, value, cycle);
  }
}

// Returns bit 7 of INPT0 to INPT3: whether the capacitor behind a paddle has charged.
inline u8 read_paddle(const Machine& machine, u32 pin) {
  const Console& console = *machine.console;
  const u8 paddles = machine.cartridge->setup.paddles;
  if (!paddles) return 0;
  // Nothing moves the second pair of paddles; without resistance there is nothing to wait for.
  if (pin >= 2) return paddles == 2 ? 0x80 : 0;
  // Pins 9 and 5 of the port; the cartridge may have them the other way round.
  const u32 player = paddles == 2 ? 1 - pin : pin;
  if (console.paddle[player] == 0) return 0x80;
  if (console.grounded) return 0;
  return (u32)console.cycle > (u32)console.grounded_until + (u32)console.charging[player] ? 0x80
                                                                                          : 0;
}

inline u8 read_collisions(Machine& machine, u32 index) {
  Console& console = *machine.console;
  const u16 pairs = pairs_of_register(index);
  if (machine.learns) machine.cartridge->needed |= pairs;
  machine.unforeseen |= (u16)(pairs & ~machine.beam.needed);
  play_log(console.tia, machine.beam, machine.log, 3 * console.cycle);
  machine.doubtful += !machine.unforeseen && (console.tia.unknown & pairs);
  const u32 latches = console.tia.collisions;
  if (index == 6) return (u8)((latches >> 12 & 1) << 7);
  const u32 both = latches >> (index == 7 ? 13 : 2 * index);
  return (u8)((both & 1) << 7 | (both & 2) << 5);
}

inline u8 read_tia(Machine& machine, u32 address) {
  Console& console = *machine.console;
  machine.last_update = 3 * console.cycle;
  const u32 index = address & 0xF;
  // The lower six bits are not driven and keep what was on the bus.
  const u8 floating = console.bus & 0x3F;
  if (index < 8) return read_collisions(machine, index) | floating;
  if (index < 12) return read_paddle(machine, index - 8) | floating;
  if (index < 14) return console.fire[index - 12] | floating;
  return floating;
}

#if !JAXRL_GPU

// Copies the slices that the processor sees to where it sees them.
inline void show_slices(Machine& machine) {
  const Cartridge& cartridge = *machine.cartridge;
  const u32 size = cartridge.piece, last = kImage / size - 1;
  for (u32 place = 0; place <= last; place++) {
    const u32 slice = piece_at(cartridge, machine.console->cartridge, place * size);
    if (machine.viewed[place] == slice + 1) continue;
    machine.viewed[place] = (u16)(slice + 1);
    const Bank& bank = cartridge.bank_with(slice);
    const u32 from = cartridge.start_of(slice), to = place * size;
    memcpy(machine.view.image + to, bank.image + from, size);
    memcpy(machine.view.ops + to, bank.ops + from, size * sizeof(Op));
    if (place < last) continue;
    memcpy(machine.view.ops + kImage, bank.ops + kImage, sizeof bank.ops - kImage * sizeof(Op));
    machine.view.mask = bank.mask;
    machine.view.page = bank.page;
    machine.view.first = bank.first;
    machine.view.count = bank.count;
  }
}

#endif

// Lets the processor see what the cartridge's state names, and FE's program counter.
inline void select_bank(Machine& machine) {
  const Cartridge& cartridge = *machine.cartridge;
  const Console& console = *machine.console;
#if !JAXRL_GPU
  if (cartridge.has_slices()) {
    show_slices(machine);
    machine.bank = &machine.view;
    return;
  }
#endif
  machine.bank = &cartridge.bank_with(piece_at(cartridge, console.cartridge, console.cpu.pc));
}

// Returns the byte of the cartridge that the processor sees. On a GPU slices are found, not copied.
JAXRL_INLINE u8 seen_byte(const Machine& machine, u32 offset) {
#if JAXRL_GPU
  if (machine.cartridge->has_slices())
    return byte_at(*machine.cartridge, machine.console->cartridge, offset);
#endif
  return rom_byte(*machine.bank, offset);
}

// Lets the processor see another bank, after an access to a hot spot.
inline void switch_bank(Machine& machine) {
  machine.switched = true;
  select_bank(machine);
}

inline Access access_to(Machine& machine) {
  return {machine.console->cartridge, machine.cartridge->data, machine.console->cycle};
}

// Reads what is not a plain byte of the bank that is seen:
// registers, memory, a hot spot, another bank.
JAXRL_NOINLINE inline u8 read_special(Machine& machine, u32 address) {
  const Cartridge& cartridge = *machine.cartridge;
  Access access = access_to(machine);
  const u32 offset = address & (kImage - 1);
  return with_mapper(cartridge.mapper, [&](auto chosen) -> u8 {
    u8 value;
    if (chosen.mapper.read(access, offset, value)) return value;
    if (chosen.mapper.touch(access.state, offset)) switch_bank(machine);
    return byte_of(cartridge, chosen.mapper.seen(access.state, address), address);
  });
}

JAXRL_INLINE u8 read_cartridge(Machine& machine, u32 address) {
  if (JAXRL_LIKELY(machine.bank->shows(address))) return seen_byte(machine, address & (kImage - 1));
  return read_special(machine, address);
}

inline void write_cartridge(Machine& machine, u32 address, u8 value) {
  Access access = access_to(machine);
  const u32 offset = address & (kImage - 1);
  with_mapper(machine.cartridge->mapper, [&](auto chosen) {
    chosen.mapper.write(access, offset, value);
    if (chosen.mapper.touch(access.state, offset)) switch_bank(machine);
  });
}

// Lets a scheme that listens to the TIA know of a write there.
inline void overhear(Machine& machine, u32 address, u8 value) {
  CartridgeState& state = machine.console->cartridge;
  if (with_mapper(machine.cartridge->mapper, [&](auto chosen) {
        if constexpr (chosen.mapper.overhear != nullptr)
          return chosen.mapper.overhear(state, address, value);
        else
          return false;
      }))
    switch_bank(machine);
}

JAXRL_SHARED_CODE inline u8 read_memory(Machine& machine, u32 address) {
  Console& console = *machine.console;
  u8 value;
  if (address & 0x1000) {
    value = read_cartridge(machine, address);
  } else if (!(address & 0x80)) {
    value = read_tia(machine, address);
  } else if (!(address & 0x200)) {
    value = console.riot.ram[address & 0x7F];
  } else {
    value = read_riot(console.riot, address, console.cycle, console.port_a, console.port_b);
  }
  console.bus = value;
  console.read_last = 1;
  return value;
}

JAXRL_SHARED_CODE inline void write_memory(Machine& machine, u32 address, u8 value) {
  Console& console = *machine.console;
  if (address & 0x1000) {
    write_cartridge(machine, address, value);
  } else if (!(address & 0x80)) {
    write_tia(machine, address, value);
    if constexpr (any_overhears()) overhear(machine, address, value);
  } else if (!(address & 0x200)) {
    console.riot.ram[address & 0x7F] = value;
  } else {
    write_riot(console.riot, address, value, console.cycle);
  }
  console.bus = value;
  console.read_last = 0;
}

}  // namespace jaxrl
