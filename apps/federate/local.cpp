#include "apps/federate/local.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "graph/grad/grad.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"

namespace lumen::federate {
namespace {

constexpr int64_t kAccuracyBatch = 100;
using graph::Graph;
using graph::Op;
using graph::Shape;
using graph::ValueId;

constexpr const char* kGradientOf = "gradient.";
constexpr const char* kHeld = "held.";
constexpr const char* kScale = "scale.";
constexpr const char* kLargest = "largest.";
constexpr int64_t kCalibrationBatches = 4;

bool shows_elements(Op op) {
  return op == Op::reshape_ || op == Op::permute_ || op == Op::broadcast_ || op == Op::slice_ || op == Op::windows_ ||
         op == Op::pad_;
}

ValueId below_views(const Graph& g, ValueId v) {
  while (shows_elements(g[v].op)) v = g[v].operands[0];
  return v;
}

bool is_matrix(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == graph::Role::parameter && g[v].type.shape.size() >= 2;
}

int64_t padded(const Format& f, int64_t columns) {
  return (columns + f.block - 1) / f.block * f.block;
}

// Products of a loss that read a weight matrix: the weights, and their other operands, below views. A value with
// several such products has one range.
struct Sites {
  std::set<ValueId> weights;
  std::map<ValueId, int> ranges;  // by value
  explicit Sites(const Graph& g) {
    for (const graph::Node& node : g.nodes) {
      if (node.op != Op::contract_) continue;
      const ValueId a = below_views(g, node.operands[0]), b = below_views(g, node.operands[1]);
      for (const auto& [weight, other] : {std::pair(b, a), {a, b}}) {
        if (!is_matrix(g, weight)) continue;
        weights.insert(weight);
        ranges.try_emplace(other, int(ranges.size()));
        break;
      }
    }
  }
};

// Replaces products' operands by quantized values.
class OperandRounder {
 public:
  OperandRounder(const Graph& g, const Sites& sites, const OperandChoice& formats, bool holds)
      : r_(g), sites_(sites), formats_(formats), holds_(holds) {}

  // `forward`: values before this one are of the forward pass.
  Graph run(ValueId forward) {
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v) {
      const graph::Node& node = r_.from[v];
      if (node.op != Op::contract_) {
        r_.keep(v);
        continue;
      }
      const auto& i = node.attributes.indices;
      const ValueId a = operand(node, 0, v >= forward), b = operand(node, 1, v >= forward);
      r_.replace(v, r_.build.contract(a, b, i[0], i[1], i[2]));
      r_.keep_label(v);
    }
    return r_.finish();
  }

 private:
  ValueId operand(const graph::Node& product, int side, bool is_backward) {
    const ValueId v = product.operands[side], base = below_views(r_.from, v);
    if (sites_.weights.contains(base) && formats_.weights) return through(v, base, weight(base));
    if (sites_.ranges.contains(base) && formats_.activations) return through(v, base, activation(base));
    const ValueId other = below_views(r_.from, product.operands[1 - side]);
    if (is_backward && formats_.gradients && sites_.weights.contains(other)) return through(v, base, gradient(base));
    return r_[v];
  }

  // Applies the views between `base` and `v` to another value.
  ValueId through(ValueId v, ValueId base, ValueId value) {
    if (v == base) return value;
    const auto key = std::pair(v, value);
    if (const auto known = views_.find(key); known != views_.end()) return known->second;
    const ValueId below = through(r_.from[v].operands[0], base, value);
    return views_[key] = r_.build.view(r_.from[v], below);
  }

  ValueId weight(ValueId base) {
    if (const auto known = quantized_.find(base); known != quantized_.end()) return known->second;
    const graph::Node& node = r_.from[base];
    const Format& f = *formats_.weights;
    const int64_t rows = node.type.shape[0].number();
    int64_t columns = 1;
    for (size_t d = 1; d < node.type.shape.size(); ++d) columns *= node.type.shape[d].number();
    const Shape matrix{rows, columns}, filled{rows, padded(f, columns)};
    ValueId codes = -1;
    if (holds_) {
      codes =
          r_.build.input(kHeld + node.attributes.name, graph::Role::data, {filled, {Scalar::f32, formats_.weights}});
    } else {
      codes = r_.build.reshape(r_[base], matrix);
      if (matrix != filled) codes = r_.build.pad(codes, filled, {0, 0});
      codes = r_.build.cast(codes, {Scalar::f32, formats_.weights});
    }
    ValueId y = r_.build.cast(codes, graph::Element{});
    if (matrix != filled) y = r_.build.slice(y, {0, 0}, matrix);
    return quantized_[base] = r_.build.reshape(y, node.type.shape);
  }

  ValueId activation(ValueId base) {
    if (const auto known = quantized_.find(base); known != quantized_.end()) return known->second;
    const ValueId scale =
        r_.build.input(fmt::format("{}{}", kScale, sites_.ranges.at(base)), graph::Role::data, {{}, graph::Element{}});
    return quantized_[base] = cast(base, formats_.activations, scale);
  }

  ValueId gradient(ValueId base) {
    if (const auto known = quantized_.find(base); known != quantized_.end()) return known->second;
    return quantized_[base] = cast(base, formats_.gradients, -1);
  }

  ValueId cast(ValueId base, const FormatRef& f, ValueId scale) {
    const Shape shape = r_.from[base].type.shape;
    int64_t all = 1;
    for (const graph::Dim& d : shape) all *= d.number();
    const int64_t rows = shape.empty() ? 1 : shape[0].number();
    if (all / rows % f->block != 0)
      throw user_error("rows of {} numbers do not divide into blocks of the format '{}'", all / rows, f->name);
    const ValueId flat = r_.build.reshape(r_[base], {rows, all / rows});
    const ValueId codes =
        scale < 0 ? r_.build.cast(flat, {Scalar::f32, f})
                  : r_.build.cast(flat, {Scalar::f32, f}, {{tensor_scale(*f), FieldSource::supplied}}, {scale});
    return r_.build.reshape(r_.build.cast(codes, graph::Element{}), shape);
  }

  graph::Rewriter r_;
  const Sites& sites_;
  const OperandChoice& formats_;
  bool holds_;
  std::map<ValueId, ValueId> quantized_;
  std::map<std::pair<ValueId, ValueId>, ValueId> views_;
};

void prepare(Graph& g) {
  graph::inline_calls(g);
  graph::simplify(g);
}

// Adds results "largest.K": the largest magnitude of each operand.
void add_largest(Graph& g, const Sites& sites) {
  graph::Builder build(g);
  for (const auto& [value, range] : sites.ranges) {
    std::vector<int> axes(g[value].type.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
    const ValueId most =
        build.reshape(build.reduce(build.unary(ScalarOp::abs_, value), graph::Reduction::max, axes), {});
    g.results.push_back(most);
    g.result_names.push_back(fmt::format("{}{}", kLargest, range));
  }
}

void add_gradients(Graph& g, const std::vector<model::arch::Parameter>& parameters) {
  std::vector<ValueId> values;
  std::vector<std::string> names;
  for (const model::arch::Parameter& p : parameters)
    if (const ValueId v = g.find_input(p.name); v >= 0 && !p.frozen) {
      values.push_back(v);
      names.push_back(kGradientOf + p.name);
    }
  const std::vector<ValueId> gradients = graph::differentiate(g, g.results[0], values);
  g.results.insert(g.results.end(), gradients.begin(), gradients.end());
  g.result_names.insert(g.result_names.end(), names.begin(), names.end());
}

// The largest decoded value of a format with one scale when that is 1.
float largest_at_one(const Format& f) {
  std::vector<float> beyond(f.block);
  beyond[0] = 1e30F;
  const auto codes = encode(f, beyond, 1, f.block, std::vector<SuppliedField>{{tensor_scale(f), {1.0}}});
  const float largest = decode(f, codes, 1, f.block)[0];
  if (!std::isfinite(largest) || largest <= 0)
    throw Error(Exit::usage, fmt::format("activations cannot be in '{}'", f.name), "its codes have no largest number");
  return largest;
}

std::string change_of(ClientStrategy s) {
  return "federate." + strategy_name(s);
}

const model::arch::Parameter& parameter_of(const apps::Network& network, const std::string& name) {
  for (const model::arch::Parameter& p : network.parameters())
    if (p.name == name) return p;
  throw user_error("the network has no '{}'", name);
}

bool is_coded(const model::arch::Parameter& p) {
  return p.shape.size() >= 2;
}

std::pair<int64_t, int64_t> matrix_of(const model::arch::Parameter& p) {
  const int64_t rows = p.shape.empty() ? 1 : p.shape[0].number();
  return {rows, p.count() / std::max<int64_t>(1, rows)};
}

std::vector<uint8_t> plain_bytes(std::span<const float> numbers) {
  const auto bytes = std::as_bytes(numbers);
  std::vector<uint8_t> out(bytes.size());
  std::transform(bytes.begin(), bytes.end(), out.begin(), [](std::byte b) { return std::to_integer<uint8_t>(b); });
  return out;
}

}  // namespace

int64_t encoded_bytes(const Format& format, int64_t rows, int64_t columns) {
  return blob_layout(format, rows, padded(format, columns)).total;
}

std::vector<uint8_t> encoded_rows(run::Engine& engine, const FormatRef& format, std::span<const float> numbers,
                                  int64_t rows) {
  const int64_t columns = std::ssize(numbers) / rows, wide = padded(*format, columns);
  LUMEN_CHECK(rows * columns == std::ssize(numbers));
  if (wide == columns) return engine.encode(format, numbers.data(), rows, columns);
  std::vector<float> filled(rows * wide);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(numbers.begin() + r * columns, columns, filled.begin() + r * wide);
  return engine.encode(format, filled.data(), rows, wide);
}

std::vector<float> decoded_rows(run::Engine& engine, const FormatRef& format, std::span<const uint8_t> blob,
                                int64_t rows, int64_t columns) {
  const int64_t wide = padded(*format, columns);
  LUMEN_CHECK(std::ssize(blob) == blob_layout(*format, rows, wide).total);
  std::vector<float> filled = engine.decode(format, blob.data(), rows, wide);
  if (wide == columns) return filled;
  std::vector<float> out(rows * columns);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(filled.begin() + r * wide, columns, out.begin() + r * columns);
  return out;
}

LocalTrainer::LocalTrainer(run::Engine& engine, apps::Network& network, LocalSettings settings)
    : engine_(engine), network_(network), settings_(std::move(settings)) {
  const OperandChoice& f = settings_.formats;
  if (f.activations && tensor_scale(*f.activations) < 0)
    throw Error(Exit::usage, fmt::format("activations cannot be in '{}'", f.activations->name),
                "a format with one number per tensor in addition to its codes, see `lumen format`");
  if (f.activations) largest_ = largest_at_one(*f.activations);
  for (const FormatRef& one : {f.weights, f.gradients, f.upload})
    if (one && !one->encodes()) throw usage_error("'{}' can only be decoded", one->name);
  define_changes();
}

void LocalTrainer::define_changes() {
  const OperandChoice formats = settings_.formats;
  const std::vector<model::arch::Parameter> parameters = network_.parameters();
  network_.define(change_of(ClientStrategy::whole), [parameters](Graph g) {
    prepare(g);
    add_gradients(g, parameters);
    return g;
  });
  // Gradients are derived first, so that they do not depend on the replaced operands.
  network_.define(change_of(ClientStrategy::after), [parameters, formats](Graph g) {
    prepare(g);
    const Sites sites(g);
    const ValueId forward = std::ssize(g.nodes);
    add_gradients(g, parameters);
    return OperandRounder(g, sites, formats, true).run(forward);
  });
  OperandChoice in_steps = formats;
  in_steps.gradients = nullptr;
  network_.define(change_of(ClientStrategy::aware), [parameters, in_steps](Graph g) {
    prepare(g);
    const Sites sites(g);
    add_largest(g, sites);
    g = OperandRounder(g, sites, in_steps, false).run(std::ssize(g.nodes));
    add_gradients(g, parameters);
    return g;
  });
  network_.define("federate.ranges", [](Graph g) {
    prepare(g);
    add_largest(g, Sites(g));
    return g;
  });
}

void LocalTrainer::write(const Weights& weights) {
  for (const auto& [name, numbers] : weights) network_.write(name, numbers);
}

void LocalTrainer::calibrate(const Examples& data, const std::vector<std::vector<int64_t>>& batches) {
  ranges_.clear();
  for (const std::vector<int64_t>& batch : batches) {
    apps::NetworkInputs inputs = data.batch(batch);
    const auto found = network_.results("loss", inputs, false, "federate.ranges");
    ranges_.resize(found.size() - 1);
    for (size_t k = 0; k < ranges_.size(); ++k)
      ranges_[k] = std::max(ranges_[k], found.at(fmt::format("{}{}", kLargest, k)).at(0));
  }
}

void LocalTrainer::keep_ranges() {
  for (size_t k = 0; k < ranges_.size(); ++k) {
    const float scale = ranges_[k] > 0 ? ranges_[k] / largest_ : 1;
    network_.keep(fmt::format("{}{}", kScale, k), {{}, graph::Element{}}, std::as_bytes(std::span(&scale, 1)));
  }
}

void LocalTrainer::hold(const Weights& master) {
  const FormatRef& f = settings_.formats.weights;
  held_.clear();
  if (!f) return;
  for (const model::arch::Parameter& p : network_.parameters()) {
    if (!is_coded(p)) continue;
    const auto [rows, columns] = matrix_of(p);
    const std::vector<uint8_t> codes = encoded_rows(engine_, f, master.at(p.name), rows);
    held_[p.name] = decoded_rows(engine_, f, codes, rows, columns);
    network_.keep(kHeld + p.name, {{rows, padded(*f, columns)}, {Scalar::f32, f}}, std::as_bytes(std::span(codes)));
  }
}

LocalTrainer::Gradients LocalTrainer::step(const Weights& at, const Examples& data, std::span<const int64_t> batch,
                                           ClientStrategy strategy) {
  write(at);
  auto found = network_.results("loss", data.batch(batch), false, change_of(strategy));
  Gradients out{found.at(model::arch::kResult).at(0), {}};
  if (!std::isfinite(out.loss))
    throw Error(Exit::numeric, fmt::format("the loss is {}; local training stopped", out.loss),
                "a lower --lr, or formats of more bits");
  for (auto& [name, numbers] : found) {
    if (name.starts_with(kGradientOf)) out.gradients[name.substr(std::string_view(kGradientOf).size())] = numbers;
    if (!name.starts_with(kLargest)) continue;
    float& range = ranges_.at(std::stoi(name.substr(std::string_view(kLargest).size())));
    range = settings_.range_keeps * range + (1 - settings_.range_keeps) * numbers.at(0);
  }
  return out;
}

LocalTrainer::Gradients LocalTrainer::gradients(const Weights& at, const Examples& data, std::span<const int64_t> batch,
                                                ClientStrategy strategy) {
  write(at);
  calibrate(data, {{batch.begin(), batch.end()}});
  keep_ranges();
  if (strategy == ClientStrategy::after) hold(at);
  return step(at, data, batch, strategy);
}

double LocalTrainer::off_by(const Weights& master, ClientStrategy strategy) {
  if (strategy == ClientStrategy::whole || !settings_.formats.weights) return 0;
  if (strategy == ClientStrategy::aware) hold(master);
  double off = 0, all = 0;
  for (const auto& [name, read] : held_)
    for (size_t i = 0; i < read.size(); ++i) {
      const double w = master.at(name)[i], d = w - read[i];
      off += d * d;
      all += w * w;
    }
  return all > 0 ? off / all : 0;
}

LocalResult LocalTrainer::train(const Weights& global, const Examples& data, std::span<const int64_t> which,
                                ClientStrategy strategy, uint64_t seed) {
  LUMEN_CHECK(!which.empty());
  const Stopwatch watch;
  const int64_t count = std::ssize(which), batch = settings_.batch,
                of_epoch = std::max<int64_t>(1, (count + batch / 2) / batch), steps = of_epoch * settings_.epochs;
  const auto batch_at = [&](int64_t step) {
    std::vector<int64_t> out = apps::batch_of_passes(count, seed, step, batch);
    for (int64_t& i : out) i = which[i];
    return out;
  };
  LocalResult out{.weights = global};
  if (strategy != ClientStrategy::whole) {
    write(global);
    std::vector<std::vector<int64_t>> some;
    const int64_t most = strategy == ClientStrategy::after ? kCalibrationBatches : 1;
    for (int64_t i = 0; i < std::min(most, of_epoch); ++i) some.push_back(batch_at(i));
    calibrate(data, some);
    keep_ranges();
  }
  if (strategy == ClientStrategy::after) hold(global);
  out.set_up = watch.seconds();
  const int64_t refresh = settings_.refresh > 0 ? settings_.refresh : of_epoch;
  for (int64_t i = 0; i < steps; ++i) {
    if (strategy == ClientStrategy::after && i > 0 && i % refresh == 0) hold(out.weights);
    if (strategy == ClientStrategy::aware) keep_ranges();
    const Gradients found = step(out.weights, data, batch_at(i), strategy);
    for (const auto& [name, gradient] : found.gradients) {
      std::vector<float>& w = out.weights.at(name);
      for (size_t k = 0; k < w.size(); ++k) w[k] -= float(settings_.rate) * gradient[k];
    }
    if (i == 0) out.first_loss = found.loss;
    if (i >= steps - of_epoch) out.last_loss += found.loss / of_epoch;
  }
  out.off = off_by(out.weights, strategy);
  out.steps = steps;
  out.seconds = watch.seconds();
  return out;
}

double LocalTrainer::rate(const Weights& global, const Examples& data, ClientStrategy strategy, double seconds) {
  const int64_t batch = settings_.batch;
  const std::vector<int64_t> first = apps::batch_of_passes(data.count(), 1, 0, batch);
  (void)gradients(global, data, first, strategy);  // compiles
  const Stopwatch watch;
  int64_t steps = 0;
  do {
    if (strategy == ClientStrategy::aware) keep_ranges();
    (void)step(global, data, first, strategy);
    ++steps;
  } while (watch.seconds() < seconds);
  return steps * batch / watch.seconds();
}

int64_t ClientChange::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, some] : tensors) sum += std::ssize(some);
  return sum;
}

ClientChange encoded_change(run::Engine& engine, const apps::Network& network, const FormatRef& format,
                            const Weights& from, const Weights& to, Weights* residual) {
  ClientChange out;
  for (const auto& [name, target] : to) {
    std::vector<float> moved(target.size());
    const std::vector<float>& begin = from.at(name);
    for (size_t i = 0; i < moved.size(); ++i) moved[i] = target[i] - begin[i];
    const model::arch::Parameter& p = parameter_of(network, name);
    if (!format || !is_coded(p)) {
      out.tensors.emplace_back(name, plain_bytes(moved));
      continue;
    }
    const auto [rows, columns] = matrix_of(p);
    if (residual)
      if (const auto left = residual->find(name); left != residual->end())
        for (size_t i = 0; i < moved.size(); ++i) moved[i] += left->second.at(i);
    out.tensors.emplace_back(name, encoded_rows(engine, format, moved, rows));
    if (!residual) continue;
    const std::vector<float> sent = decoded_rows(engine, format, out.tensors.back().second, rows, columns);
    for (size_t i = 0; i < moved.size(); ++i) moved[i] -= sent[i];
    (*residual)[name] = std::move(moved);
  }
  return out;
}

Weights decoded_change(run::Engine& engine, const apps::Network& network, const FormatRef& format,
                       const ClientChange& change) {
  Weights out;
  for (const auto& [name, bytes] : change.tensors) {
    const model::arch::Parameter& p = parameter_of(network, name);
    const auto [rows, columns] = matrix_of(p);
    const bool coded = format && is_coded(p);
    const int64_t expected = coded ? encoded_bytes(*format, rows, columns) : 4 * p.count();
    if (std::ssize(bytes) != expected) throw user_error("'{}' has {} bytes, not {}", name, bytes.size(), expected);
    std::vector<float> numbers(p.count());
    if (coded)
      numbers = decoded_rows(engine, format, bytes, rows, columns);
    else
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(numbers.data()));
    for (const float x : numbers)
      if (!std::isfinite(x)) throw user_error("'{}' has numbers that are not finite", name);
    if (!out.emplace(name, std::move(numbers)).second) throw user_error("'{}' comes twice", name);
  }
  if (out.size() != network.parameters().size())
    throw user_error("{} tensors, and the network has {}", out.size(), network.parameters().size());
  return out;
}

int64_t change_bytes(const apps::Network& network, const FormatRef& format) {
  int64_t sum = 0;
  for (const model::arch::Parameter& p : network.parameters()) {
    const auto [rows, columns] = matrix_of(p);
    sum += format && is_coded(p) ? encoded_bytes(*format, rows, columns) : 4 * p.count();
  }
  return sum;
}

Weights weights_of(const apps::Network& network) {
  Weights out;
  for (const model::arch::Parameter& p : network.parameters()) out[p.name] = network.read(p.name);
  return out;
}

double accuracy_of(apps::Network& network, const Weights& weights, const Examples& test, int64_t most) {
  for (const auto& [name, numbers] : weights) network.write(name, numbers);
  const int64_t count = std::min(test.count(), most), batch = std::min(kAccuracyBatch, count);
  int64_t right = 0;
  for (int64_t at = 0; at < count; at += batch) {
    // The last batch starts earlier, so that all have the same size; examples it shares with the one before count once.
    const int64_t from = std::min(at, count - batch);
    std::vector<int64_t> which(batch);
    std::iota(which.begin(), which.end(), from);
    const std::vector<float> logits = network.run("logits", test.batch(which));
    const int64_t classes = std::ssize(logits) / batch;
    for (int64_t b = at - from; b < batch; ++b) {
      const auto row = logits.begin() + b * classes;
      right += std::max_element(row, row + classes) - row == test.shown[which[b]];
    }
  }
  return count > 0 ? double(right) / count : 0;
}

Weights through_format(run::Engine& engine, const apps::Network& network, const FormatRef& format,
                       const Weights& weights) {
  if (!format) return weights;
  Weights zero = weights;
  for (auto& [name, numbers] : zero) std::fill(numbers.begin(), numbers.end(), 0.0F);
  return decoded_change(engine, network, format, encoded_change(engine, network, format, zero, weights, nullptr));
}

}  // namespace lumen::federate
