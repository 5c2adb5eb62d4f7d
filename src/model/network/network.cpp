#include "model/network/network.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/draws.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "model/arch/model.h"
#include "model/file/checkpoint.h"
#include "model/train/optimizer/optimizer.h"
#include "model/train/trainer/guard.h"

namespace lumen::model {
namespace {

constexpr uint64_t kSeedDraws = 0x73656564;

TensorSpec spec_of(const std::string& name, const graph::Type& type) {
  TensorSpec spec{name, {}, type.element};
  for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
  return spec;
}

std::string settings_text(const NetworkSettings& s) {
  nlohmann::json config = nlohmann::json::object();
  for (const auto& [key, value] : s.config) config[key] = value;
  const OptimizerSettings& o = s.optimizer;
  const auto given = [](const std::optional<double>& value) { return value ? nlohmann::json(*value) : nullptr; };
  return json_print({{"family", s.family},
                     {"size", s.size},
                     {"config", config},
                     {"seed", s.seed},
                     {"optimizer",
                      {{"name", o.name},
                       {"beta1", given(o.beta1)},
                       {"beta2", given(o.beta2)},
                       {"weight_decay", given(o.weight_decay)},
                       {"max_norm", o.max_norm},
                       {"ema_decay", o.ema_decay}}}},
                    "settings", 2);
}

double real(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = json_member(object, key, where);
  if (!value.is_number()) throw user_error("{}: \"{}\" is no number", where, key);
  return value.get<double>();
}

NetworkSettings parse_settings(const std::string& text, const std::string& where) {
  const nlohmann::json all = parse_json(text, where);
  NetworkSettings s;
  s.family = json_text(all, "family", where);
  s.size = json_text(all, "size", where);
  const nlohmann::json& config = json_member(all, "config", where);
  if (!config.is_object()) throw user_error("{}: \"config\" is no object", where);
  for (const auto& [key, value] : config.items()) s.config[key] = real(config, key.c_str(), where);
  const int64_t seed = json_integer(all, "seed", where);
  if (seed < 0 || seed > 0xffffffff) throw user_error("{}: \"seed\" is {}", where, seed);
  s.seed = seed;
  const nlohmann::json& o = json_member(all, "optimizer", where);
  s.optimizer.name = json_text(o, "name", where);
  for (const auto& [key, to] : {std::pair("beta1", &s.optimizer.beta1),
                                {"beta2", &s.optimizer.beta2},
                                {"weight_decay", &s.optimizer.weight_decay}})
    if (!json_member(o, key, where).is_null()) *to = real(o, key, where);
  s.optimizer.max_norm = real(o, "max_norm", where);
  s.optimizer.ema_decay = real(o, "ema_decay", where);
  return s;
}

}  // namespace

Network::Network(run::Engine& engine, const Library& library, NetworkSettings settings)
    : engine_(engine), library_(library), settings_(std::move(settings)), family_(library.family(settings_.family)) {
  config_ = family_->config(settings_.size, settings_.config);
  parameters_ = family_->parameters(config_);
  optimizer_ = std::make_shared<Optimizer>(library_, settings_.optimizer);
  uint32_t salt = 0;
  for (const Parameter& p : parameters_) {
    const Weight w = initial_weight(*family_, config_, p, settings_.seed, ++salt);
    const auto put = [&](const std::string& name) {
      const auto tensor = std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{p.shape, {}});
      tensor->upload(w.f32().data(), w.f32().size_bytes());
      tensors_[name] = tensor;
    };
    put(p.name);
    if (p.frozen) continue;
    trained_.push_back(p);
    if (settings_.optimizer.ema_decay > 0) put(average_of(p.name));
  }
}

int64_t Network::config(const std::string& key) const {
  const auto at = config_.find(key);
  if (at == config_.end()) throw user_error("family '{}' has no config key '{}'", settings_.family, key);
  return std::llround(at->second);
}

int64_t Network::trained_numbers() const {
  int64_t sum = 0;
  for (const Parameter& p : trained_) sum += p.count();
  return sum;
}

Network::Compiled Network::compile(const graph::Graph& g, const graph::Bindings& symbols, bool averaged) {
  Compiled out;
  run::CompileOptions options;
  options.symbols = symbols;
  out.program = engine_.compile(g, options);
  for (const std::string& name : out.program->input_names()) {
    const graph::Type type = out.program->input_type(name);
    const bool is_parameter =
        std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& p) { return p.name == name; });
    const auto mean = averaged && is_parameter ? tensors_.find(average_of(name)) : tensors_.end();
    run::DeviceTensorRef& tensor = mean != tensors_.end()                     ? mean->second
                                   : is_parameter || is_optimizer_state(name) ? tensors_[name]
                                                                              : out.data[name];
    if (!tensor) {
      tensor = std::make_shared<run::DeviceTensor>(engine_.device(), type);
      tensor->clear();
    }
    LUMEN_CHECK(tensor->type() == type, "input {} is used with two types", name);
    out.program->bind(name, tensor);
  }
  return out;
}

Network::Compiled& Network::compiled(const std::string& function, const graph::Bindings& symbols, bool is_loss,
                                     bool averaged) {
  if (!has(function))
    throw Error(Exit::usage, fmt::format("family '{}' has no function '{}'", settings_.family, function));
  std::string key = fmt::format("{} {} {}", function, is_loss, averaged);
  for (const auto& [symbol, value] : symbols) key += fmt::format(" {}={}", symbol, value);
  Compiled& found = programs_[key];
  if (found.program) return found;
  graph::Graph g = family_->function(function, config_);
  if (!is_loss) return found = compile(g, symbols, averaged);
  return found = compile(training_step(graph::bind_symbols(std::move(g), symbols), trained_, *optimizer_), {}, false);
}

namespace {

void put(const std::map<std::string, run::DeviceTensorRef>& data, const std::string& name, const void* from,
         int64_t bytes) {
  const auto at = data.find(name);
  if (at == data.end()) return;
  LUMEN_CHECK(at->second->bytes() == bytes, "{}: {} bytes, not {}", name, bytes, at->second->bytes());
  at->second->upload(from, bytes);
}

void put(const std::map<std::string, run::DeviceTensorRef>& data, const NetworkInputs& inputs) {
  for (const auto& [name, some] : inputs.numbers) put(data, name, some.data(), std::ssize(some) * sizeof(float));
  for (const auto& [name, some] : inputs.integers) put(data, name, some.data(), std::ssize(some) * sizeof(int32_t));
}

}  // namespace

double Network::step(const std::string& loss, const NetworkInputs& inputs, double rate) {
  Compiled& c = compiled(loss, inputs.symbols, true, false);
  put(c.data, inputs);
  const uint32_t seed = Draws(settings_.seed, kSeedDraws, steps_).next() >> 32;
  put(c.data, "seed", &seed, sizeof seed);
  for (const auto& [name, value] : optimizer_->numbers(steps_ + 1, rate)) {
    const float one = value;
    put(c.data, name, &one, sizeof one);
  }
  c.program->run();
  float value = 0;
  c.program->result("loss")->download(&value, sizeof value);
  if (!std::isfinite(value))
    throw Error(Exit::numeric, fmt::format("step {}: the loss is {}; training stopped", steps_ + 1, value),
                kDivergedHint);
  ++steps_;
  return value;
}

std::vector<float> Network::run(const std::string& function, const NetworkInputs& inputs, bool averaged) {
  Compiled& c = compiled(function, inputs.symbols, false, averaged);
  put(c.data, inputs);
  c.program->run();
  const run::DeviceTensorRef result = c.program->result(kResult);
  std::vector<float> out(result->bytes() / sizeof(float));
  result->download(out.data(), result->bytes());
  return out;
}

std::filesystem::path Network::save(const std::filesystem::path& folder, int keep) const {
  CheckpointContent content;
  content.state.step = steps_;
  content.state.seed = settings_.seed;
  content.state.config = settings_text(settings_);
  for (const auto& [name, tensor] : tensors_)
    (is_optimizer_state(name) ? content.optimizer : content.weights).push_back(spec_of(name, tensor->type()));
  std::vector<uint8_t> buffer;
  content.fetch = [&](const TensorSpec& spec) -> std::span<const uint8_t> {
    const run::DeviceTensorRef& tensor = tensors_.at(spec.name);
    buffer.resize(tensor->bytes());
    tensor->download(buffer.data(), tensor->bytes());
    require_finite({reinterpret_cast<const float*>(buffer.data()), buffer.size() / sizeof(float)},
                   fmt::format("after step {}", steps_), spec.name, kDivergedHint);
    return {buffer.data(), buffer.size()};
  };
  return save_checkpoint(folder, content, keep);
}

void Network::restore(const std::filesystem::path& folder) {
  const Checkpoint checkpoint = load_checkpoint(folder, library_.formats());
  const auto take = [&](const StoredTensor& stored) {
    graph::Type type{{stored.shape.begin(), stored.shape.end()}, stored.element};
    run::DeviceTensorRef& tensor = tensors_[stored.name];
    const bool is_same =
        tensor ? tensor->type() == type : is_optimizer_state(stored.name) && type.element == graph::Element{};
    if (!is_same) throw user_error("{}: '{}' is no tensor of this family and config", folder.string(), stored.name);
    if (!tensor) tensor = std::make_shared<run::DeviceTensor>(engine_.device(), type);
    std::vector<float> numbers(tensor->bytes() / sizeof(float));
    stored.copy_blob(reinterpret_cast<uint8_t*>(numbers.data()));
    require_finite(numbers, folder.string(), stored.name, "begin with another checkpoint");
    tensor->upload(numbers.data(), tensor->bytes());
  };
  for (const Parameter& p : parameters_) take(checkpoint.weights->get(p.name));
  for (const StoredTensor& stored : checkpoint.optimizer->tensors()) take(stored);
  steps_ = checkpoint.state.step;
}

std::unique_ptr<Network> Network::load(run::Engine& engine, const Library& library,
                                       const std::filesystem::path& folder) {
  const auto newest = latest_checkpoint(folder);
  if (!newest) throw user_error("{}: no checkpoint of a network", folder.string());
  const Checkpoint checkpoint = load_checkpoint(*newest, library.formats());
  auto out = std::make_unique<Network>(engine, library, parse_settings(checkpoint.state.config, newest->string()));
  out->restore(*newest);
  return out;
}

}  // namespace lumen::model
