// Arrays that Python hands over: what they are, where they lie, and that they stay while Lumen reads them.
#pragma once

#include "border.h"
#include "dlpack.h"

namespace lumen::python {

// As an error names it.
inline std::string place_name(int32_t kind, int32_t id) {
  if (kind == LUMEN_CPU) return "the processor";
  if (kind == LUMEN_CUDA) return "cuda:" + std::to_string(id);
  if (kind == LUMEN_ROCM) return "hip:" + std::to_string(id);
  return "a device of DLPack's kind " + std::to_string(kind);
}

// A tensor of Python as Lumen takes it; holds on to it.
struct Given {
  nb::ndarray<nb::ro> array;  // in memory of this process
  nb::object capsule;         // on a device
  std::vector<int64_t> shape;
  lumen_argument argument{{}, LUMEN_CPU, 0};

  bool is_on_device() const { return argument.kind != LUMEN_CPU; }
};

[[noreturn]] inline void raise_dtype(const std::string& what) {
  raise(LUMEN_USAGE, what + " is neither float32 nor int32", "convert it: x.astype(numpy.float32)");
}

// Takes the shape; Error where there are gaps. `strides` null: there are none.
template <typename Shape, typename Strides>
void take_shape(Given& out, size_t rank, Shape shape, Strides stride, const std::string& what) {
  int64_t dense = 1;
  for (size_t i = rank; i-- > 0;) {
    const auto extent = int64_t(shape(i));
    if (extent > 1 && stride(i, dense) != dense)
      raise(LUMEN_USAGE, what + " is not contiguous", "copy it: numpy.ascontiguousarray(x)");
    dense *= extent;
  }
  for (size_t i = 0; i < rank; ++i) out.shape.push_back(int64_t(shape(i)));
}

// The library that has the array makes Lumen's stream wait for what it still writes there.
inline Given given_on_device(nb::handle object, const lumen_device& device, const std::string& what) {
  Given out;
  try {
    out.capsule = object.attr("__dlpack__")(nb::arg("stream") = reinterpret_cast<intptr_t>(device.stream));
  } catch (nb::python_error& error) {
    raise(LUMEN_USAGE, what + " is not shared by its library: " + text_of_error(error),
          "give what has __dlpack__ (detach it from gradients)");
  }
  const dlpack::Tensor* const tensor = dlpack::tensor_of(out.capsule.ptr());
  if (!tensor) raise(LUMEN_USAGE, what + " is no array of DLPack's version 1 or before", "");
  const bool is_float = tensor->dtype.is(dlpack::Dtype::kFloat, 32);
  if (!is_float && !tensor->dtype.is(dlpack::Dtype::kInt, 32)) raise_dtype(what);
  take_shape(
      out, size_t(tensor->rank), [&](size_t i) { return tensor->shape[i]; },
      [&](size_t i, int64_t dense) { return tensor->strides ? tensor->strides[i] : dense; }, what);
  out.argument = {{is_float ? LUMEN_F32 : LUMEN_I32, int(out.shape.size()), nullptr,
                   static_cast<const char*>(tensor->data) + tensor->byte_offset},
                  tensor->device.kind,
                  tensor->device.id};
  return out;
}

// An array in memory of this process, or of `device`.
inline Given given(nb::handle object, const lumen_device& device, const std::string& what) {
  if (nb::hasattr(object, "__dlpack_device__")) {
    const auto place = nb::cast<nb::tuple>(object.attr("__dlpack_device__")());
    const auto kind = nb::cast<int32_t>(nb::int_(place[0])), id = nb::cast<int32_t>(nb::int_(place[1]));
    if (kind == device.kind && id == device.id && kind != LUMEN_CPU) return given_on_device(object, device, what);
    if (kind != LUMEN_CPU) {
      const std::string there = place_name(kind, id), here = place_name(device.kind, device.id);
      raise(LUMEN_USAGE, what + " lies on " + there + ", and Lumen works on " + here + " here",
            kind == LUMEN_CUDA || kind == LUMEN_ROCM
                ? "bring it to " + here + (device.kind == LUMEN_CPU ? ": x.cpu()" : "") + ", or open for device=\"" +
                      there + "\""
                : "bring it to " + here);
    }
  }
  Given out;
  if (!nb::try_cast(object, out.array))
    raise(LUMEN_USAGE, what + " is no array", "give a numpy array, or what has __dlpack__ (detach it from gradients)");
  if (out.array.device_type() != nb::device::cpu::value)
    raise(LUMEN_USAGE, what + " lies on another device", "bring it to the processor: x.cpu()");
  const bool is_float = out.array.dtype() == nb::dtype<float>();
  if (!is_float && out.array.dtype() != nb::dtype<int32_t>()) raise_dtype(what);
  take_shape(
      out, out.array.ndim(), [&](size_t i) { return out.array.shape(i); },
      [&](size_t i, int64_t) { return out.array.stride(i); }, what);
  out.argument.tensor = {is_float ? LUMEN_F32 : LUMEN_I32, int(out.shape.size()), nullptr, out.array.data()};
  return out;
}

inline std::vector<Given> all_given(const nb::sequence& objects, const lumen_device& device, const char* what) {
  std::vector<Given> out;
  size_t number = 0;
  for (const nb::handle object : objects) out.push_back(given(object, device, what + (" " + std::to_string(number++))));
  return out;
}

// The shapes lie in `all`, which stays where it is.
inline std::vector<lumen_argument> arguments_of(std::vector<Given>& all) {
  std::vector<lumen_argument> out;
  for (Given& g : all) {
    g.argument.tensor.shape = g.shape.data();
    out.push_back(g.argument);
  }
  return out;
}

}  // namespace lumen::python
