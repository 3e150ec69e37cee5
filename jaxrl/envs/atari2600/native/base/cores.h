// The cores that threads keep to, where the system has a call for it.
#pragma once

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include <thread>

#include "base/types.h"

namespace jaxrl {

#if defined(__linux__)

// Number of the cores that the calling thread may use; 0 if they are more than a set has.
inline u32 usable_cores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) ? 0 : (u32)CPU_COUNT(&allowed);
}

// Lets a thread keep to one core, of those that the calling thread may use, counted from 0 on and
// around.
inline void keep_to_core(std::thread& thread, u32 core) {
  cpu_set_t allowed, chosen;
  if (sched_getaffinity(0, sizeof allowed, &allowed)) return;  // more cores than a set has
  u32 before = core % (u32)CPU_COUNT(&allowed);
  int at = 0;
  while (!CPU_ISSET(at, &allowed) || before-- > 0) at++;
  CPU_ZERO(&chosen);
  CPU_SET(at, &chosen);
  pthread_setaffinity_np(thread.native_handle(), sizeof chosen, &chosen);
}

#else

inline u32 usable_cores() { return 0; }

inline void keep_to_core(std::thread&, u32) {}

#endif

}  // namespace jaxrl
