// A fork-join pool. Workers claim chunks from a shared counter, so the caller never waits for a worker that has not
// started: a core taken away by another process costs its share and no more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace treadle {

class ThreadPool {
 public:
  using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);

  static ThreadPool& instance();

  // In a forked child the workers do not exist: replaces the pool by a fresh one of the same size.
  static void replace_after_fork();

  // Calls fn on disjoint ranges that cover [0, tasks), each of at least `grain` tasks but the last. The caller takes
  // part. Runs serially when there is one chunk, one thread, or the pool is busy (nested calls, a second caller).
  void parallel_for(std::int64_t tasks, std::int64_t grain, RangeFunction fn, void* context);

  int size() const { return size_.load(std::memory_order_relaxed); }
  void resize(int threads);

  // Joins the workers; later calls run serially until the next resize.
  void stop();

 private:
  explicit ThreadPool(int threads) : size_(threads) {}

  void start_workers();
  void work();
  bool wait_for_generation(std::uint32_t seen);
  void run_chunks();
  void wake(std::int64_t helpers);

  // The open job. Written while `open_` is false and `active_` is 0; read by workers that saw `open_` true after they
  // counted themselves in `active_`.
  RangeFunction fn_ = nullptr;
  void* context_ = nullptr;
  std::int64_t tasks_ = 0;
  std::int64_t chunk_ = 1;

  alignas(64) std::atomic<std::int64_t> next_{0};
  alignas(64) std::atomic<int> active_{0};
  alignas(64) std::atomic<bool> open_{false};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stopping_{false};

  std::atomic<int> size_;
  std::atomic<bool> busy_{false};  // taken by the one caller whose job is open, and while resizing
  std::vector<std::thread> workers_;
  std::mutex sleep_mutex_;
  std::condition_variable wake_up_;
};

// Cores this process may use.
int available_cores();

}  // namespace treadle
