// Errors of runs: values that travel with buffers until somebody reads them.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace treadle {

// Which Python exception the error becomes.
enum class ErrorKind { kRuntime, kValue, kIndex, kZeroDivision, kMemory };

struct RunError {
  ErrorKind kind;
  std::string message;
};

// Shared and immutable: one failed run may poison many buffers, and those poison later runs.
using ErrorPtr = std::shared_ptr<const RunError>;

// A RunError in flight on the thread that meets it.
class Failure : public std::exception {
 public:
  explicit Failure(ErrorPtr error) : error_(std::move(error)) {}
  Failure(ErrorKind kind, std::string message)
      : error_(std::make_shared<const RunError>(RunError{kind, std::move(message)})) {}

  const char* what() const noexcept override { return error_->message.c_str(); }
  const ErrorPtr& error() const { return error_; }

 private:
  ErrorPtr error_;
};

}  // namespace treadle
