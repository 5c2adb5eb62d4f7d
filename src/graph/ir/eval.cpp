// The oracle's evaluator: one function per row of op.def, found by name (a row without one does not compile). Plain
// loops over doubles; f32 results are rounded once per operator. It must never share code with kernels. Proved by
// tests/graph/ir/eval_test.cpp.
#include "graph/ir/eval.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/ordinal.h"
#include "graph/ir/verify.h"
#include "number/codec/codec.h"

namespace lumen::graph {

namespace {

using Index = std::vector<int64_t>;

Index extents(const Type& t) {
  Index n;
  for (const Dim& d : t.shape) n.push_back(d.number());
  return n;
}

Index row_major(const Index& extent) {
  Index strides(extent.size(), 1);
  for (size_t d = extent.size(); d-- > 1;) strides[d - 1] = strides[d] * extent[d];
  return strides;
}

int64_t product(const Index& extent, size_t from = 0) {
  int64_t n = 1;
  for (size_t d = from; d < extent.size(); ++d) n *= extent[d];
  return n;
}

// Calls body(position of the result, index) for every element in row-major order.
void for_each(const Index& extent, const std::function<void(int64_t, const Index&)>& body) {
  Index index(extent.size(), 0);
  const int64_t count = product(extent);
  for (int64_t k = 0; k < count; ++k) {
    body(k, index);
    for (size_t d = extent.size(); d-- > 0;) {
      if (++index[d] < extent[d]) break;
      index[d] = 0;
    }
  }
}

int64_t dot(const Index& a, const Index& b) {
  int64_t sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

// Strides with which an operand of `from` is read at indices of `to`: right-aligned, 0 where it stretches.
Index stretched(const Index& from, const Index& to) {
  const Index dense = row_major(from);
  Index strides(to.size(), 0);
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1) strides[d + to.size() - from.size()] = dense[d];
  }
  return strides;
}

double round_float(Scalar type, double x, bool wide) {
  if (wide || type == Scalar::f64) return x;
  const float single = static_cast<float>(x);
  if (type == Scalar::f16) return f16_to_f32(f32_to_f16(single));
  if (type == Scalar::bf16) return bf16_to_f32(f32_to_bf16(single));
  return single;
}

ScalarValue to_scalar(Scalar type, double x) {
  return is_float(type) ? ScalarValue{x, 0} : ScalarValue{0, static_cast<int64_t>(x)};
}

double from_scalar(Scalar type, const ScalarValue& v) {
  return is_float(type) ? v.real : v.integer;
}

int64_t wrap(Scalar type, int64_t x) {
  const int bits = scalar_bits(type);
  if (bits >= 64) return x;
  const uint64_t low = x & ((uint64_t{1} << bits) - 1);
  const bool negative = is_signed(type) && (low >> (bits - 1)) != 0;
  return negative ? low - (uint64_t{1} << bits) : low;
}

struct Machine {
  const Graph& g;
  const std::map<std::string, Tensor>& inputs;
  const EvalOptions& options;
  std::vector<Tensor> values;
  std::map<ValueId, std::vector<Tensor>> calls;
  std::vector<int> remaining;  // uses to come, so that tensors are freed early

  const Tensor& operand(const Node& n, size_t i) const { return values[n.operands[i]]; }
  Type type_of(const Node& n) const { return bind(n.type, options.symbols); }
};

Tensor filled(const Type& t, double value) {
  return {t, std::vector<double>(product(extents(t)), value), {}};
}

Tensor eval_input(Machine& m, const Node& n, ValueId) {
  const auto found = m.inputs.find(n.attributes.name);
  if (found == m.inputs.end()) throw user_error("eval: no value for input {}", n.attributes.name);
  const Type t = m.type_of(n);
  if (found->second.type != t) {
    throw user_error("eval: input {} is {}, the graph needs {}", n.attributes.name, print(found->second.type),
                     print(t));
  }
  const size_t size = t.element.format ? found->second.blob.size() : found->second.values.size();
  const int64_t want = t.element.format ? byte_size(t) : product(extents(t));
  if (static_cast<int64_t>(size) != want)
    throw user_error("eval: input {} holds {} of {}", n.attributes.name, size, want);
  return found->second;
}

Tensor eval_constant(Machine& m, const Node& n, ValueId) {
  const Type t = m.type_of(n);
  const auto& data = n.attributes.data;
  Tensor r = filled(t, data[0]);
  if (data.size() > 1) r.values = data;
  for (double& x : r.values) {
    x = is_float(t.element.scalar) ? round_float(t.element.scalar, x, m.options.wide)
                                   : wrap(t.element.scalar, static_cast<int64_t>(x));
  }
  return r;
}

Tensor eval_iota(Machine& m, const Node& n, ValueId) {
  Tensor r = filled(m.type_of(n), 0);
  for_each(extents(r.type), [&](int64_t k, const Index& i) { r.values[k] = i[n.attributes.axis]; });
  return r;
}

Tensor eval_map(Machine& m, const Node& n, ValueId) {
  const Formula& f = n.attributes.formula;
  Tensor r = filled(m.type_of(n), 0);
  const Index extent = extents(r.type);
  std::vector<Index> strides;
  for (size_t i = 0; i < n.operands.size(); ++i) strides.push_back(stretched(extents(m.operand(n, i).type), extent));
  std::vector<ScalarValue> arguments(n.operands.size());
  for_each(extent, [&](int64_t k, const Index& index) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      arguments[i] = to_scalar(f.inputs[i], m.operand(n, i).values[dot(strides[i], index)]);
    }
    ScalarValue out;
    eval_formula(f, arguments, {&out, 1}, m.options.wide);
    r.values[k] = from_scalar(r.type.element.scalar, out);
  });
  return r;
}

Tensor eval_contract(Machine& m, const Node& n, ValueId) {
  const auto& letters = n.attributes.indices;
  Tensor r = filled(m.type_of(n), 0);
  std::string summed;
  for (char c : letters[0]) {
    if (letters[2].find(c) == std::string::npos) summed += c;
  }
  const std::string all = letters[2] + summed;  // result axes first, then the summed ones
  Index extent(all.size());
  std::array<Index, 2> strides{Index(all.size(), 0), Index(all.size(), 0)};
  for (size_t side = 0; side < 2; ++side) {
    const Index own = extents(m.operand(n, side).type), dense = row_major(own);
    for (size_t d = 0; d < own.size(); ++d) {
      const size_t axis = all.find(letters[side][d]);
      extent[axis] = own[d];
      strides[side][axis] = dense[d];
    }
  }
  const Index outer(extent.begin(), extent.begin() + letters[2].size());
  const Index inner(extent.begin() + letters[2].size(), extent.end());
  std::array<std::vector<int64_t>, 2> inner_offsets;  // of every summed index, computed once
  for (size_t side = 0; side < 2; ++side) {
    const Index inner_strides(strides[side].begin() + outer.size(), strides[side].end());
    for_each(inner, [&](int64_t, const Index& i) { inner_offsets[side].push_back(dot(inner_strides, i)); });
    strides[side].resize(outer.size());
  }
  const std::vector<double>&a = m.operand(n, 0).values, &b = m.operand(n, 1).values;
  const Scalar type = r.type.element.scalar;
  const bool is_whole = !is_float(type);
  for_each(outer, [&](int64_t k, const Index& i) {
    const int64_t at_a = dot(strides[0], i), at_b = dot(strides[1], i);
    double sum = 0;
    int64_t whole = 0;
    for (size_t s = 0; s < inner_offsets[0].size(); ++s) {
      const double product = a[at_a + inner_offsets[0][s]] * b[at_b + inner_offsets[1][s]];
      if (is_whole)
        whole += int64_t(product);
      else
        sum += product;
    }
    r.values[k] = is_whole ? wrap(type, whole) : round_float(type, sum, m.options.wide);
  });
  return r;
}

Tensor eval_reduce(Machine& m, const Node& n, ValueId) {
  const Tensor& a = m.operand(n, 0);
  Tensor r = filled(m.type_of(n), 0);
  const Scalar type = r.type.element.scalar;
  const Index strides = stretched(extents(r.type), extents(a.type));
  std::vector<bool> seen(r.values.size());
  for_each(extents(a.type), [&](int64_t k, const Index& i) {
    const int64_t at = dot(strides, i);
    double &acc = r.values[at], x = a.values[k];
    if (!seen[at]) {  // extremes ignore NaN
      constexpr double kInf = std::numeric_limits<double>::infinity();
      const double none = n.attributes.reduction == Reduction::max ? -kInf : kInf;
      acc = std::isnan(x) && n.attributes.reduction != Reduction::sum ? none : x;
    } else if (n.attributes.reduction == Reduction::sum) {
      acc += x;
    } else {
      acc = n.attributes.reduction == Reduction::max ? (x > acc ? x : acc) : (x < acc ? x : acc);
    }
    seen[at] = true;
  });
  for (double& x : r.values) {
    x = is_float(type) ? round_float(type, x, m.options.wide) : wrap(type, static_cast<int64_t>(x));
  }
  return r;
}

// The table row an index selects, checked.
int64_t row_of(const Tensor& index, int64_t k, int64_t rows, std::string_view op, ValueId v) {
  const double i = index.values[k];
  if (i < 0 || i >= rows) {
    throw user_error("{} %{}: index {} (element {}) is outside the {} rows", op, v, i, k, rows);
  }
  return static_cast<int64_t>(i);
}

Tensor eval_gather(Machine& m, const Node& n, ValueId v) {
  const Tensor &table = m.operand(n, 0), &index = m.operand(n, 1);
  Tensor r = filled(m.type_of(n), 0);
  const Index extent = extents(table.type);
  const int64_t row = product(extent, 1);
  for (int64_t k = 0; k < std::ssize(index.values); ++k) {
    const int64_t from = row_of(index, k, extent[0], "gather", v) * row;
    std::copy_n(table.values.begin() + from, row, r.values.begin() + k * row);
  }
  return r;
}

Tensor eval_scatter_add(Machine& m, const Node& n, ValueId v) {
  const Tensor &value = m.operand(n, 0), &index = m.operand(n, 1);
  Tensor r = filled(m.type_of(n), 0);
  const Scalar type = r.type.element.scalar;
  const Index extent = extents(r.type);
  const int64_t row = product(extent, 1);
  for (int64_t k = 0; k < std::ssize(index.values); ++k) {
    const int64_t to = row_of(index, k, extent[0], "scatter_add", v) * row;
    for (int64_t j = 0; j < row; ++j) r.values[to + j] += value.values[k * row + j];
  }
  for (double& x : r.values) {
    x = is_float(type) ? round_float(type, x, m.options.wide) : wrap(type, static_cast<int64_t>(x));
  }
  return r;
}

// Strides with which an operand with `letters` is read at indices of `all`: 0 for letters it lacks.
Index strides_by_letter(const Tensor& t, const std::string& letters, const std::string& all) {
  const Index dense = row_major(extents(t.type));
  Index strides(all.size(), 0);
  for (size_t d = 0; d < letters.size(); ++d) {
    const size_t at = all.find(letters[d]);
    if (at != std::string::npos) strides[at] = dense[d];
  }
  return strides;
}

// Extents of letters, each from the operand that has it.
Index extents_by_letter(Machine& m, const Node& n, const std::string& letters) {
  Index out;
  for (const char c : letters)
    for (size_t i = 0; i < n.operands.size(); ++i) {
      const size_t at = n.attributes.indices[i].find(c);
      if (at == std::string::npos) continue;
      out.push_back(extents(m.operand(n, i).type)[at]);
      break;
    }
  return out;
}

Tensor eval_contract_gather(Machine& m, const Node& n, ValueId v) {
  const auto& letters = n.attributes.indices;
  const Tensor &a = m.operand(n, 0), &b = m.operand(n, 1), &index = m.operand(n, 2);
  Tensor r = filled(m.type_of(n), 0);
  std::string summed;
  for (const char c : letters[0])
    if (letters[3].find(c) == std::string::npos) summed += c;
  const Index inner = extents_by_letter(m, n, summed), b_extents = extents(b.type);
  const Index a_inner = strides_by_letter(a, letters[0], summed), b_inner = strides_by_letter(b, letters[1], summed);
  const Index a_outer = strides_by_letter(a, letters[0], letters[3]);
  const Index b_outer = strides_by_letter(b, letters[1], letters[3]);
  const Index picks = strides_by_letter(index, letters[2], letters[3]);
  for_each(extents(r.type), [&](int64_t k, const Index& i) {
    if (index.values[dot(picks, i)] < 0) return;
    const int64_t row = row_of(index, dot(picks, i), b_extents[0], "contract_gather", v) * product(b_extents, 1);
    const int64_t at_a = dot(a_outer, i), at_b = row + dot(b_outer, i);
    double sum = 0;
    for_each(inner, [&](int64_t, const Index& j) {
      sum += a.values[at_a + dot(a_inner, j)] * b.values[at_b + dot(b_inner, j)];
    });
    r.values[k] = round_float(r.type.element.scalar, sum, m.options.wide);
  });
  return r;
}

Tensor eval_contract_scatter(Machine& m, const Node& n, ValueId v) {
  const auto& letters = n.attributes.indices;
  const Tensor &a = m.operand(n, 0), &b = m.operand(n, 1), &index = m.operand(n, 2);
  Tensor r = filled(m.type_of(n), 0);
  const std::string free = letters[3].substr(1);
  const Index r_extents = extents(r.type), inner(r_extents.begin() + 1, r_extents.end());
  const int64_t row = product(r_extents, 1);
  const Index a_free = strides_by_letter(a, letters[0], free), b_free = strides_by_letter(b, letters[1], free);
  const Index a_row = strides_by_letter(a, letters[0], letters[2]),
              b_row = strides_by_letter(b, letters[1], letters[2]);
  for_each(extents(index.type), [&](int64_t k, const Index& i) {
    if (index.values[k] < 0) return;
    const int64_t to = row_of(index, k, r_extents[0], "contract_scatter", v) * row;
    const int64_t at_a = dot(a_row, i), at_b = dot(b_row, i);
    for_each(inner, [&](int64_t at, const Index& j) {
      r.values[to + at] += a.values[at_a + dot(a_free, j)] * b.values[at_b + dot(b_free, j)];
    });
  });
  for (double& x : r.values) x = round_float(r.type.element.scalar, x, m.options.wide);
  return r;
}

Tensor eval_reshape(Machine& m, const Node& n, ValueId) {
  Tensor r = m.operand(n, 0);
  r.type = m.type_of(n);
  return r;
}

// Reads the operand with the given strides (one per result axis) and offset.
Tensor strided(Machine& m, const Node& n, const Index& strides, int64_t offset) {
  Tensor r = filled(m.type_of(n), 0);
  const std::vector<double>& a = m.operand(n, 0).values;
  for_each(extents(r.type), [&](int64_t k, const Index& i) { r.values[k] = a[offset + dot(strides, i)]; });
  return r;
}

Tensor eval_permute(Machine& m, const Node& n, ValueId) {
  const Index dense = row_major(extents(m.operand(n, 0).type));
  Index strides;
  for (int axis : n.attributes.axes) strides.push_back(dense[axis]);
  return strided(m, n, strides, 0);
}

Tensor eval_broadcast(Machine& m, const Node& n, ValueId) {
  return strided(m, n, stretched(extents(m.operand(n, 0).type), extents(m.type_of(n))), 0);
}

Tensor eval_slice(Machine& m, const Node& n, ValueId) {
  const Index dense = row_major(extents(m.operand(n, 0).type));
  Index strides;
  for (size_t d = 0; d < dense.size(); ++d) strides.push_back(dense[d] * n.attributes.strides[d]);
  return strided(m, n, strides, dot(dense, n.attributes.starts));
}

Tensor eval_windows(Machine& m, const Node& n, ValueId) {
  const Index dense = row_major(extents(m.operand(n, 0).type));
  const auto rank = n.type.shape.size();
  Index strides(rank, 0);
  for (size_t d = 0; d < dense.size(); ++d)
    for (size_t j = 0; j < rank; ++j) strides[j] += dense[d] * n.attributes.strides[d * rank + j];
  return strided(m, n, strides, dot(dense, n.attributes.starts));
}

Tensor eval_pad(Machine& m, const Node& n, ValueId) {
  Tensor r = filled(m.type_of(n), 0);
  const Tensor& a = m.operand(n, 0);
  const Index dense = row_major(extents(r.type));
  Index strides;
  for (size_t d = 0; d < dense.size(); ++d) strides.push_back(dense[d] * n.attributes.strides[d]);
  const int64_t offset = dot(dense, n.attributes.starts);
  for_each(extents(a.type), [&](int64_t k, const Index& i) { r.values[offset + dot(strides, i)] = a.values[k]; });
  return r;
}

Tensor eval_concat(Machine& m, const Node& n, ValueId) {
  Tensor r = filled(m.type_of(n), 0);
  const Index dense = row_major(extents(r.type));
  int64_t start = 0;
  for (size_t p = 0; p < n.operands.size(); ++p) {
    const Tensor& part = m.operand(n, p);
    const Index extent = extents(part.type);
    const int64_t offset = start * dense[n.attributes.axis];
    for_each(extent, [&](int64_t k, const Index& i) { r.values[offset + dot(dense, i)] = part.values[k]; });
    start += extent[n.attributes.axis];
  }
  return r;
}

// The rows and columns of a tensor as a codec's matrix.
std::pair<int64_t, int64_t> matrix(const Type& t) {
  const Index extent = extents(t);
  return {product(extent) / extent.back(), extent.back()};
}

Tensor eval_cast(Machine& m, const Node& n, ValueId) {
  const Tensor& a = m.operand(n, 0);
  const Type t = m.type_of(n);
  if (const FormatRef& f = t.element.format) {
    const auto [rows, columns] = matrix(t);
    std::vector<SuppliedField> supplied;
    for (size_t i = 0; i < n.attributes.sources.size(); ++i) {
      supplied.push_back({n.attributes.sources[i].first, m.operand(n, i + 1).values});
    }
    const std::vector<float> x(a.values.begin(), a.values.end());
    return {t, {}, encode(*f, x, rows, columns, supplied)};
  }
  if (const FormatRef& f = a.type.element.format) {
    const auto [rows, columns] = matrix(t);
    const std::vector<float> x = decode(*f, a.blob, rows, columns);
    return {t, {x.begin(), x.end()}, {}};
  }
  Tensor r = filled(t, 0);
  ScalarNode conversion{ScalarOp::cast_, t.element.scalar};
  conversion.args[0] = 0;
  const Scalar from = a.type.element.scalar;
  for (size_t k = 0; k < r.values.size(); ++k) {
    const ScalarValue x = eval_scalar_op(conversion, from, to_scalar(from, a.values[k]), {}, {}, m.options.wide);
    r.values[k] = from_scalar(t.element.scalar, x);
  }
  return r;
}

Tensor eval_random(Machine& m, const Node& n, ValueId) {
  Tensor r = filled(m.type_of(n), 0);
  const uint32_t seed = static_cast<int64_t>(m.operand(n, 0).values[0]);
  for (size_t k = 0; k < r.values.size(); ++k) r.values[k] = uniform_random(seed, n.attributes.salt, k);
  return r;
}

Tensor eval_update(Machine& m, const Node& n, ValueId v) {
  Tensor r = m.operand(n, 0);
  const Tensor& value = m.operand(n, 1);
  if (value.type == r.type && n.operands.size() == 2) return value;
  const Index state = extents(r.type), whole = extents(value.type);
  const std::ptrdiff_t lead = whole.size() - state.size();
  const Index parts(whole.begin(), whole.begin() + lead), part(whole.begin() + lead, whole.end());
  if (lead == 0 && value.type == r.type && r.type.element.format) return value;
  const Index dense = row_major(state);
  for_each(parts, [&](int64_t number, const Index&) {
    Index starts(state.size(), 0);
    bool wanted = true;
    for (size_t d = 0; d < starts.size() && n.operands.size() > 2; ++d) {
      const Tensor& start = m.operand(n, d + 2);
      const bool many = start.values.size() > 1 || !start.type.shape.empty();
      starts[d] = static_cast<int64_t>(start.values[many ? static_cast<size_t>(number) : 0]);
      if (many && starts[d] < 0) wanted = false;
    }
    if (!wanted) return;
    for (size_t d = 0; d < starts.size(); ++d) {
      if (starts[d] < 0 || starts[d] + part[d] > state[d]) {
        throw user_error("update %{}: {} elements from {} leave axis {} of extent {}", v, part[d], starts[d], d,
                         state[d]);
      }
    }
    if (!r.type.element.format) {
      const int64_t first = number * product(part);
      for_each(part, [&](int64_t k, const Index& i) {
        r.values[dot(dense, starts) + dot(dense, i)] = value.values[first + k];
      });
      return;
    }
    // Whole rows, so the records of a row are copied together, from both the data section and the row section.
    const Format& f = *r.type.element.format;
    const int64_t columns = state.back(), first = number * product(part) / columns;
    const BlobLayout to = blob_layout(f, product(state) / columns, columns);
    const BlobLayout from = blob_layout(f, product(whole) / columns, columns);
    const Index rows(part.begin(), part.end() - 1);
    const int row_level = ordinal(Level::row);
    for_each(rows, [&](int64_t k, const Index& i) {
      int64_t row = 0;
      for (size_t d = 0; d < i.size(); ++d) row += (starts[d] + i[d]) * dense[d] / columns;
      const int64_t own = first + k;
      std::copy_n(value.blob.begin() + own * from.row_stride, from.row_stride, r.blob.begin() + row * to.row_stride);
      std::copy_n(value.blob.begin() + from.section[row_level] + own * f.row_bytes, f.row_bytes,
                  r.blob.begin() + to.section[row_level] + row * f.row_bytes);
    });
  });
  return r;
}

std::vector<Tensor> run(const Graph& g, const std::map<std::string, Tensor>& inputs, const EvalOptions& options,
                        std::map<std::string, Tensor>* states);

Tensor eval_exchange(Machine& m, const Node& n, ValueId) {
  if (!m.options.exchange) throw user_error("an exchange between {} ranks: this one is alone", n.attributes.ranks);
  Tensor r = m.options.exchange(n, m.operand(n, 0));
  r.type = bind(n.type, m.options.symbols);
  return r;
}

Tensor eval_call(Machine& m, const Node& n, ValueId v) {
  const Graph& callee = *n.attributes.callee;
  std::map<std::string, Tensor> arguments;
  const std::vector<ValueId> inputs = callee.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) arguments[callee[inputs[i]].attributes.name] = m.operand(n, i);
  std::vector<Tensor> results = run(callee, arguments, m.options, nullptr);
  Tensor first = results[0];
  m.calls[v] = std::move(results);
  return first;
}

// One index of the first axis.
Tensor step_of(const Tensor& sequence, int64_t step) {
  Tensor one{sequence.type, {}, {}};
  one.type.shape.erase(one.type.shape.begin());
  const int64_t count = product(extents(one.type));
  one.values.assign(sequence.values.begin() + step * count, sequence.values.begin() + (step + 1) * count);
  return one;
}

Tensor eval_scan(Machine& m, const Node& n, ValueId v) {
  const Graph& body = *n.attributes.callee;
  const std::vector<ValueId> inputs = body.inputs();
  const size_t carries = n.attributes.carries, stepped = carries + n.attributes.sequences;
  const int64_t steps = m.operand(n, carries).type.shape[0].number();
  std::vector<Tensor> results(body.results.size());
  for (size_t k = 0; k < carries; ++k) results[k] = m.operand(n, k);
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t step = n.attributes.reverse ? steps - 1 - i : i;
    std::map<std::string, Tensor> arguments;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Tensor& given = k < carries ? results[k] : m.operand(n, k);
      arguments[body[inputs[k]].attributes.name] = k >= carries && k < stepped ? step_of(given, step) : given;
    }
    std::vector<Tensor> made = run(body, arguments, m.options, nullptr);
    for (size_t k = 0; k < carries; ++k) results[k] = made[k];
    for (size_t k = carries; k < made.size(); ++k) {
      if (i == 0) {
        results[k] = made[k];
        results[k].type.shape.insert(results[k].type.shape.begin(), Dim(steps));
        results[k].values.resize(steps * made[k].values.size());
      }
      std::copy(made[k].values.begin(), made[k].values.end(), results[k].values.begin() + step * made[k].values.size());
    }
  }
  Tensor first = results[0];
  m.calls[v] = std::move(results);
  return first;
}

Tensor eval_chunk(Machine& m, const Node& n, ValueId v) {
  m.calls[v] = m.calls.at(n.operands[0]);
  return m.calls[v][0];
}

Tensor eval_result(Machine& m, const Node& n, ValueId) {
  return m.calls.at(n.operands[0])[n.attributes.index];
}

using Evaluate = Tensor (*)(Machine&, const Node&, ValueId);
constexpr Evaluate kEvaluate[] = {
#define X(name, operands, attributes, pure, text) eval_##name,
#include "graph/ir/op.def"
#undef X
};

std::vector<Tensor> run(const Graph& g, const std::map<std::string, Tensor>& inputs, const EvalOptions& options,
                        std::map<std::string, Tensor>* states) {
  const ValueId count = g.nodes.size();
  Machine m{g, inputs, options, std::vector<Tensor>(count), {}, std::vector<int>(count, 0)};
  for (const Node& n : g.nodes) {
    for (ValueId o : n.operands) ++m.remaining[o];
  }
  for (ValueId r : g.results) ++m.remaining[r];
  std::vector<ValueId> state_input(count, -1);
  for (ValueId v = 0; v < count; ++v) {
    const Node& n = g[v];
    m.values[v] = kEvaluate[ordinal(n.op)](m, n, v);
    if (n.op == Op::input_) state_input[v] = v;
    if (n.op == Op::update_) {
      state_input[v] = state_input[n.operands[0]];
      LUMEN_CHECK(state_input[v] >= 0, "update %{} of no state", v);
      if (states) (*states)[g[state_input[v]].attributes.name] = m.values[v];
    }
    for (ValueId o : n.operands) {
      if (--m.remaining[o] == 0) m.values[o] = {};
    }
  }
  std::vector<Tensor> results;
  for (ValueId r : g.results) results.push_back(m.values[r]);
  return results;
}

}  // namespace

std::vector<Tensor> eval(const Graph& g, const std::map<std::string, Tensor>& inputs, const EvalOptions& options,
                         std::map<std::string, Tensor>* states) {
  verify_or_die(g, "building");
  EvalOptions bound = options;  // symbols without a binding follow from the inputs' shapes
  for (ValueId v : g.inputs()) {
    const Shape& shape = g[v].type.shape;
    const auto given = inputs.find(g[v].attributes.name);
    if (given == inputs.end() || given->second.type.shape.size() != shape.size()) continue;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d].symbols.size() == 1 && shape[d].coefficient == 1) {
        bound.symbols.emplace(shape[d].symbols[0], given->second.type.shape[d].number());
      }
    }
  }
  return run(g, inputs, bound, states);
}

}  // namespace lumen::graph
