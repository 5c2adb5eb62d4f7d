#include "model/train/ranks/cuts.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "base/ordinal.h"

namespace lumen::model::train {
namespace {

// Parts of tensors are passed to kernels in place, so each must begin at a cache line, even with 16-bit elements.
constexpr int64_t kAligned = 32;  // elements

bool is_elementwise(const graph::Graph& update) {
  return std::all_of(update.nodes.begin(), update.nodes.end(), [](const graph::Node& node) {
    switch (node.op) {
      case graph::Op::input_:
      case graph::Op::constant_:
      case graph::Op::map_:
      case graph::Op::cast_:
      case graph::Op::broadcast_:
      case graph::Op::update_:
        return true;
      default:
        return false;
    }
  });
}

bool stands_in_rows(const graph::Type& type) {
  const FormatRef& f = type.element.format;
  return !f || (f->tile_bytes == 0 && f->tensor_bytes == 0);
}

bool can_be_cut(const arch::Parameter& p, const recipe::Optimizer& optimizer) {
  if (p.shape.empty() || !is_elementwise(optimizer.update(p))) return false;
  const std::vector<recipe::Optimizer::State> states = optimizer.states(p);
  return std::all_of(states.begin(), states.end(), [&](const recipe::Optimizer::State& s) {
    return s.type.shape == p.shape && stands_in_rows(s.type);
  });
}

// Offsets of rows in a whole tensor and in a part: sections with a fixed number of bytes per row.
struct Section {
  int64_t whole = 0, part = 0, row_bytes = 0;
};
std::vector<Section> sections(const Cut& cut, const graph::Type& type, int rank) {
  const FormatRef& f = type.element.format;
  if (!f) return {{0, 0, cut.columns * scalar_bytes(type.element.scalar)}};
  const BlobLayout whole = blob_layout(*f, cut.rows, cut.columns);
  const BlobLayout part = blob_layout(*f, cut.rows_of(rank), cut.columns);
  LUMEN_CHECK(whole.row_stride == part.row_stride);
  std::vector<Section> out = {{0, 0, whole.row_stride}};
  if (f->row_bytes > 0)
    out.push_back({whole.section[ordinal(Level::row)], part.section[ordinal(Level::row)], f->row_bytes});
  return out;
}

}  // namespace

arch::Parameter Cut::part(int rank) const {
  LUMEN_CHECK(rows_of(rank) > 0);
  arch::Parameter out = whole;
  out.shape = part_of({whole.shape, {Scalar::f32, nullptr}}, rank).shape;
  return out;
}

graph::Type Cut::part_of(const graph::Type& type, int rank) const {
  if (!in_rows) return type;
  LUMEN_CHECK(type.shape == whole.shape);
  graph::Type out = type;
  out.shape = whole.shape.size() == 1 ? graph::Shape{rows_of(rank)} : graph::Shape{rows_of(rank), columns};
  return out;
}

std::vector<Cut> cut_parameters(const std::vector<arch::Parameter>& parameters, const recipe::Optimizer& optimizer,
                                int ranks) {
  std::vector<Cut> cuts;
  std::vector<int64_t> load(ranks, 0);
  for (const arch::Parameter& p : parameters) {
    Cut cut;
    cut.whole = p;
    const int64_t count = p.count();
    cut.columns = p.shape.size() < 2 ? 1 : p.shape.back().number();
    cut.rows = count / cut.columns;
    cut.in_rows = can_be_cut(p, optimizer);
    if (cut.in_rows) {
      const int64_t together = kAligned / std::gcd(kAligned, cut.columns);
      const int64_t units = (cut.rows + together - 1) / together;
      for (int r = 0; r <= ranks; ++r) cut.first.push_back(std::min(cut.rows, units * r / ranks * together));
    } else {
      const auto owner = std::min_element(load.begin(), load.end());
      *owner += count;
      for (int r = 0; r <= ranks; ++r) cut.first.push_back(r <= owner - load.begin() ? 0 : cut.rows);
    }
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

std::vector<uint8_t> part_bytes(const Cut& cut, const graph::Type& whole, std::span<const uint8_t> bytes, int rank) {
  if (!cut.in_rows) return {bytes.begin(), bytes.end()};
  std::vector<uint8_t> out(graph::byte_size(cut.part_of(whole, rank)));
  for (const Section& s : sections(cut, whole, rank))
    std::memcpy(out.data() + s.part, bytes.data() + s.whole + cut.first[rank] * s.row_bytes,
                cut.rows_of(rank) * s.row_bytes);
  return out;
}

void place_part(const Cut& cut, const graph::Type& whole, std::span<const uint8_t> part, int rank,
                std::span<uint8_t> bytes) {
  if (!cut.in_rows) {
    LUMEN_CHECK(part.size() == bytes.size());
    std::copy(part.begin(), part.end(), bytes.begin());
    return;
  }
  for (const Section& s : sections(cut, whole, rank))
    std::memcpy(bytes.data() + s.whole + cut.first[rank] * s.row_bytes, part.data() + s.part,
                cut.rows_of(rank) * s.row_bytes);
}

}  // namespace lumen::model::train
