// Shares the parts of a call among the threads of its device.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace jaxrl {

// Below it other threads would be woken for less than they take to come.
constexpr double kShared = 4e6;  // multiplications

// Threads of a pool; XLA's says 0 where it does not know.
template <typename Pool>
int64_t num_threads(const Pool& pool) {
  return std::max(static_cast<int64_t>(pool.num_threads()), int64_t{1});
}

// Parts that items are cut into, `most` at most; `work` is the multiplications of an item.
inline int parts_of(double work, int64_t items, int64_t most) {
  return items * work < kShared ? 1 : static_cast<int>(std::min(items, most));
}

// Parts whose results are added up:
// their number decides the order of sums, so the threads must not.
constexpr int kParts = 16;

// Parts that write results of their own: enough that threads of different speed end together.
template <typename Pool>
int shares_of(double work, int64_t items, Pool& pool) {
  return parts_of(work, items, 4 * num_threads(pool));
}

// Calls work(part) for each part. The caller takes parts too, and waits only for those that others
// have begun, so it ends also where no other thread ever comes. A pool has num_threads() and
// Schedule(task), as XLA's has.
template <typename Pool>
void in_parallel(Pool& pool, int parts, std::function<void(int)> work) {
  const int threads = static_cast<int>(std::min(num_threads(pool), static_cast<int64_t>(parts)));
  if (threads <= 1) {
    for (int part = 0; part < parts; part++) work(part);
    return;
  }
  struct Shared {
    std::function<void(int)> work;
    int parts;
    std::atomic<int> next{0}, left;
  };
  auto shared = std::make_shared<Shared>();  // a thread that comes late finds it still
  shared->work = std::move(work);
  shared->parts = parts;
  shared->left = parts;
  const auto take = [shared] {
    for (int part; (part = shared->next++) < shared->parts;) {
      shared->work(part);
      if (--shared->left == 0) shared->left.notify_one();
    }
  };
  for (int i = 1; i < threads; i++) pool.Schedule(std::function<void()>(take));
  take();
  for (int left; (left = shared->left) != 0;) shared->left.wait(left);
}

// Memory of this thread, `count` floats whose values are of an earlier use.
template <int which>
float* scratch(long count) {
  thread_local std::vector<float> memory;
  if (memory.size() < static_cast<size_t>(count)) memory.resize(count);
  return memory.data();
}

}  // namespace jaxrl
