// The engine on the stream of an NVIDIA GPU: a step begins when the actions have come from the device, and the
// stream goes on when the rows lie there. What is called here only puts work on the stream and returns; nothing
// waits but the stream, for the step, and the driver's thread that calls the functions below.
//
// The device copies from the engine's own rows. Nobody writes them meanwhile: the next step begins behind the
// copies, on the same stream.
#pragma once

#include "cpu_engine.h"
#include "driver.h"

namespace jaxrl {

// Keeps the rows of an engine in memory, where a device reads and writes by itself. Its end waits for what is on
// the streams of the device, which may still name them.
class PinnedRows {
 public:
  PinnedRows() = default;
  ~PinnedRows() {
    if (!context_) return;
    wait_for_device();
    enter();
    driver().unpin(memory_);
    leave();
  }

  PinnedRows(const PinnedRows&) = delete;
  PinnedRows& operator=(const PinnedRows&) = delete;

  // Pins the rows the first time; the context of their device is current.
  xla::ffi::Error pin(Pages& pages, DriverHandle context) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (context_) return xla::ffi::Error::Success();
    if (const int error = driver().pin(pages.memory(), pages.size(), kForAllContexts))
      return failed("cuMemHostRegister", error, "; take --env.interface callback");
    memory_ = pages.memory();
    context_ = context;
    return xla::ffi::Error::Success();
  }

  // Waits until the device has done what was on its streams, if the rows are pinned.
  void wait_for_device() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!context_) return;
    enter();
    driver().wait_for_context();
    leave();
  }

 private:
  void enter() { driver().push_context(context_); }
  void leave() {
    DriverHandle popped;
    driver().pop_context(&popped);
  }

  std::mutex mutex_;
  void* memory_ = nullptr;
  DriverHandle context_ = nullptr;
};

// An engine, and what a device knows of it; nothing is left on a stream when it ends.
struct OpenEngine : CpuEngine {
  using CpuEngine::CpuEngine;
  PinnedRows pinned;
};

// On the driver's thread, which must not call the driver.
inline void start_step(void* engine) {
  auto& known = *(CpuEngine*)engine;
  known.send(known.rows().actions);
}
inline void end_step(void* engine) { ((CpuEngine*)engine)->wait(); }

// Puts on a stream: copy the actions, an i32 for each environment, then start the step.
inline xla::ffi::Error send_on(DriverHandle stream, OpenEngine& engine, const i32* actions) {
  return in_context_of(stream, [&](DriverHandle context) {
    const xla::ffi::Error error = engine.pinned.pin(engine.rows().pages, context);
    if (error.failure()) return error;
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
    const xla::ffi::Error error = engine.pinned.pin(engine.rows().pages, context);
    if (error.failure()) return error;
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
