// An array that Lumen computed and that lies on a device, as Python sees it: others take it by DLPack, where it lies.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <utility>

#include "border.h"
#include "dlpack.h"
#include "given.h"

namespace lumen::python {

class DeviceArray {
 public:
  using Version = std::pair<int, int>;

  explicit DeviceArray(lumen_array* array) : array_(array, lumen_array_free) {
    const int64_t* shape = nullptr;
    int rank = 0;
    check(lumen_array_info(array, &device_, &rank, &shape, &data_));
    shape_.assign(shape, shape + rank);
  }

  nb::tuple dlpack_device() const { return nb::make_tuple(device_.kind, device_.id); }
  std::string device() const { return place_name(device_.kind, device_.id); }
  nb::tuple shape() const {
    nb::list out;
    for (const int64_t extent : shape_) out.append(extent);
    return nb::tuple(out);
  }
  size_t count() const {
    size_t out = 1;
    for (const int64_t extent : shape_) out *= size_t(extent);
    return out;
  }
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }

  std::string text() const {
    return "<lumen_compiler.DeviceArray float32 " + nb::cast<std::string>(nb::str(shape())) + " on " + device() + ">";
  }
  // numpy takes the numbers of no other device, and would otherwise make an array of one object.
  void refuse_numpy(const nb::args&, const nb::kwargs&) const {
    PyErr_SetString(PyExc_TypeError, "the array lies on a device: array.numpy() is a copy in host memory");
    throw nb::python_error();
  }

  // A copy in memory of this process.
  FloatArray numpy() const {
    Owned<float> numbers = read();
    return array_of(std::move(numbers), {shape_.begin(), shape_.end()});
  }

  // The numbers are written already, so whatever stream reads them, none has to wait.
  nb::object dlpack(const nb::object& stream, const std::optional<Version>& newest,
                    const std::optional<std::pair<nb::object, nb::object>>& where, std::optional<bool> copy) const {
    if (!stream.is_none() && !PyLong_Check(stream.ptr())) {
      PyErr_SetString(PyExc_TypeError, "stream is a number or None");
      throw nb::python_error();
    }
    if (where) {
      const auto kind = nb::cast<int32_t>(nb::int_(where->first)), id = nb::cast<int32_t>(nb::int_(where->second));
      const bool is_here = kind == device_.kind && id == device_.id;
      if (!is_here && kind != LUMEN_CPU)
        refuse("the array lies on " + device() + " and is not copied to " + place_name(kind, id));
      if (!is_here) {
        if (copy == false) refuse("the array lies on " + device() + ": only a copy can lie on the processor");
        Owned<float> numbers = read();
        float* const data = numbers.get();
        return exported({std::shared_ptr<float>(std::move(numbers)), data, {LUMEN_CPU, 0}, true}, newest);
      }
    }
    if (copy != true) return exported({array_, data_, {device_.kind, device_.id}, false}, newest);
    lumen_array* made = nullptr;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_array_copy(array_.get(), &made);
    }
    check(status);
    const DeviceArray other(made);
    return exported({other.array_, other.data_, {device_.kind, device_.id}, true}, newest);
  }

 private:
  struct Source {
    std::shared_ptr<void> keeper;
    float* data;
    dlpack::Device device;
    bool is_copied;
  };
  // What a capsule hands over, and what it keeps alive.
  template <typename T>
  struct Export {
    T managed{};
    std::shared_ptr<void> keeper;
    std::vector<int64_t> shape, strides;
  };

  [[noreturn]] static void refuse(const std::string& why) {
    PyErr_SetString(PyExc_BufferError, why.c_str());
    throw nb::python_error();
  }

  Owned<float> read() const {
    Owned<float> out(static_cast<float*>(std::malloc(count() * sizeof(float))));
    if (!out) throw std::bad_alloc();
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_array_read(array_.get(), out.get(), count());
    }
    check(status);
    return out;
  }

  nb::object exported(Source source, const std::optional<Version>& newest) const {
    if (!newest || newest->first < 1) return exported_as<dlpack::Managed>(std::move(source));
    return exported_as<dlpack::Versioned>(std::move(source));
  }

  template <typename T>
  nb::object exported_as(Source source) const {
    auto out = std::make_unique<Export<T>>();
    out->keeper = std::move(source.keeper);
    out->shape = shape_;
    out->strides.resize(shape_.size());
    int64_t dense = 1;
    for (size_t i = shape_.size(); i-- > 0;) {
      out->strides[i] = dense;
      dense *= shape_[i];
    }
    T& managed = out->managed;
    managed.tensor = {source.data,
                      source.device,
                      int32_t(shape_.size()),
                      {dlpack::Dtype::kFloat, 32, 1},
                      out->shape.data(),
                      out->strides.data(),
                      0};
    managed.context = out.get();
    // Called by whoever took it, in any thread, with Python's lock or without.
    managed.deleter = [](T* of) { delete static_cast<Export<T>*>(of->context); };
    if constexpr (std::is_same_v<T, dlpack::Versioned>) {
      managed.major = 1;
      managed.minor = 0;
      managed.flags = source.is_copied ? T::kIsCopied : 0;
    }
    nb::object capsule = nb::steal(dlpack::capsule_of(&managed));
    if (!capsule.is_valid()) throw nb::python_error();
    (void)out.release();
    return capsule;
  }

  std::shared_ptr<lumen_array> array_;
  lumen_device device_{};
  std::vector<int64_t> shape_;
  float* data_ = nullptr;
};

}  // namespace lumen::python
