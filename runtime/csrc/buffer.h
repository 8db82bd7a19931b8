// A Buffer: memory with a lifetime, and the number of the run that writes it.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "allocator.h"
#include "error.h"

namespace treadle {

class Buffer;
using BufferPtr = std::shared_ptr<Buffer>;

// Three states. Promised: an output of a submitted run, with a size but no memory yet. Owned: memory of the allocator.
// Foreign: memory of a Python object that it keeps alive.
class Buffer {
 public:
  static BufferPtr allocate(std::int64_t nbytes);
  static BufferPtr promise(std::int64_t nbytes) { return std::make_shared<Buffer>(nbytes); }
  static BufferPtr wrap(void* data, std::int64_t nbytes, PyObject* owner, bool writable);

  explicit Buffer(std::int64_t nbytes) : nbytes_(nbytes) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::int64_t nbytes() const { return nbytes_; }
  void* data() const { return data_; }
  bool foreign() const { return owner_ != nullptr; }
  bool writable() const { return writable_; }

  // Gives a promised buffer its memory; throws Failure(kMemory) naming `what`.
  void materialise(const char* what);

  // Number of the last submitted run that writes this buffer; 0 if none. Written under the GIL.
  std::uint64_t sequence() const { return sequence_.load(std::memory_order_acquire); }
  void set_sequence(std::uint64_t sequence) { sequence_.store(sequence, std::memory_order_release); }

  // Why the contents are not valid. Written by the run that writes the buffer, before that run counts as completed.
  const ErrorPtr& error() const { return error_; }

  // `intact`: the failed run would have overwritten the buffer but had not begun to.
  void poison(ErrorPtr error, bool intact) {
    intact_ = intact && (!error_ || intact_);
    error_ = std::move(error);
  }

  // Makes the value before a failed run readable again, where that run had not touched it.
  bool recover() {
    if (error_ && intact_) error_.reset();
    return !error_;
  }

  // Views of the memory that live outside (NumPy arrays): while there are any, donation is refused.
  std::atomic<int> exports{0};

  // Set by the last submission that took this buffer as an input: finds inputs passed twice. Used under the GIL.
  std::uint64_t input_mark = 0;

 private:
  void* data_ = nullptr;
  std::int64_t nbytes_;
  std::size_t capacity_ = 0;
  PyObject* owner_ = nullptr;
  bool writable_ = true;
  bool intact_ = false;
  std::atomic<std::uint64_t> sequence_{0};
  ErrorPtr error_;
};

}  // namespace treadle
