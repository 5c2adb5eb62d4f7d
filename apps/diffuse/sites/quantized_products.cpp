#include "apps/diffuse/sites/quantized_products.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "apps/diffuse/sites/windows.h"
#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "base/round_up.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"
#include "number/facts/facts.h"

namespace lumen::graph {
namespace {

constexpr std::array kPartInputs = {"codes",  "factors", "negative_factors", "gains", "negative_gains",
                                    "narrow", "wide"};

std::string letters_free_in(const std::vector<std::string>& indices, size_t count) {
  std::string out;
  for (char c = 'a'; c <= 'z' && out.size() < count; ++c)
    if (std::ranges::none_of(indices, [&](const std::string& i) { return i.find(c) != std::string::npos; })) out += c;
  LUMEN_CHECK(out.size() == count, "a product with 26 axes");
  return out;
}

void require_cover(const QuantizedProduct& p, int64_t rows, int64_t columns) {
  int64_t row = 0, column = 0;
  for (const QuantizedPart& part : p.parts) {
    const bool fits = part.row == row && part.column == column && part.rows > 0 && part.columns > 0 &&
                      part.rows <= rows - row && part.columns <= columns - column && part.columns % p.places == 0;
    if (!fits) throw user_error("parts do not cover '{}' [{}, {}]", p.weight, rows, columns);
    column += part.columns;
    if (column < columns) continue;
    column = 0;
    row += part.rows;
  }
  if (row != rows || column != 0) throw user_error("parts do not cover '{}' [{}, {}]", p.weight, rows, columns);
}

// Whether each number has a code independent of the others, given only the fields of the tensor.
bool has_codes_alone(const Format& f) {
  return f.block == 1 && f.row_bytes == 0 && f.tile_bytes == 0 && !f.fit[ordinal(Level::row)];
}

class Quantizer {
 public:
  Quantizer(const Graph& g, const std::vector<QuantizedProduct>& products) : r_(g) {
    for (const QuantizedProduct& p : products) {
      const ValueId weight = g.find_input(p.weight);
      if (weight < 0) continue;
      if (!p.activations->encodes()) throw user_error("the format '{}' can only be decoded", p.activations->name);
      const Shape& shape = g[weight].type.shape;
      if (shape.size() < 2) throw user_error("'{}' is no matrix", p.weight);
      const int64_t columns = elements({shape.begin() + 1, shape.end()}).number();
      if (p.places != columns / shape.back().number())
        throw user_error("'{}' is of {} places, not {}", p.weight, columns / shape.back().number(), p.places);
      require_cover(p, shape[0].number(), columns);
      wanted_[weight] = &p;
    }
  }

  Graph run() {
    std::map<ValueId, std::pair<SiteProduct, const QuantizedProduct*>> replaced;
    const std::map<ValueId, std::vector<SiteProduct>> sites = products_of_sites(r_.from);
    for (const auto& [weight, product] : wanted_) {
      const auto site = sites.find(weight);
      if (site == sites.end())
        throw user_error("no product reads columns of '{}': it cannot be quantized", product->weight);
      for (const SiteProduct& at : site->second) replaced[at.product] = {at, product};
    }
    for (ValueId v = 0; v < std::ssize(r_.from.nodes); ++v)
      if (const auto at = replaced.find(v); at != replaced.end())
        replace(at->second.first, *at->second.second);
      else
        r_.keep(v);
    return r_.finish();
  }

 private:
  // The product being replaced.
  struct Place {
    const QuantizedProduct& product;
    WindowedOperand operand;  // in the old graph
    ValueId x = -1;           // its source, channels last
    std::string of_x, of_weight, of_result;
    size_t row_axis = 0;  // of the result
    Shape window;
    bool is_convolution() const { return !window.empty(); }
  };
  // An operand of the new product with its letters.
  struct Lettered {
    ValueId value = -1;
    std::string letters;
  };

  void replace(const SiteProduct& site, const QuantizedProduct& product) {
    const Node& node = r_.from[site.product];
    const int side = site.side;
    const std::vector<std::string>& i = node.attributes.indices;
    const Shape& weight = r_.from[node.operands[side]].type.shape;
    Place at{product,
             windowed_operand(r_.from, site),
             -1,
             i[1 - side],
             i[side],
             i[2],
             i[2].find(i[side][0]),
             {weight.begin() + 1, weight.end() - 1}};
    at.x = r_[at.operand.source];
    if (!at.operand.are_channels_last) {
      const size_t channel = at.of_x.find(i[side].back());
      std::vector<int> order;
      for (size_t d = 0; d < at.of_x.size(); ++d)
        if (d != channel) order.push_back(d);
      order.push_back(channel);
      at.x = r_.build.permute(at.x, order);
      at.of_x.erase(channel, 1);
      at.of_x += i[side].back();
    }
    std::vector<ValueId> rows;
    for (size_t k = 0; k < product.parts.size(); ++k) {
      const ValueId y = part_of(at, k);
      if (product.parts[k].column == 0)
        rows.push_back(y);
      else
        rows.back() = r_.build.add(rows.back(), y);
    }
    r_.replace(site.product, rows.size() == 1 ? rows[0] : r_.build.concat(rows, at.row_axis));
    r_.keep_label(site.product);
  }

  ValueId input(const Place& at, size_t part, PartInput what) {
    const std::string name = part_input(at.product.weight, part, what);
    const auto [known, is_new] = inputs_.try_emplace(name, -1);
    if (is_new) known->second = r_.build.input(name, Role::parameter, part_inputs(at.product, part).at(what));
    return known->second;
  }

  ValueId part_of(const Place& at, size_t k) {
    const QuantizedPart& part = at.product.parts[k];
    const auto has = [&, inputs = part_inputs(at.product, k)](PartInput what) { return inputs.contains(what); };
    const int64_t channels = part.columns / at.product.places;
    ValueId x = at.x;
    Shape shape = r_.build.type(x).shape;
    if (shape.back() != Dim(channels)) {
      std::vector<int64_t> starts(shape.size(), 0);
      starts.back() = part.column / at.product.places;
      shape.back() = Dim(channels);
      x = r_.build.slice(x, starts, shape);
    }
    const auto scaled = [&](ValueId value, PartInput by) {
      return has(by) ? r_.build.mul(value, input(at, k, by)) : value;
    };
    ValueId y = -1;
    if (at.product.is_dual) {
      const ValueId zero = r_.build.scalar(0);
      const ValueId above = scaled(r_.build.binary(ScalarOp::max_, x, zero), PartInput::factors);
      const PartInput below_by = has(PartInput::negative_factors) ? PartInput::negative_factors : PartInput::factors;
      const ValueId below = scaled(r_.build.binary(ScalarOp::min_, x, zero), below_by);
      y = both_signs(at, k, stacked({above, below}));
    } else {
      y = gained(at, k, coded_product(at, k, scaled(x, PartInput::factors), ""), PartInput::gains);
    }
    if (part.rank == 0) return y;
    const std::string r = letters_free_in({at.of_x, at.of_weight, at.of_result}, 1);
    const std::string thin = rows_of(at) + r;
    const ValueId t =
        r_.build.contract(windowed(at, x, channels, false, false), with_window(at, input(at, k, PartInput::narrow)),
                          at.of_x, r + at.of_weight.substr(1), thin);
    return r_.build.add(y,
                        r_.build.contract(t, input(at, k, PartInput::wide), thin, at.of_weight[0] + r, at.of_result));
  }

  // Letters of the operand that are in the result.
  static std::string rows_of(const Place& at) {
    std::string out;
    for (const char c : at.of_x)
      if (at.of_weight.find(c) == std::string::npos) out += c;
    return out;
  }

  // The operand, built on the replacement of its source. With `in_codes`, it is encoded directly below the windows.
  ValueId windowed(const Place& at, ValueId value, int64_t channels, bool is_stacked, bool in_codes) {
    const std::vector<ValueId>& views = at.operand.views;
    for (size_t k = 0; k < views.size(); ++k) {
      if (in_codes && r_.from[views[k]].op == Op::windows_) {
        value = encoded(at.product, value);
        in_codes = false;
      }
      value = view_again(r_.build, r_.from, at.operand, k, value, channels, is_stacked);
    }
    return in_codes ? encoded(at.product, value) : value;
  }

  // [n, columns] of a part with the axes of the window.
  ValueId with_window(const Place& at, ValueId weight) {
    if (!at.is_convolution()) return weight;
    Shape shape = r_.build.type(weight).shape;
    const Dim channels(shape[1].number() / at.product.places);
    shape.pop_back();
    shape.insert(shape.end(), at.window.begin(), at.window.end());
    shape.push_back(channels);
    return r_.build.reshape(weight, shape);
  }

  // The product of codes of x; `stack` is the letter of a new first axis of x, if any.
  ValueId coded_product(const Place& at, size_t k, ValueId x, const std::string& stack) {
    const QuantizedPart& part = at.product.parts[k];
    const int64_t all = coded_columns(at.product, part), channels = part.columns / at.product.places;
    const ValueId codes = r_.build.cast(input(at, k, PartInput::codes), Element{});
    const std::string of_x = stack + at.of_x, of_result = stack + at.of_result;
    if (!at.is_convolution())
      return r_.build.contract(encoded(at.product, with_columns(x, all)), codes, of_x, at.of_weight, of_result);
    if (has_codes_alone(*at.product.activations))
      return r_.build.contract(windowed(at, x, channels, !stack.empty(), true),
                               with_window(at, with_columns(codes, part.columns)), of_x, at.of_weight, of_result);
    // Each window is a row.
    const std::string rows = stack + rows_of(at);
    const std::string column = letters_free_in({of_x, at.of_weight, of_result}, 1);
    const ValueId windows = windowed(at, x, channels, !stack.empty(), false);
    std::vector<int> order;
    for (const char c : rows + at.of_weight.substr(1)) order.push_back(of_x.find(c));
    const ValueId moved = r_.build.permute(windows, order);
    Shape shape = r_.build.type(moved).shape;
    shape.resize(rows.size());
    shape.push_back(Dim(part.columns));
    const ValueId apart = with_columns(r_.build.reshape(moved, shape), all);
    return r_.build.contract(encoded(at.product, apart), codes, rows + column, at.of_weight[0] + column, of_result);
  }

  // Resizes the last axis to `columns`: pads with zeros, or truncates.
  ValueId with_columns(ValueId v, int64_t columns) {
    Shape shape = r_.build.type(v).shape;
    const int64_t before = shape.back().number();
    if (before == columns) return v;
    shape.back() = Dim(columns);
    const std::vector<int64_t> starts(shape.size(), 0);
    return before < columns ? r_.build.pad(v, shape, starts) : r_.build.slice(v, starts, shape);
  }

  // Concatenates along a new first axis.
  ValueId stacked(std::vector<ValueId> parts) {
    for (ValueId& part : parts) {
      Shape shape = r_.build.type(part).shape;
      shape.insert(shape.begin(), Dim(1));
      part = r_.build.reshape(part, shape);
    }
    return r_.build.concat(parts, 0);
  }

  ValueId both_signs(const Place& at, size_t k, ValueId x) {
    const ValueId two = coded_product(at, k, x, letters_free_in({at.of_x, at.of_weight, at.of_result}, 1));
    Shape shape = r_.build.type(two).shape;
    shape[0] = Dim(1);
    const auto half = [&](int64_t which) {
      std::vector<int64_t> starts(shape.size(), 0);
      starts[0] = which;
      return r_.build.reshape(r_.build.slice(two, starts, shape), {shape.begin() + 1, shape.end()});
    };
    if (part_inputs(at.product, k).contains(PartInput::negative_gains))
      return r_.build.add(gained(at, k, half(0), PartInput::gains), gained(at, k, half(1), PartInput::negative_gains));
    return gained(at, k, r_.build.add(half(0), half(1)), PartInput::gains);
  }

  ValueId gained(const Place& at, size_t k, ValueId y, PartInput by) {
    if (!part_inputs(at.product, k).contains(by)) return y;
    Shape shape = {Dim(at.product.parts[k].rows)};
    shape.resize(at.of_result.size() - at.row_axis, Dim(1));
    const ValueId gains = input(at, k, by);
    return r_.build.mul(y, shape.size() == 1 ? gains : r_.build.reshape(gains, shape));
  }

  ValueId encoded(const QuantizedProduct& product, ValueId x) {
    const FormatRef& f = product.activations;
    std::vector<std::pair<int, FieldSource>> sources;
    std::vector<ValueId> fields;
    if (const int scale = tensor_scale(*f); scale >= 0) {
      sources.emplace_back(scale, FieldSource::supplied);
      fields.push_back(r_.build.scalar(1));
    }
    return r_.build.cast(r_.build.cast(x, {Scalar::f32, f}, sources, fields), Element{});
  }

  Rewriter r_;
  std::map<ValueId, const QuantizedProduct*> wanted_;
  std::map<std::string, ValueId> inputs_;
};

}  // namespace

int64_t coded_columns(const QuantizedProduct& product, const QuantizedPart& part) {
  const int64_t block = std::lcm(product.weights->block, product.activations->block);
  return round_up(part.columns, block);
}

std::string part_input(const std::string& weight, size_t part, PartInput what) {
  return fmt::format("{}.part.{}.{}", weight, part, kPartInputs.at(ordinal(what)));
}

std::map<PartInput, Type> part_inputs(const QuantizedProduct& product, size_t k) {
  const QuantizedPart& part = product.parts.at(k);
  const bool is_scaled = tensor_scale(*product.activations) >= 0;
  const Type of_channels{{Dim(part.columns / product.places)}, {}}, of_rows{{Dim(part.rows)}, {}};
  std::map<PartInput, Type> out;
  out[PartInput::codes] = {{Dim(part.rows), Dim(coded_columns(product, part))}, {Scalar::f32, product.weights}};
  if (is_scaled || part.divides) out[PartInput::factors] = of_channels;
  if (is_scaled && product.is_dual) out[PartInput::negative_factors] = of_channels;
  if (is_scaled || tensor_scale(*product.weights) >= 0) out[PartInput::gains] = of_rows;
  if (is_scaled && product.is_dual) out[PartInput::negative_gains] = of_rows;
  if (part.rank > 0) {
    out[PartInput::narrow] = {{Dim(part.rank), Dim(part.columns)}, {}};
    out[PartInput::wide] = {{Dim(part.rows), Dim(part.rank)}, {}};
  }
  return out;
}

Graph quantize_products(Graph g, const std::vector<QuantizedProduct>& products) {
  inline_calls(g);
  simplify(g);
  return Quantizer(g, products).run();
}

}  // namespace lumen::graph
