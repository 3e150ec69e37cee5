// Compares the kernels with loops in double precision, at random shapes;
// memory ends where arrays end.
#include "factors.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

using namespace jaxrl;

namespace {

std::mt19937 generator(1);
int wrong = 0;

int draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(generator); }

// Numbers of which Op's products are exact: for Pairs they are of bfloat16.
template <typename Op>
std::unique_ptr<float[]> numbers(long count) {
  std::unique_ptr<float[]> out(new float[count]);
  std::normal_distribution<float> normal;
  for (long i = 0; i < count; i++) {
    out[i] = normal(generator);
    uint32_t bits;
    memcpy(&bits, &out[i], sizeof bits);
    if (Op::kPer == 2) bits &= 0xffff0000;
    memcpy(&out[i], &bits, sizeof bits);
  }
  return out;
}

// Ties go to the even neighbor, what is not a number stays so, pairs lie one below the other.
void check_rounding() {
  const float nan = NAN;
  const uint32_t given[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0xbf80ffff, 0x7f7fffff};
  const uint16_t expected[] = {0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf81, 0x7f80, 0x7fc0, 0x0000};
  float x[8] = {}, neighbors[4], lines[8];
  memcpy(x, given, sizeof given);
  x[6] = nan;
  pair_neighbors(8, numbers_of(x), neighbors);
  if (memcmp(neighbors, expected, sizeof expected)) wrong++;
  pair_lines(8, numbers_of(x), numbers_of(nullptr), lines);
  for (int i = 0; i < 8; i++) {
    uint32_t pair;
    memcpy(&pair, &lines[i], sizeof pair);
    if (pair != expected[i]) wrong++;
  }
  pair_lines(3, numbers_of(x), numbers_of(x + 3), lines);
  for (int i = 0; i < 3; i++) {
    uint32_t pair;
    memcpy(&pair, &lines[i], sizeof pair);
    if (pair != (expected[i] | static_cast<uint32_t>(expected[i + 3]) << 16)) wrong++;
  }
  // Whole vectors and what is left of them: small integers are numbers of bfloat16.
  constexpr int kMany = 2 * kLanes + 6;
  float many[2 * kMany], of_many[kMany];
  for (int i = 0; i < 2 * kMany; i++) many[i] = static_cast<float>(i);
  const auto bits = [](float number) {
    uint32_t all;
    memcpy(&all, &number, sizeof all);
    return all >> 16;
  };
  const auto check = [&](int count, int step, int next) {
    for (int i = 0; i < count; i++) {
      uint32_t pair;
      memcpy(&pair, &of_many[i], sizeof pair);
      if (pair != (bits(many[step * i]) | bits(many[step * i + next]) << 16)) wrong++;
    }
  };
  pair_neighbors(2 * kMany, numbers_of(many), of_many);
  check(kMany, 2, 1);
  pair_lines(kMany, numbers_of(many), numbers_of(many + kMany), of_many);
  check(kMany, 1, kMany);
}

// The image's float under output (y, x) at place (i, j, c) of the kernel.
long under(const Shape& s, int y, int x, int i, int j, int c) {
  return (y * s.stride + i) * s.line() + static_cast<long>(x * s.stride + j) * s.channels + c;
}

// Calls work(output, input, weight) for every product of the convolution.
template <typename Work>
void each_product(const Shape& s, Work work) {
  for (int y = 0; y < s.rows(); y++)
    for (int x = 0; x < s.columns(); x++)
      for (int i = 0; i < s.size; i++)
        for (int j = 0; j < s.size; j++)
          for (int c = 0; c < s.channels; c++)
            for (int f = 0; f < s.filters; f++)
              work(y * s.out_line() + static_cast<long>(x) * s.filters + f, under(s, y, x, i, j, c),
                   ((static_cast<long>(i) * s.size + j) * s.channels + c) * s.filters + f);
}

// Sums of float32 differ from exact ones by their rounding: `terms` of them, of size 1 or so.
void compare(const char* what, const Shape& s, const float* ours, const double* exact, long count,
             double terms) {
  for (long i = 0; i < count; i++)
    if (!(std::abs(ours[i] - exact[i]) <= 1e-6 * (4 + terms))) {
      printf("%s of %dx%dx%d, kernel %d, stride %d, filters %d: %g at %ld, not %g\n", what,
             s.height, s.width, s.channels, s.size, s.stride, s.filters, ours[i], i, exact[i]);
      wrong++;
      return;
    }
}

// Factors of an image in a border of zeros are those of an image that has the zeros in it.
template <typename Op>
void check_border(const Shape& s, const float* image) {
  const Border border{2, true};
  Shape around = s;
  around.height += 4, around.width += 4;
  std::unique_ptr<float[]> padded(new float[around.inputs()]());
  for (int row = 0; row < s.height; row++)
    for (long i = 0; i < s.line(); i++)
      padded[(row + 2) * around.line() + 2 * s.channels + i] =
          std::max(0.f, image[row * s.line() + i]);
  const auto equal = [&](long count, const auto& factors) {
    std::unique_ptr<float[]> zeros(new float[count]()), more(new float[count]());
    if (memcmp(factors(border, image, zeros.get()),
               factors(Border{0, false}, padded.get(), more.get()), count * sizeof(float)))
      wrong++;
  };
  equal(around.inputs() / Op::kPer, [&](const Border& border, const float* x, float* to) {
    return channels_of_image<Op>(around, border, x, to);
  });
  equal(around.inputs(), [&](const Border& border, const float* x, float* to) {
    return lines_of_image<Op>(around, border, x, to);
  });
}

template <typename Op>
void check_products(const Shape& s) {
  if (s.channels % Op::kPer) return;
  const auto image = numbers<Op>(s.inputs()), weights = numbers<Op>(s.weights()),
             bias = numbers<Op>(s.filters), gradient = numbers<Op>(s.outputs());
  std::unique_ptr<float[]> y(new float[s.outputs()]), of_weights(new float[s.weights()]),
      of_bias(new float[s.filters]), turned(new float[s.turned_weights()]);
  std::unique_ptr<double[]> sums(new double[s.outputs()]), weight_sums(new double[s.weights()]()),
      bias_sums(new double[s.filters]()), input_sums(new double[s.inputs()]());
  for (long i = 0; i < s.outputs(); i++) {
    sums[i] = bias[i % s.filters];
    bias_sums[i % s.filters] += gradient[i];
  }
  each_product(s, [&](long out, long in, long weight) {
    sums[out] += static_cast<double>(image[in]) * weights[weight];
    weight_sums[weight] += static_cast<double>(image[in]) * gradient[out];
    input_sums[in] += static_cast<double>(weights[weight]) * gradient[out];
  });
  const double depth = s.size * s.size * s.channels, pixels = s.rows() * s.columns();
  const Border no_border{0, false};
  const OfOutputs of_outputs{nullptr, gradient.get(), false};
  const float* seen = channels_of_image<Op>(s, no_border, image.get(), nullptr);
  const float* factors = lines_of_weights<Op>(s.weights() / s.filters, s.filters, weights.get());
  convolve<Op>(over_channels<Op>(s), seen, factors, bias.get(), false, y.get());
  compare("outputs", s, y.get(), sums.get(), s.outputs(), depth);
  convolve<Op>(over_channels<Op>(s), seen, factors, bias.get(), true, y.get());
  for (long i = 0; i < s.outputs(); i++) sums[i] = std::max(0.0, sums[i]);
  compare("rectified outputs", s, y.get(), sums.get(), s.outputs(), depth);
  memset(of_weights.get(), 0, s.weights() * sizeof(float));
  memset(of_bias.get(), 0, s.filters * sizeof(float));
  std::unique_ptr<float[]> paired(new float[s.inputs()]);
  const float* lines = lines_of_image<Op>(s, no_border, image.get(), paired.get());
  in_even_parts((s.rows() + Op::kPer - 1) / Op::kPer, 5, [&](int first, int count) {
    const int row = first * Op::kPer, rows = std::min(count * Op::kPer, s.rows() - row);
    const float* d = of_outputs.some(row * s.out_line(), rows * s.out_line());
    add_weights_gradient<Op>(s, lines, first, count, lines_of_rows<Op>(rows, s.out_line(), d),
                             of_weights.get());
    add_bias_gradient(s.filters, rows * s.out_line(), d, of_bias.get());
  });
  compare("gradient of weights", s, of_weights.get(), weight_sums.get(), s.weights(), pixels);
  compare("gradient of bias", s, of_bias.get(), bias_sums.get(), s.filters, pixels);
  check_border<Op>(s, image.get());
  if (s.channels % kLanes) return;  // of images, whose gradient nobody asks for
  turn_weights(s, weights.get(), turned.get());
  const long pixel = s.stride * s.channels;
  factors = lines_of_weights<Op>(s.turned_weights() / pixel, pixel, turned.get());
  std::unique_ptr<float[]> around(new float[s.wide_outputs() / Op::kPer]());
  place_gradient<Op>(s, of_outputs, around.get());
  for (const int border : {0, 1, 2}) {
    const int height = s.height - 2 * border, width = s.width - 2 * border;
    if (height < 1 || width < 1) continue;
    const long line = static_cast<long>(width) * s.channels;
    std::unique_ptr<float[]> of_inputs(new float[height * line]), where(numbers<Op>(height * line));
    std::unique_ptr<double[]> inner(new double[height * line]);
    for (int row = 0; row < height; row++)
      memcpy(inner.get() + row * line,
             input_sums.get() + (row + border) * s.line() + border * s.channels,
             line * sizeof(double));
    const double terms = depth * s.filters / s.channels;
    inputs_gradient<Op>(over_filters<Op>(s), border, around.get(), factors, nullptr,
                        of_inputs.get());
    compare("gradient of inputs", s, of_inputs.get(), inner.get(), height * line, terms);
    inputs_gradient<Op>(over_filters<Op>(s), border, around.get(), factors, where.get(),
                        of_inputs.get());
    for (long i = 0; i < height * line; i++) inner[i] = where[i] > 0 ? inner[i] : 0;
    compare("gradient of rectified inputs", s, of_inputs.get(), inner.get(), height * line, terms);
  }
}

void check(const Shape& s) {
  check_products<Singles>(s);
  check_products<Pairs>(s);
}

}  // namespace

int main() {
  check_rounding();
  // Of NIPS', Nature's, IMPALA's and Gamma's networks, with one more pixel and one fewer.
  for (const int more : {-1, 0, 1}) {
    check({60 + more, 60, 4, 8, 4, 16});
    check({84, 84 + more, 4, 8, 4, 32});
    check({20 + more, 20, 32, 4, 2, 64});
    check({9, 9 + more, 64, 3, 1, 64});
    check({21 + more, 23, 16, 3, 1, 32});
    check({32 + more, 32, 32, 3, 2, 48});  // Gamma's: some taps are beyond the kernel
  }
  for (int i = 0; i < 40; i++) {
    const int size = draw(1, 8), channels = draw(0, 1) ? kLanes * draw(1, 3) : draw(1, 13);
    check(
        {size + draw(0, 17), size + draw(0, 40), channels, size, draw(1, 4), kLanes * draw(1, 4)});
  }
  printf("%d lanes, %d wrong\n", kLanes, wrong);
  return wrong != 0;
}
