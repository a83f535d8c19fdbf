#include "machine.h"

#include <fcntl.h>
#include <time.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

namespace fakecuda {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

std::string variable(const char* name, const char* otherwise) {
  const char* found = getenv(name);
  return found ? found : otherwise;
}

std::string content(const std::string& path) {
  std::string found;
  if (FILE* file = path.empty() ? nullptr : fopen(path.c_str(), "r")) {
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) found.append(part, n);
    fclose(file);
  }
  return found;
}

// As the real driver: a list ends at its first unknown entry, and a prefix of a UUID is enough.
std::vector<Device> visible(const std::vector<Device>& all) {
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return all;
  std::vector<Device> found;
  for (const std::string& entry : split(list, ',')) {
    const Device* match = nullptr;
    for (const Device& device : all)
      if (entry == std::to_string(device.ordinal) ||
          (entry.size() > 4 && entry.rfind("GPU-", 0) == 0 && device.uuid.rfind(entry, 0) == 0))
        match = &device;
    if (match == nullptr) break;
    found.push_back(*match);
  }
  return found;
}

Settings read_settings() {
  const std::string order = variable("CUDA_FAKE_ORDER", "forward");
  Settings found;
  found.devices = visible(all_devices());
  found.order = order == "reverse" ? Order::REVERSE : order.rfind("random", 0) == 0 ? Order::RANDOM : Order::FORWARD;
  found.seed = order.rfind("random:", 0) == 0 ? std::stoul(order.substr(7)) : 1;
  found.clock_counts_work = variable("CUDA_FAKE_CLOCK", "") == "work";
  found.checks_races = variable("CUDA_FAKE_RACES", "") != "unchecked";
  log("opened by process %d, %zu devices, parent %d\n", getpid(), found.devices.size(), getppid());
  return found;
}

const std::map<std::string, int> FAULTS = {
    {"illegal_address", ILLEGAL_ADDRESS}, {"launch_failed", LAUNCH_FAILED}, {"misaligned", MISALIGNED}, {"ecc", ECC},
    {"lost", UNAVAILABLE}, {"out_of_resources", OUT_OF_RESOURCES}, {"unknown", UNKNOWN},
};

}  // namespace

std::string file_of(const char* name) {
  const std::string folder = variable("CUDA_FAKE", "");
  return folder.empty() ? "" : folder + "/" + name;
}

void log(const char* format, ...) {
  const std::string path = file_of("log");
  const int file = path.empty() ? -1 : open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return;
  va_list arguments;
  va_start(arguments, format);
  vdprintf(file, format, arguments);
  va_end(arguments);
  close(file);
}

Alone::Alone(const Device& device) {
  const std::string path = file_of(("used-" + std::to_string(device.ordinal)).c_str());
  file_ = path.empty() ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0) log("overlap device %d process %d\n", device.ordinal, getpid());
}

Alone::~Alone() {
  if (file_ >= 0) close(file_);
}

std::vector<Device> all_devices() {
  std::string lines = content(file_of("devices"));
  if (lines.empty()) lines = "NVIDIA Fake GPU:89:8\nNVIDIA Fake GPU:89:8\n";
  std::vector<Device> found;
  for (const std::string& line : split(lines, '\n')) {
    const std::vector<std::string> fields = split(line, ':');  // name, arch, GiB
    if (fields.size() != 3) continue;
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-fa4e%04zu-0000-0000-0000-000000000000", found.size());
    found.push_back({int(found.size()), std::stoi(fields[1]), fields[0], uuid, std::stoull(fields[2]) << 30});
  }
  return found;
}

Settings& settings() {
  static Settings found = read_settings();
  return found;
}

State& state() {
  static auto* found = new State;
  return *found;
}

int standing_error() {
  static const pid_t owner = getpid();
  return owner != getpid() ? int(NOT_INITIALIZED) : state().sticky;
}

double clock_ms() {
  if (settings().clock_counts_work) return state().work * 1e-6;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

// The file fault-DEVICE holds a word and, if wanted, the number of the launch in this process; the one that meets it
// deletes it. "always" in the place of the number: each launch, and the file stays.
int fault_of(const Device& device, long launch) {
  const std::string path = file_of(("fault-" + std::to_string(device.ordinal)).c_str());
  std::istringstream asked(content(path));
  std::string word, when;
  if (!(asked >> word)) return 0;
  if (asked >> when && when != "always" && std::stol(when) != launch) return 0;
  if (when != "always" && unlink(path.c_str()) != 0) return 0;  // another process has met it
  log("fault %s device %d launch %ld process %d\n", word.c_str(), device.ordinal, launch, getpid());
  if (word == "hang")
    for (;;) pause();
  if (word == "crash") abort();
  const auto found = FAULTS.find(word);
  return found == FAULTS.end() ? int(UNKNOWN) : found->second;
}

const char* name_of(int error) {
  switch (error) {
    case 0: return "CUDA_SUCCESS";
    case INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
    case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
    case NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
    case UNAVAILABLE: return "CUDA_ERROR_DEVICE_UNAVAILABLE";
    case NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
    case INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
    case INVALID_IMAGE: return "CUDA_ERROR_INVALID_IMAGE";
    case NO_BINARY: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
    case ECC: return "CUDA_ERROR_ECC_UNCORRECTABLE";
    case NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
    case ILLEGAL_ADDRESS: return "CUDA_ERROR_ILLEGAL_ADDRESS";
    case OUT_OF_RESOURCES: return "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
    case MISALIGNED: return "CUDA_ERROR_MISALIGNED_ADDRESS";
    case LAUNCH_FAILED: return "CUDA_ERROR_LAUNCH_FAILED";
    case NOT_SUPPORTED: return "CUDA_ERROR_NOT_SUPPORTED";
    default: return "CUDA_ERROR_UNKNOWN";
  }
}

}  // namespace fakecuda
