// Elements that are sums, extremes or codes of many others. The error bound of a kernel's sums is the self-test's
// (trial/trial.cpp): additions in any order, rounded or truncated, of n terms with known magnitudes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ordinal.h"
#include "number/codec/codec.h"
#include "run/engine/verify/launch_trial/sampled.h"
#include "run/engine/verify/trial/trial.h"

namespace lumen::run {

using graph::Node;
using graph::Op;
using graph::Type;
using graph::ValueId;

namespace {

constexpr double kMasked = -1e20;
constexpr int64_t kEncodedAtOnce = int64_t{1} << 20;  // numbers

// Columns whose encoding depends on each other: all of them for row or tensor fields, or supplied ones.
int64_t encoded_together(const Node& n) {
  constexpr int64_t kFew = 64;
  const Format& f = *n.type.element.format;
  if (!n.attributes.sources.empty() || f.row_bytes + f.tensor_bytes > 0) return n.type.shape.back().number();
  int64_t columns = std::lcm<int64_t>(f.block, f.tile_bytes > 0 ? f.tile_columns : 1);
  while (columns < kFew) columns *= 2;
  return columns;
}

int rank_of(const Type& t) {
  return int(t.shape.size());
}

int64_t axis_of(const std::string& letters, char c) {
  const size_t at = letters.find(c);
  return at == std::string::npos ? -1 : int64_t(at);
}

// Visits every index of a box, the last axis first.
template <typename Body>
void for_each_place(const std::vector<int64_t>& extents, const Body& body) {
  std::vector<int64_t> place(extents.size());
  int64_t count = 1;
  for (const int64_t n : extents) count *= n;
  for (int64_t k = 0; k < count; ++k) {
    body(place);
    for (size_t d = extents.size(); d-- > 0;) {
      if (++place[d] < extents[d]) break;
      place[d] = 0;
    }
  }
}

// An operand's index for given values of its letters.
class Letters {
 public:
  explicit Letters(const std::string& own) : own_(own) {}
  Index place(const std::array<int64_t, 128>& of) const {
    Index i{int(own_.size()), {}};
    for (size_t d = 0; d < own_.size(); ++d) i.at[d] = of[size_t(own_[d]) & 127];
    return i;
  }

 private:
  const std::string& own_;
};

}  // namespace

// A factor as a kernel multiplies it.
Bounded Sampled::factor(ValueId v, const Index& i) {
  Bounded x = at(v, i);
  if (decodes_[v] && freedom_.decoded) x.value = round_to_scalar(*freedom_.decoded, x.value);
  if (!is_load_[v] && freedom_.products != Scalar::f32) x.error += 2 * units_of(freedom_.products) * std::abs(x.value);
  return x;
}

void Sampled::add(const Bounded& a, const Bounded& b, Terms* t) const {
  const double p = a.value * b.value, sa = std::abs(a.value), sb = std::abs(b.value);
  t->sum += p;
  t->sizes += std::abs(p);
  t->error += sa * b.error + sb * a.error + a.error * b.error;
  t->left = std::max(t->left, sa);
  t->right = std::max(t->right, sb);
  t->left_sizes += sa;
  t->right_sizes += sb;
  t->exact = t->exact && a.error == 0 && b.error == 0;
  ++t->count;
}

Bounded Sampled::total(const Node& n, const Terms& t) const {
  if (!is_float(n.type.element.scalar)) {
    if (!t.exact) throw CannotTry{"a sum of whole numbers is not certain"};
    return {double(wrap_to_scalar(n.type.element.scalar, int64_t(t.sum))), 0};
  }
  const bool decodes = decodes_[n.operands[0]] || decodes_[n.operands[1]];
  double sizes = t.sizes;
  // Sums of codes and of offsets cancel: each is as large as the largest number of the row, twice.
  if (decodes_[n.operands[0]]) sizes = std::max(sizes, 2 * t.left * t.right_sizes);
  if (decodes_[n.operands[1]]) sizes = std::max(sizes, 2 * t.right * t.left_sizes);
  double error = t.error + units_of_sum(t.count + 4) * sizes;
  if (freedom_.short_sums) error += units_of_short_sum(t.count) * sizes;
  if (freedom_.dynamic && decodes) {
    constexpr double kStep = 1.01 / 254;  // of the largest
    error += kStep * (t.left * t.right_sizes + t.right * t.left_sizes);
  }
  return rounded(n.type.element.scalar, {t.sum, std::isnan(error) ? INFINITY : error});
}

Bounded Sampled::contract(const Node& n, const Index& i) {
  const auto& letters = n.attributes.indices;
  const Type &a = g_[n.operands[0]].type, &b = g_[n.operands[1]].type;
  std::string summed;
  std::vector<int64_t> extents;
  for (int d = 0; d < rank_of(a); ++d)
    if (axis_of(letters[2], letters[0][d]) < 0) summed += letters[0][d], extents.push_back(a.shape[d].number());
  for (int d = 0; d < rank_of(b); ++d)
    if (axis_of(letters[2], letters[1][d]) < 0 && axis_of(summed, letters[1][d]) < 0)
      summed += letters[1][d], extents.push_back(b.shape[d].number());
  std::array<int64_t, 128> of{};
  for (int d = 0; d < i.rank; ++d) of[size_t(letters[2][d]) & 127] = i.at[d];
  const Letters left(letters[0]), right(letters[1]);
  Terms terms;
  for_each_place(extents, [&](const std::vector<int64_t>& place) {
    for (size_t d = 0; d < place.size(); ++d) of[size_t(summed[d]) & 127] = place[d];
    add(factor(n.operands[0], left.place(of)), factor(n.operands[1], right.place(of)), &terms);
  });
  return total(n, terms);
}

Bounded Sampled::contract_gather(const Node& n, const Index& i) {
  const auto& letters = n.attributes.indices;
  const Type& a = g_[n.operands[0]].type;
  std::string summed;
  std::vector<int64_t> extents;
  for (int d = 0; d < rank_of(a); ++d)
    if (axis_of(letters[3], letters[0][d]) < 0) summed += letters[0][d], extents.push_back(a.shape[d].number());
  std::array<int64_t, 128> of{};
  for (int d = 0; d < i.rank; ++d) of[size_t(letters[3][d]) & 127] = i.at[d];
  const int64_t row = whole(n.operands[2], Letters(letters[2]).place(of));
  if (row < 0) return {0, 0};
  of[size_t(letters[1][0]) & 127] = row;
  const Letters left(letters[0]), right(letters[1]);
  Terms terms;
  for_each_place(extents, [&](const std::vector<int64_t>& place) {
    for (size_t d = 0; d < place.size(); ++d) of[size_t(summed[d]) & 127] = place[d];
    add(factor(n.operands[0], left.place(of)), factor(n.operands[1], right.place(of)), &terms);
  });
  return total(n, terms);
}

Bounded Sampled::contract_scatter(const Node& n, const Index& i) {
  const auto& letters = n.attributes.indices;
  const Type& index = g_[n.operands[2]].type;
  std::vector<int64_t> extents;
  for (const graph::Dim& d : index.shape) extents.push_back(d.number());
  std::array<int64_t, 128> of{};
  for (int d = 1; d < i.rank; ++d) of[size_t(letters[3][d]) & 127] = i.at[d];
  const Letters left(letters[0]), right(letters[1]), picks(letters[2]);
  Terms terms;
  for_each_place(extents, [&](const std::vector<int64_t>& place) {
    for (size_t d = 0; d < place.size(); ++d) of[size_t(letters[2][d]) & 127] = place[d];
    if (whole(n.operands[2], picks.place(of)) != i.at[0]) return;
    add(factor(n.operands[0], left.place(of)), factor(n.operands[1], right.place(of)), &terms);
  });
  return total(n, terms);
}

Bounded Sampled::reduce(const Node& n, const Index& i) {
  const Type& from = g_[n.operands[0]].type;
  std::vector<int64_t> extents;
  for (const int axis : n.attributes.axes) extents.push_back(from.shape[axis].number());
  Index at_operand = i;
  double sum = 0, sizes = 0, error = 0, extreme = 0;
  int64_t count = 0;
  const graph::Reduction kind = n.attributes.reduction;
  for_each_place(extents, [&](const std::vector<int64_t>& place) {
    for (size_t d = 0; d < place.size(); ++d) at_operand.at[n.attributes.axes[d]] = place[d];
    const Bounded x = at(n.operands[0], at_operand);
    const bool better = count++ == 0 || (kind == graph::Reduction::max ? x.value > extreme : x.value < extreme);
    if (better) extreme = x.value;
    sum += x.value;
    sizes += std::abs(x.value);
    if (kind == graph::Reduction::sum)
      error += x.error;
    else if (!(x.error <= error))
      error = x.error;
  });
  const Scalar type = n.type.element.scalar;
  if (std::isnan(error)) error = INFINITY;
  // A fully masked row of scores: programs have none, and kernels may skip it.
  if (group_.shape == graph::KernelShape::attend && kind == graph::Reduction::max && extreme < kMasked)
    error = INFINITY;
  if (kind != graph::Reduction::sum) return {extreme, error};
  if (is_float(type)) return rounded(type, {sum, error + (count > 1 ? units_of_sum(count) * sizes : 0)});
  return {error == 0 ? double(wrap_to_scalar(type, int64_t(sum))) : sum, error};
}

Bounded Sampled::scatter_add(const Node& n, const Index& i) {
  const Type& index = g_[n.operands[1]].type;
  std::vector<int64_t> extents;
  for (const graph::Dim& d : index.shape) extents.push_back(d.number());
  Index from{rank_of(index) + i.rank - 1, {}};
  std::copy_n(i.at.begin() + 1, i.rank - 1, from.at.begin() + rank_of(index));
  double sum = 0, sizes = 0, error = 0;
  int64_t count = 0;
  for_each_place(extents, [&](const std::vector<int64_t>& place) {
    Index pick{rank_of(index), {}};
    std::copy(place.begin(), place.end(), pick.at.begin());
    if (whole(n.operands[1], pick) != i.at[0]) return;
    std::copy(place.begin(), place.end(), from.at.begin());
    const Bounded x = at(n.operands[0], from);
    sum += x.value, sizes += std::abs(x.value), error += x.error, ++count;
  });
  return rounded(n.type.element.scalar, {sum, error + (count > 1 ? units_of_sum(count) * sizes : 0)});
}

Bounded Sampled::cast(ValueId v, const Index& i) {
  const Node& n = g_[v];
  const Type &from = g_[n.operands[0]].type, &to = n.type;
  if (from.element.format && !to.element.format) return at(n.operands[0], i);
  if (!to.element.format) {
    Formula f;
    f.inputs = {from.element.scalar};
    f.outputs = {f.convert(ScalarOp::cast_, to.element.scalar, f.input(0))};
    const Bounded x = at(n.operands[0], i);
    return bounded_formula(f, {&x, 1});
  }
  const Format& f = *to.element.format;
  const int64_t columns = to.shape.back().number(), rows = graph::elements(to.shape).number() / columns;
  const int64_t flat = flat_of(to, i), unit = f.tensor_bytes > 0 ? rows : f.tile_bytes > 0 ? f.tile_rows : 1;
  const int64_t row = flat / columns / unit * unit, wide = encoded_together(n);
  const int64_t column = flat % columns / wide * wide;
  const Square square{row, std::min(unit, rows - row), column, std::min(wide, columns - column)};
  const int64_t key = (row * columns + column) * std::ssize(g_.nodes) + v;
  auto found = squares_.find(key);
  if (found == squares_.end()) found = squares_.emplace(key, encoded_square(n, square)).first;
  return found->second[(flat / columns - row) * square.columns + flat % columns - column];
}

// Decoded values of a part after the codec. If the encoded values are inexact, neighbouring codes are correct, too.
std::vector<Bounded> Sampled::encoded_square(const Node& n, const Square& square) {
  const Format& f = *n.type.element.format;
  const int64_t first = square.row, rows = square.rows, columns = square.columns, wide = n.type.shape.back().number();
  const int64_t all = graph::elements(n.type.shape).number() / wide;
  if (rows * columns > kEncodedAtOnce) throw CannotTry{fmt::format("too much is encoded in {} at once", f.name)};
  const Type& from = g_[n.operands[0]].type;
  std::vector<Bounded> exact;
  std::vector<float> x;
  for (int64_t k = 0; k < rows * columns; ++k) {
    const int64_t place = (first + k / columns) * wide + square.column + k % columns;
    exact.push_back(at(n.operands[0], index_of(from, place)));
    if (!exact.back().known()) throw CannotTry{"what is encoded is not certain"};
    x.push_back(float(exact.back().value));
  }
  std::vector<SuppliedField> supplied;
  for (size_t s = 0; s < n.attributes.sources.size(); ++s) {
    const ValueId values = n.operands[s + 1];
    const Type& type = g_[values].type;
    const int field = n.attributes.sources[s].first;
    const int64_t count = graph::elements(type.shape).number();
    const bool one = f.fields[field].level == Level::tensor;
    const bool by_row = f.fields[field].level == Level::row || f.fields[field].level == Level::block;
    if (rows != all && !one && !by_row) throw CannotTry{"fields of tiles are supplied"};
    const bool whole = one || rows == all;
    const int64_t begin = whole ? 0 : count / all * first, end = whole ? count : begin + count / all * rows;
    SuppliedField& given = supplied.emplace_back(SuppliedField{field, {}});
    for (int64_t k = begin; k < end; ++k) {
      const Bounded one_value = at(values, index_of(type, k));
      if (one_value.error != 0) throw CannotTry{"a supplied field is not certain"};
      given.values.push_back(one_value.value);
    }
  }
  const std::vector<float> y = decode(f, encode(f, x, rows, columns, supplied), rows, columns);
  double off = 0, error = 0;
  for (size_t k = 0; k < y.size(); ++k) {
    off = std::max(off, std::abs(double(y[k]) - exact[k].value));
    error = std::max(error, exact[k].error);
  }
  std::vector<Bounded> out;
  for (const float one : y) out.push_back({one, error == 0 ? 0 : 2 * (off + error)});
  return out;
}

}  // namespace lumen::run
