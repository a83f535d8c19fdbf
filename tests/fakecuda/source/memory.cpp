#include "memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace fakecuda {
namespace {

constexpr size_t ALIGNMENT = 256;  // of a device's allocations
constexpr int RECENT = 4;

std::recursive_mutex lock;
std::map<const unsigned char*, Buffer>& buffers() {  // by their pages
  static auto* found = new std::map<const unsigned char*, Buffer>;
  return *found;
}
const Buffer* recent[RECENT];
unsigned next_recent, opened;

void protect(const Buffer& buffer, int how) { mprotect(buffer.pages, buffer.page_bytes, how); }

}  // namespace

void* mapped(size_t bytes) {
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    fprintf(stderr, "fakecuda: no memory for %zu bytes\n", bytes);
    abort();
  }
  return begin;
}

void* allocate(size_t bytes) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  State& s = state();
  if (s.used + bytes > settings().devices[s.device].memory) return nullptr;
  // The buffer ends at a guard page, but for its alignment.
  const size_t room = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, page_bytes = (room + PAGE - 1) / PAGE * PAGE;
  auto* guard = static_cast<unsigned char*>(mapped(page_bytes + 2 * PAGE));
  Buffer made{guard + PAGE + page_bytes - room, guard + PAGE, bytes, page_bytes, nullptr};
  mprotect(guard, PAGE, PROT_NONE);
  mprotect(guard + PAGE + page_bytes, PAGE, PROT_NONE);
  memset(made.pages, 0xFF, page_bytes);  // not a number: what nothing has written must not be read
  if (settings().checks_races) made.traces = static_cast<Trace*>(mapped(bytes * sizeof(Trace)));
  if (opened == 0) protect(made, PROT_NONE);
  buffers()[made.pages] = made;
  s.used += bytes;
  return made.begin;
}

bool give_back(void* begin) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  const Buffer* found = buffer_at(begin);
  if (found == nullptr || found->begin != begin) return false;
  for (auto& one : recent) one = nullptr;
  munmap(found->pages - PAGE, found->page_bytes + 2 * PAGE);
  if (found->traces) munmap(found->traces, found->bytes * sizeof(Trace));
  state().used -= found->bytes;
  buffers().erase(found->pages);
  return true;
}

const Buffer* buffer_at(const void* address) {
  const auto* at = static_cast<const unsigned char*>(address);
  for (const Buffer* one : recent)
    if (one && at >= one->pages && at < one->pages + one->page_bytes) return one;
  auto behind = buffers().upper_bound(at);
  if (behind == buffers().begin()) return nullptr;
  const Buffer& found = std::prev(behind)->second;
  if (at >= found.pages + found.page_bytes) return nullptr;
  return recent[next_recent++ % RECENT] = &found;
}

bool within_buffer(const void* address, size_t bytes) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  const Buffer* found = buffer_at(address);
  const auto* at = static_cast<const unsigned char*>(address);
  return found && at >= found->begin && at + bytes <= found->begin + found->bytes;
}

bool is_device_memory(const void* address) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  return buffer_at(address) != nullptr;
}

Opened::Opened() {
  lock.lock();
  if (opened++ == 0)
    for (const auto& [_, buffer] : buffers()) protect(buffer, PROT_READ | PROT_WRITE);
}

Opened::~Opened() {
  if (--opened == 0)
    for (const auto& [_, buffer] : buffers()) protect(buffer, PROT_NONE);
  lock.unlock();
}

}  // namespace fakecuda
