// Products whose results stay in registers: a tile of M by N vectors of them.
//
// The left factor is read where it lies, in an image with overlapping rows, and never copied. A
// float of either factor is as many numbers as `Op` has in it.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "ahead.h"
#include "lanes.h"

namespace jaxrl {

// A tile's accumulators, a vector of each row of the right factor and one
// value of the left one fit the registers.
template <int N>
constexpr int kMostRows = (kRegisters - N - 1) / N > 20 ? 20 : (kRegisters - N - 1) / N;

// The left factor: rows `step` floats apart,
// of `lines` parts that are `line_step` apart and have `depth` floats.
struct Left {
  const float* at;
  long step;
  int lines;
  long line_step;
  int depth;
};

// The right factor: rows `step` floats apart, and `skip` more between those of two lines.
struct Right {
  const float* at;
  long step;
  long skip = 0;
};

// Distances between rows in bytes, in two registers: the compiler would else keep one for each row,
// more than there are.
struct Steps {
  long one, three;

  explicit Steps(long floats) : one(4 * floats), three(12 * floats) {
    asm("" : "+r"(one), "+r"(three));
  }
};

// A column of M rows: a pointer to each fifth, from where an address reaches the next four.
template <int M>
struct Rows {
  static constexpr int kGroup = 5, kGroups = (M + kGroup - 1) / kGroup;
  const char* first[kGroups];

  Rows(const float* from, long step) {
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; i++) {
      first[i] = reinterpret_cast<const char*>(from + i * kGroup * step);
      asm("" : "+r"(first[i]));
    }
  }

  void advance() {
#pragma GCC unroll 8
    for (int i = 0; i < kGroups; i++) {
      first[i] += sizeof(float);
      asm("" : "+r"(first[i]));
    }
  }

  float at(int m, const Steps& step) const {
    const int i = m % kGroup;
    const long offset = i == 3 ? step.three : i * step.one;
    return *reinterpret_cast<const float*>(first[m / kGroup] + offset);
  }
};

// What becomes of a product before it is written; null and false leave it.
struct Finish {
  const float* bias = nullptr;  // is added, if not `onto`
  bool rectify = false;
  const float* where = nullptr;  // 0 where it is not above 0; has the results' places
  bool onto = false;             // what stands in the results' places is added
};

// out[m][lane] = sum over lines l and k of left[m][l, k] * right[l, k][lane].
template <typename Op, int N, int M>
void product(const Left& left, const Right& right, const Finish& finish, float* out,
             long out_step) {
  Lanes sum[M * N];
#pragma GCC unroll 32
  for (int m = 0; m < M; m++)
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      const float* first = finish.onto ? out + m * out_step : finish.bias;
      sum[m * N + n] = first ? load(first + n * kLanes) : Lanes{};
    }
  const float *line = left.at, *factor = right.at;
  const Steps step(left.step);
  for (int l = 0; l < left.lines; l++, line += left.line_step, factor += right.skip) {
    Rows<M> a(line, left.step);
    for (int k = 0; k < left.depth; k++, a.advance(), factor += right.step) {
      Lanes b[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) b[n] = load_once(factor + n * kLanes);
#pragma GCC unroll 32
      for (int m = 0; m < M; m++) {
        const float value = a.at(m, step);
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) sum[m * N + n] = Op::add(sum[m * N + n], value, b[n]);
      }
    }
  }
#pragma GCC unroll 32
  for (int m = 0; m < M; m++)
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) {
      const long place = m * out_step + n * kLanes;
      Lanes x = sum[m * N + n];
      if (finish.rectify) x = rectified(x);
      if (finish.where) x = where_positive(load(finish.where + place), x);
      store(out + place, x);
    }
}

// out[m][lane] = [out[m][lane] +] sum over pixels (y, x) of left[y, x][m] * right[y, x][lane]; here
// `left.step` lies between pixels, `left.line_step` between lines, and m counts floats.
template <typename Op, int N, int M>
void add_outer(const Left& left, int width, const float* right, long right_step,
               long right_line_step, bool add, float* out, long out_step) {
  Lanes sum[M * N];
#pragma GCC unroll 32
  for (int m = 0; m < M; m++)
#pragma GCC unroll 4
    for (int n = 0; n < N; n++)
      sum[m * N + n] = add ? load(out + m * out_step + n * kLanes) : Lanes{};
  const float *line = left.at, *right_line = right;
  for (int l = 0; l < left.lines; l++, line += left.line_step, right_line += right_line_step) {
    const float *a = line, *d = right_line;
    for (int x = 0; x < width; x++, a += left.step, d += right_step) {
      Lanes b[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; n++) b[n] = load_once(d + n * kLanes);
#pragma GCC unroll 32
      for (int m = 0; m < M; m++) {
        const float value = a[m];
#pragma GCC unroll 4
        for (int n = 0; n < N; n++) sum[m * N + n] = Op::add(sum[m * N + n], value, b[n]);
      }
    }
  }
#pragma GCC unroll 32
  for (int m = 0; m < M; m++)
#pragma GCC unroll 4
    for (int n = 0; n < N; n++) store(out + m * out_step + n * kLanes, sum[m * N + n]);
}

// --- any number of rows and lanes ----------------------------------------------------------------

template <typename Op, int N, int... M>
constexpr auto products(std::integer_sequence<int, M...>) {
  return std::array{&product<Op, N, M + 1>...};
}

template <typename Op, int N, int... M>
constexpr auto outers(std::integer_sequence<int, M...>) {
  return std::array{&add_outer<Op, N, M + 1>...};
}

// Calls work(from, count) for parts of nearly equal size, of `most` at most.
template <typename Work>
void in_even_parts(int total, int most, Work work) {
  const int64_t parts = (total + static_cast<int64_t>(most) - 1) / most;
  for (int64_t i = 0; i < parts; i++) {
    const int from = static_cast<int>(total * i / parts);
    work(from, static_cast<int>(total * (i + 1) / parts) - from);
  }
}

// Calls work.operator()<N>(lane) for blocks of two vectors of lanes, and of one for what is left.
template <typename Work>
void in_blocks(int lanes, Work work) {
  int lane = 0;
  for (; lane + 2 * kLanes <= lanes; lane += 2 * kLanes)
    work(lane, std::integral_constant<int, 2>{});
  if (lane < lanes) work(lane, std::integral_constant<int, 1>{});
}

// `product` of `rows` rows.
template <typename Op, int N>
void product_rows(int rows, const Left& left, const Right& right, const Finish& finish, float* out,
                  long out_step) {
  static constexpr auto kTiles = products<Op, N>(std::make_integer_sequence<int, kMostRows<N>>{});
  in_even_parts(rows, kMostRows<N>, [&](int from, int count) {
    Left part = left;
    part.at += from * left.step;
    Finish end = finish;
    if (end.where) end.where += from * out_step;
    ahead().step();
    kTiles[count - 1](part, right, end, out + from * out_step, out_step);
  });
}

// `add_outer` of `depth` floats of each pixel.
template <typename Op, int N>
void add_outer_rows(int depth, Left left, int width, const float* right, long right_step,
                    long right_line_step, bool add, float* out, long out_step) {
  static constexpr auto kTiles = outers<Op, N>(std::make_integer_sequence<int, kMostRows<N>>{});
  in_even_parts(depth, kMostRows<N>, [&](int from, int count) {
    Left part = left;
    part.at += from;
    ahead().step();
    kTiles[count - 1](part, width, right, right_step, right_line_step, add, out + from * out_step,
                      out_step);
  });
}

}  // namespace jaxrl
