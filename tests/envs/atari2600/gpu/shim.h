// Lets a CPU run a kernel's source: blocks one after another, and the threads of a block as fibers
// that take turns wherever they wait for each other.
//
// Included before the source of kernels.
// A kernel is started by `shim_run(blocks, threads, kernel)`.
#pragma once

#include <ucontext.h>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)

struct ShimIndex {
  uint32_t x;
};
inline ShimIndex threadIdx, blockIdx;

namespace shim {

// A thread of a block. Threads switch by longjmp, which leaves the signals alone;
// a context only makes the stack.
struct Fiber {
  std::unique_ptr<char[]> stack;
  ucontext_t context;
  jmp_buf place;
  bool started, ended, vote;
};

constexpr size_t kStack = 256 * 1024;
inline std::vector<Fiber> fibers;
inline jmp_buf scheduler;
inline std::function<void()> body;
inline bool any;          // result of the newest vote
inline uint32_t waiting;  // threads that have come to where all wait

inline void start() {
  body();
  fibers[threadIdx.x].ended = true;
  _longjmp(scheduler, 1);
}

// Goes to the next thread; returns when every thread has come here.
inline void wait_for_all() {
  Fiber& own = fibers[threadIdx.x];
  waiting++;
  if (!_setjmp(own.place)) _longjmp(scheduler, 1);
}

inline void run_thread(uint32_t number) {
  threadIdx.x = number;
  if (_setjmp(scheduler)) return;
  Fiber& fiber = fibers[number];
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

// Runs the threads of a block in turns, from one place where all wait to the next.
inline void run_block(uint32_t threads) {
  for (uint32_t number = 0; number < threads; number++) {
    Fiber& fiber = fibers[number];
    fiber.started = fiber.ended = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, start, 0);
  }
  // The order changes from turn to turn, so that what depends on it does not go unseen.
  for (uint32_t turn = 0;; turn++) {
    waiting = 0;
    uint32_t ended = 0;
    for (uint32_t place = 0; place < threads; place++) {
      const uint32_t number = turn % 2 ? threads - 1 - place : place;
      run_thread(number);
      ended += fibers[number].ended;
    }
    if (ended == threads) return;
    if (ended || waiting != threads) {
      fprintf(stderr, "a kernel's threads wait in different places\n");
      abort();
    }
    any = false;
    for (uint32_t number = 0; number < threads; number++) any |= fibers[number].vote;
  }
}

inline void run(uint32_t blocks, uint32_t threads, std::function<void()> kernel) {
  body = std::move(kernel);
  while (fibers.size() < threads) {
    fibers.emplace_back();
    fibers.back().stack.reset(new char[kStack]);
  }
  for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) run_block(threads);
}

}  // namespace shim

// What kernels call. Waiting is told apart by nothing:
// all threads of a warp must come to each place.
inline void __syncwarp() {
  shim::fibers[threadIdx.x].vote = false;
  shim::wait_for_all();
}
inline bool __any_sync(uint32_t, bool vote) {
  shim::fibers[threadIdx.x].vote = vote;
  shim::wait_for_all();
  return shim::any;
}
inline uint32_t atomicAdd(uint32_t* number, uint32_t more) {
  const uint32_t before = *number;
  *number += more;
  return before;
}
inline uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
