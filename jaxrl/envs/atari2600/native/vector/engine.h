// Environments as ale-py's vector environment has them, on a pool of threads: each steps by itself.
//
// A thread takes an environment, plays its row, and writes it into the batch that is to be
// received. In a batch of all environments each has its place. In a smaller one the places go to
// those that are ready first; one that finds the batch full waits for the next.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/cores.h"
#include "vector/queue.h"
#include "vector/snapshot.h"
#include "vector/title.h"

namespace jaxrl {

// Where the rows of a batch are written; B is its size.
struct VectorBatch {
  u8* observations;        // B x stack x height x width, in color x 3; or x 128 of RAM
  u8* final_observations;  // the same, where episodes end and begin in one step; else null
  i32* numbers;            // 5 x B: env_id, reward, lives, frame_number, episode_frame_number
  u8* ends;                // 2 x B: terminated, truncated
};

class VectorEngine {
 public:
  static constexpr i64 kKeepsSeed = -1;

  // Equally many of the `count` environments play each title, the first environments the first.
  // The threads keep to one core each, of those that the process may use, from the one with the
  // number `first_core` among them on; or, where it is negative, to none.
  VectorEngine(std::vector<std::unique_ptr<Title>> titles, const VectorRules& rules, u32 count,
               u32 batch_size, u32 threads, i32 first_core, const VectorBatch& batch)
      : rules_(rules),
        titles_(std::move(titles)),
        batch_size_(batch_size),
        frame_size_(frame_size(rules)),
        stack_size_(frame_size_ * (size_t)rules.stack),
        kept_(most_rows(titles_)),
        envs_(count),
        played_(count * kept_),
        stacks_(count * stack_size_),
        tasks_(count),
        inputs_(count),
        rows_(count),
        places_(count),
        newest_(batch_size),
        jobs_(count),
        deliveries_(count),
        waiting_(count),
        batch_(batch) {
    try {
      for (u32 thread = 0; thread < threads; thread++) {
        threads_.emplace_back([this] { work(); });
        if (first_core >= 0) keep_to_core(threads_.back(), (u32)first_core + thread);
      }
    } catch (...) {
      stop();
      throw;
    }
  }

  ~VectorEngine() { stop(); }

  VectorEngine(const VectorEngine&) = delete;
  VectorEngine& operator=(const VectorEngine&) = delete;

  // Resets the environments that are chosen, each with a new seed or with kKeepsSeed; the others
  // show their newest row again. What is under way is given up.
  void reset(const u8* chosen, const i64* seeds) {
    std::unique_lock<std::mutex> lock(mutex_);
    wait_until_still(lock);
    waiting_.clear();
    taken_ = written_ = 0;
    holds_ = false;
    owed_ = (u32)envs_.size();
    for (u32 env = 0; env < envs_.size(); env++) {
      if (chosen[env] && seeds[env] != kKeepsSeed) title_of(env).load(envs_[env], (u32)seeds[env]);
      push(jobs_, env, chosen[env] ? Task::kReset : Task::kShow);
    }
    wake_.notify_all();
  }

  // Starts a step of the environments that were received last, in their order; `strengths`, of
  // paddles, may be null. Returns false if none have been received since, or if an action is none
  // of the game's.
  bool send(const i32* actions, const float* strengths) {
    if (!holds_) return false;
    for (u32 place = 0; place < batch_size_; place++)
      if (actions[place] < 0 || actions[place] >= rules_.num_actions ||
          (strengths && !(std::fabs(strengths[place]) <= 1)))
        return false;
    std::lock_guard<std::mutex> lock(mutex_);
    holds_ = false;
    owed_ += batch_size_;
    for (u32 place = 0; place < batch_size_; place++) {
      const u32 env = newest_[place];
      inputs_[env] = {rules_.actions[actions[place]], strengths ? strengths[place] : 1.0f};
      push(jobs_, env, Task::kStep);
    }
    wake_.notify_all();
    return true;
  }

  // Waits until the batch is full, and returns its observations; later rows are written to `next`.
  // Returns null if too few environments are under way.
  const u8* receive(const VectorBatch& next) {
    if (owed_ < batch_size_) return nullptr;
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return written_ == batch_size_; });
    owed_ -= batch_size_;
    holds_ = true;
    for (u32 place = 0; place < batch_size_; place++) newest_[place] = (u32)batch_.numbers[place];
    const u8* full = batch_.observations;
    batch_ = next;
    taken_ = written_ = 0;
    while (!waiting_.empty() && taken_ < batch_size_) {
      const u32 env = waiting_.pop();
      places_[env] = taken_++;
      push(deliveries_, env, tasks_[env]);
    }
    wake_.notify_all();
    return full;
  }

  size_t snapshot_size() { return parts_of(0).size(); }

  // Writes a snapshot of every environment; returns false if not all of them have been received.
  bool save(u8* out) {
    if (!holds_ || batch_size_ != envs_.size()) return false;
    for (u32 env = 0; env < envs_.size(); env++)
      jaxrl::save(parts_of(env), title_of(env).cartridge(), title_of(env).rules(),
                  out + env * snapshot_size());
    return true;
  }

  // Lets every environment go on from its snapshot; none if one of them is refused.
  Refusal load(const u8* bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    wait_until_still(lock);
    auto env = std::make_unique<VectorGame>();
    std::vector<Played> played(kept_);
    std::vector<u8> stack(stack_size_);
    const VectorParts scratch{env.get(), {played.data(), kept_}, stack.data(), stack_size_};
    for (u32 round = 0; round < 2; round++)
      for (u32 env = 0; env < envs_.size(); env++) {
        const VectorParts& parts = round == 0 ? scratch : parts_of(env);
        const u8* from = bytes + env * parts.size();
        const Title& title = title_of(env);
        const Refusal refusal =
            jaxrl::load(from, title.cartridge(), title.rules(), title.num_starts(), parts);
        if (refusal != Refusal::kNone) return refusal;
      }
    return Refusal::kNone;
  }

 private:
  enum class Task : u8 { kStep, kReset, kShow };

  static u32 most_rows(const std::vector<std::unique_ptr<Title>>& titles) {
    u32 rows = 0;
    for (const auto& title : titles) rows = std::max(rows, title->rows_to_keep());
    return rows;
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  size_t title_number(u32 env) const { return env / (envs_.size() / titles_.size()); }
  const Title& title_of(u32 env) const { return *titles_[title_number(env)]; }
  u8* stack_of(u32 env) { return stacks_.data() + env * stack_size_; }
  History history_of(u32 env) { return {played_.data() + env * kept_, kept_}; }
  VectorParts parts_of(u32 env) {
    return {&envs_[env], history_of(env), stack_of(env), stack_size_};
  }

  void push(EnvQueue& queue, u32 env, Task task) {
    tasks_[env] = task;
    queue.push(env);
    under_way_++;
  }

  void wait_until_still(std::unique_lock<std::mutex>& lock) {
    still_.wait(lock, [this] { return under_way_ == 0; });
  }

  void work() {
    auto machine = std::make_unique<Machine>();
    auto pictures = std::make_unique<Pictures>();
    std::vector<Screens> screens(titles_.size());
    std::vector<VectorStepper> steppers;
    for (size_t title = 0; title < titles_.size(); title++)
      steppers.push_back(titles_[title]->stepper_on(*machine, screens[title], *pictures));
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return ends_ || !deliveries_.empty() || !jobs_.empty(); });
      if (ends_) return;
      const bool delivers = !deliveries_.empty();
      const u32 env = delivers ? deliveries_.pop() : jobs_.pop();
      VectorStepper& stepper = steppers[title_number(env)];
      if (!delivers) {
        lock.unlock();
        play(stepper, env);
        lock.lock();
      }
      if (delivers || takes_place(env)) {
        lock.unlock();
        deliver(stepper, env);
        lock.lock();
        if (++written_ == batch_size_) done_.notify_all();
      }
      if (--under_way_ == 0) still_.notify_all();
    }
  }

  // Returns whether the environment has a place in the batch; if not, it waits for the next.
  bool takes_place(u32 env) {
    if (batch_size_ == envs_.size()) {
      places_[env] = env;
      return true;
    }
    if (taken_ == batch_size_) {
      waiting_.push(env);
      return false;
    }
    places_[env] = taken_++;
    return true;
  }

  void play(VectorStepper& stepper, u32 item) {
    VectorGame& env = envs_[item];
    const Task task = tasks_[item];
    if (task == Task::kShow)
      rows_[item] = row_of(rules_, env, 0);
    else if (task == Task::kReset || env.over)
      reset(stepper, item);
    else {
      rows_[item] = play_step(stepper, env, history_of(item), inputs_[item]);
      push_observation(stepper, env, history_of(item), stack_of(item), frame_size_);
    }
  }

  void reset(VectorStepper& stepper, u32 item) {
    VectorGame& env = envs_[item];
    rows_[item] = play_reset(stepper, env, history_of(item));
    memset(stack_of(item), 0, stack_size_);
    env.oldest = 0;
    push_observation(stepper, env, history_of(item), stack_of(item), frame_size_);
  }

  // Writes the row of an environment to its place in the batch.
  void deliver(VectorStepper& stepper, u32 item) {
    const u32 place = places_[item];
    VectorRow row = rows_[item];
    if (rules_.same_step && tasks_[item] == Task::kStep && (row.terminated || row.truncated)) {
      write_stack(item, batch_.final_observations + place * stack_size_);
      if (envs_[item].over) {
        reset(stepper, item);
        const VectorRow& first = rows_[item];
        row = {row.reward,     first.lives,  first.frame_number, first.episode_frame_number,
               row.terminated, row.truncated};
      }
    }
    write_stack(item, batch_.observations + place * stack_size_);
    const i32 numbers[] = {(i32)item, row.reward, row.lives, row.frame_number,
                           row.episode_frame_number};
    for (u32 number = 0; number < 5; number++)
      batch_.numbers[number * batch_size_ + place] = numbers[number];
    batch_.ends[place] = row.terminated;
    batch_.ends[batch_size_ + place] = row.truncated;
  }

  // Copies a stack, the oldest frame first.
  void write_stack(u32 env, u8* out) {
    const size_t first = envs_[env].oldest * frame_size_;
    memcpy(out, stack_of(env) + first, stack_size_ - first);
    memcpy(out + stack_size_ - first, stack_of(env), first);
  }

  VectorRules rules_;
  std::vector<std::unique_ptr<Title>> titles_;

  u32 batch_size_;
  size_t frame_size_, stack_size_;
  u32 kept_;
  std::vector<VectorGame> envs_;
  std::vector<Played> played_;  // the newest rows of each
  std::vector<u8> stacks_;
  std::vector<Task> tasks_;
  std::vector<Input> inputs_;
  std::vector<VectorRow> rows_;
  std::vector<u32> places_;  // in the batch
  std::vector<u32> newest_;  // environments of the batch that was received last
  bool holds_ = false;       // they wait for actions
  u32 owed_ = 0;  // environments that have not been received since they were reset or sent

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, done_, still_;
  EnvQueue jobs_, deliveries_, waiting_;
  VectorBatch batch_;
  u32 taken_ = 0, written_ = 0;  // places of the batch
  u32 under_way_ = 0;            // environments in the first two queues or with a thread
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace jaxrl
