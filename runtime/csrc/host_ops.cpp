#include "host_ops.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <type_traits>

namespace treadle {
namespace {

// Tags for the two 16-bit floats: C++17 has no types of that size, and sorting needs only their bits.
struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

// Order keys: unsigned integers whose order is that of the values. Zeros of both signs have one key; every NaN has the
// greatest key, so NaNs come last, and first when descending, as in torch.
template <class Bits>
Bits float_key(Bits bits, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits magnitude = bits & static_cast<Bits>(~kSign);
  if (magnitude > infinity) return static_cast<Bits>(~Bits{0});
  if (magnitude == 0) return kSign;
  return bits & kSign ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | kSign);
}

template <class Bits, class Value>
Bits bits_of(const Value& value) {
  static_assert(sizeof(Bits) == sizeof(Value));
  Bits bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::uint16_t order_key(Half value) { return float_key<std::uint16_t>(value.bits, 0x7C00); }
std::uint16_t order_key(BFloat value) { return float_key<std::uint16_t>(value.bits, 0x7F80); }
std::uint32_t order_key(float value) { return float_key<std::uint32_t>(bits_of<std::uint32_t>(value), 0x7F800000u); }
std::uint64_t order_key(double value) {
  return float_key<std::uint64_t>(bits_of<std::uint64_t>(value), 0x7FF0000000000000u);
}

template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer>>>
std::make_unsigned_t<Integer> order_key(Integer value) {
  using Key = std::make_unsigned_t<Integer>;
  constexpr Key kFlip = std::is_signed_v<Integer> ? static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1)) : Key{0};
  return static_cast<Key>(static_cast<Key>(value) ^ kFlip);
}

template <class Key>
struct Item {
  Key key;
  std::int64_t index;
};

constexpr std::size_t kRadixThreshold = 512;  // shorter rows: comparisons beat filling histograms

// Stable, least significant byte first; bytes that all keys share cost a histogram and no pass. The result is in `items`.
template <class Key>
void radix_sort(std::vector<Item<Key>>& items, std::vector<Item<Key>>& other) {
  std::array<std::array<std::size_t, 256>, sizeof(Key)> counts{};
  for (const auto& item : items) {
    for (std::size_t byte = 0; byte < sizeof(Key); ++byte) ++counts[byte][(item.key >> (8 * byte)) & 0xFF];
  }
  other.resize(items.size());
  for (std::size_t byte = 0; byte < sizeof(Key); ++byte) {
    auto& starts = counts[byte];
    if (starts[(items[0].key >> (8 * byte)) & 0xFF] == items.size()) continue;
    std::size_t start = 0;
    for (auto& count : starts) {
      const std::size_t next = start + count;
      count = start;
      start = next;
    }
    for (const auto& item : items) other[starts[(item.key >> (8 * byte)) & 0xFF]++] = item;
    items.swap(other);
  }
}

template <class Key>
bool precedes(const Item<Key>& a, const Item<Key>& b) {
  return a.key != b.key ? a.key < b.key : a.index < b.index;
}

// The `wanted` least items of a row in `items`, in order. Once there are so many, an item has to be below the greatest of
// them to be looked at, and most are not.
template <class Key, class KeyOf>
void select_least(std::vector<Item<Key>>& items, std::int64_t length, std::int64_t wanted, const KeyOf& key_of) {
  const auto keep = static_cast<std::size_t>(wanted);
  const std::size_t room = 2 * keep + 64;
  items.clear();
  items.reserve(room);
  Key bar = static_cast<Key>(~Key{0});
  bool full = false;
  const auto shrink = [&] {
    std::nth_element(items.begin(), items.begin() + (wanted - 1), items.end(), precedes<Key>);
    items.resize(keep);
    bar = items.back().key;
    full = true;
  };
  for (std::int64_t i = 0; i < length; ++i) {
    const Key key = key_of(i);
    if (full && key >= bar) continue;  // of equal keys the earlier one stays
    items.push_back({key, i});
    if (items.size() == room) shrink();
  }
  if (items.size() > keep) shrink();
  std::sort(items.begin(), items.end(), precedes<Key>);
}

// bufs = {in, values, indices}, ints = {row length, how many of a row are wanted}; a task is a row.
template <class Value, bool kDescending>
std::int64_t sort_rows(void* const* bufs, const std::int64_t* ints, void*, std::int64_t begin,
                       std::int64_t end) noexcept try {
  using Key = decltype(order_key(Value{}));
  const std::int64_t length = ints[0], wanted = ints[1];
  if (length == 0 || wanted == 0) return 0;
  std::vector<Item<Key>> items, other;
  for (std::int64_t row = begin; row < end; ++row) {
    const Value* in = static_cast<const Value*>(bufs[0]) + row * length;
    Value* values = static_cast<Value*>(bufs[1]) + row * wanted;
    std::int64_t* indices = static_cast<std::int64_t*>(bufs[2]) + row * wanted;
    const auto key_of = [in](std::int64_t i) {
      const Key key = order_key(in[i]);
      return kDescending ? static_cast<Key>(~key) : key;
    };
    if (wanted < length / 4) {
      select_least(items, length, wanted, key_of);
    } else {
      items.resize(static_cast<std::size_t>(length));
      for (std::int64_t i = 0; i < length; ++i) items[static_cast<std::size_t>(i)] = {key_of(i), i};
      if (items.size() < kRadixThreshold) {
        std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
      } else {
        radix_sort(items, other);
      }
    }
    for (std::int64_t i = 0; i < wanted; ++i) {
      const std::int64_t from = items[static_cast<std::size_t>(i)].index;
      values[i] = in[from];
      indices[i] = from;
    }
  }
  return 0;
} catch (const std::exception&) {
  return kOutOfMemory;  // bad_alloc, or length_error for rows beyond any memory
}

// bufs = {in: bool, count: i64}, ints = {n}; one task.
std::int64_t count_nonzero(void* const* bufs, const std::int64_t* ints, void*, std::int64_t, std::int64_t) {
  const auto* in = static_cast<const std::uint8_t*>(bufs[0]);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < ints[0]; ++i) count += in[i] != 0;
  *static_cast<std::int64_t*>(bufs[1]) = count;
  return 0;
}

// bufs = {in: bool, indices: i64}, ints = {n}; one task. `indices` has room for exactly the number of true elements.
std::int64_t nonzero(void* const* bufs, const std::int64_t* ints, void*, std::int64_t, std::int64_t) {
  const auto* in = static_cast<const std::uint8_t*>(bufs[0]);
  auto* out = static_cast<std::int64_t*>(bufs[1]);
  for (std::int64_t i = 0; i < ints[0]; ++i) {
    if (in[i]) *out++ = i;
  }
  return 0;
}

using Table = std::map<std::string, KernelFunction>;

template <class Value>
void add_sorts(Table& table, const std::string& dtype) {
  table["sort_" + dtype + "_asc"] = sort_rows<Value, false>;
  table["sort_" + dtype + "_desc"] = sort_rows<Value, true>;
}

const Table& table() {
  static const Table* instance = [] {
    auto* made = new Table;
    add_sorts<std::uint8_t>(*made, "bool");
    add_sorts<std::uint8_t>(*made, "u8");
    add_sorts<std::int8_t>(*made, "i8");
    add_sorts<std::int16_t>(*made, "i16");
    add_sorts<std::int32_t>(*made, "i32");
    add_sorts<std::int64_t>(*made, "i64");
    add_sorts<Half>(*made, "f16");
    add_sorts<BFloat>(*made, "bf16");
    add_sorts<float>(*made, "f32");
    add_sorts<double>(*made, "f64");
    (*made)["count_nonzero_u8"] = count_nonzero;
    (*made)["nonzero_u8"] = nonzero;
    return made;
  }();
  return *instance;
}

}  // namespace

KernelFunction find_host_function(const std::string& name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

std::vector<std::string> host_function_names() {
  std::vector<std::string> names;
  for (const auto& entry : table()) names.push_back(entry.first);
  return names;
}

}  // namespace treadle
