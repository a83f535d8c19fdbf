// Small kernels for test_kernels.py, some of them wrong on purpose. x and y have 4 bytes for each element.
#include <cuda_runtime.h>
#define I (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void __launch_bounds__(128) turned(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[I];
  __syncthreads();
  y[I] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128) without_barrier(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[I];
  y[I] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128) overwritten_while_read(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[I];
  __syncthreads();
  y[I] = s[blockDim.x - 1 - threadIdx.x];
  s[threadIdx.x] = 7.0f;
}
extern "C" __global__ void __launch_bounds__(128) equal_values(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[1];
  s[0] = 3.0f;
  __syncthreads();
  y[I] = s[0];
}
extern "C" __global__ void __launch_bounds__(128) other_values(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[1];
  s[0] = x[I];
  __syncthreads();
  y[I] = s[0];
}
extern "C" __global__ void __launch_bounds__(128) sum_of_warp(float* __restrict__ x, float* __restrict__ y) {
  float sum = x[I];
  unsigned mask = __activemask();
  for (int delta = 16; delta; delta >>= 1) sum += __shfl_down_sync(mask, sum, delta, 32);
  y[I] = threadIdx.x % 32 == 0 ? sum : 0.0f;
}
extern "C" __global__ void __launch_bounds__(128) warp_barrier(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[I];
  __syncwarp();
  y[I] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void __launch_bounds__(128) warp_barrier_for_two_warps(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[I];
  __syncwarp();
  y[I] = s[threadIdx.x ^ 32];
}
extern "C" __global__ void __launch_bounds__(128) dynamic(float* __restrict__ x, float* __restrict__ y) {
  extern __shared__ float d[];
  d[threadIdx.x] = x[I];
  __syncthreads();
  y[I] = d[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128) behind_the_dynamic_part(float* __restrict__ x, float* __restrict__ y) {
  extern __shared__ float d[];
  d[threadIdx.x + 1] = x[I];
  __syncthreads();
  y[I] = d[threadIdx.x + 1];
}
extern "C" __global__ void __launch_bounds__(128) behind_the_buffer(float* __restrict__ x, float* __restrict__ y) { y[I + 1] = x[I]; }
extern "C" __global__ void __launch_bounds__(128) behind_a_buffer_within_its_page(float* __restrict__ x, float* __restrict__ y) { y[I] = 1.0f; }
extern "C" __global__ void __launch_bounds__(128) before_the_buffer(float* __restrict__ x, float* __restrict__ y) { y[I - 1] = x[I]; }
extern "C" __global__ void __launch_bounds__(128) behind_a_shared_array(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[64];
  __shared__ float t[64];
  float* p = s;
  p[threadIdx.x] = x[I];
  t[threadIdx.x] = 0.0f;
  __syncthreads();
  y[I] = p[threadIdx.x + 1];
}
extern "C" __global__ void __launch_bounds__(128) behind_a_local_array(float* __restrict__ x, float* __restrict__ y) {
  float local[4];
  for (int i = 0; i < 4; ++i) local[i] = x[I];
  int n = int(x[1]) + 3;
  y[I] = local[n];
}
extern "C" __global__ void __launch_bounds__(128) misaligned(float* __restrict__ x, float* __restrict__ y) { *(float4*)(y + 1) = make_float4(1.0f, 2.0f, 3.0f, 4.0f); }
extern "C" __global__ void __launch_bounds__(128) not_initialised(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  if (threadIdx.x > 0) s[threadIdx.x] = x[I];
  __syncthreads();
  y[I] = s[threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128) barrier_for_some(float* __restrict__ x, float* __restrict__ y) {
  if (threadIdx.x < 32) __syncthreads();
  y[I] = x[I];
}
extern "C" __global__ void __launch_bounds__(128) two_barriers(float* __restrict__ x, float* __restrict__ y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[I] = x[I];
}
extern "C" __global__ void __launch_bounds__(128) atomic_sum(float* __restrict__ x, float* __restrict__ y) {
  if (I == 0) y[1] = 0.0f;
  atomicAdd(y + 2 + blockIdx.x % 1, 0.0f * x[I]);
  y[I + 4] = x[I];
}
extern "C" __global__ void __launch_bounds__(128) sum_over_blocks(float* __restrict__ x, float* __restrict__ y) { y[0] = y[0] + x[I]; }
extern "C" __global__ void __launch_bounds__(128) read_from_another_block(float* __restrict__ x, float* __restrict__ y) {
  y[I] = x[I];
  if (blockIdx.x > 0) y[I] = y[I - blockDim.x] + 1.0f;
}
extern "C" __global__ void __launch_bounds__(128) copied(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
  __asm__ __volatile__("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"((void*)(x + I)), "n"(4));
  __asm__ __volatile__("cp.async.commit_group;");
  __asm__ __volatile__("cp.async.wait_group 0;");
  __syncthreads();
  y[I] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128) copy_not_waited_for(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
  __asm__ __volatile__("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"((void*)(x + I)), "n"(4));
  __asm__ __volatile__("cp.async.commit_group;");
  __asm__ __volatile__("cp.async.wait_group 1;");
  __syncthreads();
  y[I] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(128) copy_waited_for_by_one_thread(float* __restrict__ x, float* __restrict__ y) {
  __shared__ float s[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
  __asm__ __volatile__("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"((void*)(x + I)), "n"(4));
  __asm__ __volatile__("cp.async.commit_group;");
  __asm__ __volatile__("cp.async.wait_group 0;");
  y[I] = s[blockDim.x - 1 - threadIdx.x];
}
