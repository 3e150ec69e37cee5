// A queue of environments that never grows.
#pragma once

#include <vector>

#include "base/types.h"

namespace jaxrl {

// First come, first served; each environment at most once.
class EnvQueue {
 public:
  explicit EnvQueue(size_t capacity) : envs_(capacity) {}
  bool empty() const { return count_ == 0; }
  void clear() { count_ = 0; }
  void push(u32 env) { envs_[(first_ + count_++) % envs_.size()] = env; }
  u32 pop() {
    const u32 env = envs_[first_];
    first_ = (first_ + 1) % envs_.size();
    count_--;
    return env;
  }

 private:
  std::vector<u32> envs_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace jaxrl
