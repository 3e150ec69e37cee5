// Compares the layers of a batch with those of each image alone, on pools of no,
// one and three threads.
#include "layers.h"

#include <cmath>
#include <cstdio>
#include <random>

#include "pool.h"

using namespace jaxrl;

namespace {

std::mt19937 generator(1);

std::vector<float> numbers(long count) {
  std::vector<float> out(count);
  std::normal_distribution<float> normal;
  for (float& x : out) x = normal(generator);
  return out;
}

int wrong = 0;

// Largest difference, as a share of the largest number,
// up to which sums in another order may differ.
void compare(const char* what, const std::vector<float>& ours, const std::vector<float>& theirs,
             float tolerance) {
  float largest = 0, difference = 0;
  for (size_t i = 0; i < ours.size(); i++) {
    largest = std::max(largest, std::abs(theirs[i]));
    difference = std::max(difference, std::abs(ours[i] - theirs[i]));
  }
  if (difference <= tolerance * largest) return;
  printf("%s: %g of %g\n", what, difference, largest);
  wrong++;
}

struct Results {
  std::vector<float> y, of_weights, of_bias, of_inputs;
};

template <typename Op, typename Images>
Results all(Pool& pool, const Shape& s, const Layer& layer, const Images& images, int64_t count,
            const float* x, const std::vector<float>& weights, const std::vector<float>& bias,
            const std::vector<float>& gradient) {
  Results to{std::vector<float>(count * s.outputs()), std::vector<float>(s.weights()),
             std::vector<float>(s.filters),
             std::vector<float>(x ? count * bare_inputs(s, layer) : 0)};
  layer_outputs<Op>(pool, s, layer, images, count, weights.data(), bias.data(), to.y.data());
  layer_weights_gradient<Op>(pool, s, layer, images, count, to.y.data(), gradient.data(),
                             to.of_weights.data(), to.of_bias.data());
  if (x)
    layer_inputs_gradient<Op>(pool, s, layer, count, x, weights.data(), to.y.data(),
                              gradient.data(), to.of_inputs.data());
  return to;
}

void equal(const char* what, const Results& ours, const Results& theirs, float tolerance) {
  compare(what, ours.y, theirs.y, tolerance);
  compare(what, ours.of_weights, theirs.of_weights, tolerance);
  compare(what, ours.of_bias, theirs.of_bias, tolerance);
  compare(what, ours.of_inputs, theirs.of_inputs, tolerance);
}

// The sum of what each image says by itself, by one thread.
template <typename Op, typename Make>
Results one_by_one(const Shape& s, const Layer& layer, Make make, int64_t count, const float* x,
                   const std::vector<float>& weights, const std::vector<float>& bias,
                   const std::vector<float>& gradient) {
  Pool alone(1, 0);
  Results sum{{}, std::vector<float>(s.weights()), std::vector<float>(s.filters), {}};
  for (int64_t i = 0; i < count; i++) {
    const std::vector<float> d(gradient.begin() + i * s.outputs(),
                               gradient.begin() + (i + 1) * s.outputs());
    const auto part = all<Op>(alone, s, layer, make(i), 1,
                              x ? x + i * bare_inputs(s, layer) : nullptr, weights, bias, d);
    sum.y.insert(sum.y.end(), part.y.begin(), part.y.end());
    sum.of_inputs.insert(sum.of_inputs.end(), part.of_inputs.begin(), part.of_inputs.end());
    for (size_t k = 0; k < part.of_weights.size(); k++) sum.of_weights[k] += part.of_weights[k];
    for (size_t k = 0; k < part.of_bias.size(); k++) sum.of_bias[k] += part.of_bias[k];
  }
  return sum;
}

template <typename Op>
void check_layer(const Layer& layer, int64_t count, int64_t height, int64_t width, int64_t channels,
                 int64_t size, int64_t filters) {
  const Shape s = shape_of(layer, height, width, channels, size, filters);
  const int64_t image = height * width * channels;
  const auto x = numbers(count * image), weights = numbers(s.weights()), bias = numbers(s.filters),
             gradient = numbers(count * s.outputs());
  const bool inputs = s.channels % kLanes == 0;  // have a gradient
  const float* from = inputs ? x.data() : nullptr;
  const auto expected = one_by_one<Op>(
      s, layer, [&](int64_t i) { return FloatImages(s, layer, x.data() + i * image); }, count, from,
      weights, bias, gradient);
  Pool alone(1, 0), three(3, 2), deserted(4, 0);
  const FloatImages images(s, layer, x.data());
  const auto ours = all<Op>(alone, s, layer, images, count, from, weights, bias, gradient);
  equal("one thread", ours, expected, 1e-5f);
  equal("three threads", all<Op>(three, s, layer, images, count, from, weights, bias, gradient),
        ours, 0);
  equal("no thread that comes",
        all<Op>(deserted, s, layer, images, count, from, weights, bias, gradient), ours, 0);
  // Bytes equal the floats that they are normalized to, by a multiplication and a subtraction.
  std::vector<uint8_t> bytes(count * image);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(generator());
  const auto scale = numbers(height * width), shift = numbers(height * width);
  const float limit = 60;
  std::vector<float> normal(count * image);
  for (int64_t i = 0; i < count * image; i++) {
    const int64_t pixel = i % image / channels;
    normal[i] = std::min(
        limit, std::max(-limit, static_cast<float>(bytes[i]) * scale[pixel] - shift[pixel]));
  }
  const ByteImages of_bytes(s, layer, bytes.data(), scale.data(), shift.data(), limit);
  equal("bytes", all<Op>(three, s, layer, of_bytes, count, nullptr, weights, bias, gradient),
        all<Op>(alone, s, layer, FloatImages(s, layer, normal.data()), count, nullptr, weights,
                bias, gradient),
        1e-5f);
}

void check(const Layer& layer, int64_t count, int64_t height, int64_t width, int64_t channels,
           int64_t size, int64_t filters) {
  check_layer<Singles>(layer, count, height, width, channels, size, filters);
  if (channels % 2 == 0) check_layer<Pairs>(layer, count, height, width, channels, size, filters);
}

void check_pooling(int64_t count, int height, int width, int channels) {
  const Pooling p{height, width, channels};
  auto x = numbers(count * p.inputs());
  for (float& value : x) value = std::round(value);  // some are equal
  const auto gradient = numbers(count * p.outputs());
  const auto run = [&](Pool& pool) {
    std::vector<float> y(count * p.outputs()), of_x(x.size());
    std::vector<uint8_t> places(y.size());
    pooled(pool, p, count, x.data(), y.data(), places.data());
    pooled_gradient(pool, p, count, places.data(), gradient.data(), of_x.data());
    return Results{y, of_x, {}, {}};
  };
  Pool alone(1, 0), three(3, 2);
  const auto ours = run(alone);
  equal("pooling by threads", run(three), ours, 0);
  std::vector<float> sums(x.size());
  for (size_t i = 0; i < ours.y.size(); i++) {
    const int c = i % channels, column = i / channels % p.columns(),
              row = i / channels / p.columns() % p.rows();
    const int64_t image = i / p.outputs();
    float largest = -1e9f;
    size_t from = 0;
    for (int y = 0; y < height; y++)
      for (int z = 0; z < width; z++) {
        const int in_y = y - Pooling::start(height) - 2 * row,
                  in_z = z - Pooling::start(width) - 2 * column;
        if (in_y < 0 || in_y > 2 || in_z < 0 || in_z > 2) continue;
        const size_t at = ((image * height + y) * width + z) * channels + c;
        if (x[at] > largest) largest = x[at], from = at;
      }
    if (ours.y[i] != largest) wrong++;
    sums[from] += gradient[i];
  }
  compare("gradient of pooling", ours.of_weights, sums, 1e-6f);
}

}  // namespace

int main() {
  // Above and below what other threads are woken for; more images than parts, and fewer.
  check({4, 0, false, true}, 19, 60, 60, 4, 8, 2 * kLanes);
  check({2, 0, false, true}, 40, 14, 14, kLanes, 4, 2 * kLanes);
  check({1, 1, true, false}, 3, 42, 42, 16, 3, 16);
  check({2, 2, true, true}, 5, 31, 29, kLanes, 5, 3 * kLanes);
  check({1, 0, false, false}, 1, 5, 4, 3, 2, kLanes);
  check_pooling(40, 84, 84, kLanes);
  check_pooling(3, 21, 11, 2 * kLanes);
  check_pooling(2, 1, 2, kLanes);
  printf("%d lanes, %d wrong\n", kLanes, wrong);
  return wrong != 0;
}
