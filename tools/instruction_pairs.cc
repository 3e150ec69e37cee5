// Counts which two instructions run one after another, and prints instruction_pairs.csv: those that
// one handler shall play (tools/emulator_tables.py, jaxrl/envs/atari2600/native/cpu/threaded.h).
//
//   g++ -std=c++20 -O2 -iquote jaxrl/envs/atari2600/native tools/instruction_pairs.cc -o /tmp/pairs
//   /tmp/pairs ROMS 600 pong breakout ... > tools/instruction_pairs.csv
//
// Every game weighs the same: 600 frames of random actions each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "env/environment.h"

using namespace jaxrl;

namespace {

struct Name {
  const char *code, *special;
};
const Name kNames[] = {
#define NAME(code, operation, kind, special, length, cycles) {#code, #special},
    HANDLERS(NAME)
#undef NAME
};

// The processor's place: its bank and, within it, its offset.
struct Place {
  u32 bank, offset;
};
Place place_of(const Console& console, const Cartridge& cartridge) {
  const u32 pc = console.cpu.pc, offset = pc & (kImage - 1);
  const u32 number = piece_at(cartridge, console.cartridge, pc);
  const auto bank = (u32)(&cartridge.bank_with(number) - cartridge.banks);
  return {bank, cartridge.start_of(number) + offset % cartridge.piece};
}

using Counts = std::map<std::pair<u16, u16>, double>;

void count(const char* rom, const char* game, Counts& counts) {
  static Machine machine;
  static Cartridge cartridge;
  FILE* file = fopen(rom, "rb");
  u8 bytes[4 * kImage];
  const size_t size = file ? fread(bytes, 1, sizeof bytes, file) : 0;
  const GameRules* rules = find_rules(game);
  if (!rules || !insert(cartridge, bytes, size, rules->setup)) {
    fprintf(stderr, "cannot play %s\n", rom);
    exit(1);
  }
  fclose(file);
  std::vector<std::vector<u16>> ids(cartridge.num_banks, std::vector<u16>(kImage));
  for (u32 bank = 0; bank < cartridge.num_banks; bank++)
    for (u32 address = 0; address < kImage; address++) {
      Op op{};
      ids[bank][address] = decode_at(cartridge, cartridge.banks[bank], address, op);
    }
  Player player{machine, cartridge, *rules, nullptr};
  static Game state;
  power_on(player, state);
  reset_game(player, state);
  Counts mine;
  double total = 0;
  u64 random = 1;
  for (int frame = 0; frame < 600; frame++) {
    if (state.progress.over) reset_game(player, state);
    set_controls(state.console, cartridge.setup, (u8)random_below(random, kActions));
    start_frame(state.console);
    attach(machine, state.console, cartridge, {nullptr, nullptr});
    Place last{kMostBanks, 0};
    for (u32 played = 0; played < kMostInstructions && !machine.frame_over; played++) {
      const Place here = place_of(state.console, cartridge);
      const u16 id = ids[here.bank][here.offset];
      bool joined = false;
      if (last.bank == here.bank) {
        const Opcode& opcode = kOpcodes[cartridge.banks[last.bank].image[last.offset]];
        const u16 before = ids[last.bank][last.offset];
        joined = here.offset == last.offset + length_of(opcode.mode) &&
                 opcode.kind != Kind::Branch && opcode.kind != Kind::Flow && before != kIdLeave &&
                 id != kIdLeave;
        if (joined) mine[{before, id}]++;
      }
      // A pair takes both, so the second does not begin another.
      last = joined ? Place{kMostBanks, 0} : here;
      total++;
      play_plainly(machine, 1);
    }
    finish_frame(machine, end_of_picture(machine));
    rules->step(Ram{state.console.riot.ram}, state.progress);
  }
  for (const auto& [pair, times] : mine) counts[pair] += times / total;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  Counts counts;
  for (int game = 3; game < argc; game++)
    count((std::string(argv[1]) + "/" + argv[game] + ".bin").c_str(), argv[game], counts);
  std::vector<std::pair<double, std::pair<u16, u16>>> sorted;
  for (const auto& [pair, share] : counts) sorted.push_back({share, pair});
  std::sort(sorted.rbegin(), sorted.rend());
  double covered = 0;
  const size_t most = std::min(sorted.size(), (size_t)atoi(argv[2]));
  for (size_t index = 0; index < most; index++) covered += sorted[index].first / (argc - 3);
  fprintf(stderr, "%.0f %% of all pairs of %d games\n", 200 * covered, argc - 3);
  printf("first_code,first_special,second_code,second_special\n");
  for (size_t index = 0; index < most; index++) {
    const auto [first, second] = sorted[index].second;
    const Name &a = kNames[first], &b = kNames[second];
    printf("%s,%s,%s,%s\n", a.code, a.special, b.code, b.special);
  }
}
