#include "python_refs.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace treadle {
namespace {

struct Queue {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> filled{false};
};

Queue& queue() {
  static Queue* instance = new Queue;  // never destroyed: workers may use it during exit
  return *instance;
}

int drain_pending_call(void*) {
  drain_released();
  return 0;
}

}  // namespace

void release_later(PyObject* object) {
  if (!object) return;
  if (!Py_IsInitialized()) return;  // the interpreter is gone, and the object with it
  if (PyGILState_Check()) {
    Py_DECREF(object);
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(queue().mutex);
    queue().objects.push_back(object);
    queue().filled.store(true, std::memory_order_release);
  }
  // So that an idle interpreter drops it too. May fail when many are queued: then the next runtime call drains.
  Py_AddPendingCall(drain_pending_call, nullptr);
}

void drain_released() {
  if (!queue().filled.load(std::memory_order_acquire)) return;
  std::vector<PyObject*> objects;
  {
    const std::lock_guard<std::mutex> lock(queue().mutex);
    objects.swap(queue().objects);
    queue().filled.store(false, std::memory_order_release);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

}  // namespace treadle
