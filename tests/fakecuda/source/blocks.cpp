#include "blocks.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "machine.h"
#include "memory.h"
#include "races.h"

fakecuda::Now fakecuda_now __attribute__((visibility("default")));

// Saves the registers that a called function must keep on this stack, and goes on with those of another one.
extern "C" void fakecuda_switch(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl fakecuda_switch
.hidden fakecuda_switch
.type fakecuda_switch, @function
fakecuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
constexpr int SAVED_WORDS = 8, ENTRY_WORD = 6;  // the return address, and a word so that the stack is aligned
#elif defined(__aarch64__)
asm(R"(
.text
.globl fakecuda_switch
.hidden fakecuda_switch
.type fakecuda_switch, %function
fakecuda_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
constexpr int SAVED_WORDS = 20, ENTRY_WORD = 11;  // x30
#else
#error "fakecuda runs kernels on x86-64 and aarch64"
#endif

namespace fakecuda {
namespace {

constexpr size_t STACK = 256 << 10, SIGNAL_STACK = 64 << 10;
constexpr unsigned ARENA = 512 << 10, DYNAMIC_ALIGNMENT = 1024;
constexpr uint64_t UNDEFINED = 0xFFFFFFFFFFFFFFFF;

enum class At { START, RUNNING, BLOCK_BARRIER, WARP_BARRIER, END };

struct Copy {
  unsigned to, bytes;
  const void* from;  // nullptr: zeros
};

struct Fiber {
  void* stack_pointer;
  At at;
  unsigned line;  // of the barrier of the block at which it waits
  uint64_t passed, got;
  unsigned source;
  std::vector<std::vector<Copy>> groups;  // asynchronous copies under way; the last group is open
};

std::vector<Fiber> fibers;
std::vector<unsigned> warp_barriers;  // of each warp since the last barrier of the block
unsigned current, threads, block_barriers;
void* scheduler;
Launch launched;
unsigned char *stacks, *arena_end;
sigjmp_buf escape;
volatile sig_atomic_t inside;
int failure;
std::string reason;

void prepare() {
  if (stacks) return;
  auto* arena = static_cast<unsigned char*>(mapped(ARENA + PAGE));
  arena_end = arena + ARENA;
  mprotect(arena_end, PAGE, PROT_NONE);
  stacks = static_cast<unsigned char*>(mapped(STACK * THREADS_MAX));
  for (unsigned i = 0; i < THREADS_MAX; ++i) mprotect(stacks + i * STACK, PAGE, PROT_NONE);
}

void leave(At at) {
  settle();
  fibers[current].at = at;
  fakecuda_switch(&fibers[current].stack_pointer, scheduler);
}

extern "C" void fakecuda_fiber() {
  launched.kernel->run(launched.arguments);
  leave(At::END);
  abort();
}

void resume(unsigned number) {
  current = number;
  Fiber& fiber = fibers[number];
  const Triple& size = launched.block;
  fakecuda_now.thread = {number % size.x, number / size.x % size.y, number / size.x / size.y};
  if (fiber.at == At::START) {
    auto** top = reinterpret_cast<void**>(stacks + (number + 1) * STACK) - SAVED_WORDS;
    top[ENTRY_WORD] = reinterpret_cast<void*>(&fakecuda_fiber);
    fiber.stack_pointer = top;
  }
  fiber.at = At::RUNNING;
  fakecuda_switch(&scheduler, fiber.stack_pointer);
}

// Runs a warp until each of its threads waits at a barrier of the block or has ended.
void run_warp(unsigned warp, const std::vector<unsigned>& order) {
  const unsigned first = warp * WARP, count = std::min(WARP, threads - first);
  for (;;) {
    for (unsigned lane : order)
      if (lane < count && fibers[first + lane].at != At::BLOCK_BARRIER && fibers[first + lane].at != At::END)
        resume(first + lane);
    bool waits = false;
    for (unsigned lane = 0; lane < count; ++lane) {
      Fiber& fiber = fibers[first + lane];
      if (fiber.at != At::WARP_BARRIER) continue;
      waits = true;
      const bool takes_part = fiber.source < count && fibers[first + fiber.source].at == At::WARP_BARRIER;
      fiber.got = takes_part ? fibers[first + fiber.source].passed : UNDEFINED;
    }
    if (!waits) return;
    ++warp_barriers[warp];
  }
}

void check_barrier() {
  const Fiber* waits = nullptr;
  unsigned ended = 0;
  for (const Fiber& fiber : fibers) {
    if (fiber.at == At::END)
      ++ended;
    else if (waits && waits->line != fiber.line)
      fail(LAUNCH_FAILED, "threads of a block wait at different __syncthreads()");
    else
      waits = &fiber;
  }
  if (waits && ended) fail(LAUNCH_FAILED, "some threads of a block ended while others wait at __syncthreads()");
}

void run_block(std::mt19937& chance) {
  const unsigned warps = (threads + WARP - 1) / WARP;
  std::vector<unsigned> lanes(WARP), warp_order(warps);
  std::iota(lanes.begin(), lanes.end(), 0);
  std::iota(warp_order.begin(), warp_order.end(), 0);
  if (settings().order == Order::REVERSE) {
    std::reverse(lanes.begin(), lanes.end());
    std::reverse(warp_order.begin(), warp_order.end());
  }
  for (Fiber& fiber : fibers) {
    fiber.at = At::START;
    fiber.groups.clear();
  }
  block_barriers = 0;
  begin_block();
  for (;;) {
    if (settings().order == Order::RANDOM) {
      std::shuffle(lanes.begin(), lanes.end(), chance);
      std::shuffle(warp_order.begin(), warp_order.end(), chance);
    }
    warp_barriers.assign(warps, 0);
    for (unsigned warp : warp_order) run_warp(warp, lanes);
    check_barrier();
    if (fibers[0].at == At::END) return;
    for (Fiber& fiber : fibers) fiber.at = At::RUNNING;
    ++block_barriers;
  }
}

void on_signal(int number, siginfo_t*, void*) {
  if (!inside) {  // none of ours: as if nothing caught it
    signal(number, SIG_DFL);
    return;
  }
  // The compiler lets a kernel trap (SIGILL, SIGTRAP) where a device would report a misaligned address, outside of a
  // local array, and before a division by zero.
  const bool trap = number == SIGILL || number == SIGTRAP;
  failure = trap ? MISALIGNED : ILLEGAL_ADDRESS;
  reason = trap ? "misaligned address, access outside of a local array, or division by zero"
                : "access outside of all buffers";
  inside = 0;
  siglongjmp(escape, 1);
}

// Catches signals while it lives.
class Caught {
 public:
  Caught() {
    static void* room = mapped(SIGNAL_STACK);
    stack_t ours{};
    ours.ss_sp = room;
    ours.ss_size = SIGNAL_STACK;
    sigaltstack(&ours, &stack_);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < COUNT; ++i) sigaction(SIGNALS[i], &action, &before_[i]);
  }
  ~Caught() {
    for (int i = 0; i < COUNT; ++i) sigaction(SIGNALS[i], &before_[i], nullptr);
    sigaltstack(&stack_, nullptr);
  }

 private:
  static constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}, COUNT = 5;
  struct sigaction before_[COUNT];
  stack_t stack_{};
};

}  // namespace

Position position() { return {current, block_barriers, warp_barriers[current / WARP]}; }

bool running() { return inside; }

bool belongs_to_thread(const void* address) {
  const auto* at = static_cast<const unsigned char*>(address);
  const auto within = [at](const void* begin, const void* end) { return at >= begin && at < end; };
  return within(stacks + current * STACK, stacks + (current + 1) * STACK) ||
         within(launched.module->begin, launched.module->end) || within(&fakecuda_now, &fakecuda_now + 1);
}

void fail(int error, const std::string& why) {
  failure = error;
  reason = why;
  inside = 0;
  siglongjmp(escape, 1);
}

int run(const Launch& launch) {
  prepare();
  launched = launch;
  const Kernel& kernel = *launch.kernel;
  threads = launch.block.x * launch.block.y * launch.block.z;
  fibers.resize(threads);
  const unsigned dynamic_at = (kernel.laid_out + DYNAMIC_ALIGNMENT - 1) / DYNAMIC_ALIGNMENT * DYNAMIC_ALIGNMENT,
                 used = dynamic_at + (launch.dynamic_shared + DYNAMIC_ALIGNMENT - 1) / DYNAMIC_ALIGNMENT * DYNAMIC_ALIGNMENT;
  fakecuda_now = {};
  fakecuda_now.block_size = launch.block;
  fakecuda_now.grid_size = launch.grid;
  fakecuda_now.shared = arena_end - used;
  fakecuda_now.dynamic_shared = fakecuda_now.shared + dynamic_at;
  begin_launch(kernel, {arena_end, used}, dynamic_at, launch.dynamic_shared);
  std::mt19937 chance(settings().seed);
  Caught caught;
  failure = 0;
  if (sigsetjmp(escape, 1) == 0) {
    inside = 1;
    const size_t blocks = size_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    for (size_t turn = 0; turn < blocks; ++turn) {
      const size_t number = settings().order == Order::REVERSE ? blocks - 1 - turn : turn;
      fakecuda_now.block = {unsigned(number % launch.grid.x), unsigned(number / launch.grid.x % launch.grid.y),
                            unsigned(number / launch.grid.x / launch.grid.y)};
      memset(fakecuda_now.shared, 0xFF, used);  // not a number
      run_block(chance);
    }
    inside = 0;
  }
  if (failure) {
    const Triple &block = fakecuda_now.block, &thread = fakecuda_now.thread;
    char text[600];
    snprintf(text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s\n", kernel.name, block.x, block.y,
             block.z, thread.x, thread.y, thread.z, reason.c_str());
    fprintf(stderr, "fakecuda: %s", text);
    log("error %d %s", failure, text);
  }
  return failure;
}

}  // namespace fakecuda

using namespace fakecuda;

PUBLIC void fakecuda_block_barrier(unsigned line) {
  fibers[current].line = line;
  leave(At::BLOCK_BARRIER);
}

PUBLIC uint64_t fakecuda_exchange(uint64_t bits, unsigned source) {
  Fiber& mine = fibers[current];
  mine.passed = bits;
  mine.source = source;
  leave(At::WARP_BARRIER);
  return fibers[current].got;
}

PUBLIC unsigned fakecuda_lanes() {
  unsigned mask = 0;
  const unsigned first = current / WARP * WARP;
  for (unsigned lane = 0; lane < WARP && first + lane < threads; ++lane)
    if (fibers[first + lane].at != At::END) mask |= 1u << lane;
  return mask;
}

PUBLIC void fakecuda_copy(unsigned to, const void* from, unsigned bytes, bool zeros) {
  unsigned char* target = fakecuda_now.shared + to;
  if ((uintptr_t(target) | (zeros ? 0 : uintptr_t(from))) % bytes)
    fail(MISALIGNED, "an asynchronous copy of " + std::to_string(bytes) + " bytes has a misaligned address");
  if (!zeros) touch(from, bytes, false);
  begin_copy(target, bytes);
  auto& groups = fibers[current].groups;
  if (groups.empty()) groups.emplace_back();
  groups.back().push_back({to, bytes, zeros ? nullptr : from});
}

PUBLIC void fakecuda_commit() {
  auto& groups = fibers[current].groups;
  if (groups.empty()) groups.emplace_back();
  groups.emplace_back();
}

PUBLIC void fakecuda_wait(unsigned groups_left) {
  auto& groups = fibers[current].groups;
  while (groups.size() > groups_left + 1) {
    for (const Copy& copy : groups.front()) {
      unsigned char* target = fakecuda_now.shared + copy.to;
      if (copy.from)
        memcpy(target, copy.from, copy.bytes);
      else
        memset(target, 0, copy.bytes);
      end_copy(target, copy.bytes);
    }
    groups.erase(groups.begin());
  }
}
