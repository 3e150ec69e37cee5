// The interpreter that plays one instruction at a time:
// for CPUs the plain one, for GPUs the staged one.
#pragma once

#include "base/types.h"
#include "bus/machine.h"
#if JAXRL_GPU
#include "cpu/staged.h"
#else
#include "cpu/plain.h"
#endif

namespace jaxrl {

#if JAXRL_GPU
using OneByOne = Staged;
#else
using OneByOne = Plain;
#endif

// Plays instructions until the frame is over or `most` are played, or, with `outside`, until the
// program goes on in the cartridge; returns how many were.
template <bool outside = false>
inline u32 play_plainly(Machine& machine, u32 most) {
  Cpu& cpu = machine.console->cpu;
  OneByOne processor{{machine, loaded(cpu), cpu.pc}};
  u32 played = 0;
  while (played < most && !machine.frame_over) {
    processor.play_one();
    played++;
    if (outside && (processor.pc & 0x1000)) break;
  }
  store_registers(cpu, processor.r);
  cpu.pc = (u16)processor.pc;
  return played;
}

}  // namespace jaxrl
