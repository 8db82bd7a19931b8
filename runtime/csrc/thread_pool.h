// A fork-join pool. Each thread has a share of the tasks, the same in every job of as many tasks, so that what it wrote
// is in its cache when it reads it; a thread without work claims chunks of the others' shares. So the caller never waits
// for a worker that has not started: a core taken away by another process costs its share and no more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
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
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

  explicit ThreadPool(int threads) : shares_(std::make_unique<Share[]>(threads)), size_(threads) {}

  void start_workers();
  void work(int self);
  bool wait_for_generation(std::uint32_t seen);
  void run_chunks(int self);
  void divide(std::int64_t tasks, std::int64_t chunk, int threads);
  void wake(std::int64_t helpers);

  // The open job. Written while `open_` is false and `active_` is 0; read by workers that saw `open_` true after they
  // counted themselves in `active_`.
  RangeFunction fn_ = nullptr;
  void* context_ = nullptr;
  std::int64_t chunk_ = 1;
  std::unique_ptr<Share[]> shares_;  // one a thread

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
