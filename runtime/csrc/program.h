// A Program: a flat list of kernel launches over numbered memory slots. Immutable but for the memo of its last binding.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buffer.h"
#include "dim_table.h"

namespace treadle {

// The kernel ABI (ARCHITECTURE.md, section 5). Negative returns are the runtime's own: see kOutOfMemory.
using KernelFunction = std::int64_t (*)(void* const* bufs, const std::int64_t* ints, void* scratch, std::int64_t begin,
                                        std::int64_t end);

// Returned by host functions that could not allocate their working memory.
constexpr std::int64_t kOutOfMemory = -1;

// The numbers of these two are part of the serialised form of programs (program.py).
enum class SlotKind : std::int64_t { kInput = 0, kOutput = 1, kTemp = 2, kConstant = 3, kScalar = 4 };
enum class ScalarType : std::int64_t { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

struct Slot {
  SlotKind kind;
  std::int64_t index;   // of the input, output, constant or scalar
  std::int64_t nbytes;  // dim id
  std::int64_t offset;  // dim id, in the arena: temps only
  std::int64_t alias;   // the input whose memory an output may take over, or -1
  bool read_first;      // an output whose kernels expect to find the aliased input's contents in it
};

struct Launch {
  std::int64_t kernel;
  std::vector<std::int64_t> slots;
  std::vector<std::int64_t> ints;  // dim ids
  std::int64_t tasks;              // dim id
  std::int64_t tail;               // dim id: how many of the last tasks run in order after the others; -1 for none
  std::int64_t grain;              // dim id
  std::int64_t scratch;            // dim id
  std::int64_t location;           // index into locations
};

struct Kernel {
  KernelFunction function;
  std::vector<std::pair<std::int64_t, std::string>> checks;  // messages by number
};

struct ProgramParts {
  std::string name;
  std::int64_t symbols = 0;
  std::vector<std::vector<std::int64_t>> dims;
  std::vector<Slot> slots;
  std::vector<Launch> launches;
  std::vector<Kernel> kernels;
  std::vector<BufferPtr> constants;
  std::vector<std::string> locations;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::vector<ScalarType> scalars;
  std::int64_t arena = -1;    // dim id of the arena's size, or -1
  std::int64_t work = -1;     // dim id of an estimate of the run's work in elements, or -1
  PyObject* owner = nullptr;  // keeps the kernels' code loaded
};

// Everything of a program that depends on its symbols, evaluated.
struct Binding {
  struct Sizes {
    std::int64_t tasks;
    std::int64_t tail;
    std::int64_t grain;
    std::int64_t scratch;
  };

  std::vector<std::int64_t> symbols;
  std::vector<std::int64_t> nbytes;  // by slot
  std::vector<std::int64_t> offset;  // by slot
  std::vector<std::int64_t> ints;    // of all launches, one after the other
  std::vector<Sizes> sizes;          // by launch
  std::int64_t arena = 0;
  std::int64_t work = -1;
};

class Program {
 public:
  // Throws Failure(kValue) when an index is out of range: nothing is checked again at run time.
  explicit Program(ProgramParts parts);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const ProgramParts& parts() const { return parts_; }

  // Slot of an output or input; -1 for an input that no kernel reads.
  std::int64_t output_slot(std::size_t output) const { return output_slots_[output]; }
  std::int64_t input_slot(std::size_t input) const { return input_slots_[input]; }

  // The first launch that mentions a slot; the number of launches if none does.
  std::size_t first_use(std::size_t slot) const { return first_use_[slot]; }

  const std::string& location_of(std::size_t launch) const {
    return parts_.locations[static_cast<std::size_t>(parts_.launches[launch].location)];
  }

  // Evaluates the dim table, or returns the last binding if the symbols are the same. Called under the GIL.
  std::shared_ptr<const Binding> bind(const std::vector<std::int64_t>& symbols);

 private:
  void check_slots() const;
  void check_launches() const;
  void index_slots();

  ProgramParts parts_;
  DimTable dims_;
  std::vector<std::int64_t> input_slots_;
  std::vector<std::int64_t> output_slots_;
  std::vector<std::size_t> first_use_;
  std::shared_ptr<const Binding> last_;
};

using ProgramPtr = std::shared_ptr<Program>;

}  // namespace treadle
