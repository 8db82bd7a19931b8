// Expressions over the sizes a program is run with, as postfix code on 64-bit integers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "error.h"

namespace treadle {

// The numbers are part of the serialised form of programs (DimCode in program.py).
enum class DimCode : std::int64_t {
  kPushConst = 0,  // followed by the constant
  kPushSymbol = 1,  // followed by the index of the symbol
  kAdd = 2,
  kSub = 3,
  kMul = 4,
  kFloorDiv = 5,
  kMod = 6,
  kMax = 7,
  kMin = 8,
  kCeilDiv = 9,
};

namespace dims {

inline std::int64_t checked(bool overflow, const std::int64_t& value) {
  if (overflow) throw Failure(ErrorKind::kValue, "a size does not fit 64 bits");
  return value;
}

inline std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Failure(ErrorKind::kZeroDivision, "a size is divided by zero");
  if (b == -1) return checked(__builtin_sub_overflow(std::int64_t{0}, a, &a), a);  // INT64_MIN / -1 traps
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

inline std::int64_t apply(DimCode code, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (code) {
    case DimCode::kAdd: return checked(__builtin_add_overflow(a, b, &out), out);
    case DimCode::kSub: return checked(__builtin_sub_overflow(a, b, &out), out);
    case DimCode::kMul: return checked(__builtin_mul_overflow(a, b, &out), out);
    case DimCode::kFloorDiv: return floor_div(a, b);
    case DimCode::kMod: return b == -1 ? 0 : a - floor_div(a, b) * b;
    case DimCode::kMax: return std::max(a, b);
    case DimCode::kMin: return std::min(a, b);
    case DimCode::kCeilDiv: return floor_div(a, b) + (b != -1 && a % b != 0);
    default: return out;  // the constructor let no other code through
  }
}

}  // namespace dims

// Evaluated as a whole, once for each new binding of the symbols.
class DimTable {
 public:
  DimTable() = default;

  // Checks the code once, so that evaluation needs no checks. Throws Failure(kValue).
  DimTable(const std::vector<std::vector<std::int64_t>>& expressions, std::int64_t symbols) {
    for (const auto& code : expressions) {
      check(code, symbols);
      code_.insert(code_.end(), code.begin(), code.end());
      ends_.push_back(code_.size());
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }

  std::vector<std::int64_t> evaluate(const std::vector<std::int64_t>& symbols) const {
    std::vector<std::int64_t> values;
    values.reserve(ends_.size());
    std::int64_t stack[kMaxDepth];
    std::size_t at = 0;
    for (const std::size_t end : ends_) {
      int depth = 0;
      while (at < end) {
        const auto code = static_cast<DimCode>(code_[at++]);
        if (code == DimCode::kPushConst) {
          stack[depth++] = code_[at++];
        } else if (code == DimCode::kPushSymbol) {
          stack[depth++] = symbols[static_cast<std::size_t>(code_[at++])];
        } else {
          --depth;
          stack[depth - 1] = dims::apply(code, stack[depth - 1], stack[depth]);
        }
      }
      values.push_back(stack[0]);
    }
    return values;
  }

 private:
  static constexpr int kMaxDepth = 64;

  static void check(const std::vector<std::int64_t>& code, std::int64_t symbols) {
    int depth = 0;
    bool valid = true;
    for (std::size_t at = 0; at < code.size() && valid; ++at) {
      const auto op = static_cast<DimCode>(code[at]);
      if (op == DimCode::kPushConst || op == DimCode::kPushSymbol) {
        valid = ++at < code.size() && ++depth <= kMaxDepth;
        if (valid && op == DimCode::kPushSymbol) valid = code[at] >= 0 && code[at] < symbols;
      } else {
        valid = op >= DimCode::kAdd && op <= DimCode::kCeilDiv && --depth >= 1;
      }
    }
    if (!valid || depth != 1) throw Failure(ErrorKind::kValue, "malformed dim expression");
  }

  std::vector<std::int64_t> code_;
  std::vector<std::size_t> ends_;
};

}  // namespace treadle
