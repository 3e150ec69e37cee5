// Every game that the emulator knows, by its name.
#pragma once

#include "games/a_to_c.h"
#include "games/d_to_h.h"
#include "games/i_to_p.h"
#include "games/q_to_z.h"

namespace jaxrl {

// Returns the rules of the game of a number, or null beyond the last.
inline const GameRules* rules_of(u32 number) {
  using namespace games;
  const auto count = [](const auto& table) { return (u32)(sizeof table / sizeof table[0]); };
  if (number < count(kAToC)) return kAToC + number;
  number -= count(kAToC);
  if (number < count(kDToH)) return kDToH + number;
  number -= count(kDToH);
  if (number < count(kIToP)) return kIToP + number;
  number -= count(kIToP);
  return number < count(kQToZ) ? kQToZ + number : nullptr;
}

#if JAXRL_HOST
// Returns the rules of a game by its name, or null.
inline const GameRules* find_rules(const char* name) {
  const auto find_in = [name](const auto& table) -> const GameRules* {
    for (const GameRules& rules : table)
      if (!strcmp(rules.name, name)) return &rules;
    return nullptr;
  };
  using namespace games;
  for (const GameRules* rules : {find_in(kAToC), find_in(kDToH), find_in(kIToP), find_in(kQToZ)})
    if (rules) return rules;
  return nullptr;
}
#endif

}  // namespace jaxrl
