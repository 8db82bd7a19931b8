#include "executor.h"

#include <chrono>
#include <cstring>
#include <new>

#include "spin.h"
#include "thread_pool.h"

namespace treadle {
namespace {

// How long the worker looks for the next run, and a reader for its result, before they sleep.
constexpr int kWorkerSpinMicroseconds = 20;
constexpr int kReaderSpinMicroseconds = 20;

// After a pause shorter than this the worker expects the next one to be short too, and stays awake for it. Waking it
// costs the submitter 10 to 20 microseconds, and often its core: the scheduler likes to put the woken thread there, so
// that `submit` returns only when the run is over.
constexpr int kShortPauseMicroseconds = 1000;

// Runs of at most this many elements of work take less time than handing them to the worker and back.
constexpr std::int64_t kInlineWork = 8192;

constexpr std::int64_t kCopyGrain = 1 << 18;

std::atomic<Executor*> current{nullptr};

// One kernel launch, as the threads of the pool see it.
struct LaunchJob {
  KernelFunction function;
  void* const* bufs;
  const std::int64_t* ints;
  std::size_t scratch;
  std::atomic<std::int64_t> result{0};

  static void run(void* context, std::int64_t begin, std::int64_t end) noexcept {
    auto& job = *static_cast<LaunchJob*>(context);
    if (job.result.load(std::memory_order_relaxed) != 0) return;  // another chunk failed
    std::int64_t result = kOutOfMemory;
    try {
      void* scratch = job.scratch ? thread_scratch(job.scratch) : nullptr;
      result = job.function(job.bufs, job.ints, scratch, begin, end);
    } catch (const std::exception&) {
      // Only memory runs out here: kernels are machine code without exceptions, host functions catch theirs.
    }
    if (result != 0) job.result.store(result, std::memory_order_relaxed);
  }
};

void parallel_copy(void* to, const void* from, std::int64_t nbytes) {
  struct Copy {
    char* to;
    const char* from;
  } copy{static_cast<char*>(to), static_cast<const char*>(from)};
  ThreadPool::instance().parallel_for(
      nbytes, kCopyGrain,
      [](void* context, std::int64_t begin, std::int64_t end) {
        const auto& c = *static_cast<Copy*>(context);
        std::memcpy(c.to + begin, c.from + begin, static_cast<std::size_t>(end - begin));
      },
      &copy);
}

// A check's message may begin with the Python exception it wants: "IndexError: ...".
ErrorPtr check_error(const std::string& message, const std::string& location) {
  static constexpr std::pair<const char*, ErrorKind> kPrefixes[] = {
      {"IndexError: ", ErrorKind::kIndex},
      {"ValueError: ", ErrorKind::kValue},
      {"ZeroDivisionError: ", ErrorKind::kZeroDivision},
  };
  ErrorKind kind = ErrorKind::kRuntime;
  std::size_t skip = 0;
  for (const auto& [prefix, candidate] : kPrefixes) {
    if (message.rfind(prefix, 0) == 0) {
      kind = candidate;
      skip = std::strlen(prefix);
    }
  }
  return std::make_shared<const RunError>(RunError{kind, message.substr(skip) + "\n  at " + location});
}

[[noreturn]] void throw_launch_failure(const Program& program, std::size_t launch, std::int64_t result,
                                       std::int64_t scratch) {
  const auto& kernel = program.parts().kernels[static_cast<std::size_t>(program.parts().launches[launch].kernel)];
  const std::string& location = program.location_of(launch);
  if (result == kOutOfMemory) {
    throw Failure(ErrorKind::kMemory, "out of memory for the working memory of a kernel (" + std::to_string(scratch) +
                                          " bytes of scratch a thread)\n  at " + location);
  }
  for (const auto& [number, message] : kernel.checks) {
    if (number == result) throw Failure(check_error(message, location));
  }
  throw Failure(check_error("check " + std::to_string(result) + " of a kernel failed", location));
}

}  // namespace

void Run::clear() {
  program.reset();
  binding.reset();
  inputs.clear();
  outputs.clear();
  donated.clear();
  scalars.clear();
}

Executor& Executor::instance() {
  // Never destroyed: its thread may outlive static destruction.
  static const bool created = [] {
    current.store(new Executor);
    return true;
  }();
  (void)created;
  return *current.load(std::memory_order_relaxed);
}

void Executor::replace_after_fork() {
  Executor& old = instance();
  auto* fresh = new Executor;  // the old one leaks: its mutexes may be taken by threads that do not exist
  fresh->lost_after_ = old.completed();
  fresh->lost_until_ = old.submitted();
  fresh->completed_.store(old.submitted());
  fresh->submitted_.store(old.submitted());
  fresh->claimed_.store(old.submitted());
  current.store(fresh);
}

std::vector<BufferPtr> Executor::submit(Run&& run, const std::vector<Donation>& donations) {
  check_inputs(run);
  place_outputs(run, donations);
  const std::uint64_t sequence = submitted() + 1;
  for (const auto& output : run.outputs) output->set_sequence(sequence);
  auto outputs = run.outputs;
  const bool small = run.binding->work >= 0 && run.binding->work <= kInlineWork;
  if ((small || stopping_.load(std::memory_order_relaxed)) && completed() == submitted() && claim(sequence)) {
    execute(run);
    inline_programs_.fetch_add(1, std::memory_order_relaxed);
    completed_.store(sequence, std::memory_order_seq_cst);  // first: the worker must never see this run as waiting
    submitted_.store(sequence, std::memory_order_seq_cst);
    return outputs;  // `run` goes after the counters: dropping an input may run Python code that submits
  }
  ring_[sequence % kDepth] = std::move(run);
  submitted_.store(sequence, std::memory_order_seq_cst);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  if (worker_sleeps_.load(std::memory_order_seq_cst)) {
    { const std::lock_guard<std::mutex> lock(mutex_); }  // the worker is past its last look, and asleep
    worker_wakes_.notify_one();
  }
  return outputs;
}

void Executor::check_inputs(const Run& run) {
  const ProgramParts& parts = run.program->parts();
  const auto count = static_cast<std::size_t>(parts.inputs);
  if (run.inputs.size() != count || run.scalars.size() != parts.scalars.size()) {
    throw Failure(ErrorKind::kValue, "program " + parts.name + " takes " + std::to_string(count) + " buffers and " +
                                         std::to_string(parts.scalars.size()) + " scalars, got " +
                                         std::to_string(run.inputs.size()) + " and " +
                                         std::to_string(run.scalars.size()));
  }
  input_marks_ += 2;
  for (std::size_t i = 0; i < count; ++i) {
    Buffer& input = *run.inputs[i];
    const auto slot = run.program->input_slot(i);
    const auto needed = slot < 0 ? 0 : run.binding->nbytes[static_cast<std::size_t>(slot)];
    if (input.nbytes() < needed) {
      throw Failure(ErrorKind::kValue, "input " + std::to_string(i) + " of program " + parts.name + " has " +
                                           std::to_string(input.nbytes()) + " bytes, needs " + std::to_string(needed));
    }
    input.input_mark = input.input_mark >= input_marks_ ? input_marks_ + 1 : input_marks_;
  }
}

bool Executor::takes_over(const Buffer& input, Donation donation, std::int64_t nbytes) const {
  const bool once = input.input_mark == input_marks_;
  const bool fits = once && input.writable() && input.nbytes() == nbytes;
  if (donation == Donation::kRequire) {
    if (fits) return true;
    throw Failure(ErrorKind::kValue, "an input cannot be overwritten: it is passed twice, read-only or of another size");
  }
  return donation == Donation::kOffer && fits && !input.foreign() && input.exports.load(std::memory_order_relaxed) == 0;
}

void Executor::place_outputs(Run& run, const std::vector<Donation>& donations) {
  const ProgramParts& parts = run.program->parts();
  const auto count = static_cast<std::size_t>(parts.outputs);
  run.outputs.reserve(count);
  run.donated.reserve(count);
  std::size_t required = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto slot = static_cast<std::size_t>(run.program->output_slot(i));
    const auto alias = parts.slots[slot].alias;
    const auto nbytes = run.binding->nbytes[slot];
    bool taken = false;
    if (alias >= 0 && !donations.empty()) {
      const auto donation = donations[static_cast<std::size_t>(alias)];
      taken = takes_over(*run.inputs[static_cast<std::size_t>(alias)], donation, nbytes);
      required += donation == Donation::kRequire;
    }
    run.outputs.push_back(taken ? run.inputs[static_cast<std::size_t>(alias)] : Buffer::promise(nbytes));
    run.donated.push_back(taken);
  }
  for (const auto donation : donations) required -= donation == Donation::kRequire;
  if (required != 0) throw Failure(ErrorKind::kValue, "no output of the program overwrites an input that must be");
}

void Executor::execute(Run& run) {
  std::int64_t launch = -1;  // the one in progress
  ErrorPtr error;
  try {
    perform(run, launch);
  } catch (const Failure& failure) {
    error = failure.error();
  } catch (const std::exception& exception) {
    error = std::make_shared<const RunError>(RunError{ErrorKind::kMemory, exception.what()});
  }
  if (error) {
    for (std::size_t i = 0; i < run.outputs.size(); ++i) {
      const auto slot = static_cast<std::size_t>(run.program->output_slot(i));
      const bool untouched = static_cast<std::int64_t>(run.program->first_use(slot)) > launch;
      run.outputs[i]->poison(error, run.donated[i] && untouched);
    }
  }
  programs_.fetch_add(1, std::memory_order_relaxed);
}

void Executor::perform(Run& run, std::int64_t& launch) {
  for (const auto& input : run.inputs) {
    if (input->error()) throw Failure(input->error());
  }
  struct Arena {
    Block block;
    ~Arena() {
      if (block.data) Allocator::instance().release(block);
    }
  } arena;
  if (run.binding->arena > 0) {
    const std::string what = "the temporaries of program " + run.program->parts().name;
    arena.block = Allocator::instance().allocate(static_cast<std::size_t>(run.binding->arena), what.c_str());
  }
  prepare_outputs(run);
  fill_slots(run, arena.block.data);
  const auto& launches = run.program->parts().launches;
  const std::int64_t* ints = run.binding->ints.data();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launch = static_cast<std::int64_t>(i);
    launch_kernel(run, i, ints);
    ints += launches[i].ints.size();
  }
}

void Executor::prepare_outputs(const Run& run) {
  const ProgramParts& parts = run.program->parts();
  for (std::size_t i = 0; i < run.outputs.size(); ++i) {
    if (run.donated[i]) continue;
    const auto index = static_cast<std::size_t>(run.program->output_slot(i));
    try {
      run.outputs[i]->materialise("an output");
    } catch (const Failure& failure) {
      const auto launch = run.program->first_use(index);
      const std::string place = launch < parts.launches.size() ? run.program->location_of(launch) : parts.name;
      throw Failure(failure.error()->kind, failure.error()->message + "\n  at " + place);
    }
    const Slot& slot = parts.slots[index];
    if (slot.read_first && slot.alias >= 0) {
      const Buffer& input = *run.inputs[static_cast<std::size_t>(slot.alias)];
      parallel_copy(run.outputs[i]->data(), input.data(), std::min(run.outputs[i]->nbytes(), input.nbytes()));
    }
  }
}

void Executor::fill_slots(Run& run, void* arena) {
  const ProgramParts& parts = run.program->parts();
  slot_data_.resize(parts.slots.size());
  for (std::size_t i = 0; i < parts.slots.size(); ++i) {
    const auto index = static_cast<std::size_t>(parts.slots[i].index);
    switch (parts.slots[i].kind) {
      case SlotKind::kInput: slot_data_[i] = run.inputs[index]->data(); break;
      case SlotKind::kOutput: slot_data_[i] = run.outputs[index]->data(); break;
      case SlotKind::kTemp: slot_data_[i] = static_cast<char*>(arena) + run.binding->offset[i]; break;
      case SlotKind::kConstant: slot_data_[i] = parts.constants[index]->data(); break;
      case SlotKind::kScalar: slot_data_[i] = &run.scalars[index].bits; break;
    }
  }
}

void Executor::launch_kernel(const Run& run, std::size_t launch, const std::int64_t* ints) {
  const ProgramParts& parts = run.program->parts();
  const Launch& plan = parts.launches[launch];
  const Binding::Sizes& sizes = run.binding->sizes[launch];
  launch_slots_.clear();
  for (const auto slot : plan.slots) launch_slots_.push_back(slot_data_[static_cast<std::size_t>(slot)]);
  LaunchJob job{parts.kernels[static_cast<std::size_t>(plan.kernel)].function, launch_slots_.data(), ints,
                static_cast<std::size_t>(sizes.scratch)};
  launches_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t parallel = sizes.tasks - sizes.tail;
  ThreadPool::instance().parallel_for(parallel, sizes.grain, LaunchJob::run, &job);
  if (sizes.tail > 0) LaunchJob::run(&job, parallel, sizes.tasks);
  const auto result = job.result.load(std::memory_order_relaxed);
  if (result != 0) throw_launch_failure(*run.program, launch, result, sizes.scratch);
}

bool Executor::has_work() const {
  // Nobody is at work, and there is a run. In this order: a run that executes in its submitter's thread raises
  // `completed_` before `submitted_`.
  const auto submitted = submitted_.load(std::memory_order_seq_cst);
  const auto claimed = claimed_.load(std::memory_order_seq_cst);
  return submitted > claimed && completed_.load(std::memory_order_seq_cst) == claimed;
}

// Takes over the execution of a run, if it is the next.
bool Executor::claim(std::uint64_t sequence) {
  std::uint64_t before = sequence - 1;
  return completed_.load(std::memory_order_seq_cst) == before &&
         claimed_.compare_exchange_strong(before, sequence, std::memory_order_seq_cst);
}

// Executes the next run, unless another thread was faster: then there may be no next one.
void Executor::execute_next() {
  const std::uint64_t sequence = completed() + 1;
  if (submitted_.load(std::memory_order_seq_cst) < sequence || !claim(sequence)) return;
  Run& run = ring_[sequence % kDepth];
  execute(run);
  run.clear();  // before the run counts as completed, so that its reader finds the inputs' memory free
  completed_.store(sequence, std::memory_order_seq_cst);
  const bool wake = worker_sleeps_.load(std::memory_order_seq_cst) && has_work();
  if (wake || waiters_.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard<std::mutex> lock(mutex_); }
    run_completed_.notify_all();
    if (wake) worker_wakes_.notify_one();
  }
}

void Executor::work() {
  const auto ready = [this] { return has_work() || stopping_.load(std::memory_order_relaxed); };
  bool expect_short_pause = false;
  for (;;) {
    const auto idle_since = std::chrono::steady_clock::now();
    if (!spin_until(ready, kWorkerSpinMicroseconds) &&
        !(expect_short_pause && yield_until(ready, kShortPauseMicroseconds))) {
      std::unique_lock<std::mutex> lock(mutex_);
      worker_sleeps_.store(true, std::memory_order_seq_cst);
      worker_wakes_.wait(lock, ready);
      worker_sleeps_.store(false, std::memory_order_relaxed);
    }
    if (!has_work()) {
      if (stopping_.load(std::memory_order_relaxed)) return;
      continue;
    }
    const auto pause = std::chrono::steady_clock::now() - idle_since;
    expect_short_pause = pause < std::chrono::microseconds(kShortPauseMicroseconds);
    execute_next();
  }
}

bool Executor::wait(std::uint64_t sequence, int milliseconds) {
  const auto done = [this, sequence] { return completed_.load(std::memory_order_seq_cst) >= sequence; };
  while (!done() && has_work()) execute_next();
  if (spin_until(done, kReaderSpinMicroseconds)) return true;
  std::unique_lock<std::mutex> lock(mutex_);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  const bool completed = run_completed_.wait_for(lock, std::chrono::milliseconds(milliseconds), done);
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return completed;
}

ExecutorStats Executor::stats() const {
  return {programs_.load(std::memory_order_relaxed), inline_programs_.load(std::memory_order_relaxed),
          launches_.load(std::memory_order_relaxed)};
}

void Executor::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_.store(true);
  }
  worker_wakes_.notify_one();
  if (worker_.joinable()) worker_.join();
}

}  // namespace treadle
