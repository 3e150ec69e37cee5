// Compares layer normalization with loops in double precision, on pools of one and three threads.
#include "normalization.h"

#include <cmath>
#include <cstdio>
#include <random>

#include "pool.h"

using namespace jaxrl;

namespace {

std::mt19937 generator(1);
int wrong = 0;

std::vector<float> numbers(long count, double mean = 0) {
  std::vector<float> out(count);
  std::normal_distribution<float> normal(mean);
  for (float& x : out) x = normal(generator);
  return out;
}

void compare(const char* what, long rows, long features, const std::vector<float>& ours,
             const std::vector<double>& exact, double allowed) {
  for (size_t i = 0; i < ours.size(); i++)
    if (!(std::abs(ours[i] - exact[i]) <= allowed)) {
      printf("%s of %ld x %ld: %g at %zu, not %g\n", what, rows, features, ours[i], i, exact[i]);
      wrong++;
      return;
    }
}

struct Results {
  std::vector<float> y, of_x, of_scale, of_bias;
};

void check(long rows, long features, bool rectify) {
  // Far from 0, where a mean of squares less the square of the mean would lose everything.
  const auto x = numbers(rows * features, 1000), gradient = numbers(rows * features);
  const auto scale = numbers(features), bias = numbers(features);
  const Normalization layer{rows, features, scale.data(), bias.data(), 1e-6f, rectify};
  const auto run = [&](Pool& pool) {
    Results to{std::vector<float>(x.size()), std::vector<float>(x.size()),
               std::vector<float>(features), std::vector<float>(features)};
    normalized(pool, layer, x.data(), to.y.data());
    normalized_gradients(pool, layer, x.data(), gradient.data(), to.of_x.data(), to.of_scale.data(),
                         to.of_bias.data());
    return to;
  };
  Pool alone(1, 0), three(3, 2), deserted(4, 0);
  const Results ours = run(alone);
  const double epsilon = 1e-6f;
  std::vector<double> y(x.size()), of_x(x.size()), of_scale(features), of_bias(features);
  for (long row = 0; row < rows; row++) {
    const long at = row * features;
    double mean = 0, variance = 0, sum = 0, product = 0;
    for (long i = 0; i < features; i++) mean += x[at + i] / double(features);
    for (long i = 0; i < features; i++)
      variance += (x[at + i] - mean) * (x[at + i] - mean) / features;
    const double inverse = 1 / std::sqrt(variance + epsilon);
    std::vector<double> score(features), d(features);
    for (long i = 0; i < features; i++) {
      score[i] = (x[at + i] - mean) * inverse;
      const double output = score[i] * scale[i] + bias[i];
      // Rounding decides which side of 0 an output is on that is hardly off it.
      const bool close = std::abs(output) < 1e-2;
      const bool off = rectify && (close ? ours.y[at + i] == 0 : output <= 0);
      y[at + i] = off ? 0 : output;
      d[i] = off ? 0 : gradient[at + i];
      of_scale[i] += d[i] * score[i];
      of_bias[i] += d[i];
      d[i] *= scale[i];
      sum += d[i] / features;
      product += d[i] * score[i] / features;
    }
    for (long i = 0; i < features; i++) of_x[at + i] = inverse * (d[i] - sum - score[i] * product);
  }
  // Scores of numbers near 1000 are known to 1e-4; the largest of some thousand numbers is below 5.
  compare("outputs", rows, features, ours.y, y, 2e-3);
  compare("gradient of x", rows, features, ours.of_x, of_x, 2e-2);
  compare("gradient of scale", rows, features, ours.of_scale, of_scale, 1e-3 * (4 + rows / 100.0));
  compare("gradient of bias", rows, features, ours.of_bias, of_bias, 1e-3 * (4 + rows / 100.0));
  for (Pool* pool : {&three, &deserted}) {
    const Results others = run(*pool);
    if (others.y != ours.y || others.of_x != ours.of_x || others.of_scale != ours.of_scale ||
        others.of_bias != ours.of_bias)
      wrong++;
  }
}

}  // namespace

int main() {
  // In one part and in many; of each number of registers, and of more than have a loop of their
  // own.
  for (bool rectify : {false, true}) {
    for (int vectors : {1, 2, 3, 4, 5, 32}) check(3, vectors * kLanes, rectify);
    check(4e6 / (8 * 2 * kLanes) + 7, 2 * kLanes, rectify);
  }
  printf("%d lanes, %d wrong\n", kLanes, wrong);
  return wrong != 0;
}
