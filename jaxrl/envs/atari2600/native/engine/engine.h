// Environments of one cartridge on a pool of threads.
//
// `send` hands out the actions and returns at once; the threads take environments in small chunks
// until none is left; `recv` waits for the last and copies the rows out. Between two steps the
// threads sleep. Every thread has its own machine and screens, so that an environment is nothing
// but its state, and what its newest row needs to be played again.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "env/rows.h"
#include "env/snapshot.h"

namespace jaxrl {

class CpuEngine {
 public:
  // `seeds` has one number for each environment, `runs` the seed of each one's run. With as many
  // threads as cores that the calling thread may use, each keeps to one.
  CpuEngine(const GameRules& game, const u8* image, u64 size, const Rules& rules, i32 height,
            i32 width, std::vector<u64> runs, std::vector<u64> seeds, u32 threads)
      : rules_(rules),
        averager_(kSeenLines, height, width),
        game_(game),
        runs_(std::move(runs)),
        environments_(seeds.size()),
        turns_(seeds.size()),
        rows_(seeds.size(), (size_t)height * (size_t)width),
        actions_(seeds.size(), 0) {
    insert(cartridge_, image, size, game.setup);
    prepare_starts();
    for (size_t env = 0; env < seeds.size(); env++) environments_[env].random = seeds[env];
    chunk_ = (u32)(seeds.size() / (threads * 8 + 1)) + 1;
    if (chunk_ > 8) chunk_ = 8;
    try {
      // Threads that wake at once share a core, if they may, until the step is over.
      const bool one_a_core = threads == usable_cores();
      for (u32 thread = 0; thread < threads; thread++) {
        threads_.emplace_back([this] { work(); });
        if (one_a_core) keep_to_core(threads_.back(), thread);
      }
    } catch (...) {
      stop();
      throw;
    }
  }

  ~CpuEngine() { stop(); }

  CpuEngine(const CpuEngine&) = delete;
  CpuEngine& operator=(const CpuEngine&) = delete;

  size_t count() const { return environments_.size(); }
  size_t pixels() const { return rows_.pixels; }
  Rows& rows() { return rows_; }

  // Starts a step of all environments with these actions.
  void send(const i32* actions) {
    wait();
    for (size_t env = 0; env < actions_.size(); env++) {
      const i32 last = rules_.num_actions - 1;
      actions_[env] = (u8)(actions[env] < 0 ? 0 : actions[env] > last ? last : actions[env]);
    }
    start(Job::kStep);
  }

  // Waits until every environment has stepped.
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return working_ == 0; });
  }

  // Resets every environment, and lets each take a random number of random steps, about
  // `most_steps` at most, so that they do not play in step. With exact resets each plays them
  // itself. Else they begin from what a few games have played, each at a place of its own; which
  // games these are depends on the seed of their run alone, so that the division into engines
  // changes nothing.
  void begin(u32 most_steps) {
    wait();
    random_steps_ = most_steps;
    if (rules_.exact_resets) {
      start(Job::kBeginExactly);
      return wait();
    }
    std::map<u64, Prefix> prefixes;  // by the seed of their game
    for (size_t env = 0; env < environments_.size(); env++) {
      u64& random = environments_[env].random;
      const u64 seed = runs_[env] + ((u64)(random_below(random, kPrefixes) + 1) << 40);
      Prefix& prefix = prefixes[seed];
      prefix.seed = seed;
      prefix.branches.push_back({random_below(random, most_steps + 1), env});
    }
    for (auto& [seed, prefix] : prefixes) prefixes_.push_back(std::move(prefix));
    start(Job::kPlayPrefix, prefixes_.size());
    wait();
    prefixes_.clear();
  }

  // Bytes of one environment's snapshot.
  size_t snapshot_size() const { return sizeof(Snapshot) + pixels(); }

  // Writes a snapshot of every environment, when it has stepped.
  void save(u8* out) {
    wait();
    for (size_t env = 0; env < count(); env++)
      jaxrl::save(environments_[env], turns_[env], rows_.row(env), rows_.frame(env), pixels(),
                  cartridge_, rules_, out + env * snapshot_size());
  }

  // Lets every environment go on from its snapshot; none if one of them is refused.
  Refusal load(const u8* bytes) {
    wait();
    std::vector<Snapshot> snapshots(count());
    for (size_t env = 0; env < count(); env++) {
      const u8* from = bytes + env * snapshot_size();
      const Refusal refusal =
          jaxrl::load(from, snapshot_size(), cartridge_, rules_, snapshots[env]);
      if (refusal != Refusal::kNone) return refusal;
    }
    for (size_t env = 0; env < count(); env++) {
      environments_[env] = snapshots[env].env;
      turns_[env] = snapshots[env].turn;
      rows_.put(env, snapshots[env].row);
      memcpy(rows_.frame(env), bytes + env * snapshot_size() + sizeof(Snapshot), pixels());
    }
    return Refusal::kNone;
  }

  // Draws the newest frame of environment 0 in color, 210 x 160 x 3, by playing its row again.
  void render(u8* out) {
    wait();
    render_screens_.colors = kIdentity.of;
    Stepper stepper = stepper_of(render_machine_, render_screens_);
    Environment again;
    replay(stepper, turns_[0], again, nullptr);
    const ColorPlanes& colors = planes_of(game_.setup.pal);
    for (i32 pixel = 0; pixel < kSeenLines * kScreenWidth; pixel++)
      for (i32 plane = 0; plane < 3; plane++)
        out[3 * pixel + plane] = colors.of[plane][render_screens_.last()[pixel]];
  }

 private:
  enum class Job { kStep, kBeginExactly, kPlayPrefix };
  static constexpr u32 kPrefixes = 64;

  // An environment that begins where a prefix has played so many steps.
  struct Branch {
    u32 steps;
    size_t env;
  };

  // A game that environments of one run begin from.
  struct Prefix {
    u64 seed;
    std::vector<Branch> branches;
  };

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void prepare_starts() {
    auto machine = std::make_unique<Machine>();
    Player player = player_on(*machine);
    learn_collisions(player);
    starts_ = make_starts(player);
  }

  Player player_on(Machine& machine) {
    return {.machine = machine,
            .cartridge = cartridge_,
            .rules = game_,
            .screens = nullptr,
            .variant = rules_.variant()};
  }

  Stepper stepper_of(Machine& machine, Screens& screens) {
    const u8* grays = grays_of(game_.setup.pal).of;
    return {player_on(machine),
            screens,
            rules_,
            averager_,
            grays,
            rules_.exact_resets ? nullptr : starts_.data(),
            kStarts};
  }

  void start(Job job, size_t items = 0) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = job;
      items_ = items ? items : environments_.size();
      next_.store(0, std::memory_order_relaxed);
      working_ = (u32)threads_.size();
      generation_++;
    }
    wake_.notify_all();
  }

  void work() {
    auto machine = std::make_unique<Machine>();
    auto screens = std::make_unique<Screens>();
    Stepper stepper = stepper_of(*machine, *screens);
    screens->colors = stepper.grays;
    u64 seen = 0;
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return ends_ || generation_ != seen; });
        if (ends_) return;
        seen = generation_;
      }
      const u32 chunk = job_ == Job::kPlayPrefix ? 1 : chunk_;
      for (;;) {
        const size_t first = next_.fetch_add(chunk, std::memory_order_relaxed);
        if (first >= items_) break;
        const size_t last = first + chunk < items_ ? first + chunk : items_;
        for (size_t item = first; item < last; item++) run(stepper, item);
      }
      std::lock_guard<std::mutex> lock(mutex_);
      if (--working_ == 0) done_.notify_all();
    }
  }

  void run(Stepper& stepper, size_t item) {
    if (job_ == Job::kPlayPrefix) return play_prefix(stepper, prefixes_[item]);
    Environment& env = environments_[item];
    if (job_ == Job::kStep) return play_row_of(stepper, item, actions_[item]);
    load_game(stepper.player, env.game);
    env.game.progress.over = 1;
    env.done = 1;
    const u32 steps = random_below(env.random, random_steps_ + 1);
    play_row_of(stepper, item, 0);
    rows_.reset[item] = 0;  // the first row follows no other
    for (u32 played = 0; played < steps; played++) play_random_row(stepper, item);
  }

  // Plays a row of an environment and keeps it.
  void play_row_of(Stepper& stepper, size_t item, u8 action) {
    u8* frame = rows_.frame(item);
    rows_.put(item, step(stepper, environments_[item], turns_[item], action, frame));
  }

  void play_random_row(Stepper& stepper, size_t item) {
    u64& random = environments_[item].random;
    play_row_of(stepper, item, (u8)random_below(random, rules_.num_actions));
  }

  // Plays a game as far as environments begin from it. Only they see it, by a step of their own.
  void play_prefix(Stepper& stepper, Prefix& prefix) {
    std::vector<Branch>& branches = prefix.branches;
    std::sort(branches.begin(), branches.end(),
              [](const Branch& a, const Branch& b) { return a.steps < b.steps; });
    Environment game{};
    game.random = prefix.seed;
    Turn turn{};
    game.done = 1;
    game.game.progress.over = 1;
    u32 played = 0;
    for (const Branch& branch : branches) {
      for (; played < branch.steps; played++) {
        const u8 action = (u8)random_below(game.random, rules_.num_actions);
        turn = {game, {action}, 1, 1, {}};
        play_row(stepper, game, action, Draws::kNone, nullptr);
      }
      // Its generator is its own from the newest row on, which may have to be played again.
      Environment& env = environments_[branch.env];
      Turn& branch_turn = turns_[branch.env];
      branch_turn = turn;
      branch_turn.before.random = env.random;
      if (rules_.frame_skip == 1) branch_turn.last = branch_turn.before;
      env = turn.rows ? branch_turn.before : game;
      env.random = branch_turn.before.random;
      if (turn.rows) play_row(stepper, env, branch_turn.actions[0], Draws::kNone, nullptr);
      play_random_row(stepper, branch.env);
      if (branch.steps == 0) rows_.reset[branch.env] = 0;  // it follows no other row
    }
  }

  Rules rules_;
  Averager averager_;
  const GameRules& game_;
  Cartridge cartridge_;
  std::vector<u64> runs_;  // the seed of each environment's run
  std::vector<Start> starts_;
  std::vector<Environment> environments_;
  std::vector<Turn> turns_;  // the newest row of each
  Rows rows_;
  std::vector<u8> actions_;
  std::vector<Prefix> prefixes_;
  u32 random_steps_ = 0, chunk_ = 1;
  Machine render_machine_{};
  Screens render_screens_{};

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job job_ = Job::kStep;
  size_t items_ = 0;
  std::atomic<size_t> next_{0};
  u64 generation_ = 0;
  u32 working_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace jaxrl
