#include "model/calibrate/layer_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/text.h"
#include "graph/transform/slopes.h"
#include "model/arch/function.h"
#include "model/calibrate/calibrate.h"
#include "run/engine/feedback/first_not_finite.h"

namespace lumen::model::calibrate {
namespace {

constexpr const char* kTrue = ".true";  // suffix of the inputs of the true form

graph::Bindings symbols(int64_t windows, int64_t length) {
  return {{"B", windows}, {"T", length}};
}

std::vector<float> numbers_of(const run::DeviceTensorRef& t) {
  std::vector<float> out(graph::elements(t->type().shape).number());
  t->download(out.data(), out.size() * sizeof(float));
  return out;
}

void require_finite(const std::vector<float>& sums, const graph::Tap& tap) {
  if (const auto i = run::first_not_finite(sums))
    throw Error(Exit::numeric,
                fmt::format("the inputs of '{}' on the text sum to {} in column {}", tap.weights.at(0), sums[*i],
                            *i % tap.columns),
                "the model's activations broke; find out where");
}

}  // namespace

int64_t TapSums::rows_of(int64_t m) const {
  return tap.matrices > 0 ? std::llround(counts[m]) : rows;
}

std::span<const float> TapSums::matrix_of(const std::vector<float>& sums, int64_t m) const {
  if (sums.empty() || tap.matrices == 0) return sums;
  if (counts[m] == 0) return {};
  return std::span<const float>(sums).subspan(m * tap.columns * tap.columns, tap.columns * tap.columns);
}

const TapSums* reads_of(std::span<const TapSums> taps, const std::string& parameter) {
  for (const TapSums& sums : taps)
    if (std::ranges::find(sums.tap.weights, parameter) != sums.tap.weights.end()) {
      // Callers that tolerate broken sums have dropped them by now (sound.h); for all others they are an error.
      for (const auto* of_kind : {&sums.squares, &sums.magnitudes, &sums.largest, &sums.gram, &sums.cross,
                                  &sums.weighed, &sums.counts, &sums.spread})
        require_finite(*of_kind, sums.tap);
      return &sums;
    }
  return nullptr;
}

struct LayerRun::Width {
  int64_t count = 0;
  std::shared_ptr<run::Program> program;
  std::map<std::string, run::DeviceTensorRef> data;  // inputs that are data
  // Staging buffers, reused by all batches: fresh memory would cost more than the copies.
  std::map<std::string, std::vector<uint8_t>> staged;

  std::vector<uint8_t>& stage(const std::string& name, int64_t bytes) {
    std::vector<uint8_t>& memory = staged[name];
    memory.resize(bytes);
    return memory;
  }
};

struct LayerRun::Form {
  graph::Graph graph;
  std::vector<graph::Tap> taps;  // weights by their names in the graph
  std::vector<graph::Slope> slopes;
  std::vector<std::string> gradients;  // of weights, by their names in the graph
  std::deque<Width> widths;
  std::map<std::string, run::DeviceTensorRef> states, weights;
};

LayerRun::LayerRun(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
                   const LayerRunOptions& options)
    : engine_(engine),
      options_(options),
      has_losses_(model.family->has_function(kTokenLoss)),
      vocabulary_(model.integer("vocab")),
      begin_(options.bos && model.tokenizer ? model.tokenizer->bos().value_or(-1) : -1) {
  if (options.length < 4 || options.batch < 1)
    throw usage_error("windows need at least 4 tokens, and batches one window");
  take(text);
  cut_ = graph::cut_layers(function_of(model, options.function ? options.function : watched_function(*model.family)));
}

void LayerRun::take(std::span<const text::TokenId> text) {
  const int64_t length = options_.length, windows = std::ssize(text) / length;
  if (windows < 1)
    throw Error(Exit::user, fmt::format("the text has {} tokens, fewer than one window of {}", text.size(), length),
                "give a longer text or a smaller --ctx-size");
  for (const text::TokenId id : text.first(windows * length))
    if (id < 0 || id >= vocabulary_)
      throw user_error("token {} of the text is not in the model's vocabulary of {}", id, vocabulary_);
  windows_ = windows;
  text_.assign(text.begin(), text.begin() + windows * length);
  for (int64_t w = 0; begin_ >= 0 && w < windows; ++w) text_[w * length] = begin_;
}

LayerRun::Form& LayerRun::form(size_t part, const graph::TapKinds& kinds, bool twice, const Streams& streams) {
  graph::Graph g = cut_.parts[part].graph;
  std::vector<graph::Slope> slopes;
  std::vector<std::string> gradients;
  graph::SlopeKinds more;
  if (const BackWants* wants = streams.wants)
    more = {.channels = wants->channels, .weights = wants->gradients != nullptr};
  if (streams.back == Back::slopes) g = graph::add_slopes(std::move(g), &slopes, more);
  if (streams.back == Back::gradients) g = graph::add_gradients(std::move(g), &gradients);
  if (!streams.to && streams.back == Back::no) {
    graph::Graph less = g;
    less.results.clear();
    less.result_names.clear();
    for (size_t i = 0; i < g.results.size(); ++i)
      if (!g.result_names[i].starts_with("carried.out.")) {
        less.results.push_back(g.results[i]);
        less.result_names.push_back(g.result_names[i]);
      }
    // Values that only the taps read are still computed.
    g = less.results.empty() ? g : less;
  }
  std::vector<graph::ValueId> other;
  if (twice) g = graph::beside(g, kTrue, &other);
  std::vector<graph::Tap> taps;
  g = graph::add_taps(std::move(g), kinds, &taps, other);
  std::shared_ptr<Form>& f = forms_[graph::print(g)];
  if (!f) {
    f = std::make_shared<Form>();
    f->graph = std::move(g);
    f->taps = std::move(taps);
    f->slopes = std::move(slopes);
    f->gradients = std::move(gradients);
  }
  return *f;
}

LayerRun::Width& LayerRun::width(Form& f, int64_t count) {
  for (Width& w : f.widths)
    if (w.count == count) return w;
  run::CompileOptions compile;
  compile.symbols = symbols(count, options_.length);
  compile.exact = true;
  compile.products = options_.products;
  Width w;
  w.count = count;
  w.program = engine_.compile(f.graph, compile);
  for (const std::string& name : w.program->input_names()) {
    const graph::ValueId v = f.graph.find_input(name);
    const graph::Role role = f.graph[v].attributes.role;
    run::DeviceTensorRef* at = role == graph::Role::parameter ? &f.weights[name]
                               : role == graph::Role::state   ? &f.states[name]
                                                              : &w.data[name];
    if (!*at) *at = std::make_shared<run::DeviceTensor>(engine_.device(), w.program->input_type(name));
    w.program->bind(name, *at);
  }
  return f.widths.emplace_back(std::move(w));
}

int64_t LayerRun::carried_bytes(int number) const {
  return graph::byte_size(graph::bind(cut_.carried[number].type, symbols(1, options_.length)));
}

PartRun LayerRun::run(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* to,
                      const graph::TapKinds& kinds, const Progress& progress) {
  return run(part, weight, {.from = from, .to = to}, kinds, progress);
}

PartRun LayerRun::compare(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* true_from,
                          const graph::TapKinds& kinds, const Progress& progress) {
  return run(part, weight, {.from = from, .true_from = true_from}, kinds, progress);
}

PartRun LayerRun::back(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* slopes,
                       const graph::TapKinds& kinds, const Progress& progress, const BackWants& wants) {
  return back(part, weight, {.from = from, .slopes = slopes, .back = Back::slopes, .wants = &wants}, kinds, progress);
}

PartRun LayerRun::back(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* slopes,
                       const Seeds& seeds) {
  const Streams streams{.from = from, .slopes = slopes, .back = Back::gradients, .seeds = seeds ? &seeds : nullptr};
  return back(part, weight, streams, {}, {});
}

PartRun LayerRun::back(size_t part, const WeightOf& weight, const Streams& streams, const graph::TapKinds& kinds,
                       const Progress& progress) {
  if (!has_losses_) throw user_error("the family predicts no tokens: there is no loss to compute gradients of");
  if (part + 1 == parts()) sloped_.clear();
  PartRun out = run(part, weight, streams, kinds, progress);
  const graph::LayerPart& p = cut_.parts[part];
  sloped_.insert(p.in.begin(), p.in.end());
  return out;
}

// Fills one data input for `count` windows.
void LayerRun::fill(const graph::LayerPart& p, const Streams& streams, const std::string& name, int64_t first,
                    int64_t count, std::vector<uint8_t>* bytes) const {
  const int64_t length = options_.length;
  if (name == "tokens" || name == "targets") {
    std::vector<int32_t> ids(count * length, 0);
    const text::TokenId* begin = text_.data() + first * length;
    if (name == "tokens") std::copy_n(begin, ids.size(), ids.begin());
    for (int64_t r = 0; name == "targets" && r < count; ++r)
      std::copy_n(begin + r * length + 1, length - 1, ids.begin() + r * length);
    LUMEN_CHECK(bytes->size() == ids.size() * sizeof(int32_t), "tokens of another size");
    std::memcpy(bytes->data(), ids.data(), bytes->size());
    return;
  }
  if (name == kLengths) {
    const std::vector<int32_t> whole(count, length);
    LUMEN_CHECK(bytes->size() == whole.size() * sizeof(int32_t), "lengths of another size");
    std::memcpy(bytes->data(), whole.data(), bytes->size());
    return;
  }
  const bool is_true = name.ends_with(kTrue);
  for (size_t i = 0; i < p.in.size(); ++i)
    if (graph::carried_in(i) + (is_true ? kTrue : "") == name)
      (is_true ? streams.true_from : streams.from)->read(p.in[i], first * carried_bytes(p.in[i]), *bytes);
  if (!streams.slopes) return;
  for (size_t i = 0; i < p.out.size(); ++i)
    if (graph::seed_name(graph::carried_out(i)) == name)
      streams.slopes->read(p.out[i], first * carried_bytes(p.out[i]), *bytes);
  // Losses: gradient 1 at all positions but each window's last, which has no target.
  for (const std::string& result : p.graph.result_names) {
    if (result.starts_with("carried.out.") || graph::seed_name(result) != name) continue;
    std::vector<float> ones(bytes->size() / sizeof(float), 1);
    LUMEN_CHECK(streams.seeds || std::ssize(ones) == count * length, "a result of a part that is no loss of tokens");
    for (size_t t = length - 1; t < ones.size(); t += length) ones[t] = 0;
    if (streams.seeds) (*streams.seeds)(std::ssize(ones) / count * first, ones);
    std::memcpy(bytes->data(), ones.data(), bytes->size());
  }
}

graph::Bindings LayerRun::bindings(int64_t windows) const {
  return symbols(windows, options_.length);
}

void LayerRun::read_windows(size_t part, std::span<const int64_t> windows, CarriedValues* from,
                            const std::map<std::string, run::DeviceTensorRef>& to) const {
  for (const auto& [name, tensor] : to) {
    std::vector<uint8_t> all, one(tensor->bytes() / windows.size());
    for (const int64_t w : windows) {
      fill(cut_.parts[part], {.from = from}, name, w, 1, &one);
      all.insert(all.end(), one.begin(), one.end());
    }
    tensor->upload(all.data(), all.size());
  }
}

// Writes a batch's carried values: forward for later parts, backward for earlier ones, to which several parts may add.
void LayerRun::hand_on(const graph::LayerPart& p, const Streams& streams, Width& w, int64_t first) {
  for (size_t i = 0; streams.to && i < p.out.size(); ++i) {
    const int64_t size = carried_bytes(p.out[i]);
    const run::DeviceTensorRef result = w.program->result(graph::carried_out(i));
    std::vector<uint8_t>& bytes = w.stage(graph::carried_out(i), w.count * size);
    result->download(bytes.data(), bytes.size());
    streams.to->write(p.out[i], first * size, bytes);
  }
  for (size_t i = 0; streams.slopes && i < p.in.size(); ++i) {
    if (!is_float(cut_.carried[p.in[i]].type.element.scalar)) continue;
    const int64_t size = carried_bytes(p.in[i]);
    std::vector<float> gains = numbers_of(w.program->result(graph::gradient_name(graph::carried_in(i))));
    LUMEN_CHECK(std::ssize(gains) * 4 == w.count * size, "slopes of another size");
    const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(gains.data()), gains.size() * sizeof(float));
    if (sloped_.contains(p.in[i])) {
      std::vector<float> before(gains.size());
      streams.slopes->read(p.in[i], first * size,
                           {reinterpret_cast<uint8_t*>(before.data()), before.size() * sizeof(float)});
      for (size_t k = 0; k < gains.size(); ++k) gains[k] += before[k];
    }
    streams.slopes->write(p.in[i], first * size, bytes);
  }
}

PartRun LayerRun::run(size_t part, const WeightOf& weight, const Streams& streams, const graph::TapKinds& wanted,
                      const Progress& progress) {
  const graph::LayerPart& p = cut_.parts[part];
  const bool twice = streams.true_from && !p.in.empty();
  graph::TapKinds kinds = wanted;
  kinds.cross &= twice;  // a part that reads only tokens has the same input in both forms
  Form& f = form(part, kinds, twice, streams);
  const auto own_name = [&](const std::string& of_graph) {
    for (const std::string& own : p.parameters)
      if (p.name_of(own) == of_graph) return own;
    return of_graph;
  };
  PartRun out;
  out.taps.resize(f.taps.size());
  bool first = true;
  for (int64_t done = 0; done < windows_;) {
    Width& w = width(f, std::min(options_.batch, windows_ - done));
    if (first) {
      for (const std::string& name : p.parameters) {
        const auto found = f.weights.find(p.name_of(name));
        if (found == f.weights.end()) continue;
        const std::span<const float> values = weight(name);
        found->second->upload(values.data(), values.size_bytes());
      }
      for (const auto& [name, state] : f.states) state->clear();
      first = false;
    }
    for (const auto& [name, tensor] : w.data) {
      std::vector<uint8_t>& bytes = w.stage(name, tensor->bytes());
      fill(p, streams, name, done, w.count, &bytes);
      tensor->upload(bytes.data(), bytes.size());
    }
    w.program->run();
    hand_on(p, streams, w, done);
    for (size_t i = 0; !streams.slopes && i < p.graph.results.size(); ++i) {
      const std::string& name = p.graph.result_names[i];
      if (name.starts_with("carried.out.") || !has_losses_) continue;
      const std::vector<float> numbers = numbers_of(w.program->result(name));
      std::vector<float>& all = out.results[name];
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    for (size_t t = 0; kinds.rows && t < f.taps.size(); ++t) {
      const std::vector<float> numbers = numbers_of(w.program->result(graph::tap_name(t, graph::kTapRows)));
      out.taps[t].row_largest.insert(out.taps[t].row_largest.end(), numbers.begin(), numbers.end());
    }
    for (const graph::Slope& s : f.slopes)
      if (streams.wants && streams.wants->gradients && s.by_rows)
        streams.wants->gradients(done, w.count, own_name(s.weight),
                                 numbers_of(w.program->result(graph::gradient_name(s.weight))));
    done += w.count;
    if (progress) progress(done);
  }
  for (const graph::Slope& s : f.slopes)
    out.slopes[own_name(s.weight)] = numbers_of(f.states.at(graph::slope_name(s.weight)));
  for (const graph::Slope& s : f.slopes)
    if (const auto sums = f.states.find(graph::channel_slope_name(s.weight)); sums != f.states.end())
      out.channels[own_name(s.weight)] = numbers_of(sums->second);
  for (const std::string& name : f.gradients)
    out.gradients[own_name(name)] = numbers_of(f.states.at(graph::gradient_sum_name(name)));
  for (size_t t = 0; t < f.taps.size(); ++t) {
    TapSums& sums = out.taps[t];
    sums.tap = f.taps[t];
    for (std::string& name : sums.tap.weights) name = own_name(name);
    sums.rows = windows_ * options_.length;
    const auto take = [&](const char* kind, std::vector<float>& to_numbers) {
      const auto found = f.states.find(graph::tap_name(t, kind));
      if (found == f.states.end()) return;
      to_numbers = numbers_of(found->second);
    };
    take(graph::kTapSquares, sums.squares);
    take(graph::kTapMagnitudes, sums.magnitudes);
    take(graph::kTapLargest, sums.largest);
    take(graph::kTapGram, sums.gram);
    take(graph::kTapCross, sums.cross);
    take(graph::kTapWeighed, sums.weighed);
    take(graph::kTapCounts, sums.counts);
    take(graph::kTapSpread, sums.spread);
  }
  return out;
}

void LayerRun::drop_read(size_t part, CarriedValues* values) const {
  for (const int number : cut_.parts[part].in)
    if (cut_.carried[number].to == static_cast<int>(part)) values->drop(number);
}

void LayerRun::keep_written(size_t part, CarriedValues* values) const {
  for (const int number : cut_.parts[part].out) values->keep(number);
}

std::vector<int> LayerRun::handed_on(size_t part) const {
  std::vector<int> out;
  const int last = part;
  for (int number = 0; number < std::ssize(cut_.carried); ++number)
    if (cut_.carried[number].from <= last && cut_.carried[number].to > last) out.push_back(number);
  return out;
}

}  // namespace lumen::model::calibrate
