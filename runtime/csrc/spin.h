// Short active waits. They beat the microseconds that putting a thread to sleep and waking it costs.
#pragma once

#include <chrono>
#include <thread>

namespace treadle {

inline void pause_spin() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls `ready` for about `microseconds`; true as soon as it holds.
template <class Ready>
bool spin_until(const Ready& ready, int microseconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::microseconds(microseconds);
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause_spin();
    }
  } while (Clock::now() < end);
  return ready();
}

// Polls `ready` for about `microseconds`, letting any other thread that wants the core have it.
template <class Ready>
bool yield_until(const Ready& ready, int microseconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::microseconds(microseconds);
  do {
    if (ready()) return true;
    std::this_thread::yield();
  } while (Clock::now() < end);
  return ready();
}

}  // namespace treadle
