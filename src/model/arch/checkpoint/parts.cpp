#include "model/arch/checkpoint/parts.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/checkpoint/rows.h"

namespace lumen::model::arch {
namespace {

// Rows of the whole tensor that belong to this parameter, group by group.
std::vector<int64_t> rows_of(const Parameter& p, int64_t rows) {
  std::vector<int64_t> out(rows);
  for (int64_t r = 0; r < rows; ++r) out[r] = p.row_of_whole(r, rows);
  return out;
}

// The same weight reshaped to this number of columns: its numbers are contiguous.
Weight with_columns(const Weight& w, int64_t columns) {
  Weight out = w;
  const int64_t count = w.rows() * w.columns();
  out.type.shape = {graph::Dim(count / columns), graph::Dim(columns)};
  return out;
}

Weight with_shape(Weight w, const graph::Shape& shape) {
  w.type.shape = shape;
  return w;
}

}  // namespace

graph::Shape shape_of_whole(const Parameter& p, bool as_rows) {
  graph::Shape shape = p.shape;
  const size_t n = shape.size();
  if (!p.hf_columns && n == 2) return {graph::Dim(shape[0].number() / p.hf_count * p.hf_of), shape[1]};
  if (!p.hf_columns) return {graph::Dim(shape[0].number() * p.hf_of), shape[p.hf_transposed ? n - 2 : n - 1]};
  const size_t axis = p.hf_transposed ? n - 2 : n - 1;  // of ours, along which the file's tensor is longer
  shape[axis] = graph::Dim(shape[axis].number() / p.hf_count * p.hf_of);
  if (p.hf_transposed && !as_rows) std::swap(shape[n - 2], shape[n - 1]);
  return shape;
}

Weight part_of(const Weight& whole, const Parameter& p, bool as_rows) {
  const int64_t count = p.count();
  const int64_t columns = p.shape.back().number();
  if (!p.hf_columns) {
    if (!p.hf_transposed) return take_rows(whole, p.shape, rows_of(p, count / columns));
    return transposed(
        take_rows(whole, {p.shape[0], p.shape[2], p.shape[1]}, rows_of(p, p.shape[0].number() * columns)));
  }
  if (p.hf_transposed) return take_rows(as_rows ? whole : transposed(whole), p.shape, rows_of(p, count / columns));
  if (is_rounded(whole))
    throw user_error("columns of a weight in format '{}' cannot be taken apart", whole.type.element.format->name);
  return with_shape(take_rows(with_columns(whole, 1), {graph::Dim(count), graph::Dim(1)}, rows_of(p, count)), p.shape);
}

graph::Type type_of_whole(const Model& model, const std::vector<const Parameter*>& parts, bool as_rows) {
  const Parameter& first = *parts.front();
  int64_t counted = 0;
  for (const Parameter* p : parts) counted += p->hf_count;
  if (counted != first.hf_of)
    throw user_error("family '{}': the parameters in tensor '{}' hold {} of every {} rows or columns",
                     model.family->name(), first.hf_rows, counted, first.hf_of);
  const graph::Element element = model.weights.at(first.name).type.element;
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const Parameter* p) {
    const Weight& w = model.weights.at(p->name);
    const bool stays = as_rows ? p->hf_transposed && p->hf_columns : !p->hf_transposed && !p->hf_columns;
    return w.type.element == element && (stays || !is_rounded(w));
  });
  return {shape_of_whole(first, as_rows && alike), alike ? element : graph::Element{Scalar::f32, nullptr}};
}

Weight whole_of(const Model& model, const std::vector<const Parameter*>& parts, bool as_rows) {
  const Parameter& first = *parts.front();
  const graph::Element element = type_of_whole(model, parts, as_rows).element;
  // Concatenates the rows of all parts, then moves them to their places. For columns that are not transposed, every
  // number is a row.
  std::vector<Weight> rows;
  int64_t all = 0;
  for (const Parameter* p : parts) {
    const Weight& own = model.weights.at(p->name);
    Weight w = own.type.element == element ? own : decoded(own);
    if (p->hf_transposed && !p->hf_columns) w = transposed(w);
    rows.push_back(with_columns(w, p->hf_columns && !p->hf_transposed ? 1 : w.columns()));
    all += rows.back().rows();
  }
  std::vector<int64_t> source(all);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int64_t> places = rows_of(*parts[i], rows[i].rows());
    for (size_t r = 0; r < places.size(); ++r) source[places[r]] = begin + r;
    begin += rows[i].rows();
  }
  const graph::Shape flat = {graph::Dim(all), graph::Dim(rows.front().columns())};
  Weight whole = with_shape(take_rows(stack_rows(rows, flat), flat, source), shape_of_whole(first, true));
  return first.hf_columns && first.hf_transposed && !as_rows ? transposed(whole) : whole;
}

}  // namespace lumen::model::arch
