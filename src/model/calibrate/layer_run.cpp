#include "model/calibrate/layer_run.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/text.h"

namespace lumen::model {
namespace {

constexpr const char* kTrue = ".true";  // suffix of the other form

graph::Bindings symbols(int64_t windows, int64_t length) {
  return {{"B", windows}, {"T", length}};
}

std::vector<float> numbers_of(const run::DeviceTensorRef& t) {
  std::vector<float> out(graph::elements(t->type().shape).number());
  t->download(out.data(), out.size() * sizeof(float));
  return out;
}

void require_finite(const std::vector<float>& sums, const graph::Tap& tap) {
  for (size_t i = 0; i < sums.size(); ++i)
    if (!std::isfinite(sums[i]))
      throw Error(Exit::numeric,
                  fmt::format("what '{}' reads of the text sums to {} in column {}", tap.weights.at(0), sums[i],
                              i % tap.columns),
                  "the model's activations broke; find out where");
}

}  // namespace

struct LayerRun::Width {
  int64_t count = 0;
  std::shared_ptr<run::Program> program;
  std::map<std::string, run::DeviceTensorRef> data;  // inputs that are data
};

struct LayerRun::Form {
  graph::Graph graph;
  std::vector<graph::Tap> taps;  // weights as the graph calls them
  std::deque<Width> widths;
  std::map<std::string, run::DeviceTensorRef> states, weights;
};

LayerRun::LayerRun(run::Engine& engine, const Model& model, std::span<const TokenId> text,
                   const LayerRunOptions& options)
    : engine_(engine), options_(options), text_(text.begin(), text.end()) {
  if (options.length < 4 || options.batch < 1)
    throw usage_error("windows need at least 4 tokens, and batches one window");
  windows_ = std::ssize(text_) / options.length;
  if (windows_ < 1)
    throw Error(Exit::user,
                fmt::format("the text has {} tokens, fewer than one window of {}", text_.size(), options.length),
                "give a longer text or a smaller --ctx-size");
  text_.resize(windows_ * options.length);
  const int64_t vocabulary = model.integer("vocab");
  for (const TokenId id : text_)
    if (id < 0 || id >= vocabulary)
      throw user_error("token {} of the text is not among the model's {}", id, vocabulary);
  if (options.bos && model.tokenizer && model.tokenizer->bos())
    for (int64_t w = 0; w < windows_; ++w) text_[w * options.length] = *model.tokenizer->bos();
  cut_ = graph::cut_layers(model.family->function("token_loss", model.config));
}

LayerRun::Form& LayerRun::form(size_t part, const graph::TapKinds& kinds, bool twice, bool hands_on) {
  graph::Graph g = cut_.parts[part].graph;
  if (!hands_on) {
    graph::Graph less = g;
    less.results.clear();
    less.result_names.clear();
    for (size_t i = 0; i < g.results.size(); ++i)
      if (!g.result_names[i].starts_with("carried.out.")) {
        less.results.push_back(g.results[i]);
        less.result_names.push_back(g.result_names[i]);
      }
    // What nothing else needs is computed all the same: it is what the taps see.
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
  return run(part, weight, from, nullptr, to, kinds, progress);
}

PartRun LayerRun::compare(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* true_from,
                          const graph::TapKinds& kinds, const Progress& progress) {
  return run(part, weight, from, true_from, nullptr, kinds, progress);
}

PartRun LayerRun::run(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* true_from,
                      CarriedValues* to, const graph::TapKinds& kinds, const Progress& progress) {
  const graph::LayerPart& p = cut_.parts[part];
  Form& f = form(part, kinds, true_from && !p.in.empty(), to != nullptr);
  PartRun out;
  out.taps.resize(f.taps.size());
  const int64_t length = options_.length;
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
      for (const auto& [name, state] : f.states) {
        const std::vector<uint8_t> zeros(state->bytes());
        state->upload(zeros.data(), zeros.size());
      }
      first = false;
    }
    for (const auto& [name, tensor] : w.data) {
      std::vector<uint8_t> bytes(tensor->bytes());
      if (name == "tokens" || name == "targets") {
        std::vector<int32_t> ids(w.count * length, 0);
        const TokenId* begin = text_.data() + done * length;
        if (name == "tokens") std::copy_n(begin, ids.size(), ids.begin());
        for (int64_t r = 0; name == "targets" && r < w.count; ++r)
          std::copy_n(begin + r * length + 1, length - 1, ids.begin() + r * length);
        LUMEN_CHECK(bytes.size() == ids.size() * sizeof(int32_t), "tokens of another size");
        tensor->upload(ids.data(), bytes.size());
        continue;
      }
      const bool is_true = name.ends_with(kTrue);
      for (size_t i = 0; i < p.in.size(); ++i) {
        if (graph::carried_in(i) + (is_true ? kTrue : "") != name) continue;
        const int64_t size = carried_bytes(p.in[i]);
        (is_true ? true_from : from)->read(p.in[i], done * size, bytes);
        tensor->upload(bytes.data(), bytes.size());
      }
    }
    w.program->run();
    for (size_t i = 0; to && i < p.out.size(); ++i) {
      const int64_t size = carried_bytes(p.out[i]);
      const run::DeviceTensorRef result = w.program->result(graph::carried_out(i));
      std::vector<uint8_t> bytes(w.count * size);
      result->download(bytes.data(), bytes.size());
      to->write(p.out[i], done * size, bytes);
    }
    for (size_t i = 0; i < p.graph.results.size(); ++i) {
      const std::string& name = p.graph.result_names[i];
      if (name.starts_with("carried.out.")) continue;
      const std::vector<float> numbers = numbers_of(w.program->result(name));
      std::vector<float>& all = out.results[name];
      all.insert(all.end(), numbers.begin(), numbers.end());
    }
    for (size_t t = 0; kinds.rows && t < f.taps.size(); ++t) {
      const std::vector<float> numbers = numbers_of(w.program->result(graph::tap_name(t, graph::kTapRows)));
      out.taps[t].row_largest.insert(out.taps[t].row_largest.end(), numbers.begin(), numbers.end());
    }
    done += w.count;
    if (progress) progress(done);
  }
  for (size_t t = 0; t < f.taps.size(); ++t) {
    TapSums& sums = out.taps[t];
    sums.tap = f.taps[t];
    for (std::string& name : sums.tap.weights)
      for (const std::string& own : p.parameters)
        if (p.name_of(own) == name) {
          name = own;
          break;
        }
    sums.rows = windows_ * length;
    const auto take = [&](const char* kind, std::vector<float>& to_numbers) {
      const auto found = f.states.find(graph::tap_name(t, kind));
      if (found == f.states.end()) return;
      to_numbers = numbers_of(found->second);
      require_finite(to_numbers, sums.tap);
    };
    take(graph::kTapSquares, sums.squares);
    take(graph::kTapMagnitudes, sums.magnitudes);
    take(graph::kTapLargest, sums.largest);
    take(graph::kTapGram, sums.gram);
    take(graph::kTapCross, sums.cross);
    take(graph::kTapCounts, sums.counts);
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

}  // namespace lumen::model
