// Runs the blocks of a kernel one after the other; the threads of a block are fibers that take turns at barriers.
#pragma once
#include <string>

#include "kernel_interface.h"

namespace fakecuda {

constexpr unsigned SHARED_MAX_BYTES = 232448, SHARED_STATIC_MAX_BYTES = 49152, THREADS_MAX = 1024;

struct Launch {
  const Kernel* kernel;
  const Module* module;
  void** arguments;
  Triple grid, block;
  unsigned dynamic_shared;
};

// Returns an error's number, or 0. What went wrong is printed.
int run(const Launch& launch);

// The thread that runs now: its number in the block, and the barriers before it.
struct Position {
  unsigned thread, barriers, warp_barriers;
};
Position position();
bool running();
// Whether memory is the thread's own: its stack, the code's constants, or what it knows of itself.
bool belongs_to_thread(const void* address);
// Ends the launch with an error.
[[noreturn]] void fail(int error, const std::string& why);

}  // namespace fakecuda
