// The fake machine: its devices, what a test asks of them, and the state of this process.
#pragma once
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#define PUBLIC extern "C" __attribute__((visibility("default")))
#define EXPORTED __attribute__((visibility("default")))

namespace fakecuda {

struct Device {
  int ordinal, arch;
  std::string name, uuid;
  size_t memory;
};

enum class Order { FORWARD, REVERSE, RANDOM };

struct Settings {
  std::vector<Device> devices;  // those that CUDA_VISIBLE_DEVICES lets this process see
  Order order;
  unsigned seed;
  bool clock_counts_work, checks_races;
};

struct State {
  int device = 0;
  int sticky = 0;  // an error that all later calls report
  long launches = 0;
  double work = 0;  // see clock_ms
  size_t used = 0;  // bytes of device memory
};

// Error numbers of the driver and of the runtime, which are equal.
enum Error : int {
  INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, UNAVAILABLE = 46, NO_DEVICE = 100, INVALID_DEVICE = 101,
  INVALID_IMAGE = 200, NO_BINARY = 209, ECC = 214, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701,
  MISALIGNED = 716, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801, UNKNOWN = 999,
};

EXPORTED std::vector<Device> all_devices();
EXPORTED Settings& settings();
EXPORTED State& state();
// The error that each call reports first: none may use what a parent initialised before a fork.
EXPORTED int standing_error();
EXPORTED std::string file_of(const char* name);  // in the machine's folder; empty without one
EXPORTED void log(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Milliseconds for events: real ones, or a nanosecond for each access to memory, which are the same each time.
EXPORTED double clock_ms();
// Held while a launch runs. A launch of another process on the same device at that time is logged.
class Alone {
 public:
  explicit Alone(const Device& device);
  ~Alone();
  Alone(const Alone&) = delete;

 private:
  int file_;
};
// The fault that a test asks for at this launch; 0: none.
int fault_of(const Device& device, long launch);
const char* name_of(int error);

}  // namespace fakecuda
