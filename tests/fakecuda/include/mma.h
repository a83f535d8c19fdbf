// Matrices of tensor cores. The first lane of a warp holds each matrix whole, and acts for the warp.
#pragma once
#include "fakecuda_device.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr int ROWS = std::is_same_v<Use, matrix_b> ? K : M, COLUMNS = std::is_same_v<Use, matrix_a> ? K : N;
  T x[ROWS * COLUMNS];
};

inline bool acts() { return fakecuda::lane() == 0; }

constexpr unsigned place(int row, int column, unsigned stride, bool by_rows) {
  return by_rows ? row * stride + column : column * stride + row;
}

template <class Fragment, class Value>
void fill_fragment(Fragment& matrix, Value value) {
  if (!acts()) return;
  for (auto& element : matrix.x) element = value;
}

template <class Fragment, class T>
void loaded(Fragment& matrix, const T* from, unsigned stride, bool by_rows) {
  if (!acts()) return;
  for (int i = 0; i < Fragment::ROWS; ++i)
    for (int j = 0; j < Fragment::COLUMNS; ++j)
      matrix.x[i * Fragment::COLUMNS + j] = from[place(i, j, stride, by_rows)];
}

template <class Use, int M, int N, int K, class T, class Layout, class From>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& matrix, const From* from, unsigned stride) {
  loaded(matrix, from, stride, std::is_same_v<Layout, row_major>);
}

template <class Fragment, class From>
void load_matrix_sync(Fragment& matrix, const From* from, unsigned stride, layout_t layout) {
  loaded(matrix, from, stride, layout == mem_row_major);
}

template <class To, class Fragment>
void store_matrix_sync(To* to, const Fragment& matrix, unsigned stride, layout_t layout) {
  if (!acts()) return;
  for (int i = 0; i < Fragment::ROWS; ++i)
    for (int j = 0; j < Fragment::COLUMNS; ++j)
      to[place(i, j, stride, layout == mem_row_major)] = matrix.x[i * Fragment::COLUMNS + j];
}

template <class D, class A, class B, class C>
void mma_sync(D& d, const A& a, const B& b, const C& c) {
  if (!acts()) return;
  using Sum = std::conditional_t<std::is_integral_v<std::decay_t<decltype(c.x[0])>>, int, float>;
  for (int i = 0; i < A::ROWS; ++i)
    for (int j = 0; j < B::COLUMNS; ++j) {
      Sum sum = Sum(c.x[i * B::COLUMNS + j]);
      for (int k = 0; k < A::COLUMNS; ++k) sum += Sum(a.x[i * A::COLUMNS + k]) * Sum(b.x[k * B::COLUMNS + j]);
      d.x[i * B::COLUMNS + j] = sum;
    }
}

}  // namespace wmma
}  // namespace nvcuda
