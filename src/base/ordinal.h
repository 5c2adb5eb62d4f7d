// The number of an enumerator: tables are indexed by it, files and keys hold it.
#pragma once

#include <type_traits>

namespace lumen {

template <typename E>
constexpr int ordinal(E e) {
  static_assert(std::is_enum_v<E>);
  return static_cast<int>(e);
}

}  // namespace lumen
