#include "apps/diffuse/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "model/compress/activations/activations.h"
#include "model/compress/round/gptq.h"
#include "model/linear/matrix.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"

namespace lumen::diffuse {
namespace {

constexpr int64_t kSearchedRows = 256;  // for comparing alphas
constexpr double kLeastDivisor = 1e-4, kMostDivisor = 1e4, kNothing = 1e-20, kFixedAlpha = 0.5;

// y [count, n] += x [count, k] w^T, w [n, k].
void add_products(std::span<const float> x, std::span<const float> w, int64_t k, int64_t n, float gain,
                  std::vector<float>& y) {
  std::vector<float> turned(w.size());
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c) turned[c * n + r] = w[r * k + c] * gain;
  const int64_t count = std::ssize(x) / k;
  for (int64_t m = 0; m < count; ++m)
    for (int64_t c = 0; c < k; ++c) {
      const float v = x[m * k + c];
      if (v == 0) continue;
      float* const to = y.data() + m * n;
      const float* const from = turned.data() + c * n;
      for (int64_t r = 0; r < n; ++r) to[r] += v * from[r];
    }
}

std::vector<SuppliedField> unit_scale(const Format& f) {
  const int field = tensor_scale(f);
  return field < 0 ? std::vector<SuppliedField>() : std::vector<SuppliedField>{{field, {1}}};
}

// Rows of `from` columns as rows of `to`: padded with zeros, or truncated.
std::vector<float> with_columns(std::span<const float> x, int64_t from, int64_t to) {
  if (from == to) return {x.begin(), x.end()};
  const int64_t rows = std::ssize(x) / from;
  std::vector<float> out(rows * to, 0);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(x.begin() + r * from, std::min(from, to), out.begin() + r * to);
  return out;
}

// Numbers [rows, columns] rounded to the format, encoded as rows of `all`; with scale 1 where it has a tensor scale.
std::vector<float> held_numbers(const Format& f, std::span<const float> x, int64_t columns, int64_t all) {
  const int64_t rows = std::ssize(x) / columns;
  const std::vector<uint8_t> codes = encode(f, with_columns(x, columns, all), rows, all, unit_scale(f));
  return with_columns(decode(f, codes, rows, all), all, columns);
}

// Columns of a part of rows of `all`: a range, or a range of channels at each of `places` places.
std::vector<float> some_columns(std::span<const float> x, int64_t all, const graph::QuantizedPart& at, int64_t places,
                                int64_t rows) {
  std::vector<float> out;
  out.reserve(rows * at.columns);
  const int64_t channels = all / places;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t place = 0; place < places; ++place) {
      const auto run = x.subspan(r * all + place * channels + at.column / places, at.columns / places);
      out.insert(out.end(), run.begin(), run.end());
    }
  return out;
}

double squares_summed(std::span<const float> x) {
  return std::transform_reduce(x.begin(), x.end(), 0.0, std::plus<>(), [](float v) { return double{v} * v; });
}

float largest_size(std::span<const float> x) {
  float out = 0;
  for (const float v : x) out = std::max(out, std::abs(v));
  return out;
}

// Best low-rank approximation: w [n, k] ~ wide [n, r] narrow [r, k]; w becomes the remainder.
void take_low_rank(std::vector<float>& w, int64_t n, int64_t k, int64_t rank, std::vector<float>& wide,
                   std::vector<float>& narrow) {
  const bool is_tall = n >= k;
  model::linear::Matrix a(std::max(n, k), std::min(n, k));
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c) a.at(is_tall ? r : c, is_tall ? c : r) = w[r * k + c];
  const model::linear::Singular s = model::linear::largest_singular(a, rank);
  const model::linear::Matrix &of_rows = is_tall ? s.images : s.right, &of_columns = is_tall ? s.right : s.images;
  for (int64_t r = 0; r < n; ++r)
    for (int64_t i = 0; i < rank; ++i) wide.push_back(float(of_rows.at(r, i)));
  for (int64_t i = 0; i < rank; ++i)
    for (int64_t c = 0; c < k; ++c) narrow.push_back(float(of_columns.at(c, i)));
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < k; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < rank; ++i) sum += double{wide[r * rank + i]} * narrow[i * k + c];
      w[r * k + c] = float(w[r * k + c] - sum);
    }
}

// The quantized numbers of a part of a weight.
struct PartNumbers {
  std::vector<float> divisors;  // [columns]
  std::vector<uint8_t> codes;
  std::vector<float> values;        // [rows, columns], decoded and scaled, of divided columns
  std::vector<float> row_scales;    // [rows]
  double above = 1, below = 1;      // scales of activations
  std::vector<float> wide, narrow;  // of divided columns
};

HeldInput floats_held(const graph::Type& type, std::span<const float> numbers) {
  HeldInput out{type, std::vector<uint8_t>(numbers.size_bytes())};
  std::memcpy(out.bytes.data(), numbers.data(), numbers.size_bytes());
  return out;
}

}  // namespace

const std::vector<QuantizeMethod>& quantize_methods() {
  static const std::vector<QuantizeMethod> all = {
      {"plain", false, false, Dividing::none, false, false},
      {"smoothquant", false, false, Dividing::fixed, false, false},
      {"smooth+", false, false, Dividing::searched, false, false},
      {"svdquant", false, false, Dividing::searched, true, false},
      {"segquant-a", true, true, Dividing::searched, true, false},
      {"segquant-g", true, true, Dividing::searched, true, true},
      // Its components, each by itself, as in the paper's ablation: with smoothquant, which has neither.
      {"segments", true, false, Dividing::fixed, false, false},
      {"signs", false, true, Dividing::fixed, false, false},
      {"both", true, true, Dividing::fixed, false, false},
  };
  return all;
}

QuantizeMethod quantize_method(const std::string& name) {
  std::string names;
  for (const QuantizeMethod& m : quantize_methods()) {
    if (m.name == name) return m;
    names += (names.empty() ? "" : ", ") + m.name;
  }
  throw usage_error("there is no method '{}'; there are {}", name, names);
}

struct Quantization::Tools {
  explicit Tools(run::Engine& e) : engine(e), gptq(e) {}
  run::Engine& engine;
  model::compress::Gptq gptq;
};

// Quantization of one weight.
class Quantization::Product {
 public:
  Product(const Quantization& all, const QuantizeMethod& method, const ProductReads& reads, std::span<const float> w)
      : all_(all), method_(method), reads_(reads), w_(w) {
    if (std::ssize(w) != reads.site.rows * reads.site.columns)
      throw user_error("'{}' has {} numbers, not {} x {}", reads.site.weight, w.size(), reads.site.rows,
                       reads.site.columns);
    out_.product = {reads.site.weight,
                    all.formats_.weights,
                    all.formats_.activations,
                    method.has_both_signs && reads.site.is_polar,
                    {},
                    reads.site.places()};
    arrange();
  }

  QuantizedWeight run() {
    const int64_t rows = reads_.site.rows;
    std::vector<float> y(reads_.count() * rows, 0), exact = y;
    add_products(reads_.rows, w_, reads_.site.columns, rows, 1, exact);
    for (size_t k = 0; k < parts().size(); ++k) {
      const graph::QuantizedPart& at = parts()[k];
      std::optional<double> alpha;
      if (method_.dividing == Dividing::fixed) alpha = kFixedAlpha;
      if (method_.dividing == Dividing::searched) alpha = searched(k);
      if (alpha) out_.alphas.push_back(*alpha);
      const PartNumbers numbers = part(k, alpha, method_.has_feedback);
      const std::vector<float> own = product(at, numbers, reads_of(at, reads_.count()));
      for (int64_t m = 0; m < reads_.count(); ++m)
        for (int64_t r = 0; r < at.rows; ++r) y[m * rows + at.row + r] += own[m * at.rows + r];
      hold(k, numbers);
    }
    out_.signal = std::sqrt(squares_summed(exact));
    for (size_t i = 0; i < y.size(); ++i) y[i] -= exact[i];
    out_.error = std::sqrt(squares_summed(y));
    return std::move(out_);
  }

 private:
  std::vector<graph::QuantizedPart>& parts() { return out_.product.parts; }
  const Format& weights() const { return *all_.formats_.weights; }
  const Format& activations() const { return *all_.formats_.activations; }
  bool is_scaled() const { return tensor_scale(activations()) >= 0; }
  int64_t places() const { return reads_.site.places(); }

  bool are_allowed(const std::vector<int64_t>& columns) const {
    return !columns.empty() && std::ranges::all_of(columns, [&](int64_t width) {
      return width % weights().block == 0 && width % activations().block == 0;
    });
  }

  // Groups of rows that differ only in the scale of their codes stay one part: one product serves all.
  void arrange() {
    const graph::ProductSite& site = reads_.site;
    const bool divides = method_.dividing != Dividing::none;
    // A branch of full rank would be the weight itself, in f32.
    const auto rank = [&](int64_t rows, int64_t columns) {
      return method_.has_branch && all_.rank_ < std::min(rows, columns) ? all_.rank_ : 0;
    };
    const auto add = [&](int64_t row, int64_t rows, int64_t column, int64_t columns, std::vector<int64_t> groups) {
      parts().push_back({row, rows, column, columns, divides, rank(rows, columns)});
      groups_.push_back(std::move(groups));
    };
    if (method_.has_segments && !site.row_segments.empty()) {
      if (!divides && !method_.has_branch) return add(0, site.rows, 0, site.columns, site.row_segments);
      int64_t row = 0;
      for (const int64_t rows : site.row_segments) {
        add(row, rows, 0, site.columns, {rows});
        row += rows;
      }
    } else if (method_.has_segments && are_allowed(site.column_segments)) {
      int64_t column = 0;
      for (const int64_t columns : site.column_segments) {
        add(0, site.rows, column, columns, {site.rows});
        column += columns;
      }
    } else {
      add(0, site.rows, 0, site.columns, {site.rows});
    }
  }

  std::vector<float> weights_of(const graph::QuantizedPart& at) const {
    return some_columns(w_.subspan(at.row * reads_.site.columns), reads_.site.columns, at, places(), at.rows);
  }
  std::vector<float> reads_of(const graph::QuantizedPart& at, int64_t count) const {
    return some_columns(reads_.rows, reads_.site.columns, at, places(), count);
  }
  // The largest x, or -x, of each channel of a part.
  std::vector<float> of_channels(const graph::QuantizedPart& at, std::span<const float> of_columns) const {
    const std::vector<float> own = some_columns(of_columns, reads_.site.columns, at, places(), 1);
    std::vector<float> out(at.columns / places(), 0);
    for (size_t k = 0; k < own.size(); ++k) out[k % out.size()] = std::max(out[k % out.size()], own[k]);
    return out;
  }

  double searched(size_t k) {
    const graph::QuantizedPart& at = parts()[k];
    const std::vector<float> x = reads_of(at, std::min(kSearchedRows, reads_.count()));
    std::vector<float> exact(std::ssize(x) / at.columns * at.rows, 0);
    add_products(x, weights_of(at), at.columns, at.rows, 1, exact);
    double best = kFixedAlpha, least = HUGE_VAL;
    for (int step = 0; step <= 10; ++step) {
      std::vector<float> off = product(at, part(k, step / 10.0, false), x);
      for (size_t i = 0; i < off.size(); ++i) off[i] -= exact[i];
      if (const double error = squares_summed(off); error < least) {
        least = error;
        best = step / 10.0;
      }
    }
    return best;
  }

  std::vector<float> divisors(const graph::QuantizedPart& at, std::span<const float> w,
                              const std::optional<double>& alpha) const {
    std::vector<float> out(at.columns, 1);
    if (!alpha) return out;
    const std::vector<float> above = of_channels(at, reads_.most), below = of_channels(at, reads_.least);
    const int64_t channels = std::ssize(above);
    for (int64_t c = 0; c < channels; ++c) {
      double of_w = 0;
      for (size_t i = c; i < w.size(); i += channels) of_w = std::max<double>(of_w, std::abs(w[i]));
      const double of_x = std::max(above[c], below[c]);
      if (of_w < kNothing || of_x < kNothing) continue;
      const auto divisor =
          float(std::clamp(std::pow(of_x, *alpha) / std::pow(of_w, 1 - *alpha), kLeastDivisor, kMostDivisor));
      for (int64_t k = c; k < at.columns; k += channels) out[k] = divisor;
    }
    return out;
  }

  PartNumbers part(size_t k, const std::optional<double>& alpha, bool feedback) {
    const graph::QuantizedPart& at = parts()[k];
    PartNumbers out;
    std::vector<float> w = weights_of(at);
    out.divisors = divisors(at, w, alpha);
    for (size_t i = 0; i < w.size(); ++i) w[i] *= out.divisors[i % at.columns];
    if (at.rank > 0) take_low_rank(w, at.rows, at.columns, at.rank, out.wide, out.narrow);
    round(k, w, feedback, out);
    if (is_scaled()) {
      double above = 0, below = 0;
      const std::vector<float> most = of_channels(at, reads_.most), least = of_channels(at, reads_.least);
      for (size_t c = 0; c < most.size(); ++c) {
        above = std::max<double>(above, most[c] / out.divisors[c]);
        below = std::max<double>(below, least[c] / out.divisors[c]);
      }
      if (!out_.product.is_dual) above = below = std::max(above, below);
      out.above = model::compress::static_scale(activations(), above);
      out.below = model::compress::static_scale(activations(), below);
    }
    return out;
  }

  // Codes of w, divided by the scales of its row groups where the format has a tensor scale.
  void round(size_t k, std::vector<float>& w, bool feedback, PartNumbers& out) {
    const graph::QuantizedPart& at = parts()[k];
    const bool has_scale = tensor_scale(weights()) >= 0;
    out.row_scales.assign(at.rows, 1);
    for (int64_t g = 0, row = 0; has_scale && g < std::ssize(groups_[k]); row += groups_[k][g++]) {
      const auto group = std::span(w).subspan(row * at.columns, groups_[k][g] * at.columns);
      const auto scale = float(model::compress::static_scale(weights(), largest_size(group)));
      std::fill_n(out.row_scales.begin() + row, groups_[k][g], scale);
      for (float& v : group) v /= scale;
    }
    const int64_t all = graph::coded_columns(out_.product, at);
    const std::vector<float> whole = with_columns(w, at.columns, all);
    out.codes = encode(weights(), whole, at.rows, all, unit_scale(weights()));
    if (feedback) answer_errors(at, whole, has_scale, out);
    out.values = with_columns(decode(weights(), out.codes, at.rows, all), all, at.columns);
    for (size_t i = 0; i < out.values.size(); ++i) out.values[i] *= out.row_scales[i / at.columns];
  }

  // w [rows, coded columns]: padding after the columns is never read.
  void answer_errors(const graph::QuantizedPart& at, std::span<const float> w, bool has_scale, PartNumbers& out) {
    std::vector<float> x = reads_of(at, reads_.count());
    for (size_t i = 0; i < x.size(); ++i) x[i] /= out.divisors[i % at.columns];
    const int64_t n = graph::coded_columns(out_.product, at);
    x = with_columns(x, at.columns, n);
    std::vector<double> sums(n * n, 0);
    for (int64_t m = 0; m < reads_.count(); ++m)
      for (int64_t i = 0; i < n; ++i) {
        const double v = x[m * n + i];
        for (int64_t j = 0; j < n && v != 0; ++j) sums[i * n + j] += v * x[m * n + j];
      }
    const std::vector<float> moments(sums.begin(), sums.end());
    if (largest_size(moments) == 0) return;  // no activations: nearest codes
    model::compress::Moments ready(all_.tools_->engine, moments, n, {.samples = reads_.count()});
    model::compress::GptqOptions options;
    if (has_scale) options.under = out.codes;
    out.codes = all_.tools_->gptq.round(all_.formats_.weights, w, at.rows, ready, options).blob;
  }

  // The part's output for x [count, columns].
  std::vector<float> product(const graph::QuantizedPart& at, const PartNumbers& p, const std::vector<float>& x) const {
    const int64_t count = std::ssize(x) / at.columns;
    std::vector<float> y(count * at.rows, 0);
    const auto add = [&](const std::vector<float>& some, double scale) {
      std::vector<float> scaled = some;
      for (size_t i = 0; i < scaled.size(); ++i)
        scaled[i] *= float(1 / ((is_scaled() ? scale : 1) * p.divisors[i % at.columns]));
      add_products(held_numbers(activations(), scaled, at.columns, graph::coded_columns(out_.product, at)), p.values,
                   at.columns, at.rows, is_scaled() ? float(scale) : 1, y);
    };
    if (out_.product.is_dual) {
      std::vector<float> sign = x;
      for (float& v : sign) v = std::max(v, 0.0F);
      add(sign, p.above);
      for (size_t i = 0; i < x.size(); ++i) sign[i] = std::min(x[i], 0.0F);
      add(sign, p.below);
    } else {
      add(x, p.above);
    }
    if (at.rank == 0) return y;
    std::vector<float> divided = x, thin(count * at.rank, 0);
    for (size_t i = 0; i < x.size(); ++i) divided[i] /= p.divisors[i % at.columns];
    add_products(divided, p.narrow, at.columns, at.rank, 1, thin);
    add_products(thin, p.wide, at.rank, at.rows, 1, y);
    return y;
  }

  void hold(size_t k, const PartNumbers& p) {
    using graph::PartInput;
    const graph::QuantizedPart& at = parts()[k];
    const auto factors = [&](double scale) {
      std::vector<float> out;
      for (int64_t c = 0; c < at.columns / places(); ++c)
        out.push_back(float(1 / ((is_scaled() ? scale : 1) * p.divisors[c])));
      return out;
    };
    const auto gains = [&](double scale) {
      std::vector<float> out = p.row_scales;
      for (float& v : out) v = float(v * (is_scaled() ? scale : 1));
      return out;
    };
    std::vector<float> narrow = p.narrow;
    for (size_t i = 0; i < narrow.size(); ++i) narrow[i] /= p.divisors[i % at.columns];
    const std::map<PartInput, std::vector<float>> numbers = {{PartInput::factors, factors(p.above)},
                                                             {PartInput::negative_factors, factors(p.below)},
                                                             {PartInput::gains, gains(p.above)},
                                                             {PartInput::negative_gains, gains(p.below)},
                                                             {PartInput::narrow, narrow},
                                                             {PartInput::wide, p.wide}};
    for (const auto& [what, type] : graph::part_inputs(out_.product, k)) {
      const std::string name = graph::part_input(out_.product.weight, k, what);
      out_.inputs[name] = what == PartInput::codes ? HeldInput{type, p.codes} : floats_held(type, numbers.at(what));
    }
  }

  const Quantization& all_;
  const QuantizeMethod& method_;
  const ProductReads& reads_;
  std::span<const float> w_;
  std::vector<std::vector<int64_t>> groups_;  // by part: rows that share a scale
  QuantizedWeight out_;
};

Quantization::Quantization(run::Engine& engine, QuantizeFormats formats, int64_t rank)
    : formats_(std::move(formats)), rank_(rank), tools_(std::make_unique<Tools>(engine)) {}
Quantization::~Quantization() = default;

QuantizedWeight Quantization::weight(const QuantizeMethod& method, const ProductReads& reads,
                                     std::span<const float> w) {
  for (const FormatRef& f : {formats_.weights, formats_.activations})
    if (!f->encodes()) throw user_error("the format '{}' can only be decoded", f->name);
  return Product(*this, method, reads, w).run();
}

QuantizedWeights quantize_network(run::Engine& engine, const apps::Network& network,
                                  std::span<const ProductReads> reads, const QuantizeMethod& method,
                                  const QuantizeFormats& formats, int64_t rank,
                                  const std::function<void(const std::string& weight)>& told) {
  Quantization quantization(engine, formats, rank);
  QuantizedWeights out;
  for (const ProductReads& r : reads) {
    if (told) told(r.site.weight);
    out.push_back(quantization.weight(method, r, network.read(r.site.weight, true)));
  }
  return out;
}

void use_quantized(apps::Network& network, const QuantizedWeights& weights, const std::string& change) {
  std::vector<graph::QuantizedProduct> products;
  for (const QuantizedWeight& w : weights) {
    products.push_back(w.product);
    for (const auto& [name, input] : w.inputs) network.keep(name, input.type, std::as_bytes(std::span(input.bytes)));
  }
  network.define(change, [products](graph::Graph g) { return graph::quantize_products(std::move(g), products); });
}

}  // namespace lumen::diffuse
