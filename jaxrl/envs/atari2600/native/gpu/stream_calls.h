// The engine on the stream of an NVIDIA GPU: a step begins when the actions have come from the
// device, and the stream goes on when the rows lie there. What is called here only puts work on the
// stream and returns; only the driver's thread, which calls the functions below, waits for the
// step.
//
// The device copies from the engine's own rows. Nobody writes them meanwhile: the next step begins
// behind the copies, on the same stream.
#pragma once

#include <unistd.h>

#include "engine/engine.h"
#include "gpu/driver.h"

namespace jaxrl {

// Keeps the rows of an engine in memory, where a device reads and writes by itself.
class PinnedRows {
 public:
  PinnedRows() = default;
  ~PinnedRows() {
    wait_for_device();
    if (!memory_ || driver().push_context(context_)) return;
    driver().unpin(memory_);
    pop();
    driver().release_context(device_);
  }

  PinnedRows(const PinnedRows&) = delete;
  PinnedRows& operator=(const PinnedRows&) = delete;

  // Pins the rows for a device; returns what failed, or nothing. It may wait for all that the
  // device does, so it is called before a program runs.
  std::string pin(Pages& pages, int device) {
    if (!driver().missing.empty()) return driver().missing;
    if (const int error = driver().init(0)) return message_of("cuInit", error);
    if (const int error = driver().retain_context(&context_, device))
      return message_of("cuDevicePrimaryCtxRetain", error);
    std::string failure = pin_in_context(pages);
    if (failure.empty())
      memory_ = pages.memory();
    else
      driver().release_context(device);
    device_ = device;
    return failure;
  }

  // Whether they are pinned for the device of this context.
  bool is_for(DriverHandle context) const { return memory_ && context == context_; }

  // Waits until the device has done what was on its streams, if the rows are pinned;
  // returns whether it could.
  bool wait_for_device() const {
    if (!memory_) return true;
    if (driver().push_context(context_)) return false;
    const int error = driver().wait_for_context();
    pop();
    return !error;
  }

 private:
  std::string pin_in_context(Pages& pages) {
    if (const int error = driver().push_context(context_))
      return message_of("cuCtxPushCurrent", error);
    const int error = driver().pin(pages.memory(), pages.size(), kForAllContexts);
    pop();
    return error ? message_of("cuMemHostRegister", error) : "";
  }

  static void pop() {
    DriverHandle popped;
    driver().pop_context(&popped);
  }

  void* memory_ = nullptr;
  DriverHandle context_ = nullptr;
  int device_ = 0;
};

// An engine, and what a device knows of it, which ends first: nothing of it is left on a stream.
struct OpenEngine : CpuEngine {
  using CpuEngine::CpuEngine;
  const pid_t process = getpid();  // whose threads play
  PinnedRows pinned;
};

// On the driver's thread, which must not call the driver.
inline void start_step(void* engine) {
  auto& known = *(CpuEngine*)engine;
  known.send(known.rows().actions);
}
inline void end_step(void* engine) { ((CpuEngine*)engine)->wait(); }

inline xla::ffi::Error of_another_device() {
  return xla::ffi::Error::Internal("the games of this engine are those of another device");
}

// Puts on a stream: copy the actions, an i32 for each environment, then start the step.
inline xla::ffi::Error send_on(DriverHandle stream, OpenEngine& engine, const i32* actions) {
  return in_context_of(stream, [&](DriverHandle context) {
    if (!engine.pinned.is_for(context)) return of_another_device();
    CpuEngine* const known = &engine;
    i32* const to = engine.rows().actions;
    if (const int code = driver().copy_to_host(to, actions, engine.count() * sizeof *to, stream))
      return failed("cuMemcpyDtoHAsync", code);
    if (const int code = driver().call_on_host(stream, start_step, known))
      return failed("cuLaunchHostFunc", code);
    return xla::ffi::Error::Success();
  });
}

// Puts on a stream: wait for the step, then copy the rows.
inline xla::ffi::Error receive_on(DriverHandle stream, OpenEngine& engine, const RowArrays& to) {
  return in_context_of(stream, [&](DriverHandle context) {
    if (!engine.pinned.is_for(context)) return of_another_device();
    CpuEngine* const known = &engine;
    if (const int code = driver().call_on_host(stream, end_step, known))
      return failed("cuLaunchHostFunc", code);
    for (const Copy& copy : engine.rows().copies(to))
      if (const int code = driver().copy_to_device(copy.to, copy.from, copy.bytes, stream))
        return failed("cuMemcpyHtoDAsync", code);
    return xla::ffi::Error::Success();
  });
}

}  // namespace jaxrl
