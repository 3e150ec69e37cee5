// Random programs as cartridges, to be built with sanitizers: nothing may be read or written outside
// its place. With `both`, the two interpreters play them, and must do the same.
//
//   fuzz FIRST COUNT FRAMES fast|both
//
// Prints the number of the first program on which they differ and ends with status 1.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "environment.h"

using namespace jaxrl;

namespace {

// Bytes that are code more often than chance would have it: documented opcodes, addresses of the TIA,
// RAM, the timer and the cartridge.
void write_program(u64 seed, u8* image) {
  u64 random = seed * 0x9E3779B97F4A7C15ull + 1;
  const u32 taste = random_below(random, 4);
  for (u32 at = 0; at < kImage;) {
    const u8 code = (u8)next_random(random);
    const Opcode& opcode = kOpcodes[code];
    const bool odd = opcode.kind >= Kind::OddRead;
    if (taste > 0 && odd && random_below(random, 8)) continue;
    image[at++] = code;
    for (u32 byte = 1; byte < opcode.length() && at < kImage; byte++) {
      u8 value = (u8)next_random(random);
      // Most operands name something: a register, RAM, INTIM, or code nearby.
      if (taste > 1 && byte == 2) {
        constexpr u8 kPages[] = {0x00, 0x01, 0x02, 0xF0, 0xF4, 0xFF, 0x10};
        value = kPages[random_below(random, sizeof kPages)];
      } else if (taste > 1 && opcode.mode == Mode::Zero && random_below(random, 2)) {
        value = (u8)random_below(random, 0x2E);
      } else if (opcode.kind == Kind::Branch && random_below(random, 2)) {
        value = (u8)(random_below(random, 16) - 8);
      }
      image[at++] = value;
    }
  }
  image[0xFFC] = (u8)next_random(random);
  image[0xFFD] = (u8)(next_random(random) | 0x10);
}

struct Side {
  Machine machine{};
  Screens screens{};
  Game game{};
};

void play(Side& side, Cartridge& cartridge, const GameRules& rules, Interpreter interpreter,
          u8 action, bool draws) {
  Player player{side.machine, cartridge, rules, draws ? &side.screens : nullptr, interpreter};
  play_frame(player, side.game, action);
}

bool play_program(u64 seed, int frames, bool both) {
  static const GameRules& rules = games::kAll[seed % (sizeof games::kAll / sizeof games::kAll[0])];
  static auto cartridge = std::make_unique<Cartridge>();
  static auto fast = std::make_unique<Side>(), plain = std::make_unique<Side>();
  u8 image[kImage];
  write_program(seed, image);
  if (!load_image(*cartridge, image, kImage, rules.setup)) return false;
  decode(*cartridge);
  cartridge->needed = kAllPairs;  // so that both sides know it from the first frame on
  *fast = Side{};
  *plain = Side{};
  power_on(fast->machine, fast->game.console, *cartridge);
  begin(rules, fast->game.progress);
  plain->game = fast->game;
  u64 random = seed;
  for (int frame = 0; frame < frames; frame++) {
    const u8 action = (u8)random_below(random, kActions);
    const bool draws = random_below(random, 2);
    play(*fast, *cartridge, rules, Interpreter::kThreaded, action, draws);
    if (!both) continue;
    play(*plain, *cartridge, rules, Interpreter::kPlain, action, draws);
    // The plain interpreter alone follows the bus in every instruction.
    fast->game.console.bus = plain->game.console.bus;
    fast->game.console.read_last = plain->game.console.read_last;
    if (memcmp(&fast->game, &plain->game, sizeof(Game)) ||
        memcmp(fast->screens.last(), plain->screens.last(), sizeof fast->screens.pixels[0])) {
      printf("program %llu differs in frame %d\n", (unsigned long long)seed, frame);
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool both = !strcmp(argv[4], "both");
  const u64 first = strtoull(argv[1], nullptr, 10), count = strtoull(argv[2], nullptr, 10);
  for (u64 seed = first; seed < first + count; seed++)
    if (!play_program(seed, atoi(argv[3]), both)) return 1;
  printf("%llu programs\n", (unsigned long long)count);
}
