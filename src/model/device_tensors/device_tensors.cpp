#include "model/device_tensors/device_tensors.h"

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "model/recipe/optimizer/optimizer.h"
#include "model/train/trainer/guard.h"

namespace lumen::model::device_tensors {
namespace {

file::TensorSpec spec_of(const std::string& name, const graph::Type& type) {
  file::TensorSpec spec{name, {}, type.element};
  for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
  return spec;
}

}  // namespace

void BoundProgram::put(const std::string& name, const void* from, int64_t bytes) const {
  const auto at = data.find(name);
  if (at == data.end()) return;
  LUMEN_CHECK(at->second->bytes() == bytes, "{}: {} bytes, not {}", name, bytes, at->second->bytes());
  at->second->upload(from, bytes);
}

double BoundProgram::finite_loss(int64_t step) const {
  float loss = 0;
  program->result("loss")->download(&loss, sizeof loss);
  if (!std::isfinite(loss))
    throw Error(Exit::numeric, fmt::format("step {}: the loss is {}; training stopped", step, loss),
                train::kDivergedHint);
  return loss;
}

BoundProgram bound_program(run::Engine& engine, const graph::Graph& g, const graph::Bindings& symbols,
                           const std::function<run::DeviceTensorRef*(const std::string& input)>& place) {
  BoundProgram out;
  out.results = g.result_names;
  run::CompileOptions options;
  options.symbols = symbols;
  out.program = engine.compile(g, options);
  for (const std::string& name : out.program->input_names()) {
    const graph::Type type = out.program->input_type(name);
    run::DeviceTensorRef* const own = place(name);
    run::DeviceTensorRef& tensor = own ? *own : out.data[name];
    if (!tensor) {
      tensor = std::make_shared<run::DeviceTensor>(engine.device(), type);
      tensor->clear();
    }
    LUMEN_CHECK(tensor->type() == type, "input {} is used with two types", name);
    out.program->bind(name, tensor);
  }
  return out;
}

void add_tensors(file::CheckpointContent& content, const DeviceTensors& tensors,
                 const std::function<bool(const std::string& name)>& keeps) {
  for (const auto& [name, tensor] : tensors)
    if (keeps(name))
      (recipe::is_optimizer_state(name) ? content.optimizer : content.weights).push_back(spec_of(name, tensor->type()));
  content.fetch = [&tensors, buffer = std::vector<uint8_t>(),
                   step = content.state.step](const file::TensorSpec& spec) mutable -> std::span<const uint8_t> {
    const run::DeviceTensorRef& tensor = tensors.at(spec.name);
    buffer.resize(tensor->bytes());
    tensor->download(buffer.data(), tensor->bytes());
    train::require_finite({reinterpret_cast<const float*>(buffer.data()), buffer.size() / sizeof(float)},
                          fmt::format("after step {}", step), spec.name, train::kDivergedHint);
    return {buffer.data(), buffer.size()};
  };
}

void take_tensor(DeviceTensors& tensors, run::Engine& engine, const file::StoredTensor& stored,
                 const std::filesystem::path& folder) {
  graph::Type type{{stored.shape.begin(), stored.shape.end()}, stored.element};
  run::DeviceTensorRef& tensor = tensors[stored.name];
  const bool is_same =
      tensor ? tensor->type() == type : recipe::is_optimizer_state(stored.name) && type.element == graph::Element{};
  if (!is_same) throw user_error("{}: '{}' is no tensor of this family and config", folder.string(), stored.name);
  if (!tensor) tensor = std::make_shared<run::DeviceTensor>(engine.device(), type);
  std::vector<float> numbers(tensor->bytes() / sizeof(float));
  stored.copy_blob(reinterpret_cast<uint8_t*>(numbers.data()));
  train::require_finite(numbers, folder.string(), stored.name, "begin with another checkpoint");
  tensor->upload(numbers.data(), tensor->bytes());
}

}  // namespace lumen::model::device_tensors
