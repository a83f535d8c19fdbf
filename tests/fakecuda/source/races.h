// Finds what no order of threads may show: races, accesses outside of shared arrays, copies that nothing waited for.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernel_interface.h"

namespace fakecuda {

// Shared memory of one block ends at this address. `used`: its bytes; kernels see them behind `arena_end - used`.
struct Arena {
  unsigned char* end;
  unsigned used;
};

void begin_launch(const Kernel& kernel, Arena arena, unsigned dynamic_offset, unsigned dynamic_bytes);
void begin_block();
// Tells that the thread that runs now is another one, or goes on behind a barrier.
void settle();
void touch(const void* address, size_t bytes, bool writes, bool atomic = false);
// An asynchronous copy to shared memory has begun, or is done.
void begin_copy(unsigned char* to, unsigned bytes);
void end_copy(unsigned char* to, unsigned bytes);

}  // namespace fakecuda
