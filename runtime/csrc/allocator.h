// Caching allocator of host memory. Blocks are 64-byte aligned and come in size classes (eight to a doubling).
//
// Freed blocks are kept, still mapped, for the next request of their class: the page faults of fresh large blocks cost
// several times what a memory-bound kernel costs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace treadle {

constexpr std::size_t kAlignment = 64;

struct MemoryStats {
  std::int64_t allocated = 0;           // bytes in blocks handed out
  std::int64_t peak = 0;                // highest `allocated` since the last reset
  std::int64_t cached = 0;              // bytes in free blocks kept for reuse
  std::int64_t allocations = 0;         // requests served
  std::int64_t system_allocations = 0;  // of those, served by the operating system
  std::int64_t limit = 0;               // bound of allocated + cached
};

struct Block {
  void* data = nullptr;
  std::size_t capacity = 0;
};

class Allocator {
 public:
  static Allocator& instance();

  // Throws Failure(kMemory) with the sizes; `what` completes "out of memory allocating N bytes for ...".
  Block allocate(std::size_t nbytes, const char* what);
  void release(Block block);

  // Returns every cached block to the operating system.
  void empty_cache();
  MemoryStats stats();
  void reset_peak();
  void set_limit(std::int64_t bytes);

  // Held over fork(), so that the child finds the free lists whole.
  std::mutex& mutex() { return mutex_; }

 private:
  Allocator();

  static constexpr int kClasses = 64 * 8;
  void drop_cached();

  std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  MemoryStats stats_;
};

// Thread-private memory that only grows; valid until the next call on the same thread.
void* thread_scratch(std::size_t nbytes);

}  // namespace treadle
