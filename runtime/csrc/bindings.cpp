// The Python module treadle.runtime._core.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "allocator.h"
#include "buffer.h"
#include "executor.h"
#include "host_ops.h"
#include "program.h"
#include "python_refs.h"
#include "scalars.h"
#include "thread_pool.h"

namespace py = pybind11;

namespace treadle {
namespace {

PyTypeObject* buffer_type = nullptr;

PyObject* exception_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kValue: return PyExc_ValueError;
    case ErrorKind::kIndex: return PyExc_IndexError;
    case ErrorKind::kZeroDivision: return PyExc_ZeroDivisionError;
    case ErrorKind::kMemory: return PyExc_MemoryError;
    case ErrorKind::kRuntime: break;
  }
  return PyExc_RuntimeError;
}

void translate_failure(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const Failure& failure) {
    PyErr_SetString(exception_type(failure.error()->kind), failure.what());
  }
}

// pybind11's own conversion costs ten times as much, and a training step passes hundreds of buffers.
const BufferPtr& buffer_of(PyObject* object) {
  if (Py_TYPE(object) != buffer_type) throw py::type_error("expected a Buffer");
  auto* instance = reinterpret_cast<py::detail::instance*>(object);
  return instance->get_value_and_holder().holder<BufferPtr>();
}

// Waits in slices, so that Ctrl-C works.
void wait_for(std::uint64_t sequence) {
  Executor& executor = Executor::instance();
  while (executor.completed() < sequence) {
    bool done;
    {
      const py::gil_scoped_release release;
      done = executor.wait(sequence, 100);
    }
    if (!done && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  drain_released();
}

void wait_buffer(const Buffer& buffer) {
  wait_for(buffer.sequence());
  if (buffer.error()) throw Failure(buffer.error());
  if (Executor::instance().lost(buffer.sequence())) {
    throw Failure(ErrorKind::kRuntime, "this value was being computed when the process was forked");
  }
}

py::array buffer_array(PyObject* self, const py::object& dtype, const std::vector<py::ssize_t>& shape) {
  const BufferPtr buffer = buffer_of(self);
  wait_buffer(*buffer);
  const auto type = py::dtype::from_args(dtype);
  std::int64_t nbytes = type.itemsize();
  for (const auto size : shape) {
    if (size < 0 || __builtin_mul_overflow(nbytes, static_cast<std::int64_t>(size), &nbytes)) {
      throw py::value_error("invalid shape");
    }
  }
  if (nbytes > buffer->nbytes()) throw py::value_error("the array is larger than the buffer");
  buffer->exports.fetch_add(1);
  const py::capsule keep_alive(new BufferPtr(buffer), [](void* pointer) {
    auto* held = static_cast<BufferPtr*>(pointer);
    (*held)->exports.fetch_sub(1);
    delete held;
  });
  py::array array(type, shape, buffer->data(), keep_alive);
  if (!buffer->writable()) array.attr("flags").attr("writeable") = false;
  return array;
}

BufferPtr from_numpy(const py::array& array) {
  constexpr int kRequired = py::array::c_style | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  if ((array.flags() & kRequired) != kRequired) throw py::value_error("the array is not contiguous and aligned");
  return Buffer::wrap(const_cast<void*>(array.data()), array.nbytes(), array.ptr(), array.writeable());
}

BufferPtr from_bytes(const py::bytes& contents) {
  const auto view = static_cast<std::string_view>(contents);
  auto buffer = Buffer::allocate(static_cast<std::int64_t>(view.size()));
  std::copy(view.begin(), view.end(), static_cast<char*>(buffer->data()));
  return buffer;
}

void define_buffer(py::module_& module) {
  py::class_<Buffer, BufferPtr> buffer(module, "Buffer", "64-byte aligned memory, perhaps still being computed.");
  buffer_type = reinterpret_cast<PyTypeObject*>(buffer.ptr());
  buffer
      .def(py::init([](std::int64_t nbytes) {
             if (nbytes < 0) throw py::value_error("negative size");
             return Buffer::allocate(nbytes);
           }),
           py::arg("nbytes"), "Uninitialised memory.")
      .def_static("from_bytes", &from_bytes, py::arg("contents"), "A copy of `contents`.")
      .def_static("from_numpy", &from_numpy, py::arg("array"),
                  "Shares the memory of a contiguous, aligned array, which it keeps alive.")
      .def_static(
          "wrap",
          [](std::uintptr_t address, std::int64_t nbytes, const py::object& owner, bool writable) {
            return Buffer::wrap(reinterpret_cast<void*>(address), nbytes, owner.ptr(), writable);
          },
          py::arg("address"), py::arg("nbytes"), py::arg("owner"), py::arg("writable") = true,
          "Shares foreign memory, which `owner` keeps alive.")
      .def("array", [](const py::handle& self, const py::object& dtype,
                       const std::vector<py::ssize_t>& shape) { return buffer_array(self.ptr(), dtype, shape); },
           py::arg("dtype"), py::arg("shape"), "Waits, then a NumPy array on this memory, which it keeps alive.")
      .def("wait", [](const Buffer& self) { wait_buffer(self); },
           "Blocks until the value is there; raises the error of the run that should have computed it.")
      .def("recover", &Buffer::recover,
           "After a failed run: True when the buffer is readable, its old value intact if the run would have "
           "overwritten it but had not begun to.")
      .def_property_readonly(
          "ready", [](const Buffer& self) { return self.sequence() <= Executor::instance().completed(); },
          "True when `wait` would not block.")
      .def_property_readonly("nbytes", &Buffer::nbytes)
      .def_property_readonly("data_ptr", [](const Buffer& self) {
        wait_buffer(self);
        return reinterpret_cast<std::uintptr_t>(self.data());
      }, "Waits, then the address of the memory.")
      .def_property_readonly("foreign", &Buffer::foreign, "True when the memory belongs to another library.")
      .def_property_readonly("writable", &Buffer::writable)
      .def_property_readonly("exports", [](const Buffer& self) { return self.exports.load(); },
                             "How many live NumPy arrays `array` has made.")
      .def_property_readonly("exposed", [](const Buffer& self) {
        return self.writable() && (self.foreign() || self.exports.load() > 0);
      }, "True when code outside treadle may change the memory at any time.")
      .def("use_count", [](const py::handle& self) { return buffer_of(self.ptr()).use_count(); },
           "References held by native code and NumPy arrays, plus one for this Python object.");
}

using SlotTuple = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool>;
using LaunchTuple = std::tuple<std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t,
                               std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
using KernelTuple = std::tuple<std::uintptr_t, std::vector<std::pair<std::int64_t, std::string>>>;

ProgramPtr make_program(const std::string& name, std::int64_t symbols, std::vector<std::vector<std::int64_t>> dims,
                        const std::vector<SlotTuple>& slots, const std::vector<LaunchTuple>& launches,
                        const std::vector<KernelTuple>& kernels, std::vector<BufferPtr> constants,
                        std::vector<std::string> locations, std::int64_t inputs, std::int64_t outputs,
                        const std::vector<std::int64_t>& scalars, std::int64_t arena, std::int64_t work,
                        const py::object& owner) {
  ProgramParts parts;
  parts.name = name;
  parts.symbols = symbols;
  parts.dims = std::move(dims);
  for (const auto& [kind, index, nbytes, offset, alias, read_first] : slots) {
    parts.slots.push_back({static_cast<SlotKind>(kind), index, nbytes, offset, alias, read_first});
  }
  for (const auto& [kernel, slot_ids, ints, tasks, grain, scratch, location, tail] : launches) {
    parts.launches.push_back({kernel, slot_ids, ints, tasks, tail, grain, scratch, location});
  }
  for (const auto& [address, checks] : kernels) {
    parts.kernels.push_back({reinterpret_cast<KernelFunction>(address), checks});
  }
  parts.constants = std::move(constants);
  parts.locations = std::move(locations);
  parts.inputs = inputs;
  parts.outputs = outputs;
  for (const auto type : scalars) parts.scalars.push_back(static_cast<ScalarType>(type));
  parts.arena = arena;
  parts.work = work;
  parts.owner = owner.ptr();
  return std::make_shared<Program>(std::move(parts));
}

void define_program(py::module_& module) {
  py::class_<Program, ProgramPtr>(module, "Program", "A loaded program. Made by treadle.runtime.load.")
      .def(py::init(&make_program), py::kw_only(), py::arg("name"), py::arg("symbols"), py::arg("dims"),
           py::arg("slots"), py::arg("launches"), py::arg("kernels"), py::arg("constants"), py::arg("locations"),
           py::arg("inputs"), py::arg("outputs"), py::arg("scalars"), py::arg("arena"), py::arg("work"),
           py::arg("owner"))
      .def_property_readonly("name", [](const Program& self) { return self.parts().name; })
      .def("evaluate_sizes", [](Program& self, const std::vector<std::int64_t>& symbols) {
        const auto binding = self.bind(symbols);
        py::dict sizes;
        sizes["slots"] = binding->nbytes;
        sizes["arena"] = binding->arena;
        sizes["ints"] = binding->ints;
        return sizes;
      }, py::arg("symbols"), "Bytes by slot, bytes of the arena and the launches' integers, for these symbols.");
}

// A borrowed view of any Python sequence.
class Items {
 public:
  Items(const py::object& sequence, const char* what)
      : fast_(py::reinterpret_steal<py::object>(PySequence_Fast(sequence.ptr(), what))) {
    if (!fast_) throw py::error_already_set();
  }
  std::size_t size() const { return static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast_.ptr())); }
  PyObject* operator[](std::size_t i) const { return PySequence_Fast_ITEMS(fast_.ptr())[i]; }

 private:
  py::object fast_;
};

std::int64_t small_integer(PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return value;
}

std::vector<Donation> parse_donations(const py::object& donated, std::size_t inputs) {
  std::vector<Donation> donations;
  if (donated.is_none()) return donations;
  const Items items(donated, "donated must be a sequence");
  if (items.size() != inputs) throw py::value_error("donated must have one entry for each input");
  donations.reserve(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    const auto value = small_integer(items[i]);
    if (value < 0 || value > 2) throw py::value_error("donated entries are False, True or REQUIRE");
    donations.push_back(static_cast<Donation>(value));
  }
  return donations;
}

py::list submit(const ProgramPtr& program, const py::object& inputs, const py::object& donated,
                const py::object& scalars, const py::object& symbols) {
  drain_released();
  while (!Executor::instance().has_room()) wait_for(Executor::instance().oldest());
  Run run;
  run.program = program;
  const Items input_items(inputs, "inputs must be a sequence");
  run.inputs.reserve(input_items.size());
  for (std::size_t i = 0; i < input_items.size(); ++i) run.inputs.push_back(buffer_of(input_items[i]));
  const Items scalar_items(scalars, "scalars must be a sequence");
  const auto& types = program->parts().scalars;
  run.scalars.resize(scalar_items.size());
  for (std::size_t i = 0; i < scalar_items.size() && i < types.size(); ++i) {
    run.scalars[i].bits = encode_scalar(scalar_items[i], types[i]);
  }
  const Items symbol_items(symbols, "symbols must be a sequence");
  std::vector<std::int64_t> values(symbol_items.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = small_integer(symbol_items[i]);
  run.binding = program->bind(values);
  const auto donations = parse_donations(donated, run.inputs.size());
  const auto outputs = Executor::instance().submit(std::move(run), donations);
  py::list list(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    PyList_SET_ITEM(list.ptr(), static_cast<py::ssize_t>(i), py::cast(outputs[i]).release().ptr());
  }
  return list;
}

void define_executor(py::module_& module) {
  module.attr("REQUIRE") = static_cast<int>(Donation::kRequire);
  module.def("submit", &submit, py::arg("program"), py::arg("inputs"), py::arg("donated") = py::none(),
             py::arg("scalars") = py::tuple(), py::arg("symbols") = py::tuple(),
             "Queues a run and returns its output buffers at once.");
  module.def("synchronize", [] { wait_for(Executor::instance().submitted()); },
             "Waits for every submitted run. Errors stay with the buffers.");
  module.def("executor_stats", [] {
    const auto stats = Executor::instance().stats();
    py::dict out;
    out["programs"] = stats.programs;
    out["inline_programs"] = stats.inline_programs;
    out["launches"] = stats.launches;
    return out;
  });
  module.def("_shutdown", [] {
    wait_for(Executor::instance().submitted());
    const py::gil_scoped_release release;
    Executor::instance().stop();
    ThreadPool::instance().stop();
  });
  module.def("_before_fork", [] {
    wait_for(Executor::instance().submitted());
    Allocator::instance().mutex().lock();
  });
  module.def("_after_fork_in_parent", [] { Allocator::instance().mutex().unlock(); });
  module.def("_after_fork_in_child", [] {
    Allocator::instance().mutex().unlock();
    ThreadPool::replace_after_fork();
    Executor::replace_after_fork();
  });
}

void define_memory(py::module_& module) {
  module.def("memory_stats", [] {
    const MemoryStats stats = Allocator::instance().stats();
    py::dict out;
    out["allocated"] = stats.allocated;
    out["peak"] = stats.peak;
    out["cached"] = stats.cached;
    out["allocations"] = stats.allocations;
    out["system_allocations"] = stats.system_allocations;
    out["limit"] = stats.limit;
    return out;
  }, "Bytes allocated, peak, cached and the limit; counts of allocations.");
  module.def("empty_cache", [] { Allocator::instance().empty_cache(); }, "Gives cached blocks back to the system.");
  module.def("reset_peak_memory", [] { Allocator::instance().reset_peak(); });
  module.def("set_memory_limit", [](std::int64_t nbytes) { Allocator::instance().set_limit(nbytes); },
             py::arg("nbytes"), "Bound of allocated and cached bytes; 0 restores the default.");
}

void define_threads(py::module_& module) {
  module.def("get_num_threads", [] { return ThreadPool::instance().size(); });
  module.def("set_num_threads", [](int threads) {
    if (threads < 1) throw py::value_error("the number of threads must be positive");
    wait_for(Executor::instance().submitted());
    const py::gil_scoped_release release;
    ThreadPool::instance().resize(threads);
  }, py::arg("threads"));
  module.def("available_cores", &available_cores, "Cores this process may use.");
}

}  // namespace
}  // namespace treadle

PYBIND11_MODULE(_core, module) {
  using namespace treadle;
  module.doc() = "Buffers, programs, executor and thread pool.";
  py::register_exception_translator(&translate_failure);
  define_buffer(module);
  define_program(module);
  define_executor(module);
  define_memory(module);
  define_threads(module);
  module.def("host_function_address", [](const std::string& name) {
    const KernelFunction function = find_host_function(name);
    if (!function) throw py::key_error("no host function " + name);
    return reinterpret_cast<std::uintptr_t>(function);
  }, py::arg("name"));
  module.def("host_function_names", &host_function_names);
}
