// Dots on a GPU: time of every plan beside the memory it moves and the products it makes, some numbers of the result
// checked against sums in double precision.
//   bench_gpu [--device cuda] [--machine ROW] [--bids | --plans] [--libraries] [--shapes MxNxK,.. TYPE,..] [FILTER ..]
//     FILTERs pick lines by a part of their name; --bids: what every family of kernels bids, each beside what it
//     predicted (bench/fit_costs.py reads it); --plans: their other plans, too; --libraries: the one of the card's
//     vendor; --shapes: products forward of these shapes by weights of these types, in place of the lines below
//     (activations are bf16 beside bf16, codes of the same type where a * is behind it, else f32)
//   bench_gpu --check TARGET [--bids | --plans] [FILTER ..]    what the kernels need on a target, without one
//   bench_gpu --asm TARGET NAME    the assembly of one line's kernels
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "base/error.h"
#include "emit/emit.h"
#include "emit/report.h"
#include "graph/ir/build.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/dense_product.h"
#include "number/codec/codec.h"
#include "number/library/library.h"
#include "run/device/choose/choose.h"
#include "run/engine/cache/cache.h"
#include "shapes.h"

namespace lumen {
namespace {

using Bytes = std::vector<uint8_t>;

struct Operand {
  std::vector<int64_t> dims;
  std::string indices;
  Scalar scalar = Scalar::f32;
  std::string format;
};

struct Line {
  std::string name;
  Operand a, b;
  std::string result;
  Scalar to = Scalar::f32;  // what the result is rounded to
};

std::vector<Line> lines() {
  std::vector<Line> out;
  const auto square = [&](Scalar s, int64_t n, const std::string& format = {}) {
    const std::string name = fmt::format("{} {}", format.empty() ? scalar_name(s) : format, n);
    out.push_back({name, {{n, n}, "mk", s, format}, {{n, n}, "nk", s, format}, "mn"});
    out.push_back({name + " dx", {{n, n}, "mk", s, format}, {{n, n}, "kn", s, format}, "mn"});
    out.push_back({name + " dw", {{n, n}, "km", s, format}, {{n, n}, "kn", s, format}, "mn"});
  };
  for (const int64_t n : {8192, 4096, 2048}) square(Scalar::bf16, n);
  square(Scalar::f32, 8192, "fp8_e4m3");
  // Under scales along K, of rows, and of two kinds: a product forward, or (tiles) one that reads the weight across.
  const auto pair = [&](const std::string& a, const std::string& b, int64_t n, const char* b_indices = "nk") {
    out.push_back({fmt::format("{} by {} {}{}", a, b, n, b_indices[0] == 'k' ? " dx" : ""),
                   {{n, n}, "mk", Scalar::f32, a},
                   {{n, n}, b_indices, Scalar::f32, b},
                   "mn",
                   Scalar::bf16});
  };
  for (const int64_t n : {8192, 4096}) {
    pair("fp8_1x128", "fp8_tile", n);
    pair("fp8_1x128", "fp8_tile", n, "kn");
    pair("fp8_1x128", "fp8_1x128", n);
    pair("fp8_1x128_p2", "fp8_128x128_p2", n);
    pair("fp8_e5m2", "fp8_e4m3", n);
    pair("int8_row", "int8_row", n);
    pair("int8_1x128", "int8_1x128", n);
  }
  square(Scalar::f32, 4096);
  // Of a training step: rows are tokens; the gradients turn one operand or both.
  for (const auto& [n, k] : {std::pair{5632, 2048}, std::pair{2048, 5632}, std::pair{2048, 2048}}) {
    constexpr int64_t kTokens = 16384;
    const auto product = [&](const std::string& format, Scalar s) {
      const std::string name = fmt::format("{} {}x{}x{}", format.empty() ? scalar_name(s) : format, kTokens, n, k);
      out.push_back({name, {{kTokens, k}, "mk", s, format}, {{n, k}, "nk", s, format}, "mn", Scalar::bf16});
      out.push_back({name + " dx", {{kTokens, n}, "mk", s, format}, {{n, k}, "kn", s, format}, "mn", Scalar::bf16});
      out.push_back({name + " dw", {{kTokens, n}, "km", s, format}, {{kTokens, k}, "kn", s, format}, "mn"});
    };
    product({}, Scalar::bf16);
    product("fp8_e4m3", Scalar::f32);
  }
  const auto rows = [&](const std::string& name, int64_t m, int64_t n, int64_t k, const std::string& format) {
    out.push_back(
        {fmt::format("{} m={}", name, m), {{m, k}, "mk", Scalar::f32, {}}, {{n, k}, "nk", Scalar::f32, format}, "mn"});
  };
  for (const char* format : {"bf16", "f16", "q8_0", "q4_0", "q4_k", "q6_k", "nf4", "mxfp4", "fp8_e4m3", "int3_g128"})
    for (const int64_t m : {1, 2, 4, 8, 16, 32, 128, 512, 4096}) rows(format, m, 14336, 4096, format);
  for (const char* format : {"f32", "bf16", "q4_0", "mxfp4", "fp8_e4m3"})
    for (const int64_t m : {1, 2, 3, 4, 6, 8, 16}) {
      const std::string held = format == std::string("f32") ? "" : format;
      rows(fmt::format("small {}", format), m, 2048, 2048, held);
      rows(fmt::format("middle {}", format), m, 4096, 4096, held);
    }
  return out;
}

std::vector<std::string> words_of(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  for (const char c : text) c == separator ? out.emplace_back() : out.back() += c;
  return out;
}

// Products forward: rows of bf16 by bf16, of codes by codes where a * says so, else of f32, as steps of inference have
// them, by weights [n, k].
std::vector<Line> lines_of(const std::string& shapes, const std::string& types) {
  std::vector<Line> out;
  for (const auto& [m, n, k] : read_shapes(shapes)) {
    for (const std::string& type : words_of(types, ',')) {
      const bool is_plain = type == "bf16", is_codes = type.ends_with('*');
      const std::string format = is_plain ? "" : is_codes ? type.substr(0, type.size() - 1) : type;
      const Format* const held = is_plain ? nullptr : FormatLibrary::builtin().find(format).get();
      if (held && k % held->block != 0) continue;  // no such weight
      out.push_back({fmt::format("{} {}x{}x{}", type, m, n, k),
                     {{m, k}, "mk", is_plain ? Scalar::bf16 : Scalar::f32, is_codes ? format : ""},
                     {{n, k}, "nk", is_plain ? Scalar::bf16 : Scalar::f32, format},
                     "mn",
                     is_plain || is_codes ? Scalar::bf16 : Scalar::f32});
    }
  }
  return out;
}

graph::Graph graph_of(const Line& line) {
  static const FormatLibrary library = FormatLibrary::builtin();
  graph::Graph g;
  graph::Builder build(g);
  const auto input = [&](const char* name, const Operand& o) {
    graph::Type t;
    for (const int64_t d : o.dims) t.shape.emplace_back(d);
    const FormatRef f = o.format.empty() ? nullptr : library.find(o.format);
    if (!o.format.empty() && !f) throw Error(Exit::user, fmt::format("no format {}", o.format));
    t.element = {o.scalar, f};
    const graph::ValueId v = build.input(name, graph::Role::data, t);
    return f ? build.cast(v, {Scalar::f32, nullptr}) : v;
  };
  const graph::ValueId x = input("x", line.a), y = input("y", line.b);
  const graph::ValueId r = build.contract(x, y, line.a.indices, line.b.indices, line.result);
  g.results = {line.to == Scalar::f32 ? r : build.convert(r, line.to)};
  g.result_names = {"r"};
  return g;
}

graph::Plan plan_of(const graph::Graph& g) {
  graph::Plan plan;
  plan.graph = g;
  graph::Group group;
  group.shape = graph::KernelShape::dot;
  for (graph::ValueId v = 0; v < static_cast<int>(g.nodes.size()); ++v) {
    (g[v].op == graph::Op::input_ ? group.inputs : group.nodes).push_back(v);
    if (g[v].op == graph::Op::contract_) group.root = v;
  }
  group.results = {g.results.at(0)};
  plan.groups.push_back(group);
  return plan;
}

enum class Which { best, bids, plans };  // the best plan, that of every family, all of them

std::vector<synth::WrittenBid> candidates(const graph::Plan& plan, const machine::Machine& m, Which which) {
  auto all = synth::synthesize_bids(plan, plan.groups[0], m, {}, which == Which::plans);
  if (which == Which::best) all.resize(1);
  return all;
}

std::string text(const synth::Synthesis& s) {
  std::string out;
  for (const synth::Step& step : s.steps) out += (out.empty() ? "" : " | ") + step.plan;
  return out;
}
double flops(const synth::Synthesis& s) {
  double out = 0;
  for (const synth::Step& step : s.steps) out += step.flops;
  return out;
}

// Values of an operand: rows that repeat after kRows, so that large ones are made quickly.
struct Values {
  static constexpr int64_t kRows = 128;  // as many as a tile of a format has, or a multiple
  Bytes bytes;
  std::vector<float> rows;
  int64_t columns = 0;
  double at(int64_t row, int64_t column) const { return rows[static_cast<size_t>(row % kRows * columns + column)]; }
};

// A blob whose rows are those of a small one again and again.
Bytes repeated(const Format& f, const Bytes& once, int64_t rows, int64_t columns) {
  const BlobLayout from = blob_layout(f, Values::kRows, columns), to = blob_layout(f, rows, columns);
  if (rows % Values::kRows != 0 || (f.tile_rows > 0 && Values::kRows % f.tile_rows != 0))
    throw Error(Exit::user, fmt::format("{}: {} rows do not repeat", f.name, rows));
  const int64_t tiles = f.tile_rows > 0 ? Values::kRows / f.tile_rows * from.tile_columns * f.tile_bytes : 0;
  const int64_t bytes[] = {from.data_bytes, Values::kRows * f.row_bytes, tiles, f.tensor_bytes};
  Bytes out(static_cast<size_t>(to.total));
  for (int level = 0; level < kLevels; ++level)
    for (int64_t i = 0; i < (level + 1 == kLevels ? 1 : rows / Values::kRows); ++i)
      if (bytes[level] > 0)
        std::memcpy(&out[static_cast<size_t>(to.section[level] + i * bytes[level])],
                    &once[static_cast<size_t>(from.section[level])], static_cast<size_t>(bytes[level]));
  return out;
}

Values values_of(const graph::Type& type, uint32_t seed) {
  Values v;
  const int64_t rows = type.shape[0].number();
  v.columns = type.shape[1].number();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  v.rows.resize(static_cast<size_t>(Values::kRows * v.columns));
  for (float& x : v.rows) x = normal(random);
  Bytes once;
  if (const FormatRef& f = type.element.format) {
    once = encode(*f, v.rows, Values::kRows, v.columns);
    v.rows = decode(*f, once, Values::kRows, v.columns);
    if (rows % Values::kRows == 0) {
      v.bytes = repeated(*f, once, rows, v.columns);
      return v;
    }
    std::vector<float> all(static_cast<size_t>(rows * v.columns));
    for (size_t i = 0; i < all.size(); ++i) all[i] = v.rows[i % v.rows.size()];
    v.bytes = encode(*f, all, rows, v.columns);
    return v;
  } else {
    const auto bytes = static_cast<size_t>(scalar_bytes(type.element.scalar));
    once.resize(v.rows.size() * bytes);
    for (size_t i = 0; i < v.rows.size(); ++i) {
      if (bytes == 2) {
        const uint16_t half = f32_to_bf16(v.rows[i]);
        v.rows[i] = bf16_to_f32(half);
        std::memcpy(&once[i * 2], &half, 2);
      } else {
        std::memcpy(&once[i * 4], &v.rows[i], 4);
      }
    }
  }
  v.bytes.resize(static_cast<size_t>(graph::byte_size(type)));
  for (size_t at = 0; at < v.bytes.size(); at += once.size())
    std::memcpy(&v.bytes[at], once.data(), std::min(once.size(), v.bytes.size() - at));
  return v;
}

double element(const Values& v, const std::string& indices, char row, int64_t r, int64_t k) {
  return indices[0] == row ? v.at(r, k) : v.at(k, r);
}

class Bench {
 public:
  Bench(const std::string& device, const std::string& row, bool library)
      : device_(run::open_device(run::parse_device(device), row.empty() ? nullptr : machine::find_machine(row), 0,
                                 run::load_here)) {
    fmt::print("{}\n", device_->describe());
    if (library) library_ = device_->open_products();
    if (const auto copies = device_->measure_copies()) {
      copies_ = *copies;
      fmt::print("copying within memory: {:.0f} GB/s\n", copies_ / 1e9);
    }
    fmt::print("hertz {:.6g}\n", machine().costs.hertz);
  }
  const machine::Machine& machine() const { return device_->machine(); }

  // The kernels of a line, compiled: by any thread.
  struct Made {
    synth::WrittenBid written;
    std::vector<std::string> objects;  // of each step
  };
  std::vector<Made> make(const Line& line, Which which) const {
    std::vector<Made> out;
    for (synth::WrittenBid& written : candidates(plan_of(graph_of(line)), machine(), which)) {
      Made made{std::move(written), {}};
      for (const synth::Step& step : made.written.steps.steps)
        made.objects.push_back(device_->prepare(emit::emit({&step.kernel, 1}, machine(), emit::Output::object)));
      out.push_back(std::move(made));
    }
    return out;
  }

  // Kernels are compiled on all cores and timed one after another, as lines have them.
  void measure(const std::vector<Line>& lines, Which which) {
    std::vector<std::promise<std::vector<Made>>> made(lines.size());
    std::atomic<size_t> next = 0;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back([&](const std::stop_token& stop) {
        for (size_t l = next++; l < lines.size() && !stop.stop_requested(); l = next++) {
          try {
            made[l].set_value(make(lines[l], which));
          } catch (...) {
            made[l].set_exception(std::current_exception());
          }
        }
      });
    for (size_t l = 0; l < lines.size(); ++l) {
      try {
        measure(lines[l], made[l].get_future().get(), which);
      } catch (const Error& e) {
        fmt::print("{:16} {}\n", lines[l].name, e.what());
      }
    }
  }

  void measure(const Line& line, const std::vector<Made>& all, Which which) {
    const graph::Graph g = graph_of(line);
    const graph::Plan plan = plan_of(g);
    const graph::ValueId x = g.inputs().at(0), y = g.inputs().at(1), r = g.results[0];
    const Values a = values_of(g[x].type, 1), b = values_of(g[y].type, 2);
    void* left = memory(a.bytes);
    // As many copies of the second operand as no cache holds.
    constexpr size_t kBeyondCaches = 256U << 20;
    const size_t copies = std::max<size_t>(1, std::min<size_t>(8, kBeyondCaches / b.bytes.size()));
    std::vector<void*> rights;
    for (size_t i = 0; i < copies; ++i) rights.push_back(memory(b.bytes));
    void* result = device_->allocate(graph::byte_size(g[r].type));
    for (const Made& made : all) {
      const auto& [bid, s] = made.written;
      std::vector<void*> scratch;
      for (const int64_t bytes : s.scratch) scratch.push_back(device_->allocate(bytes));
      try {
        const double seconds = time(line, g, s, made.objects, left, rights, result, scratch, a, b);
        if (which != Which::best)
          fmt::print("bid {} | {} | {:.6g} | {:.6g} | {}\n", line.name, bid.family, bid.cycles / machine().costs.hertz,
                     seconds, bid.plan);
      } catch (const Error& e) {
        fmt::print("{:16} {}: {}\n", line.name, s.steps[0].plan, e.what());
      }
      for (void* m : scratch) device_->release(m);
    }
    if (!library_.empty()) measure_library(line, g, plan, left, rights, result, a, b);
    for (void* m : rights) device_->release(m);
    device_->release(left);
    device_->release(result);
  }

 private:
  void* memory(const Bytes& bytes) {
    void* m = device_->allocate(static_cast<int64_t>(bytes.size()));
    device_->copy_in(m, bytes.data(), static_cast<int64_t>(bytes.size()));
    return m;
  }

  // The library of the card's vendor, where it knows how.
  void measure_library(const Line& line, const graph::Graph& g, const graph::Plan& plan, void* left,
                       const std::vector<void*>& rights, void* result, const Values& a, const Values& b) {
    const auto dense = synth::dense_group(plan, plan.groups[0], Scalar::f32);
    const auto product = dense ? device_->find_product(dense->product) : nullptr;
    if (!product) return;
    const bool in_order = dense->values[0] == g.inputs()[0];
    const auto once = [&](size_t copy) {
      void* const right = rights[copy % rights.size()];
      void* const buffers[] = {in_order ? left : right, in_order ? right : left, result};
      product->multiply(buffers);
    };
    Line named = line;
    named.name += " lib";
    const machine::DenseProduct& d = dense->product;
    time(named, g, once, result, a, b,
         2.0 * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k), library_);
  }

  double time(const Line& line, const graph::Graph& g, const synth::Synthesis& s,
              const std::vector<std::string>& objects, void* left, const std::vector<void*>& rights, void* result,
              const std::vector<void*>& scratch, const Values& a, const Values& b) {
    struct Launch {
      std::unique_ptr<run::Module> module;
      void* function;
      run::LaunchConfig launch_config;
    };
    std::vector<Launch> launches;
    for (size_t i = 0; i < objects.size(); ++i) {
      const synth::Step& step = s.steps[i];
      const run::LaunchConfig launch_config = run::launch_config_of(step.kernel, machine(), false);
      auto module = device_->load(objects[i]);
      void* function = module->find(emit::symbol_name(step.kernel), launch_config.shared_bytes);
      launches.push_back({std::move(module), function, launch_config});
    }
    auto* status = static_cast<run::LaunchStatus*>(device_->allocate(sizeof(run::LaunchStatus)));
    const auto once = [&](size_t copy) {
      for (size_t i = 0; i < launches.size(); ++i) {
        std::vector<void*> buffers;
        for (const synth::Argument& argument : s.steps[i].arguments)
          buffers.push_back(argument.from == synth::Argument::From::scratch
                                ? scratch[static_cast<size_t>(argument.index)]
                            : argument.index == g.results[0]  ? result
                            : argument.index == g.inputs()[0] ? left
                                                              : rights[copy % rights.size()]);
        device_->launch(launches[i].function, buffers, launches[i].launch_config, status);
      }
    };
    const double seconds = time(line, g, once, result, a, b, flops(s), text(s));
    device_->release(status);
    return seconds;
  }

  // What `once(copy of the second operand)` launches.
  template <typename Once>
  double time(const Line& line, const graph::Graph& g, const Once& once, void* result, const Values& a, const Values& b,
              double work, const std::string& what) {
    once(0);
    device_->synchronize();
    const auto marks = device_->make_marks(2);
    if (!marks) throw Error(Exit::hardware, "this device has no clock of its own");
    std::vector<double> rounds;
    int repeat = 2;
    for (int round = 0; round < 7; ++round) {
      marks->set(0);
      for (int i = 0; i < repeat; ++i) once(static_cast<size_t>(i));
      marks->set(1);
      const double each = marks->seconds(0, 1) / repeat;
      if (round > 0) rounds.push_back(each);
      repeat = std::clamp(static_cast<int>(0.004 / each), 2, 200);
    }
    std::sort(rounds.begin(), rounds.end());
    const double seconds = rounds[rounds.size() / 2];
    const double bytes = static_cast<double>(a.bytes.size() + b.bytes.size()) +
                         static_cast<double>(graph::byte_size(g[g.results[0]].type));
    fmt::print("{:16} {:9.1f} us {:7.1f} TFLOP/s {:6.0f} GB/s ({:.2f} of copying)  error {:.1e}  {}\n", line.name,
               seconds * 1e6, work / seconds / 1e12, bytes / seconds / 1e9, copies_ > 0 ? bytes / seconds / copies_ : 0,
               error(line, g, result, a, b), what);
    std::fflush(stdout);
    return seconds;
  }

  // Of some numbers of the result, relative to what their products weigh.
  double error(const Line& line, const graph::Graph& g, void* result, const Values& a, const Values& b) {
    const graph::Shape& shape = g[g.results[0]].type.shape;
    const int64_t rows = shape[0].number(), columns = shape[1].number(),
                  k = line.a.indices[0] == 'k' ? line.a.dims[0] : line.a.dims[1];
    Bytes bytes(static_cast<size_t>(graph::byte_size(g[g.results[0]].type)));
    device_->copy_out(bytes.data(), result, static_cast<int64_t>(bytes.size()));
    const auto got = [&](int64_t i) {
      if (line.to == Scalar::f32) {
        float x = 0;
        std::memcpy(&x, &bytes[static_cast<size_t>(i) * 4], 4);
        return x;
      }
      uint16_t half = 0;
      std::memcpy(&half, &bytes[static_cast<size_t>(i) * 2], 2);
      return bf16_to_f32(half);
    };
    std::mt19937 random(9);
    double worst = 0;
    for (int i = 0; i < 200; ++i) {
      const int64_t m = random() % rows, n = random() % columns;
      double want = 0, weight = 0;
      for (int64_t j = 0; j < k; ++j) {
        const double p = element(a, line.a.indices, 'm', m, j) * element(b, line.b.indices, 'n', n, j);
        want += p;
        weight += p * p;
      }
      const double off = std::abs(got(m * columns + n) - want) / std::sqrt(weight);
      worst = off > worst || std::isnan(off) ? off : worst;
    }
    return worst;
  }

  std::unique_ptr<run::Device> device_;
  double copies_ = 0;
  std::string library_;  // its name; empty: it is not measured
};

void check(const Line& line, const machine::Machine& m, Which which) {
  const graph::Plan plan = plan_of(graph_of(line));
  for (const auto& [bid, s] : candidates(plan, m, which)) {
    std::vector<loop::Kernel> kernels;
    for (const synth::Step& step : s.steps) kernels.push_back(step.kernel);
    for (const emit::KernelReport& r : emit::report(kernels, m))
      fmt::print("{:16} registers {} + {} spills {} private {} shared {} waves {} loop {} ({} matrix, {} dots)  {}\n",
                 line.name, r.vector_registers.value_or(-1), r.accumulators.value_or(0), r.vector_spills.value_or(-1),
                 r.private_bytes, r.shared_bytes, r.waves.value_or(-1), r.loop_instructions, r.loop_matrix, r.loop_dots,
                 s.steps[0].plan);
  }
}

int bench_gpu(const std::vector<std::string>& arguments) {
  std::string device = "cuda", target, assembly, machine;
  std::optional<std::vector<Line>> asked;
  Which which = Which::best;
  bool library = false;
  std::vector<std::string> filters;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--plans")
      which = Which::plans;
    else if (word == "--bids")
      which = Which::bids;
    else if (word == "--libraries")
      library = true;
    else if (word == "--device" && i + 1 < arguments.size())
      device = arguments[++i];
    else if (word == "--machine" && i + 1 < arguments.size())
      machine = arguments[++i];
    else if (word == "--shapes" && i + 2 < arguments.size()) {
      asked = lines_of(arguments[i + 1], arguments[i + 2]);
      i += 2;
    } else if (word == "--check" && i + 1 < arguments.size())
      target = arguments[++i];
    else if (word == "--asm" && i + 1 < arguments.size())
      assembly = arguments[++i];
    else
      filters.push_back(word);
  }
  const auto wanted = [&](const Line& line) {
    return filters.empty() || std::any_of(filters.begin(), filters.end(), [&](const std::string& f) {
             return f.ends_with('$') ? line.name.ends_with(f.substr(0, f.size() - 1))
                                     : line.name.find(f) != std::string::npos;
           });
  };
  std::unique_ptr<Bench> bench;
  if (target.empty() && assembly.empty()) bench = std::make_unique<Bench>(device, machine, library);
  std::vector<Line> all = asked ? *asked : lines();
  std::erase_if(all, [&](const Line& line) { return !wanted(line); });
  if (bench) {
    bench->measure(all, which);
    return 0;
  }
  for (const Line& line : all) {
    if (!target.empty()) {
      check(line, *machine::find_machine(target), which);
    } else {
      const graph::Plan plan = plan_of(graph_of(line));
      for (const auto& [bid, s] : candidates(plan, *machine::find_machine(assembly), which))
        for (const synth::Step& step : s.steps)
          fmt::print("// {}\n{}\n", step.plan,
                     emit::emit({&step.kernel, 1}, *machine::find_machine(assembly), emit::Output::assembly));
    }
  }
  return 0;
}

}  // namespace
}  // namespace lumen

int main(int count, char** words) {
  try {
    return lumen::bench_gpu({words + 1, words + count});
  } catch (const lumen::Error& e) {
    fmt::print(stderr, "bench_gpu: {}\n", e.what());
    return 3;
  }
}
