#include "buffer.h"

#include "python_refs.h"

namespace treadle {

BufferPtr Buffer::allocate(std::int64_t nbytes) {
  auto buffer = std::make_shared<Buffer>(nbytes);
  buffer->materialise("a buffer");
  return buffer;
}

BufferPtr Buffer::wrap(void* data, std::int64_t nbytes, PyObject* owner, bool writable) {
  auto buffer = std::make_shared<Buffer>(nbytes);
  buffer->data_ = data;
  Py_INCREF(owner);
  buffer->owner_ = owner;
  buffer->writable_ = writable;
  return buffer;
}

Buffer::~Buffer() {
  if (owner_) {
    release_later(owner_);
  } else if (data_) {
    Allocator::instance().release({data_, capacity_});
  }
}

void Buffer::materialise(const char* what) {
  const Block block = Allocator::instance().allocate(static_cast<std::size_t>(nbytes_), what);
  data_ = block.data;
  capacity_ = block.capacity;
}

}  // namespace treadle
