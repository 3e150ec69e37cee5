// Prints the speed of the kernels' layers on one thread, as rows of a table; tools/kernel_speed.py
// compiles it.
#include <ctime>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "dense.h"
#include "layers.h"

using namespace jaxrl;

namespace {

struct OneThread {
  int num_threads() const { return 1; }
  void Schedule(std::function<void()> task) { task(); }
};

// A layer of a network, `count` times in it: a convolution of pixels x pixels x inputs, from bytes
// if it is the first, or where it has no size, a fully connected layer.
struct Part {
  const char* name;
  int count, pixels, inputs, size, stride, outputs, padding;
  bool first = false;
};

struct Network {
  const char* name;
  int batch;
  std::vector<Part> parts;
};

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The shortest of some runs, in seconds of the processor.
double shortest(double seconds, const std::function<void()>& work) {
  work();
  double least = 1e9;
  for (const double end = processor_seconds() + seconds; processor_seconds() < end;) {
    const double start = processor_seconds();
    work();
    least = std::min(least, processor_seconds() - start);
  }
  return least;
}

std::vector<float> numbers(long count) {
  static std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> out(count);
  for (float& x : out) x = normal(generator);
  return out;
}

// GFLOP/s of products in registers.
double peak(double seconds) {
  constexpr int kSums = 12;  // more than wait for one another
  constexpr long kRounds = 1'000'000;
  float left = 0;
  const double time = shortest(seconds, [&] {
    Lanes sums[kSums] = {}, factor = Lanes{} + 0.999f;
    for (Lanes& sum : sums) asm volatile("" : "+x"(sum));  // equal ones are not computed once
    for (long i = 0; i < kRounds; i++) {
      asm volatile("" : "+x"(factor));
#pragma GCC unroll 12
      for (int k = 0; k < kSums; k++) sums[k] = sums[k] * factor + factor;
    }
    for (const Lanes& sum : sums) left += sum[0];
  });
  if (left == 0) abort();  // they are computed
  return 2e-9 * kSums * kLanes * kRounds / time;
}

struct Times {
  double flop;                      // of each
  double outputs, weights, inputs;  // seconds; no gradient of a first layer's inputs
};

template <typename Op>
Times times_of(const Part& part, int batch, double seconds) {
  OneThread pool;
  if (part.size == 0) {
    const Dense layer{batch, part.inputs, part.outputs};
    const auto x = numbers(layer.batch * layer.inputs), w = numbers(layer.inputs * layer.outputs),
               d = numbers(layer.batch * layer.outputs);
    auto y = d, of_x = x, of_w = w;
    return {
        2 * layer.multiplications(),
        shortest(seconds, [&] { dense_outputs<Op>(pool, layer, x.data(), w.data(), y.data()); }),
        shortest(seconds,
                 [&] { dense_weights_gradient<Op>(pool, layer, x.data(), d.data(), of_w.data()); }),
        shortest(seconds,
                 [&] { dense_inputs_gradient<Op>(pool, layer, w.data(), d.data(), of_x.data()); })};
  }
  const Layer layer{part.stride, part.padding, false, true};
  const Shape s = shape_of(layer, part.pixels, part.pixels, part.inputs, part.size, part.outputs);
  const long image = bare_inputs(s, layer);
  const auto x = numbers(batch * image), w = numbers(s.weights()), bias = numbers(s.filters),
             d = numbers(batch * s.outputs());
  auto y = d, of_x = x, of_w = w, of_bias = bias;
  const auto of_images = [&](const auto& images) {
    return Times{2 * multiplications(s) * batch,
                 shortest(seconds,
                          [&] {
                            layer_outputs<Op>(pool, s, layer, images, batch, w.data(), bias.data(),
                                              y.data());
                          }),
                 shortest(seconds,
                          [&] {
                            layer_weights_gradient<Op>(pool, s, layer, images, batch, y.data(),
                                                       d.data(), of_w.data(), of_bias.data());
                          }),
                 0};
  };
  if (part.first) {
    const std::vector<uint8_t> bytes(batch * image, 100);
    const std::vector<float> scale(image, 0.01f), shift(image, 0.5f);
    return of_images(ByteImages(s, layer, bytes.data(), scale.data(), shift.data(), 5));
  }
  Times times = of_images(FloatImages(s, layer, x.data()));
  times.inputs = shortest(seconds, [&] {
    layer_inputs_gradient<Op>(pool, s, layer, batch, x.data(), w.data(), y.data(), d.data(),
                              of_x.data());
  });
  return times;
}

template <typename Op>
void print(const Network& network, double seconds, double peak) {
  double flop = 0, time = 0;
  for (const Part& part : network.parts) {
    const Times t = times_of<Op>(part, network.batch, seconds);
    const bool first = t.inputs == 0;
    flop += part.count * t.flop * (first ? 2 : 3);
    time += part.count * (t.outputs + t.weights + t.inputs);
    printf("| %s | %s | %.0f / %.0f", part.name, Op::kPer == 2 ? "bfloat16" : "float32",
           t.flop / t.outputs * 1e-9, t.flop / t.weights * 1e-9);
    if (!first) printf(" / %.0f", t.flop / t.inputs * 1e-9);
    printf(" | |\n");
  }
  printf("| **%s**, batch %d | %s | **%.0f**, %.2f µs a row | %.2f |\n", network.name,
         network.batch, Op::kPer == 2 ? "bfloat16" : "float32", flop / time * 1e-9,
         1e6 * time / network.batch, flop / time * 1e-9 / peak);
}

}  // namespace

int main(int, char** arguments) {
  const double seconds = atof(arguments[1]);
  const double most = peak(seconds);
  printf("| float32 in registers of %d | float32 | %.0f | 1 |\n", kLanes, most);
  const Network networks[] = {
      {"NIPS at 60 x 60",
       84,
       {{"60, 4, 8/4, 16", 1, 60, 4, 8, 4, 16, 0, true},
        {"14, 16, 4/2, 32", 1, 14, 16, 4, 2, 32, 0},
        {"1,152 to 256", 1, 0, 1152, 0, 0, 256, 0}}},
      {"NIPS at 84 x 84",
       80,
       {{"84, 4, 8/4, 16", 1, 84, 4, 8, 4, 16, 0, true},
        {"20, 16, 4/2, 32", 1, 20, 16, 4, 2, 32, 0},
        {"2,592 to 256", 1, 0, 2592, 0, 0, 256, 0}}},
      {"Nature",
       128,
       {{"84, 4, 8/4, 32", 1, 84, 4, 8, 4, 32, 0, true},
        {"20, 32, 4/2, 64", 1, 20, 32, 4, 2, 64, 0},
        {"9, 64, 3/1, 64", 1, 9, 64, 3, 1, 64, 0},
        {"3,136 to 512", 1, 0, 3136, 0, 0, 512, 0}}},
      {"Gamma at 60 x 60",
       128,
       {{"60, 4, 3/2, 32", 1, 60, 4, 3, 2, 32, 1, true},
        {"30, 32, 3/2, 48", 1, 30, 32, 3, 2, 48, 1},
        {"15, 48, 3/1, 64", 1, 15, 48, 3, 1, 64, 0},
        {"13, 64, 3/2, 64", 1, 13, 64, 3, 2, 64, 0},
        {"6, 64, 3/1, 64", 1, 6, 64, 3, 1, 64, 0},
        {"1,024 to 512", 1, 0, 1024, 0, 0, 512, 0}}},
      {"IMPALA, without pooling",
       21,
       {{"84, 4, 3/1, 16", 1, 84, 4, 3, 1, 16, 1, true},
        {"42, 16, 3/1, 16, 4 times", 4, 42, 16, 3, 1, 16, 1},
        {"42, 16, 3/1, 32", 1, 42, 16, 3, 1, 32, 1},
        {"21, 32, 3/1, 32, 5 times", 5, 21, 32, 3, 1, 32, 1},
        {"11, 32, 3/1, 32, 4 times", 4, 11, 32, 3, 1, 32, 1},
        {"3,872 to 256", 1, 0, 3872, 0, 0, 256, 0}}},
  };
  for (const Network& network : networks) {
    print<Singles>(network, seconds, most);
    if (Pairs::kFast) print<Pairs>(network, seconds, most);
  }
}
