#include "scalars.h"

#include <cmath>
#include <cstring>

#include "error.h"

namespace treadle {
namespace {

// Rounds once from the double: through float32 the last bit could round twice.
std::uint64_t encode_16_bits(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const std::uint64_t sign = std::signbit(value) ? 0x8000 : 0;
  const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return sign | infinity | (std::uint64_t{1} << (mantissa_bits - 1));
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place: 2^mantissa_bits and more for normal numbers, less for subnormal ones. Adding it to the
  // exponent field makes the carry of rounding up work out in every case.
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const auto field = static_cast<std::uint64_t>(exponent + bias - 1) << mantissa_bits;
  return sign | std::min(field + units, infinity);
}

double as_double(PyObject* number) {
  const double value = PyFloat_AsDouble(number);
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    throw Failure(ErrorKind::kValue, "a floating-point scalar of a program is not a number");
  }
  return value;
}

std::int64_t as_integer(PyObject* number, int bits, bool is_signed) {
  const std::int64_t low = is_signed ? -(std::int64_t{1} << (bits - 2)) * 2 : 0;
  const std::int64_t high = is_signed ? -(low + 1) : (std::int64_t{1} << bits) - 1;
  PyObject* integer = PyNumber_Index(number);
  const long long value = integer ? PyLong_AsLongLong(integer) : -1;
  Py_XDECREF(integer);
  const bool failed = value == -1 && PyErr_Occurred();
  if (failed) PyErr_Clear();
  if (failed || value < low || value > high) {
    throw Failure(ErrorKind::kValue, "an integer scalar of a program is no integer or out of its type's range");
  }
  return value;
}

}  // namespace

std::uint64_t encode_scalar(PyObject* number, ScalarType type) {
  switch (type) {
    case ScalarType::kBool: return PyObject_IsTrue(number) == 1;
    case ScalarType::kU8: return static_cast<std::uint64_t>(as_integer(number, 8, false));
    case ScalarType::kI8: return static_cast<std::uint64_t>(as_integer(number, 8, true));
    case ScalarType::kI16: return static_cast<std::uint64_t>(as_integer(number, 16, true));
    case ScalarType::kI32: return static_cast<std::uint64_t>(as_integer(number, 32, true));
    case ScalarType::kI64: return static_cast<std::uint64_t>(as_integer(number, 64, true));
    case ScalarType::kF16: return encode_16_bits(as_double(number), 5, 10);
    case ScalarType::kBF16: return encode_16_bits(as_double(number), 8, 7);
    case ScalarType::kF32: {
      const auto value = static_cast<float>(as_double(number));
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      return bits;
    }
    case ScalarType::kF64: {
      const double value = as_double(number);
      std::uint64_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      return bits;
    }
  }
  throw Failure(ErrorKind::kValue, "unknown scalar type");
}

}  // namespace treadle
