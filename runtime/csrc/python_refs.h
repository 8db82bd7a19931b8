// References to Python objects that native threads may drop.
#pragma once

#include <Python.h>

namespace treadle {

// Drops a reference from any thread, with or without the GIL. A worker must not wait for the GIL (the main thread may
// keep it for long, or be finalising the interpreter), so its references are queued for the next thread that has it.
void release_later(PyObject* object);

// Drops the queued references. The caller holds the GIL.
void drain_released();

}  // namespace treadle
