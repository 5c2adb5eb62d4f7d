// The Python package's way to the functions of lumen.h, which is all it knows of Lumen. Arrays come by DLPack or the
// buffer protocol; results are handed to numpy with the memory that Lumen made, and freed by it. Python's lock is
// released while Lumen works, and taken again to ask for signals (Ctrl-C) and to call back.
#include <lumen.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "border.h"
#include "device_array.h"
#include "given.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace lumen::python;  // NOLINT: nobody includes this file

namespace {

// Asks Python, while its lock is released, whether to go on: signals, and what `said` thinks of a piece of text.
class Hearing {
 public:
  explicit Hearing(nb::object said = nb::none()) : said_(std::move(said)), has_said_(!said_.is_none()) {}

  static int hear(void* context, const char* piece, size_t size) {
    return static_cast<Hearing*>(context)->goes_on(piece, size) ? 1 : 0;
  }
  // Raises what was raised while it heard, else what the status says.
  void check(int status) {
    if (error_) {
      nb::python_error error = std::move(*error_);
      error_.reset();
      throw error;
    }
    lumen::python::check(status);
  }

 private:
  bool goes_on(const char* piece, size_t size) {
    const auto now = std::chrono::steady_clock::now();
    const bool speaks = size > 0 && has_said_;
    if (!speaks && now - asked_ < std::chrono::milliseconds(20)) return true;
    asked_ = now;
    const nb::gil_scoped_acquire lock;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!speaks) return true;
      const nb::object text = nb::steal(PyUnicode_DecodeUTF8(piece, Py_ssize_t(size), "replace"));
      if (!text.is_valid()) throw nb::python_error();
      const nb::object answer = said_(text);
      return answer.is_none() || nb::cast<bool>(nb::bool_(answer));
    } catch (nb::python_error& error) {
      error_.emplace(std::move(error));
      return false;
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      error_.emplace();
      return false;
    }
  }

  nb::object said_;
  bool has_said_;
  std::chrono::steady_clock::time_point asked_{};
  std::optional<nb::python_error> error_;
};

FloatArray array_of(lumen_result& result) {
  Owned<int64_t> axes(result.shape);
  Owned<float> data(result.data);
  std::vector<size_t> shape;
  for (int i = 0; i < result.rank; ++i) shape.push_back(size_t(axes.get()[i]));
  return array_of(std::move(data), shape);
}

// A handle that may be closed while others use it: they finish first.
template <typename T, void (*close)(T*)>
class Handle {
 public:
  void set(T* handle) {
    handle_ = std::shared_ptr<T>(handle, [](T* h) {
      const nb::gil_scoped_release free;
      close(h);
    });
  }
  std::shared_ptr<T> get(const char* what) const {
    if (!handle_) raise(LUMEN_USAGE, std::string("the ") + what + " was closed", std::string("open it again"));
    return handle_;
  }
  void reset() { handle_.reset(); }
  bool is_open() const { return bool(handle_); }

 private:
  std::shared_ptr<T> handle_;
};

nb::str text_of(const char* text, size_t size) {
  const nb::object out = nb::steal(PyUnicode_DecodeUTF8(text, Py_ssize_t(size), "replace"));
  if (!out.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(out);
}
nb::str taken(char* text) {
  const Owned<char> owner(text);
  return text_of(text, std::char_traits<char>::length(text));
}

std::vector<const char*> pointers(const std::vector<std::string>& words) {
  std::vector<const char*> out;
  for (const std::string& word : words) {
    if (word.find('\0') != std::string::npos) raise(LUMEN_USAGE, "a text holds a zero byte", "");
    out.push_back(word.c_str());
  }
  return out;
}

class Model {
 public:
  Model(const std::string& path, const std::string& options) {
    lumen_model* made = nullptr;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_model_open(path.c_str(), options.c_str(), &made);
    }
    check(status);
    model_.set(made);
  }
  void close() { model_.reset(); }
  bool is_open() const { return model_.is_open(); }

  nb::str info() const {
    const auto m = model_.get("model");
    char* json = nullptr;
    check(locked([&] { return lumen_model_info(m.get(), &json); }));
    return taken(json);
  }

  std::vector<int32_t> tokenize(const std::string& text, const std::string& options) const {
    const auto m = model_.get("model");
    int32_t* tokens = nullptr;
    size_t count = 0;
    check(locked([&] { return lumen_tokenize(m.get(), text.data(), text.size(), options.c_str(), &tokens, &count); }));
    const Owned<int32_t> owner(tokens);
    return {tokens, tokens + count};
  }

  nb::str detokenize(const std::vector<int32_t>& tokens) const {
    const auto m = model_.get("model");
    char* text = nullptr;
    size_t size = 0;
    check(locked([&] { return lumen_detokenize(m.get(), tokens.data(), tokens.size(), &text, &size); }));
    const Owned<char> owner(text);
    return text_of(text, size);
  }

  nb::str generate(const std::string& prompt, const std::string& options, nb::object said) const {
    const auto m = model_.get("model");
    Hearing hearing(std::move(said));
    char* json = nullptr;
    hearing.check(locked([&] {
      return lumen_generate(m.get(), prompt.data(), prompt.size(), options.c_str(), Hearing::hear, &hearing, &json);
    }));
    return taken(json);
  }

  nb::str chat(const std::string& messages, const std::string& options, nb::object said) const {
    const auto m = model_.get("model");
    Hearing hearing(std::move(said));
    char* json = nullptr;
    hearing.check(
        locked([&] { return lumen_chat(m.get(), messages.c_str(), options.c_str(), Hearing::hear, &hearing, &json); }));
    return taken(json);
  }

  FloatArray logits(const std::vector<int32_t>& tokens, bool last, const std::string& options) const {
    const auto m = model_.get("model");
    float* numbers = nullptr;
    size_t vocabulary = 0;
    check(locked([&] {
      return lumen_logits(m.get(), tokens.data(), tokens.size(), last ? 1 : 0, options.c_str(), &numbers, &vocabulary);
    }));
    if (last) return array_of(Owned<float>(numbers), {vocabulary});
    return array_of(Owned<float>(numbers), {tokens.size(), vocabulary});
  }

  DeviceArray logits_array(const std::vector<int32_t>& tokens, bool last, const std::string& options) const {
    const auto m = model_.get("model");
    lumen_array* made = nullptr;
    check(locked([&] {
      return lumen_logits_array(m.get(), tokens.data(), tokens.size(), last ? 1 : 0, options.c_str(), &made);
    }));
    return DeviceArray(made);
  }

  nb::tuple device() const {
    const auto m = model_.get("model");
    lumen_device device{};
    check(lumen_model_device(m.get(), &device));
    return nb::make_tuple(device.kind, device.id);
  }

  FloatArray embed(const std::vector<std::string>& inputs, const std::string& options) const {
    const auto m = model_.get("model");
    std::vector<const char*> data;
    std::vector<size_t> sizes;
    for (const std::string& input : inputs) {
      data.push_back(input.data());
      sizes.push_back(input.size());
    }
    // Not null, even of none.
    data.push_back(nullptr);
    sizes.push_back(0);
    float* vectors = nullptr;
    size_t width = 0;
    check(locked([&] {
      return lumen_embed(m.get(), data.data(), sizes.data(), inputs.size(), options.c_str(), &vectors, &width);
    }));
    return array_of(Owned<float>(vectors), {inputs.size(), width});
  }

  nb::str perplexity(const std::string& text, const std::string& options) const {
    const auto m = model_.get("model");
    Hearing hearing;
    char* json = nullptr;
    hearing.check(locked([&] {
      return lumen_perplexity(m.get(), text.data(), text.size(), options.c_str(), Hearing::hear, &hearing, &json);
    }));
    return taken(json);
  }

 private:
  template <typename Call>
  static int locked(Call call) {
    const nb::gil_scoped_release free;
    return call();
  }
  Handle<lumen_model, lumen_model_close> model_;
};

class Function {
 public:
  Function(const std::string& text, const std::optional<std::string>& name, const std::string& options) {
    lumen_function* made = nullptr;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_function_open(text.c_str(), name ? name->c_str() : nullptr, options.c_str(), &made);
    }
    check(status);
    function_.set(made);
    check(lumen_function_device(made, &device_));
  }
  void close() { function_.reset(); }

  nb::str info() const {
    const auto f = function_.get("function");
    char* json = nullptr;
    check(lumen_function_info(f.get(), &json));
    return taken(json);
  }

  // `on_device` null: where an argument lies there. On the processor arrays are numpy's in any case.
  nb::list call(const nb::sequence& inputs, size_t results, std::optional<bool> on_device) const {
    const auto f = function_.get("function");
    std::vector<Given> all = all_given(inputs, device_, "argument");
    const std::vector<lumen_argument> arguments = arguments_of(all);
    return handed_over(results, any_on_device(all), on_device, [&](lumen_result* here, lumen_array** there) {
      if (there) return lumen_function_call_arrays(f.get(), arguments.data(), arguments.size(), there, results);
      const std::vector<lumen_tensor> tensors = tensors_of(arguments);
      return lumen_function_call(f.get(), tensors.data(), tensors.size(), here, results);
    });
  }

  nb::list gradient(const nb::sequence& inputs, const nb::sequence& cotangents, const std::vector<size_t>& wanted,
                    std::optional<bool> on_device) const {
    const auto f = function_.get("function");
    std::vector<Given> all = all_given(inputs, device_, "argument");
    std::vector<Given> weights = all_given(cotangents, device_, "cotangent");
    const std::vector<lumen_argument> arguments = arguments_of(all), by = arguments_of(weights);
    const bool is_there = any_on_device(all) || any_on_device(weights);
    return handed_over(wanted.size(), is_there, on_device, [&](lumen_result* here, lumen_array** there) {
      if (there)
        return lumen_function_gradient_arrays(f.get(), arguments.data(), arguments.size(), by.data(), by.size(),
                                              wanted.data(), wanted.size(), there);
      const std::vector<lumen_tensor> tensors = tensors_of(arguments), weigh = tensors_of(by);
      return lumen_function_gradient(f.get(), tensors.data(), tensors.size(), weigh.data(), weigh.size(), wanted.data(),
                                     wanted.size(), here);
    });
  }

 private:
  static bool any_on_device(const std::vector<Given>& all) {
    return std::any_of(all.begin(), all.end(), [](const Given& g) { return g.is_on_device(); });
  }
  static std::vector<lumen_tensor> tensors_of(const std::vector<lumen_argument>& arguments) {
    std::vector<lumen_tensor> out;
    for (const lumen_argument& a : arguments) out.push_back(a.tensor);
    return out;
  }

  // Results of `call`, which gets room for them here or on the device.
  template <typename Call>
  nb::list handed_over(size_t count, bool is_there, std::optional<bool> on_device, Call call) const {
    const bool stays = device_.kind != LUMEN_CPU && on_device.value_or(is_there);
    const bool works_there = is_there || stays;
    std::vector<lumen_result> here(works_there ? 0 : count);
    std::vector<lumen_array*> there(works_there ? count : 0);
    // Not null, even of none.
    here.reserve(1);
    there.reserve(1);
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = call(here.data(), works_there ? there.data() : nullptr);
    }
    check(status);
    nb::list out;
    for (lumen_result& r : here) out.append(array_of(r));
    std::vector<DeviceArray> arrays;
    for (lumen_array* const array : there) arrays.emplace_back(array);
    for (const DeviceArray& array : arrays) {
      if (stays) {
        out.append(array);
      } else {
        out.append(array.numpy());
      }
    }
    return out;
  }
  Handle<lumen_function, lumen_function_close> function_;
  lumen_device device_{};
};

class Format {
 public:
  Format(const std::optional<std::string>& text, const std::optional<std::string>& name, const std::string& options) {
    lumen_format* made = nullptr;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status =
          lumen_format_open(text ? text->c_str() : nullptr, name ? name->c_str() : nullptr, options.c_str(), &made);
    }
    check(status);
    format_.set(made);
  }

  nb::str info() const {
    const auto f = format_.get("format");
    char* json = nullptr;
    check(lumen_format_info(f.get(), &json));
    return taken(json);
  }

  nb::bytes encode(nb::handle numbers) const {
    const auto f = format_.get("format");
    const Given matrix = given(numbers, {LUMEN_CPU, 0, nullptr}, "the matrix");
    const lumen_tensor& tensor = matrix.argument.tensor;
    if (matrix.shape.size() != 2 || tensor.dtype != LUMEN_F32)
      raise(LUMEN_USAGE, "a format rounds a matrix of float32", "reshape it to [rows, columns]");
    uint8_t* bytes = nullptr;
    size_t size = 0;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_format_encode(f.get(), static_cast<const float*>(tensor.data), matrix.shape[0], matrix.shape[1],
                                   &bytes, &size);
    }
    check(status);
    const Owned<uint8_t> owner(bytes);
    return nb::bytes(bytes, size);
  }

  FloatArray decode(const nb::bytes& bytes, int64_t rows, int64_t columns) const {
    const auto f = format_.get("format");
    float* numbers = nullptr;
    int status = LUMEN_OK;
    const auto* data = static_cast<const uint8_t*>(bytes.data());
    const size_t size = bytes.size();
    {
      const nb::gil_scoped_release free;
      status = lumen_format_decode(f.get(), data, size, rows, columns, &numbers);
    }
    check(status);
    return array_of(Owned<float>(numbers), {size_t(rows), size_t(columns)});
  }

 private:
  Handle<lumen_format, lumen_format_close> format_;
};

class Trainer {
 public:
  explicit Trainer(const std::vector<std::string>& words) {
    const std::vector<const char*> arguments = pointers(words);
    Hearing hearing;
    lumen_trainer* made = nullptr;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_trainer_open(int(arguments.size()), arguments.data(), Hearing::hear, &hearing, &made);
    }
    hearing.check(status);
    trainer_.set(made);
  }
  void close() { trainer_.reset(); }

  nb::str step() const {
    return asked([](lumen_trainer* t, void* hearing, char** json) {
      return lumen_trainer_step(t, Hearing::hear, hearing, json);
    });
  }
  nb::str save() const {
    return asked([](lumen_trainer* t, void* hearing, char** path) {
      return lumen_trainer_save(t, Hearing::hear, hearing, path);
    });
  }
  nb::str finish() const {
    return asked([](lumen_trainer* t, void* hearing, char** json) {
      return lumen_trainer_finish(t, Hearing::hear, hearing, json);
    });
  }
  double evaluate(int64_t rows) const {
    const auto t = trainer_.get("trainer");
    Hearing hearing;
    double loss = 0;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = lumen_trainer_evaluate(t.get(), rows, Hearing::hear, &hearing, &loss);
    }
    hearing.check(status);
    return loss;
  }

 private:
  template <typename Call>
  nb::str asked(Call call) const {
    const auto t = trainer_.get("trainer");
    Hearing hearing;
    char* text = nullptr;
    int status = LUMEN_OK;
    {
      const nb::gil_scoped_release free;
      status = call(t.get(), &hearing, &text);
    }
    hearing.check(status);
    return taken(text);
  }
  Handle<lumen_trainer, lumen_trainer_close> trainer_;
};

nb::str command(const std::vector<std::string>& words) {
  const std::vector<const char*> arguments = pointers(words);
  char* output = nullptr;
  size_t size = 0;
  int status = LUMEN_OK;
  {
    const nb::gil_scoped_release free;
    status = lumen_command(int(arguments.size()), arguments.data(), &output, &size);
  }
  const Owned<char> owner(output);
  check(status);
  return text_of(output, size);
}

int main_program(const std::vector<std::string>& words) {
  const std::vector<const char*> arguments = pointers(words);
  const nb::gil_scoped_release free;
  return lumen_main(int(arguments.size()), arguments.data());
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The functions of lumen.h; what people use is in the package lumen_compiler.";
  m.attr("API_VERSION") = lumen_api_version();
  m.attr("__version__") = lumen_version();
  m.def("command", &command, "words"_a);
  m.def("main", &main_program, "words"_a);
  nb::class_<DeviceArray>(m, "DeviceArray")
      .def_prop_ro("shape", &DeviceArray::shape)
      .def_prop_ro("device", &DeviceArray::device)
      .def_prop_ro("address", &DeviceArray::address)
      .def("numpy", &DeviceArray::numpy)
      .def("__repr__", &DeviceArray::text)
      .def("__array__", &DeviceArray::refuse_numpy)
      .def("__dlpack_device__", &DeviceArray::dlpack_device)
      .def("__dlpack__", &DeviceArray::dlpack, nb::kw_only(), "stream"_a = nb::none(), "max_version"_a = nb::none(),
           "dl_device"_a = nb::none(), "copy"_a = nb::none());
  nb::class_<Model>(m, "Model")
      .def(nb::init<const std::string&, const std::string&>(), "path"_a, "options"_a)
      .def("close", &Model::close)
      .def("is_open", &Model::is_open)
      .def("info", &Model::info)
      .def("tokenize", &Model::tokenize, "text"_a, "options"_a)
      .def("detokenize", &Model::detokenize, "tokens"_a)
      .def("generate", &Model::generate, "prompt"_a, "options"_a, "said"_a.none())
      .def("chat", &Model::chat, "messages"_a, "options"_a, "said"_a.none())
      .def("logits", &Model::logits, "tokens"_a, "last"_a, "options"_a)
      .def("logits_array", &Model::logits_array, "tokens"_a, "last"_a, "options"_a)
      .def("device", &Model::device)
      .def("embed", &Model::embed, "texts"_a, "options"_a)
      .def("perplexity", &Model::perplexity, "text"_a, "options"_a);
  nb::class_<Function>(m, "Function")
      .def(nb::init<const std::string&, const std::optional<std::string>&, const std::string&>(), "text"_a,
           "name"_a.none(), "options"_a)
      .def("close", &Function::close)
      .def("info", &Function::info)
      .def("call", &Function::call, "inputs"_a, "results"_a, "on_device"_a.none())
      .def("gradient", &Function::gradient, "inputs"_a, "cotangents"_a, "wanted"_a, "on_device"_a.none());
  nb::class_<Format>(m, "Format")
      .def(nb::init<const std::optional<std::string>&, const std::optional<std::string>&, const std::string&>(),
           "text"_a.none(), "name"_a.none(), "options"_a)
      .def("info", &Format::info)
      .def("encode", &Format::encode, "numbers"_a)
      .def("decode", &Format::decode, "data"_a, "rows"_a, "columns"_a);
  nb::class_<Trainer>(m, "Trainer")
      .def(nb::init<const std::vector<std::string>&>(), "words"_a)
      .def("close", &Trainer::close)
      .def("step", &Trainer::step)
      .def("save", &Trainer::save)
      .def("finish", &Trainer::finish)
      .def("evaluate", &Trainer::evaluate, "rows"_a);
}
