// Runs programs in submission order, without the GIL: on a thread of its own while Python records the next step, or in a
// thread that waits for a result, which is sooner than waking another.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "buffer.h"
#include "program.h"

namespace treadle {

// What the caller says of an input's memory.
enum class Donation : std::uint8_t {
  kKeep = 0,     // others may read it later
  kOffer = 1,    // may be overwritten, if nothing outside the runtime sees it
  kRequire = 2,  // must be overwritten: an in-place write to memory shared with the outside
};

// One cell a scalar: each on its own cache line, so that kernels may take its address as any buffer's.
struct alignas(kAlignment) ScalarCell {
  std::uint64_t bits;
};

struct Run {
  ProgramPtr program;
  std::shared_ptr<const Binding> binding;
  std::vector<BufferPtr> inputs;
  std::vector<BufferPtr> outputs;
  std::vector<char> donated;  // by output: it took over the memory of the input it aliases
  std::vector<ScalarCell> scalars;

  void clear();
};

struct ExecutorStats {
  std::int64_t programs = 0;  // runs executed
  std::int64_t inline_programs = 0;  // of those, in the submitting thread
  std::int64_t launches = 0;  // kernel launches begun
};

class Executor {
 public:
  static Executor& instance();

  // In a forked child the worker does not exist: replaces the executor by a fresh one that goes on counting.
  static void replace_after_fork();

  // All of these but `wait` and `completed` are called under the GIL, which also makes submission one at a time.

  // True when another run may be submitted; else wait for `oldest()` first.
  bool has_room() const { return submitted_.load(std::memory_order_relaxed) - completed() < kDepth; }
  std::uint64_t oldest() const { return completed() + 1; }
  std::uint64_t submitted() const { return submitted_.load(std::memory_order_relaxed); }

  // Fills in `run.outputs`, checks sizes and queues the run, or executes it at once when that is faster. Throws
  // Failure(kValue) on operands that do not fit; then nothing has happened.
  std::vector<BufferPtr> submit(Run&& run, const std::vector<Donation>& donations);

  std::uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  // Waits up to `milliseconds` for a run to complete, and executes runs that nobody has begun; call without the GIL. True
  // when it has completed.
  bool wait(std::uint64_t sequence, int milliseconds);

  // True for runs that were under way when this process was forked: the parent has their results.
  bool lost(std::uint64_t sequence) const { return sequence > lost_after_ && sequence <= lost_until_; }

  ExecutorStats stats() const;

  // Runs from here on execute in the submitting thread.
  void stop();

 private:
  static constexpr std::uint64_t kDepth = 64;  // bounds the memory that runs not yet begun keep alive

  Executor() = default;

  void check_inputs(const Run& run);
  void place_outputs(Run& run, const std::vector<Donation>& donations);
  bool takes_over(const Buffer& input, Donation donation, std::int64_t nbytes) const;
  bool claim(std::uint64_t sequence);
  void execute_next();
  void execute(Run& run);
  void perform(Run& run, std::int64_t& launch);
  void prepare_outputs(const Run& run);
  void fill_slots(Run& run, void* arena);
  void launch_kernel(const Run& run, std::size_t launch, const std::int64_t* ints);
  bool has_work() const;
  void work();

  std::array<Run, kDepth> ring_;
  std::vector<void*> slot_data_;     // of the run in progress, by slot
  std::vector<void*> launch_slots_;  // of the launch in progress

  alignas(64) std::atomic<std::uint64_t> submitted_{0};
  alignas(64) std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> claimed_{0};  // the run in progress, or the last completed one
  std::atomic<bool> worker_sleeps_{false};
  std::atomic<int> waiters_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<std::int64_t> programs_{0};
  std::atomic<std::int64_t> inline_programs_{0};
  std::atomic<std::int64_t> launches_{0};

  std::mutex mutex_;
  std::condition_variable worker_wakes_;
  std::condition_variable run_completed_;
  std::thread worker_;

  std::uint64_t input_marks_ = 0;
  std::uint64_t lost_after_ = 0;
  std::uint64_t lost_until_ = 0;
};

}  // namespace treadle
