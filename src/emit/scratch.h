// LLVM's working objects while a kernel is emitted.
#pragma once

#include <exception>
#include <utility>

namespace lumen::emit {

// From the first call on, LLVM's containers throw std::bad_alloc where they get no memory, as operator new does; by
// default they abort.
void throw_without_memory();

// Owns an object of LLVM; when an exception ends the scope (memory ran out), the object is leaked. LLVM is built
// without exceptions: one that passes through its functions leaves objects inconsistent, and their destructors may
// crash.
template <class T>
class Scratch {
 public:
  template <class... Arguments>
  explicit Scratch(Arguments&&... arguments) : object_(new T(std::forward<Arguments>(arguments)...)) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (std::uncaught_exceptions() == before_) delete object_;
  }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  int before_ = std::uncaught_exceptions();
  T* object_;
};

}  // namespace lumen::emit
