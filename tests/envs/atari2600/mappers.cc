// Plays some frames of a cartridge with each interpreter and prints the first bytes of RAM.
#include <cstdio>
#include <memory>
#include <vector>

#include "console/console.h"

using namespace jaxrl;

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  FILE* file = fopen(argv[1], "rb");
  if (!file) return 2;
  std::vector<u8> image(1 << 16);
  image.resize(fread(image.data(), 1, image.size(), file));
  fclose(file);
  auto cartridge = std::make_unique<Cartridge>();
  if (!insert(*cartridge, image.data(), image.size(), Setup{})) return 1;
  for (const Interpreter interpreter : {Interpreter::kThreaded, Interpreter::kPlain}) {
    auto machine = std::make_unique<Machine>();
    Console console;
    power_on(*machine, console, *cartridge);
    memset(console.riot.ram, 0, sizeof console.riot.ram);
    for (int frame = 0; frame < 3; frame++)
      run_frame(*machine, console, *cartridge, {nullptr, nullptr}, interpreter);
    for (int byte = 0; byte < 8; byte++) printf("%02x ", console.riot.ram[byte]);
    printf("\n");
  }
}
