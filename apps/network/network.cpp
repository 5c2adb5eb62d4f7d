#include "apps/network/network.h"

#include <algorithm>
#include <cmath>

#include "apps/draws/draws.h"
#include "base/check.h"
#include "base/error.h"
#include "base/structured/json.h"
#include "base/structured/json_numbers.h"
#include "model/arch/model.h"
#include "model/file/checkpoint.h"
#include "model/recipe/optimizer/optimizer.h"

namespace lumen::apps {
namespace {

constexpr uint64_t kSeedDraws = 0x73656564;

std::vector<float> floats_of(const run::DeviceTensor& tensor) {
  std::vector<float> out(tensor.bytes() / sizeof(float));
  tensor.download(out.data(), tensor.bytes());
  return out;
}

}  // namespace

std::string network_settings_text(const NetworkSettings& s) {
  nlohmann::json config = nlohmann::json::object();
  for (const auto& [key, value] : s.config) config[key] = value;
  const model::recipe::OptimizerSettings& o = s.optimizer;
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

NetworkSettings parse_network_settings(const std::string& text, const std::string& where) {
  const nlohmann::json all = parse_json(text, where);
  NetworkSettings s;
  s.family = json_text(all, "family", where);
  s.size = json_text(all, "size", where);
  const nlohmann::json& config = json_member(all, "config", where);
  if (!config.is_object()) throw user_error("{}: \"config\" is no object", where);
  for (const auto& [key, value] : config.items()) s.config[key] = json_real(config, key.c_str(), where);
  const int64_t seed = json_integer(all, "seed", where);
  if (seed < 0 || seed > 0xffffffff) throw user_error("{}: \"seed\" is {}", where, seed);
  s.seed = seed;
  const nlohmann::json& o = json_member(all, "optimizer", where);
  s.optimizer.name = json_text(o, "name", where);
  for (const auto& [key, to] : {std::pair("beta1", &s.optimizer.beta1),
                                {"beta2", &s.optimizer.beta2},
                                {"weight_decay", &s.optimizer.weight_decay}})
    if (!json_member(o, key, where).is_null()) *to = json_real(o, key, where);
  s.optimizer.max_norm = json_real(o, "max_norm", where);
  s.optimizer.ema_decay = json_real(o, "ema_decay", where);
  return s;
}

Network::Network(run::Engine& engine, const model::arch::Library& library, NetworkSettings settings)
    : engine_(engine), library_(library), settings_(std::move(settings)), family_(library.family(settings_.family)) {
  config_ = family_->config(settings_.size, settings_.config);
  parameters_ = family_->parameters(config_);
  optimizer_ = std::make_shared<model::recipe::Optimizer>(library_, settings_.optimizer);
  uint32_t salt = 0;
  for (const model::arch::Parameter& p : parameters_) {
    const model::arch::Weight w = model::arch::initial_weight(*family_, config_, p, settings_.seed, ++salt);
    const auto put = [&](const std::string& name) {
      const auto tensor = std::make_shared<run::DeviceTensor>(engine_.device(), graph::Type{p.shape, {}});
      tensor->upload(w.f32().data(), w.f32().size_bytes());
      tensors_[name] = tensor;
    };
    put(p.name);
    if (p.frozen) continue;
    trained_.push_back(p);
    if (settings_.optimizer.ema_decay > 0) put(model::recipe::average_of(p.name));
  }
}

int64_t Network::config(const std::string& key) const {
  const auto at = config_.find(key);
  if (at == config_.end()) throw user_error("family '{}' has no config key '{}'", settings_.family, key);
  return std::llround(at->second);
}

int64_t Network::trained_numbers() const {
  int64_t sum = 0;
  for (const model::arch::Parameter& p : trained_) sum += p.count();
  return sum;
}

bool Network::is_parameter(const std::string& name) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const model::arch::Parameter& p) { return p.name == name; });
}

std::vector<float> Network::read(const std::string& name, bool averaged) const {
  if (!is_parameter(name)) throw user_error("family '{}' has no parameter '{}'", settings_.family, name);
  const auto mean = averaged ? tensors_.find(model::recipe::average_of(name)) : tensors_.end();
  const run::DeviceTensorRef& tensor = mean != tensors_.end() ? mean->second : tensors_.at(name);
  return floats_of(*tensor);
}

void Network::write(const std::string& name, std::span<const float> numbers) {
  if (!is_parameter(name)) throw user_error("family '{}' has no parameter '{}'", settings_.family, name);
  const run::DeviceTensorRef& tensor = tensors_.at(name);
  if (int64_t(numbers.size_bytes()) != tensor->bytes())
    throw user_error("'{}' has {} numbers, not {}", name, tensor->bytes() / sizeof(float), numbers.size());
  tensor->upload(numbers.data(), tensor->bytes());
}

void Network::define(const std::string& change, GraphChange made) {
  LUMEN_CHECK(!change.empty(), "a change has a name");
  programs_.erase(change);
  changes_[change] = std::move(made);
}

void Network::keep(const std::string& name, const graph::Type& type, std::span<const std::byte> bytes) {
  LUMEN_CHECK(!tensors_.contains(name), "'{}' is a tensor of the network", name);
  run::DeviceTensorRef& tensor = kept_[name];
  if (!tensor || tensor->type() != type) tensor = std::make_shared<run::DeviceTensor>(engine_.device(), type);
  LUMEN_CHECK(tensor->bytes() == std::ssize(bytes), "'{}': {} bytes", name, bytes.size());
  tensor->upload(bytes.data(), std::ssize(bytes));
}

model::device_tensors::BoundProgram Network::compile(const graph::Graph& g, const graph::Bindings& symbols,
                                                     bool averaged) {
  return model::device_tensors::bound_program(
      engine_, g, symbols, [&](const std::string& name) -> run::DeviceTensorRef* {
        if (const auto own = kept_.find(name); own != kept_.end()) return &own->second;
        if (averaged && is_parameter(name))
          if (const auto mean = tensors_.find(model::recipe::average_of(name)); mean != tensors_.end())
            return &mean->second;
        return is_parameter(name) || model::recipe::is_optimizer_state(name) ? &tensors_[name] : nullptr;
      });
}

model::device_tensors::BoundProgram& Network::compiled(const std::string& function, const graph::Bindings& symbols,
                                                       bool is_loss, bool averaged, const std::string& change) {
  if (!has(function))
    throw Error(Exit::usage, fmt::format("family '{}' has no function '{}'", settings_.family, function));
  std::string key = fmt::format("{} {} {}", function, is_loss, averaged);
  for (const auto& [symbol, value] : symbols) key += fmt::format(" {}={}", symbol, value);
  model::device_tensors::BoundProgram& found = programs_[change][key];
  if (found.program) return found;
  graph::Graph g = graph_of(function, symbols, change);
  if (is_loss) g = model::recipe::training_step(g, trained_, *optimizer_);
  return found = compile(g, {}, averaged);
}

namespace {

void put(const model::device_tensors::BoundProgram& c, const NetworkInputs& inputs) {
  for (const auto& [name, some] : inputs.numbers) c.put(name, some.data(), std::ssize(some) * sizeof(float));
  for (const auto& [name, some] : inputs.integers) c.put(name, some.data(), std::ssize(some) * sizeof(int32_t));
}

}  // namespace

double Network::step(const std::string& loss, const NetworkInputs& inputs, double rate, const std::string& change) {
  model::device_tensors::BoundProgram& c = compiled(loss, inputs.symbols, true, false, change);
  put(c, inputs);
  const uint32_t seed = Draws(settings_.seed, kSeedDraws, steps_).next() >> 32;
  c.put("seed", &seed, sizeof seed);
  for (const auto& [name, value] : optimizer_->numbers(steps_ + 1, rate)) {
    const float one = value;
    c.put(name, &one, sizeof one);
  }
  c.program->run();
  const double value = c.finite_loss(steps_ + 1);
  ++steps_;
  return value;
}

model::device_tensors::BoundProgram& Network::ran(const std::string& function, const NetworkInputs& inputs,
                                                  bool averaged, const std::string& change) {
  model::device_tensors::BoundProgram& c = compiled(function, inputs.symbols, false, averaged, change);
  put(c, inputs);
  c.program->run();
  return c;
}

std::vector<float> Network::run(const std::string& function, const NetworkInputs& inputs, bool averaged,
                                const std::string& change) {
  return floats_of(*ran(function, inputs, averaged, change).program->result(model::arch::kResult));
}

std::map<std::string, std::vector<float>> Network::results(const std::string& function, const NetworkInputs& inputs,
                                                           bool averaged, const std::string& change) {
  const model::device_tensors::BoundProgram& c = ran(function, inputs, averaged, change);
  std::map<std::string, std::vector<float>> out;
  for (const std::string& name : c.results) out[name] = floats_of(*c.program->result(name));
  return out;
}

run::Program& Network::program(const std::string& function, const graph::Bindings& symbols, const std::string& change) {
  return *compiled(function, symbols, false, false, change).program;
}

graph::Graph Network::graph_of(const std::string& function, const graph::Bindings& symbols,
                               const std::string& change) const {
  graph::Graph g = graph::bind_symbols(family_->function(function, config_), symbols);
  return change.empty() ? g : changes_.at(change)(std::move(g));
}

std::vector<uint8_t> Network::bytes_of(const std::string& input) const {
  const auto own = kept_.find(input), weight = tensors_.find(input);
  if (own == kept_.end() && weight == tensors_.end()) throw user_error("the input '{}' is unknown", input);
  const run::DeviceTensorRef& tensor = own != kept_.end() ? own->second : weight->second;
  std::vector<uint8_t> out(tensor->bytes());
  tensor->download(out.data(), tensor->bytes());
  return out;
}

std::filesystem::path Network::save(const std::filesystem::path& folder, int keep) const {
  model::file::CheckpointContent content;
  content.state.step = steps_;
  content.state.seed = settings_.seed;
  content.state.config = network_settings_text(settings_);
  model::device_tensors::add_tensors(content, tensors_, [](const std::string&) { return true; });
  return model::file::save_checkpoint(folder, content, keep);
}

void Network::restore(const std::filesystem::path& folder) {
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(folder, library_.formats());
  for (const model::arch::Parameter& p : parameters_)
    model::device_tensors::take_tensor(tensors_, engine_, checkpoint.weights->get(p.name), folder);
  for (const model::file::StoredTensor& stored : checkpoint.optimizer->tensors())
    model::device_tensors::take_tensor(tensors_, engine_, stored, folder);
  steps_ = checkpoint.state.step;
}

std::unique_ptr<Network> Network::load(run::Engine& engine, const model::arch::Library& library,
                                       const std::filesystem::path& folder) {
  const auto newest = model::file::latest_checkpoint(folder);
  if (!newest) throw user_error("{}: no checkpoint of a network", folder.string());
  const model::file::Checkpoint checkpoint = model::file::load_checkpoint(*newest, library.formats());
  auto out =
      std::make_unique<Network>(engine, library, parse_network_settings(checkpoint.state.config, newest->string()));
  out->restore(*newest);
  return out;
}

}  // namespace lumen::apps
