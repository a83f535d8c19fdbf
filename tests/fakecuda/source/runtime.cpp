// libcudart.so.13: what TVM's runtime calls of it.
#include <cstdlib>
#include <cstring>

#include "machine.h"
#include "memory.h"

using namespace fakecuda;

namespace {

thread_local int last_error;

int done(int error) {
  if (error == 0) error = standing_error();
  if (error) last_error = error;
  return error;
}

bool is_device(int number) { return number >= 0 && number < int(settings().devices.size()); }

// What an unknown device number means.
int no_such_device() { return done(settings().devices.empty() ? NO_DEVICE : INVALID_DEVICE); }

enum Attribute {  // cudaDeviceAttr
  BLOCK_THREADS = 1, BLOCK_X = 2, BLOCK_Y = 3, BLOCK_Z = 4, BLOCK_SHARED = 8, WARP_SIZE = 10, BLOCK_REGISTERS = 12,
  CLOCK_KHZ = 13, MULTIPROCESSORS = 16, L2_BYTES = 38, MAJOR = 75, MINOR = 76,
};

}  // namespace

PUBLIC int cudaGetDeviceCount(int* count) {
  *count = int(settings().devices.size());
  return done(*count ? 0 : int(NO_DEVICE));
}

PUBLIC int cudaSetDevice(int device) {
  if (!is_device(device)) return no_such_device();
  state().device = device;
  return done(0);
}

PUBLIC int cudaGetDevice(int* device) {
  *device = state().device;
  return done(settings().devices.empty() ? int(NO_DEVICE) : 0);
}

PUBLIC int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) return no_such_device();
  switch (attribute) {
    case BLOCK_THREADS: case BLOCK_X: case BLOCK_Y: *value = 1024; break;
    case BLOCK_Z: *value = 64; break;
    case BLOCK_SHARED: *value = 49152; break;
    case WARP_SIZE: *value = 32; break;
    case BLOCK_REGISTERS: *value = 65536; break;
    case CLOCK_KHZ: *value = 1000000; break;
    case MULTIPROCESSORS: *value = 4; break;
    case L2_BYTES: *value = 4 << 20; break;
    case MAJOR: *value = settings().devices[device].arch / 10; break;
    case MINOR: *value = settings().devices[device].arch % 10; break;
    default: *value = 0;
  }
  return 0;
}

PUBLIC int cudaGetDeviceProperties(void* properties, int device) {
  if (!is_device(device)) return no_such_device();
  struct Begin {  // of cudaDeviceProp
    char name[256], uuid[16], luid[8];
    unsigned luid_mask;
    size_t memory;
  };
  auto* found = static_cast<Begin*>(properties);
  memset(found, 0, sizeof *found);
  strncpy(found->name, settings().devices[device].name.c_str(), sizeof found->name - 1);
  found->memory = settings().devices[device].memory;
  return 0;
}

PUBLIC int cudaMemGetInfo(size_t* free, size_t* total) {
  if (settings().devices.empty()) return done(NO_DEVICE);
  *total = settings().devices[state().device].memory;
  *free = *total - state().used;
  return done(0);
}

PUBLIC int cudaMalloc(void** made, size_t bytes) {
  if (const int error = done(settings().devices.empty() ? int(NO_DEVICE) : 0)) return error;
  *made = allocate(bytes ? bytes : 1);
  return done(*made ? 0 : int(OUT_OF_MEMORY));
}

PUBLIC int cudaFree(void* begin) { return done(begin == nullptr || give_back(begin) ? 0 : int(INVALID_VALUE)); }

PUBLIC int cudaMallocHost(void** made, size_t bytes) {
  *made = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return done(*made ? 0 : int(OUT_OF_MEMORY));
}

PUBLIC int cudaFreeHost(void* begin) {
  free(begin);
  return done(0);
}

PUBLIC int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void*) {
  if (const int error = done(0)) return error;
  for (const void* end : {static_cast<const void*>(to), from})
    if (is_device_memory(end) && !within_buffer(end, bytes)) return done(INVALID_VALUE);
  Opened memory;
  memcpy(to, from, bytes);
  return 0;
}

PUBLIC int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void*) {
  return cudaMemcpyAsync(to, from, bytes, 0, nullptr);
}

PUBLIC int cudaEventCreate(void** event) {
  *event = new double(0);
  return done(0);
}

PUBLIC int cudaEventDestroy(void* event) {
  delete static_cast<double*>(event);
  return done(0);
}

PUBLIC int cudaEventRecord(void* event, void*) {
  *static_cast<double*>(event) = clock_ms();
  return done(0);
}

PUBLIC int cudaEventElapsedTime(float* ms, void* start, void* stop) {
  *ms = float(*static_cast<double*>(stop) - *static_cast<double*>(start));
  return done(0);
}

PUBLIC int cudaStreamCreate(void** stream) {
  *stream = new char;
  return done(0);
}

PUBLIC int cudaStreamCreateWithFlags(void** stream, unsigned) { return cudaStreamCreate(stream); }

PUBLIC int cudaStreamDestroy(void* stream) {
  delete static_cast<char*>(stream);
  return done(0);
}

PUBLIC int cudaEventSynchronize(void*) { return done(0); }
PUBLIC int cudaStreamSynchronize(void*) { return done(0); }
PUBLIC int cudaStreamWaitEvent(void*, void*, unsigned) { return done(0); }
PUBLIC int cudaDeviceSynchronize() { return done(0); }

PUBLIC const char* cudaGetErrorName(int error) {
  switch (error) {
    case 0: return "cudaSuccess";
    case INVALID_VALUE: return "cudaErrorInvalidValue";
    case OUT_OF_MEMORY: return "cudaErrorMemoryAllocation";
    case NOT_INITIALIZED: return "cudaErrorInitializationError";
    case UNAVAILABLE: return "cudaErrorDevicesUnavailable";
    case NO_DEVICE: return "cudaErrorNoDevice";
    case INVALID_DEVICE: return "cudaErrorInvalidDevice";
    case ECC: return "cudaErrorECCUncorrectable";
    case ILLEGAL_ADDRESS: return "cudaErrorIllegalAddress";
    case MISALIGNED: return "cudaErrorMisalignedAddress";
    case LAUNCH_FAILED: return "cudaErrorLaunchFailure";
    case NOT_SUPPORTED: return "cudaErrorNotSupported";
    default: return "cudaErrorUnknown";
  }
}

PUBLIC const char* cudaGetErrorString(int error) {
  switch (error) {
    case OUT_OF_MEMORY: return "out of memory";
    case NOT_INITIALIZED: return "initialization error";
    case UNAVAILABLE: return "CUDA-capable device(s) is/are busy or unavailable";
    case NO_DEVICE: return "no CUDA-capable device is detected";
    case ECC: return "uncorrectable ECC error encountered";
    case ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
    case MISALIGNED: return "misaligned address";
    case LAUNCH_FAILED: return "unspecified launch failure";
    default: return cudaGetErrorName(error);
  }
}

PUBLIC int cudaPeekAtLastError() { return state().sticky ? state().sticky : last_error; }

PUBLIC int cudaGetLastError() {
  const int error = cudaPeekAtLastError();
  last_error = 0;
  return error;
}

PUBLIC int cudaStreamBeginCapture(void*, int) { return done(NOT_SUPPORTED); }
PUBLIC int cudaStreamEndCapture(void*, void**) { return done(NOT_SUPPORTED); }
PUBLIC int cudaGraphInstantiate(void**, void*, void*, char*, size_t) { return done(NOT_SUPPORTED); }
PUBLIC int cudaGraphLaunch(void*, void*) { return done(NOT_SUPPORTED); }
PUBLIC int cudaGraphDestroy(void*) { return done(NOT_SUPPORTED); }
PUBLIC int cudaGraphExecDestroy(void*) { return done(NOT_SUPPORTED); }
