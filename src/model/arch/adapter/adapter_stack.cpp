#include "model/arch/adapter/adapter_stack.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::arch {
namespace {

constexpr std::string_view kNumber = "{e}";

}  // namespace

std::optional<int64_t> matrix_number(const std::string& pattern, const std::string& name) {
  const size_t at = pattern.find(kNumber);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view before = std::string_view(pattern).substr(0, at),
                         after = std::string_view(pattern).substr(at + kNumber.size());
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after))
    return std::nullopt;
  const char *first = name.data() + before.size(), *last = name.data() + name.size() - after.size();
  int64_t number = 0;
  const auto read = std::from_chars(first, last, number);
  if (read.ec != std::errc() || read.ptr != last || number < 0 || (*first == '0' && last - first > 1))
    return std::nullopt;
  return number;
}

Weight matrix_of(const Weight& w, int64_t number) {
  const graph::Shape shape(w.type.shape.begin() + 1, w.type.shape.end());
  const size_t count = graph::elements(shape).number();
  return f32_weight(shape, w.f32().subspan(number * count, count));
}

AdapterPart matrix_of(const AdapterPart& part, int64_t number) {
  AdapterPart out{matrix_of(part.a, number), matrix_of(part.b, number), part.scale};
  if (part.magnitude) out.magnitude = matrix_of(*part.magnitude, number);
  return out;
}

AdapterPart stack_matrices(const Parameter& p, const std::map<int64_t, AdapterPart>& matrices,
                           const std::string& file) {
  LUMEN_CHECK(p.shape.size() == 3 && !matrices.empty());
  const int64_t count = p.shape[0].number(), rows = p.shape[1].number(), columns = p.shape[2].number();
  LUMEN_CHECK(matrices.rbegin()->first < count);
  AdapterPart out;
  out.scale = matrices.begin()->second.scale;
  const bool magnitudes = matrices.begin()->second.magnitude.has_value();
  int64_t rank = 0;
  for (const auto& [number, one] : matrices) {
    rank = std::max(rank, one.rank());
    if (one.magnitude.has_value() != magnitudes || (magnitudes && std::ssize(matrices) != count))
      throw user_error("{}: some of the {} matrices of parameter {} have magnitudes, others have none", file, count,
                       p.name);
  }
  // The rank applies to all matrices: a small file must not allocate a large one of zeros.
  if (rank > std::max(rows, columns))
    throw user_error("{}: the update of a matrix of parameter {} has rank {}, more than the matrix has rows or columns",
                     file, p.name, rank);
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  std::vector<float> a(size(count * rank * columns)), b(size(count * rows * rank)), lengths;
  for (const auto& [number, one] : matrices) {
    std::copy(one.a.f32().begin(), one.a.f32().end(), a.begin() + number * rank * columns);
    // Differences of scale become a factor of B.
    const double factor = one.scale / out.scale;
    const std::span<const float> from = one.b.f32();
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t r = 0; r < one.rank(); ++r)
        b[size((number * rows + n) * rank + r)] =
            factor == 1 ? from[size(n * one.rank() + r)] : static_cast<float>(factor * from[size(n * one.rank() + r)]);
    if (one.magnitude) lengths.insert(lengths.end(), one.magnitude->f32().begin(), one.magnitude->f32().end());
  }
  const graph::Dim all(count), narrow(rank);
  out.a = f32_weight({all, narrow, p.shape[2]}, a);
  out.b = f32_weight({all, p.shape[1], narrow}, b);
  if (magnitudes) out.magnitude = f32_weight({all, p.shape[1]}, lengths);
  return out;
}

AdapterPart split_stack(const Parameter& p, const Weight& a, const Weight& b, std::span<const int64_t> source,
                        bool turned) {
  LUMEN_CHECK(p.shape.size() == 3 && std::ssize(source) == p.shape[1].number());
  const int64_t count = p.shape[0].number(), rows = p.shape[1].number(), columns = p.shape[2].number();
  const int64_t all = a.rows(), rank = all / count;
  LUMEN_CHECK(rank * count == all && b.columns() == all);
  const std::span<const float> given_a = a.f32(), given_b = b.f32();
  const auto in_a = [&](int64_t e, int64_t r, int64_t k) { return given_a[(e * rank + r) * a.columns() + k]; };
  const auto in_b = [&](int64_t e, int64_t r, int64_t n) { return given_b[n * all + r * count + e]; };
  std::vector<float> own_a, own_b;
  own_a.reserve(all * columns);
  own_b.reserve(count * rows * rank);
  for (int64_t e = 0; e < count; ++e) {
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t k = 0; k < columns; ++k) own_a.push_back(turned ? in_b(e, r, k) : in_a(e, r, k));
    for (const int64_t n : source)
      for (int64_t r = 0; r < rank; ++r) own_b.push_back(turned ? in_a(e, r, n) : in_b(e, r, n));
  }
  const graph::Dim narrow(rank);
  return {f32_weight({p.shape[0], narrow, p.shape[2]}, own_a), f32_weight({p.shape[0], p.shape[1], narrow}, own_b), 1};
}

}  // namespace lumen::model::arch
