#include "allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "error.h"

namespace treadle {
namespace {

constexpr std::size_t kMapThreshold = std::size_t{1} << 20;   // blocks from here on are mapped, not malloc'ed
constexpr std::size_t kHugeThreshold = std::size_t{4} << 20;  // and from here on worth huge pages
constexpr std::int64_t kCacheShare = 2;                       // at most half of the limit is kept in free blocks
constexpr std::size_t kMaxBlock = std::size_t{1} << 62;

int floor_log2(std::size_t n) { return 63 - __builtin_clzll(n); }

int class_shift(std::size_t n) { return std::max(6, floor_log2(n) - 3); }

std::size_t capacity_for(std::size_t nbytes) {
  const std::size_t n = std::max(nbytes, kAlignment);
  const std::size_t step = std::size_t{1} << class_shift(n);
  return (n + step - 1) / step * step;
}

int class_index(std::size_t capacity) {
  const int exponent = floor_log2(capacity);
  const int shift = class_shift(capacity);
  return exponent * 8 + static_cast<int>((capacity >> shift) - (std::size_t{1} << (exponent - shift)));
}

std::size_t class_capacity(int index) {
  const int exponent = index / 8;
  const int shift = std::max(6, exponent - 3);
  return ((std::size_t{1} << (exponent - shift)) + static_cast<std::size_t>(index % 8)) << shift;
}

void* system_allocate(std::size_t capacity) {
  if (capacity < kMapThreshold) return std::aligned_alloc(kAlignment, capacity);
  void* data = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
  if (capacity >= kHugeThreshold) madvise(data, capacity, MADV_HUGEPAGE);  // only a hint: failure is fine
#endif
  return data;
}

void system_release(void* data, std::size_t capacity) {
  if (capacity < kMapThreshold) {
    std::free(data);
  } else {
    munmap(data, capacity);
  }
}

// A container's bound, where there is one: passing it ends the process instead of raising.
std::int64_t control_group_limit() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::int64_t bytes = 0;
    if (file >> bytes && bytes > 0) return bytes;  // "max" does not parse
  }
  return INT64_MAX;
}

std::int64_t default_limit() {
  if (const char* text = std::getenv("TREADLE_MEMORY_LIMIT")) {
    const long long bytes = std::atoll(text);
    if (bytes > 0) return bytes;
  }
  const auto physical = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(physical, control_group_limit());
}

}  // namespace

Allocator& Allocator::instance() {
  static Allocator* allocator = new Allocator;  // never destroyed: buffers may outlive static destruction
  return *allocator;
}

Allocator::Allocator() { stats_.limit = default_limit(); }

Block Allocator::allocate(std::size_t nbytes, const char* what) {
  const std::size_t capacity = nbytes < kMaxBlock ? capacity_for(nbytes) : kMaxBlock;
  const auto bytes = static_cast<std::int64_t>(capacity);
  const std::lock_guard<std::mutex> lock(mutex_);
  Block block{nullptr, capacity};
  auto& bin = free_[class_index(capacity)];
  if (!bin.empty()) {
    block.data = bin.back();
    bin.pop_back();
    stats_.cached -= bytes;
  } else {
    if (stats_.allocated + stats_.cached > stats_.limit - bytes) drop_cached();
    if (stats_.allocated <= stats_.limit - bytes) block.data = system_allocate(capacity);
    if (!block.data) {
      throw Failure(ErrorKind::kMemory, "out of memory allocating " + std::to_string(nbytes) + " bytes for " + what +
                                            " (" + std::to_string(stats_.allocated) + " bytes in use, limit " +
                                            std::to_string(stats_.limit) + " bytes)");
    }
    ++stats_.system_allocations;
  }
  ++stats_.allocations;
  stats_.allocated += bytes;
  stats_.peak = std::max(stats_.peak, stats_.allocated);
  return block;
}

void Allocator::release(Block block) {
  const auto bytes = static_cast<std::int64_t>(block.capacity);
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.allocated -= bytes;
  // Over the bound the cache holds sizes that a past phase of the program used: start afresh with this block.
  if (stats_.cached > stats_.limit / kCacheShare - bytes) drop_cached();
  if (bytes > stats_.limit / kCacheShare) {
    system_release(block.data, block.capacity);
    return;
  }
  free_[class_index(block.capacity)].push_back(block.data);
  stats_.cached += bytes;
}

void Allocator::drop_cached() {
  for (int index = 0; index < kClasses; ++index) {
    for (void* data : free_[index]) system_release(data, class_capacity(index));
    free_[index].clear();
  }
  stats_.cached = 0;
}

void Allocator::empty_cache() {
  const std::lock_guard<std::mutex> lock(mutex_);
  drop_cached();
}

MemoryStats Allocator::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak = stats_.allocated;
}

void Allocator::set_limit(std::int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.limit = bytes > 0 ? bytes : default_limit();
}

void* thread_scratch(std::size_t nbytes) {
  struct Scratch {
    Block block;
    ~Scratch() {
      if (block.data) Allocator::instance().release(block);
    }
  };
  thread_local Scratch scratch;
  if (nbytes > scratch.block.capacity) {
    if (scratch.block.data) Allocator::instance().release(scratch.block);
    scratch.block = {};  // stays empty if the next line throws
    scratch.block = Allocator::instance().allocate(nbytes, "kernel scratch");
  }
  return scratch.block.data;
}

}  // namespace treadle
