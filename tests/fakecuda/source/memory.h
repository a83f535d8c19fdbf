// Device memory: host memory between guard pages, which only kernels and copies may touch.
#pragma once
#include <cstddef>
#include <cstdint>

#include "machine.h"

namespace fakecuda {

// Who touched a byte last; see races.cpp.
struct Trace {
  uint64_t write, read;
};

struct Buffer {
  unsigned char *begin, *pages;
  size_t bytes, page_bytes;
  Trace* traces;  // one for each byte
};

constexpr size_t PAGE = 4096;

void* mapped(size_t bytes);  // zeros; none of it is used until it is touched
EXPORTED void* allocate(size_t bytes);  // nullptr: out of memory
EXPORTED bool give_back(void* begin);
// The buffer that an address lies in, or behind whose end it lies before the next page; nullptr: none.
const Buffer* buffer_at(const void* address);
// Whether bytes lie within one buffer.
EXPORTED bool within_buffer(const void* address, size_t bytes);
// Whether bytes lie in the pages of any buffer.
EXPORTED bool is_device_memory(const void* address);

// Device memory may be touched while one of these lives. Elsewhere a program gets a segmentation fault, as it would.
class EXPORTED Opened {
 public:
  Opened();
  ~Opened();
};

}  // namespace fakecuda
