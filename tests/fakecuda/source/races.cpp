// Each byte of shared and device memory remembers its last write and its last reads: by which block and thread, and
// behind how many barriers. Two accesses by two threads, one of them a write, are a race unless a barrier lies between
// them: __syncthreads() for threads of a block, __syncwarp() or a shuffle for those of a warp, nothing for two blocks.
// A write that leaves the value as it is harms nothing, and is allowed.
//
// Kernels are compiled with -fsanitize=thread, and the functions that it calls are here. Source of the idea: Serebryany
// and Iskhodzhanov, ThreadSanitizer: data race detection in practice, WBIA 2009; with barriers in the place of locks.
#include "races.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "blocks.h"
#include "machine.h"
#include "memory.h"

namespace fakecuda {
namespace {

// A place in time, in 64 bits: block, its barriers so far, those of the warp since then, thread; and flags.
constexpr int FLAG_BITS = 3, THREAD_BITS = 10, WARP_BITS = 9, BARRIER_BITS = 18, BLOCK_BITS = 24;
constexpr int THREAD_AT = FLAG_BITS, WARP_AT = THREAD_AT + THREAD_BITS, BARRIER_AT = WARP_AT + WARP_BITS,
              BLOCK_AT = BARRIER_AT + BARRIER_BITS;
static_assert(BLOCK_AT + BLOCK_BITS == 64);
enum WriteFlag : uint64_t { ATOMIC = 1, PENDING = 2 };
enum ReadFlag : uint64_t { BY_WARP = 1, BY_BLOCK = 2, BY_OTHER_BLOCKS = 4 };

constexpr uint64_t field(uint64_t when, int at, int bits) { return when >> at & ((uint64_t(1) << bits) - 1); }
constexpr uint64_t block_of(uint64_t when) { return field(when, BLOCK_AT, BLOCK_BITS); }
constexpr uint64_t barriers_of(uint64_t when) { return field(when, BARRIER_AT, BARRIER_BITS); }
constexpr uint64_t warp_barriers_of(uint64_t when) { return field(when, WARP_AT, WARP_BITS); }
constexpr uint64_t thread_of(uint64_t when) { return field(when, THREAD_AT, THREAD_BITS); }

constexpr size_t DOUBT_MAX = 16;
constexpr unsigned SHARED_MAX = 512 << 10;

uint64_t blocks_run, first_of_launch;  // blocks since the process began
Arena arena;
unsigned char* arena_begin;
Trace* shared_traces;
bool* allowed;  // bytes of shared memory that belong to an array

// A write that races with another access, before it is known whether it changes anything.
struct Doubt {
  const unsigned char* address = nullptr;
  size_t bytes = 0;
  unsigned char before[DOUBT_MAX];
  uint64_t other = 0;
} doubt;

uint64_t now() {
  const Position at = position();
  return blocks_run << BLOCK_AT | uint64_t(at.barriers) << BARRIER_AT | uint64_t(at.warp_barriers) << WARP_AT |
         uint64_t(at.thread) << THREAD_AT;
}

std::string place(const void* address) {
  const auto* at = static_cast<const unsigned char*>(address);
  char text[64];
  if (at >= arena_begin && at < arena.end)
    snprintf(text, sizeof text, "byte %td of shared memory", at - arena_begin);
  else
    snprintf(text, sizeof text, "byte %td of a buffer", at - buffer_at(at)->begin);
  return text;
}

[[noreturn]] void race(const void* address, uint64_t other) {
  const bool elsewhere = block_of(other) != blocks_run;
  fail(LAUNCH_FAILED, "race: no barrier is between this access and one by " +
                          (elsewhere ? std::string("another block") : "thread " + std::to_string(thread_of(other))) +
                          ", to " + place(address));
}

// Whether a barrier lies between an access by the same block and now, or it was the same thread.
bool ordered(uint64_t other, uint64_t mine) {
  if (barriers_of(other) != barriers_of(mine)) return true;
  const bool same_warp = thread_of(other) / WARP == thread_of(mine) / WARP;
  if (same_warp && warp_barriers_of(other) != warp_barriers_of(mine)) return true;
  return thread_of(other) == thread_of(mine);
}

bool conflicts_with_write(uint64_t write, uint64_t mine, bool atomic, bool device) {
  if (block_of(write) < first_of_launch || (atomic && (write & ATOMIC))) return false;
  return block_of(write) == blocks_run ? !ordered(write, mine) : device;
}

bool conflicts_with_read(uint64_t read, uint64_t mine, bool device) {
  if (block_of(read) < first_of_launch) return false;
  if (block_of(read) != blocks_run || (read & BY_OTHER_BLOCKS)) return device;
  if (barriers_of(read) != barriers_of(mine)) return false;
  if (read & BY_BLOCK) return true;
  const bool same_warp = thread_of(read) / WARP == thread_of(mine) / WARP;
  if (read & BY_WARP) return !(same_warp && warp_barriers_of(read) != warp_barriers_of(mine));
  return !ordered(read, mine);
}

// What is remembered of the reads of a byte when another one comes.
uint64_t joined(uint64_t read, uint64_t mine) {
  if (block_of(read) < first_of_launch) return mine;
  if (block_of(read) != blocks_run) return mine | BY_OTHER_BLOCKS;
  const uint64_t others = read & BY_OTHER_BLOCKS;
  if (barriers_of(read) != barriers_of(mine)) return mine | others;
  if (read & BY_BLOCK) return read;
  if (thread_of(read) / WARP != thread_of(mine) / WARP) return mine | BY_BLOCK | others;
  if (warp_barriers_of(read) != warp_barriers_of(mine)) return mine | others;
  return mine | others | (read & BY_WARP) | (thread_of(read) == thread_of(mine) ? 0 : uint64_t(BY_WARP));
}

void check(const unsigned char* address, Trace* traces, size_t bytes, bool writes, bool atomic, bool device) {
  const uint64_t mine = now();
  for (size_t i = 0; i < bytes; ++i) {
    Trace& trace = traces[i];
    if ((trace.write & PENDING) && block_of(trace.write) == blocks_run)
      fail(LAUNCH_FAILED, "race: nothing has waited for an asynchronous copy to " + place(address + i));
    const bool with_write = conflicts_with_write(trace.write, mine, atomic, device);
    if (!writes) {
      if (with_write) race(address + i, trace.write);
      trace.read = joined(trace.read, mine);
      continue;
    }
    if (with_write || conflicts_with_read(trace.read, mine, device)) {
      const uint64_t other = with_write ? trace.write : trace.read;
      if (bytes > DOUBT_MAX || atomic) race(address + i, other);
      if (doubt.address == nullptr) {
        doubt.address = address;
        doubt.bytes = bytes;
        doubt.other = other;
        memcpy(doubt.before, address, bytes);
      }
    }
    trace.write = mine | (atomic ? uint64_t(ATOMIC) : 0);
  }
}

}  // namespace

void begin_launch(const Kernel& kernel, Arena given, unsigned dynamic_offset, unsigned dynamic_bytes) {
  if (shared_traces == nullptr) {
    shared_traces = static_cast<Trace*>(mapped(SHARED_MAX * sizeof(Trace)));
    allowed = static_cast<bool*>(mapped(SHARED_MAX));
  }
  arena = given;
  arena_begin = given.end - given.used;
  first_of_launch = blocks_run + 1;
  memset(allowed, 0, given.used);
  for (unsigned i = 0; i < kernel.array_count; ++i) memset(allowed + kernel.arrays[i].offset, 1, kernel.arrays[i].bytes);
  memset(allowed + dynamic_offset, 1, dynamic_bytes);
}

void begin_block() {
  doubt.address = nullptr;
  if (++blocks_run >> BLOCK_BITS) abort();
}

void settle() {
  if (doubt.address == nullptr) return;
  const Doubt found = doubt;
  doubt.address = nullptr;
  if (memcmp(found.before, found.address, found.bytes) != 0) race(found.address, found.other);
}

void touch(const void* address, size_t bytes, bool writes, bool atomic) {
  if (!running()) return;
  settle();
  const auto* at = static_cast<const unsigned char*>(address);
  if (at >= arena_begin && at < arena.end) {
    const size_t offset = at - arena_begin;
    for (size_t i = 0; i < bytes; ++i)
      if (offset + i >= arena.used || !allowed[offset + i])
        fail(ILLEGAL_ADDRESS, "access outside of the arrays in shared memory, at byte " + std::to_string(offset + i));
    state().work += 1;
    if (settings().checks_races) check(at, shared_traces + offset, bytes, writes, atomic, false);
    return;
  }
  if (const Buffer* buffer = buffer_at(at)) {
    if (at < buffer->begin || at + bytes > buffer->begin + buffer->bytes)
      fail(ILLEGAL_ADDRESS, "access outside of a buffer of " + std::to_string(buffer->bytes) + " bytes, at byte " +
                                std::to_string(at - buffer->begin));
    state().work += 4;
    if (buffer->traces) check(at, buffer->traces + (at - buffer->begin), bytes, writes, atomic, true);
    return;
  }
  if (!belongs_to_thread(address)) fail(ILLEGAL_ADDRESS, "access to memory that is not the device's");
}

void begin_copy(unsigned char* to, unsigned bytes) {
  touch(to, bytes, true);
  doubt.address = nullptr;  // it changes what is there, though later
  if (!settings().checks_races) return;
  for (unsigned i = 0; i < bytes; ++i) shared_traces[to - arena_begin + i].write |= PENDING;
}

void end_copy(unsigned char* to, unsigned bytes) {
  if (!settings().checks_races) return;
  for (unsigned i = 0; i < bytes; ++i) shared_traces[to - arena_begin + i].write = now();
}

}  // namespace fakecuda

using fakecuda::touch;

#define FAKECUDA_HOOKS(n)                                                \
  PUBLIC void __tsan_read##n(void* at) { touch(at, n, false); }          \
  PUBLIC void __tsan_write##n(void* at) { touch(at, n, true); }          \
  PUBLIC void __tsan_unaligned_read##n(void* at) { touch(at, n, false); } \
  PUBLIC void __tsan_unaligned_write##n(void* at) { touch(at, n, true); }
FAKECUDA_HOOKS(1)
FAKECUDA_HOOKS(2)
FAKECUDA_HOOKS(4)
FAKECUDA_HOOKS(8)
FAKECUDA_HOOKS(16)
PUBLIC void __tsan_read_range(void* at, size_t bytes) { touch(at, bytes, false); }
PUBLIC void __tsan_write_range(void* at, size_t bytes) { touch(at, bytes, true); }
PUBLIC void __tsan_init() {}
PUBLIC void __tsan_func_entry(void*) {}
PUBLIC void __tsan_func_exit() {}
PUBLIC void fakecuda_atomic(const void* at, unsigned bytes) { touch(at, bytes, true, true); }
