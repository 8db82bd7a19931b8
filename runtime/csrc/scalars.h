// Python numbers -> the bits of a program's scalar cells.
#pragma once

#include <Python.h>

#include <cstdint>

#include "program.h"

namespace treadle {

// Rounds to nearest even where the type cannot hold the number. Throws Failure(kValue) for integers out of range and
// for objects that are not numbers.
std::uint64_t encode_scalar(PyObject* number, ScalarType type);

}  // namespace treadle
