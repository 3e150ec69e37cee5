// The state of an interpreter that plays one instruction at a time: its registers, and its stack.
#pragma once

#include "bus/machine.h"
#include "cpu/operations.h"

namespace jaxrl {

struct Processor {
  Machine& machine;
  Registers r;
  u32 pc;

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
};

}  // namespace jaxrl
