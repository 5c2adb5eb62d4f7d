// The boundary between C and C++: an exception becomes a status and a message kept for lumen_last_error, and results
// become memory that the caller frees.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <string_view>

#include "include/lumen.h"

namespace lumen::api {

// Runs `work` and returns 0, or the status of its exception, whose message is kept for lumen_last_error.
int guarded(const std::function<void()>& work) noexcept;

// Error (usage) that names the argument `what` when `pointer` is null.
void require(const void* pointer, const char* what);

// A copy that the caller frees.
template <typename T>
T* handed_over(std::span<const T> values) {
  void* memory = std::malloc(values.size_bytes() > 0 ? values.size_bytes() : 1);
  if (!memory) throw std::bad_alloc();
  if (!values.empty()) std::memcpy(memory, values.data(), values.size_bytes());
  return static_cast<T*>(memory);
}
char* handed_over(std::string_view text);  // zero-terminated

// Asks the caller's `on_text` whether to go on; Error (interrupted) when it returns 0. A null `on_text` always goes on.
class Listener {
 public:
  Listener(lumen_on_text on_text, void* context) : on_text_(on_text), context_(context) {}
  bool tell(std::string_view piece) const;  // false: stop
  void ask() const;

 private:
  lumen_on_text on_text_;
  void* context_;
};

}  // namespace lumen::api
