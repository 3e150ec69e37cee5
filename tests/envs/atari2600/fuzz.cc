// Random programs as cartridges, to be built with sanitizers: nothing may be read or written
// outside its place. With `both`, the two interpreters play them, and must do the same.
//
//   fuzz FIRST COUNT FRAMES fast|both|states|digests|program
//
// Prints the number of the first program on which they differ and ends with status 1. With
// `states`, the games go on from snapshots in which some bytes are random: those are refused, or
// played. With `digests` it prints what became of each program, played one instruction at a time;
// built with -DJAXRL_GPU=1 it plays as a GPU does, and must print the same. With `program` it
// prints the first program itself.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "env/snapshot.h"

using namespace jaxrl;

namespace {

// Bytes that are code more often than chance would have it: documented opcodes, addresses of the
// TIA, RAM, the timer, the cartridge and its hot spots.
void write_code(u64& random, bool slices, u8* image) {
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
        constexpr u8 kPages[] = {0x00, 0x01, 0x02, 0xF0, 0xF4, 0xFF, 0x10, 0xDF};
        value = kPages[random_below(random, sizeof kPages)];
        const bool hot = value >= 0xDF && random_below(random, 2);
        if (hot)
          image[at - 1] =
              (u8)(slices ? 0xE0 + random_below(random, 24) : 0xF6 + random_below(random, 4));
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

enum Kinds : u64 { k4K, kF8, kF6, kE0, kFE, kF8WithRam, kF6WithRam, kDPC, kKinds };

std::vector<u8> write_program(u64 seed) {
  u64 random = seed * 0x9E3779B97F4A7C15ull + 1;
  const u64 kind = seed % kKinds;
  const u32 banks = kind == k4K ? 1 : kind == kF6 || kind == kF6WithRam ? 4 : 2;
  std::vector<u8> program(banks * kImage);
  for (u32 bank = 0; bank < banks; bank++) {
    u8* image = program.data() + bank * kImage;
    write_code(random, kind == kE0, image);
    if (kind == kF8WithRam || kind == kF6WithRam) memset(image, 0, 256);
  }
  // What kinds are known by: an access to a hot spot, a call.
  if (kind == kE0) memcpy(program.data() + 0x900, "\x8D\xE0\x1F", 3);
  if (kind == kFE) memcpy(program.data() + 0x900, "\x20\x00\xF0\x84\xD6", 5);
  for (u32 byte = 0; kind == kDPC && byte < 2048 + 255; byte++)
    program.push_back((u8)next_random(random));
  return program;
}

struct Side {
  Machine machine{};
  Screens screens{};
  Game game{};
#if JAXRL_GPU
  LoggedWrite writes[kLogCapacity + 8];
#endif
};

void clear(Side& side) {
  side = Side{};
#if JAXRL_GPU
  side.machine.writes = side.writes;
  side.machine.capacity = kLogCapacity;
#endif
}

void play(Side& side, Cartridge& cartridge, const GameRules& rules, Interpreter interpreter,
          u8 action, bool draws) {
  Player player{side.machine, cartridge, rules, draws ? &side.screens : nullptr, interpreter};
  play_frame(player, side.game, action);
}

enum class How { kFast, kBoth, kDigests };

bool play_program(u64 seed, int frames, How how) {
  const bool both = how == How::kBoth;
  const Interpreter first = how == How::kDigests ? Interpreter::kPlain : kFastest;
  u64 digest = 0;
  // Joysticks in either port, paddles in both ways, another first line, switches on A.
  constexpr const char* kGames[] = {"seaquest", "surround", "breakout", "pong", "qbert", "amidar"};
  const GameRules& rules = *find_rules(kGames[seed / kKinds % (sizeof kGames / sizeof kGames[0])]);
  static auto cartridge = std::make_unique<Cartridge>();
  static auto fast = std::make_unique<Side>(), plain = std::make_unique<Side>();
  const std::vector<u8> program = write_program(seed);
  if (!insert(*cartridge, program.data(), program.size(), rules.setup)) return false;
  cartridge->needed = kAllPairs;  // so that both sides know it from the first frame on
  clear(*fast);
  clear(*plain);
  power_on(fast->machine, fast->game.console, *cartridge);
  begin(rules, fast->game.progress);
  plain->game = fast->game;
  u64 random = seed;
  for (int frame = 0; frame < frames; frame++) {
    const u8 action = (u8)random_below(random, kActions);
    const bool draws = random_below(random, 2);
    play(*fast, *cartridge, rules, first, action, draws);
    digest = digest_of((const u8*)&fast->game, sizeof(Game), digest);
    digest = digest_of(fast->screens.last(), sizeof fast->screens.pixels[0], digest);
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
  if (how == How::kDigests)
    printf("%llu %016llx\n", (unsigned long long)seed, (unsigned long long)digest);
  return true;
}

#if !JAXRL_GPU

constexpr int kStates = 20;  // of a program

// Plays from snapshots with random bytes;
// returns how many were taken, and counts those that were refused.
int play_states(u64 seed, int frames, int& refused) {
  static auto cartridge = std::make_unique<Cartridge>();
  static auto side = std::make_unique<Side>();
  const std::vector<u8> program = write_program(seed);
  const GameRules& game = *find_rules(seed & 8 ? "pong" : "qbert");
  if (!insert(*cartridge, program.data(), program.size(), game.setup)) return 0;
  clear(*side);
  Environment env{};
  power_on(side->machine, env.game.console, *cartridge);
  begin(game, env.game.progress);
  Rules rules;
  rules.num_actions = kActions;
  for (u8 action = 0; action < kActions; action++) rules.actions[action] = action;
  const Averager averager(kSeenLines, 84, 84);
  Stepper stepper{{side->machine, *cartridge, game, nullptr},
                  side->screens,
                  rules,
                  averager,
                  kGrayPalette.of,
                  nullptr,
                  0};
  std::vector<u8> frame(84 * 84), bytes(sizeof(Snapshot) + frame.size());
  Turn turn{};
  u64 random = seed + 1;
  int taken = 0;
  for (int state = 0; state < kStates; state++) {
    save(env, turn, Row{}, frame.data(), frame.size(), *cartridge, rules, bytes.data());
    u8* changed = bytes.data() + offsetof(Snapshot, env);
    constexpr u32 kChanged = sizeof(Snapshot) - offsetof(Snapshot, env);
    for (u32 byte = 1 + random_below(random, 3); byte > 0; byte--)
      changed[random_below(random, kChanged)] = (u8)next_random(random);
    const u64 sum = sum_of(bytes.data(), bytes.size());
    memcpy(bytes.data() + offsetof(Snapshot, sum), &sum, sizeof sum);
    Snapshot snapshot;
    if (load(bytes.data(), bytes.size(), *cartridge, rules, snapshot) != Refusal::kNone) {
      refused++;
      continue;
    }
    taken++;
    env = snapshot.env;
    turn = snapshot.turn;
    for (int step_ = 0; step_ < frames; step_++)
      step(stepper, env, turn, (u8)random_below(random, kActions), frame.data());
  }
  return taken;
}

#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const How how = !strcmp(argv[4], "both")      ? How::kBoth
                  : !strcmp(argv[4], "digests") ? How::kDigests
                                                : How::kFast;
  const u64 first = strtoull(argv[1], nullptr, 10), count = strtoull(argv[2], nullptr, 10);
  if (!strcmp(argv[4], "program")) {
    const std::vector<u8> program = write_program(first);
    return fwrite(program.data(), 1, program.size(), stdout) != program.size();
  }
#if !JAXRL_GPU
  if (!strcmp(argv[4], "states")) {
    int taken = 0, refused = 0;
    for (u64 seed = first; seed < first + count; seed++)
      taken += play_states(seed, atoi(argv[3]), refused);
    fprintf(stderr, "%d taken, %d refused\n", taken, refused);
    if (taken < (int)count * kStates / 4 || refused < (int)count) return 1;  // most are harmless
    printf("%llu programs\n", (unsigned long long)count);
    return 0;
  }
#endif
  for (u64 seed = first; seed < first + count; seed++)
    if (!play_program(seed, atoi(argv[3]), how)) return 1;
  printf("%llu programs\n", (unsigned long long)count);
}
