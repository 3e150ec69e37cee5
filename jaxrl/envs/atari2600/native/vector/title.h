// A game that environments play: its cartridge, and what all of them share.
#pragma once

#include <memory>
#include <vector>

#include "vector/environment.h"

namespace jaxrl {

// A title as a caller names it.
struct VectorTitle {
  const char* game;
  const u8* image;
  u64 size;
};

class Title {
 public:
  // `game` is one that the emulator knows, and the image one of its cartridge.
  Title(const GameRules& game, const VectorTitle& title, const VectorRules& rules)
      : game_(game), rules_(rules), averager_(game.setup.height, rules.height, rules.width) {
    rules_.fire_reset = rules.fire_reset && game.has_fire;
    insert(cartridge_, title.image, title.size, game.setup);
    auto machine = std::make_unique<Machine>();
    Player player = player_on(*machine);
    learn_collisions(player);
    if (rules_.fast_resets) starts_ = make_starts(player);
    player.variant = {};  // ALE loads a cartridge in its first mode
    power_on(player, loaded_);
    load_count_ = StartCounter::reset(player, loaded_);
    Game next = loaded_;
    player.variant = variant();
    copied_count_ = StartCounter::reset(player, next);
  }

  Title(const Title&) = delete;
  Title& operator=(const Title&) = delete;

  const VectorRules& rules() const { return rules_; }
  const Cartridge& cartridge() const { return cartridge_; }
  u32 rows_to_keep() const { return jaxrl::rows_to_keep(rules_.frame_skip, game_.cut_short); }
  size_t num_starts() const { return starts_.size(); }

  // Puts the cartridge into an environment, as ALE does with a seed.
  void load(VectorGame& env, u32 seed) const {
    env.game = loaded_;
    env.frame_number = env.rows = 0;
    seed_twister(env.noop_draws, seed);
    seed_twister(env.sticky_draws, seed);
    count_start(env, rules_, load_count_);
  }

  // What a thread steps environments with; it has a machine, screens and pictures.
  VectorStepper stepper_on(Machine& machine, Screens& screens, Pictures& pictures) {
    screens.colors = rules_.color ? kIdentity.of : grays_of(game_.setup.pal).of;
    return {player_on(machine),
            screens,
            {averager_, pictures, game_.setup.height * kScreenWidth,
             rules_.color ? &planes_of(game_.setup.pal) : nullptr},
            rules_,
            starts_,
            copied_count_};
  }

 private:
  Variant variant() const { return {rules_.mode, rules_.difficulty}; }

  Player player_on(Machine& machine) {
    return {.machine = machine,
            .cartridge = cartridge_,
            .rules = game_,
            .screens = nullptr,
            .variant = variant()};
  }

  const GameRules& game_;
  VectorRules rules_;
  Averager averager_;
  Cartridge cartridge_{};
  Game loaded_{};
  StartCount load_count_{};    // of the reset with which ALE loads a cartridge
  StartCount copied_count_{};  // of the starts that are copied
  std::vector<Start> starts_;
};

}  // namespace jaxrl
