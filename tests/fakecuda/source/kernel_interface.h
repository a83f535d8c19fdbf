// What compiled kernels and the fake driver know of each other.
#pragma once
#include <cstddef>
#include <cstdint>

namespace fakecuda {

struct Triple {
  unsigned x, y, z;
};

// The thread that runs now, as a kernel sees it.
struct Now {
  Triple thread, block, block_size, grid_size;
  unsigned char* shared;          // the block's shared memory: its arrays of fixed size
  unsigned char* dynamic_shared;  // the part whose size the launch gives
};

// A part of shared memory, from its begin, in bytes.
struct Part {
  unsigned offset, bytes;
};

struct Kernel {
  const char* name;
  void (*run)(void** arguments);
  unsigned static_shared;  // bytes that a device would count
  unsigned laid_out;       // bytes that its arrays take here, with the gaps between them
  unsigned threads_max;    // of __launch_bounds__; 0: not given
  const Part* arrays;
  unsigned array_count;
};

// Symbol "fakecuda_module" of a compiled file.
struct Module {
  uint32_t magic;
  unsigned arch;  // 89 for sm_89
  const Kernel* kernels;
  unsigned count;
  const char *begin, *end;  // its own memory, with its constants
};

constexpr uint32_t MAGIC = 0xFACEC0DB;
constexpr unsigned WARP = 32;

}  // namespace fakecuda

extern "C" {
extern fakecuda::Now fakecuda_now;
void fakecuda_block_barrier(unsigned line);
// Gives the bits that lane `source` of the warp passed.
uint64_t fakecuda_exchange(uint64_t bits, unsigned source);
unsigned fakecuda_lanes();
// Asynchronous copies to shared memory: done when they are waited for, so that a wait that lacks shows.
void fakecuda_copy(unsigned to, const void* from, unsigned bytes, bool zeros);
void fakecuda_commit();
void fakecuda_wait(unsigned groups_left);
// An atomic operation follows.
void fakecuda_atomic(const void* at, unsigned bytes);
}
