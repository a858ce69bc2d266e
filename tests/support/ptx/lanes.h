// How handlers are made: a function on values becomes a loop over the lanes of a warp. Values of up
// to 32 bits lie in 32-bit slots, zero-extended; floats as their bits.
#pragma once

#include <bit>
#include <type_traits>

#include "tests/support/ptx/decode.h"

namespace deltad::ptx {

template <typename T>
using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
Slot<T>* slots(Warp& w, uint32_t place) {
  if constexpr (sizeof(T) == 8) {
    return w.u64(place);
  } else {
    return w.u32(place);
  }
}

template <typename T>
T from_slot(Slot<T> s) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<T>(s);
  } else {
    return static_cast<T>(s);
  }
}

template <typename T>
Slot<T> to_slot(T v) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<Slot<T>>(v);
  } else {
    return static_cast<std::make_unsigned_t<T>>(v);
  }
}

// d = F(s…): D, S are the C++ types of the operands.
template <typename F, typename D, typename... S, size_t... I>
void map_lanes(Warp& w, const Instr& i, uint32_t lanes, std::index_sequence<I...>) {
  Slot<D>* d = slots<D>(w, i.op[0]);
  const auto sources = std::make_tuple(slots<S>(w, i.op[1 + I])...);
  for_lanes(lanes, [&](int l) {
    d[l] = to_slot<D>(static_cast<D>(F()(from_slot<S>(std::get<I>(sources)[l])...)));
  });
}

template <typename F, typename D, typename... S>
void map(Warp& w, const Instr& i, uint32_t lanes) {
  map_lanes<F, D, S...>(w, i, lanes, std::index_sequence_for<S...>());
}

// The C++ integer of a type, as an argument for `make`: make(int32_t{}) → Handler.
template <typename Make>
Handler for_integer(const Decoder& d, Type t, Make make) {
  switch (t) {
    case Type::kU16:
    case Type::kB16:
      return make(uint16_t{});
    case Type::kS16:
      return make(int16_t{});
    case Type::kU32:
    case Type::kB32:
      return make(uint32_t{});
    case Type::kS32:
      return make(int32_t{});
    case Type::kU64:
    case Type::kB64:
      return make(uint64_t{});
    case Type::kS64:
      return make(int64_t{});
    default:
      d.unknown("its type");
  }
}

}  // namespace deltad::ptx
