// libnvidia-ml.so.1: what nvidia-ml-py asks about the state of a device.
//
// The file health in the machine's folder has lines "DEVICE KEY VALUE", and is read at each call: "0 temperature 91",
// "0 reasons 64", "0 process 4242", "0 lost 1". A device of which it says nothing is cool and idle.
#include <cstring>
#include <fstream>

#include "machine.h"

using namespace fakecuda;

namespace {

enum Answer { OK = 0, INVALID = 2, UNSUPPORTED = 3, MISSING = 6, SMALL = 7, LOST = 15 };  // nvmlReturn_t
constexpr unsigned DEVICES_MAX = 64;

struct Handle {
  unsigned ordinal;
};
Handle handles[DEVICES_MAX];

struct Process {  // nvmlProcessInfo_t
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

long said(const Handle* device, const std::string& key, long otherwise) {
  std::ifstream lines(file_of("health"));
  unsigned ordinal;
  std::string word;
  for (long value; lines >> ordinal >> word >> value;)
    if (ordinal == device->ordinal && word == key) otherwise = value;
  return otherwise;
}

template <class T>
int give(const Handle* device, T* out, const char* key, long otherwise) {
  if (said(device, "lost", 0)) return LOST;
  const long value = said(device, key, otherwise);
  if (value < 0) return UNSUPPORTED;
  *out = T(value);
  return OK;
}

}  // namespace

PUBLIC int nvmlInit_v2() { return OK; }
PUBLIC int nvmlInitWithFlags(unsigned) { return OK; }
PUBLIC int nvmlShutdown() { return OK; }

PUBLIC const char* nvmlErrorString(int answer) {
  switch (answer) {
    case LOST: return "GPU is lost";
    case MISSING: return "Not Found";
    case UNSUPPORTED: return "Not Supported";
    default: return "Error";
  }
}

PUBLIC int nvmlSystemGetDriverVersion(char* out, unsigned length) {
  snprintf(out, length, "580.00.fake");
  return OK;
}

PUBLIC int nvmlSystemGetCudaDriverVersion(int* out) {
  *out = 13000;
  return OK;
}

PUBLIC int nvmlSystemGetCudaDriverVersion_v2(int* out) { return nvmlSystemGetCudaDriverVersion(out); }

PUBLIC int nvmlDeviceGetCount_v2(unsigned* out) {
  *out = unsigned(all_devices().size());
  return OK;
}

PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned number, Handle** out) {
  if (number >= all_devices().size() || number >= DEVICES_MAX) return INVALID;
  handles[number].ordinal = number;
  *out = &handles[number];
  return said(*out, "lost", 0) ? LOST : OK;
}

PUBLIC int nvmlDeviceGetHandleByUUID(const char* uuid, Handle** out) {
  for (const Device& device : all_devices())
    if (device.uuid == uuid) return nvmlDeviceGetHandleByIndex_v2(unsigned(device.ordinal), out);
  return MISSING;
}

PUBLIC int nvmlDeviceGetUUID(Handle* device, char* out, unsigned length) {
  snprintf(out, length, "%s", all_devices().at(device->ordinal).uuid.c_str());
  return OK;
}

PUBLIC int nvmlDeviceGetName(Handle* device, char* out, unsigned length) {
  snprintf(out, length, "%s", all_devices().at(device->ordinal).name.c_str());
  return OK;
}

PUBLIC int nvmlDeviceGetIndex(Handle* device, unsigned* out) {
  *out = device->ordinal;
  return OK;
}

PUBLIC int nvmlDeviceGetCudaComputeCapability(Handle* device, int* major, int* minor) {
  const int arch = all_devices().at(device->ordinal).arch;
  *major = arch / 10;
  *minor = arch % 10;
  return OK;
}

PUBLIC int nvmlDeviceGetNumGpuCores(Handle* device, unsigned* out) { return give(device, out, "cores", 512); }
PUBLIC int nvmlDeviceGetTemperature(Handle* device, int, unsigned* out) { return give(device, out, "temperature", 41); }
PUBLIC int nvmlDeviceGetTemperatureThreshold(Handle* device, int, unsigned* out) {
  return give(device, out, "slowdown", 90);
}
PUBLIC int nvmlDeviceGetClockInfo(Handle* device, int which, unsigned* out) {
  return which == 2 ? give(device, out, "memory_clock", 10000) : give(device, out, "sm_clock", 2500);
}
PUBLIC int nvmlDeviceGetMaxClockInfo(Handle* device, int which, unsigned* out) {
  return which == 2 ? give(device, out, "memory_clock_max", 10000) : give(device, out, "sm_clock_max", 2500);
}
PUBLIC int nvmlDeviceGetCurrentClocksEventReasons(Handle* device, unsigned long long* out) {
  return give(device, out, "reasons", 1);
}
PUBLIC int nvmlDeviceGetCurrentClocksThrottleReasons(Handle* device, unsigned long long* out) {
  return give(device, out, "reasons", 1);
}
PUBLIC int nvmlDeviceGetPersistenceMode(Handle* device, int* out) { return give(device, out, "persistence", 1); }
PUBLIC int nvmlDeviceGetComputeMode(Handle* device, int* out) { return give(device, out, "compute_mode", 0); }
PUBLIC int nvmlDeviceGetPowerUsage(Handle* device, unsigned* out) { return give(device, out, "milliwatts", 30000); }

PUBLIC int nvmlDeviceGetTotalEccErrors(Handle* device, int, int, unsigned long long* out) {
  return give(device, out, "ecc_errors", 0);
}

PUBLIC int nvmlDeviceGetUtilizationRates(Handle* device, unsigned* out) {
  out[1] = 0;
  return give(device, out, "utilization", 0);
}

PUBLIC int nvmlDeviceGetMigMode(Handle* device, unsigned* out, unsigned* pending) {
  *pending = 0;
  return give(device, out, "mig", 0);
}

PUBLIC int nvmlDeviceGetMemoryInfo(Handle* device, unsigned long long* out) {  // total, free, used
  out[0] = all_devices().at(device->ordinal).memory;
  const int answer = give(device, &out[2], "memory_used", 0);
  out[1] = out[0] - out[2];
  return answer;
}

struct Use {  // nvmlProcessUtilizationSample_t
  unsigned pid;
  unsigned long long time;
  unsigned multiprocessors, memory, encoder, decoder;
};

PUBLIC int nvmlDeviceGetProcessUtilization(Handle* device, Use* out, unsigned* count, unsigned long long since) {
  long pid = 0;
  if (const int answer = give(device, &pid, "computing", 0)) return answer;
  if (!pid) return MISSING;
  const unsigned room = out ? *count : 0;
  *count = 1;
  if (!room) return SMALL;
  *out = {unsigned(pid), since + 1, 75, 10, 0, 0};
  return OK;
}

PUBLIC int nvmlDeviceGetComputeRunningProcesses_v3(Handle* device, unsigned* count, Process* out) {
  const unsigned room = *count;
  long pid = 0;
  if (const int answer = give(device, &pid, "process", 0)) return answer;
  *count = pid ? 1 : 0;
  if (*count > room) return SMALL;
  if (pid) out[0] = {unsigned(pid), 1 << 20, ~0u, ~0u};
  return OK;
}

PUBLIC int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle*, unsigned* count, Process*) {
  *count = 0;
  return OK;
}
