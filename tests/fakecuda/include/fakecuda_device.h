// CUDA C++, as far as TVM writes it, for g++. The compiler reads it before the source.
#pragma once
#include <math.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../source/kernel_interface.h"

#define FAKECUDA_UNWATCHED __attribute__((no_sanitize("thread"), noinline))

namespace fakecuda {

template <class... A, size_t... I>
FAKECUDA_UNWATCHED void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}

template <class... A>
FAKECUDA_UNWATCHED void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>{});
}

template <class T>
T exchanged(T value, unsigned source) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = fakecuda_exchange(bits, source);
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline unsigned lane() {
  const Triple &t = fakecuda_now.thread, &n = fakecuda_now.block_size;
  return (t.x + n.x * (t.y + n.y * t.z)) % WARP;
}

template <class T, class F>
FAKECUDA_UNWATCHED T replaced(T* at, F value) {
  const T old = *at;
  *at = value(old);
  return old;
}

template <class T, class F>
T atomically(T* at, F value) {
  fakecuda_atomic(at, sizeof(T));
  return replaced(at, value);
}

}  // namespace fakecuda

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define threadIdx (fakecuda_now.thread)
#define blockIdx (fakecuda_now.block)
#define blockDim (fakecuda_now.block_size)
#define gridDim (fakecuda_now.grid_size)
#define warpSize 32
#define __syncthreads() fakecuda_block_barrier(__LINE__)
#define __syncwarp(...) ((void)::fakecuda::exchanged(0, ::fakecuda::lane()))
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)
#define __activemask() (fakecuda_lanes())

// ---- Vectors, with a device's alignments ----

#define FAKECUDA_VECTOR(name, T, alignment_2, alignment_4)                                 \
  struct name##1 { T x; };                                                                 \
  struct alignas(alignment_2) name##2 { T x, y; };                                         \
  struct name##3 { T x, y, z; };                                                           \
  struct alignas(alignment_4) name##4 { T x, y, z, w; };                                   \
  inline name##1 make_##name##1(T x) { return {x}; }                                       \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                               \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                       \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

FAKECUDA_VECTOR(char, signed char, 2, 4)
FAKECUDA_VECTOR(uchar, unsigned char, 2, 4)
FAKECUDA_VECTOR(short, short, 4, 8)
FAKECUDA_VECTOR(ushort, unsigned short, 4, 8)
FAKECUDA_VECTOR(int, int, 8, 16)
FAKECUDA_VECTOR(uint, unsigned, 8, 16)
FAKECUDA_VECTOR(long, long, 16, 16)
FAKECUDA_VECTOR(ulong, unsigned long, 16, 16)
FAKECUDA_VECTOR(longlong, long long, 16, 16)
FAKECUDA_VECTOR(ulonglong, unsigned long long, 16, 16)
FAKECUDA_VECTOR(float, float, 8, 16)
FAKECUDA_VECTOR(double, double, 16, 16)
#undef FAKECUDA_VECTOR

// ---- Warps ----

template <class T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const int mine = fakecuda::lane();
  return fakecuda::exchanged(value, mine / width * width + source % width);
}

template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  const int mine = fakecuda::lane(), source = mine - int(delta);
  return fakecuda::exchanged(value, source < mine / width * width ? mine : source);
}

template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  const int mine = fakecuda::lane(), source = mine + int(delta);
  return fakecuda::exchanged(value, source >= (mine / width + 1) * width ? mine : source);
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  const int mine = fakecuda::lane(), source = mine ^ mask;
  return fakecuda::exchanged(value, source >= (mine / width + 1) * width ? mine : source);
}

// ---- Memory ----

template <class T>
T __ldg(const T* at) { return *at; }
template <class T, class U>
T atomicAdd(T* at, U value) { return fakecuda::atomically(at, [=](T old) { return T(old + value); }); }
template <class T, class U>
T atomicSub(T* at, U value) { return fakecuda::atomically(at, [=](T old) { return T(old - value); }); }
template <class T, class U>
T atomicMax(T* at, U value) { return fakecuda::atomically(at, [=](T old) { return T(value) > old ? T(value) : old; }); }
template <class T, class U>
T atomicMin(T* at, U value) { return fakecuda::atomically(at, [=](T old) { return T(value) < old ? T(value) : old; }); }
template <class T, class U>
T atomicExch(T* at, U value) { return fakecuda::atomically(at, [=](T) { return T(value); }); }
template <class T>
T atomicCAS(T* at, T expected, T value) {
  return fakecuda::atomically(at, [=](T old) { return old == expected ? value : old; });
}

// PTX takes 32-bit addresses of shared memory: here, places in the block's shared memory.
#define __cvta_generic_to_shared(pointer) \
  size_t(reinterpret_cast<const unsigned char*>(pointer) - fakecuda_now.shared)

// ---- Arithmetic: fast functions are the exact ones, some of whose names the C library has taken ----

#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __powf(x, y) powf(x, y)
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }

template <class To, class From>
To fakecuda_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int x) { return fakecuda_bits<float>(x); }
inline int __float_as_int(float x) { return fakecuda_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return fakecuda_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return fakecuda_bits<unsigned>(x); }

// As fmaxf and fminf, a number wins over what is none.
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(a) != C(a) || C(b) > C(a) ? C(b) : C(a);
}
template <class A, class B, class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>>>
std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return C(a) != C(a) || C(b) < C(a) ? C(b) : C(a);
}

inline int __dp4a(int a, int b, int sum) {
  for (int bit = 0; bit < 32; bit += 8) sum += int(int8_t(a >> bit)) * int(int8_t(b >> bit));
  return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int bit = 0; bit < 32; bit += 8) sum += unsigned(uint8_t(a >> bit)) * unsigned(uint8_t(b >> bit));
  return sum;
}
inline int __dp4a(char4 a, char4 b, int sum) { return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
inline unsigned __dp4a(uchar4 a, uchar4 b, unsigned sum) {
  return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
