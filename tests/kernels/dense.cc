// Compares fully connected layers with loops in double precision, on pools of one and three
// threads.
#include "dense.h"

#include <cmath>
#include <cstdio>
#include <random>

#include "pool.h"

using namespace jaxrl;

namespace {

std::mt19937 generator(1);
int wrong = 0;

// Numbers of bfloat16, whose products are exact in float32.
std::vector<float> numbers(long count) {
  std::vector<float> out(count);
  std::normal_distribution<float> normal;
  for (float& x : out) x = std::round(normal(generator) * 32) / 32;
  return out;
}

void compare(const char* what, const Dense& layer, const std::vector<float>& ours,
             const std::vector<double>& exact, double terms) {
  for (size_t i = 0; i < ours.size(); i++)
    if (!(std::abs(ours[i] - exact[i]) <= 1e-6 * (4 + terms))) {
      printf("%s of %ld x %ld x %ld: %g at %zu, not %g\n", what, long(layer.batch),
             long(layer.inputs), long(layer.outputs), ours[i], i, exact[i]);
      wrong++;
      return;
    }
}

struct Results {
  std::vector<float> y, of_x, of_weights;
};

template <typename Op>
void check(const Dense& layer) {
  const long B = layer.batch, C = layer.inputs, F = layer.outputs;
  const auto x = numbers(B * C), weights = numbers(C * F), gradient = numbers(B * F);
  std::vector<double> y(B * F), of_x(B * C), of_weights(C * F);
  for (long b = 0; b < B; b++)
    for (long c = 0; c < C; c++)
      for (long f = 0; f < F; f++) {
        y[b * F + f] += double(x[b * C + c]) * weights[c * F + f];
        of_x[b * C + c] += double(gradient[b * F + f]) * weights[c * F + f];
        of_weights[c * F + f] += double(gradient[b * F + f]) * x[b * C + c];
      }
  const auto run = [&](Pool& pool) {
    Results to{std::vector<float>(B * F), std::vector<float>(B * C), std::vector<float>(C * F)};
    dense_outputs<Op>(pool, layer, x.data(), weights.data(), to.y.data());
    dense_inputs_gradient<Op>(pool, layer, weights.data(), gradient.data(), to.of_x.data());
    dense_weights_gradient<Op>(pool, layer, x.data(), gradient.data(), to.of_weights.data());
    return to;
  };
  Pool alone(1, 0), three(3, 2), deserted(4, 0);
  const Results ours = run(alone);
  compare("outputs", layer, ours.y, y, C);
  compare("gradient of inputs", layer, ours.of_x, of_x, F);
  compare("gradient of weights", layer, ours.of_weights, of_weights, B);
  for (Pool* pool : {&three, &deserted}) {
    const Results others = run(*pool);
    if (others.y != ours.y || others.of_x != ours.of_x || others.of_weights != ours.of_weights)
      wrong++;
  }
}

// Parts of more rows than products of them fit 32 bits.
void check_parts() {
  int next = 0, total = 1'000'000'000;
  in_even_parts(total, 500'000'000 / 3, [&](int from, int count) {
    if (from != next || count < 1 || count > 500'000'000 / 3) wrong++;
    next = from + count;
  });
  if (next != total) wrong++;
}

}  // namespace

int main() {
  check_parts();
  // Above and below what other threads are woken for; batches of one tile and of more, odd ones.
  for (const Dense& layer : {Dense{1, kPanel, kPanel}, Dense{15, 3 * kPanel, 2 * kPanel},
                             Dense{29, 5 * kPanel, 4 * kPanel}, Dense{131, 512, 256},
                             Dense{2 * kRows + 3, kPanel, kPanel}}) {
    check<Singles>(layer);
    check<Pairs>(layer);
  }
  printf("%d lanes, %d wrong\n", kLanes, wrong);
  return wrong != 0;
}
