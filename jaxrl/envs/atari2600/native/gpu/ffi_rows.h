// The numbers and flags of all environments' rows, as results of a call of a compiled program.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace jaxrl {

using Numbers = xla::ffi::ResultBuffer<xla::ffi::F32>;
using Flags = xla::ffi::ResultBuffer<xla::ffi::PRED>;

// Reward and score; terminated, truncated, game_over and reset.
#define JAXRL_NUMBERS_AND_FLAGS \
  .Ret<xla::ffi::Buffer<xla::ffi::F32>>() \
      .Ret<xla::ffi::Buffer<xla::ffi::F32>>() \
      .Ret<xla::ffi::Buffer<xla::ffi::PRED>>() \
      .Ret<xla::ffi::Buffer<xla::ffi::PRED>>() \
      .Ret<xla::ffi::Buffer<xla::ffi::PRED>>() \
      .Ret<xla::ffi::Buffer<xla::ffi::PRED>>()

}  // namespace jaxrl
