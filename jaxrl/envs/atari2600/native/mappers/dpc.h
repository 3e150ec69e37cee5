// DPC: F8 with the Display Processor Chip at $1000-$107F (dpc_chip.h),
// whose data lie behind the banks.
#pragma once

#include "mappers/mapper.h"

namespace jaxrl::dpc {

constexpr u32 kData = 2048, kReads = 0x40, kRegisters = 0x80;

JAXRL_INLINE bool read(Access& access, u32 offset, u8& value) {
  CartridgeState& state = access.state;
  clock_random(state.dpc);
  if (offset >= kReads) return false;
  bool updates = false;
  const i32 passed = (i32)((u32)access.cycle - (u32)state.music_cycle);
  value = read_dpc(state.dpc, access.data, offset, passed, updates);
  if (updates) state.music_cycle = access.cycle;
  return true;
}

inline void write(Access& access, u32 offset, u8 value) {
  clock_random(access.state.dpc);
  if (offset >= kReads && offset < kRegisters) write_dpc(access.state.dpc, offset, value);
}

inline void reset(CartridgeState& state) {
  state.bank = 1;
  state.music_cycle = 0;
  state.dpc.fraction = 0;
  // The processor reads its first address from the page of the hot spots.
  clock_random(state.dpc);
  clock_random(state.dpc);
}

inline bool is_possible(const CartridgeState& state) {
  for (u16 counter : state.dpc.counters)
    if (counter > 0x7FF) return false;
  for (u8 plays : state.dpc.music)
    if (plays > 1) return false;
  return state.dpc.fraction >= 0 && state.dpc.fraction < 1;
}

}  // namespace jaxrl::dpc

namespace jaxrl {

inline constexpr Mapper kDPC = {
    .banks = 2,
    .first = dpc::kRegisters,
    .end = 0xFC0,  // reads of the last page count
    .data = dpc::kData,
    .fits = [](const u8*, u64 size) { return size == 10240 || size == 10495 || size == 10496; },
    .touch = choose_bank<0xFF8, 2>,
    .read = dpc::read,
    .write = dpc::write,
    .power_on = [](CartridgeState& state) { state.dpc.random = 1; },
    .reset = dpc::reset,
    .is_possible = dpc::is_possible,
};

}  // namespace jaxrl
