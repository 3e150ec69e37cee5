// One game, frame by frame, behind plain functions: for tests and for those who look closer.
#pragma once

#include <utility>
#include <vector>

#include "env/environment.h"

namespace jaxrl {

// A cartridge with its rules, and what one thread needs to play it.
struct Handle {
  Machine machine;
  Cartridge cartridge;
  const GameRules* rules;
  Screens screens;
  Player player(u8 plain) {
    return {machine, cartridge, *rules, &screens,
            plain ? Interpreter::kPlain : Interpreter::kThreaded};
  }
};

constexpr const char* kTiaNames[CXCLR + 1] = {
    "VSYNC",  "VBLANK", "WSYNC",  "RSYNC",  "NUSIZ0", "NUSIZ1", "COLUP0", "COLUP1", "COLUPF",
    "COLUBK", "CTRLPF", "REFP0",  "REFP1",  "PF0",    "PF1",    "PF2",    "RESP0",  "RESP1",
    "RESM0",  "RESM1",  "RESBL",  "AUDC0",  "AUDC1",  "AUDF0",  "AUDF1",  "AUDV0",  "AUDV1",
    "GRP0",   "GRP1",   "ENAM0",  "ENAM1",  "ENABL",  "HMP0",   "HMP1",   "HMM0",   "HMM1",
    "HMBL",   "VDELP0", "VDELP1", "VDELBL", "RESMP0", "RESMP1", "HMOVE",  "HMCLR",  "CXCLR"};

// Registers of the processor, the RIOT and the TIA, by name.
inline std::vector<std::pair<const char*, i32>> registers_of(const Console& console) {
  const Cpu& cpu = console.cpu;
  const Riot& riot = console.riot;
  const Tia& tia = console.tia;
  std::vector<std::pair<const char*, i32>> registers = {
      {"PC", cpu.pc},
      {"A", cpu.a},
      {"X", cpu.x},
      {"Y", cpu.y},
      {"SP", cpu.sp},
      {"N", (cpu.nz & 0x8080) != 0},
      {"V", cpu.overflow},
      {"D", cpu.decimal},
      {"I", cpu.no_interrupts},
      {"Z", (cpu.nz & 0xFF) == 0},
      {"C", cpu.carry},
      {"cycle", console.cycle},
      {"bank", console.cartridge.bank},
      {"timer", riot.timer},
      {"timer's interval", 1 << riot.interval_shift},
      {"timer's cycle", riot.set_at},
      {"SWACNT", riot.direction_a},
      {"P0's pixel", tia.position[kPlayer0]},
      {"P1's pixel", tia.position[kPlayer1]},
      {"M0's pixel", tia.position[kMissile0]},
      {"M1's pixel", tia.position[kMissile1]},
      {"BL's pixel", tia.position[kBall]},
      {"collisions", tia.collisions},
  };
  for (u32 index = 0; index <= CXCLR; index++)
    registers.push_back({kTiaNames[index], tia.registers[index]});
  return registers;
}

}  // namespace jaxrl

// All else of ours is hidden: see FLAGS in runtime/native_library.py.
#pragma GCC visibility push(default)

extern "C" {

using jaxrl::Game;
using jaxrl::Handle;
using jaxrl::Player;

// Returns the lines that a game shows, or 0 for an unknown one. A known game's cartridge may still
// be of an unknown kind.
int32_t jaxrl_lines(const char* game) {
  const jaxrl::GameRules* rules = jaxrl::find_rules(game);
  return rules ? rules->setup.height : 0;
}

uint64_t jaxrl_game_size() { return sizeof(Game); }

// Returns null for an unknown name or size. Unless it `learns` which collisions the cartridge
// reads, all are kept.
Handle* jaxrl_game_open(const char* name, const uint8_t* bytes, uint64_t size, uint8_t learns) {
  auto* handle = new Handle{};
  handle->rules = jaxrl::find_rules(name);
  handle->screens.colors = jaxrl::kIdentity.of;
  if (!handle->rules || !jaxrl::insert(handle->cartridge, bytes, size, handle->rules->setup)) {
    delete handle;
    return nullptr;
  }
  Player player = handle->player(0);
  if (learns)
    jaxrl::learn_collisions(player);
  else
    handle->cartridge.needed = jaxrl::kAllPairs;
  return handle;
}
void jaxrl_game_close(Handle* handle) { delete handle; }

void jaxrl_game_power_on(Handle* handle, Game* game) {
  Player player = handle->player(0);
  jaxrl::power_on(player, *game);
}
void jaxrl_game_reset(Handle* handle, Game* game, uint8_t plain) {
  Player player = handle->player(plain);
  jaxrl::reset_game(player, *game);
}
// Plays one frame and returns its reward;
// `plain` takes the interpreter that plays one instruction at a time.
int32_t jaxrl_game_act(Handle* handle, Game* game, uint8_t action, uint8_t draws, uint8_t plain) {
  Player player = handle->player(plain);
  if (!draws) player.screens = nullptr;
  return jaxrl::act(player, *game, action);
}
// Collisions that were read when it was not certain that they had been kept.
uint64_t jaxrl_game_doubtful(const Handle* handle) { return handle->machine.doubtful; }
uint32_t jaxrl_game_needed(const Handle* handle) { return handle->cartridge.needed; }
const uint8_t* jaxrl_game_screen(const Handle* handle) { return handle->screens.last(); }
const uint8_t* jaxrl_game_ram(const Game* game) { return game->console.riot.ram; }
int32_t jaxrl_game_first_line(const Handle* handle) { return handle->rules->setup.first_line; }
// Writes out the names and the values of the registers,
// and returns how many there are; both may be null.
uint32_t jaxrl_game_registers(const Game* game, const char** names, int32_t* values) {
  const auto registers = jaxrl::registers_of(game->console);
  for (size_t index = 0; names && values && index < registers.size(); index++) {
    names[index] = registers[index].first;
    values[index] = registers[index].second;
  }
  return (uint32_t)registers.size();
}
const char* jaxrl_tia_name(uint32_t index) {
  return index <= jaxrl::CXCLR ? jaxrl::kTiaNames[index] : "none";
}
// Writes out the newest frame's log of writes to the TIA, each as cycle << 14 | register << 8 |
// value with the cycle since the frame's first line, and returns how many there are; `out` may be
// null. It lacks writes that change nothing, sound and WSYNC, and of a frame that is not drawn what
// nobody sees.
uint32_t jaxrl_game_log(const Handle* handle, uint32_t* out) {
  const jaxrl::Machine& machine = handle->machine;
  const size_t count = (size_t)(machine.log - machine.writes);
  if (out) memcpy(out, machine.writes, count * sizeof *out);
  return (uint32_t)count;
}
void jaxrl_game_progress(const Game* game, int32_t* out) {
  out[0] = game->progress.score;
  out[1] = game->progress.lives;
  out[2] = game->progress.over;
}
}

#pragma GCC visibility pop
