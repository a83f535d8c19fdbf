// libcuda.so.1: what TVM calls of it, and what a program asks first.
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "blocks.h"
#include "machine.h"
#include "memory.h"

using namespace fakecuda;

namespace {

constexpr int DRIVER_VERSION = 13000;
constexpr int DYNAMIC_SHARED_ATTRIBUTE = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int CUBIN_MACHINE = 190;           // EM_CUDA
constexpr unsigned GRID_MAX = 2147483647, GRID_OTHER_MAX = 65535, BLOCK_Z_MAX = 64;

struct LoadedModule {
  void* library;
  const Module* module;
};

struct Function {
  const LoadedModule* owner;
  const Kernel* kernel;
  unsigned dynamic_shared_max;
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void *stream, *attributes;
  unsigned attribute_count;
};

std::mutex launching;

// The length of an ELF file is where its last section or its table of them ends.
size_t length_of(const unsigned char* image) {
  Elf64_Ehdr head;
  memcpy(&head, image, sizeof head);
  size_t end = head.e_shoff + size_t(head.e_shnum) * head.e_shentsize;
  for (unsigned i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    memcpy(&section, image + head.e_shoff + i * head.e_shentsize, sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max<size_t>(end, section.sh_offset + section.sh_size);
  }
  return end;
}

// Opens a library from memory, under a name that the loader does not know yet.
void* opened(const unsigned char* image) {
  char path[] = "/tmp/fakecuda-XXXXXX";
  const int file = mkstemp(path);
  const size_t length = length_of(image);
  size_t written = 0;
  for (ssize_t n; written < length && (n = write(file, image + written, length - written)) > 0;) written += n;
  close(file);
  void* library = written == length ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  unlink(path);
  if (library == nullptr) fprintf(stderr, "fakecuda: %s\n", written == length ? dlerror() : "the disk is full");
  return library;
}

bool is_device(int number) { return number >= 0 && number < int(settings().devices.size()); }

}  // namespace

PUBLIC int cuInit(unsigned) {
  if (const int error = standing_error()) return error;
  return settings().devices.empty() ? int(NO_DEVICE) : 0;
}

PUBLIC int cuDriverGetVersion(int* version) {
  *version = DRIVER_VERSION;
  return 0;
}

PUBLIC int cuDeviceGetCount(int* count) {
  *count = int(settings().devices.size());
  return 0;
}

PUBLIC int cuDeviceGetName(char* name, int length, int device) {
  if (!is_device(device)) return INVALID_DEVICE;
  snprintf(name, length, "%s", settings().devices[device].name.c_str());
  return 0;
}

PUBLIC int cuGetErrorName(int error, const char** name) {
  *name = name_of(error);
  return 0;
}

PUBLIC int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }

PUBLIC int cuModuleLoadData(void** made, const void* data) {
  if (const int error = standing_error()) return error;
  const auto* image = static_cast<const unsigned char*>(data);
  if (memcmp(image, ELFMAG, SELFMAG) != 0) return INVALID_IMAGE;
  if (reinterpret_cast<const Elf64_Ehdr*>(image)->e_machine == CUBIN_MACHINE) return INVALID_IMAGE;  // a real one
  void* library = opened(image);
  if (library == nullptr) return INVALID_IMAGE;
  const auto* module = static_cast<const Module*>(dlsym(library, "fakecuda_module"));
  if (module == nullptr || module->magic != MAGIC) return INVALID_IMAGE;
  // Code runs on devices of its own major version, from its minor version on.
  const int have = settings().devices[state().device].arch, wanted = int(module->arch);
  if (wanted / 10 != have / 10 || wanted > have) {
    dlclose(library);
    return NO_BINARY;
  }
  *made = new LoadedModule{library, module};
  return 0;
}

PUBLIC int cuModuleUnload(void* module) {
  auto* loaded = static_cast<LoadedModule*>(module);
  dlclose(loaded->library);
  delete loaded;
  return 0;
}

PUBLIC int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto* loaded = static_cast<LoadedModule*>(module);
  for (unsigned i = 0; i < loaded->module->count; ++i)
    if (strcmp(loaded->module->kernels[i].name, name) == 0) {
      *function = new Function{loaded, &loaded->module->kernels[i], 0};
      return 0;
    }
  return NOT_FOUND;
}

PUBLIC int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != DYNAMIC_SHARED_ATTRIBUTE) return 0;
  if (value < 0 || unsigned(value) > SHARED_MAX_BYTES) return INVALID_VALUE;
  static_cast<Function*>(function)->dynamic_shared_max = value;
  return 0;
}

PUBLIC int cuLaunchKernelEx(const LaunchConfig* config, void* given, void** arguments, void**) {
  if (const int error = standing_error()) return error;
  std::lock_guard<std::mutex> hold(launching);
  const auto* function = static_cast<const Function*>(given);
  const Kernel& kernel = *function->kernel;
  const Triple grid{config->grid_x, config->grid_y, config->grid_z};
  const Triple block{config->block_x, config->block_y, config->block_z};
  const size_t threads = size_t(block.x) * block.y * block.z, blocks = size_t(grid.x) * grid.y * grid.z;
  if (threads == 0 || threads > THREADS_MAX || block.z > BLOCK_Z_MAX || blocks == 0 || grid.x > GRID_MAX ||
      grid.y > GRID_OTHER_MAX || grid.z > GRID_OTHER_MAX || (kernel.threads_max && threads > kernel.threads_max))
    return INVALID_VALUE;
  const unsigned allowed = std::max(function->dynamic_shared_max, SHARED_STATIC_MAX_BYTES);
  if (kernel.static_shared + config->shared_bytes > allowed) return INVALID_VALUE;
  State& s = state();
  const Device& device = settings().devices[s.device];
  ++s.launches;
  log("launch %ld device %d process %d %s grid %u %u %u block %u %u %u shared %u+%u\n", s.launches, device.ordinal,
      getpid(), kernel.name, grid.x, grid.y, grid.z, block.x, block.y, block.z, kernel.static_shared,
      config->shared_bytes);
  if (const int fault = fault_of(device, s.launches)) {
    if (fault == OUT_OF_RESOURCES) return fault;  // at once, and the next launch may do
    s.sticky = fault;                             // the next call that waits reports it
    return 0;
  }
  const Alone alone(device);
  Opened memory;
  s.sticky = run({&kernel, function->owner->module, arguments, grid, block, config->shared_bytes});
  return 0;
}

PUBLIC int cuTensorMapEncodeTiled() { return NOT_SUPPORTED; }
PUBLIC int cuGetExportTable() { return NOT_FOUND; }  // NVRTC asks for it where there is a driver
