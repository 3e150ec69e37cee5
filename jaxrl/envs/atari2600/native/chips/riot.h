// The RIOT (6532): 128 bytes of RAM, the timer, and the two ports of the console.
//
//   $80-$FF          RAM (and the stack)
//   $280 SWCHA       joysticks: bits 7-4 right, left, down, up of the left player, 3-0 of the right
//   $282 SWCHB       switches: bit 7, 6 difficulty (1 is A), 3 color, 1 select, 0 reset
//   $284 INTIM       timer                 $285 TIMINT   bit 7: the timer has expired
//   $294-$297        sets the timer, which counts every 1, 8, 64 or 1,024 cycles
//
// The timer is not stepped: its value follows from the cycle at which it was set. After it has
// expired it counts every cycle, as the chip does; from the first read after that, ALE lets it
// count by its interval again, from another offset.
#pragma once

#include "base/types.h"

namespace jaxrl {

struct Riot {
  u8 ram[128];
  i32 set_at;           // cycle at which the timer was set
  i32 first_late_read;  // cycle of the first read after it expired
  u8 timer;             // value that it was set to
  u8 interval_shift;    // 0, 3, 6 or 10
  u8 read_late;         // whether it has been read after it expired
  u8 direction_a;       // SWACNT
  u8 direction_b;       // SWBCNT; ALE ignores writes to it
  u8 padding[3];
};

// Whole intervals that have passed at the end of an instruction, which reads a cycle earlier.
JAXRL_INLINE u32 elapsed_intervals(const Riot& riot, i32 cycle) {
  return ((u32)cycle - 1 - (u32)riot.set_at) >> riot.interval_shift;
}

JAXRL_INLINE u8 read_timer(Riot& riot, i32 cycle) {
  const u32 intervals = elapsed_intervals(riot, cycle);
  const i32 value = (i32)(riot.timer - intervals - 1);
  if (JAXRL_LIKELY(value >= 0)) return (u8)value;
  const u32 expiry = (u32)riot.set_at + ((u32)riot.timer << riot.interval_shift);
  const i32 late = (i32)(expiry - (u32)cycle);  // -1 in the first cycle after it expired
  if (late <= -2 && !riot.read_late) {
    riot.read_late = 1;
    riot.first_late_read = cycle;
  }
  if (!riot.read_late) return (u8)late;
  return (u8)(riot.timer - intervals - ((u32)riot.first_late_read - expiry));
}

// Returns what a read of $280 to $297 sees. `port_a` and `port_b` are the pins of SWCHA and SWCHB.
inline u8 read_riot(Riot& riot, u32 address, i32 cycle, u8 port_a, u8 port_b) {
  switch (address & 7) {
    case 0: return port_a;
    case 1: return riot.direction_a;
    case 2: return port_b;
    case 3: return riot.direction_b;
    case 4:
    case 6: return read_timer(riot, cycle);
    default: {
      const i32 value = (i32)(riot.timer - elapsed_intervals(riot, cycle) - 1);
      return value >= 0 || riot.read_late ? 0x00 : 0x80;
    }
  }
}

inline void write_riot(Riot& riot, u32 address, u8 value, i32 cycle) {
  constexpr u8 kIntervalShifts[4] = {0, 3, 6, 10};
  if ((address & 0x14) == 0x14) {
    riot.timer = value;
    riot.interval_shift = kIntervalShifts[address & 3];
    riot.set_at = cycle;
    riot.read_late = 0;
  } else if ((address & 7) == 1) {
    riot.direction_a = value;
  }
}

}  // namespace jaxrl
