#include "program.h"

#include <algorithm>

#include "python_refs.h"

namespace treadle {
namespace {

void require(bool condition, const char* what) {
  if (!condition) throw Failure(ErrorKind::kValue, std::string("malformed program: ") + what);
}

template <class Container>
bool in_range(std::int64_t index, const Container& container) {
  return index >= 0 && index < static_cast<std::int64_t>(container.size());
}

std::int64_t non_negative(std::int64_t size, const char* what) {
  if (size < 0) {
    throw Failure(ErrorKind::kValue, std::string(what) + " is negative for these sizes: " + std::to_string(size));
  }
  return size;
}

}  // namespace

Program::Program(ProgramParts parts) : parts_(std::move(parts)), dims_(parts_.dims, parts_.symbols) {
  check_slots();
  check_launches();
  index_slots();
  Py_XINCREF(parts_.owner);
}

Program::~Program() { release_later(parts_.owner); }

void Program::check_slots() const {
  const auto dim = [this](std::int64_t id) { return id >= 0 && id < dims_.size(); };
  const auto optional_dim = [this](std::int64_t id) { return id >= -1 && id < dims_.size(); };
  require(optional_dim(parts_.arena) && optional_dim(parts_.work), "dim id of the arena or the work");
  for (const Slot& slot : parts_.slots) {
    require(dim(slot.nbytes), "dim id of a slot's size");
    switch (slot.kind) {
      case SlotKind::kInput: require(slot.index >= 0 && slot.index < parts_.inputs, "input number"); break;
      case SlotKind::kOutput:
        require(slot.index >= 0 && slot.index < parts_.outputs, "output number");
        require(slot.alias >= -1 && slot.alias < parts_.inputs, "aliased input");
        break;
      case SlotKind::kTemp: require(dim(slot.offset) && parts_.arena >= 0, "dim id of a temp's offset"); break;
      case SlotKind::kConstant: require(in_range(slot.index, parts_.constants), "constant number"); break;
      case SlotKind::kScalar: require(in_range(slot.index, parts_.scalars), "scalar number"); break;
      default: require(false, "slot kind");
    }
  }
}

void Program::check_launches() const {
  const auto dim = [this](std::int64_t id) { return id >= 0 && id < dims_.size(); };
  for (const Launch& launch : parts_.launches) {
    require(in_range(launch.kernel, parts_.kernels), "kernel number");
    require(in_range(launch.location, parts_.locations), "location number");
    require(dim(launch.tasks) && (launch.tail == -1 || dim(launch.tail)) && dim(launch.grain) && dim(launch.scratch), "dim id of a launch");
    for (const auto slot : launch.slots) require(in_range(slot, parts_.slots), "slot number of a launch");
    for (const auto id : launch.ints) require(dim(id), "dim id of a launch's integer");
  }
  for (const Kernel& kernel : parts_.kernels) require(kernel.function != nullptr, "address of a kernel");
}

void Program::index_slots() {
  input_slots_.assign(static_cast<std::size_t>(parts_.inputs), -1);
  output_slots_.assign(static_cast<std::size_t>(parts_.outputs), -1);
  for (std::size_t i = 0; i < parts_.slots.size(); ++i) {
    const Slot& slot = parts_.slots[i];
    if (slot.kind != SlotKind::kInput && slot.kind != SlotKind::kOutput) continue;
    auto& owner = (slot.kind == SlotKind::kInput ? input_slots_ : output_slots_)[static_cast<std::size_t>(slot.index)];
    require(owner == -1, "two slots for one input or output");
    owner = static_cast<std::int64_t>(i);
  }
  require(std::count(output_slots_.begin(), output_slots_.end(), -1) == 0, "an output without a slot");

  std::vector<bool> taken(input_slots_.size(), false);
  for (const auto output : output_slots_) {
    const auto alias = parts_.slots[static_cast<std::size_t>(output)].alias;
    if (alias < 0) continue;
    require(!taken[static_cast<std::size_t>(alias)], "two outputs alias one input");
    taken[static_cast<std::size_t>(alias)] = true;
  }

  first_use_.assign(parts_.slots.size(), parts_.launches.size());
  for (std::size_t i = parts_.launches.size(); i-- > 0;) {
    for (const auto slot : parts_.launches[i].slots) first_use_[static_cast<std::size_t>(slot)] = i;
  }
}

std::shared_ptr<const Binding> Program::bind(const std::vector<std::int64_t>& symbols) {
  if (last_ && last_->symbols == symbols) return last_;
  if (static_cast<std::int64_t>(symbols.size()) != parts_.symbols) {
    throw Failure(ErrorKind::kValue, "the program takes " + std::to_string(parts_.symbols) + " symbols, got " +
                                         std::to_string(symbols.size()));
  }
  const auto values = dims_.evaluate(symbols);
  const auto at = [&values](std::int64_t id) { return values[static_cast<std::size_t>(id)]; };
  auto binding = std::make_shared<Binding>();
  binding->symbols = symbols;
  if (parts_.arena >= 0) binding->arena = non_negative(at(parts_.arena), "the size of the arena");
  if (parts_.work >= 0) binding->work = at(parts_.work);
  for (const Slot& slot : parts_.slots) {
    const auto nbytes = non_negative(at(slot.nbytes), "the size of a buffer");
    const auto offset = slot.kind == SlotKind::kTemp ? non_negative(at(slot.offset), "an arena offset") : 0;
    if (slot.kind == SlotKind::kTemp) {
      require(nbytes <= binding->arena && offset <= binding->arena - nbytes, "a temp beyond the arena");
    }
    if (slot.kind == SlotKind::kConstant) {
      require(nbytes <= parts_.constants[static_cast<std::size_t>(slot.index)]->nbytes(), "a constant is too small");
    }
    binding->nbytes.push_back(nbytes);
    binding->offset.push_back(offset);
  }
  for (const Launch& launch : parts_.launches) {
    for (const auto id : launch.ints) binding->ints.push_back(at(id));
    binding->sizes.push_back({at(launch.tasks), launch.tail < 0 ? 0 : at(launch.tail), at(launch.grain), non_negative(at(launch.scratch), "a scratch size")});
  }
  last_ = std::move(binding);
  return last_;
}

}  // namespace treadle
