// What goes over the border to Python and is no handle: errors, and arrays of this process's memory.
#pragma once

#include <lumen.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <vector>

namespace lumen::python {

namespace nb = nanobind;

using FloatArray = nb::ndarray<nb::numpy, float>;

// Raises lumen_compiler.Error.
[[noreturn]] inline void raise(int code, const std::string& message, const std::string& hint) {
  const nb::object type = nb::module_::import_("lumen_compiler._errors").attr("Error");
  const nb::object error = type(message, hint, code);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

inline void check(int status) {
  if (status == LUMEN_OK) return;
  if (status == LUMEN_INTERRUPTED) {
    if (PyErr_CheckSignals() == 0) PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
  }
  const char* hint = nullptr;
  const std::string message = lumen_last_error(&hint);
  raise(status, message, hint);
}

struct Freed {
  void operator()(void* memory) const { lumen_free(memory); }
};
template <typename T>
using Owned = std::unique_ptr<T, Freed>;

// An array that owns what Lumen handed over.
inline FloatArray array_of(Owned<float> data, const std::vector<size_t>& shape) {
  float* const numbers = data.get();
  nb::capsule owner(data.get(), [](void* memory) noexcept { lumen_free(memory); });
  (void)data.release();
  return FloatArray(numbers, shape.size(), shape.data(), owner);
}

// What another library says that hands an array over; the error indicator is clear behind.
inline std::string text_of_error(nanobind::python_error& error) {
  return nanobind::cast<std::string>(nanobind::str(error.value()));
}

}  // namespace lumen::python
