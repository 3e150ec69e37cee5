// The Display Processor Chip of Pitfall II: eight fetchers of display data, three of which can make
// music, and a source of random numbers.
//
//   $1000-$103F  reads; bits 5-3 choose what, bits 2-0 the fetcher
//                0: a random number (fetchers 0-3), the music's amplitude (4-7)
//                1: display data   2: display data where the flag is set   7: the flag
//   $1040-$107F  writes; bits 5-3 choose what, bits 2-0 the fetcher
//                0: top, which clears the flag   1: bottom   2: counter, low   3: counter, high,
//                and whether the fetcher makes music (bit 4)   6: resets the random numbers
//
// A fetcher counts down with every read. Its flag is set where the counter's low byte equals the
// top, and cleared where it equals the bottom. Random numbers move on with each access to the
// chip's registers and to the page of the hot spots, as ALE has it.
#pragma once

#include "base/types.h"

namespace jaxrl {

struct Dpc {
  double fraction;  // of a clock of the music that has passed
  u16 counters[8];
  u8 tops[8], bottoms[8], flags[8];
  u8 music[3];  // of fetchers 5 to 7
  u8 random;
  u8 padding[4];
};

// The shift register takes the inverted exclusive or of bits 7, 5, 4 and 3.
JAXRL_INLINE void clock_random(Dpc& dpc) {
  const u32 r = dpc.random;
  dpc.random = (u8)(r << 1 | (~(r >> 7 ^ r >> 5 ^ r >> 4 ^ r >> 3) & 1));
}

// Lets the music of fetchers 5 to 7 play for some cycles of the processor.
inline void play_music(Dpc& dpc, i32 cycles) {
  const double clocks = 15750.0 * cycles / 1193191.66666667 + dpc.fraction;
  const i32 whole = (i32)clocks;
  dpc.fraction = clocks - whole;
  if (whole <= 0) return;
  for (u32 fetcher = 5; fetcher < 8; fetcher++) {
    if (!dpc.music[fetcher - 5]) continue;
    u16& counter = dpc.counters[fetcher];
    const i32 top = dpc.tops[fetcher];
    // The counter runs from the top to 0 and begins again.
    i32 low = top ? (counter & 0xFF) - whole % (top + 1) : 0;
    if (low < 0) low += top + 1;
    if (low <= dpc.bottoms[fetcher])
      dpc.flags[fetcher] = 0;
    else if (low <= top)
      dpc.flags[fetcher] = 0xFF;
    counter = (u16)((counter & 0x700) | low);
  }
}

// Reads $1000 to $103F. `cycles` have passed since the music was last brought up to date, which a
// read of its amplitude does: `updates` becomes true.
inline u8 read_dpc(Dpc& dpc, const u8* display, u32 address, i32 cycles, bool& updates) {
  const u32 fetcher = address & 7;
  u16& counter = dpc.counters[fetcher];
  u8& flag = dpc.flags[fetcher];
  if ((counter & 0xFF) == dpc.tops[fetcher])
    flag = 0xFF;
  else if ((counter & 0xFF) == dpc.bottoms[fetcher])
    flag = 0;
  const u8 data = display[2047 - counter];
  u8 value = 0;
  switch (address >> 3 & 7) {
    case 0:
      if (fetcher < 4) {
        value = dpc.random;
      } else {
        constexpr u8 kAmplitudes[8] = {0, 4, 5, 9, 6, 10, 11, 15};
        play_music(dpc, cycles);
        updates = true;
        u32 voices = 0;
        for (u32 voice = 0; voice < 3; voice++)
          voices |= (u32)(dpc.music[voice] && dpc.flags[5 + voice]) << voice;
        value = kAmplitudes[voices];
      }
      break;
    case 1: value = data; break;
    case 2: value = data & flag; break;
    case 7: value = flag; break;
    default: break;
  }
  if (fetcher < 5 || !dpc.music[fetcher - 5]) counter = (counter - 1) & 0x7FF;
  return value;
}

// Writes $1040 to $107F.
inline void write_dpc(Dpc& dpc, u32 address, u8 value) {
  const u32 fetcher = address & 7;
  u16& counter = dpc.counters[fetcher];
  const bool plays = fetcher >= 5 && dpc.music[fetcher - 5];
  switch (address >> 3 & 7) {
    case 0:
      dpc.tops[fetcher] = value;
      dpc.flags[fetcher] = 0;
      break;
    case 1: dpc.bottoms[fetcher] = value; break;
    case 2: counter = (u16)((counter & 0x700) | (plays ? dpc.tops[fetcher] : value)); break;
    case 3:
      counter = (u16)((value & 7) << 8 | (counter & 0xFF));
      if (fetcher >= 5) dpc.music[fetcher - 5] = value >> 4 & 1;
      break;
    case 6: dpc.random = 1; break;
    default: break;
  }
}

}  // namespace jaxrl
