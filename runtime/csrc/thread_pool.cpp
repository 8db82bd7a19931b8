#include "thread_pool.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <cstdlib>

#include "spin.h"

namespace treadle {
namespace {

// How long an idle worker stays hot: longer than the gap between the launches of a program, shorter than what would
// take a core from Python between programs.
constexpr int kSpinMicroseconds = 20;

// Chunks per thread: enough that a thread which lost its core holds up the others by little.
constexpr std::int64_t kChunksPerThread = 4;

int default_threads() {
  if (const char* text = std::getenv("TREADLE_NUM_THREADS")) {
    const int threads = std::atoi(text);
    if (threads > 0) return threads;
  }
  return available_cores();
}

std::atomic<ThreadPool*> current{nullptr};

}  // namespace

int available_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ThreadPool& ThreadPool::instance() {
  // Never destroyed: joining threads during static destruction would be too late.
  static const bool created = [] {
    current.store(new ThreadPool(default_threads()));
    return true;
  }();
  (void)created;
  return *current.load(std::memory_order_relaxed);
}

void ThreadPool::replace_after_fork() { current.store(new ThreadPool(instance().size())); }

void ThreadPool::parallel_for(std::int64_t tasks, std::int64_t grain, RangeFunction fn, void* context) {
  if (tasks <= 0) return;
  const int threads = size();
  const std::int64_t even = (tasks + threads * kChunksPerThread - 1) / (threads * kChunksPerThread);
  const std::int64_t chunk = std::max({grain, even, std::int64_t{1}});
  if (threads == 1 || chunk >= tasks || busy_.exchange(true, std::memory_order_acquire)) {
    fn(context, 0, tasks);
    return;
  }
  if (workers_.empty()) start_workers();
  fn_ = fn;
  context_ = context;
  divide(tasks, chunk, size());
  open_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) wake((tasks + chunk - 1) / chunk - 1);
  run_chunks(0);
  // Workers that enter from here on see the job closed and leave; those inside still run a chunk they claimed.
  open_.store(false, std::memory_order_seq_cst);
  const auto left = [this] { return active_.load(std::memory_order_seq_cst) == 0; };
  while (!spin_until(left, 50)) std::this_thread::yield();
  busy_.store(false, std::memory_order_release);
}

void ThreadPool::divide(std::int64_t tasks, std::int64_t chunk, int threads) {
  chunk_ = chunk;
  const std::int64_t chunks = (tasks + chunk - 1) / chunk;
  for (int i = 0; i < threads; ++i) {
    shares_[i].next.store(chunks * i / threads * chunk, std::memory_order_relaxed);
    shares_[i].end = std::min(chunks * (i + 1) / threads * chunk, tasks);
  }
}

void ThreadPool::run_chunks(int self) {
  const int threads = size();
  for (int i = 0; i < threads; ++i) {
    Share& share = shares_[(self + i) % threads];
    for (;;) {
      const std::int64_t begin = share.next.fetch_add(chunk_, std::memory_order_relaxed);
      if (begin >= share.end) break;
      fn_(context_, begin, std::min(begin + chunk_, share.end));
    }
  }
}

void ThreadPool::wake(std::int64_t helpers) {
  { const std::lock_guard<std::mutex> lock(sleep_mutex_); }  // a worker between its last look and its sleep is past it
  if (helpers >= sleepers_.load(std::memory_order_relaxed)) {
    wake_up_.notify_all();
  } else {
    for (; helpers > 0; --helpers) wake_up_.notify_one();
  }
}

bool ThreadPool::wait_for_generation(std::uint32_t seen) {
  const auto changed = [this, seen] {
    return generation_.load(std::memory_order_seq_cst) != seen || stopping_.load(std::memory_order_relaxed);
  };
  if (!spin_until(changed, kSpinMicroseconds)) {
    std::unique_lock<std::mutex> lock(sleep_mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_up_.wait(lock, changed);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  return !stopping_.load(std::memory_order_relaxed);
}

void ThreadPool::work(int self) {
  std::uint32_t seen = 0;
  while (wait_for_generation(seen)) {
    seen = generation_.load(std::memory_order_acquire);
    active_.fetch_add(1, std::memory_order_seq_cst);
    if (open_.load(std::memory_order_seq_cst)) run_chunks(self);
    active_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::start_workers() {
  stopping_.store(false);
  generation_.store(0);
  for (int i = 1; i < size(); ++i) workers_.emplace_back([this, i] { work(i); });
}

void ThreadPool::resize(int threads) {
  stop();
  threads = std::max(1, threads);
  shares_ = std::make_unique<Share[]>(threads);
  size_.store(threads);
}

void ThreadPool::stop() {
  while (busy_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  {
    const std::lock_guard<std::mutex> sleep_lock(sleep_mutex_);
    stopping_.store(true);
  }
  wake_up_.notify_all();
  for (auto& worker : workers_) worker.join();
  workers_.clear();
  size_.store(1);
  busy_.store(false, std::memory_order_release);
}

}  // namespace treadle
